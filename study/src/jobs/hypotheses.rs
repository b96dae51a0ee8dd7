//! `--if`: what would change a program's time.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use application::{Application, Hypothesis, Mapped, Operation, Place, Rules, Shares, Step};
use mpi_abi::Call;
use serde::Serialize;
use simulate::collectives::{ALGORITHMS, Collective, Op, Shape};
use thiserror::Error;

use crate::{
    explain::states::{PathPart, Waits},
    jobs::app,
    recording::sources::Sources,
};

/// One `--if`.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// As asked.
    pub text: String,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Everything that is worth asking.
    Auto,
    Program(Hypothesis),
    /// Other algorithms for collectives.
    Map(Rules),
    /// A network that is faster by this factor.
    NetScale(f64),
    /// A source of noise is gone.
    Without(String),
}

/// The effect of a change, at one rank count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    pub text: String,
    pub ranks: u64,
    /// Median with the change.
    pub median_us: f64,
    /// Reduction of the median in per cent, run by run under the same noise; 95 % confidence interval.
    pub gain_pct: f64,
    pub gain_ci95_pct: [f64; 2],
    /// Runs whose time the change affects.
    pub changed_runs: u64,
    /// What all ranks together wait for in the first run, without and with the change; null if
    /// there are too many operations to analyse.
    pub waits_before: Option<Waits>,
    pub waits_after: Option<Waits>,
    /// Ranks of that run: fewer than `ranks` if those have too many operations to analyse.
    pub waits_ranks: Option<u64>,
    /// The critical path of that run without and with the change, the longest part first.
    pub path_before: Vec<PathPart>,
    pub path_after: Vec<PathPart>,
    /// The critical path with the change in words.
    pub critical: Option<String>,
    /// What to know about the change: how many ranks a balanced part is spread over, if not over all of them, or that
    /// a rule changes no collective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A change that was not tried: one of `--if auto` under which the program could not end, or all together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    pub text: String,
    pub ranks: u64,
    /// Why it was not tried.
    pub reason: String,
}

/// A program that cannot end, in the words of the program.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct CannotEnd(pub String);

/// What to know about a change of this program.
pub(crate) fn note(application: &Application, hypothesis: &Hypothesis) -> Option<String> {
    let Hypothesis::Balance(place) = hypothesis else { return None };
    let Shares { with, of } = application.shares(place)?;
    match with {
        _ if with == of => None,
        1 => Some(format!(
            "only 1 of {of} ranks computes there: the others take no share, so nothing changes"
        )),
        _ => Some(format!("only {with} of {of} ranks compute there: the others take no share")),
    }
}

/// What to know about other algorithms for this program.
pub(crate) fn map_note(application: &Application, rules: &Rules, others: &Rules) -> Option<String> {
    const UNEVEN: &str = "with a size for each rank have no algorithm to choose";
    let Mapped { calls, changed, uneven } = application.mapped(rules, others);
    match (calls, changed, uneven) {
        (0, ..) => Some("the program does not call these collectives: nothing changes".to_owned()),
        (_, 0, _) if uneven == calls => Some(format!("collectives {UNEVEN}: nothing changes")),
        (_, 0, 0) => Some("its collectives have these algorithms already: nothing changes".into()),
        (_, 0, _) => Some(format!(
            "its collectives have these algorithms already, and those {UNEVEN}: nothing changes"
        )),
        (_, _, 0) => None,
        _ => Some(format!("those {UNEVEN} ({uneven} of {calls} calls)")),
    }
}

const EXPECTED: &str = "expected scale REGION 0.5, balance REGION, drop REGION, drop tag 17, drop MPI_CALL, \
                        resize tag 17 0.25, map RULES, nonblocking REGION, net-scale 10, without SOURCE, or \
                        auto; scale and balance also take `after MPI_CALL` as REGION";

