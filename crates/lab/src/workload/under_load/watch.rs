//! Looks at a server at both edges of the measured time: its CPU time, the interrupts of its processor and, in a pass
//! of its own, its system calls and the kernel's own threads.
//!
//! The thread that looks may get its processor late, and between any two things that it does. So what was seen between
//! the two looks is compared with the operations of that time, not with those between the edges, and what was counted
//! with those of the time in which it was.

use std::time::Instant;

use ringwise_measure::{
    Fact, Sources,
    counters::Counters,
    cpu::{CpuSplit, ForeignProcess, ForeignUse, KernelThreads, SystemCpu},
};

use super::server::{Processors, Server};
use crate::{
    engine::{ForeignSplit, Tally},
    sampling::sample::{Counted, KernelShares},
};

/// What is seen of a server.
pub(crate) struct Watch<'a> {
    sources: &'a Sources,
    pid: Option<u32>,
    processor: usize,
    looks: Vec<Look>,
    /// What the second pass sees.
    counting: Option<Counting>,
}

/// What a server and its processor have used.
struct Look {
    at: Instant,
    process: Option<ForeignProcess>,
    processor: Fact<SystemCpu>,
}

struct Counting {
    counters: Option<Counters>,
    /// When they began and stopped to count.
    times: Vec<Instant>,
    kernel: Vec<Fact<KernelThreads>>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(sources: &'a Sources, server: &Server, processors: Processors) -> Watch<'a> {
        let (pid, processor) = (server.pid, processors.server);
        Watch { sources, pid, processor, looks: Vec::with_capacity(2), counting: None }
    }

    /// One that counts, too.
    pub(crate) fn counting(self) -> Watch<'a> {
        let open = |pid| Counters::open_for(self.sources, pid, &Counted::EVENTS);
        let (times, kernel) = (Vec::with_capacity(2), Vec::with_capacity(2));
        Watch { counting: Some(Counting { counters: self.pid.map(open), times, kernel }), ..self }
    }

    /// Looks at an edge: the first time at the start, the second time at the end. Reading about the kernel's threads
    /// takes long, so it comes first at the start, and last at the end.
    pub(crate) fn look(&mut self) {
        let is_start = self.looks.is_empty();
        if let Some(Counting { counters, times, kernel }) = &mut self.counting {
            match is_start {
                true => kernel.push(KernelThreads::read(self.sources)),
                false => {
                    counters.iter_mut().for_each(Counters::stop);
                    times.push(Instant::now());
                }
            }
        }
        self.looks.push(Look {
            at: Instant::now(),
            process: self.pid.map(|pid| ForeignProcess::read(self.sources, pid)),
            processor: SystemCpu::read_processor(self.sources, self.processor),
        });
        if let Some(Counting { counters, times, kernel }) = &mut self.counting {
            match is_start {
                true => {
                    counters.iter_mut().for_each(Counters::start);
                    times.push(Instant::now());
                }
                false => kernel.push(KernelThreads::read(self.sources)),
            }
        }
    }

    /// A tally with the CPU time that the server used.
    pub(crate) fn charged(&self, tally: Tally) -> Tally {
        let used = self.used();
        let processor: Vec<_> = self.looks.iter().map(|look| look.processor.clone()).collect();
        charged(tally, &used, split(&used, &processor), self.looked_ns())
    }

    /// What was counted while the server did so many operations in so long a time.
    pub(crate) fn counted(self, operations: u64, elapsed_ns: u64) -> Counted {
        let (used, seen) = (self.used(), self.seen(operations, elapsed_ns));
        let (counters, kernel) =
            self.counting.map_or((None, Vec::new()), |own| (own.counters, own.kernel));
        Counted {
            shares: KernelShares::of_server(&used, &between(&kernel)),
            ..Counted::of(counters, seen, "the server's process is not known")
        }
    }

    /// How many of the operations were done while there was counting.
    fn seen(&self, operations: u64, elapsed_ns: u64) -> u64 {
        let times = self.counting.as_ref().map_or(&[][..], |own| &own.times);
        scaled(operations, lasted_ns(times), elapsed_ns)
    }

