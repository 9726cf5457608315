//! Operations that have several results, or none: what the loop makes of each before its user sees
//! it.
//!
//! The slot of such an operation stays taken until the last of its results (invariant 1), which
//! the kernel's flag tells and not the number. A result that says nothing to the user is absorbed
//! here: buffers or descriptors have run out, a multishot ended by itself, a send was taken whole.
//! What ended for want of something is parked and handed over again when that came back, never in
//! a loop nor by a timer: a nudge wakes a loop that sleeps (`descriptor/closing.rs`,
//! `buf/group.rs`).

use std::{io, time::Instant};

use super::{
    Local,
    parked::{Part, Streams},
};

use crate::{
    backend::{AnyDriver, Cqe, Driver},
    buf::Group,
    call::{Call, Context},
    completion,
    descriptor::{Blocking, Target, closing},
    error::{Errno, Error},
    op::{Hint, Kind, Manner, Opcode, Operation},
    refusal::PushRefusal,
    slot::{BY_THREAD, OWN_NUDGE, Slots, Ticket},
};

impl Local {
    /// Whether a [`submit`](Self::submit) would give completions without waiting, or has something
    /// to hand over again. On a ring it looks at memory shared with the kernel and makes no system
    /// call, so a thread may watch it for some microseconds before it sleeps; on classic calls it
    /// asks the epoll set, with one that does not wait.
    ///
    /// What was pushed and not submitted does not count.
    pub fn has_work(&mut self) -> bool {
        self.driver.has_work() || self.has_due()
    }

    /// Hands over again what accepts connections and was parked at the limit of descriptors: for
    /// when descriptors were closed, or the limit was raised, that the library knows nothing of. It
    /// takes effect with the next [`submit`](Self::submit).
    pub fn rearm_accepts(&mut self) {
        let Streams { parked, due, .. } = &mut self.streams;
        let slots = &self.slots;
        parked.retain(|ticket| {
            let accepts = slots.get(*ticket).is_some_and(|op| op.opcode() == Opcode::AcceptMulti);
            if accepts {
                due.push(*ticket);
            }
            !accepts
        });
    }

    /// Why an operation cannot be handed over as it is, if it cannot.
    pub(super) fn refusal(&self, operation: &Operation) -> Option<Error> {
        let (errno, advice) = match operation.0.as_deref()? {
            Kind::ReceiveMulti { group, .. } if !group.belongs_to(self.number) => {
                (libc::EINVAL, Some("the group of buffers was made with another loop"))
            }
            Kind::WriteMapped { .. } if self.driver.is_simulated() => {
                (libc::EOPNOTSUPP, Some("the simulated machine has no mappings"))
            }
            Kind::Unrepresentable(_) => (libc::EINVAL, None),
            kind if kind.is_unaddressable() => (libc::EINVAL, None),
            kind if kind.reads_into_constant() => (libc::EFAULT, None),
            _ => return None,
        };
        let error = Error::of(operation, Errno(errno));
        Some(advice.into_iter().fold(error, Error::advise))
    }

    /// Sees to it, before an operation of this kind is taken in, that it can be waked later.
    pub(super) fn prepare_watched(&mut self, operation: &Operation) -> Result<(), Error> {
        if operation.opcode() == Opcode::AcceptMulti {
            self.driver.waker().map_err(no_waker)?;
        }
        Ok(())
    }

    /// Notes an operation that is about to be handed over for the first time.
    pub(super) fn begin_watched(&mut self, ticket: Ticket) {
        self.streams.watched += 1;
        let Some((_, operation)) = self.slots.get_mut(ticket) else { return };
        note_arming(operation);
        if let Some(Kind::Send { manner: Manner::Quiet, .. }) = operation.0.as_deref() {
            if self.driver.mutes_sends() {
                self.streams.muted.push_back(ticket);
            } else {
                self.streams.quiet += 1;
            }
        }
    }

