//! What a loop needs of a backend: take calls, hand them over, give results.
//!
//! The interface is the ring's own shape, because the ring is the stricter of the two: a call is
//! queued, everything queued is submitted together, and results come in any order. A backend
//! performs calls; it owns none of the memory in them (the slots do) and never runs a user's code.

pub(crate) mod classic;
pub(crate) mod uring;

use std::{io, time::Instant};

use classic::{Classic, pool::Wake};
use uring::Uring;

use crate::{
    buf::{Entries, Token},
    call::Call,
    error::Errno,
    op::Opcode,
    setup::{
        Backend, BackendChoice, Builder, Effect, FallbackReason, Setup, SetupError, SetupFlags,
    },
    sim::driver::Simulated,
    slot::{BY_THREAD, NEVER_RAN},
    stats::Stats,
};

/// Entries of the completion queue that the loop keeps for itself: the poll by which threads wake
/// a ring, and a cancel.
pub(crate) const OWN_ENTRIES: u32 = 2;

/// The result of one call, laid out as the kernel's `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cqe {
    pub(crate) user_data: u64,
    /// A count, or a negated error number.
    pub(crate) result: i32,
    flags: u32,
}

/// `IORING_CQE_F_*` (include/uapi/linux/io_uring.h).
const F_BUFFER: u32 = 1 << 0;
const F_MORE: u32 = 1 << 1;
const F_NOTIF: u32 = 1 << 3;
/// The number of the chosen buffer is above this.
const BUFFER_SHIFT: u32 = 16;

impl Cqe {
    /// The same, with a buffer that was chosen for it.
    pub(crate) fn with_buffer(mut self, index: u16) -> Cqe {
        self.flags |= F_BUFFER | u32::from(index) << BUFFER_SHIFT;
        self
    }

    /// The same, and more of this operation are to come.
    pub(crate) fn with_more(mut self) -> Cqe {
        self.flags |= F_MORE;
        self
    }

    /// Whether more results of this operation are to come. This decides, and not the result.
    pub(crate) fn has_more(&self) -> bool {
        self.flags & F_MORE != 0
    }

    /// The buffer of a group that was chosen for it.
    pub(crate) fn buffer(&self) -> Option<u16> {
        (self.flags & F_BUFFER != 0).then_some((self.flags >> BUFFER_SHIFT) as u16)
    }

    /// Tells that a send's memory is no longer in use, and nothing about its result.
    pub(crate) fn is_notification(&self) -> bool {
        self.flags & F_NOTIF != 0
    }

    /// A result of a thread of the loop, not of the ring: a file that it opened is an ordinary
    /// descriptor.
    pub(crate) fn by_thread(user_data: u64, result: i32) -> Cqe {
        Cqe { user_data: user_data | BY_THREAD, result, flags: 0 }
    }

    /// A call that was cancelled before anybody made it. `ECANCELED` by itself does not say that:
    /// a file system may return it.
    pub(crate) fn cancelled(user_data: u64) -> Cqe {
        Cqe::by_thread(user_data | NEVER_RAN, -libc::ECANCELED)
    }

    pub(crate) fn never_ran(&self) -> bool {
        self.user_data & NEVER_RAN != 0
    }

    pub(crate) fn is_by_thread(&self) -> bool {
        self.user_data & BY_THREAD != 0
    }
}

/// How a file behaves, where a backend has to know before it makes a call that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// Ends by itself, and a read of cached data does not wait: a file read through the cache.
    Cached,
    /// The same, where the cache was asked in vain or is not to be asked: a thread is to make the call.
    Missed,
    /// Ends by itself after a device was asked.
    Device,
    /// May wait without end: a pipe, a terminal.
    Unbounded,
    /// May wait without end, and can be asked not to call by call. `serial` is its descriptor's
    /// own: the number is another socket's after it closed.
    Socket { serial: u64 },
}

impl Blocking {
    /// Of a call that is given to a ring: whether it is to be made beside it. Of what the ring makes it
    /// is not looked up how its file behaves.
    #[inline]
    pub(crate) fn is_beside(self) -> bool {
        self != Blocking::Device
    }
}

/// Takes calls and gives results.
pub(crate) trait Driver {
    /// Whether a call can be queued without submitting first.
    fn has_room(&mut self) -> bool;

