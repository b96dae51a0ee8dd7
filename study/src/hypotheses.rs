//! `--if`: what would change a program's time.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use application::{Application, Hypothesis, Operation, Place, Rules, Step};
use mpi_abi::Call;
use serde::Serialize;
use simulate::collectives::{ALGORITHMS, Op};

use crate::{app, sources::Sources};

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
pub struct Effect {
    pub text: String,
    pub ranks: u64,
    /// Median with the change.
    pub median_us: f64,
    /// Reduction of the median in per cent, run by run under the same noise; 95 % confidence interval.
    pub gain_pct: f64,
    pub gain_ci95_pct: [f64; 2],
    /// Runs that take another time with the change.
    pub changed_runs: u64,
    /// What all ranks together wait for in the first run, without and with the change; null if there are too
    /// many operations to look at.
    pub waits_before: Option<Waits>,
    pub waits_after: Option<Waits>,
}

/// What ranks wait for, summed over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    pub late_sender_s: f64,
    /// Large messages only.
    pub late_receiver_s: f64,
    pub collective_s: f64,
    /// For a network interface that is busy.
    pub nic_s: f64,
}

impl Waits {
    pub fn of(ranks: &[simulate::waits::Waits]) -> Waits {
        let sum = |of: fn(&simulate::waits::Waits) -> i64| {
            ranks.iter().map(|waits| i128::from(of(waits))).sum::<i128>() as f64 / 1e12
        };
        Waits {
            late_sender_s: sum(|waits| waits.late_sender),
            late_receiver_s: sum(|waits| waits.late_receiver),
            collective_s: sum(|waits| waits.collective),
            nic_s: sum(|waits| waits.nic),
        }
    }

    pub fn total_s(&self) -> f64 {
        self.late_sender_s + self.late_receiver_s + self.collective_s + self.nic_s
    }
}

const EXPECTED: &str = "expected scale REGION 0.5, balance REGION, drop REGION, drop tag 17, drop MPI_CALL, \
                        resize tag 17 0.25, map RULES, nonblocking REGION, net-scale 10, without SOURCE, or \
                        auto; a REGION can also be `after MPI_CALL`";

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
    found.ok_or_else(|| format!("'{name}' is not an MPI call that is recorded"))
}

/// Everything worth asking of a program and its noise: every region balanced and halved, every kind of
/// collective removed and with other algorithms, every noise source removed, a network ten times faster.
pub fn auto(application: &Application, rules: &Rules, sources: &[String]) -> Result<Vec<Question>> {
    let mut texts: Vec<String> = Vec::new();
    for region in &application.regions {
        texts.push(format!("balance {region}"));
        texts.push(format!("scale {region} 0.5"));
    }
    let (mut calls, mut operations) = (BTreeSet::new(), BTreeSet::new());
    for tape in &application.tapes {
        for step in &tape.steps {
            let Step::Collective { call, .. } = step else { continue };
            let Some(call) = tape.calls.get(*call as usize) else { continue };
            calls.insert(call.mpi);
            if let Operation::Regular { op, bytes, .. } = call.operation {
                let place = Op::ALL.iter().position(|known| *known == op).unwrap_or(0);
                operations.insert((place, rules.of(op, bytes)));
            }
        }
    }
    let names = calls.into_iter().filter_map(Call::from_number).map(|call| call.name());
    texts.extend(names.map(|name| format!("drop {name}")));
    for place in operations.iter().map(|(place, _)| *place).collect::<BTreeSet<_>>() {
        let op = Op::ALL[place];
        for algorithm in ALGORITHMS.iter().filter(|algorithm| algorithm.ops().contains(&op)) {
            let used: Vec<&str> =
                operations.iter().filter(|(of, _)| *of == place).map(|(_, name)| *name).collect();
            if used[..] != [algorithm.name()] {
                texts.push(format!("map {}={}", op.name(), algorithm.name()));
            }
        }
    }
    texts.extend(sources.iter().map(|source| format!("without {source}")));
    texts.push("net-scale 10".to_owned());
    let parse = |text: String| parse(&text).map_err(anyhow::Error::msg).context(text);
    texts.into_iter().map(parse).collect()
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
