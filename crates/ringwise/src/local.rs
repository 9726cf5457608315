//! One thread's event loop: push operations, submit them together, take completions.
//!
//! The loop owns the slots and one backend. It decides nothing for its user: operations go where
//! they are pushed, completions come in whatever order they come in. What it guarantees is that
//! no memory, descriptor or path that the kernel may still touch is freed, whatever its user does
//! with it: drop it, forget it, or panic half-way.

#[cfg(feature = "tokio")]
mod arming;
mod chains;
mod leaked;
mod linked;
mod parked;
mod registration;
mod restricted;
mod shutdown;
mod steps;
mod streams;
mod waiting;

pub(crate) use chains::is_whole;
pub use leaked::Leaked;
pub use steps::{Steps, Turn};

use std::{
    marker::PhantomData,
    os::fd::{AsRawFd, IntoRawFd, RawFd},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::{
    backend::{AnyDriver, Cqe, Driver, OWN_ENTRIES},
    buf::Registrations,
    descriptor::{Blocking, Descriptor, RegisteredFile, Target, registry::Registry},
    error::{Errno, Error, OFFSET_MAX},
    flight::{
        call::{Call, Context, File},
        completion::{self, Completion},
        refusal::{PushError, PushRefusal},
        slot::{Freed, Room, Slots, Ticket},
    },
    op::{Closing, Hint, Kind, Opcode, Open, Opened, Operation},
    settings::{
        failure::SetupError,
        setup::{Builder, Setup},
        stats::Stats,
    },
};

use chains::Chains;
use parked::{Part, Streams};

/// What is said of a table of registered files that has no free entry.
const TABLE_IS_FULL: &str = "the loop's table of registered files is full: raise Builder::registered_files, or \
                             unregister some";

/// One thread's event loop for completion-based I/O.
///
/// Not `Send`: only the thread that built it enters its ring.
///
/// Dropping it submits what was pushed, and cancels reads, receives, accepts, connects and timeouts. It waits for
/// the end of everything else, for five seconds at most. What is in flight even then is leaked with a line on
/// standard error, never freed. See [`shutdown`](Self::shutdown) for other times.
///
/// A child of fork(2) has none of it: the ring's memory is not there. It must neither use nor drop its copy,
/// that is, leave by execve(2) or _exit(2).
///
/// # Examples
///
/// Four reads with one system call:
///
/// ```
/// use ringwise::{Descriptor, Local, Operation};
///
/// let mut local = Local::new()?;
/// let file = Descriptor::from(std::fs::File::open(std::env::current_exe()?)?);
/// for block in 0..4 {
///     local.push(Operation::read_at(&file, vec![0; 4096], block * 4096), block)?;
/// }
/// local.submit_and_wait(4)?;
/// while let Some(done) = local.next_completion() {
///     println!("block {}: {} bytes", done.tag(), done.result()?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Local {
    slots: Slots,
    driver: AnyDriver,
    registry: Registry,
    /// What the ring holds registered: its memory lives as long as the registration.
    registrations: Registrations,
    chains: Chains,
    /// What has several results, or none. Its memory outlives the driver's registrations.
    streams: Streams,
    /// Operations of which a ring's are its threads' all the same: a set of opcodes.
    left_to_threads: u64,
    number: u32,
    setup: Setup,
    stats: Stats,
    /// Only the thread that built the ring may enter it.
    _not_send: PhantomData<*const ()>,
}

impl Local {
    /// A loop with the default settings: on a ring where that works, else on classic calls.
    ///
    /// # Errors
    ///
    /// [`SetupError`], when not even an eventfd is to be had.
    pub fn new() -> Result<Local, SetupError> {
        Builder::default().build()
    }

    /// Settings for a loop.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What was asked for and what the kernel granted.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What the loop did so far.
    pub fn stats(&mut self) -> Stats {
        self.driver.count(&mut self.stats);
        self.stats.submitted = self.slots.inserted();
        self.stats.in_flight = self.slots.in_flight() as u64;
        self.stats.waiting = self.slots.waiting() as u64;
        self.stats.completed = self.stats.submitted - self.stats.in_flight;
        self.stats
    }

