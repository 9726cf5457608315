//! Counts kernel events in this process: syscalls, operations that io_uring gives to worker threads, and submitted
//! requests. It also checks which hardware counters exist.
//!
//! Tracepoints are counted by perf_event_open(2). It needs a mounted tracefs, and either CAP_PERFMON or
//! `kernel.perf_event_paranoid` of at most 1 (tracepoints of kernel activity; -1 for some). If an event cannot be
//! counted, its count is a [`Fact::Unknown`] with the reason.
//!
//! Counting [`Event::SystemCalls`] puts every syscall of the process on the kernel's slow path. Count in a short pass
//! of its own, never while timing.

use std::path::PathBuf;

use perf_event::events::{Event as PerfEvent, Hardware, Tracepoint};
use perf_event::{Builder, Counter};
use serde::Serialize;

use crate::cpu;
use crate::fact::{self, Fact, Sources, lowered};

/// An event that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Entries into the kernel (raw_syscalls:sys_enter).
    SystemCalls,
    /// Operations that io_uring handed to a worker thread
    /// (io_uring:io_uring_queue_async_work).
    WorkerPunts,
    /// Operations that io_uring took from a submission queue
    /// (io_uring:io_uring_submit_req, before 6.0 io_uring_submit_sqe).
    SubmittedRequests,
}

impl Event {
    /// The tracepoints that mean this event, newest kernel first.
    fn tracepoints(self) -> &'static [&'static str] {
        match self {
            Event::SystemCalls => &["raw_syscalls/sys_enter"],
            Event::WorkerPunts => &["io_uring/io_uring_queue_async_work"],
            Event::SubmittedRequests => {
                &["io_uring/io_uring_submit_req", "io_uring/io_uring_submit_sqe"]
            }
        }
    }

    /// The event's name, as `perf list` prints it.
    pub fn name(self) -> String {
        self.tracepoints()[0].replace('/', ":")
    }
}

/// Counters of events in this process: in every thread that exists when they are opened, and in every thread that those
/// start later, including io_uring's.
pub struct Counters {
    opened: Vec<Opened>,
}

/// The counters of one event.
struct Opened {
    event: Event,
    counters: Fact<Vec<Counter>>,
    /// The total when counting started. The count is a difference, so it does not depend on what a reset of a counter
    /// covers.
    total_at_start: u64,
    /// The total when counting stopped. If the process was just starting threads, the counters were seen to increase a
    /// little after they were disabled.
    total_at_stop: Option<u64>,
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state =
            |opened: &Opened| (opened.event, opened.counters.reason().unwrap_or("open").to_owned());
        f.debug_map().entries(self.opened.iter().map(state)).finish()
    }
}

impl Counters {
    /// Opens counters, stopped and at zero. An event that cannot be counted keeps its reason.
    pub fn open(sources: &Sources, events: &[Event]) -> Self {
        Self::open_in(sources, None, events)
    }

    /// Opens counters for another process. [`Event::SystemCalls`] then includes none of this process's syscalls.
    pub fn open_for(sources: &Sources, pid: u32, events: &[Event]) -> Self {
        Self::open_in(sources, Some(pid), events)
    }

    fn open_in(sources: &Sources, pid: Option<u32>, events: &[Event]) -> Self {
        let open = |&event| Opened {
            event,
            counters: open_for_all_threads(sources, pid, event),
            total_at_start: 0,
            total_at_stop: Some(0),
        };
        Counters { opened: events.iter().map(open).collect() }
    }

    /// Starts counting from zero.
    pub fn start(&mut self) {
        for opened in &mut self.opened {
            opened.total_at_stop = None;
            opened.total_at_start = opened.try_to("read", total).unwrap_or(0);
            opened.try_to("start", |counters| counters.iter_mut().try_for_each(Counter::enable));
        }
    }

    /// Stops counting. [`Event::SystemCalls`] includes the syscall that stops it, and those that start and stop the
    /// events opened with it.
    pub fn stop(&mut self) {
        for opened in &mut self.opened {
            opened.try_to("stop", |counters| counters.iter_mut().try_for_each(Counter::disable));
            opened.total_at_stop = opened.try_to("read", total);
        }
    }

    /// Returns the count between the last start and stop, or until now if it was not stopped.
    pub fn count(&mut self, event: Event) -> Fact<u64> {
        let Some(opened) = self.opened.iter_mut().find(|opened| opened.event == event) else {
            return Fact::Unknown(format!("{}: not opened", event.name()));
        };
        let total = opened.total_at_stop.or_else(|| opened.try_to("read", total));
        match (&opened.counters, total) {
            (Fact::Unknown(reason), _) => Fact::Unknown(reason.clone()),
            (Fact::Known(_), total) => {
                Fact::Known(total.unwrap_or(0).saturating_sub(opened.total_at_start))
            }
        }
    }
}

impl Opened {
    /// Runs a function on the counters, if there are any. If it fails, its error becomes the reason for an unknown
    /// count.
    fn try_to<T>(
        &mut self,
        what: &str,
        act: impl FnOnce(&mut [Counter]) -> std::io::Result<T>,
    ) -> Option<T> {
        let Fact::Known(counters) = &mut self.counters else { return None };
        match act(counters) {
            Ok(value) => Some(value),
            Err(error) => {
                self.counters = failed(self.event, what, &error);
                None
            }
        }
    }
}

fn total(counters: &mut [Counter]) -> std::io::Result<u64> {
    let mut counts = counters.iter_mut().map(Counter::read);
    counts.try_fold(0u64, |sum, count| Ok(sum.saturating_add(count?)))
}