    /// What has to be done first with an operation that may be of this kind, or about one: its
    /// ticket where all is done by that.
    pub(super) fn take_up_parked(
        &mut self,
        operation: Operation,
        tag: u64,
    ) -> Result<Ticket, Operation> {
        if self.streams.watched == 0 {
            return Err(operation);
        }
        self.cancel_parked(operation, tag).inspect_err(|operation| self.doom(operation))
    }

    /// Notes what this cancel is for. It may have ended by now with nobody having seen that, and
    /// the backend does not find it then: handed over again, it would go on for ever.
    fn doom(&mut self, cancel: &Operation) {
        let Some(&Kind::Cancel(target)) = cancel.0.as_deref() else { return };
        let goes_on = target.table == self.number
            && target.is_watched()
            && self.slots.get(target).is_some_and(may_be_handed_over_again);
        if goes_on && !self.streams.doomed.contains(&target) {
            self.streams.doomed.push(target);
        }
    }

    /// Ends what was to be handed over again, or to wait for that, and was to be cancelled before
    /// anybody saw it; gives how many.
    fn end_doomed(&mut self) -> usize {
        let Streams { doomed, due, parked, .. } = &mut self.streams;
        if doomed.is_empty() {
            return 0;
        }
        let mut ended = Vec::new();
        for list in [due, parked] {
            list.retain(|ticket| {
                let is_doomed = doomed.contains(ticket);
                if is_doomed {
                    ended.push(Cqe::cancelled(ticket.user_data()));
                }
                !is_doomed
            });
        }
        self.driver.append(&ended);
        ended.len()
    }

    /// Cancels what is parked or waits to be handed over again: no backend has it. The cancel's
    /// own ticket, or the operation back.
    fn cancel_parked(&mut self, cancel: Operation, tag: u64) -> Result<Ticket, Operation> {
        let Some(&Kind::Cancel(target)) = cancel.0.as_deref() else { return Err(cancel) };
        let Streams { due, parked, .. } = &mut self.streams;
        let before = due.len() + parked.len();
        due.retain(|ticket| *ticket != target);
        parked.retain(|ticket| *ticket != target);
        if due.len() + parked.len() == before {
            return Err(cancel);
        }
        let ticket = self.slots.insert(cancel, tag);
        let done = Cqe::by_thread(ticket.user_data(), 0);
        self.driver.append(&[Cqe::cancelled(target.user_data()), done]);
        Ok(ticket)
    }

    /// As `drive`, with operations of this kind in flight.
    pub(super) fn drive_watched(
        &mut self,
        want: usize,
        deadline: Option<Instant>,
    ) -> Result<usize, Error> {
        let mut ready = 0;
        loop {
            self.rearm()?;
            // A send of which silence is hoped for is not waited for, one that tells is.
            let awaited = self.slots.in_flight().saturating_sub(self.streams.muted.len());
            let want = want.min(awaited).max(ready + usize::from(self.streams.quiet > 0));
            // What is parked may wait for buffers that silent sends have until the kernel is back.
            let holds_buffers = !self.streams.parked.is_empty() && !self.streams.muted.is_empty();
            // Nor is anything waited for while more of it may go on.
            let is_pass = holds_buffers || self.has_due();
            let want_now = if is_pass { 0 } else { want };
            self.drive_unwatched(want_now, deadline)?;
            let absorbed;
            (ready, absorbed) = self.sift();
            let is_over = ready >= want || deadline.is_some_and(|at| self.driver.now() >= at);
            let is_last = absorbed == 0 && !is_pass;
            // A quiet send's failure is told by the submit that handed it over, whatever else is
            // ready, even where the kernel holds results back.
            let is_told = self.streams.quiet == 0 && self.streams.muted.is_empty();
            if is_told && (is_last || (is_over && !self.has_due())) {
                return Ok(ready);
            }
        }
    }

    /// Absorbs what says nothing to the user, of all results that are there; drops the sends that
    /// are done. Gives how many results are left, and how many were absorbed.
    pub(super) fn sift(&mut self) -> (usize, usize) {
        let Local { driver, slots, streams, number, .. } = self;
        let (mut kept, mut absorbed) = (0, 0);
        driver.sift(&mut |cqe| {
            let is_absorbed = match Ticket::from_user_data(cqe.user_data, *number) {
                Some(ticket) => ticket.is_watched() && streams.absorb(slots, ticket, cqe),
                None => cqe.user_data & !BY_THREAD == OWN_NUDGE,
            };
            *(if is_absorbed { &mut absorbed } else { &mut kept }) += 1;
            !is_absorbed
        });
        self.retire_muted();
        self.drop_finished();
        (kept + self.end_doomed(), absorbed)
    }