    /// Queues a call that does nothing; false where there is no room. Apart from
    /// [`queue`](Self::queue), since it is the measure of what a loop costs.
    fn queue_nop(&mut self, user_data: u64) -> bool;

    /// Queues a call. The caller has seen that there is room and keeps what the call points to in
    /// place until its result came.
    fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking);

    /// Whether chains can be queued whole, and are made in order without the loop.
    fn links(&self) -> bool {
        false
    }

    /// Whether so many calls can be queued without submitting first.
    fn has_room_for(&mut self, count: usize) -> bool;

    /// Queues a chain, whole: each call is made when the one before is complete. The caller has seen
    /// that there is room. False, and nothing is queued, where the backend cannot.
    fn queue_linked(&mut self, _calls: &[(u64, Call)]) -> bool {
        false
    }

    /// Hands over all that is queued and waits until `want` results are ready or the deadline has
    /// passed; gives how many are ready. On an error everything that was not handed over stays
    /// queued.
    fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno>;

    /// The next result, without waiting and without a system call.
    fn next(&mut self) -> Option<Cqe>;

    /// Gives results back that were taken and are for somebody else. They come next, in their order.
    fn put_back(&mut self, results: &[Cqe]);

    /// Takes results in that the loop makes itself. They come after all that is there: the end of a
    /// stream comes after its data.
    fn append(&mut self, results: &[Cqe]);

    /// Whether the ring, not a thread, makes this call.
    fn supports(&self, opcode: Opcode) -> bool;
}

/// One of the backends. An enum and not a trait object: a no-op costs forty nanoseconds, and an
/// indirect call for each would show.
#[expect(clippy::large_enum_variant, reason = "a box shows too, and there is one for each loop")]
pub(crate) enum AnyDriver {
    Uring(Uring),
    Classic(Classic),
    Simulated(Box<Simulated>),
}

impl AnyDriver {
    /// Opens the backend that the builder asks for, and tells what came of it.
    pub(crate) fn open(builder: &Builder) -> Result<(AnyDriver, Setup), SetupError> {
        if builder.simulation.is_some() {
            return AnyDriver::open_simulated(builder);
        }
        let reason = match builder.backend {
            BackendChoice::Classic => FallbackReason::Chosen,
            choice => match Uring::open(builder) {
                Ok((uring, setup)) => return Ok((AnyDriver::Uring(uring), setup)),
                Err(reason) if choice == BackendChoice::Uring => {
                    return Err(SetupError::NoRing(reason));
                }
                Err(reason) => reason,
            },
        };
        let entries = builder.entries.next_power_of_two();
        let classic =
            Classic::new(builder.classic_threads, entries as usize).map_err(SetupError::Classic)?;
        let setup = describe_by_calls(builder, Backend::Classic, Some(reason));
        Ok((AnyDriver::Classic(classic), setup))
    }

    fn open_simulated(builder: &Builder) -> Result<(AnyDriver, Setup), SetupError> {
        let simulation = builder.simulation.as_ref().expect("seen by the caller");
        let entries = builder.entries.next_power_of_two() as usize;
        let driver = Simulated::new(simulation, builder.classic_threads, entries)
            .map_err(SetupError::Classic)?;
        let setup = describe_by_calls(builder, Backend::Simulated, None);
        Ok((AnyDriver::Simulated(Box::new(driver)), setup))
    }

    /// The time by which deadlines go: the simulation's own where there is one.
    pub(crate) fn now(&self) -> Instant {
        match self {
            AnyDriver::Simulated(simulated) => simulated.now(),
            AnyDriver::Uring(_) | AnyDriver::Classic(_) => Instant::now(),
        }
    }

    pub(crate) fn count(&mut self, stats: &mut Stats) {
        match self {
            AnyDriver::Uring(uring) => uring.count(stats),
            AnyDriver::Classic(classic) => classic.count(stats),
            AnyDriver::Simulated(simulated) => simulated.count(stats),
        }
    }

