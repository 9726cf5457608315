//! A simulated machine to test on: a disk, a network, a clock and faults, all from one seed.
//!
//! A loop built on a [`Simulation`] takes the same operations as any other loop and keeps the same
//! promises: the library's conformance suite also runs on it. Its files are in memory. The
//! simulation makes rare events as frequent as you ask: reordered completions, short reads and
//! writes, errors, and power losses that leave only what a real disk could have kept. The same
//! program with the same seed gives the same run.
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
//! // The file was synced, but its directory was not: the file may be gone.
//! simulation.crash();
//! println!("{}, after:\n{}", simulation.exists("/log"), simulation.trace());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The disk
//!
//! Paths start at the simulation's own root, which is also the current directory and is empty at
//! first. The disk answers as a local file system on Linux answers root: it stores permissions but
//! does not check them. Direct I/O needs multiples of 512 bytes. The disk has no limit of space.
//!
//! # What a crash keeps
//!
//! After [`Simulation::crash`] the disk holds what a disk with a volatile cache could have kept:
//!
//! - Bytes that a successful sync covered are kept.
//! - Each 512-byte sector of an unsynced write is kept or lost independently, in any version that
//!   the sector had since the last sync. A write can be torn between sectors, but not within one.
//! - Changes of a file's length and holes are kept in order, up to some point.
//! - The creation, move or removal of a name is kept if the directory was synced. Otherwise it may
//!   be lost, and syncing the file is not enough. A rename is kept or lost as a whole, and a file
//!   that was only renamed is never lost.
//! - An operation in flight may have taken effect or not.
//! - If a sync fails, the bytes that it should have made durable are lost, unless the disk happened
//!   to write them before. The file still reads as written, but no later sync brings these bytes
//!   back.
//!
//! # The network
//!
//! [`Simulation::listen_tcp`] and similar methods make sockets on the simulation's own network. A
//! [`Ring`](crate::Ring) on the simulation makes its sockets there by itself.
//! [`Simulation::connect`] and similar methods make the other ends, outside the program. Sent bytes
//! reach the receiver at once, as far as there is room. A crash ends all connections.
//!
//! # Time
//!
//! Timeouts and deadlines follow the simulation's clock. A loop that waits moves the clock to the
//! next event, so no test sleeps. With [`SimulationBuilder::manual_clock`] only
//! [`Simulation::advance`] moves the clock.
//!
//! # What it does not do
//!
//! - Operations on files that the simulation did not open (a pipe, a socket or a file of [`std`])
//!   are real: they use classic syscalls. A program may mix both, but only its simulated part is
//!   deterministic.
//! - Only loops of the same simulation can use the [`Descriptor`] of a simulated
//!   file. To everything else it is a socket without a peer.
//! - A [`Ring`](crate::Ring) on a simulation has a thread that waits for a real descriptor. There
//!   the clock runs with real time, and the scheduler decides the order of submissions.
//! - Loops on several threads may share a simulation. Then the scheduler decides the order of their
//!   submissions, and with it the outcome.
//! - It says nothing about speed.

mod action;
mod disk;
pub(crate) mod driver;
mod fault;
mod files;
mod network;
mod perform;
mod random;
pub(crate) mod socket;
mod trace;
mod world;

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use action::FileId;
pub use fault::{Fault, When};
use files::Files;
pub use network::outside::{Outside, OutsideDatagrams, OutsideListener};
use world::World;

use crate::{descriptor::Descriptor, sync::lock};

/// A simulated machine, shared by the loops that run on it. Cloning gives another handle.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, OpenOptions, Operation, sim::Simulation};
///
/// let simulation = Simulation::new(7);
/// simulation.write("/settings", "text")?;
/// let mut local = Local::builder().simulation(&simulation).build()?;
/// let open = Operation::open("/settings", OpenOptions::new().read(true));
/// let file = local.run(open)?.into_descriptor()?;
/// assert_eq!(local.run(Operation::read_at(&file, vec![0; 64], 0))?.result()?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Simulation(Arc<Shared>);

struct Shared {
    seed: u64,
    /// The instant at which the simulation's clock reads 0.
    start: Instant,
    world: Mutex<World>,
    /// Notified when something on the network may have changed.
    stirred: Arc<Condvar>,
}

impl Simulation {
    /// Makes a machine without faults and with an empty disk.
    pub fn new(seed: u64) -> Simulation {
        Simulation::builder(seed).build()
    }

