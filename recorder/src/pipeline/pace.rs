//! How long the reader sleeps between two passes: long while little arrives, shorter the faster the
//! buffers fill.

use std::time::Duration;

/// Target fill level of the fullest buffer at each pass.
const AIM: f64 = 1.0 / 8.0;
const SHORTEST: Duration = Duration::from_millis(1);

pub struct Pace {
    longest: Duration,
    pause: Duration,
}

impl Pace {
    pub fn new(longest: Duration) -> Pace {
        Pace { longest: longest.max(SHORTEST), pause: SHORTEST }
    }

    /// The next pause, after a pass that found the fullest buffer `fill` full (0 to 1) when `passed` had
    /// passed since the previous one. Grows gradually, shrinks at once.
    pub fn next(&mut self, passed: Duration, fill: f64) -> Duration {
        let wanted = passed.as_secs_f64() * AIM / fill.max(1e-9);
        let longest = self.longest.min(self.pause * 2);
        self.pause =
            Duration::from_secs_f64(wanted.min(1e3)).clamp(SHORTEST, longest.max(SHORTEST));
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_millis(100);

    /// Consecutive pauses at a load that fills a ring buffer in `full`.
    fn settled(full: Duration) -> Duration {
        let mut pace = Pace::new(LONGEST);
        let mut pause = SHORTEST;
        for _ in 0..20 {
            pause = pace.next(pause, pause.as_secs_f64() / full.as_secs_f64());
        }
        pause
    }

    #[test]
    fn an_idle_machine_is_looked_at_rarely_and_a_busy_one_often() {
        assert_eq!(settled(Duration::from_secs(1_000)), LONGEST);
        let busy = settled(Duration::from_millis(80));
        assert!((9..=11).contains(&busy.as_millis()), "{busy:?}");
        assert_eq!(settled(Duration::from_millis(2)), SHORTEST);
    }

    #[test]
    fn a_burst_shortens_the_pause_at_once() {
        let mut pace = Pace::new(LONGEST);
        for _ in 0..20 {
            pace.next(LONGEST, 0.0);
        }
        assert_eq!(pace.next(LONGEST, 0.0), LONGEST);
        assert!(pace.next(Duration::from_millis(4), 0.5) <= SHORTEST);
        // It does not jump back.
        assert!(pace.next(SHORTEST, 0.0) <= 2 * SHORTEST);
    }
}
