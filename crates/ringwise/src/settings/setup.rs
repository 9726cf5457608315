//! What a loop was asked to be, and what the kernel granted.
//!
//! Nothing is silently dropped: a flag that the kernel refused is missing from
//! [`Setup::granted`], a polling mode that does not poll says so, and a fallback keeps its reason.

use std::{fmt, time::Duration};

use crate::{
    descriptor::{Descriptor, RegisteredFile},
    op::Opcode,
    settings::{
        failure::FallbackReason,
        restriction::{Guard, Restriction},
    },
    sim::Simulation,
};

/// Which backend a loop is to run on.
///
/// # Examples
///
/// ```
/// use ringwise::{Backend, BackendChoice, Local, SetupError};
///
/// match Local::builder().backend(BackendChoice::Uring).build() {
///     Ok(local) => assert_eq!(local.setup().backend(), Backend::Uring),
///     Err(SetupError::NoRing(reason)) => println!("this machine has no ring: {reason}"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BackendChoice {
    /// The ring if the kernel gives one that works, otherwise classic syscalls. [`Setup::fallback`] tells
    /// the reason.
    #[default]
    Auto,
    /// The ring or an error.
    Uring,
    /// Classic calls: a bounded pool of threads.
    Classic,
}

/// The backend that a loop runs on.
///
/// # Examples
///
/// ```
/// use ringwise::{Backend, BackendChoice, Local};
///
/// let local = Local::builder().backend(BackendChoice::Classic).build()?;
/// assert_eq!(local.setup().backend(), Backend::Classic);
/// assert_eq!(local.setup().backend().to_string(), "classic");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// io_uring.
    Uring,
    /// Classic system calls, made by the loop's thread and a bounded pool.
    Classic,
    /// A machine in memory, of the module `sim` (feature `sim`).
    Simulated,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Uring => "io_uring",
            Backend::Classic => "classic",
            Backend::Simulated => "simulated",
        })
    }
}

/// Whether something that was asked for has its effect.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise::{Effect, Local};
///
/// let local = Local::builder().sqpoll(Some(Duration::from_millis(50))).build()?;
/// if let Effect::Ineffective(reason) = local.setup().sqpoll() {
///     println!("no thread polls for submissions: {reason}");
/// }
/// assert_eq!(local.setup().iopoll(), &Effect::NotAsked);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nobody asked for it.
    NotAsked,
    /// It works, as far as was tried.
    Effective,
    /// It does not. The reason says what the library tried and what the kernel answered.
    Ineffective(String),
    /// Not known until a file is tried: see
    /// [`Local::probe_iopoll`](crate::Local::probe_iopoll).
    Unknown,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::NotAsked => f.write_str("not asked for"),
            Effect::Effective => f.write_str("effective"),
            Effect::Ineffective(reason) => write!(f, "not effective: {reason}"),
            Effect::Unknown => f.write_str("not known until a file is tried"),
        }
    }
}

/// A set of ring setup flags (`IORING_SETUP_*`).
///
/// # Examples
///
/// ```
/// use ringwise::Local;
///
/// let local = Local::new()?;
/// let (asked, granted) = (local.setup().asked(), local.setup().granted());
/// for flag in asked.iter().filter(|flag| !granted.has(flag)) {
///     println!("the kernel refused {flag}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetupFlags(pub(crate) u32);

impl SetupFlags {
    pub(crate) const IOPOLL: SetupFlags = SetupFlags(1 << 0);
    pub(crate) const SQPOLL: SetupFlags = SetupFlags(1 << 1);
    pub(crate) const CLAMP: SetupFlags = SetupFlags(1 << 4);
    pub(crate) const SUBMIT_ALL: SetupFlags = SetupFlags(1 << 7);
    pub(crate) const COOP_TASKRUN: SetupFlags = SetupFlags(1 << 8);
    pub(crate) const TASKRUN_FLAG: SetupFlags = SetupFlags(1 << 9);
    pub(crate) const SINGLE_ISSUER: SetupFlags = SetupFlags(1 << 12);
    pub(crate) const DEFER_TASKRUN: SetupFlags = SetupFlags(1 << 13);
    pub(crate) const NO_SQARRAY: SetupFlags = SetupFlags(1 << 16);