pub fn parse(text: &str) -> Result<Question, String> {
    let wrong = || format!("'{text}' is not a hypothesis ({EXPECTED})");
    let words: Vec<&str> = text.split_whitespace().collect();
    let factor = |word: &str| -> Result<f64, String> {
        let factor: f64 = word.parse().map_err(|_| wrong())?;
        if factor.is_finite() && factor >= 0.0 { Ok(factor) } else { Err(wrong()) }
    };
    let tag = |word: &str| word.parse::<i32>().map_err(|_| wrong());
    let change = match words[..] {
        ["auto"] => Change::Auto,
        ["scale", ref place @ .., last] if !place.is_empty() => {
            Change::Program(Hypothesis::Scale(self::place(place)?, factor(last)?))
        }
        ["balance", ref place @ ..] if !place.is_empty() => {
            Change::Program(Hypothesis::Balance(self::place(place)?))
        }
        ["drop", "tag", number] => Change::Program(Hypothesis::DropTag(tag(number)?)),
        ["drop", name] if name.starts_with("MPI_") => {
            Change::Program(Hypothesis::DropCall(call(name)?))
        }
        ["drop", "after", _] => {
            return Err(format!(
                "'{text}': computation after a call cannot be dropped: use scale {} 0",
                words[1..].join(" ")
            ));
        }
        ["nonblocking", "after", _] => {
            return Err(format!(
                "'{text}': computation after a call posts no receives: use the name of a region (scale and balance \
                 also take `after MPI_CALL`)"
            ));
        }
        ["drop", ref name @ ..] if !name.is_empty() => {
            Change::Program(Hypothesis::DropRegion(name.join(" ")))
        }
        ["resize", "tag", number, by] => {
            Change::Program(Hypothesis::Resize(tag(number)?, factor(by)?))
        }
        ["nonblocking", ref name @ ..] if !name.is_empty() => {
            Change::Program(Hypothesis::Nonblocking(name.join(" ")))
        }
        ["map", rules] => Change::Map(app::rules(rules)?),
        ["net-scale", by] => match factor(by)? {
            by if by > 0.0 => Change::NetScale(by),
            _ => return Err(wrong()),
        },
        ["without", ref name @ ..] if !name.is_empty() => Change::Without(name.join(" ")),
        _ => return Err(wrong()),
    };
    Ok(Question { text: words.join(" "), change })
}

fn place(words: &[&str]) -> Result<Place, String> {
    match words {
        ["after", name] => Ok(Place::After(call(name)?)),
        words => Ok(Place::Region(words.join(" "))),
    }
}

fn call(name: &str) -> Result<Call, String> {
    let found = Call::ALL.iter().copied().find(|call| call.name() == name);
    found.ok_or_else(|| format!("'{name}' is not a recorded MPI call"))
}

/// Share of the computation from which it is worth asking about a part of it that has no region.
const WORTH_ASKING: f64 = 0.01;

/// The calls that are followed by computation outside of all regions.
fn computes_after(application: &Application) -> Vec<Call> {
    let (mut whole, mut after_call) = (0i128, BTreeMap::new());
    for tape in &application.tapes {
        let mut inside = 0usize;
        for step in &tape.steps {
            match *step {
                Step::Begin { .. } => inside += 1,
                Step::End { .. } => inside = inside.saturating_sub(1),
                Step::Compute { ps, after, .. } => {
                    whole += i128::from(ps);
                    if inside == 0 {
                        *after_call.entry(after).or_insert(0i128) += i128::from(ps);
                    }
                }
                _ => {}
            }
        }
    }
    let enough = whole as f64 * WORTH_ASKING;
    let found = after_call.into_iter().filter(|(_, ps)| *ps as f64 > enough);
    found.filter_map(|(number, _)| Call::from_number(number)).collect()
}

