//! Why simulated runs took as long as they did: the parts of the critical path, and the noise on it.

use study::{
    explain::blame::{Blame, Noise, Spread},
    jobs::collective::Sweep,
};

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, name, percent, plural, safe, time, wrap},
};

fn us(us: f64) -> String {
    time(us * 1e3)
}

#[must_use]
pub fn blame(blame: &Blame, options: Options) -> String {
    let many = blame.runs > 1;
    let mut text = heading(blame, options) + "\n\n" + &parts(blame, many, options) + "\n";
    if blame.sources.is_empty() {
        return text;
    }
    text += &format!("\n{}\n", sources(blame, many, options));
    let shown = options.shown(blame.sources.len());
    if shown < blame.sources.len() {
        let more = (blame.sources.len() - shown) as u64;
        text += &format!("{}\n", plural(more, "more source"));
    }
    let Noise { on_path_us, absorbed_us } = blame.noise;
    let all = on_path_us + absorbed_us;
    let sentence = format!(
        "{} of noise hit the ranks' work{}: {} of it on the critical path, {} ({}) absorbed.",
        us(all),
        if many { " per run" } else { "" },
        us(on_path_us),
        us(absorbed_us),
        percent(100.0 * absorbed_us / all.max(f64::MIN_POSITIVE)),
    );
    text + "\n" + &wrap(&sentence, options.style().width, "") + "\n"
}

fn heading(blame: &Blame, options: Options) -> String {
    let (rank, times) = (blame.last_rank, blame.last_rank_runs);
    let sentence = if blame.runs > 1 {
        format!(
            "Where the time went, mean of {} runs: the last of {} finishes after {}; rank {rank} \
             is last most often ({times} times).",
            count(blame.runs as u64),
            plural(blame.ranks as u64, "rank"),
            us(blame.finish_us)
        )
    } else {
        format!(
            "Where the time went: the last of {}, rank {rank}, finishes after {}.",
            plural(blame.ranks as u64, "rank"),
            us(blame.finish_us)
        )
    };
    wrap(&sentence, options.style().width, "")
}

fn parts(blame: &Blame, many: bool, options: Options) -> String {
    let mut columns =
        vec![Column::text("part", 7), Column::number("critical path"), Column::number("share")];
    if many {
        columns.push(Column::number("quartiles").expendable(1));
    }
    columns.push(Column::number("rank mean").expendable(2));
    let mut grid = Grid::new(columns);
    let mut row = |tone, name: &str, path: f64, between: Option<&Spread>, rank: f64| {
        let share = 100.0 * path / blame.finish_us.max(f64::MIN_POSITIVE);
        // In the peer model an empty message takes -G.
        let spent = |time: f64| if time < 0.0 { format!("-{}", us(-time)) } else { us(time) };
        let mut cells = vec![name.to_owned(), spent(path), percent(share)];
        if many {
            let between = between.map(|b| format!("{} to {}", spent(b.q25_us), spent(b.q75_us)));
            cells.push(between.unwrap_or_default());
        }
        cells.push(spent(rank));
        grid.row(tone, cells);
    };
    let named = blame.path.named().into_iter();
    let named = named.zip(blame.path_spread.named()).zip(blame.ranks_mean.named());
    // Parts that are zero everywhere are omitted.
    for (((name, &path), (_, spread)), (_, &rank)) in named {
        if path != 0.0 || rank != 0.0 {
            let tone = if name == "noise" { Tone::Strong } else { Tone::Plain };
            row(tone, name, path, Some(spread), rank);
        }
    }
    let rank = blame.ranks_mean.named().into_iter().map(|(_, rank)| rank).sum();
    row(Tone::Dim, "total", blame.finish_us, None, rank);
    grid.render(options.style())
}

fn sources(blame: &Blame, many: bool, options: Options) -> String {
    let mut columns = vec![
        Column::text("noise source", 12),
        Column::text("class", 5).expendable(2),
        Column::text("unit", 8).expendable(4),
        Column::number("on path"),
    ];
    if many {
        columns.extend([Column::number("max").expendable(1), Column::number("runs")]);
    }
    columns.extend([Column::number("worst rank").expendable(3), Column::number("absorbed")]);
    let mut grid = Grid::new(columns);
    let shown = &blame.sources[..options.shown(blame.sources.len())];
    for source in shown {
        let own = if source.own { "*" } else { "" };
        let tone = if source.on_path_us > 0.0 { Tone::Plain } else { Tone::Dim };
        let mut cells = vec![
            format!("{}{own}", name(&source.name)),
            source.class.map_or(String::new(), |class| class.name().to_owned()),
            source.unit.as_deref().map(safe).unwrap_or_default(),
            us(source.on_path_us),
        ];
        if many {
            cells.extend([us(source.on_path_spread.max_us), count(source.runs_on_path as u64)]);
        }
        let worst = source.worst_rank().map_or("-".to_owned(), |rank| rank.to_string());
        cells.extend([worst, us(source.absorbed_us)]);
        grid.row(tone, cells);
    }
    let mut text = grid.render(options.style());
    if shown.iter().any(|source| source.own) {
        text += "\n* the recorder itself: absent in production";
    }
    text
}

/// The parts of the path by rank count, then the sources at the last point. None without a breakdown.
#[must_use]
pub fn blame_sweep(sweep: &Sweep, options: Options) -> Option<String> {
    let rows = || sweep.points.iter().filter_map(|point| Some((point, point.blame.as_ref()?)));
    let (_, last) = rows().next_back()?;
    if rows().count() == 1 {
        return Some(blame(last, options));
    }
    let present = |index: &usize| rows().any(|(_, blame)| *blame.path.named()[*index].1 != 0.0);
    let indices: Vec<usize> = (0..last.path.named().len()).filter(present).collect();
    let several = sweep.knees.len() > 1;
    let mut columns = if several { vec![Column::text("series", 8)] } else { Vec::new() };
    columns.extend([Column::number("ranks"), Column::number("critical path")]);
    columns.extend(indices.iter().map(|&i| Column::number(last.path.named()[i].0)));
    columns.extend([Column::number("absorbed"), Column::text("top source", 8).expendable(1)]);
    let mut grid = Grid::new(columns);
    for (point, blame) in rows() {
        let mut cells = if several { vec![point.series.label()] } else { Vec::new() };
        cells.extend([count(point.ranks), us(blame.finish_us)]);
        cells.extend(indices.iter().map(|&i| us(*blame.path.named()[i].1)));
        let worst = blame.sources.iter().find(|source| source.on_path_us > 0.0);
        cells.push(us(blame.noise.absorbed_us));
        cells.push(worst.map_or("-".to_owned(), |source| name(&source.name)));
        grid.row(Tone::Plain, cells);
    }
    let sentence = "Critical path by part, mean of the runs:";
    let table = grid.render(options.style());
    Some(format!("{sentence}\n\n{table}\n\n") + &blame(last, options))
}
