//! The ring: calls become submission queue entries, and only the loop's thread enters it.
//!
//! Calls that this kernel's ring cannot make go to a classic backend beside it, one by one, and the
//! loop gets their results together with the ring's (invariant 8). The classic backend wakes a loop
//! that sleeps in the kernel through a descriptor on which the ring has a poll.
//!
//! # Safety
//!
//! The only unsafe act here is to push an entry: the kernel will follow its addresses. They come
//! from a [`Call`], whose maker keeps them valid until the completion (invariant 1); a failed
//! enter changes nothing about that (invariant 2).
#![allow(unsafe_code)]

mod buffers;
mod entry;
mod links;
mod reaped;
mod restrict;
mod setup;
mod supported;

#[cfg(feature = "tokio")]
use std::os::fd::BorrowedFd;
use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::Instant,
};

use io_uring::{
    IoUring, opcode,
    squeue::{Entry, Flags},
    types,
};
use links::Links;
use reaped::Reaped;
use rustix::io_uring::IoringEnterFlags;
use supported::Supported;

use crate::{
    backend::{
        Cqe, Driver,
        classic::{Classic, pool::Job},
    },
    buf::Token,
    descriptor::Blocking,
    error::Errno,
    flight::{call::Call, slot::OWN_POLL},
    op::Opcode,
    settings::{
        failure::FallbackReason,
        restriction::Guard,
        setup::{Builder, Effect, Setup, SetupFlags},
        stats::Stats,
    },
    sys::ring::EnterHandle,
};

/// The most pools that are registered at a time. Each has one entry in the table of registered
/// buffers.
const POOLS_MAX: u16 = 64;

pub(crate) struct Uring {
    // Declared before the ring: its entry holds the ring open and has to go first.
    handle: EnterHandle,
    ring: IoUring,
    granted: SetupFlags,
    by_ring: Supported,
    /// Whether a file can be opened straight into the table of registered files (Linux 5.15).
    opens_into_table: bool,
    how: entry::How,
    /// The flags of every entry, on a ring that takes only files of its table.
    required: Flags,
    /// The table's entry of what wakes such a ring.
    wake_entry: Option<u32>,
    /// The number of a new group of buffers that the kernel chooses from.
    groups: u16,
    /// Numbers below `groups` that no group has any more.
    free_groups: Vec<u16>,
    /// A companion made ahead: another thread may have to wake the loop when there is no descriptor
    /// left to make one.
    spare: Option<Box<Classic>>,
    /// Why there is no table of registered files, if there is none.
    no_table: Option<Errno>,
    /// Makes the calls that the ring cannot. It exists from the first of them on.
    companion: Option<Box<Classic>>,
    threads_max: usize,
    poll_armed: bool,
    /// Whether a wake-up was taken and nobody has looked yet for its reason.
    is_roused: bool,
    /// How many calls a polled ring has. Other rings do not count.
    polled_in_flight: usize,
    reaped: Reaped,
    links: Links,
    /// Entries of the table of buffers that no pool has; none before there is a table.
    free_pools: Option<Vec<u16>>,
    enters: u64,
    /// How often the kernel was seen to hold completions back.
    overflows: u64,
    by_thread: u64,
}

impl Uring {
    /// Opens a ring as the builder asks, and tests it.
    pub(crate) fn open(builder: &Builder) -> Result<(Uring, Setup), FallbackReason> {
        let setup::Opened { mut ring, granted, sqpoll_refused } = setup::open(builder)?;
        let restriction = builder.restriction;
        cap_workers(&ring, builder.worker_threads);
        let probe = Supported::probe(&ring, granted);
        let by_ring = probe.without(&builder.avoided).within(restriction);
        let how = supported::ways(&ring, granted);
        let idles = ring.params().is_feature_no_iowait();
        let handle = EnterHandle::new(ring.as_raw_fd(), builder.register_ring, idles);
        let table = FileTable::make(&ring, builder)?;
        if restriction.is_any() {
            restrict::enable(&ring, by_ring, restriction).map_err(FallbackReason::Unrestricted)?;
        }
        let required = restrict::required(restriction);
        let allowed = if restriction.is_any() { by_ring } else { probe };
        setup::self_test(&mut ring, allowed, required)?;
        let setup = describe(builder, granted, sqpoll_refused, &ring, &handle);
        let uring = Uring {
            handle,
            ring,
            granted,
            by_ring,
            opens_into_table: probe.contains(Opcode::CreateDirectory),
            how,
            required,
            wake_entry: table.wake_entry,
            groups: 0,
            free_groups: Vec::new(),
            spare: table.spare,
            no_table: table.refusal,
            companion: None,
            threads_max: builder.classic_threads,
            poll_armed: false,
            is_roused: false,
            polled_in_flight: 0,
            reaped: Reaped::default(),
            links: Links::default(),
            free_pools: None,
            enters: 0,
            overflows: 0,
            by_thread: 0,
        };
        Ok((uring, setup))
    }

