//! The recorder's report of its own overhead. Kernels without scheduler statistics do not provide it;
//! there the tests are reported as skipped.

fn main() {
    use libtest_mimic::{Arguments, Completion, Failed, Trial};

    let tests: [(&str, fn()); 2] = [
        ("work_shows_and_a_probes_work_does_not", linux::work_shows_and_a_probes_work_does_not),
        ("what_a_thread_took_stays_when_it_ends", linux::what_a_thread_took_stays_when_it_ends),
    ];
    let trial = |(name, test): (&str, fn())| {
        let body = move || -> Result<Completion, Failed> {
            if !std::fs::exists("/proc/self/schedstat").unwrap_or(false) {
                return Ok(Completion::ignored_with("the kernel has no scheduler statistics"));
            }
            test();
            Ok(Completion::Completed)
        };
        Trial::ignorable_test(name, body)
    };
    let mut arguments = Arguments::from_args();
    // Both count all threads of this process.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests.map(trial).into()).exit();
}

mod linux {
    use std::sync::Barrier;

    use recorder::{OwnCost, PROBE_THREAD, machine::thread_cpu_ns};

    const SPIN_NS: u64 = 30_000_000;

    pub fn work_shows_and_a_probes_work_does_not() {
        // The kernel updates a thread's time at a tick.
        spin(SPIN_NS);
        let mut own = OwnCost::default();
        let before = own.cpu_ns().expect("this thread has run");
        let (works, may_end) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name(PROBE_THREAD.to_owned());
            let probe = builder.spawn_scoped(scope, || {
                spin(10 * SPIN_NS);
                works.wait();
                may_end.wait();
            });
            probe.expect("a thread");
            spin(SPIN_NS);
            works.wait();
            let after = own.cpu_ns().expect("this thread has run");
            may_end.wait();
            let took = after - before;
            assert!(took >= SPIN_NS * 2 / 3, "{took} ns of {SPIN_NS}");
            assert!(took < 5 * SPIN_NS, "{took} ns: the probe's time is in it");
        });
    }

    pub fn what_a_thread_took_stays_when_it_ends() {
        spin(SPIN_NS);
        let mut own = OwnCost::default();
        let (seen, may_end) = (Barrier::new(2), Barrier::new(2));
        let (before, with_it) = std::thread::scope(|scope| {
            let before = own.cpu_ns().expect("this thread has run");
            scope.spawn(|| {
                spin(SPIN_NS);
                seen.wait();
                may_end.wait();
            });
            seen.wait();
            let with_it = own.cpu_ns().expect("this thread has run");
            may_end.wait();
            (before, with_it)
        });
        assert!(with_it >= before + SPIN_NS * 2 / 3, "{before} {with_it}");
        assert!(own.cpu_ns() >= Some(with_it));
    }

    /// Spins for this much of the thread's CPU time.
    fn spin(ns: u64) {
        let start = thread_cpu_ns();
        while thread_cpu_ns() - start < ns {
            std::hint::spin_loop();
        }
    }
}