    /// Absorbs one result, if it says nothing to the user.
    pub(super) fn absorb(&mut self, cqe: Cqe) -> bool {
        let is_absorbed = match Ticket::from_user_data(cqe.user_data, self.number) {
            Some(ticket) if ticket.is_watched() => {
                self.streams.absorb(&mut self.slots, ticket, cqe)
            }
            _ => false,
        };
        self.drop_finished();
        self.end_doomed();
        is_absorbed
    }

    /// Ends the sends of which the kernel said nothing when it had taken them: all was sent.
    fn retire_muted(&mut self) {
        if self.streams.muted.is_empty() {
            return;
        }
        // One that was heard of is awaited no longer, nor is it silent.
        let Local { slots, streams, .. } = self;
        streams.muted.retain(|ticket| {
            let operation = slots.get(*ticket).and_then(|operation| operation.0.as_deref());
            matches!(operation, Some(Kind::Send { manner: Manner::Quiet, .. }))
        });
        if !self.driver.has_taken_all() {
            return;
        }
        for ticket in std::mem::take(&mut self.streams.muted) {
            self.streams.finish(&mut self.slots, ticket);
        }
    }

    fn drop_finished(&mut self) {
        while let Some(mut operation) = self.streams.finished.pop() {
            self.settle(&mut operation, Cqe::default());
        }
    }

    /// Whether a submit would begin something again, or ask to be nudged for it: for whoever takes
    /// completions and then sleeps elsewhere.
    pub(crate) fn has_unheeded(&self) -> bool {
        // With the last of them gone nobody looks any more, and nothing is to be begun.
        self.streams.is_unheeded && self.has_watched()
    }

    fn has_due(&self) -> bool {
        let returned = |ticket: &Ticket| self.slots.get(*ticket).is_none_or(may_go_on);
        !self.streams.due.is_empty() || self.streams.parked.iter().any(returned)
    }

    /// Hands over again what is due, and what was parked for something that came back.
    fn rearm(&mut self) -> Result<(), Error> {
        let Local { streams, slots, driver, .. } = self;
        streams.is_unheeded = false;
        if !streams.parked.is_empty() {
            if !std::mem::replace(&mut streams.expects_nudges, true) {
                driver.expect_nudges();
            }
            let Streams { parked, due, .. } = streams;
            let mut spent = Spent::default();
            parked.retain(|ticket| {
                await_return(slots, *ticket, driver);
                let goes_on = slots.get(*ticket).is_none_or(|operation| spent.allows(operation));
                if goes_on {
                    due.push(*ticket);
                }
                !goes_on
            });
        }
        // The one that waited longest goes first.
        self.streams.due.reverse();
        while let Some(ticket) = self.streams.due.pop() {
            if let Err(reason) = self.make_room() {
                self.streams.due.push(ticket);
                let (PushRefusal::Rejected(error) | PushRefusal::Submit(error)) = reason else {
                    return Ok(());
                };
                return Err(error);
            }
            self.hand_over_again(ticket);
        }
        Ok(())
    }

    fn hand_over_again(&mut self, ticket: Ticket) {
        let Some(operation) = self.slots.get(ticket) else { return };
        let by_ring = self.is_by_ring(operation);
        match self.resolve(operation, by_ring) {
            Ok((file, blocking)) => {
                let context = Context { ring: self.number, file, entry: None, cancels: None };
                let (_, operation) = self.slots.get_mut(ticket).expect("found just now");
                note_arming(operation);
                let call = Call::lower(operation, context);
                self.driver.queue(ticket.user_data(), call, blocking);
            }
            // Its file was found once and is held; were it not, its user has to know.
            Err(error) => {
                self.driver.append(&[Cqe::by_thread(ticket.user_data(), -error.errno())]);
            }
        }
    }