    /// Adds the ring's own counts.
    pub(super) fn count(&mut self, stats: &mut Stats) {
        stats.enters = self.enters;
        stats.fallback_operations = self.by_thread;
        // The kernel counts only completions that it had no memory to keep (io_uring/io_uring.c,
        // io_cqring_add_overflow).
        stats.overflows = self.overflows + u64::from(self.ring.completion().overflow());
    }

    /// Puts a file into the registered table, or takes it out.
    pub(super) fn set_file(&mut self, index: u32, fd: Option<i32>) -> Result<(), Errno> {
        if let Some(reason) = self.no_table {
            return Err(reason);
        }
        let fds = [fd.unwrap_or(-1)];
        match self.ring.submitter().register_files_update(index, &fds) {
            Ok(_) => Ok(()),
            Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }

    /// Registers a region of memory and returns its index in the table of buffers.
    ///
    /// The kernel pins the pages itself, so it could not write through the registration to memory
    /// that was freed too early. Invariant 13 says that the memory is not freed early.
    pub(super) fn register_region(&mut self, base: *mut u8, len: usize) -> Result<u16, String> {
        let submitter = self.ring.submitter();
        let free = match &mut self.free_pools {
            Some(free) => free,
            None => {
                submitter
                    .register_buffers_sparse(POOLS_MAX.into())
                    .map_err(|error| format!("io_uring_register(BUFFERS2): {error}"))?;
                self.free_pools.insert((0..POOLS_MAX).rev().collect())
            }
        };
        let Some(&index) = free.last() else {
            return Err(format!("a loop registers at most {POOLS_MAX} pools at a time"));
        };
        let vector = [libc::iovec { iov_base: base.cast(), iov_len: len }];
        // SAFETY: the region is the pool's whole allocation, which its leases keep (invariant 13).
        let registered = unsafe { submitter.register_buffers_update(index.into(), &vector, None) };
        registered.map_err(|error| {
            let advice = match error.raw_os_error() {
                Some(libc::ENOMEM) => "; raise the locked-memory limit (ulimit -l)",
                _ => "",
            };
            format!("io_uring_register(BUFFERS_UPDATE) of {len} bytes: {error}{advice}")
        })?;
        free.pop();
        Ok(index)
    }

    /// Unregisters memory that nobody uses any more.
    pub(super) fn unregister(&mut self, token: Token) -> io::Result<()> {
        let submitter = self.ring.submitter();
        match token {
            Token::Pool(index) => {
                let nothing = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
                // SAFETY: no memory is named.
                unsafe { submitter.register_buffers_update(index.into(), &nothing, None) }?;
                self.free_pools.get_or_insert_default().push(index);
            }
            Token::Group(number) => {
                submitter.unregister_buf_ring(number)?;
                self.free_groups.push(number);
            }
        }
        Ok(())
    }

    /// Returns whether this member of a chain may have run before its turn.
    pub(super) fn is_severed(&mut self, user_data: u64) -> bool {
        self.links.take_severed(user_data)
    }

    /// Gives a call to the classic backend beside the ring, which starts it at the next submit.
    fn queue_beside(&mut self, job: Job) {
        // A call that only waits here, and that the ring could make, does not count.
        let waits = matches!(job.blocking, Blocking::Unbounded | Blocking::Socket { .. })
            || matches!(job.call, Call::Timeout { .. });
        self.by_thread += u64::from(!waits || !self.by_ring.contains(job.call.opcode()));
        if self.companion.is_none() {
            let made = || Classic::new(self.threads_max, usize::MAX).ok().map(Box::new);
            self.companion = self.spare.take().or_else(made);
        }
        match &mut self.companion {
            Some(companion) => companion.queue(job.user_data, job.call, job.blocking),
            // There is no descriptor left, so the loop's own thread makes the call.
            None => self.reaped.extend([job.run()]),
        }
    }

    /// Pushes an entry. It is inlined into its few callers, so that the entry is built in the queue
    /// itself. An entry that is built elsewhere and then copied stalls on its own unfinished
    /// stores.
    #[inline(always)]
    fn push(&mut self, entry: &Entry) {
        // SAFETY: the addresses in the entry are valid until its completion (see the header).
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "the loop submits before the queue is full");
    }

