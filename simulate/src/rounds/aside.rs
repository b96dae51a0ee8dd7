//! Ranks that may have met a detour, put aside while the hot loop goes on, and settled many at a time:
//! each is a look-up far away in memory, and together they do not wait for each other.
//!
//! Nearly all of them turn out to be clear: a rank waited for a message while a detour came and went.
//! All they need is the time of their next one. The few that were hit are computed exactly.

use super::lanes::{LANES, Step, untrusted};
use crate::noise::{LOOKED_UP, Local, RunNoise, WorkError};

/// Ranks whose time, as if there were no detours, lies beyond their clear time.
#[derive(Debug)]
pub struct Aside {
    /// How many there are; behind them lie old ones.
    count: usize,
    places: [u32; LOOKED_UP],
    ranks: [u64; LOOKED_UP],
    /// When the message was there.
    arrived: [i64; LOOKED_UP],
    /// When the rank's last send had left its CPU.
    own: [i64; LOOKED_UP],
}

impl Default for Aside {
    fn default() -> Aside {
        Aside {
            count: 0,
            places: [0; LOOKED_UP],
            ranks: [0; LOOKED_UP],
            arrived: [0; LOOKED_UP],
            own: [0; LOOKED_UP],
        }
    }
}

impl Aside {
    /// There must be room.
    #[inline]
    pub fn push(&mut self, place: usize, rank: u64, arrived: i64, own: i64) {
        let at = self.count;
        self.places[at] = place as u32;
        self.ranks[at] = rank;
        self.arrived[at] = arrived;
        self.own[at] = own;
        self.count = at + 1;
    }

    /// Whether there is no room for another group.
    pub fn is_full(&self) -> bool {
        self.count + LANES > LOOKED_UP
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts times and clear times right. `time` holds what they would be without detours.
    pub fn settle<const GAPS: bool>(
        &mut self,
        step: &Step,
        noise: &RunNoise<'_>,
        time: &mut [i64],
        clear: &mut [i64],
    ) -> Result<(), WorkError> {
        if noise.is_none() {
            return Err(WorkError::Overflow);
        }
        let mut until = [0; LOOKED_UP];
        noise.clear_from(self.count, &self.ranks, &self.arrived, &mut until);
        for (at, &until) in until[..self.count].iter().enumerate() {
            let place = self.places[at] as usize;
            if until >= time[place] {
                clear[place] = until;
                continue;
            }
            let local = noise.local(self.ranks[at]);
            (time[place], clear[place]) =
                exactly::<GAPS>(step, &local, self.arrived[at], self.own[at])?;
        }
        self.count = 0;
        Ok(())
    }
}

/// When the rank's next send has left its CPU, and until when it is clear.
fn exactly<const GAPS: bool>(
    step: &Step,
    local: &Local<'_>,
    arrived: i64,
    own: i64,
) -> Result<(i64, i64), WorkError> {
    let Step { message, between, send_wait, send, last } = *step;
    let mut cursor = local.at(arrived);
    let received = cursor.work(arrived, message.cpu)?.max(own);
    // Until when it is clear is asked for from here on, whatever the cursor passes.
    let clear_until = cursor.clear_until(received);
    let mut time = received;
    if between > 0 {
        time = cursor.work(time, between)?;
    }
    if !last {
        if GAPS {
            time = time.max(own + send_wait);
        }
        time = cursor.work(time, send)?;
    }
    Ok((time, if clear_until < time { untrusted(clear_until) } else { clear_until }))
}
