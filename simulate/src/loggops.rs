//! The LogGOPS model's parameters and the message costs they give. Times are picoseconds to keep the
//! precision of per-byte costs, which are stored in femtoseconds.

use thiserror::Error;

use crate::time::Time;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParamsError {
    #[error("{name} must not be negative")]
    Negative { name: &'static str },
    #[error("{name} is {}, more than an hour; check the unit", Time(*value))]
    TooLong { name: &'static str, value: i64 },
    #[error("a message of {bytes} bytes exceeds the model's time range; use a smaller message")]
    MessageTooLong { bytes: u64 },
    #[error("cannot scale the network by {0}: not a positive number")]
    BadScale(String),
}

/// L, o (at either end), g, G, O and S.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Latency, ps.
    pub latency: i64,
    /// CPU overhead per message at the sender (o_s) and at the receiver (o_r), ps.
    pub send_overhead: i64,
    pub recv_overhead: i64,
    /// Gap between messages of one NIC (g), ps.
    pub gap: i64,
    /// Gap per byte (G), fs.
    pub gap_per_byte_fs: i64,
    /// CPU overhead per byte (O), fs.
    pub overhead_per_byte_fs: i64,
    /// Messages of more bytes than this wait for their receiver (S).
    pub eager_limit: u64,
    /// What bytes cost, if that is not proportional to their number.
    pub sizes: Option<&'static Sizes>,
}

/// What the bytes of a message cost by its size, as measured, on a network that is not one straight line over all
/// sizes. The eager limit is between two knots. One per network, never freed: [`Params`] are copied everywhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The file that it comes from.
    pub name: String,
    /// Sizes in ascending order, and the time of their bytes in ps: (k-1) (G + 2 O) if that were a straight line.
    knots: Vec<(u64, i64)>,
    /// Beyond the last knot, fs per byte.
    slope_fs: i64,
    /// G and O of the straight line: their shares of the time are those of the network and the CPUs.
    gap_per_byte_fs: i64,
    overhead_per_byte_fs: i64,
}

impl Sizes {
    /// From half round trips in ps by size, in ascending order, on a network of which all other parameters are known.
    pub fn new(name: String, half_round_trips: &[(u64, f64)], net: &Params) -> Option<Sizes> {
        let first = net.send_overhead + net.latency + net.recv_overhead;
        let shakes = net.send_overhead + 2 * net.latency;
        let knots = half_round_trips.iter().map(|&(bytes, ps)| {
            let fixed = if bytes > net.eager_limit { first + shakes } else { first };
            (bytes, (ps - fixed as f64).round().max(0.0) as i64)
        });
        let knots: Vec<(u64, i64)> = knots.collect();
        let ascend = knots.windows(2).all(|two| two[0].0 < two[1].0);
        let fits = knots.iter().all(|knot| knot.1 <= HOUR && knot.0 <= 1 << 50);
        let &[(from, least), (to, most)] = knots.last_chunk()?;
        let slope_fs = i128::from(most - least).max(0) * 1_000 / i128::from(to - from).max(1);
        (ascend && fits).then_some(Sizes {
            name,
            knots,
            slope_fs: i64::try_from(slope_fs).ok()?,
            gap_per_byte_fs: net.gap_per_byte_fs,
            overhead_per_byte_fs: net.overhead_per_byte_fs,
        })
    }

    /// Time of the bytes of a message, ps.
    fn at(&self, bytes: u64) -> i128 {
        let after = self.knots.partition_point(|knot| knot.0 < bytes);
        let along = |(from, low): (u64, i64), (to, high): (u64, i64)| {
            let whole = i128::from(to - from).max(1);
            i128::from(low) + i128::from(high - low) * i128::from(bytes - from) / whole
        };
        match (after.checked_sub(1).map(|before| self.knots[before]), self.knots.get(after)) {
            (Some(before), Some(&next)) => along(before, next),
            // Not more than the smallest message measured.
            (None, Some(&(_, ps))) => i128::from(ps),
            (Some((from, ps)), None) => {
                i128::from(ps) + i128::from(bytes - from) * i128::from(self.slope_fs) / 1_000
            }
            (None, None) => 0,
        }
    }

    /// Time in the network, and CPU time at either end, ps. A network that was scaled has another G.
    fn parts(&self, bytes: u64, gap_per_byte_fs: i64) -> (i128, i128) {
        let all = self.at(bytes);
        let (gap, overhead) = (self.gap_per_byte_fs.max(0), self.overhead_per_byte_fs.max(0));
        let line = i128::from(gap) + 2 * i128::from(overhead);
        let network = if line == 0 { 0 } else { all * i128::from(gap) / line };
        let scaled =
            if gap == 0 { 0 } else { network * i128::from(gap_per_byte_fs) / i128::from(gap) };
        (scaled, (all - network) / 2)
    }
}

/// The network between ranks of one node. Consecutive ranks share a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    pub params: Params,
    /// At least 1.
    pub ranks_per_node: u64,
}

impl Local {
    #[inline]
    pub fn is_between(&self, one: u64, other: u64) -> bool {
        one / self.ranks_per_node == other / self.ranks_per_node
    }
}