    const NAMES: [(SetupFlags, &'static str); 9] = [
        (SetupFlags::IOPOLL, "IOPOLL"),
        (SetupFlags::SQPOLL, "SQPOLL"),
        (SetupFlags::CLAMP, "CLAMP"),
        (SetupFlags::SUBMIT_ALL, "SUBMIT_ALL"),
        (SetupFlags::COOP_TASKRUN, "COOP_TASKRUN"),
        (SetupFlags::TASKRUN_FLAG, "TASKRUN_FLAG"),
        (SetupFlags::SINGLE_ISSUER, "SINGLE_ISSUER"),
        (SetupFlags::DEFER_TASKRUN, "DEFER_TASKRUN"),
        (SetupFlags::NO_SQARRAY, "NO_SQARRAY"),
    ];

    pub(crate) fn contains(self, other: SetupFlags) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn with(self, other: SetupFlags, wanted: bool) -> SetupFlags {
        SetupFlags(if wanted { self.0 | other.0 } else { self.0 & !other.0 })
    }

    pub(crate) fn without(self, other: SetupFlags) -> SetupFlags {
        self.with(other, false)
    }

    /// The names of the flags in the set, as in `IORING_SETUP_` and the name.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.contains(*flag)).map(|&(_, name)| name)
    }

    /// Whether the flag of this name is in the set.
    pub fn has(self, name: &str) -> bool {
        self.iter().any(|flag| flag == name)
    }
}

impl fmt::Display for SetupFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(" "))
    }
}

/// What the builder of a loop asked for, and what the kernel granted.
///
/// # Examples
///
/// ```
/// use ringwise::{Backend, Local};
///
/// let local = Local::new()?;
/// match local.setup().fallback() {
///     Some(reason) => println!("on classic syscalls: {reason}"),
///     None => println!("on {} with {}", local.setup().backend(), local.setup().granted()),
/// }
/// # Ok::<(), ringwise::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) backend: Backend,
    pub(crate) fallback: Option<FallbackReason>,
    pub(crate) asked: SetupFlags,
    pub(crate) granted: SetupFlags,
    pub(crate) submission_entries: u32,
    pub(crate) completion_entries: u32,
    pub(crate) ring_registered: bool,
    pub(crate) waits_are_idle: bool,
    pub(crate) sqpoll: Effect,
    pub(crate) iopoll: Effect,
    pub(crate) restriction: Restriction,
    pub(crate) guard: Guard,
    pub(crate) files: Vec<RegisteredFile>,
}

impl Setup {
    /// The backend it runs on.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Why it does not run on a ring; nothing where it does, or where it is simulated.
    pub fn fallback(&self) -> Option<&FallbackReason> {
        self.fallback.as_ref()
    }

    /// The setup flags that were asked for.
    pub fn asked(&self) -> SetupFlags {
        self.asked
    }

    /// The setup flags that the kernel took.
    pub fn granted(&self) -> SetupFlags {
        self.granted
    }

    /// Entries of the submission queue.
    pub fn submission_entries(&self) -> u32 {
        self.submission_entries
    }

    /// Entries of the completion queue: the most that can be in flight, less those the loop keeps
    /// for itself.
    pub fn completion_entries(&self) -> u32 {
        self.completion_entries
    }

    /// Whether the ring's descriptor is registered with the thread (Linux 5.18), which saves a
    /// look-up in each enter.
    pub fn is_ring_registered(&self) -> bool {
        self.ring_registered
    }

    /// Whether a processor counts as idle while its only thread waits for this loop. On a ring that
    /// needs Linux 6.15 (`IORING_ENTER_NO_IOWAIT`); before, tools show that time as iowait. On classic
    /// calls it is always so.
    pub fn waits_are_idle(&self) -> bool {
        self.waits_are_idle
    }

    /// Whether a kernel thread takes submissions, where that was asked for.
    pub fn sqpoll(&self) -> &Effect {
        &self.sqpoll
    }

    /// Whether completions are polled for, where that was asked for. Calls that such a ring does
    /// not take, all but reads, writes and no-ops, are made beside it.
    pub fn iopoll(&self) -> &Effect {
        &self.iopoll
    }

    /// Who refuses operations that [`Builder::restrict`] and [`Builder::data_only`] leave out.
    pub fn guard(&self) -> Guard {
        self.guard
    }

    /// Whether the loop may make this operation. [`Local::supports`](crate::Local::supports) tells whether
    /// the ring itself makes it.
    pub fn allows(&self, opcode: Opcode) -> bool {
        self.restriction.allows(opcode)
    }

    /// Whether operations work only on registered files ([`Builder::data_only`]).
    pub fn is_data_only(&self) -> bool {
        self.restriction.data_only
    }