/// Everything worth asking of a program and its noise: every region, and what is computed after each call outside of
/// them, balanced and halved, every kind of collective removed and with other algorithms, every noise source removed, a
/// network ten times faster. `ranks` is the largest number of them: algorithms that need many times the messages there
/// cannot be faster, and are not asked about.
pub fn auto(
    application: &Application,
    rules: &Rules,
    sources: &[String],
    ranks: u64,
) -> Result<Vec<Question>> {
    let mut texts: Vec<String> = Vec::new();
    let after =
        computes_after(application).into_iter().map(|call| format!("after {}", call.name()));
    for place in application.regions.iter().cloned().chain(after) {
        texts.push(format!("balance {place}"));
        texts.push(format!("scale {place} 0.5"));
    }
    let (mut calls, mut operations) = (BTreeSet::new(), BTreeSet::new());
    for tape in &application.tapes {
        for step in &tape.steps {
            let Step::Collective { call, .. } = step else { continue };
            let Some(call) = tape.calls.get(*call as usize) else { continue };
            calls.insert(call.mpi);
            if let Operation::Regular { op, bytes, .. } = call.operation {
                let place = Op::ALL.iter().position(|known| *known == op).unwrap_or(0);
                operations.insert((place, rules.of(op, bytes), bytes));
            }
        }
    }
    let names = calls.into_iter().filter_map(Call::from_number).map(|call| call.name());
    texts.extend(names.map(|name| format!("drop {name}")));
    for place in operations.iter().map(|(place, ..)| *place).collect::<BTreeSet<_>>() {
        let op = Op::ALL[place];
        let used = || operations.iter().filter(|(of, ..)| *of == place);
        let names: BTreeSet<&str> = used().map(|(_, name, _)| *name).collect();
        for algorithm in ALGORITHMS.iter().filter(|algorithm| algorithm.ops().contains(&op)) {
            let name = algorithm.name();
            let sensible = |(_, now, bytes): &(usize, &str, u64)| {
                let of = |name: &str| messages(op, name, ranks, *bytes);
                of(name) <= of(now).saturating_mul(MOST_MESSAGES)
            };
            if !names.iter().eq([&name]) && used().all(sensible) {
                texts.push(format!("map {}={name}", op.name()));
            }
        }
    }
    texts.extend(sources.iter().map(|source| format!("without {source}")));
    texts.push("net-scale 10".to_owned());
    let parse = |text: String| parse(&text).map_err(anyhow::Error::msg).context(text);
    texts.into_iter().map(parse).collect()
}

/// So many times the messages are not worth a try.
const MOST_MESSAGES: u64 = 16;

/// Messages of a collective by an algorithm; none if it does not exist there.
fn messages(op: Op, algorithm: &str, ranks: u64, bytes: u64) -> u64 {
    let shape = Shape { op, ranks, bytes, arity: 2, segment: None };
    Collective::new(Some(algorithm), shape).map_or(0, |collective| collective.messages())
}

/// Names of the sources in noise, each once.
pub fn names(sources: &Sources) -> Vec<String> {
    let recorded = sources.all().iter().filter(|source| source.class.is_some() && !source.own);
    let names: BTreeSet<String> = recorded.map(|source| source.name.clone()).collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hypotheses_are_parsed_or_refused_with_a_list() {
        let change = |text: &str| parse(text).unwrap().change;
        let region = |name: &str| Place::Region(name.to_owned());
        assert_eq!(
            change("scale time step 0.5"),
            Change::Program(Hypothesis::Scale(region("time step"), 0.5))
        );
        assert_eq!(
            change("balance after MPI_Waitall"),
            Change::Program(Hypothesis::Balance(Place::After(Call::Waitall)))
        );
        assert_eq!(change("drop tag 17"), Change::Program(Hypothesis::DropTag(17)));
        assert_eq!(
            change("drop MPI_Allreduce"),
            Change::Program(Hypothesis::DropCall(Call::Allreduce))
        );
        assert_eq!(change("without fakemond"), Change::Without("fakemond".to_owned()));
        assert_eq!(change("net-scale 10"), Change::NetScale(10.0));
        for bad in
            ["", "scale", "scale x", "scale x y", "drop tag x", "drop MPI_Nothing", "net-scale 0"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
