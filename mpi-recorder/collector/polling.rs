//! Tests that fail, one soon after the other: a program that polls makes millions of them, and recording each
//! would take longer than the test itself.
//!
//! Each test is first written like any call. If the same tests are made again in the same order, they are counted
//! in a record of the mapped chunk, so that none is lost if the rank is killed, and the clock is read only at some
//! of them. A test that comes late, succeeds or fails with an error is written like any call again: time in which
//! the program did something else stays apart.

use crate::clock;
use crate::layout::Layout;
use crate::mpi::{Library, STATUS_WORDS};
use crate::thread::{Looked, Scratch};
use crate::wrap::{Invoke, State};
use core::mem::{offset_of, swap};
use core::ptr::{null_mut, with_exposed_provenance};
use mpi_abi::MAX_TESTS;

/// Microseconds between two readings of the clock, at most.
const BUDGET_US: u64 = 10;
/// Tests from one reading to the next. Different ones are timed in turn, whatever their number.
const STEPS: [u32; 4] = [1, 5, 17, 61];
/// Tests that are all timed after it was not known whether the time before one was spent in it.
const CAREFUL: u32 = 128;
/// The parts of a time that one of them has, in 2^-32.
const SHARES: [u64; 4] = [1 << 32, (1 << 32) / 5 + 1, (1 << 32) / 17 + 1, (1 << 32) / 61 + 1];
/// A test that ends so many microseconds later than expected is not one of those before.
const LATE_US: u64 = 2 * BUDGET_US;
/// Tests that follow each other more slowly, in microseconds, are written one by one.
const SLOW_US: u64 = 1;
/// Ticks that a record spans, at most: several tests share its time.
const LONGEST_US: u64 = 10_000;

/// Numbers of a record: tests, ticks from one to the next, and ticks inside of them.
const TIMES: usize = 0;
const TICKS: usize = 1;
const INSIDE: usize = 2;

/// Words of the longest argument list.
pub const ARGUMENTS: usize = 6;
/// Number of no function.
const NOTHING: usize = usize::MAX;
/// Set in the mark of a test whose request has 4 bytes.
const NARROW: usize = 1 << 17;

/// The mark of a test that is counted in as few instructions as possible: it is the only one that is made again, and
/// has one request or none. 0 for others.
pub fn mark(function: usize, requests: Option<usize>, handle_size: usize) -> usize {
    match requests {
        None => function,
        Some(1) if handle_size == 8 => function,
        Some(1) => function | NARROW,
        Some(_) => 0,
    }
}

/// A test that has failed and is written.
#[repr(C)]
pub struct Failed {
    /// Arguments as the program gives them.
    pub given: [usize; ARGUMENTS],
    /// Where the test says whether it has succeeded: an `int` that is 0 if not.
    pub flag: usize,
    /// Address of the function.
    pub real: usize,
    /// Arguments as the library gets them.
    pub passed: [usize; ARGUMENTS],
    /// Number of the function.
    pub function: usize,
    /// See [`mark`].
    pub mark: usize,
    /// The program's requests.
    pub array: usize,
    pub count: usize,
    /// The call as read before it was made.
    pub state: Option<State>,
}

/// A test that is made again, perhaps in turn with others.
#[repr(C)]
pub struct Slot {
    /// Its request as a number, if there is only one.
    handle: u64,
    failed: Failed,
    /// Bytes of its requests, and what they were.
    bytes: usize,
    handles: Scratch<u8>,
    /// The test that comes after it.
    following: *mut Slot,
    /// What was found of them.
    looked: Scratch<Looked>,
    /// In place of `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`.
    status: [usize; STATUS_WORDS],
    statuses: Scratch<u64>,
}

impl Slot {
    const NEW: Slot = Slot {
        handle: 0,
        failed: Failed {
            given: [0; ARGUMENTS],
            flag: 0,
            real: 0,
            passed: [0; ARGUMENTS],
            function: NOTHING,
            mark: 0,
            array: 0,
            count: 0,
            state: None,
        },
        bytes: 0,
        handles: Scratch::NEW,
        following: null_mut(),
        looked: Scratch::NEW,
        status: [0; STATUS_WORDS],
        statuses: Scratch::NEW,
    };

    /// Whether it is this test. A mark of its function says that it has one request or none.
    #[inline(always)]
    pub fn is_marked<const N: usize>(
        &self,
        mark: usize,
        function: usize,
        args: &[usize; N],
        layout: &Layout,
    ) -> bool {
        if mark & !NARROW != function || !self.has(args) {
            return false;
        }
        let at = layout.requests.min(layout.one_request);
        let Some(array) = args.get(usize::from(at)) else { return true };
        // SAFETY: the call reads a request of that size there.
        unsafe {
            match mark & NARROW {
                0 => word::<u64>(*array) == self.handle,
                _ => word::<u32>(*array) == self.handle as u32,
            }
        }
    }