    /// Whether what it is handed is read by this program and not by the kernel.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, AnyDriver::Simulated(_))
    }

    /// Whether it polls for completions, which it can for direct I/O only.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        matches!(self, AnyDriver::Uring(uring) if uring.is_polled())
    }

    /// Leaves such operations to the loop's threads, if it is the simulation that makes them.
    pub(crate) fn leave_to_simulated_threads(&self, opcode: Opcode) -> bool {
        let AnyDriver::Simulated(simulated) = self else { return false };
        simulated.leave_to_threads(opcode);
        true
    }

    /// Whether the kernel took this member of a chain apart from those before it, so that it may
    /// have run before its turn.
    pub(crate) fn is_severed(&mut self, user_data: u64) -> bool {
        match self {
            AnyDriver::Uring(uring) => uring.is_severed(user_data),
            AnyDriver::Classic(_) | AnyDriver::Simulated(_) => false,
        }
    }

    /// Mirrors an entry of the loop's table of files; others go by the descriptor.
    pub(crate) fn set_file(&mut self, entry: u32, fd: Option<i32>) -> Result<(), Errno> {
        match self {
            AnyDriver::Uring(uring) => uring.set_file(entry, fd),
            AnyDriver::Classic(_) | AnyDriver::Simulated(_) => Ok(()),
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn event_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self {
            AnyDriver::Uring(uring) => Some(uring.event_descriptor()),
            AnyDriver::Classic(classic) => Some(classic.event_descriptor()),
            AnyDriver::Simulated(_) => None,
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn submit_and_arm(&mut self) -> Result<(), Errno> {
        match self {
            AnyDriver::Uring(uring) => uring.submit_and_arm(),
            AnyDriver::Classic(classic) => classic.submit_and_arm(),
            // It has no event descriptor, and is always armed.
            AnyDriver::Simulated(simulated) => simulated.submit(0, None).map(drop),
        }
    }

    /// Has the threads that make its calls hand out results by themselves, where there are no others.
    #[cfg(feature = "tokio")]
    pub(crate) fn hand_out_by(&self, hand_out: classic::pool::HandOut) {
        if let AnyDriver::Classic(classic) = self {
            classic.hand_out_by(hand_out);
        }
    }

    /// Whether all that comes makes the event descriptor readable, after a submit that armed it.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_armed(&mut self) -> bool {
        match self {
            AnyDriver::Uring(uring) => uring.is_armed(),
            AnyDriver::Classic(_) | AnyDriver::Simulated(_) => true,
        }
    }

    /// Gives the kernel a queue of buffers to choose from, and tells the number that it has there.
    pub(crate) fn register_entries(&mut self, entries: &Entries) -> Result<u16, String> {
        match self {
            AnyDriver::Uring(uring) => uring.register_entries(entries),
            AnyDriver::Classic(_) => Err("the loop runs on classic calls".into()),
            AnyDriver::Simulated(_) => Err("the loop is simulated".into()),
        }
    }

    /// Takes memory out of the ring that nobody uses any more.
    pub(crate) fn unregister(&mut self, token: Token) -> io::Result<()> {
        match self {
            AnyDriver::Uring(uring) => uring.unregister(token),
            AnyDriver::Classic(_) | AnyDriver::Simulated(_) => Ok(()),
        }
    }

    /// What wakes the loop from elsewhere.
    pub(crate) fn waker(&mut self) -> io::Result<Wake> {
        match self {
            AnyDriver::Uring(uring) => uring.waker(),
            AnyDriver::Classic(classic) => Ok(classic.waker()),
            AnyDriver::Simulated(simulated) => Ok(simulated.waker()),
        }
    }

    /// From now on a nudge is a result.
    pub(crate) fn expect_nudges(&mut self) {
        match self {
            AnyDriver::Uring(uring) => uring.expect_nudges(),
            AnyDriver::Classic(classic) => classic.expect_nudges(),
            AnyDriver::Simulated(simulated) => simulated.expect_nudges(),
        }
    }

    /// Takes out the results that `keep` refuses; on a ring, of all that are there.
    pub(crate) fn sift(&mut self, keep: &mut dyn FnMut(Cqe) -> bool) {
        match self {
            AnyDriver::Uring(uring) => uring.sift(keep),
            AnyDriver::Classic(classic) => classic.sift(keep),
            AnyDriver::Simulated(simulated) => simulated.sift(keep),
        }
    }

    /// Whether a send that succeeds may have no result.
    pub(crate) fn mutes_sends(&self) -> bool {
        matches!(self, AnyDriver::Uring(uring) if uring.mutes_sends())
    }

    /// Whether all that was queued was handed over, and every result of it that is there is seen.
    pub(crate) fn has_taken_all(&mut self) -> bool {
        match self {
            AnyDriver::Uring(uring) => uring.has_taken_all(),
            AnyDriver::Classic(_) | AnyDriver::Simulated(_) => true,
        }
    }

    /// Whether a submit would find results without waiting.
    pub(crate) fn has_work(&mut self) -> bool {
        match self {
            AnyDriver::Uring(uring) => uring.has_work(),
            AnyDriver::Classic(classic) => classic.has_work(),
            AnyDriver::Simulated(simulated) => simulated.has_work(),
        }
    }

    pub(crate) fn register_region(&mut self, base: *mut u8, len: usize) -> Result<u16, String> {
        match self {
            AnyDriver::Uring(uring) => uring.register_region(base, len),
            AnyDriver::Classic(_) => Err("the classic backend registers nothing".into()),
            AnyDriver::Simulated(_) => Err("the simulated backend registers nothing".into()),
        }
    }
}

/// A loop without a ring holds as many operations as a ring of as many entries would.
fn describe_by_calls(
    builder: &Builder,
    backend: Backend,
    fallback: Option<FallbackReason>,
) -> Setup {
    let entries = builder.entries.next_power_of_two();
    let missing = |asked| {
        let reason = match backend {
            Backend::Simulated => "the loop is simulated".into(),
            _ => "the loop runs on classic calls".into(),
        };
        if asked { Effect::Ineffective(reason) } else { Effect::NotAsked }
    };
    Setup {
        backend,
        fallback,
        asked: builder.flags,
        granted: SetupFlags::default(),
        submission_entries: entries,
        completion_entries: builder.completions(),
        ring_registered: false,
        waits_are_idle: true,
        sqpoll: missing(builder.sqpoll_idle.is_some()),
        iopoll: missing(builder.flags.contains(SetupFlags::IOPOLL)),
    }
}

macro_rules! delegate {
    ($self:expr, |$driver:ident| $call:expr) => {
        match $self {
            AnyDriver::Uring($driver) => $call,
            AnyDriver::Classic($driver) => $call,
            AnyDriver::Simulated($driver) => $call,
        }
    };
}

impl Driver for AnyDriver {
    #[inline]
    fn has_room(&mut self) -> bool {
        delegate!(self, |driver| driver.has_room())
    }

    #[inline]
    fn queue_nop(&mut self, user_data: u64) -> bool {
        #[cold]
        fn without_ring(driver: &mut AnyDriver, user_data: u64) -> bool {
            delegate!(driver, |driver| driver.queue_nop(user_data))
        }
        match self {
            AnyDriver::Uring(uring) => uring.queue_nop(user_data),
            other => without_ring(other, user_data),
        }
    }

    #[inline]
    fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking) {
        delegate!(self, |driver| driver.queue(user_data, call, blocking));
    }

    fn links(&self) -> bool {
        delegate!(self, |driver| driver.links())
    }

    fn has_room_for(&mut self, count: usize) -> bool {
        delegate!(self, |driver| driver.has_room_for(count))
    }

    fn queue_linked(&mut self, calls: &[(u64, Call)]) -> bool {
        delegate!(self, |driver| driver.queue_linked(calls))
    }

    #[inline]
    fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno> {
        delegate!(self, |driver| driver.submit(want, deadline))
    }

    #[inline]
    fn next(&mut self) -> Option<Cqe> {
        #[cold]
        fn without_ring(driver: &mut AnyDriver) -> Option<Cqe> {
            delegate!(driver, |driver| driver.next())
        }
        match self {
            AnyDriver::Uring(uring) => uring.next(),
            other => without_ring(other),
        }
    }

    fn put_back(&mut self, results: &[Cqe]) {
        delegate!(self, |driver| driver.put_back(results));
    }

    fn append(&mut self, results: &[Cqe]) {
        delegate!(self, |driver| driver.append(results));
    }

    fn supports(&self, opcode: Opcode) -> bool {
        delegate!(self, |driver| driver.supports(opcode))
    }
}