const HOUR: i64 = 3_600_000_000_000_000;

/// The cost of one message of a given size, ps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCost {
    /// CPU time at the sender and at the receiver: o_s + (k-1) O, o_r + (k-1) O.
    pub send_cpu: i64,
    pub recv_cpu: i64,
    /// The part of both that grows with the size: (k-1) O.
    pub cpu_per_byte: i64,
    pub latency: i64,
    /// From the first byte to the last: (k-1) G.
    pub transfer: i64,
    /// How long the message occupies a NIC: g + (k-1) G.
    pub gap: i64,
    /// The send ends with the receive.
    pub rendezvous: bool,
}

impl Params {
    /// A network that costs nothing.
    pub const FREE: Params = Params {
        latency: 0,
        send_overhead: 0,
        recv_overhead: 0,
        gap: 0,
        gap_per_byte_fs: 0,
        overhead_per_byte_fs: 0,
        eager_limit: u64::MAX,
        sizes: None,
    };

    /// Published systems: the table of the noise study of 2010 and two later ones, with the G of nodes
    /// in one rack, as used in the published runs (between racks it is 92 ps per byte on alps and 140
    /// on daint). L, o and g in ns, G in fs per byte, S in bytes.
    const KNOWN: [(&'static str, i64, i64, i64, i64, u64); 7] = [
        ("chic", 5_330, 770, 1_560, 1_250_000, 65_000),
        ("altix", 1_640, 990, 900, 1_230_000, 65_000),
        ("cnl", 4_770, 2_870, 2_040, 2_670_000, 65_000),
        ("zeptoos", 8_670, 3_420, 2_810, 2_690_000, 65_000),
        ("xt4", 9_900, 1_750, 3_400, 580_000, 65_000),
        ("alps", 1_900, 230, 0, 79_000, 4_096),
        ("daint", 500, 0, 6_000, 110_000, 4_096),
    ];

    pub fn named(name: &str) -> Option<Params> {
        let row = Self::KNOWN.iter().find(|row| row.0.eq_ignore_ascii_case(name))?;
        let &(_, latency, overhead, gap, gap_per_byte_fs, eager_limit) = row;
        Some(Params {
            latency: latency * 1_000,
            send_overhead: overhead * 1_000,
            recv_overhead: overhead * 1_000,
            gap: gap * 1_000,
            gap_per_byte_fs,
            overhead_per_byte_fs: 0,
            eager_limit,
            sizes: None,
        })
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::KNOWN.iter().map(|row| row.0)
    }

    pub fn check(&self) -> Result<(), ParamsError> {
        let times = [
            ("L", self.latency),
            ("o_s", self.send_overhead),
            ("o_r", self.recv_overhead),
            ("g", self.gap),
            ("G", self.gap_per_byte_fs / 1_000),
            ("O", self.overhead_per_byte_fs / 1_000),
        ];
        for (name, value) in times {
            if value < 0 {
                return Err(ParamsError::Negative { name });
            }
            if value > HOUR {
                return Err(ParamsError::TooLong { name, value });
            }
        }
        Ok(())
    }

    /// A network faster by this factor; the CPU is unchanged.
    pub fn scaled(&self, factor: f64) -> Result<Params, ParamsError> {
        if !(factor.is_finite() && factor > 0.0) {
            return Err(ParamsError::BadScale(factor.to_string()));
        }
        let divide = |value: i64| (value as f64 / factor).round() as i64;
        let scaled = Params {
            latency: divide(self.latency),
            gap: divide(self.gap),
            gap_per_byte_fs: divide(self.gap_per_byte_fs),
            ..*self
        };
        scaled.check()?;
        Ok(scaled)
    }

    /// The cost of a message of this size. A message of 0 bytes costs as much as one of 1 byte.
    pub fn message(&self, bytes: u64) -> Result<MessageCost, ParamsError> {
        let too_long = || ParamsError::MessageTooLong { bytes };
        let more = i128::from(bytes.saturating_sub(1));
        let in_range =
            |ps: i128| i64::try_from(ps).ok().filter(|&ps| ps <= 24 * HOUR).ok_or_else(too_long);
        let per_byte = |fs: i64| in_range((more * i128::from(fs) + 500) / 1_000);
        let (transfer, cpu_per_byte) = match self.sizes {
            None => (per_byte(self.gap_per_byte_fs)?, per_byte(self.overhead_per_byte_fs)?),
            Some(sizes) => {
                let (network, cpu) = sizes.parts(bytes, self.gap_per_byte_fs);
                (in_range(network)?, in_range(cpu)?)
            }
        };
        Ok(MessageCost {
            send_cpu: self.send_overhead + cpu_per_byte,
            recv_cpu: self.recv_overhead + cpu_per_byte,
            cpu_per_byte,
            latency: self.latency,
            transfer,
            gap: self.gap + transfer,
            rendezvous: bytes > self.eager_limit,
        })
    }
}

/// Whether a message waits for its receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sending {
    /// If it is larger than S.
    #[default]
    BySize,
    /// Always, as that of `MPI_Ssend`.
    Synchronous,
    /// Never, as that of `MPI_Bsend`.
    Buffered,
}

