//! What both sides used while a load was on: the generator, and the server where its process is
//! known. In words, and for JSON.

use ringwise_measure::{
    Fact, Sources,
    cpu::{ContextSwitches, ForeignUse, ThreadTime},
    quantity::{bytes_text, latency_text},
};
use serde::Serialize;

/// A thread that was busy for this share of the time or more is the limit: what is left it does not get
/// to use where it waits for the other side's next turn.
const BUSY_SHARE_MAX: f64 = 0.90;

/// A thread's own time over some time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnTime {
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    pub waited_ns: Option<u64>,
}

impl OwnTime {
    /// The shares of the time that a thread was on a processor and waited for one.
    fn shares(self) -> (f64, Option<f64>) {
        let share = |ns: u64| ns as f64 / self.elapsed_ns.max(1) as f64;
        (share(self.cpu_ns), self.waited_ns.map(share))
    }
}

/// What the generator itself used in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientUse {
    /// Between the two looks at the clock.
    pub elapsed_ns: u64,
    /// CPU time of the process, user and system.
    pub cpu_ns: u64,
    /// The share of the time that the busiest thread was on a processor.
    pub busy_share: f64,
    /// The share that the same thread waited for a processor.
    pub waiting_share: Option<f64>,
}

impl ClientUse {
    /// The shares of the thread that was idle for the least time.
    pub(crate) fn of(threads: impl Iterator<Item = OwnTime>) -> ClientUse {
        let taken = |shares: &(f64, Option<f64>)| shares.0 + shares.1.unwrap_or(0.0);
        let busiest = threads.map(OwnTime::shares).max_by(|a, b| taken(a).total_cmp(&taken(b)));
        let (busy_share, waiting_share) = busiest.unwrap_or_default();
        ClientUse { busy_share, waiting_share, ..ClientUse::default() }
    }

    /// Whether the generator was the limit: its busiest thread was idle for less than a tenth of the
    /// time, be it that it worked or that it had no processor to work on.
    pub fn is_bound(&self) -> bool {
        self.busy_share + self.waiting_share.unwrap_or(0.0) >= BUSY_SHARE_MAX
    }

    /// What it used, in words; `noun` is one operation, of which there were `operations`.
    pub(crate) fn text(&self, noun: &str, operations: u64) -> String {
        let waiting = self.waiting_share.map_or_else(String::new, |share| {
            format!(", waiting for a processor {:.0} %", share * 100.0)
        });
        format!(
            "{:<12} {}; busiest thread working {:.0} %{waiting}",
            "generator",
            cpu_text(self.cpu_ns, self.elapsed_ns, noun, operations),
            self.busy_share * 100.0
        )
    }

    /// What is to be said of the figures where it was the limit.
    pub(crate) fn bound_text(&self) -> Option<String> {
        let text = "client-bound: this generator was busy for 90 % of the time or more, so the figures are its own and not the \
             server's; try more --threads, or other processors for the two";
        self.is_bound().then(|| text.to_owned())
    }

    /// The same for JSON.
    pub(crate) fn facts(&self, operations: u64) -> ClientFacts {
        ClientFacts {
            cpu_ns_per_op: self.cpu_ns as f64 / operations.max(1) as f64,
            cores: self.cpu_ns as f64 / self.elapsed_ns.max(1) as f64,
            busy_share: self.busy_share,
            waiting_share: self.waiting_share,
        }
    }
}

/// CPU time for each operation, and in processors.
fn cpu_text(cpu_ns: u64, elapsed_ns: u64, noun: &str, operations: u64) -> String {
    let cores = cpu_ns as f64 / elapsed_ns.max(1) as f64;
    let each = latency_text(cpu_ns as f64 / operations.max(1) as f64);
    format!("{each} of CPU time per {noun}, {cores:.2} of a processor")
}

/// A moment of a thread's own time.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    at_ns: u64,
    time: ThreadTime,
}

impl Mark {
    /// Now, which is `at_ns`.
    pub(crate) fn set(at_ns: u64) -> Mark {
        Mark { at_ns, time: ThreadTime::read(&Sources::default()) }
    }

    /// What was used since `earlier`.
    pub(crate) fn since(&self, earlier: &Mark) -> OwnTime {
        let waited = self.time.waited_ns.zip(&earlier.time.waited_ns);
        OwnTime {
            elapsed_ns: self.at_ns.saturating_sub(earlier.at_ns),
            cpu_ns: self.time.cpu_ns.saturating_sub(earlier.time.cpu_ns),
            waited_ns: waited.known().map(|(later, earlier)| later.saturating_sub(**earlier)),
        }
    }
}

/// What the server's process used in the measured time.
#[derive(Clone, Debug)]
pub struct ServerUse {
    /// Between the two looks at it.
    pub elapsed_ns: u64,
    /// CPU time and context switches of all its threads.
    pub used: ForeignUse,
    /// Memory in RAM at the end.
    pub resident_bytes: Fact<u64>,
    /// What its memory grew by for each idle connection, where there were some.
    pub bytes_per_idle: Option<Fact<f64>>,
}

impl ServerUse {
    /// The same in words; `noun` is one operation, of which there were `operations`.
    pub(crate) fn lines(&self, noun: &str, operations: u64) -> Vec<String> {
        let used = match &self.used.cpu_ns {
            Fact::Known(cpu_ns) => cpu_text(*cpu_ns, self.elapsed_ns, noun, operations),
            Fact::Unknown(reason) => format!("CPU time unknown ({reason})"),
        };
        let each = operations.max(1) as f64;
        let switches = match &self.used.context_switches {
            Fact::Known(switches) => format!(
                "{:.2} per {noun}, and {:.2} that it did not ask for",
                switches.voluntary as f64 / each,
                switches.involuntary as f64 / each
            ),
            Fact::Unknown(reason) => format!("unknown ({reason})"),
        };
        let memory = self.resident_bytes.clone().map(bytes_text);
        let idle = match &self.bytes_per_idle {
            None => String::new(),
            Some(Fact::Known(bytes)) => format!(", {bytes:.0} B for each idle connection"),
            Some(Fact::Unknown(reason)) => format!(", for each idle connection unknown ({reason})"),
        };
        vec![
            format!("{:<12} {used}", "server"),
            format!("{:<12} {switches}", "switches"),
            format!("{:<12} {memory}{idle}", "memory"),
        ]
    }

    /// The same for JSON.
    pub(crate) fn facts(&self, pid: u32, operations: u64) -> ServerFacts<'_> {
        let operations = operations.max(1) as f64;
        let cpu_ns = &self.used.cpu_ns;
        ServerFacts {
            pid,
            cpu_ns_per_op: cpu_ns.clone().map(|ns| ns as f64 / operations),
            cores: cpu_ns.clone().map(|ns| ns as f64 / self.elapsed_ns.max(1) as f64),
            context_switches: &self.used.context_switches,
            resident_bytes: &self.resident_bytes,
            bytes_per_idle_connection: self.bytes_per_idle.as_ref(),
        }
    }
}

/// What the generator used, as JSON.
#[derive(Serialize)]
pub(crate) struct ClientFacts {
    cpu_ns_per_op: f64,
    cores: f64,
    busy_share: f64,
    waiting_share: Option<f64>,
}

/// What the server used, as JSON.
#[derive(Serialize)]
pub(crate) struct ServerFacts<'a> {
    pid: u32,
    cpu_ns_per_op: Fact<f64>,
    cores: Fact<f64>,
    context_switches: &'a Fact<ContextSwitches>,
    resident_bytes: &'a Fact<u64>,
    bytes_per_idle_connection: Option<&'a Fact<f64>>,
}
