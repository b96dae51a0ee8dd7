//! The reader's sleep. It ends on timeout, at the end of the recording, or when a CPU's ring buffer is
//! half full.

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

use crate::ring::Ring;

pub struct Sleep {
    epoll: OwnedFd,
    over: OwnedFd,
    stop: AtomicBool,
}

impl Sleep {
    pub fn new<'a>(rings: impl Iterator<Item = &'a Ring>) -> io::Result<Sleep> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let nothing = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &over, nothing, epoll::EventFlags::IN)?;
        for ring in rings {
            // There is always data in a ring buffer; only the wakeup matters.
            let on_wakeup = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, ring.fd(), nothing, on_wakeup)?;
        }
        Ok(Sleep { epoll, over, stop: AtomicBool::new(false) })
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

    /// Ends the sleep, and every later one.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // The counter cannot overflow.
        let _ = rustix::io::write(&self.over, &1u64.to_ne_bytes());
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