    /// Whether nothing can be registered any more ([`Builder::seal`]).
    pub fn is_sealed(&self) -> bool {
        self.restriction.sealed
    }

    /// The files that were given to [`Builder::files`], in their order.
    pub fn files(&self) -> &[RegisteredFile] {
        &self.files
    }
}

/// The entries of the submission queue where nobody asks for others.
const ENTRIES: u32 = 128;
/// Those of the completion queue, if nobody asks for others of either queue.
const COMPLETION_ENTRIES: u32 = 4096;

/// The settings of a [`Local`](crate::Local) or a [`Ring`](crate::Ring).
/// [`Local::builder`](crate::Local::builder) makes them; [`build`](Self::build) makes a `Local`, and
/// [`build_ring`](Self::build_ring) a `Ring`.
///
/// # Examples
///
/// ```
/// use ringwise::{BackendChoice, Local};
///
/// let local = Local::builder().entries(64).backend(BackendChoice::Classic).build()?;
/// assert!(local.setup().fallback().is_some());
/// let ring = Local::builder().completion_entries(8192).build_ring()?;
/// assert_eq!(ring.stats().waiting_for_room, 0);
/// # Ok::<(), ringwise::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    /// What was asked for; [`ENTRIES`] if nothing was.
    pub(crate) entries: Option<u32>,
    pub(crate) completion_entries: Option<u32>,
    pub(crate) backend: BackendChoice,
    pub(crate) flags: SetupFlags,
    pub(crate) sqpoll_idle: Option<Duration>,
    pub(crate) register_ring: bool,
    pub(crate) registered_files: u32,
    pub(crate) worker_threads: usize,
    pub(crate) classic_threads: usize,
    pub(crate) avoided: Vec<Opcode>,
    pub(crate) restriction: Restriction,
    pub(crate) files: Vec<Descriptor>,
    pub(crate) simulation: Option<Simulation>,
    /// Where nobody said, the runtime decides (`ring/driver/task.rs`).
    pub(crate) driver_thread: Option<bool>,
    /// A runtime drives it, whose threads sleep on its descriptor.
    pub(crate) is_portable: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        let flags = [
            SetupFlags::SINGLE_ISSUER,
            SetupFlags::DEFER_TASKRUN,
            SetupFlags::TASKRUN_FLAG,
            SetupFlags::SUBMIT_ALL,
            SetupFlags::CLAMP,
            SetupFlags::NO_SQARRAY,
        ];
        let flags = flags.into_iter().fold(SetupFlags(0), |all, flag| all.with(flag, true));
        Builder {
            entries: None,
            completion_entries: None,
            backend: BackendChoice::Auto,
            flags,
            sqpoll_idle: None,
            register_ring: true,
            registered_files: 16,
            worker_threads: 8,
            classic_threads: 64,
            avoided: Vec::new(),
            restriction: Restriction::default(),
            files: Vec::new(),
            simulation: None,
            driver_thread: None,
            is_portable: false,
        }
    }
}

