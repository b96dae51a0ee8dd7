//! Networks: a known system by name, or individual LogGOPS parameters; and the protocol for large
//! messages.

pub mod latency;
pub mod loggops;
pub mod samples;
pub mod variation;

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use simulate::{
    event::Rendezvous,
    loggops::{Local, Params, Sizes},
};

use crate::{
    network::loggops::{Piece, half_round_trip_us},
    noise::placement,
    units,
};

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

/// `cnl`, a file that `detour mpi net` wrote, or `L=4.77us,o=2.87us,g=2.04us,G=2.67ns,O=0,S=65kB`. Omitted
/// parameters are 0; an omitted S is unlimited. `os` and `or` are the overheads of sender and receiver, `o`
/// is that of whichever is omitted. `sizes=FILE`: bytes cost what was measured at their size, instead of G and O.
pub fn parse(text: &str) -> std::result::Result<Params, String> {
    if let Some(params) = Params::named(text) {
        return Ok(params);
    }
    let path = Path::new(text);
    if path.is_file() {
        return read(path).map_err(|error| format!("{error:#}"));
    }
    if !text.contains('=') {
        let known: Vec<_> = Params::names().collect();
        return Err(format!(
            "unknown network '{text}' (expected {}, a file written by `detour mpi net`, or parameters such \
             as L=4.77us,o=2.87us,g=2.04us,G=2.67ns,O=0,S=65kB)",
            known.join(", ")
        ));
    }
    let mut params = Params::FREE;
    let (mut send, mut recv) = (None, None);
    let mut sizes = None;
    let mut given: Vec<&str> = Vec::new();
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or(format!("'{part}' has no value"))?;
        let name = name.trim();
        if given.contains(&name) {
            return Err(format!("{name} is given twice"));
        }
        given.push(name);
        let named = |error: String| format!("{name}: {error}");
        let ps = || units::picoseconds(value).map_err(named);
        let fs = || units::femtoseconds(value).map_err(named);
        match name {
            "L" => params.latency = ps()?,
            "o" => {
                params.send_overhead = ps()?;
                params.recv_overhead = params.send_overhead;
            }
            "os" => send = Some(ps()?),
            "or" => recv = Some(ps()?),
            "g" => params.gap = ps()?,
            "G" => params.gap_per_byte_fs = fs()?,
            "O" => params.overhead_per_byte_fs = fs()?,
            "S" => params.eager_limit = units::size(value).map_err(named)?,
            "sizes" => sizes = Some(Path::new(value)),
            other => {
                return Err(format!(
                    "unknown LogGOPS parameter '{other}' (expected L, o, os, or, g, G, O, S or sizes)"
                ));
            }
        }
    }
    params.send_overhead = send.unwrap_or(params.send_overhead);
    params.recv_overhead = recv.unwrap_or(params.recv_overhead);
    params.check().map_err(|error| error.to_string())?;
    if let Some(path) = sizes {
        let measured = measured(path).map_err(|error| format!("{error:#}"))?;
        params.sizes =
            by_size(path, &measured.pieces, &params).map_err(|error| error.to_string())?;
    }
    Ok(params)
}

/// The parameters that a measurement has in its file; all else there is about the measurement.
#[derive(Deserialize)]
#[allow(non_snake_case)]
struct Measured {
    L_us: f64,
    os_us: f64,
    or_us: f64,
    #[serde(default)]
    g_us: f64,
    #[serde(default)]
    G_ns_per_B: f64,
    #[serde(default)]
    O_ns_per_B: f64,
    /// Absent if no message waits for its receiver.
    S_B: Option<u64>,
    #[serde(default)]
    pieces: Vec<Piece>,
}

impl Measured {
    /// The first key without a number: TOML has `nan`, which would be rounded to 0.
    fn nan(&self) -> Option<&'static str> {
        let of_all = [
            ("L_us", self.L_us),
            ("os_us", self.os_us),
            ("or_us", self.or_us),
            ("g_us", self.g_us),
            ("G_ns_per_B", self.G_ns_per_B),
            ("O_ns_per_B", self.O_ns_per_B),
        ];
        let of_pieces = self.pieces.iter().flat_map(|piece| {
            [("pieces.fixed_us", piece.fixed_us), ("pieces.ns_per_B", piece.ns_per_byte)]
        });
        of_all.into_iter().chain(of_pieces).find(|(_, value)| value.is_nan()).map(|(key, _)| key)
    }
}