    /// The most operations that can take room in the completion queue at a time. Accepts, operations with
    /// several completions, and those that wait beside the ring take none: descriptors and memory bound them.
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Operations pushed whose completion was not taken yet.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Of those, the operations that take from what [`capacity`](Self::capacity) allows.
    pub(crate) fn working(&self) -> usize {
        self.slots.working()
    }

    /// Whether the ring itself makes this operation. False on classic and simulated, for what this
    /// kernel's ring lacks, and for what was to be avoided; such operations work all the same, unless the
    /// loop may not make them ([`Setup::allows`]).
    pub fn supports(&self, opcode: Opcode) -> bool {
        self.driver.supports(opcode)
    }

    /// Takes an operation in, to be submitted with the next [`submit`](Self::submit). `tag` comes
    /// back with the completion and means what the caller wants it to mean.
    ///
    /// Makes no system call but for two: when the submission queue is full, all that was pushed
    /// before is submitted to make room; and the first operation on a descriptor that a thread has
    /// to serve looks up what kind of file it is.
    ///
    /// # Errors
    ///
    /// [`PushError`] with the operation in it: as many are in flight as the loop holds, or this
    /// one cannot be handed over at all.
    #[inline]
    pub fn push(&mut self, operation: Operation, tag: u64) -> Result<Ticket, PushError> {
        if operation.is_nop() {
            if self.slots.is_full() {
                return Err(PushError { operation, reason: PushRefusal::Full });
            }
            // It owns nothing, and to find that out again in its drop costs a call.
            std::mem::forget(operation);
            let ticket = self.slots.insert_nop(tag);
            if self.driver.queue_nop(ticket.user_data()) {
                return Ok(ticket);
            }
            return self.push_nop_again(ticket);
        }
        self.push_checked(operation, tag)
    }

    /// Makes room for a no-op that found none.
    #[cold]
    fn push_nop_again(&mut self, ticket: Ticket) -> Result<Ticket, PushError> {
        if let Err(reason) = self.make_room() {
            self.slots.free(ticket);
            return Err(PushError { operation: Operation::nop(), reason });
        }
        let queued = self.driver.queue_nop(ticket.user_data());
        assert!(queued, "room was made just now");
        Ok(ticket)
    }

    fn make_room(&mut self) -> Result<(), PushRefusal> {
        if self.driver.has_room() { Ok(()) } else { self.make_room_for(1) }
    }

