//! The ways to run a loop, and what the tests need around one.

use std::time::{Duration, Instant};

use ringwise::{
    Backend, BackendChoice, Builder, Completion, Local, Opcode, Operation,
    sim::{Fault, Simulation, When},
};

use crate::disk::Disk;

/// A way to run a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// A ring with the default settings.
    Uring,
    /// A ring without any setup flag.
    UringPlain,
    /// A ring that makes no call itself: its threads do, and wake it.
    UringByThreads,
    /// A ring with a submission thread.
    UringSqpoll,
    /// Classic calls.
    Classic,
    /// A simulated machine without faults.
    Simulated,
    /// A simulated machine whose operations take time, so that they complete in any order.
    SimulatedReordered,
}

thread_local! {
    /// The machine of this test, which all of its loops share.
    static SIMULATION: Simulation = Simulation::new(0);
}

impl Loop {
    pub fn builder(self) -> Builder {
        let builder = Local::builder().entries(16);
        let uring = builder.clone().backend(BackendChoice::Uring);
        match self {
            Loop::Uring => uring,
            Loop::UringPlain => {
                uring.defer_taskrun(false).single_issuer(false).registered_ring(false)
            }
            Loop::UringByThreads => uring.avoid(&Opcode::ALL),
            Loop::UringSqpoll => uring.sqpoll(Some(Duration::from_millis(2))),
            Loop::Classic => builder.backend(BackendChoice::Classic),
            Loop::Simulated => builder.simulation(&simulation()),
            Loop::SimulatedReordered => {
                simulation().heal();
                simulation().inject(Fault::Delay, When::rate(0.7));
                builder.simulation(&simulation())
            }
        }
    }

    /// The way's own disk: a real directory, or the simulation's.
    pub fn disk(self) -> Disk {
        if self.is_simulated() { Disk::simulated(simulation()) } else { Disk::real() }
    }

    pub fn is_simulated(self) -> bool {
        matches!(self, Loop::Simulated | Loop::SimulatedReordered)
    }

    /// Whether a look, without an enter, shows what is there. Without deferred work the kernel does it
    /// in whatever call comes next, and a simulation's time stands still meanwhile.
    pub fn shows_work(self) -> bool {
        !matches!(self, Loop::UringPlain | Loop::SimulatedReordered)
    }

    /// A point in time of the clock that the loop's timeouts go by.
    pub fn now(self) -> Time {
        if self.is_simulated() {
            Time::Simulated(simulation(), simulation().elapsed())
        } else {
            Time::Real(Instant::now())
        }
    }

    pub fn build(self) -> Local {
        self.builder().build().expect("seen to work by is_to_be_had")
    }

    /// Whether this way can be gone here; a skip is told, and an error in CI.
    pub fn is_to_be_had(self) -> bool {
        match self.builder().build() {
            Ok(local) => {
                let expected = match self {
                    Loop::Classic => Backend::Classic,
                    Loop::Simulated | Loop::SimulatedReordered => Backend::Simulated,
                    _ => Backend::Uring,
                };
                assert_eq!(local.setup().backend(), expected);
                true
            }
            Err(error) => {
                skip(&format!("{self:?}: {error}"));
                false
            }
        }
    }
}

/// A point in time.
pub enum Time {
    Real(Instant),
    Simulated(Simulation, Duration),
}

impl Time {
    pub fn elapsed(&self) -> Duration {
        match self {
            Time::Real(start) => start.elapsed(),
            Time::Simulated(simulation, start) => simulation.elapsed() - *start,
        }
    }
}

pub fn simulation() -> Simulation {
    SIMULATION.with(Simulation::clone)
}

/// Tells that a test cannot run here, which in CI it has to.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

pub fn counted(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Pushes one operation and takes its completion.
pub fn run(local: &mut Local, operation: Operation) -> Completion {
    local.run(operation).unwrap()
}

/// The next completion, waited for.
pub fn next(local: &mut Local) -> Completion {
    local.submit_and_wait(1).unwrap();
    local.next_completion().expect("one was waited for")
}
