//! Runs spread over threads. Threads take the next free run and store its result by number, so a
//! result depends on the run's number and never on the thread that computed it.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// The results of runs 0 to `runs`, in order of their numbers, or the error of the first that failed.
/// Each thread reuses one scratch for all of its runs.
pub(crate) fn spread<Scratch: Default, T: Send, E: Send>(
    runs: u64,
    threads: u64,
    one: impl Fn(u64, &mut Scratch) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let collected = Mutex::new((Vec::new(), None::<(u64, E)>));
    let worker = || {
        let mut scratch = Scratch::default();
        let mut done = Vec::new();
        let mut error = None;
        while !failed.load(Ordering::Relaxed) {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                break;
            }
            match one(run, &mut scratch) {
                Ok(time) => done.push((run, time)),
                Err(why) => {
                    error = Some((run, why));
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }
        let mut collected = collected.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        collected.0.append(&mut done);
        // Runs are taken in order and complete once begun, so the first that fails is among these.
        collected.1 = [collected.1.take(), error].into_iter().flatten().min_by_key(|error| error.0);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(runs) {
            scope.spawn(worker);
        }
        worker();
    });
    let (mut done, error) = collected.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((_, error)) = error {
        return Err(error);
    }
    done.sort_unstable_by_key(|&(run, _)| run);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_runs_and_an_error_ends_it() {
        for threads in [1, 2, 7] {
            let squares = spread(100, threads, |run, _: &mut ()| Ok::<_, ()>(run * run));
            assert_eq!(squares.unwrap(), (0..100).map(|run| run * run).collect::<Vec<_>>());
            let failing = |run, _: &mut ()| if run == 40 { Err(run) } else { Ok(run) };
            assert_eq!(spread(100, threads, failing), Err(40));
            // The first one fails last.
            let slow = |run, _: &mut ()| {
                std::thread::sleep(std::time::Duration::from_millis(if run == 0 { 30 } else { 0 }));
                Err::<(), _>(run)
            };
            assert_eq!(spread(100, threads, slow), Err(0));
        }
    }
}
