//! CPU time of the whole machine, from /proc/stat.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::fact::{Fact, Sources, understood};

/// CPU time of all processors together, in nanoseconds; proc_stat(5).
///
/// The kernel counts in ticks (10 ms), so the figure is useful for times of seconds. If the kernel does not account
/// interrupt time separately (CONFIG_IRQ_TIME_ACCOUNTING), that time counts for the interrupted task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SystemCpu {
    /// User mode (guests included).
    pub user_ns: u64,
    /// User mode at low priority.
    pub nice_ns: u64,
    /// Kernel mode.
    pub system_ns: u64,
    /// Hardware interrupts.
    pub irq_ns: u64,
    /// Soft interrupts.
    pub softirq_ns: u64,
    /// Time that the hypervisor gave to other guests.
    pub steal_ns: u64,
    /// Idle, including the time spent waiting for I/O.
    pub idle_ns: u64,
}

impl SystemCpu {
    /// Reads the totals since boot.
    pub fn read(sources: &Sources) -> Fact<SystemCpu> {
        SystemCpu::of_line(sources, "cpu ")
    }

    /// Reads the totals of one processor.
    pub fn read_processor(sources: &Sources, processor: usize) -> Fact<SystemCpu> {
        SystemCpu::of_line(sources, &format!("cpu{processor} "))
    }

    fn of_line(sources: &Sources, name: &str) -> Fact<SystemCpu> {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let text = sources.proc_text("stat");
        text.and_then(|text| understood(parse(&text, name, tick_ns), "/proc/stat", &text))
    }

    /// Returns the time consumed since `earlier`. The kernel's totals can step back a little; such a step counts as
    /// zero.
    pub fn since(&self, earlier: &SystemCpu) -> SystemCpu {
        SystemCpu {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            nice_ns: self.nice_ns.saturating_sub(earlier.nice_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            irq_ns: self.irq_ns.saturating_sub(earlier.irq_ns),
            softirq_ns: self.softirq_ns.saturating_sub(earlier.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
        }
    }

    /// Returns the time of hardware and soft interrupts.
    pub fn interrupt_ns(&self) -> u64 {
        self.irq_ns.saturating_add(self.softirq_ns)
    }

    /// Returns all time in which a processor worked: neither idle, nor waiting for I/O, nor stolen.
    pub fn busy_ns(&self) -> u64 {
        [self.user_ns, self.nice_ns, self.system_ns, self.irq_ns, self.softirq_ns]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

fn parse(text: &str, name: &str, tick_ns: u64) -> Option<SystemCpu> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // The fields are user nice system idle iowait irq softirq steal. Linux has steal since 2.6.11.
    let ns = |field: usize| ticks.get(field).copied().unwrap_or(0).saturating_mul(tick_ns);
    (ticks.len() >= 7).then(|| SystemCpu {
        user_ns: ns(0),
        nice_ns: ns(1),
        system_ns: ns(2),
        idle_ns: ns(3).saturating_add(ns(4)),
        irq_ns: ns(5),
        softirq_ns: ns(6),
        steal_ns: ns(7),
    })
}

/// How busy the machine is without the workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleBaseline {
    /// Busy nanoseconds of all processors per nanosecond of wall-clock time.
    pub busy_share: f64,
}

impl IdleBaseline {
    /// Sleeps for `duration` and measures how busy the machine is meanwhile. Below a second the ticks are too coarse.
    pub fn measure(sources: &Sources, duration: Duration) -> Fact<IdleBaseline> {
        let (before, start) = (SystemCpu::read(sources), Instant::now());
        thread::sleep(duration);
        let (after, elapsed) = (SystemCpu::read(sources), start.elapsed());
        after.zip(&before).map(|(after, before)| IdleBaseline {
            busy_share: after.since(before).busy_ns() as f64 / (elapsed.as_nanos() as f64).max(1.0),
        })
    }

    /// Returns the busy time of the machine above this baseline, in nanoseconds.
    pub fn above_ns(&self, used: &SystemCpu, elapsed_ns: u64) -> u64 {
        used.busy_ns().saturating_sub((self.busy_share * elapsed_ns as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_io_is_idle() {
        let total =
            parse("cpu  1 2 3 40 500 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1\n", "cpu ", 10).unwrap();
        assert_eq!(total.busy_ns(), (1 + 2 + 3 + 6 + 7) * 10);
        assert_eq!((total.idle_ns, total.steal_ns), (5400, 80));
        let first = parse("cpu  1 2 3 40 5 6 7 8\ncpu1 9 9 9 9 9 9 9\n", "cpu1 ", 10).unwrap();
        assert_eq!(first.busy_ns(), 5 * 9 * 10);
    }

    #[test]
    fn old_short_and_garbled_lines() {
        assert_eq!(parse("cpu  1 2 3 4 5 6 7\n", "cpu ", 1).unwrap().steal_ns, 0);
        assert_eq!(parse("cpu  1 2 3 4\n", "cpu ", 1), None);
        assert_eq!(parse("cpu  1 2 x 4 5 6 7\n", "cpu ", 1), None);
        assert_eq!(parse("intr 1\n", "cpu ", 1), None);
        let largest =
            parse(&format!("cpu {}", "18446744073709551615 ".repeat(8)), "cpu ", 10).unwrap();
        assert_eq!(largest.idle_ns, u64::MAX);
    }

    #[test]
    fn baseline_is_taken_off_and_never_below_nothing() {
        let baseline = IdleBaseline { busy_share: 0.1 };
        let used = SystemCpu { user_ns: 500, softirq_ns: 100, ..SystemCpu::default() };
        assert_eq!(baseline.above_ns(&used, 1000), 500);
        assert_eq!(baseline.above_ns(&used, 1_000_000), 0);
    }

    #[test]
    fn this_machine_answers() {
        let measured = IdleBaseline::measure(&Sources::default(), Duration::from_millis(50));
        assert!(measured.known().unwrap().busy_share >= 0.0);
    }
}
