//! The reader's sleep. It ends on timeout, at the end of the recording, or when a CPU's ring buffer or
//! probe buffer is half full.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    io::Errno,
    time::Timespec,
};

use crate::kernel::ring::Ring;

pub struct Sleep {
    epoll: OwnedFd,
    over: OwnedFd,
    /// Written by probes.
    filled: OwnedFd,
    stop: AtomicBool,
}

impl Sleep {
    pub fn new<'a>(rings: impl Iterator<Item = &'a Ring>) -> io::Result<Sleep> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let filled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let nothing = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &over, nothing, epoll::EventFlags::IN)?;
        // There is always data in a ring buffer; only the wakeup matters.
        let on_wakeup = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &filled, nothing, on_wakeup)?;
        for ring in rings {
            epoll::add(&epoll, ring.fd(), nothing, on_wakeup)?;
        }
        Ok(Sleep { epoll, over, filled, stop: AtomicBool::new(false) })
    }

    pub fn sleep(&self, time: Duration) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 8];
        match epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            // Should not happen; a reader that spins would be worse than one that is late.
            Err(_) => std::thread::sleep(time),
        }
    }

    /// Ends the sleep: a probe buffer is half full.
    pub fn wake(&self) {
        // The counter cannot overflow.
        let _ = rustix::io::write(&self.filled, &1u64.to_ne_bytes());
    }

    /// Ends the sleep, and every later one.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // The counter cannot overflow.
        let _ = rustix::io::write(&self.over, &1u64.to_ne_bytes());
    }

    /// Whether a probe has woken it since the last call.
    #[cfg(test)]
    pub fn was_woken(&self) -> bool {
        rustix::io::read(&self.filled, &mut [0u8; 8][..]).is_ok()
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_sleep_ends_in_time_or_when_it_is_over() -> io::Result<()> {
        let sleep = Sleep::new([].into_iter())?;
        let start = Instant::now();
        sleep.sleep(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(19), "{:?}", start.elapsed());
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while !sleep.is_over() {
                    sleep.sleep(Duration::from_millis(900));
                }
            });
            sleep.stop();
            assert!(sleeper.join().is_ok());
        });
        Ok(())
    }
}