    /// Enters the kernel until everything is handed over and `want` results are there. Returns how
    /// many are ready. The queues' indices are shared with the kernel, so they are read as rarely
    /// as possible: with batches of 32 no-ops the cost of each read can be seen.
    fn enter(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno> {
        loop {
            let (to_submit, mut flags) = self.pending();
            // The kernel does not count results that were taken already.
            let mut in_queue = want.saturating_sub(self.reaped.len());
            if to_submit == 0 {
                let ready = self.count_ready();
                if ready >= want {
                    in_queue = 0;
                }
                if in_queue == 0 && flags.is_empty() {
                    return Ok(ready);
                }
            }
            if in_queue > 0 {
                flags |= IoringEnterFlags::GETEVENTS;
            }
            let timeout = deadline
                .filter(|_| in_queue > 0)
                .map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.enters += 1;
            let entered = self.handle.enter(to_submit, in_queue as u32, flags, timeout);
            if !self.links.are_submitted()
                && let Ok(taken) = entered
            {
                self.links.submitted(taken as usize);
            }
            let ready = self.count_ready();
            match entered {
                Ok(taken) if taken == to_submit && ready >= want => return Ok(ready),
                // The time is over. The kernel returns ETIME only if no result at all is ready
                // (io_uring/io_uring.c, the end of io_cqring_wait).
                Ok(taken) if taken == to_submit && timeout.is_some_and(|left| left.is_zero()) => {
                    return Ok(ready);
                }
                // A part was taken, or a signal ended the wait.
                Ok(_) | Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::ETIME)) => return Ok(ready),
                // Before it goes on, the kernel wants completions to be taken, or needs memory.
                Err(Errno(libc::EBUSY | libc::EAGAIN)) if ready > 0 => return Ok(ready),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Returns how many entries to hand over, and the flags that the kernel's state asks for.
    #[inline]
    fn pending(&mut self) -> (u32, IoringEnterFlags) {
        let polled_by_thread = self.is_polled_by_thread();
        let polled = self.is_polled();
        let queue = self.ring.submission();
        let mut flags = IoringEnterFlags::empty();
        let is_held_back = queue.cq_overflow();
        self.overflows += u64::from(is_held_back);
        if is_held_back || queue.taskrun() || (polled && queue.is_empty()) {
            flags |= IoringEnterFlags::GETEVENTS;
        }
        if !polled_by_thread {
            return (queue.len() as u32, flags);
        }
        // The thread takes entries by itself unless it sleeps.
        if queue.need_wakeup() && !queue.is_empty() {
            flags |= IoringEnterFlags::SQ_WAKEUP;
        }
        if queue.is_full() {
            flags |= IoringEnterFlags::SQ_WAIT;
        }
        (0, flags)
    }

    fn is_polled_by_thread(&self) -> bool {
        self.granted.contains(SetupFlags::SQPOLL)
    }

    /// Takes all results of the ring.
    #[inline]
    fn reap(&mut self) {
        let taken = self.reaped.take_from(&mut self.ring);
        if self.is_polled() {
            self.polled_in_flight -= taken;
        }
        if self.poll_armed && self.reaped.remove(OWN_POLL) {
            (self.poll_armed, self.is_roused) = (false, true);
            self.companion.as_ref().expect("it has the poll").clear_wake();
        }
    }

    /// Returns how many results are ready, including the loop's own until they are reaped.
    #[inline]
    fn count_ready(&mut self) -> usize {
        self.reaped.len() + self.ring.completion().len()
    }

    /// Does the same as [`submit`](Driver::submit), with a classic backend beside the ring.
    fn submit_both(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno> {
        self.with_companion(|companion| companion.start(false));
        loop {
            self.look();
            let ready = self.reaped.len();
            if ready < want.max(1) && self.with_companion(Classic::rescue) {
                continue;
            }
            // The next result may come from either side, so sleep for one at a time.
            let until = self.with_companion(|companion| companion.next_timer());
            let until = [deadline, until].into_iter().flatten().min();
            if ready >= want {
                self.enter(0, None)?;
            } else if self.is_polled() {
                self.wait_polled(deadline)?;
            } else if self.arm_wake()? {
                self.enter(ready + 1, until)?;
            } else {
                self.enter(0, None)?;
            }
            self.look();
            let expired = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if self.reaped.len() >= want || expired {
                return Ok(self.reaped.len());
            }
        }
    }

    fn with_companion<T>(&mut self, act: impl FnOnce(&mut Classic) -> T) -> T {
        act(self.companion.as_mut().expect("asked for beside one only"))
    }

    /// Takes all results, from both sides.
    fn look(&mut self) {
        self.reap();
        if let Some(companion) = &mut self.companion {
            self.is_roused = false;
            // While the poll is armed, the set has reported nothing.
            if self.poll_armed {
                companion.look_untold()
            } else {
                companion.look()
            }
            self.reaped.extend(companion.take_ready());
        }
    }

    /// Makes a sleeping enter end when the classic backend has something. Returns false if it
    /// already has something, or if the queue is full and the kernel has yet to take entries from
    /// it.
    fn arm_wake(&mut self) -> Result<bool, Errno> {
        if !self.with_companion(|companion| companion.prepare_sleep()) {
            return Ok(false);
        }
        if self.poll_armed {
            return Ok(true);
        }
        if self.ring.submission().is_full() {
            self.enter(0, None)?;
            if self.ring.submission().is_full() {
                // A submission thread is about to take entries.
                std::thread::yield_now();
                return Ok(false);
            }
        }
        let fd = self.with_companion(|companion| companion.wake_fd());
        let poll = match self.wake_entry {
            Some(entry) => opcode::PollAdd::new(types::Fixed(entry), libc::POLLIN as u32).build(),
            None => opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build(),
        };
        self.push(&poll.user_data(OWN_POLL));
        self.poll_armed = true;
        Ok(true)
    }

    /// Returns the ring's own descriptor, which is readable while the completion queue holds
    /// something.
    #[cfg(feature = "tokio")]
    pub(super) fn event_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open as long as it lives, hence for the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Hands everything over. What comes later, from either side, makes the ring readable.
    #[cfg(feature = "tokio")]
    pub(super) fn submit_and_arm(&mut self) -> Result<(), Errno> {
        if self.companion.is_none() {
            return self.enter(0, None).map(drop);
        }
        self.submit_both(0, None)?;
        while self.with_companion(Classic::rescue) || !self.arm_wake()? {
            self.look();
        }
        self.with_companion(Classic::arm_timer)?;
        self.enter(0, None).map(drop)
    }

    /// Returns whether everything that comes later makes the ring readable, after all available
    /// results were taken. This is not so if these results kept the kernel from taking entries or
    /// from adding other results, since it does not report those again. It is not so either if the
    /// companion's wake-up was among the results.
    #[cfg(feature = "tokio")]
    pub(super) fn is_armed(&mut self) -> bool {
        let by_thread = self.is_polled_by_thread();
        let queue = self.ring.submission();
        !self.is_roused && !queue.cq_overflow() && (by_thread || queue.is_empty())
    }

    /// Waits on a polled ring, which takes no poll on a descriptor. While the ring has calls, the
    /// loop spins, as its user asked. Without calls it sleeps on the other side.
    fn wait_polled(&mut self, deadline: Option<Instant>) -> Result<(), Errno> {
        self.enter(0, None)?;
        if self.polled_in_flight == 0 {
            self.with_companion(|companion| companion.sleep(deadline));
        } else {
            std::thread::yield_now();
        }
        Ok(())
    }

    #[inline]
    pub(super) fn is_polled(&self) -> bool {
        self.granted.contains(SetupFlags::IOPOLL)
    }
}

impl Driver for Uring {
    #[inline]
    fn has_room(&mut self) -> bool {
        !self.ring.submission().is_full()
    }

    #[inline]
    fn queue_nop(&mut self, user_data: u64) -> bool {
        let entry = entry::nop(user_data, self.required);
        // SAFETY: a no-op has no addresses.
        let queued = unsafe { self.ring.submission().push(&entry) }.is_ok();
        if self.is_polled() {
            self.polled_in_flight += usize::from(queued);
        }
        queued
    }

    #[inline]
    fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking) {
        if let (Call::Cancel { user_data: target, fd }, Some(companion)) =
            (call, &mut self.companion)
            && let Some(result) = companion.cancel(target, fd)
        {
            self.reaped.extend([Cqe::by_thread(user_data, result)]);
            return;
        }
        if self.is_polled() && call.opcode() == Opcode::Cancel {
            // A polled ring takes no cancels, and it cannot stop the calls that it has.
            self.reaped.extend([Cqe::by_thread(user_data, -libc::EALREADY)]);
            return;
        }
        let into_table = matches!(call, Call::Open { entry: Some(_), .. });
        // The way a file blocks is looked up only for calls that the ring does not make.
        let is_beside = blocking.is_beside() || !self.by_ring.contains(call.opcode());
        if is_beside || (into_table && !self.opens_into_table) {
            return self.queue_beside(Job { user_data, call, blocking });
        }
        let Some(entry) = entry::build(&call, self.how) else {
            return self.queue_beside(Job { user_data, call, blocking });
        };
        self.push(&entry.flags(self.required).user_data(user_data));
        if self.is_polled() {
            self.polled_in_flight += 1;
        }
    }

    /// Returns whether the ring runs chains. It does not with a submission thread, since nobody
    /// sees its partial submits, nor with polling. Neither does it on a kernel without
    /// `SUBMIT_ALL`. Such a kernel may be old enough to end a submit at a member that it refuses,
    /// and to start the members after it with the next submit (io_uring/io_uring.c,
    /// io_submit_sqes).
    fn links(&self) -> bool {
        let takes_all = self.granted.contains(SetupFlags::SUBMIT_ALL);
        takes_all && !self.is_polled_by_thread() && !self.is_polled()
    }

    fn has_room_for(&mut self, count: usize) -> bool {
        let queue = self.ring.submission();
        queue.capacity() - queue.len() >= count
    }

    fn queue_linked(&mut self, calls: &[(u64, Call)]) -> bool {
        let build = |(user_data, call): &(u64, Call)| {
            let entry = entry::build(call, self.how)?;
            Some(entry.flags(self.required).user_data(*user_data))
        };
        let Some(entries) = calls.iter().map(build).collect::<Option<Vec<Entry>>>() else {
            return false;
        };
        let ahead = self.ring.submission().len();
        let last = entries.len().saturating_sub(1);
        for (at, entry) in entries.into_iter().enumerate() {
            self.push(&if at < last { entry.flags(Flags::IO_LINK) } else { entry });
        }
        self.links.queued(ahead, calls.iter().map(|(user_data, _)| *user_data));
        true
    }

    #[inline]
    fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno> {
        if self.companion.is_none() {
            self.enter(want, deadline)
        } else {
            self.submit_both(want, deadline)
        }
    }

    #[inline]
    fn next(&mut self) -> Option<Cqe> {
        if self.reaped.is_empty() {
            self.reap();
        }
        self.reaped.next()
    }

    fn put_back(&mut self, results: &[Cqe]) {
        self.reaped.put_back(results);
    }

    fn append(&mut self, results: &[Cqe]) {
        self.reaped.extend(results.iter().copied());
    }

    fn supports(&self, opcode: Opcode) -> bool {
        self.by_ring.contains(opcode)
    }
}

fn describe(
    builder: &Builder,
    granted: SetupFlags,
    sqpoll_refused: Option<Errno>,
    ring: &IoUring,
    handle: &EnterHandle,
) -> Setup {
    let sqpoll = if builder.sqpoll_idle.is_none() {
        Effect::NotAsked
    } else if granted.contains(SetupFlags::SQPOLL) {
        // The thread has taken the self-test's operations.
        Effect::Effective
    } else {
        Effect::Ineffective(setup::sqpoll_reason(sqpoll_refused))
    };
    let iopoll = if !builder.flags.contains(SetupFlags::IOPOLL) {
        Effect::NotAsked
    } else if granted.contains(SetupFlags::IOPOLL) {
        Effect::Unknown
    } else {
        Effect::Ineffective("a ring that a runtime drives does not poll".into())
    };
    Setup {
        backend: crate::settings::setup::Backend::Uring,
        fallback: None,
        asked: builder.flags,
        granted,
        submission_entries: ring.params().sq_entries(),
        completion_entries: ring.params().cq_entries(),
        ring_registered: handle.is_registered(),
        waits_are_idle: ring.params().is_feature_no_iowait(),
        sqpoll,
        iopoll,
        restriction: builder.restriction,
        guard: if builder.restriction.is_any() { Guard::Kernel } else { Guard::Nobody },
        files: Vec::new(),
    }
}

/// Limits the kernel's worker threads (Linux 5.15). For calls on files, the kernel's own limit is
/// the smaller of the queue's length and four threads for each processor. For other calls it has no
/// limit but that of processes.
fn cap_workers(ring: &IoUring, threads: usize) {
    let threads = u32::try_from(threads).unwrap_or(u32::MAX);
    let _ = ring.submitter().register_iowq_max_workers(&mut [threads, threads]);
}

/// The table of registered files, as it was made.
struct FileTable {
    /// Why there is none.
    refusal: Option<Errno>,
    /// What wakes a ring that takes only files of the table, and its entry there.
    spare: Option<Box<Classic>>,
    wake_entry: Option<u32>,
}

impl FileTable {
    /// Makes the table, and puts those files in that it is to have from the start.
    fn make(ring: &IoUring, builder: &Builder) -> Result<FileTable, FallbackReason> {
        let entries = builder.registered_files;
        let mut files: Vec<RawFd> = builder.files.iter().map(AsRawFd::as_raw_fd).collect();
        let mut table = FileTable { refusal: None, spare: None, wake_entry: None };
        if builder.restriction.data_only {
            let failed = |error: io::Error| {
                FallbackReason::SelfTest(format!("what wakes the ring: {error}"))
            };
            let spare = Classic::new(builder.classic_threads, usize::MAX).map_err(failed)?;
            files.resize(entries as usize, -1);
            files.push(spare.wake_fd());
            (table.spare, table.wake_entry) = (Some(Box::new(spare)), Some(entries));
        }
        let entries = entries + u32::from(table.wake_entry.is_some());
        let filled = make_file_table(ring, entries).and_then(|()| match &files[..] {
            [] => Ok(0),
            files => ring.submitter().register_files_update(0, files),
        });
        match filled {
            Ok(_) => Ok(table),
            Err(error) if files.is_empty() => {
                let refusal = Some(Errno(error.raw_os_error().unwrap_or(libc::EIO)));
                Ok(FileTable { refusal, ..table })
            }
            Err(error) => {
                Err(FallbackReason::SelfTest(format!("io_uring_register(FILES): {error}")))
            }
        }
    }
}

/// Makes the table of registered files, which is empty at first.
fn make_file_table(ring: &IoUring, entries: u32) -> io::Result<()> {
    if entries == 0 {
        return Ok(());
    }
    let submitter = ring.submitter();
    // A sparse table of a given size needs Linux 5.19. A table of descriptors may have holes since
    // 5.5.
    submitter
        .register_files_sparse(entries)
        .or_else(|_| submitter.register_files(&vec![-1; entries as usize]))
}