    fn used(&self) -> ForeignUse {
        match &self.looks[..] {
            [Look { process: Some(first), .. }, Look { process: Some(last), .. }] => {
                last.since(first)
            }
            _ => ForeignUse::unknown("its process is not known"),
        }
    }

    /// The time between the looks.
    fn looked_ns(&self) -> u64 {
        lasted_ns(&self.looks.iter().map(|look| look.at).collect::<Vec<_>>())
    }
}

/// The time between two edges.
fn lasted_ns(edges: &[Instant]) -> u64 {
    match edges {
        [first, last] => last.duration_since(*first).as_nanos() as u64,
        _ => 0,
    }
}

fn charged(tally: Tally, used: &ForeignUse, split: Option<ForeignSplit>, looked_ns: u64) -> Tally {
    let of_measured = |ns| scaled(ns, tally.elapsed_ns, looked_ns);
    Tally {
        foreign_cpu_ns: Some(used.cpu_ns.known().map_or(0, |&ns| of_measured(ns))),
        foreign_split: split.map(|split| ForeignSplit {
            process: CpuSplit {
                user_ns: of_measured(split.process.user_ns),
                system_ns: of_measured(split.process.system_ns),
            },
            interrupt_ns: of_measured(split.interrupt_ns),
        }),
        ..tally
    }
}

/// What a steady count of one time would be in another.
fn scaled(count: u64, time_ns: u64, of_ns: u64) -> u64 {
    (count as f64 * time_ns as f64 / of_ns.max(1) as f64).round() as u64
}

/// CPU time of a server told apart, with the interrupts of its processor between two edges.
pub(crate) fn split(used: &ForeignUse, edges: &[Fact<SystemCpu>]) -> Option<ForeignSplit> {
    let process = used.split.known().copied()?;
    let [before, after] = edges else { return None };
    let interrupts = after.zip(before).map(|(after, before)| after.since(before).interrupt_ns());
    Some(ForeignSplit { process, interrupt_ns: interrupts.known().copied().unwrap_or(0) })
}

/// What the kernel's own threads took between two looks at them.
pub(crate) fn between(looks: &[Fact<KernelThreads>]) -> Fact<u64> {
    match looks {
        [before, after] => after.zip(before).map(|(after, before)| after.since_ns(before)),
        _ => Fact::Unknown("the kernel's threads were not looked at".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_late_look_is_compared_with_its_own_time() {
        // Looked at for 300 of 400 ms.
        let (looked_ns, elapsed_ns) = (300_000_000, 400_000_000);
        let used = ForeignUse { cpu_ns: Fact::Known(60), ..ForeignUse::unknown("a test") };
        let process = CpuSplit { user_ns: 15, system_ns: 45 };
        let split = ForeignSplit { process, interrupt_ns: 3 };
        let tally = Tally { elapsed_ns, ..Tally::default() };
        let tally = charged(tally, &used, Some(split), looked_ns);
        let split = tally.foreign_split.unwrap();
        assert_eq!(tally.foreign_cpu_ns, Some(80));
        assert_eq!((split.process.user_ns, split.process.system_ns), (20, 60));
        assert_eq!(split.interrupt_ns, 4);
        assert_eq!(scaled(4000, looked_ns, elapsed_ns), 3000, "operations between the looks");
    }

    #[test]
    fn what_is_counted_is_compared_with_the_time_of_counting() {
        let (sources, begun) = (Sources::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let look =
            |ms| Look { at: at(ms), process: None, processor: Fact::Unknown("a test".to_owned()) };
        // Looked at for 390 of 400 ms, and counted for 300 of these.
        let counting =
            Counting { counters: None, times: vec![at(60), at(360)], kernel: Vec::new() };
        let watch = Watch {
            sources: &sources,
            pid: None,
            processor: 0,
            looks: vec![look(5), look(395)],
            counting: Some(counting),
        };
        assert_eq!((watch.seen(4000, 400_000_000), watch.looked_ns()), (3000, 390_000_000));
    }
}