fn failed<T>(event: Event, what: &str, error: &std::io::Error) -> Fact<T> {
    Fact::Unknown(format!("{}: {what}: {}", event.name(), lowered(error)))
}

/// Opens one counter per existing thread. Each also covers the threads that its thread starts. A counter with `inherit`
/// cannot be in a group: the kernel refuses to read groups of inherited counters (perf_event_open(2),
/// PERF_FORMAT_GROUP).
fn open_for_all_threads(sources: &Sources, pid: Option<u32>, event: Event) -> Fact<Vec<Counter>> {
    let tracepoint = match tracepoint_id(sources, event) {
        Fact::Known(id) => Tracepoint::with_id(id),
        Fact::Unknown(reason) => return Fact::Unknown(reason),
    };
    cpu::thread_ids(sources, pid).and_then(|threads| {
        let mut counters = Vec::with_capacity(threads.len());
        for thread in threads {
            match open(tracepoint, thread) {
                Ok(counter) => counters.push(counter),
                // ESRCH: the thread has exited since it was listed.
                Err(error) if error.raw_os_error() == Some(3) => {}
                Err(error) => return failed(event, "perf_event_open", &error),
            }
        }
        Fact::Known(counters)
    })
}

fn open(event: impl PerfEvent, thread: u32) -> std::io::Result<Counter> {
    let thread = i32::try_from(thread).map_err(std::io::Error::other)?;
    // Tracepoints fire in the kernel. If it were excluded, nothing would be counted.
    Builder::new(event).observe_pid(thread).inherit(true).include_kernel().build()
}

/// Since Linux 4.1 tracefs has a mount point of its own. It is also visible below debugfs.
fn tracepoint_id(sources: &Sources, event: Event) -> Fact<u64> {
    let roots = ["kernel/tracing/events", "kernel/debug/tracing/events"];
    let paths: Vec<PathBuf> = roots
        .iter()
        .flat_map(|root| event.tracepoints().iter().map(move |name| (root, name)))
        .map(|(root, name)| sources.sys.join(root).join(name).join("id"))
        .collect();
    let mut reasons = Vec::new();
    for path in &paths {
        match fact::value::<u64>(path) {
            Fact::Known(id) => return Fact::Known(id),
            Fact::Unknown(reason) => reasons.push(reason),
        }
    }
    Fact::Unknown(reasons.into_iter().next().unwrap_or_else(|| "no tracepoint".to_owned()))
}

/// A counter of the processor itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HardwareCounter {
    /// What it counts: `cycles`, `instructions` or `cache_misses`.
    pub name: &'static str,
    /// The count over a short loop. On a machine without counters, such as most virtual machines, it is the reason.
    pub counted: Fact<u64>,
}

/// Tries the processor's counters on this thread, in user mode only.
pub fn hardware() -> Vec<HardwareCounter> {
    [
        ("cycles", Hardware::CPU_CYCLES),
        ("instructions", Hardware::INSTRUCTIONS),
        ("cache_misses", Hardware::CACHE_MISSES),
    ]
    .into_iter()
    .map(|(name, event)| HardwareCounter {
        name,
        counted: match count_a_loop(event) {
            Ok(count) => Fact::Known(count),
            Err(error) => Fact::Unknown(format!("perf_event_open: {}", lowered(&error))),
        },
    })
    .collect()
}

fn count_a_loop(event: Hardware) -> std::io::Result<u64> {
    let mut counter = Builder::new(event).build()?;
    counter.enable()?;
    for round in 0..100_000u64 {
        std::hint::black_box(round);
    }
    counter.disable()?;
    counter.read()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the count, or checks that there is a reason if this machine does not allow counting.
    fn counted(counters: &mut Counters, event: Event) -> Option<u64> {
        match counters.count(event) {
            Fact::Known(count) => Some(count),
            Fact::Unknown(reason) => {
                assert!(!reason.is_empty());
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    #[test]
    fn events_that_do_not_happen_count_zero() {
        let mut counters = Counters::open(&Sources::default(), &[Event::WorkerPunts]);
        counters.start();
        drop(fs::read("/proc/self/stat"));
        counters.stop();
        if let Some(count) = counted(&mut counters, Event::WorkerPunts) {
            assert_eq!(count, 0);
        }
        assert!(counters.count(Event::SystemCalls).reason().unwrap().contains("not opened"));
    }

    #[test]
    fn without_tracefs_there_is_a_reason() {
        let empty = tempfile::tempdir().unwrap();
        let sources = Sources::below(empty.path());
        let mut counters = Counters::open(&sources, &[Event::WorkerPunts]);
        counters.start();
        counters.stop();
        let count = counters.count(Event::WorkerPunts);
        assert!(count.reason().unwrap().contains("io_uring_queue_async_work/id"), "{count:?}");
    }

    #[test]
    fn a_wrong_id_is_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path =
            directory.path().join("sys/kernel/debug/tracing/events/io_uring/io_uring_submit_sqe");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("id"), "18446744073709551615").unwrap();
        let sources = Sources { proc: "/proc".into(), ..Sources::below(directory.path()) };
        let mut counters = Counters::open(&sources, &[Event::SubmittedRequests]);
        let count = counters.count(Event::SubmittedRequests);
        assert!(count.reason().unwrap().contains("perf_event_open"), "{count:?}");
    }

    #[test]
    fn hardware_counters_answer_or_say_why() {
        for counter in hardware() {
            match counter.counted {
                Fact::Known(count) => assert!(counter.name == "cache_misses" || count > 10_000),
                Fact::Unknown(reason) => assert!(reason.starts_with("perf_event_open: ")),
            }
        }
    }
}
