//! The LogGOPS model's parameters and the message costs they give. Times are picoseconds to keep the
//! precision of per-byte costs, which are stored in femtoseconds.

use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParamsError {
    #[error("{name} must not be negative")]
    Negative { name: &'static str },
    #[error("{name} is {value} ps, more than an hour; check the unit")]
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
        let per_byte = |fs: i64| -> Result<i64, ParamsError> {
            let ps = (more * i128::from(fs) + 500) / 1_000;
            i64::try_from(ps).ok().filter(|&ps| ps <= 24 * HOUR).ok_or_else(too_long)
        };
        let transfer = per_byte(self.gap_per_byte_fs)?;
        let cpu_per_byte = per_byte(self.overhead_per_byte_fs)?;
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
