//! What a loop needs of a backend: take calls, hand them over, give results.
//!
//! The interface is the ring's own shape, because the ring is the stricter of the two: a call is
//! queued, everything queued is submitted together, and results come in any order. A backend
//! performs calls; it owns none of the memory in them (the slots do) and never runs a user's code.

pub(crate) mod classic;
mod cqe;
mod driver;
pub(crate) mod uring;

use std::{io, task::Waker, time::Instant};

use classic::Classic;
pub(crate) use cqe::Cqe;
pub(crate) use driver::Driver;
use uring::Uring;

use crate::{
    buf::{Entries, Token},
    descriptor::Blocking,
    error::Errno,
    flight::call::Call,
    op::Opcode,
    settings::{
        failure::{FallbackReason, SetupError},
        restriction::Guard,
        setup::{Backend, BackendChoice, Builder, Effect, Setup, SetupFlags},
        stats::Stats,
    },
    sim::driver::Simulated,
};

/// Entries of the completion queue that the loop keeps for itself: the poll by which threads wake
/// a ring, and a cancel.
pub(crate) const OWN_ENTRIES: u32 = 2;

/// The same call on whichever backend there is.
macro_rules! delegate {
    ($self:expr, |$driver:ident| $call:expr) => {
        match $self {
            AnyDriver::Uring($driver) => $call,
            AnyDriver::Classic($driver) => $call,
            AnyDriver::Simulated($driver) => $call,
        }
    };
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
        let entries = builder.submissions().next_power_of_two();
        let classic =
            Classic::new(builder.classic_threads, entries as usize).map_err(SetupError::Classic)?;
        let setup = describe_by_calls(builder, Backend::Classic, Some(reason));
        Ok((AnyDriver::Classic(classic), setup))
    }

    fn open_simulated(builder: &Builder) -> Result<(AnyDriver, Setup), SetupError> {
        let simulation = builder.simulation.as_ref().expect("seen by the caller");
        let entries = builder.submissions().next_power_of_two() as usize;
        let driver = Simulated::new(simulation, builder.classic_threads, entries)
            .map_err(SetupError::Classic)?;
        let setup = describe_by_calls(builder, Backend::Simulated, None);
        Ok((AnyDriver::Simulated(Box::new(driver)), setup))
    }

    fn ring(&mut self) -> Option<&mut Uring> {
        match self {
            AnyDriver::Uring(uring) => Some(uring),
            AnyDriver::Classic(_) | AnyDriver::Simulated(_) => None,
        }
    }

    /// Why there is no ring to register anything with, if there is none.
    fn no_ring(&self) -> &'static str {
        if self.is_simulated() { "the loop is simulated" } else { "the loop runs on classic calls" }
    }

    /// The time by which deadlines go: the simulation's own where there is one.
    pub(crate) fn now(&self) -> Instant {
        match self {
            AnyDriver::Simulated(simulated) => simulated.now(),
            AnyDriver::Uring(_) | AnyDriver::Classic(_) => Instant::now(),
        }
    }

    pub(crate) fn count(&mut self, stats: &mut Stats) {
        delegate!(self, |driver| driver.count(stats));
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
        self.ring().is_some_and(|ring| ring.is_severed(user_data))
    }

    /// Mirrors an entry of the loop's table of files; others go by the descriptor.
    pub(crate) fn set_file(&mut self, entry: u32, fd: Option<i32>) -> Result<(), Errno> {
        self.ring().map_or(Ok(()), |ring| ring.set_file(entry, fd))
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
        self.ring().is_none_or(Uring::is_armed)
    }

    /// Gives the kernel a queue of buffers to choose from, and tells the number that it has there.
    pub(crate) fn register_entries(&mut self, entries: &Entries) -> Result<u16, String> {
        let reason = self.no_ring();
        self.ring().ok_or(reason)?.register_entries(entries)
    }

    /// Takes memory out of the ring that nobody uses any more.
    pub(crate) fn unregister(&mut self, token: Token) -> io::Result<()> {
        self.ring().map_or(Ok(()), |ring| ring.unregister(token))
    }

    /// What wakes the loop from elsewhere.
    pub(crate) fn waker(&mut self) -> io::Result<Waker> {
        match self {
            AnyDriver::Uring(uring) => uring.waker(),
            AnyDriver::Classic(classic) => Ok(classic.waker()),
            AnyDriver::Simulated(simulated) => Ok(simulated.waker()),
        }
    }

    /// From now on a nudge is a result.
    pub(crate) fn expect_nudges(&mut self) {
        delegate!(self, |driver| driver.expect_nudges());
    }

    /// Takes out the results that `keep` refuses; on a ring, of all that are there.
    pub(crate) fn sift(&mut self, keep: &mut dyn FnMut(Cqe) -> bool) {
        delegate!(self, |driver| driver.sift(keep));
    }

    /// Whether a send that succeeds may have no result.
    pub(crate) fn mutes_sends(&self) -> bool {
        matches!(self, AnyDriver::Uring(uring) if uring.mutes_sends())
    }

    /// Whether all that was queued was handed over, and every result of it that is there is seen.
    pub(crate) fn has_taken_all(&mut self) -> bool {
        self.ring().is_none_or(Uring::has_taken_all)
    }

    /// Whether a submit would find results without waiting.
    pub(crate) fn has_work(&mut self) -> bool {
        delegate!(self, |driver| driver.has_work())
    }

    pub(crate) fn register_region(&mut self, base: *mut u8, len: usize) -> Result<u16, String> {
        let reason = self.no_ring();
        self.ring().ok_or(reason)?.register_region(base, len)
    }
}

/// A loop without a ring holds as many operations as a ring of as many entries would.
fn describe_by_calls(
    builder: &Builder,
    backend: Backend,
    fallback: Option<FallbackReason>,
) -> Setup {
    let entries = builder.submissions().next_power_of_two();
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
        restriction: builder.restriction,
        guard: if builder.restriction.is_any() { Guard::Library } else { Guard::Nobody },
        files: Vec::new(),
    }
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