/// The keys of parameters, with their units.
const KEYS: [&str; 7] = ["L_us", "os_us", "or_us", "g_us", "G_ns_per_B", "O_ns_per_B", "S_B"];

/// Whether a key has the name of a parameter, but not its unit: it would be taken for one about the measurement.
fn is_misspelt(key: &str) -> bool {
    let own = key.strip_suffix("_ci95").unwrap_or(key);
    let name = own.split('_').next().unwrap_or_default();
    let is_parameter =
        name == "o" || KEYS.iter().any(|known| known.split('_').next() == Some(name));
    is_parameter && !KEYS.contains(&own)
}

fn measured(path: &Path) -> Result<Measured> {
    let named = || format!("cannot read a network from {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    let table: toml::Table = toml::from_str(&text).with_context(named)?;
    if let Some(key) = table.keys().find(|key| is_misspelt(key)) {
        bail!(
            "cannot read a network from {}: unknown parameter {key} (expected {})",
            path.display(),
            KEYS.join(", ")
        );
    }
    let measured: Measured = table.try_into().with_context(named)?;
    if let Some(key) = measured.nan() {
        bail!("cannot read a network from {}: {key} is not a number", path.display());
    }
    Ok(measured)
}

/// What the bytes of messages cost by their size; None if all sizes are on one straight line.
fn by_size(path: &Path, pieces: &[Piece], net: &Params) -> Result<Option<&'static Sizes>> {
    if pieces.len() < 2 {
        return Ok(None);
    }
    let mut sizes: Vec<u64> = pieces.iter().flat_map(|p| [p.from_bytes, p.to_bytes]).collect();
    sizes.dedup();
    let half: Vec<_> =
        sizes.iter().map(|&bytes| (bytes, 1e6 * half_round_trip_us(pieces, bytes))).collect();
    let sizes = Sizes::new(path.display().to_string(), &half, net);
    let sizes = sizes.with_context(|| format!("{}: pieces out of order", path.display()))?;
    Ok(Some(Box::leak(Box::new(sizes))))
}

fn read(path: &Path) -> Result<Params> {
    let named = || format!("cannot read a network from {}", path.display());
    let measured = measured(path)?;
    // Beyond what fits, `check` refuses it.
    let ps = |us: f64| (us * 1e6).round() as i64;
    let fs = |ns: f64| (ns * 1e6).round() as i64;
    let params = Params {
        latency: ps(measured.L_us),
        send_overhead: ps(measured.os_us),
        recv_overhead: ps(measured.or_us),
        gap: ps(measured.g_us),
        gap_per_byte_fs: fs(measured.G_ns_per_B),
        overhead_per_byte_fs: fs(measured.O_ns_per_B),
        eager_limit: measured.S_B.unwrap_or(u64::MAX),
        sizes: None,
    };
    params.check().with_context(named)?;
    Ok(Params { sizes: by_size(path, &measured.pieces, &params)?, ..params })
}

/// The network between ranks of one node, if it is another one.
pub fn local(params: Option<Params>, placement: &placement::Request) -> Result<Option<Local>> {
    let Some(params) = params else { return Ok(None) };
    match placement.ranks_per_node {
        Some(ranks_per_node) => Ok(Some(Local { params, ranks_per_node })),
        None => bail!("--net-local requires --ranks-per-node"),
    }
}

/// A known system by its name, anything else in the syntax of [`parse`].
pub fn name(params: &Params) -> String {
    let known = Params::names().find(|name| Params::named(name).as_ref() == Some(params));
    known.map_or_else(|| describe(params), str::to_owned)
}