impl Builder {
    /// Sets the entries of the submission queue: 1 to 32768, rounded up to a power of two; 128 unless set. If
    /// this is set and [`completion_entries`](Self::completion_entries) is not, the completion queue has
    /// twice as many entries instead of 4096.
    #[must_use]
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = Some(entries);
        self
    }

    /// What the submission queue is asked to have.
    pub(crate) fn submissions(&self) -> u32 {
        self.entries.unwrap_or(ENTRIES)
    }

    /// Sets the entries of the completion queue, of 16 bytes each: no fewer than the submission queue
    /// has, at most 65536, rounded up to a power of two. 4096 where neither number is set.
    ///
    /// As many operations can be in flight, less two for a `Local` and less four for a `Ring`. Those that
    /// wait for a socket, a pipe or a timer take at most half of that room. Beyond that they wait in an epoll
    /// set and do not count.
    #[must_use]
    pub fn completion_entries(mut self, entries: u32) -> Self {
        self.completion_entries = Some(entries);
        self
    }

    /// What the completion queue is asked to have.
    pub(crate) fn completions(&self) -> u32 {
        let submissions = self.submissions().next_power_of_two();
        let otherwise = if self.entries.is_some() { submissions * 2 } else { COMPLETION_ENTRIES };
        let asked = self.completion_entries.unwrap_or(otherwise);
        asked.clamp(submissions, 1 << 16).next_power_of_two()
    }

    /// The backend; [`BackendChoice::Auto`] unless set.
    #[must_use]
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.backend = backend;
        self
    }

    /// Runs completion work only when the loop asks (`DEFER_TASKRUN`, Linux 6.1); on unless
    /// turned off. The kernel wants [`single_issuer`](Self::single_issuer) with it.
    #[must_use]
    pub fn defer_taskrun(mut self, on: bool) -> Self {
        self.flags = self.flags.with(SetupFlags::DEFER_TASKRUN, on);
        self
    }

    /// Runs completion work at the next system call instead of interrupting (`COOP_TASKRUN`,
    /// Linux 5.19); off unless turned on, since deferring does more.
    #[must_use]
    pub fn coop_taskrun(mut self, on: bool) -> Self {
        self.flags = self.flags.with(SetupFlags::COOP_TASKRUN, on);
        self
    }

    /// Promises the kernel that one thread submits (`SINGLE_ISSUER`, Linux 6.0); on unless turned
    /// off.
    #[must_use]
    pub fn single_issuer(mut self, on: bool) -> Self {
        self.flags = self.flags.with(SetupFlags::SINGLE_ISSUER, on);
        self
    }

    /// A kernel thread takes submissions and sleeps when it was idle for the time given
    /// (`SQPOLL`); off unless set. It burns up to a core, and excludes deferred completion work.
    #[must_use]
    pub fn sqpoll(mut self, idle: Option<Duration>) -> Self {
        self.sqpoll_idle = idle;
        self.flags = self.flags.with(SetupFlags::SQPOLL, idle.is_some());
        self
    }

    /// Polls the device for completions (`IOPOLL`); off unless turned on. Such a ring makes direct
    /// reads and writes, and all else is made beside it; it needs a device with polling queues: see
    /// [`Local::probe_iopoll`](crate::Local::probe_iopoll). Somebody has to poll: a [`Ring`](crate::Ring) that a tokio runtime drives does
    /// not, and its [`Setup::iopoll`] says so; one with a [`driver_thread`](Self::driver_thread) does.
    #[must_use]
    pub fn iopoll(mut self, on: bool) -> Self {
        self.flags = self.flags.with(SetupFlags::IOPOLL, on);
        self
    }

    /// Registers the ring's descriptor with the thread (Linux 5.18); on unless turned off.
    #[must_use]
    pub fn registered_ring(mut self, on: bool) -> Self {
        self.register_ring = on;
        self
    }

    /// Entries of the table of registered files, at most 65536; 16 unless set. 0 means none.
    #[must_use]
    pub fn registered_files(mut self, entries: u32) -> Self {
        self.registered_files = entries.min(1 << 16);
        self
    }

    /// Sets how many worker threads the kernel may start for the ring: so many for files and so many for
    /// everything else; 8 unless set, and at least 1. Needs Linux 5.15; before that the kernel's own limits
    /// hold.
    #[must_use]
    pub fn worker_threads(mut self, threads: usize) -> Self {
        self.worker_threads = threads.max(1);
        self
    }

    /// The most threads of the classic backend, and of the pool that makes calls the ring cannot;
    /// 64 unless set, and at least 1. They start when there is work and end after ten idle
    /// seconds.
    #[must_use]
    pub fn classic_threads(mut self, threads: usize) -> Self {
        self.classic_threads = threads.max(1);
        self
    }

    /// Operations that threads of the loop are to make although the ring can: for those that the
    /// kernel would only hand to a worker thread of its own.
    #[must_use]
    pub fn avoid(mut self, opcodes: &[Opcode]) -> Self {
        self.avoided = opcodes.to_vec();
        self
    }

    /// Allows only these operations, besides no-ops, timeouts and cancels, which every loop needs. All are
    /// allowed unless set.
    ///
    /// Every other operation fails with [`PermissionDenied`](crate::ErrorKind::PermissionDenied)
    /// (`EACCES`), on each backend alike; the functions of [`fs`](crate::fs) and [`net`](crate::net) fail
    /// with the error of the operation that they would make. On a ring the kernel refuses it too
    /// (`IORING_REGISTER_RESTRICTIONS`, Linux 5.10), whoever writes into the ring's memory. If the kernel
    /// does not restrict the ring, the ring is not used: see [`FallbackReason::Unrestricted`].
    /// [`Setup::guard`] tells who refuses.
    ///
    /// The restriction holds for the operations of this loop. It does not hold for the program's own
    /// syscalls, nor for other rings.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{ErrorKind, Local, Opcode, OpenOptions, Operation};
    ///
    /// let mut local = Local::builder().restrict([Opcode::Read]).build()?;
    /// let open = Operation::open("/etc/hostname", OpenOptions::new().read(true));
    /// let error = local.run(open).unwrap_err();
    /// assert_eq!((error.kind(), error.opcode()), (ErrorKind::PermissionDenied, Opcode::Open));
    /// # Ok::<(), ringwise::SetupError>(())
    /// ```
    #[must_use]
    pub fn restrict(mut self, opcodes: impl IntoIterator<Item = Opcode>) -> Self {
        self.restriction.allow_only(opcodes);
        self
    }

    /// Allows operations only on [registered](crate::RegisteredFile) files, and none that opens a file,
    /// accepts a connection or works on a path; off unless turned on. No-ops, timeouts and cancels have no
    /// file and stay allowed.
    ///
    /// Other operations fail with [`PermissionDenied`](crate::ErrorKind::PermissionDenied). The functions of
    /// [`fs`](crate::fs) and [`net`](crate::net) work on descriptors, so a data-only ring refuses them:
    /// submit operations on [`Setup::files`] instead. On a ring the kernel requires registered files too
    /// (Linux 5.19, since when a cancel may have that flag).
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Local, Operation};
    ///
    /// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
    /// let mut local = Local::builder().data_only(true).seal(true).files([file.clone()]).build()?;
    /// let registered = local.setup().files()[0];
    /// assert!(local.run(Operation::read_at(registered, vec![0; 64], 0))?.result()? > 0);
    /// assert!(local.run(Operation::read_at(&file, vec![0; 64], 0)).is_err(), "not by its descriptor");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn data_only(mut self, on: bool) -> Self {
        self.restriction.data_only = on;
        self
    }

    /// Registers nothing after the setup; off unless turned on. The kernel then refuses to change the
    /// tables of the ring, and so does the library on each backend:
    ///
    /// - Registering and unregistering a file, opening a file into the table and closing one in it fail with
    ///   `EACCES`. [`files`](Self::files) registers files during the setup.
    /// - Pools and groups of buffers work, but are ordinary memory:
    ///   [`Pool::registration`](crate::Pool::registration) tells.
    #[must_use]
    pub fn seal(mut self, on: bool) -> Self {
        self.restriction.sealed = on;
        self
    }

    /// Registers these files during the setup; [`Setup::files`] has their names. The loop keeps them open.
    /// The table has at least as many entries as there are files.
    #[must_use]
    pub fn files(mut self, files: impl IntoIterator<Item = Descriptor>) -> Self {
        self.files = files.into_iter().collect();
        self
    }

    /// Runs the loop on a simulated machine, whatever [`backend`](Self::backend) says.
    #[must_use]
    #[cfg(feature = "sim")]
    pub fn simulation(mut self, simulation: &Simulation) -> Self {
        self.simulation = Some(simulation.clone());
        self
    }

    /// Chooses who drives a [`Ring`](crate::Ring): a thread of its own (`true`), or the tokio runtime that the ring
    /// is built in (`false`).
    ///
    /// Without this call a multi-threaded runtime drives the rings that are built in it, and every
    /// other ring has a thread. A current-thread runtime runs nothing while nobody is inside its
    /// `block_on`, so a ring that it drove would keep users on other threads waiting. Pass `false`
    /// there if all users of the ring are tasks of that runtime: an operation then costs two wake-ups
    /// of threads less. Pass `true` if the users are tasks of other runtimes than the one that the ring
    /// is built in, as in a server that has a runtime for each of its threads (actix-web).
    ///
    /// A runtime without I/O drives no ring. Tokio cannot be asked whether a runtime has I/O; it
    /// panics where it has none, and the library catches that panic. In a program that is compiled
    /// with `panic = "abort"` nothing can be caught, so a ring has a thread there unless this
    /// function is called with `false`.
    ///
    /// Needs the feature `tokio`: without it, and on a simulated machine, every ring has a thread.
    #[must_use]
    pub fn driver_thread(mut self, on: bool) -> Self {
        self.driver_thread = Some(on);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_turned_off_is_not_asked_for() {
        let builder = Builder::default().defer_taskrun(false).coop_taskrun(true);
        assert!(!builder.flags.has("DEFER_TASKRUN"));
        assert!(builder.flags.has("COOP_TASKRUN"));
        assert_eq!(SetupFlags::default().to_string(), "none");
    }
}