    /// Whether the ring makes it: receives into a group that the kernel does not have, it cannot.
    pub(super) fn is_by_ring(&self, operation: &Operation) -> bool {
        let suits = match operation.0.as_deref() {
            Some(Kind::ReceiveMulti { group, .. }) => group.is_registered(),
            Some(Kind::Read { hint, .. } | Kind::Write { hint, .. }) => *hint != Hint::ByThread,
            _ => true,
        };
        let opcode = operation.opcode();
        let is_left = self.left_to_threads & 1 << opcode as u64 != 0
            // No thread can have it.
            && !matches!(operation.target(), Some(Target::Registered(_)));
        suits
            && self.driver.supports(opcode)
            && !is_left
            && self.takes_file(operation)
            && self.is_pollable(operation)
    }

    /// A polled ring fails reads and writes of what has no queue to poll (`EOPNOTSUPP`): the cache's, a
    /// pipe's.
    fn is_pollable(&self, operation: &Operation) -> bool {
        !self.driver.is_polled()
            || match operation.target() {
                Some(Target::Descriptor(file)) => file.blocking() == Blocking::Device,
                _ => true,
            }
    }

    /// Leaves such operations on files to the loop's threads from now on, where the kernel has none for
    /// them. False where there is no ring.
    pub(crate) fn leave_to_threads(&mut self, opcode: Opcode) -> bool {
        let is_by_ring = self.driver.supports(opcode);
        self.left_to_threads |= u64::from(is_by_ring) << opcode as u64;
        is_by_ring || self.driver.leave_to_simulated_threads(opcode)
    }

    /// A result that is the loop's own, or of an operation of this kind.
    #[inline(never)]
    pub(super) fn complete_special(&mut self, cqe: Cqe) -> Option<Part> {
        match Ticket::from_user_data(cqe.user_data, self.number) {
            Some(ticket) => self.complete_watched(ticket, cqe),
            None => {
                // Whoever takes it out has yet to look for what it was for.
                self.streams.is_unheeded |= cqe.user_data & !BY_THREAD == OWN_NUDGE;
                self.complete_own(cqe);
                None
            }
        }
    }

    /// As the parts of a completion: see `complete`.
    fn complete_watched(&mut self, ticket: Ticket, mut cqe: Cqe) -> Option<Part> {
        if cqe.result == -libc::EINTR && !cqe.is_by_thread() {
            // As for other operations: what interrupts one is a cancel.
            cqe.result = -libc::ECANCELED;
        }
        if self.streams.absorb(&mut self.slots, ticket, cqe) {
            self.drop_finished();
            self.end_doomed();
            return None;
        }
        let Some((tag, operation)) = self.slots.get_mut(ticket) else {
            self.stats.stale_completions += 1;
            return None;
        };
        let brought = match operation.0.as_deref_mut() {
            Some(Kind::AcceptMulti { .. }) if cqe.result >= 0 => {
                Some(Kind::Accepted(Some(completion::adopt_accepted(cqe.result))))
            }
            Some(Kind::ReceiveMulti { group, .. }) => {
                // A buffer can come with an end of the stream too, and goes back at once.
                let lease =
                    cqe.buffer().map(|index| group.lease(index, cqe.result.max(0) as usize));
                lease.filter(|_| cqe.result > 0).map(Kind::Received)
            }
            _ => None,
        };
        let Some(brought) = brought else { return self.end_watched(ticket, tag, cqe) };
        let result = if matches!(brought, Kind::Accepted(_)) { 0 } else { cqe.result };
        let part = |ticket| Part { ticket, tag, operation: Operation::of(brought), result };
        if cqe.has_more() {
            return Some(part(ticket.with_more()));
        }
        if self.streams.is_closing {
            drop(self.end_watched(ticket, tag, cqe));
            return Some(part(ticket));
        }
        // The kernel ended it without an error.
        self.streams.due.push(ticket);
        self.streams.is_unheeded = true;
        self.end_doomed();
        Some(part(ticket.with_more()))
    }