    /// Returns a builder for a machine.
    pub fn builder(seed: u64) -> SimulationBuilder {
        SimulationBuilder { seed, world: World::new(seed) }
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Adds a fault, from now on.
    pub fn inject(&self, fault: Fault, when: When) {
        self.lock().inject(fault, when);
    }

    /// Removes all faults. Damage that they have done stays.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Cuts the power, unless [`Fault::PowerLoss`] already did, and restarts the machine with what
    /// the disk kept; see [the module](self#what-a-crash-keeps).
    ///
    /// Descriptors from before the crash fail with `EIO`, and operations in flight complete with
    /// `EIO`. Timeouts go on, and loops can still be used.
    pub fn crash(&self) {
        let mut world = self.lock();
        world.lose_power();
        world.restore_power();
        world.wake_all();
    }

    /// Returns whether the machine has power: false from a [`Fault::PowerLoss`] until the next
    /// [`crash`](Self::crash).
    pub fn has_power(&self) -> bool {
        self.lock().powered
    }

    /// Returns the time on the clock, which starts when the simulation is made.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.lock().clock_ns)
    }

    /// Moves the clock forward and runs everything that falls due on the way. A loop that waits
    /// sees the results at once, any other loop with its next submit.
    pub fn advance(&self, time: Duration) {
        let mut world = self.lock();
        let by = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let to = world.clock_ns.saturating_add(by);
        world.advance_to(to);
        world.wake_all();
    }

    /// Returns the events so far, one a line: the clock in nanoseconds, the loop, the operation's
    /// number, the operation and its result. The text is for people to read and for comparing two
    /// runs; its format may change. Only the last 65,536 lines are kept.
    pub fn trace(&self) -> String {
        self.lock().trace.to_string()
    }

    /// Returns whether a descriptor stands for a file of the simulated disk.
    pub(crate) fn has_file(&self, descriptor: &Descriptor) -> bool {
        self.on_file(descriptor, |_, _| Ok(())).is_ok()
    }

    /// Locks what a file has open, as flock(2) does without waiting.
    pub(crate) fn lock_file(&self, file: &Descriptor) -> Result<(), i32> {
        self.on_file(file, Files::lock)
    }

    pub(crate) fn unlock_file(&self, file: &Descriptor) -> Result<(), i32> {
        self.on_file(file, |files, id| {
            files.unlock(id);
            Ok(())
        })
    }

    fn on_file(
        &self,
        descriptor: &Descriptor,
        act: impl FnOnce(&mut Files, FileId) -> Result<(), i32>,
    ) -> Result<(), i32> {
        let identity = files::identity(descriptor).ok_or(libc::EBADF)?;
        let files = &mut self.lock().files;
        let id = files.find(identity).filter(|id| files.endpoint(*id).is_none());
        act(files, id.ok_or(libc::EBADF)?)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        lock(&self.0.world)
    }

    /// Converts a reading of the clock to an instant, for deadlines.
    pub(crate) fn instant(&self, clock_ns: u64) -> Instant {
        let start = self.0.start;
        start.checked_add(Duration::from_nanos(clock_ns)).unwrap_or(start)
    }

    /// Converts an instant to a reading of the clock.
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

/// The settings of a [`Simulation`]. Made by [`Simulation::builder`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise::sim::{Fault, Simulation, When};
///
/// let simulation = Simulation::builder(7)
///     .fault(Fault::Delay, When::rate(0.1))
///     .latency(Duration::from_millis(5))
///     .build();
/// assert_eq!(simulation.seed(), 7);
/// ```
#[derive(Debug)]
#[must_use = "a simulation is made by `build`"]
pub struct SimulationBuilder {
    seed: u64,
    world: World,
}

impl SimulationBuilder {
    /// Adds a fault.
    pub fn fault(mut self, fault: Fault, when: When) -> Self {
        self.world.inject(fault, when);
        self
    }

    /// Sets the longest delay by [`Fault::Delay`]. The default is one millisecond.
    pub fn latency(mut self, most: Duration) -> Self {
        self.world.latency_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Makes a clock that only [`Simulation::advance`] moves.
    ///
    /// Delayed operations then finish in order as soon as a loop waits for them, as if they took no
    /// time. A loop that waits for a timeout or a deadline sleeps until another thread moves the
    /// clock.
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
