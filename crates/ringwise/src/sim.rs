//! A simulated machine to test on: a disk, a network, a clock and faults, all from one seed.
//!
//! A loop built on a [`Simulation`] takes the same operations as any other and promises the same;
//! the library's own conformance suite runs on it. Its files lie in memory. What a real machine
//! does rarely, this one does as often as it is asked to: completions in another order, short
//! reads and writes, errors, a loss of power that keeps just what a disk could have kept. The same
//! program with the same seed does the same again.
//!
//! ```
//! use ringwise::{
//!     Local, OpenOptions, Operation,
//!     sim::{Fault, Simulation, When},
//! };
//!
//! let simulation = Simulation::builder(7).fault(Fault::ShortWrite, When::nth(1)).build();
//! let mut local = Local::builder().simulation(&simulation).build()?;
//!
//! let options = OpenOptions::new().write(true).create(true);
//! let file = local.run(Operation::open("/log", options))?.into_descriptor()?;
//! let written = local.run(Operation::write_at(&file, b"hello".to_vec(), 0))?.result()?;
//! assert!(written < 5, "a program that takes this for the whole write is wrong");
//! local.run(Operation::sync_all(&file))?.result()?;
//!
//! // The file was synced, and the directory that names it was not: the file may be gone.
//! simulation.crash();
//! println!("{}, after:\n{}", simulation.exists("/log"), simulation.trace());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The disk
//!
//! Paths start at the simulation's own root, which is empty at first and is the current directory
//! too. It answers as Linux does on a local file system, to a user who may do everything:
//! permissions are kept and not checked. Direct I/O wants multiples of 512 bytes. Space is endless.
//!
//! # What a crash keeps
//!
//! [`Simulation::crash`] leaves what a disk with a volatile cache could have kept:
//!
//! - Bytes that a sync made durable are there, if the sync's completion was a success.
//! - Of other writes each 512 byte sector is kept or lost by itself, in any of the versions that it
//!   had since; a write can be torn between sectors, not within one.
//! - Lengths, cuts and holes are kept in order, up to some point.
//! - A name that was made, moved or removed is so after a crash if the directory was synced, and
//!   may be otherwise if not. Syncing the file is not enough. A rename happened or did not; what
//!   was only renamed is never lost.
//! - What was in flight may have happened, or not.
//! - A file whose sync failed has lost what that sync was to make durable, though it still reads as
//!   written: no later sync brings it back.
//!
//! # The network
//!
//! [`Simulation::listen_tcp`] and its kin make sockets on a network of the simulation's own, as a
//! [`Ring`](crate::Ring) on it does by itself; [`Simulation::connect`] and its kin are the other
//! ends, outside. What is sent lies with the receiver at once, as far as there is room. A crash ends
//! all connections.
//!
//! # Time
//!
//! Timeouts and deadlines go by the simulation's clock. A loop that waits moves it to the next
//! event, so no test sleeps; see [`SimulationBuilder::manual_clock`] for a clock that only
//! [`Simulation::advance`] moves.
//!
//! # What it does not do
//!
//! - Calls on files that it did not open (a pipe, a socket or a file of [`std`]) are made for real,
//!   by classic calls: a program may mix both, and is deterministic as far as it does not.
//! - A [`Descriptor`](crate::Descriptor) of a simulated file is of use to loops of its simulation
//!   only: to everybody else it is a socket without a peer.
//! - A [`Ring`](crate::Ring) on a simulation has a thread that listens to a real descriptor, so there
//!   the clock goes on with real time, and the order of submissions is the scheduler's.
//! - Loops on several threads may share a simulation; the order of their submissions is then the
//!   scheduler's, and so is the outcome.
//! - It says nothing of speed.

mod action;
mod address;
mod disk;
pub(crate) mod driver;
mod endpoint;
mod fault;
mod files;
mod inspect;
mod network;
mod outside;
mod perform;
mod random;
pub(crate) mod socket;
mod trace;
mod traffic;
mod world;

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

pub use fault::{Fault, When};
pub use outside::{Outside, OutsideDatagrams, OutsideListener};
use world::World;

