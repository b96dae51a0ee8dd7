//! The variation of a network: latencies of messages, drawn from measured ones.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use simulate::{
    loggops::Params,
    noise::{Latencies, Order, Rule},
};

use crate::{network::samples::Series, recording::open, run::shard};

/// Which latencies to draw, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Anything that [`Series::read`] reads.
    pub file: PathBuf,
    pub rule: Rule,
    pub order: Order,
}

/// `random`, `in-order`, or `block:1000`.
pub fn parse_order(text: &str) -> Result<Order, String> {
    let length = |text: &str| text.parse().ok().filter(|&length: &u32| length > 0);
    match text.split_once(':') {
        None if text == "random" => Ok(Order::Random),
        None if text == "in-order" => Ok(Order::InOrder),
        Some(("block", count)) => {
            let wrong = format!("'{count}' is not a number of samples (1 or more)");
            length(count).map(Order::Block).ok_or(wrong)
        }
        _ => Err(format!("unknown order '{text}' (expected random, in-order or block:N)")),
    }
}

/// In the syntax of [`parse_order`].
fn order_words(order: Order) -> String {
    match order {
        Order::Random => "random".to_owned(),
        Order::InOrder => "in-order".to_owned(),
        Order::Block(length) => format!("block:{length}"),
    }
}

/// The measured latencies.
#[derive(Clone, Debug)]
pub struct Variation {
    request: Request,
    series: Series,
}

impl Request {
    pub fn load(&self) -> Result<Variation> {
        let series = Series::read(&self.file)?;
        if series.values_ps.is_empty() {
            bail!("no latencies in {}", self.file.display());
        }
        Ok(Variation { request: self.clone(), series })
    }

    /// As options of the command line, each after a space.
    pub fn options(&self) -> String {
        let mut text = format!(" --latency {}", self.file.display());
        if self.rule != Rule::default() {
            text += &format!(" --latency-rule {}", self.rule.name());
        }
        if self.order != Order::default() {
            text += &format!(" --latency-order {}", order_words(self.order));
        }
        text
    }

    /// `latencies.json (add, random)`.
    pub fn words(&self) -> String {
        let (rule, order) = (self.rule.name(), order_words(self.order));
        format!("{} ({rule}, {order})", self.file.display())
    }

    /// What determines the results.
    pub fn settings(&self) -> Result<Value> {
        let file = shard::file(&open::split_run(&self.file).0)?;
        Ok(json!([file, self.rule.name(), order_words(self.order)]))
    }
}

impl Variation {
    /// For messages of a network.
    pub fn of(&self, params: &Params) -> Result<Latencies> {
        let Request { rule, order, .. } = self.request;
        Ok(Latencies::new(&self.series.values_ps, params.latency, rule, order)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_written_as_it_is_read() {
        for order in [Order::Random, Order::InOrder, Order::Block(979)] {
            assert_eq!(parse_order(&order_words(order)), Ok(order));
        }
        for bad in ["", "block", "block:0", "block:-1", "block:x", "sorted", "random:2"] {
            assert!(parse_order(bad).is_err(), "{bad}");
        }
    }
}
