//! What threads have used of a processor, as the system counts it.
//!
//! Time on a processor, not time that passed: what else goes on on the machine does not count, so a share of a core can
//! be told on a machine that is busy.
//!
//! ```text
//!   /proc/self/task/TID/schedstat   nanoseconds on a processor, nanoseconds waiting for one, turns
//! ```

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use qhca_regs::Duration;

const TASKS: &str = "/proc/self/task";

/// Some threads of this process, by the system's ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Threads(BTreeSet<u32>);

impl Threads {
    /// Those that the process has now.
    pub(super) fn all() -> io::Result<Self> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(TASKS)? {
            let id: Option<u32> = entry?.file_name().to_str().and_then(|id| id.parse().ok());
            found.extend(id);
        }
        Ok(Self(found))
    }

    /// Those that are not in `others`.
    pub(super) fn without(&self, others: &Self) -> Self {
        Self(self.0.difference(&others.0).copied().collect())
    }

    /// What they have used of a processor together since each began.
    pub(super) fn processor_time(&self) -> io::Result<Duration> {
        let mut sum = Duration::ZERO;
        for id in &self.0 {
            let path = Path::new(TASKS).join(id.to_string()).join("schedstat");
            let text = std::fs::read_to_string(path)?;
            let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
            sum += Duration::from_nanos(ns.ok_or_else(|| {
                io::Error::new(ErrorKind::InvalidData, "schedstat does not begin with nanoseconds")
            })?);
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn time_of_a_thread_is_what_it_works_and_not_what_it_sleeps() {
        let ((to_thread, wake), (done, to_test)) = (channel::<u32>(), channel());
        let before = Threads::all().expect("proc is mounted");
        let thread = std::thread::spawn(move || {
            while let Ok(rounds) = wake.recv() {
                (0..rounds).fold(0_u32, |sum, n| std::hint::black_box(sum.wrapping_add(n)));
                let own = std::fs::read_link("/proc/thread-self").expect("proc is mounted");
                let id = own.file_name().and_then(|id| id.to_str()?.parse().ok());
                done.send(id.expect("the link ends in the thread's id")).expect("the test waits");
            }
        });
        let work = |rounds| {
            to_thread.send(rounds).expect("the thread lives");
            to_test.recv().expect("the thread answers")
        };
        let id = work(1);
        let new = Threads::all().expect("proc is mounted").without(&before);
        assert!(new.0.contains(&id), "{id} is not in {new:?}");
        // Other tests have threads of their own.
        let ours = Threads(BTreeSet::from([id]));
        let time = || ours.processor_time().expect("the kernel counts");
        let idle = time();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept = time() - idle;
        work(50_000_000);
        let worked = time() - idle;
        assert!(slept < Duration::from_millis(25) && worked > slept, "{slept} asleep, {worked} at work");
        drop(to_thread);
        thread.join().expect("the thread ends by itself");
    }
}