use crate::sync::lock;

/// A simulated machine, shared by the loops that run on it. Cloning gives another handle.
#[derive(Clone)]
pub struct Simulation(Arc<Shared>);

struct Shared {
    seed: u64,
    /// What a reading of 0 on the simulation's clock is for a deadline.
    start: Instant,
    world: Mutex<World>,
    /// Something on the network may have changed.
    stirred: Arc<Condvar>,
}

impl Simulation {
    /// A machine without faults, with an empty disk.
    pub fn new(seed: u64) -> Simulation {
        Simulation::builder(seed).build()
    }

    /// Settings for a machine.
    pub fn builder(seed: u64) -> SimulationBuilder {
        SimulationBuilder { seed, world: World::new(seed) }
    }

    /// The seed that it was made with.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Asks for a fault from here on.
    pub fn inject(&self, fault: Fault, when: When) {
        self.lock().inject(fault, when);
    }

    /// Asks for no more faults. What has gone wrong stays so.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Cuts the power, if [`Fault::PowerLoss`] has not done so, and starts the machine again with
    /// what the disk kept; see [the module](self#what-a-crash-keeps).
    ///
    /// Descriptors from before lead nowhere any more (`EIO`), and what was in flight completes with
    /// `EIO`; timeouts go on. A loop can be used further.
    pub fn crash(&self) {
        let mut world = self.lock();
        world.lose_power();
        world.restore_power();
        world.wake_all();
    }

    /// Whether the machine runs; false after a [`Fault::PowerLoss`] until the next
    /// [`crash`](Self::crash).
    pub fn has_power(&self) -> bool {
        self.lock().powered
    }

    /// What the clock shows: the time since the simulation was made.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.lock().clock_ns)
    }

    /// Moves the clock, and does on the way what falls due. Loops see it with their next submit, or
    /// at once if they wait.
    pub fn advance(&self, time: Duration) {
        let mut world = self.lock();
        let by = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let to = world.clock_ns.saturating_add(by);
        world.advance_to(to);
        world.wake_all();
    }

    /// What happened so far, a line for each event: the clock in nanoseconds, the loop, the
    /// operation's number, what it was, what became of it. For people to read and for comparing two
    /// runs; its form may change. Only the last 65,536 lines are kept.
    pub fn trace(&self) -> String {
        self.lock().trace.to_string()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        lock(&self.0.world)
    }

    /// A reading of the clock as a point in time, for deadlines.
    pub(crate) fn instant(&self, clock_ns: u64) -> Instant {
        let start = self.0.start;
        start.checked_add(Duration::from_nanos(clock_ns)).unwrap_or(start)
    }

    /// What the clock shows at a point in time.
    pub(crate) fn clock_of(&self, instant: Instant) -> u64 {
        let passed = instant.saturating_duration_since(self.0.start).as_nanos();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("seed", &self.seed()).finish_non_exhaustive()
    }
}

/// How a [`Simulation`] is to be. Made by [`Simulation::builder`].
#[derive(Debug)]
#[must_use = "a simulation is made by `build`"]
pub struct SimulationBuilder {
    seed: u64,
    world: World,
}

impl SimulationBuilder {
    /// Asks for a fault.
    pub fn fault(mut self, fault: Fault, when: When) -> Self {
        self.world.inject(fault, when);
        self
    }

    /// The most that [`Fault::Delay`] delays an operation by; a millisecond unless set.
    pub fn latency(mut self, most: Duration) -> Self {
        self.world.latency_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// The clock stands still but for [`Simulation::advance`].
    ///
    /// Delayed operations are then done in their order as soon as a loop waits for them, as if they
    /// took no time. A loop that waits for a timeout or a deadline sleeps until another thread moves
    /// the clock.
    pub fn manual_clock(mut self) -> Self {
        self.world.manual = true;
        self
    }

    /// Makes the machine.
    pub fn build(self) -> Simulation {
        Simulation(Arc::new(Shared {
            seed: self.seed,
            start: Instant::now(),
            stirred: Arc::clone(&self.world.stirred),
            world: Mutex::new(self.world),
        }))
    }
}