/// Of messages that a schedule can have.
pub const MOST_BYTES: u64 = BUFFERED - 1;
const SYNCHRONOUS: u64 = 1 << 62;
const BUFFERED: u64 = 1 << 61;

impl Sending {
    /// The bytes of a message, and how it is sent, in one number.
    pub const fn mark(self, bytes: u64) -> u64 {
        match self {
            Sending::BySize => bytes,
            Sending::Synchronous => bytes | SYNCHRONOUS,
            Sending::Buffered => bytes | BUFFERED,
        }
    }
}

/// The bytes in such a number.
pub const fn bytes_of(marked: u64) -> u64 {
    marked & MOST_BYTES
}

impl Params {
    /// The cost of a message whose bytes are marked ([`Sending::mark`]).
    pub fn marked_message(&self, marked: u64) -> Result<MessageCost, ParamsError> {
        let cost = self.message(bytes_of(marked))?;
        Ok(match marked & !MOST_BYTES {
            SYNCHRONOUS => MessageCost { rendezvous: true, ..cost },
            BUFFERED => MessageCost { rendezvous: false, ..cost },
            _ => cost,
        })
    }
}

impl MessageCost {
    /// o of the sender, without O.
    #[inline]
    pub fn send_overhead(&self) -> i64 {
        self.send_cpu - self.cpu_per_byte
    }

    /// N of the model: from the start of the send to the end of the receive.
    pub fn end_to_end(&self) -> i64 {
        self.send_cpu + self.latency + self.transfer + self.recv_cpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_costs_what_the_model_says() {
        let cnl = Params::named("CNL").unwrap();
        let byte = cnl.message(1).unwrap();
        assert_eq!(byte.end_to_end(), 10_510_000);
        assert_eq!(byte.gap, 2_040_000);
        let more = cnl.message(1_001).unwrap();
        assert_eq!(more.end_to_end(), 10_510_000 + 2_670_000);
        assert_eq!(cnl.message(0).unwrap(), byte);
        assert!(!cnl.message(65_000).unwrap().rendezvous);
        assert!(cnl.message(65_001).unwrap().rendezvous);
    }

    #[test]
    fn bytes_cost_what_was_measured_at_their_size() {
        let ns = |ns: f64| ns * 1e3;
        let line = Params {
            latency: 500_000,
            send_overhead: 100_000,
            recv_overhead: 200_000,
            gap: 0,
            gap_per_byte_fs: 100_000,
            overhead_per_byte_fs: 150_000,
            eager_limit: 4_000,
            sizes: None,
        };
        // Two lines with a jump at the eager limit, where a handshake of 1100 ns begins.
        let measured = [
            (1, ns(800.0)),
            (1_000, ns(1_200.0)),
            (4_000, ns(1_600.0)),
            (4_001, ns(3_000.0)),
            (8_001, ns(5_000.0)),
        ];
        let sizes = Sizes::new("net.toml".to_owned(), &measured, &line).unwrap();
        let net = Params { sizes: Some(Box::leak(Box::new(sizes))), ..line };
        for (bytes, expected_ns) in [
            (0, 800),
            (1, 800),
            (1_000, 1_200),
            (2_500, 1_400),
            (4_000, 1_600),
            (4_001, 3_000 - 1_100),
            (6_001, 4_000 - 1_100),
            (8_001, 5_000 - 1_100),
            // Beyond, as between the last two.
            (12_001, 7_000 - 1_100),
        ] {
            let cost = net.message(bytes).unwrap();
            assert!((cost.end_to_end() - expected_ns * 1_000).abs() <= 1, "{bytes}: {cost:?}");
            // A quarter of it is in the network.
            assert!((cost.transfer * 3 - 2 * cost.cpu_per_byte).abs() <= 4, "{cost:?}");
            let fast = net.scaled(10.0).unwrap().message(bytes).unwrap();
            assert_eq!(fast.cpu_per_byte, cost.cpu_per_byte);
            assert!((fast.transfer * 10 - cost.transfer).abs() <= 10);
        }
        assert!(net.message(u64::MAX).is_err());
        let falls = [(1_000, 1.0), (1, 1.0)];
        assert!(Sizes::new(String::new(), &falls, &line).is_none());
        assert!(Sizes::new(String::new(), &falls[..1], &line).is_none());
    }

    #[test]
    fn a_faster_network_leaves_the_cpu_as_it_is() {
        let fast = Params::named("xt4").unwrap().scaled(10.0).unwrap();
        assert_eq!((fast.latency, fast.send_overhead, fast.gap), (990_000, 1_750_000, 340_000));
        assert!(fast.scaled(0.0).is_err() && fast.scaled(f64::NAN).is_err());
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let cnl = Params::named("cnl").unwrap();
        assert!(Params { latency: -1, ..cnl }.check().is_err());
        assert!(Params { gap: i64::MAX, ..cnl }.check().is_err());
        assert!(cnl.message(u64::MAX).is_err());
        assert!(Params::named("nowhere").is_none());
    }
}
