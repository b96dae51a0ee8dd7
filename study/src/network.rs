//! Networks: a known system by name, or individual LogGOPS parameters; and the protocol for large
//! messages.

use simulate::{event::Rendezvous, loggops::Params};

use crate::units;

/// The default protocol for messages larger than S bytes: closer to measurements than the other
/// (docs/decisions/0009-large-messages-shake-hands.md).
pub const RENDEZVOUS: Rendezvous = Rendezvous::Handshake;

/// As a command line option; empty for the default.
pub fn rendezvous_option(rendezvous: Rendezvous) -> String {
    if rendezvous == RENDEZVOUS {
        return String::new();
    }
    format!(" --rendezvous {}", rendezvous.name())
}

/// `cnl`, or `L=4.77us,o=2.87us,g=2.04us,G=2.67ns,O=0,S=65kB`. Omitted parameters are 0; an omitted S is
/// unlimited.
pub fn parse(text: &str) -> Result<Params, String> {
    if let Some(params) = Params::named(text) {
        return Ok(params);
    }
    if !text.contains('=') {
        let known: Vec<_> = Params::names().collect();
        return Err(format!(
            "unknown network '{text}' (expected {}, or parameters such as \
             L=4.77us,o=2.87us,g=2.04us,G=2.67ns,O=0,S=65kB)",
            known.join(", ")
        ));
    }
    let mut params = Params::FREE;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or(format!("'{part}' has no value"))?;
        match name.trim() {
            "L" => params.latency = units::picoseconds(value)?,
            "o" => params.overhead = units::picoseconds(value)?,
            "g" => params.gap = units::picoseconds(value)?,
            "G" => params.gap_per_byte_fs = units::femtoseconds(value)?,
            "O" => params.overhead_per_byte_fs = units::femtoseconds(value)?,
            "S" => params.eager_limit = units::size(value)?,
            other => {
                return Err(format!(
                    "unknown LogGOPS parameter '{other}' (expected L, o, g, G, O or S)"
                ));
            }
        }
    }
    params.check().map_err(|error| error.to_string())?;
    Ok(params)
}

/// The parameters in the syntax of [`parse`].
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
