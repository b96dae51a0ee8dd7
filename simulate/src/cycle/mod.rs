//! Repeated cycles of compute and a butterfly allreduce, plain and with redundant exchanges (Chen and
//! Suda). The input is ranks, noise (periodic, or any other) and a network; the output is how long the cycles take in
//! three cases: noise in compute only (`noiseless`), everywhere (`conventional`), and everywhere with
//! redundant exchanges (`redundant`). Recovery = (conventional - redundant) / (conventional -
//! noiseless).
//!
//! # What the redundant butterfly does
//!
//! A rank has *level* r when it holds the result of its block of 2^r ranks. All start with level 0;
//! level K = log2(ranks) is the end. In round r a rank with level r
//! 1. sends it to its partner `rank ^ 2^r` (the original exchange),
//! 2. sends it again to its mate `rank ^ 1`, if round r is in the redundant set and the rank reached
//!    level r by an original exchange (the paper's line 16 sends nothing redundant),
//! 3. waits for the partner's level r, or for the mate's level r + 1, whichever arrives first; equal
//!    arrivals count as the partner's. Either gives level r + 1: after round 0, mates hold the same
//!    data and their partners are mates as well.
//!
//! The redundant message of round r therefore carries level r and helps a mate that still waits for
//! it: that mate catches up and sends the original messages of all the rounds it skips, so no rank
//! waits forever. If the redundant set has gaps, a mate that waits for level q is helped by the next
//! level of the set, g >= q: it receives once, then sends rounds q..=g back to back.
//!
//! Two things differ from the published pseudocode. It never waits for the last receive; here a rank
//! ends with level K, by the original exchange only. And the final result is not sent redundantly: the
//! last redundant message is that of round K - 1, with level K - 1.
//!
//! # What it costs
//!
//! A send and a receive take o of CPU time each, in program order, and are preempted exactly by
//! detours; between them a message takes L + (k-1) G. An original message that arrives early is
//! received when its round comes. A message that is no longer awaited costs its receiver nothing: its
//! o falls into the wait for the next message (`tests/cycle_reference.rs` has the variant that charges
//! it). A rank's messages do not queue at its NIC, which is exact for 1 byte.
//!
//! # Why rounds in order are exact
//!
//! The mate sends its redundant messages in the order of their levels, so the one with level r + 1
//! comes before all later ones, unless the mate skipped level r + 1 with the help of this rank, which
//! then no longer needs it. So with no gap in the set only one redundant message can matter in a
//! round, that of the same level; and of two mates at most one can be helped, since the helper
//! received its original message before the other did. Each round is then a function of four ranks:
//! two mates and their partners, who are mates. Gaps need more, see `gaps`.

#![forbid(unsafe_code)]

mod butterfly;
mod config;
mod conventional;
mod detours;
mod gaps;
mod job;
mod outcome;
mod periodic;
mod redundant;
mod run;

pub use config::{Config, CycleError, MAX_RANKS, every_round_but_the_first};
pub use job::{NAME, config_of};
pub use outcome::{CycleResult, Estimate, Times};
pub use periodic::Periodic;
pub use run::{Case, end_of_case, ends_under, last_end, phase, run, share, share_by_cycle};
