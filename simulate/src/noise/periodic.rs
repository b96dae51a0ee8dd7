//! Periodic noise, for arithmetic instead of look-ups.

/// Detours of one length, one at the start of each period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Periodic {
    pub(crate) period: i64,
    pub(crate) length: i64,
}