/// The parameters in the syntax of [`parse`].
pub fn describe(params: &Params) -> String {
    let us = |ps: i64| ps as f64 / 1e6;
    let ns = |fs: i64| fs as f64 / 1e6;
    let (send, recv) = (us(params.send_overhead), us(params.recv_overhead));
    let o = if send == recv { format!("o={send}us") } else { format!("os={send}us,or={recv}us") };
    let mut text = format!(
        "L={}us,{o},g={}us,G={}ns,O={}ns",
        us(params.latency),
        us(params.gap),
        ns(params.gap_per_byte_fs),
        ns(params.overhead_per_byte_fs)
    );
    if params.eager_limit != u64::MAX {
        text += &format!(",S={}", params.eager_limit);
    }
    if let Some(sizes) = params.sizes {
        text += &format!(",sizes={}", sizes.name);
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
        let apart = parse("L=1us,os=0.2us,or=0.7us").unwrap();
        assert_eq!((apart.send_overhead, apart.recv_overhead), (200_000, 700_000));
        assert_eq!(parse(&describe(&apart)).unwrap(), apart);
        let free = parse("L=1us").unwrap();
        assert_eq!(parse(&describe(&free)).unwrap(), free);
        for bad in ["nowhere", "L", "L=", "Q=1us", "L=-1us", "L=1us,o", "L=9999999s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let refused = |text: &str| parse(text).unwrap_err();
        assert!(refused("L=1us,G=5").starts_with("G: '5' is not a time"));
        assert_eq!(refused("L=1us,L=2us"), "L is given twice");
        // In any order.
        assert_eq!(parse("o=1us,os=5us"), parse("os=5us,o=1us"));
        assert_eq!(parse("os=5us,o=1us"), parse("os=5us,or=1us"));
    }

    #[test]
    fn a_measured_network_is_read_from_its_file() {
        let file = std::env::temp_dir().join(format!("detour-net-{}.toml", std::process::id()));
        let name = file.to_str().unwrap();
        let text = "L_us = 1.25\nL_us_ci95 = [1.2, 1.3]\nos_us = 0.3\nor_us = 0.45\ng_us = 0.1\n\
                    G_ns_per_B = 0.08\nO_ns_per_B = 0.01\nS_B = 4096\nresidual_pct = 1.5\n";
        std::fs::write(&file, text).unwrap();
        let given = parse("L=1.25us,os=300ns,or=450ns,g=100ns,G=0.08ns,O=0.01ns,S=4096").unwrap();
        assert_eq!(parse(name), Ok(given));
        for wrong in ["g_ns = 100", "G_ps_per_B = 79", "o_us = 1.0", "L = 1.0", "g = 2.0"] {
            std::fs::write(&file, format!("{text}{wrong}\n")).unwrap();
            let key = wrong.split(' ').next().unwrap();
            let refused = parse(name).unwrap_err();
            assert!(
                refused.contains(&format!("unknown parameter {key} (expected L_us")),
                "{refused}"
            );
        }
        let pieces = "[[pieces]]\nfrom_bytes = 1\nto_bytes = 4096\nfixed_us = 2.0\nns_per_B = 0.1\n\
                      [[pieces]]\nfrom_bytes = 4097\nto_bytes = 65536\nfixed_us = 6.0\nns_per_B = 0.2\n";
        std::fs::write(&file, format!("{text}{pieces}")).unwrap();
        let by_size = parse(name).unwrap();
        assert_eq!(by_size.message(1001).unwrap().end_to_end(), 2_100_100);
        assert_eq!(parse(&describe(&by_size)).unwrap(), by_size);
        std::fs::write(&file, format!("{text}{pieces}").replace("4097", "4000")).unwrap();
        assert!(parse(name).unwrap_err().contains("pieces out of order"));
        for line in text.lines().filter(|line| !line.contains("S_B") && !line.contains('[')) {
            let (key, _) = line.split_once(" = ").unwrap();
            std::fs::write(&file, text.replace(line, &format!("{key} = nan"))).unwrap();
            let read = parse(name);
            match key {
                "residual_pct" => assert_eq!(read, Ok(given)),
                _ => assert!(read.unwrap_err().contains(&format!("{key} is not a number"))),
            }
        }
        std::fs::write(&file, format!("{text}{pieces}").replace("= 6.0", "= nan")).unwrap();
        assert!(parse(name).unwrap_err().contains("pieces.fixed_us is not a number"));
        for bad in ["", "L_us = -1\nos_us = 0\nor_us = 0\n", "L_us = 1e300\nos_us = 0\nor_us = 0\n"]
        {
            std::fs::write(&file, bad).unwrap();
            let error = parse(name).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