    /// Whether it is this test.
    pub fn is<const N: usize>(&self, function: usize, args: &[usize; N]) -> bool {
        let (array, kept) = (self.failed.array, self.handles.address());
        if self.failed.function != function || !self.has(args) {
            return false;
        }
        let mut at = 0;
        // SAFETY: the call reads `bytes` bytes of requests, and as many are kept. A handle has 4 or 8.
        unsafe {
            while at + 8 <= self.bytes && word::<u64>(array + at) == word(kept + at) {
                at += 8;
            }
            at == self.bytes || at + 4 == self.bytes && word::<u32>(array + at) == word(kept + at)
        }
    }

    /// Compares word by word: the arguments are in registers, and a vector comparison would have to wait until they
    /// are stored.
    #[inline(always)]
    fn has<const N: usize>(&self, args: &[usize; N]) -> bool {
        for (given, now) in self.failed.given.iter().zip(args) {
            if given != now {
                return false;
            }
        }
        true
    }

    /// Makes the test again.
    ///
    /// # Safety
    /// The arguments are those of the first time.
    #[inline(always)]
    pub unsafe fn make<const N: usize>(&self, mut args: [usize; N], layout: &Layout) -> usize
    where
        [usize; N]: Invoke,
    {
        // Our own in place of MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE.
        for at in [layout.status, layout.statuses].map(usize::from) {
            if let (Some(word), Some(passed)) = (args.get_mut(at), self.failed.passed.get(at)) {
                *word = *passed;
            }
        }
        // SAFETY: by contract.
        unsafe { args.invoke(self.failed.real) }
    }

    /// Its arguments for the library.
    #[inline(always)]
    pub fn arguments<const N: usize>(&self) -> [usize; N] {
        self.failed.passed.first_chunk().copied().unwrap_or([0; N])
    }

    /// Whether the test, which has just been made, has failed once more.
    #[inline(always)]
    pub fn has_failed(&self, result: usize) -> bool {
        // SAFETY: the call has succeeded and has stored an int there.
        result as i32 == 0 && unsafe { word::<u32>(self.failed.flag) } == 0
    }

    pub fn test(&self) -> &Failed {
        &self.failed
    }
}

/// # Safety
/// There is such a value at the address.
#[inline(always)]
unsafe fn word<T: Copy>(address: usize) -> T {
    // SAFETY: by contract; alignment is that of the type, but not relied upon.
    unsafe { with_exposed_provenance::<T>(address).read_unaligned() }
}

/// The tests that a thread makes again and again, and their record.
#[repr(C)]
pub struct Polling {
    /// The record's numbers in the chunk; null before the first repetition.
    numbers: *mut u8,
    /// The record's number of tests before the next one that is timed.
    until: u32,
    /// Tests that are still to be timed one by one.
    careful: u32,
    slots: [Slot; MAX_TESTS],
    /// Tests that are written, one behind the other; 0 if the last call was none.
    written: usize,
    /// The one that comes next if they are made again; null if the last call was no test.
    next: *mut Slot,
    /// End of the last test that is written.
    first: u64,
    /// Tests from one reading of the clock to the next, as a position in [`STEPS`].
    step: usize,
    /// End of the last test that was timed, ticks inside of it, and ticks from one test to the next.
    last: u64,
    inside: u64,
    pace: u64,
    /// Ticks inside of tests that are not in the record yet: those that were not timed had not as many.
    owed: u64,
}

/// Bytes at the beginning that are used when `MPI_Test` is counted, whose last argument is the third.
pub const COUNTED: usize =
    offset_of!(Polling, slots) + offset_of!(Slot, failed) + offset_of!(Failed, passed) + 3 * WORD;
const WORD: usize = size_of::<usize>();

impl Polling {
    pub const NEW: Polling = Polling {
        numbers: null_mut(),
        until: 0,
        careful: 0,
        slots: [const { Slot::NEW }; MAX_TESTS],
        written: 0,
        next: null_mut(),
        first: 0,
        step: 0,
        last: 0,
        inside: 0,
        pace: 0,
        owed: 0,
    };