    fn end_watched(&mut self, ticket: Ticket, tag: u64, cqe: Cqe) -> Option<Part> {
        self.slots.free(ticket)?;
        self.streams.watched -= 1;
        self.streams.doomed.retain(|doomed| *doomed != ticket);
        self.streams.muted.retain(|muted| *muted != ticket);
        let mut operation = self.slots.take(ticket);
        self.settle(&mut operation, cqe);
        let result = match operation.0.as_deref() {
            // It does not wait for a socket that is full: nothing of it was taken.
            Some(Kind::Send { manner: Manner::Quiet | Manner::Loud, .. })
                if cqe.result == -libc::EAGAIN =>
            {
                0
            }
            Some(Kind::Send { manner: Manner::ZeroCopy { sent: Some(sent) }, .. })
                if cqe.is_notification() =>
            {
                *sent
            }
            _ => cqe.result,
        };
        Some(Part { ticket, tag, operation, result })
    }

    /// The loop is about to end: what is parked ends as cancelled, and nothing is parked any more.
    pub(super) fn end_parked(&mut self) {
        self.streams.is_closing = true;
        let Streams { due, parked, .. } = &mut self.streams;
        let cancelled: Vec<Cqe> =
            due.drain(..).chain(parked.drain(..)).map(|t| Cqe::cancelled(t.user_data())).collect();
        self.driver.append(&cancelled);
    }

    pub(super) fn has_watched(&self) -> bool {
        // A nudge that comes when all of them are over is nobody's result either.
        self.streams.watched > 0 || self.streams.expects_nudges
    }
}

/// Notes how much had come back when an operation is handed over: it is parked only until more has.
fn note_arming(operation: &mut Operation) {
    match operation.0.as_deref_mut() {
        Some(Kind::AcceptMulti { armed_at, .. }) => *armed_at = closing::count(),
        Some(Kind::ReceiveMulti { armed_at, group, .. }) => *armed_at = group.returns(),
        _ => {}
    }
}

/// Whether it may end without its user hearing of it, to be handed over again.
fn may_be_handed_over_again(operation: &Operation) -> bool {
    matches!(operation.opcode(), Opcode::AcceptMulti | Opcode::ReceiveMulti | Opcode::SendZeroCopy)
}

/// Whether something came back since it was handed over that it may go on with.
fn may_go_on(operation: &Operation) -> bool {
    match operation.0.as_deref() {
        Some(Kind::AcceptMulti { armed_at, .. }) => closing::count() > *armed_at,
        Some(Kind::ReceiveMulti { group, .. }) => group.returned() > 0,
        _ => true,
    }
}

/// How many receives of each group go on in one pass: no more than buffers came back, or nearly all
/// would find none and be handed over for nothing.
#[derive(Default)]
struct Spent(Vec<(*const Group, u64)>);

impl Spent {
    fn allows(&mut self, operation: &Operation) -> bool {
        let Some(Kind::ReceiveMulti { group, .. }) = operation.0.as_deref() else {
            return may_go_on(operation);
        };
        let (name, _) = group.lower();
        let at = self.0.iter().position(|(other, _)| *other == name).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push((name, 0));
        }
        let spent = &mut self.0[at].1;
        let allows = *spent < group.returned();
        *spent += u64::from(allows);
        allows
    }
}

/// Asks for a nudge when what it is parked for comes back.
fn await_return(slots: &Slots, ticket: Ticket, driver: &mut AnyDriver) {
    match slots.get(ticket).and_then(|operation| operation.0.as_deref()) {
        Some(Kind::ReceiveMulti { group, .. }) => group.await_return(),
        Some(Kind::AcceptMulti { .. }) => {
            // It was made when the operation was pushed.
            if let Ok(wake) = driver.waker() {
                closing::await_next(wake);
            }
        }
        _ => {}
    }
}

pub(super) fn no_waker(error: io::Error) -> Error {
    Error::new(Opcode::Register, Errno(error.raw_os_error().unwrap_or(libc::EIO)))
        .advise("no descriptor is to be had to wake the loop by")
}
