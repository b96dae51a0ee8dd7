//! The answers as JSON, and as the figures of the text tables.

use report::{GainFigures, Verdict, WhatIf, WhatIfGroup, WhatIfRow, advice::Advised};
use serde_json::{Value, json};
use simulate::{
    stats::Estimate,
    whatif::{Answer, Effect, Gain, gain::NEGLIGIBLE_PCT},
};

use super::study::{Asked, Group, Study};
use crate::{open::AnyReader, simulate::workload::Workload};

/// What was simulated.
pub struct Context<'a> {
    pub reader: &'a AnyReader,
    pub workload: &'a Workload,
    pub asked: &'a Asked,
    pub seed: u64,
}

fn us(ps: f64) -> f64 {
    ps / 1e6
}

fn between(estimate: &Estimate) -> Value {
    json!([estimate.low, estimate.high])
}

pub fn json(study: &Study, context: &Context<'_>, advised: &[(usize, Advised)]) -> Value {
    let noiseless = us(study.noiseless_ps as f64);
    let median = us(study.as_recorded.value);
    let rows = study.rows.iter().enumerate().filter_map(|(index, row)| {
        let mut value = answer(&row.answer?);
        let advice = advised.iter().find(|(at, _)| *at == index).map(|(_, advised)| advised);
        extend(
            &mut value,
            json!({
                "class": row.source.key.class.name(),
                "name": row.source.key.name,
                "unit": row.source.key.unit,
                "own": row.source.key.own,
                "program": row.source.program,
                "rank": row.scale_rank,
                "local_rank": row.local_rank,
                "local_share_pct": row.local_share_pct,
                "local_ns_total": row.taken.ns,
                "local_ns_max": row.taken.longest_ns,
                "detours": row.taken.detours,
                "advice": advice.map_or_else(Vec::new, remedies),
            }),
        );
        Some(value)
    });
    let mut baseline = json!({
        "median_us": median,
        "median_ci95_us": [us(study.as_recorded.low), us(study.as_recorded.high)],
        "noiseless_us": noiseless,
        "slowdown_median": if noiseless > 0.0 { median / noiseless } else { 1.0 },
    });
    extend(&mut baseline, json!({ "detours": study.detours, "detour_ns_total": study.detour_ns }));
    json!({
        "host": context.reader.manifest().host,
        "ranks": context.workload.ranks(),
        "runs": study.runs,
        "seed": context.seed,
        "job": context.workload.words,
        "net": context.workload.net(),
        "noise_model": context.workload.model.name(),
        "shift_cpu": context.asked.shift,
        "negligible_pct": NEGLIGIBLE_PCT,
        "baseline": baseline,
        "sources": rows.collect::<Vec<_>>(),
        "others": study.others.as_ref().map(group),
        "units": study.units.iter().map(group).collect::<Vec<_>>(),
        "together": study.together.as_ref().map(group),
        "remarks": study.left_out.iter().collect::<Vec<_>>(),
    })
}

fn extend(value: &mut Value, more: Value) {
    if let (Value::Object(map), Value::Object(more)) = (value, more) {
        map.extend(more);
    }
}

fn gain(gain: &Gain) -> Value {
    json!({
        "median_us": us(gain.median.value),
        "gain_pct": gain.gain.value,
        "gain_ci95_pct": between(&gain.gain),
        "changed_runs": gain.changed_runs,
        "shorter_runs": gain.shorter_runs,
        "effect": gain.effect().name(),
    })
}

fn answer(answer: &Answer) -> Value {
    let mut value = gain(&answer.removed);
    if let Value::Object(map) = &mut value {
        let median = map.remove("median_us");
        map.insert("median_us_without".to_owned(), median.unwrap_or_default());
    }
    let removed = &answer.removed.median;
    extend(
        &mut value,
        json!({
            "median_ci95_us_without": [us(removed.low), us(removed.high)],
            "shifted": answer.shifted.as_ref().map(gain),
            "quantised": answer.quantised.as_ref().map(gain),
        }),
    );
    value
}

fn group(group: &Group) -> Value {
    let mut value = answer(&group.answer);
    extend(
        &mut value,
        json!({
            "names": group.names,
            "unit": group.names.first(),
            "source_count": group.sources,
            "local_ns_total": group.taken_ns,
            "local_share_pct": group.local_share_pct,
        }),
    );
    value
}

fn remedies(advised: &Advised) -> Vec<Value> {
    let remedy = |r: &report::advice::Remedy| json!({ "what": r.what, "run": r.run, "reason": r.reason, "risk": r.risk });
    advised.remedies.iter().map(remedy).collect()
}

/// The figures of the text output.
pub fn figures(study: &Study, reader: &AnyReader, workload: &Workload, asked: &Asked) -> WhatIf {
    let rows = study.rows.iter().filter(|row| row.taken.ns > 0).filter_map(|row| {
        let answer = row.answer?;
        Some(WhatIfRow {
            class: row.source.key.class,
            name: row.source.key.name.clone(),
            unit: row.source.key.unit.clone(),
            own: row.source.key.own,
            program: row.source.program,
            scale_rank: row.scale_rank,
            local_rank: row.local_rank,
            local_share_pct: row.local_share_pct,
            removed: gain_figures(&answer.removed),
            shifted: answer.shifted.as_ref().map(gain_figures),
            quantised: answer.quantised.as_ref().map(gain_figures),
        })
    });
    let mut rows: Vec<WhatIfRow> = rows.collect();
    // Ranked rows first: an uncertain gain comes after a certain one.
    rows.sort_by_key(|row| row.scale_rank.is_none());
    WhatIf {
        host: reader.manifest().host.clone(),
        job: workload.words.clone(),
        net: workload.net().to_owned(),
        ranks: workload.ranks(),
        runs: study.runs,
        detours: study.detours,
        noiseless_us: us(study.noiseless_ps as f64),
        median_us: us(study.as_recorded.value),
        median_between_us: (us(study.as_recorded.low), us(study.as_recorded.high)),
        rows,
        others: study.others.as_ref().map(group_figures),
        units: study.units.iter().map(group_figures).collect(),
        together: study.together.as_ref().map(group_figures),
        shift: asked.shift,
        quantise: asked.quantise,
        left_out: study.left_out.clone(),
    }
}

fn group_figures(group: &Group) -> WhatIfGroup {
    WhatIfGroup {
        names: group.names.clone(),
        sources: group.sources,
        local_share_pct: group.local_share_pct,
        removed: gain_figures(&group.answer.removed),
        shifted: group.answer.shifted.as_ref().map(gain_figures),
        quantised: group.answer.quantised.as_ref().map(gain_figures),
    }
}

pub fn gain_figures(gain: &Gain) -> GainFigures {
    GainFigures {
        median_us: us(gain.median.value),
        gain_pct: gain.gain.value,
        between_pct: (gain.gain.low, gain.gain.high),
        changed_runs: gain.changed_runs,
        shorter_runs: gain.shorter_runs,
        verdict: match gain.effect() {
            Effect::Gain => Verdict::Gain,
            Effect::SomeRuns => Verdict::SomeRuns,
            Effect::Nothing => Verdict::Nothing,
            Effect::Unclear => Verdict::Unclear,
            Effect::Loss => Verdict::Loss,
        },
    }
}