    /// Whether the last call was a test that failed.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.written > 0
    }

    /// Tests that are written, one behind the other.
    pub fn tests(&self) -> u8 {
        self.written as u8
    }

    /// Address of a status that lasts as long as the next test that is written.
    pub fn status(&mut self, written: usize) -> usize {
        let slot = self.slots.get_mut(written % MAX_TESTS);
        slot.map_or(0, |slot| slot.status.as_mut_ptr().expose_provenance())
    }

    /// A test has failed and is written behind so many others, from `begin` to `end`. Its requests are still as
    /// before; what the thread has found of them, and the statuses that it has lent, are kept.
    pub fn arm(
        &mut self,
        library: &Library,
        failed: Failed,
        (looked, statuses): (&mut Scratch<Looked>, &mut Scratch<u64>),
        written: usize,
        (begin, end): (u64, u64),
    ) {
        let Some(slot) = self.slots.get_mut(written % MAX_TESTS) else { return };
        let bytes = failed.count * library.handle_size();
        let handles = slot.handles.room(bytes);
        if handles.len() < bytes {
            return;
        }
        for (at, byte) in handles.iter_mut().enumerate() {
            // SAFETY: the call has read `count` requests there.
            *byte = unsafe { word(failed.array + at) };
        }
        slot.bytes = bytes;
        slot.handle = match (handles.first_chunk(), handles.first_chunk()) {
            (Some(handle), _) => u64::from_ne_bytes(*handle),
            (None, Some(handle)) => u32::from_ne_bytes(*handle).into(),
            (None, None) => 0,
        };
        slot.failed = failed;
        swap(&mut slot.looked, looked);
        swap(&mut slot.statuses, statuses);
        self.written = written % MAX_TESTS + 1;
        self.restart(begin, end);
    }

    fn restart(&mut self, begin: u64, end: u64) {
        let first = self.slots.as_mut_ptr();
        for (place, slot) in self.slots.iter_mut().take(self.written).enumerate() {
            let following = if place + 1 == self.written { 0 } else { place + 1 };
            slot.following = first.wrapping_add(following);
        }
        self.next = first;
        self.numbers = null_mut();
        (self.step, self.until) = (0, 0);
        (self.first, self.last) = (end, end);
        (self.inside, self.pace, self.owed) = (end.saturating_sub(begin), 0, 0);
    }

    /// Tests of the record, which are not among the events of the thread yet.
    pub fn repeated(&self) -> u64 {
        // SAFETY: there is a record in the second case.
        if self.numbers.is_null() { 0 } else { u64::from(unsafe { self.number(TIMES) }) }
    }

    /// How many tests are written, if one is to follow them; none if they were repeated.
    pub fn open_end(&self) -> usize {
        if self.numbers.is_null() { self.written } else { 0 }
    }

    /// The next test has failed again and was written, since it came late.
    pub fn rearm(&mut self, place: usize, begin: u64, end: u64) {
        self.slots.swap(0, place % MAX_TESTS);
        self.written = 1;
        self.restart(begin, end);
    }

    /// The test that comes next, or null.
    pub fn next(&self) -> *const Slot {
        self.next
    }

    /// The first test.
    #[inline(always)]
    pub fn first(&self) -> &Slot {
        let [first, ..] = &self.slots;
        first
    }

    /// Whether the clock is to be read at the next test.
    pub fn is_due(&self) -> bool {
        // SAFETY: there is a record in the second case.
        self.numbers.is_null() || unsafe { self.number(TIMES) } == self.until
    }

    /// The mark of the test that comes next; 0 if it is not the only one or if the clock is to be read at it.
    pub fn mark(&self) -> usize {
        if self.written == 1 && !self.is_due() { self.first().failed.mark } else { 0 }
    }

    /// Place of the test that comes next.
    pub fn place(&self) -> usize {
        (self.next.addr() - self.slots.as_ptr().addr()) / size_of::<Slot>()
    }

    /// Exchanges what was found of the requests of a test.
    pub fn exchange(&mut self, place: usize, looked: &mut Scratch<Looked>) {
        if let Some(slot) = self.slots.get_mut(place) {
            swap(&mut slot.looked, looked);
        }
    }

    /// Counts a test that was not timed. Returns whether the clock is to be read at the next one.
    #[inline(always)]
    pub fn count(&mut self) -> bool {
        // SAFETY: tests that are not timed come after one that was, which has begun the record.
        let times = unsafe { self.number(TIMES) }.wrapping_add(1);
        // SAFETY: as above.
        unsafe { self.set(TIMES, times) };
        times == self.until
    }

    /// Goes on to the next test.
    pub fn advance(&mut self) {
        // SAFETY: one of the slots, since a test has been made again.
        self.next = unsafe { (*self.next).following };
    }

    /// A number of the record.
    ///
    /// # Safety
    /// There is a record.
    #[inline(always)]
    unsafe fn number(&self, at: usize) -> u32 {
        // SAFETY: the record is in the mapped chunk of this thread.
        unsafe { self.numbers.add(4 * at).cast::<u32>().read_unaligned() }
    }

    /// # Safety
    /// As for `number`.
    #[inline(always)]
    unsafe fn set(&mut self, at: usize, value: u32) {
        // SAFETY: as in `number`.
        unsafe { self.numbers.add(4 * at).cast::<u32>().write_unaligned(value) };
    }

    /// Adds to the ticks from one test to the next and inside of them.
    ///
    /// # Safety
    /// As for `number`.
    unsafe fn add_ticks(&mut self, all: u64, inside: u64) {
        for (at, ticks) in [(TICKS, all), (INSIDE, inside)] {
            // SAFETY: by contract.
            unsafe { self.set(at, self.number(at).wrapping_add(ticks as u32)) };
        }
    }

    pub fn has_record(&self) -> bool {
        !self.numbers.is_null()
    }

    pub fn begin_record(&mut self, numbers: *mut u8) {
        self.numbers = numbers;
    }

    /// Tests from one reading of the clock to the next.
    fn every(&self) -> u32 {
        STEPS.get(self.step).copied().unwrap_or(1)
    }

    /// Tests that were not timed, since the last one that was.
    fn untimed(&self) -> u64 {
        if self.numbers.is_null() {
            return 0;
        }
        // SAFETY: there is a record.
        let left = self.until.wrapping_sub(unsafe { self.number(TIMES) });
        u64::from((self.every() - 1).saturating_sub(left))
    }

    /// Whether a timed test belongs to those before it.
    pub fn continues(&mut self, end: u64) -> bool {
        let us = clock::ticks_per_us();
        let passed = end.wrapping_sub(self.last);
        self.expect(passed, passed.min(self.pace * u64::from(self.every())));
        let limit = if self.step == 0 { SLOW_US } else { LATE_US };
        passed <= limit * us && end.wrapping_sub(self.first) < LONGEST_US * us
    }

    /// Times the next tests one by one if this one has ended late. Returns whether it has.
    fn expect(&mut self, passed: u64, expected: u64) -> bool {
        let late = passed - expected > LATE_US * clock::ticks_per_us();
        if late && (self.every() > 1 || self.careful > 0) {
            self.careful = CAREFUL;
        }
        late
    }

    /// Counts a timed test.
    pub fn time(&mut self, begin: u64, end: u64) {
        let passed = end.wrapping_sub(self.last);
        let tests = u64::from(self.every());
        // Tests are made by the million: a multiplication in place of a division. The time has 32 bits, see
        // `continues`.
        self.pace = (passed * SHARES.get(self.step).copied().unwrap_or(0)) >> 32;
        // The one that was timed stands for the others, of which some took longer and some less.
        let inside = end.saturating_sub(begin);
        self.inside = inside.min(self.pace);
        self.owed += inside * tests;
        let known = self.owed.min(passed);
        self.owed -= known;
        // SAFETY: this test is in a record.
        let times = unsafe {
            self.add_ticks(passed, known);
            self.number(TIMES).wrapping_add(1)
        };
        // SAFETY: as above.
        unsafe { self.set(TIMES, times) };
        self.last = end;
        let budget = BUDGET_US * clock::ticks_per_us();
        let fits = |step: usize| {
            let tests = STEPS.get(step).map(|tests| u64::from(*tests));
            // Each test in turn is timed.
            let written = self.written as u64;
            let all = |tests: &u64| *tests == 1 || !written.is_multiple_of(*tests);
            tests.filter(all).is_some_and(|tests| tests * self.pace <= budget)
        };
        self.step = match self.step {
            _ if self.careful > 0 => 0,
            step if fits(step + 1) => step + 1,
            step if fits(step) => step,
            _ => 0,
        };
        self.careful = self.careful.saturating_sub(1);
        self.until = times.wrapping_add(self.every() - 1);
        self.advance();
    }

    /// When the next test began, which was not timed and has ended now: as soon after those before it as usual, or as
    /// long ago as they took if it comes late.
    pub fn begin_of_next(&mut self, end: u64) -> u64 {
        let (passed, inside) = (end.saturating_sub(self.last), self.inside.min(self.pace));
        let expected = (self.untimed() + 1) * self.pace;
        let late = self.expect(passed, expected.min(passed));
        let begin = if late { end - inside.min(passed) } else { self.last + expected - inside };
        begin.min(end)
    }

    /// The tests are over, at this time at the latest. Returns how many repetitions there were and the ticks
    /// that they took; `None` if there were none.
    pub fn end(&mut self, limit: u64) -> Option<(u32, u32)> {
        self.written = 0;
        self.next = null_mut();
        if self.numbers.is_null() {
            return None;
        }
        let ticks = (self.untimed() * self.pace).min(limit.saturating_sub(self.last));
        let inside = (self.untimed() * self.inside + self.owed).min(ticks);
        // SAFETY: there is a record.
        let (times, ticks) = unsafe {
            self.add_ticks(ticks, inside);
            (self.number(TIMES), self.number(TICKS))
        };
        self.numbers = null_mut();
        Some((times, ticks))
    }
}
