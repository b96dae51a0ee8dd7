//! Receives that nobody waits for: `MPI_Request_free` was called while they were active, or they were left open.
//!
//! They still take their messages, so that later receives take theirs; but the trace does not tell whether and which.
//! In: the programs of all ranks. Each such receive takes one of the messages that no other receive has taken, in the
//! order in which they were posted. One that is left without a message is removed: it never ends.

use std::collections::{BTreeMap, HashMap};

use crate::{
    communicators::Shared,
    read::{NOTHING, Options},
    step::{Application, NONE, Step},
};

/// A receive whose end its rank does not see.
#[derive(Clone, Copy, Debug)]
pub struct Unseen {
    pub step: u32,
    /// Of its communicator.
    pub key: u64,
}

/// Messages that no receive has taken, by source and channel.
type Left = BTreeMap<(u32, u32), i64>;

/// Gives these receives of each rank, in the order of its steps, their messages.
pub fn settle(
    application: &mut Application,
    shared: &Shared,
    unseen: &[Vec<Unseen>],
    options: &Options,
) {
    if unseen.iter().all(Vec::is_empty) {
        return;
    }
    let mut left = left_over(application, unseen);
    let keys: HashMap<u32, u64> =
        shared.channels.iter().map(|((key, _), channel)| (*channel, *key)).collect();
    let Application { tapes, assumed, .. } = application;
    for ((tape, own), left) in tapes.iter_mut().zip(unseen).zip(&mut left) {
        for &Unseen { step, key } in own {
            let Some(step_of) = tape.steps.get_mut(step as usize) else { continue };
            let Step::Receive { from, channel, .. } = step_of else { continue };
            let fits = |of: &(u32, u32)| {
                (*from == NONE || *from == of.0)
                    && (*channel == of.1 || *channel == NONE && keys.get(&of.1) == Some(&key))
            };
            let taken = left.iter_mut().find(|(of, count)| **count > 0 && fits(of));
            let Some((&took, count)) = taken else {
                *step_of = NOTHING;
                continue;
            };
            *count -= 1;
            if options.as_traced {
                *from = took.0;
            }
            if *channel == NONE && (options.as_traced || key != shared.scope) {
                assumed.fixed_tags += u64::from(!options.as_traced);
                *channel = took.1;
            }
            if *from == NONE || *channel == NONE {
                tape.took.push((step, took.0, took.1));
            }
        }
        tape.took.sort_unstable();
    }
}

/// The messages to each rank that those receives do not take whose end it sees.
fn left_over(application: &Application, unseen: &[Vec<Unseen>]) -> Vec<Left> {
    let mut left = vec![Left::new(); application.tapes.len()];
    for (rank, tape) in (0u32..).zip(&application.tapes) {
        let asked = unseen.get(rank as usize).is_some_and(|own| !own.is_empty());
        let mut took = tape.took.iter().peekable();
        for (at, step) in (0u32..).zip(&tape.steps) {
            match *step {
                // Of ranks without such receives, nothing is asked.
                Step::Send { to, channel, .. }
                    if unseen.get(to as usize).is_some_and(|own| !own.is_empty()) =>
                {
                    *left[to as usize].entry((rank, channel)).or_insert(0) += 1;
                }
                Step::Receive { mut from, mut channel, .. } if asked => {
                    if let Some((_, source, label)) = took.next_if(|took| took.0 == at) {
                        (from, channel) = (*source, *label);
                    }
                    let own = &unseen[rank as usize];
                    if own.binary_search_by_key(&at, |one| one.step).is_err() {
                        *left[rank as usize].entry((from, channel)).or_insert(0) -= 1;
                    }
                }
                _ => {}
            }
        }
    }
    left
}
