//! `--net`: a known system by name, or LogGOPS parameters one by one. `--rendezvous`: how large messages
//! wait for their receiver.

use clap::ValueEnum;
use simulate::{event::Rendezvous, loggops::Params};

use crate::units;

/// How messages of more than S bytes wait for their receiver. The default is the one that is closer to
/// what is measured (docs/decisions/0009-large-messages-shake-hands.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RendezvousName {
    /// Request, acknowledgement once the receive is posted, then the payload
    #[default]
    Handshake,
    /// Both sides end when the later of message and receive is there, as in the 2010 study
    ClosedForm,
}

impl RendezvousName {
    pub fn rendezvous(self) -> Rendezvous {
        match self {
            RendezvousName::Handshake => Rendezvous::Handshake,
            RendezvousName::ClosedForm => Rendezvous::ClosedForm,
        }
    }

    /// As an option of a command line; nothing where it is the default.
    pub fn words(self) -> String {
        match self {
            RendezvousName::Handshake => String::new(),
            RendezvousName::ClosedForm => {
                format!(" --rendezvous {}", rendezvous_name(self.rendezvous()))
            }
        }
    }
}

/// The name used in the command line and in JSON.
pub fn rendezvous_name(rendezvous: Rendezvous) -> &'static str {
    match rendezvous {
        Rendezvous::ClosedForm => "closed-form",
        Rendezvous::Handshake => "handshake",
    }
}

/// `cnl`, or `L=4.77us,o=2.87us,g=2.04us,G=2.67ns,O=0,S=65kB`. What is not given is 0; S is without
/// limit then.
pub fn parse(text: &str) -> Result<Params, String> {
    if let Some(params) = Params::named(text) {
        return Ok(params);
    }
    if !text.contains('=') {
        let known: Vec<_> = Params::names().collect();
        return Err(format!(
            "there is no network called '{text}': take {}, or give L=4.77us,o=2.87us,g=2.04us,\
             G=2.67ns,O=0,S=65kB",
            known.join(", ")
        ));
    }
    let mut params = Params::FREE;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or(format!("'{part}' lacks a value"))?;
        match name.trim() {
            "L" => params.latency = units::picoseconds(value)?,
            "o" => params.overhead = units::picoseconds(value)?,
            "g" => params.gap = units::picoseconds(value)?,
            "G" => params.gap_per_byte_fs = units::femtoseconds(value)?,
            "O" => params.overhead_per_byte_fs = units::femtoseconds(value)?,
            "S" => params.eager_limit = units::size(value)?,
            other => {
                return Err(format!("'{other}' is no LogGOPS parameter: L, o, g, G, O, S are"));
            }
        }
    }
    params.check().map_err(|error| error.to_string())?;
    Ok(params)
}

/// The parameters in words that [`parse`] reads back.
pub fn describe(params: &Params) -> String {
    let us = |ps: i64| ps as f64 / 1e6;
    let ns = |fs: i64| fs as f64 / 1e6;
    let mut text = format!(
        "L={}us,o={}us,g={}us,G={}ns,O={}ns",
        us(params.latency),
        us(params.overhead),
        us(params.gap),
        ns(params.gap_per_byte_fs),
        ns(params.overhead_per_byte_fs)
    );
    if params.eager_limit != u64::MAX {
        text += &format!(",S={}", params.eager_limit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_a_name_or_parameters() {
        let given = parse("L=4.77us,o=2.87us,g=2.04us,G=2.67ns,O=0,S=65kB").unwrap();
        assert_eq!(given, parse("cnl").unwrap());
        for name in Params::names() {
            let params = parse(name).unwrap();
            assert_eq!(parse(&describe(&params)).unwrap(), params);
        }
        let free = parse("L=1us").unwrap();
        assert_eq!(parse(&describe(&free)).unwrap(), free);
        for bad in ["nowhere", "L", "L=", "Q=1us", "L=-1us", "L=1us,o", "L=9999999s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