    fn make_room_for(&mut self, count: usize) -> Result<(), PushRefusal> {
        while !self.driver.has_room_for(count) {
            let submitted = self.driver.submit(0, None);
            submitted.map_err(|errno| PushRefusal::Submit(Error::new(Opcode::Submit, errno)))?;
            if !self.driver.has_room_for(count) {
                if !self.setup.granted.has("SQPOLL") {
                    // The kernel wants completions taken, or memory, before it takes more.
                    let error = Error::new(Opcode::Submit, Errno(libc::EAGAIN));
                    return Err(PushRefusal::Submit(error));
                }
                // A submission thread: the kernel's wait for room ends when the thread has taken
                // entries, which is before it shows that (io_uring/sqpoll.c, io_sqpoll_wait_sq,
                // looks at the thread's own count).
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn push_checked(&mut self, operation: Operation, tag: u64) -> Result<Ticket, PushError> {
        let by_ring = self.is_by_ring(&operation);
        let room = self.room_for(&operation, by_ring);
        if (self.slots.is_full() && !room.waits()) || !self.slots.has_number() {
            return Err(PushError { operation, reason: PushRefusal::Full });
        }
        if let Err(reason) = self.make_room() {
            return Err(PushError { operation, reason });
        }
        if !self.chains.is_empty()
            && let Some(Kind::Cancel(target)) = operation.0.as_deref()
        {
            // Steps that are due may begin meanwhile, and take the room.
            match self.dooms(target.user_data_in(self.number)).and_then(|is_doomed| {
                self.make_room()?;
                Ok(is_doomed)
            }) {
                Ok(false) => {}
                Ok(true) => {
                    let ticket = self.slots.insert(operation, tag);
                    let late = Cqe::by_thread(ticket.user_data(), -libc::EALREADY);
                    self.driver.append(&[late]);
                    return Ok(ticket);
                }
                Err(reason) => return Err(PushError { operation, reason }),
            }
        }
        let operation = match self.take_up_parked(operation, tag) {
            Ok(ticket) => return Ok(ticket),
            Err(operation) => operation,
        };
        if let Err(error) = self.prepare_watched(&operation) {
            return Err(PushError { operation, reason: PushRefusal::Rejected(error) });
        }
        let by_ring = by_ring && room != Room::WaitsBeside;
        let (file, blocking) = match self.resolve(&operation, by_ring) {
            Ok(resolved) => resolved,
            Err(error) => {
                return Err(PushError { operation, reason: PushRefusal::Rejected(error) });
            }
        };
        let Prepared { operation, entry } = self.prepare(operation)?;
        if let Some(Target::Registered(file)) = operation.target() {
            self.registry.begin(*file);
        }
        let cancels = match operation.0.as_deref() {
            Some(Kind::Cancel(target)) => self.descriptor_of(*target),
            _ => None,
        };
        let ticket = self.slots.insert(operation, tag);
        if room.waits() {
            self.slots.let_wait(ticket);
        }
        if ticket.is_watched() {
            self.begin_watched(ticket);
        }
        let context = Context { ring: self.number, file, entry, cancels };
        let call = Call::lower(self.slots.operation_mut(ticket), context);
        self.driver.queue(ticket.user_data(), call, blocking);
        Ok(ticket)
    }

    /// The file of an operation in flight, by which a backend finds what is to be cancelled.
    fn descriptor_of(&self, ticket: Ticket) -> Option<RawFd> {
        match self.slots.get(ticket).filter(|_| ticket.table == self.number)?.target()? {
            Target::Descriptor(descriptor) => Some(descriptor.as_raw_fd()),
            Target::Registered(file) => {
                self.registry.descriptor_in_flight(*file).map(AsRawFd::as_raw_fd)
            }
        }
    }

    /// Finds the file that an operation works on, and refuses what no backend can express.
    fn resolve(
        &self,
        operation: &Operation,
        by_ring: bool,
    ) -> Result<(Option<File>, Blocking), Error> {
        let refuse = |errno| Err(Error::of(operation, Errno(errno)));
        if operation.offset().is_some_and(|offset| offset > OFFSET_MAX) {
            return refuse(libc::EINVAL);
        }
        if let Some(refusal) = self.forbidden(operation).or_else(|| self.refusal(operation)) {
            return Err(refusal);
        }
        let Some(target) = operation.target() else {
            return Ok((None, self.blocking_of(operation, by_ring, Blocking::Device)));
        };
        match target {
            Target::Descriptor(descriptor) => {
                let blocking = self.blocking_of(operation, by_ring, descriptor.blocking());
                Ok((Some(File::Fd(descriptor.as_raw_fd())), blocking))
            }
            Target::Registered(name) => match self.registry.resolve(*name, by_ring) {
                Some(file) => {
                    let descriptor = self.registry.descriptor(*name).filter(|_| !by_ring);
                    let blocking = descriptor.map_or(Blocking::Device, Descriptor::blocking);
                    Ok((Some(file), blocking))
                }
                None if self.registry.contains(*name) => {
                    Err(Error::of(operation, Errno(libc::EOPNOTSUPP)).advise(
                        "this call is made by a thread, which needs a file with an ordinary \
                         descriptor beside its registered entry",
                    ))
                }
                None => refuse(libc::EBADF),
            },
        }
    }

    /// How an operation waits on a file that is known to wait so, as far as its backend has to know.
    #[inline]
    fn blocking_of(&self, operation: &Operation, by_ring: bool, file: Blocking) -> Blocking {
        match (operation.0.as_deref(), file) {
            _ if by_ring => Blocking::Device,
            (Some(Kind::Read { hint, .. }), Blocking::Cached) if *hint != Hint::Nothing => {
                Blocking::Missed
            }
            // The ring could make it, and is not to.
            (_, Blocking::Device) if self.driver.supports(operation.opcode()) => Blocking::Missed,
            _ => file,
        }
    }

    /// Takes what an operation needs beyond its own content: an entry of the table, or sole
    /// ownership of a descriptor that is to be closed.
    fn prepare(&mut self, mut operation: Operation) -> Result<Prepared, PushError> {
        let refuse = |kind, errno| {
            let operation = Operation::of(kind);
            let error = Error::of(&operation, Errno(errno));
            Err(PushError { operation, reason: PushRefusal::Rejected(error) })
        };
        let kind = operation.0.take().expect("a no-op needs nothing");
        let (closing, entry) = match *kind {
            Kind::Open(mut open) if open.into_table => {
                open.entry = self.registry.reserve();
                if open.entry.is_none() {
                    let operation = Operation::of(Kind::Open(open));
                    let error = Error::of(&operation, Errno(libc::ENFILE)).advise(TABLE_IS_FULL);
                    return Err(PushError { operation, reason: PushRefusal::Rejected(error) });
                }
                return Ok(Prepared {
                    entry: open.entry,
                    operation: Operation::of(Kind::Open(open)),
                });
            }
            Kind::Close(Closing::Descriptor(descriptor)) => match descriptor.into_owned() {
                Ok(fd) => (Closing::Released(fd.into_raw_fd()), None),
                Err(descriptor) => {
                    return refuse(Kind::Close(Closing::Descriptor(descriptor)), libc::EBUSY);
                }
            },
            Kind::Close(Closing::Registered(file)) => match self.prepare_close(file) {
                Ok(prepared) => prepared,
                Err(errno) => return refuse(Kind::Close(Closing::Registered(file)), errno),
            },
            kind => return Ok(Prepared { operation: Operation::of(kind), entry: None }),
        };
        Ok(Prepared { operation: Operation::of(Kind::Close(closing)), entry })
    }

    /// Takes a registered file out of the table, to close what is behind it.
    fn prepare_close(&mut self, file: RegisteredFile) -> Result<(Closing, Option<u32>), i32> {
        if !self.registry.contains(file) {
            return Err(libc::EBADF);
        }
        if self.registry.is_busy(file) {
            return Err(libc::EBUSY);
        }
        if self.registry.descriptor(file).is_none() && self.driver.supports(Opcode::Close) {
            // Only the ring has it, so only the ring can close it, and tell of an error.
            self.registry.begin_close(file);
            return Ok((Closing::Registered(file), Some(file.index)));
        }
        let descriptor = self.registry.take(file);
        let _ = self.driver.set_file(file.index, None);
        self.registry.vacate(file.index);
        let sole = descriptor.and_then(|descriptor| descriptor.into_owned().ok());
        // The table had the only reference, or other clones keep the descriptor open: then there
        // is nothing left to do.
        Ok((sole.map_or(Closing::Forgotten, |fd| Closing::Released(fd.into_raw_fd())), None))
    }

    /// Hands over everything pushed, without waiting. Returns how many completions are ready.
    ///
    /// # Errors
    ///
    /// What io_uring_enter(2) reports, `EAGAIN` when the kernel is short of memory among it. Then
    /// nothing is lost: what was not taken stays queued, and a later submit hands it over.
    pub fn submit(&mut self) -> Result<usize, Error> {
        self.drive(0, None)
    }

    /// Hands over everything pushed and waits until `want` completions are ready, or all that are
    /// in flight if those are fewer. Returns how many are ready. A signal does not end the wait.
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit).
    #[inline]
    pub fn submit_and_wait(&mut self, want: usize) -> Result<usize, Error> {
        self.drive(want, None)
    }

    /// As [`submit_and_wait`](Self::submit_and_wait), for at most `timeout`. That the time is over
    /// is no error; the count tells.
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit).
    pub fn submit_and_wait_timeout(
        &mut self,
        want: usize,
        timeout: Duration,
    ) -> Result<usize, Error> {
        // A time beyond the clock's reach is no bound.
        self.drive(want, self.driver.now().checked_add(timeout))
    }

    #[inline]
    fn drive(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Error> {
        if self.registrations.has_unused() {
            self.unregister_unused();
        }
        if self.has_watched() {
            return self.drive_watched(want, deadline);
        }
        self.drive_unwatched(want.min(self.slots.in_flight()), deadline)
    }

    /// As [`drive`](Self::drive), without a look at those that have several results, or none.
    #[inline]
    fn drive_unwatched(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Error> {
        if self.chains.are_watched() {
            return self.drive_chains(want, deadline);
        }
        self.driver.submit(want, deadline).map_err(|errno| Error::new(Opcode::Submit, errno))
    }

    /// A completion that is ready, in no particular order. Never waits and never makes a system
    /// call, so nothing comes that no [`submit`](Self::submit) has asked the kernel for.
    // By its size the compiler calls it where a crate has several loops, and each completion then
    // goes through memory once more: 8 ns of a no-op's 50.
    #[inline(always)]
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let cqe = self.driver.next()?;
            if let Some(completion) = self.complete(cqe) {
                return Some(completion);
            }
        }
    }

    #[inline]
    fn complete(&mut self, cqe: Cqe) -> Option<Completion> {
        // Built in one place from values: built in two, it is copied through memory while its
        // stores are still on their way, which took five nanoseconds of a no-op's forty.
        let (ticket, tag, operation, result) = if Ticket::is_special(cqe.user_data) {
            let Part { ticket, tag, operation, result } = self.complete_special(cqe)?;
            (ticket, tag, operation, result)
        } else {
            let ticket = Ticket::from_user_data(cqe.user_data, self.number)?;
            let Some(Freed { tag, nop }) = self.slots.free(ticket) else {
                self.stats.stale_completions += 1;
                return None;
            };
            let (operation, result) =
                if nop { (Operation::nop(), cqe.result) } else { self.complete_taken(ticket, cqe) };
            (ticket, tag, operation, result)
        };
        Some(Completion::new(ticket, tag, result, operation))
    }

    #[inline(never)]
    fn complete_taken(&mut self, ticket: Ticket, cqe: Cqe) -> (Operation, i32) {
        let mut cqe = cqe;
        if !self.chains.is_empty() {
            self.observe(&mut cqe);
        }
        let mut operation = self.slots.take(ticket);
        if operation.is_by_worker() && !cqe.is_by_thread() && cqe.result != -libc::ECANCELED {
            self.stats.worker_punts += 1;
        }
        if cqe.result == -libc::EINTR && !cqe.is_by_thread() {
            // No signal of ours reaches a kernel worker (io_uring/io-wq.c, create_io_thread blocks
            // them); what interrupts one is a cancel.
            cqe.result = -libc::ECANCELED;
        }
        let result = self.settle(&mut operation, cqe);
        (operation, result)
    }

    /// Settles what a completion changes in the loop's own tables, and what its number means.
    fn settle(&mut self, operation: &mut Operation, cqe: Cqe) -> i32 {
        match operation.target() {
            Some(Target::Descriptor(_)) => {
                return completion::settle_on_file(operation, cqe.result);
            }
            Some(&Target::Registered(file)) => {
                if let Some(entry) = self.registry.end(file) {
                    self.clear_entry(entry);
                }
                return completion::settle_on_file(operation, cqe.result);
            }
            None => {}
        }
        match operation.0.as_deref_mut() {
            Some(Kind::Open(open)) if open.entry.is_some() => {
                let entry = open.entry.take().expect("matched just now");
                self.settle_table_open(open, entry, cqe)
            }
            Some(Kind::Close(Closing::Registered(file))) => {
                match cqe.result {
                    0.. => self.registry.vacate(file.index),
                    _ => self.registry.abort_close(*file),
                }
                cqe.result
            }
            _ => completion::settle(operation, cqe.result, cqe.never_ran()),
        }
    }

    /// A file was opened for the table: by the ring into it, or by a thread beside it.
    fn settle_table_open(&mut self, open: &mut Open, entry: u32, cqe: Cqe) -> i32 {
        if cqe.result < 0 {
            self.registry.vacate(entry);
            return cqe.result;
        }
        let descriptor = cqe.is_by_thread().then(|| completion::adopt_opened(cqe.result));
        if let Some(descriptor) = &descriptor
            && let Err(errno) = self.driver.set_file(entry, Some(descriptor.as_raw_fd()))
        {
            self.registry.vacate(entry);
            return -errno.raw();
        }
        let file = self.registry.opened(entry, descriptor);
        open.outcome = Some(Opened::Registered(file));
        0
    }

    /// Makes one operation and waits for it; completions of others that come meanwhile stay for
    /// [`next_completion`](Self::next_completion).
    ///
    /// The price of the convenience is a depth of one: use [`push`](Self::push) for many.
    ///
    /// # Errors
    ///
    /// Why the operation could not be handed over: `EBUSY` if as many are in flight as the loop holds,
    /// `EINVAL` if it has several completions or none. The operation and its buffer are then dropped;
    /// [`push`](Self::push) gives them back. What became of an operation that was handed over is in the
    /// completion. If the wait itself fails (io_uring_enter(2)), the operation is still in flight, and its
    /// completion comes with the others.
    pub fn run(&mut self, operation: Operation) -> Result<Completion, Error> {
        if !operation.completes_once() {
            return Err(Error::of(&operation, Errno(libc::EINVAL))
                .advise("it has several completions, or none: push it"));
        }
        let ticket = self.push(operation, 0).map_err(PushError::into_error)?;
        let mut others = Vec::new();
        let done = loop {
            let Some(mut cqe) = self.driver.next() else {
                // Results of others are still the driver's to count, so wait for one more each.
                if let Err(error) = self.drive(1, None) {
                    break Err(error);
                }
                continue;
            };
            if !self.chains.is_empty() {
                self.observe(&mut cqe);
            }
            if Ticket::from_user_data(cqe.user_data, self.number) != Some(ticket) {
                if !self.absorb(cqe) {
                    others.push(cqe);
                }
            } else if let Some(done) = self.complete(cqe) {
                break Ok(done);
            }
        };
        self.driver.put_back(&others);
        done
    }
}

impl Builder {
    /// Builds the loop.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: with [`BackendChoice::Auto`](crate::BackendChoice::Auto) only for a number of entries that cannot be,
    /// or when not even an eventfd is to be had.
    pub fn build(self) -> Result<Local, SetupError> {
        /// 0 is nobody's number.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        if !(1..=32_768).contains(&self.submissions()) {
            return Err(SetupError::Entries(self.submissions()));
        }
        // Of a completion queue of two the loop would keep both entries for itself.
        let entries = self.entries.map(|asked| asked.max(2));
        let files = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let registered_files = self.registered_files.max(files);
        let builder = Builder { entries, registered_files, ..self };
        let (driver, mut setup) = AnyDriver::open(&builder)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut registry = Registry::new(number, registered_files);
        setup.files = registry.fill(builder.files);
        let capacity = setup.completion_entries - OWN_ENTRIES;
        Ok(Local {
            slots: Slots::new(capacity as usize, number),
            driver,
            registry,
            registrations: Registrations::default(),
            chains: Chains::default(),
            streams: Streams::default(),
            left_to_threads: 0,
            number,
            setup,
            stats: Stats::default(),
            _not_send: PhantomData,
        })
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local")
            .field("backend", &self.setup.backend)
            .field("capacity", &self.capacity())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// An operation ready for its slot.
struct Prepared {
    operation: Operation,
    /// The table's entry that it opens a file into, or closes.
    entry: Option<u32>,
}
