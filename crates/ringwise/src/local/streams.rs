//! Operations with several results, or none: what the loop does with each result before its user
//! sees it.
//!
//! The slot of such an operation stays taken until its last result (invariant 1), which the kernel
//! marks with a flag. Results that say nothing to the user are absorbed here: buffers or
//! descriptors have run out, a multishot ended by itself, or a send was taken whole. If an
//! operation ended because something ran out, it is parked, and handed over again when that has
//! come back, never in a loop or by a timer. A nudge wakes a loop that sleeps
//! (`descriptor/closing.rs`, `buf/registered/group.rs`).

use std::{io, time::Instant};

use super::{
    Local,
    parked::{Part, Streams},
};

use crate::{
    backend::{AnyDriver, Cqe, Driver},
    buf::Group,
    descriptor::{Blocking, Target, closing},
    error::{Errno, Error},
    flight::{
        call::{Call, Context},
        completion,
        refusal::PushRefusal,
        slot::{BY_THREAD, OWN_NUDGE, Slots, Ticket},
    },
    op::{Hint, Kind, Manner, Opcode, Operation},
};

impl Local {
    /// Returns whether a [`submit`](Self::submit) would give completions without waiting, or has
    /// something to hand over again. On a ring this looks at memory shared with the kernel and
    /// makes no syscall, so a thread may poll it for some microseconds before it sleeps. On the
    /// classic backend it asks the epoll set, with a syscall that does not wait.
    ///
    /// Operations that were pushed and not submitted do not count.
    pub fn has_work(&mut self) -> bool {
        self.driver.has_work() || self.has_due()
    }

    /// Hands over again the accepts that were parked at the limit of descriptors. Call it when
    /// descriptors were closed that the library knows nothing of, or when the limit was raised. It
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

    /// Returns the error of an operation that cannot be handed over as it is.
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

    /// Prepares for an operation of this kind before it is pushed, so that the loop can be woken
    /// for it later.
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

    /// Handles an operation first if it cancels one of this kind. Returns its ticket if nothing is
    /// left to do, or else the operation.
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

    /// Notes the target of a cancel. The target may have ended without anybody having seen it, and
    /// then the backend does not find it. Handed over again, it would go on forever.
    fn doom(&mut self, cancel: &Operation) {
        let Some(&Kind::Cancel(target)) = cancel.0.as_deref() else { return };
        let goes_on = target.table == self.number
            && target.is_watched()
            && self.slots.get(target).is_some_and(may_be_handed_over_again);
        if goes_on && !self.streams.doomed.contains(&target) {
            self.streams.doomed.push(target);
        }
    }

    /// Ends the operations that are due or parked although a cancel was meant for them. Returns how
    /// many.
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

    /// Cancels an operation that is parked or due, which no backend has. Returns the cancel's own
    /// ticket, or the cancel if there is no such operation.
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

    /// Does the same as `drive`, with operations of this kind in flight.
    pub(super) fn drive_watched(
        &mut self,
        want: usize,
        deadline: Option<Instant>,
    ) -> Result<usize, Error> {
        let mut ready = 0;
        loop {
            self.rearm()?;
            // The loop does not wait for a muted send. It waits for a quiet send that has a result.
            let awaited = self.slots.in_flight().saturating_sub(self.streams.muted.len());
            let want = want.min(awaited).max(ready + usize::from(self.streams.quiet > 0));
            // Parked operations may wait for buffers that muted sends keep until the kernel is done
            // with them.
            let holds_buffers = !self.streams.parked.is_empty() && !self.streams.muted.is_empty();
            // The loop does not wait either while more operations may go on.
            let is_pass = holds_buffers || self.has_due();
            let want_now = if is_pass { 0 } else { want };
            self.drive_unwatched(want_now, deadline)?;
            let absorbed;
            (ready, absorbed) = self.sift();
            let is_over = ready >= want || deadline.is_some_and(|at| self.driver.now() >= at);
            let is_last = absorbed == 0 && !is_pass;
            // The submit that hands over a quiet send reports its failure, whatever else is ready,
            // even if the kernel holds results back.
            let is_told = self.streams.quiet == 0 && self.streams.muted.is_empty();
            if is_told && (is_last || (is_over && !self.has_due())) {
                return Ok(ready);
            }
        }
    }

    /// Absorbs all results that say nothing to the user, and drops the sends that are done. Returns
    /// how many results are left, and how many were absorbed.
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

    /// Ends the muted sends that the kernel has taken without a result: all their bytes were sent.
    fn retire_muted(&mut self) {
        if self.streams.muted.is_empty() {
            return;
        }
        // A send that has a result is not muted any more.
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

    /// Returns whether a submit would start something again, or ask for a nudge. This is for
    /// callers that take completions and then sleep elsewhere.
    pub(crate) fn has_unheeded(&self) -> bool {
        // After the last of these operations has gone, nobody looks any more, and nothing is to be
        // started.
        self.streams.is_unheeded && self.has_watched()
    }

    fn has_due(&self) -> bool {
        let returned = |ticket: &Ticket| self.slots.get(*ticket).is_none_or(may_go_on);
        !self.streams.due.is_empty() || self.streams.parked.iter().any(returned)
    }

    /// Hands over again the operations that are due, and those that were parked for something that
    /// has come back.
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
            // Its file was found once and is held. If it is not found now, the user has to know.
            Err(error) => {
                self.driver.append(&[Cqe::by_thread(ticket.user_data(), -error.errno())]);
            }
        }
    }

    /// Returns whether the ring makes it. The ring cannot receive into a group that the kernel does
    /// not have.
    pub(super) fn is_by_ring(&self, operation: &Operation) -> bool {
        let suits = match operation.0.as_deref() {
            Some(Kind::ReceiveMulti { group, .. }) => group.is_registered(),
            Some(Kind::Read { hint, .. } | Kind::Write { hint, .. }) => *hint != Hint::ByThread,
            _ => true,
        };
        let opcode = operation.opcode();
        let is_left = self.left_to_threads & 1 << opcode as u64 != 0
            // A thread cannot use a registered file.
            && !matches!(operation.target(), Some(Target::Registered(_)));
        suits
            && self.driver.supports(opcode)
            && !is_left
            && self.takes_file(operation)
            && self.is_pollable(operation)
    }

    /// Returns whether a polled ring can make it. Such a ring fails reads and writes of files that
    /// have no queue to poll (`EOPNOTSUPP`): pipes, and files that go through the page cache.
    fn is_pollable(&self, operation: &Operation) -> bool {
        !self.driver.is_polled()
            || match operation.target() {
                Some(Target::Descriptor(file)) => file.blocking() == Blocking::Device,
                _ => true,
            }
    }

    /// Leaves operations of this kind on files to the loop's threads from now on, because the
    /// kernel has no thread for them. Returns false if there is no ring.
    pub(crate) fn leave_to_threads(&mut self, opcode: Opcode) -> bool {
        let is_by_ring = self.driver.supports(opcode);
        self.left_to_threads |= u64::from(is_by_ring) << opcode as u64;
        is_by_ring || self.driver.leave_to_simulated_threads(opcode)
    }

    /// Takes a result that is the loop's own, or of an operation of this kind.
    #[inline(never)]
    pub(super) fn complete_special(&mut self, cqe: Cqe) -> Option<Part> {
        match Ticket::from_user_data(cqe.user_data, self.number) {
            Some(ticket) => self.complete_watched(ticket, cqe),
            None => {
                // The nudge was taken out, and nobody has looked yet for its reason.
                self.streams.is_unheeded |= cqe.user_data & !BY_THREAD == OWN_NUDGE;
                self.complete_own(cqe);
                None
            }
        }
    }

    /// Returns the parts of a completion; see `complete`.
    fn complete_watched(&mut self, ticket: Ticket, mut cqe: Cqe) -> Option<Part> {
        if cqe.result == -libc::EINTR && !cqe.is_by_thread() {
            // As for other operations, an interruption is a cancel.
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
            // Such a send does not wait for a full socket: no byte was taken.
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

    /// Ends the parked operations as cancelled, because the loop is about to end. Nothing is parked
    /// any more after this.
    pub(super) fn end_parked(&mut self) {
        self.streams.is_closing = true;
        let Streams { due, parked, .. } = &mut self.streams;
        let cancelled: Vec<Cqe> =
            due.drain(..).chain(parked.drain(..)).map(|t| Cqe::cancelled(t.user_data())).collect();
        self.driver.append(&cancelled);
    }

    pub(super) fn has_watched(&self) -> bool {
        // A nudge that comes after all of them have ended has to be absorbed too.
        self.streams.watched > 0 || self.streams.expects_nudges
    }
}

/// Notes how much had come back when an operation is handed over. If it is parked, it waits only
/// until more has come back.
fn note_arming(operation: &mut Operation) {
    match operation.0.as_deref_mut() {
        Some(Kind::AcceptMulti { armed_at, .. }) => *armed_at = closing::count(),
        Some(Kind::ReceiveMulti { armed_at, has_received, group, .. }) => {
            (*armed_at, *has_received) = (group.returns(), false);
        }
        _ => {}
    }
}

/// Returns whether it may end without its user noticing, to be handed over again.
fn may_be_handed_over_again(operation: &Operation) -> bool {
    matches!(operation.opcode(), Opcode::AcceptMulti | Opcode::ReceiveMulti | Opcode::SendZeroCopy)
}

/// Returns whether something with which it may go on has come back since it was handed over.
fn may_go_on(operation: &Operation) -> bool {
    match operation.0.as_deref() {
        Some(Kind::AcceptMulti { armed_at, .. }) => closing::count() > *armed_at,
        Some(Kind::ReceiveMulti { group, .. }) => group.returned() > 0,
        _ => true,
    }
}

/// Counts the receives of each group that go on in one pass. They are no more than the buffers that
/// came back, since nearly all others would find none and be handed over for nothing.
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

/// Asks for a nudge when the buffer or descriptor that it waits for comes back.
fn await_return(slots: &Slots, ticket: Ticket, driver: &mut AnyDriver) {
    match slots.get(ticket).and_then(|operation| operation.0.as_deref()) {
        Some(Kind::ReceiveMulti { group, .. }) => group.await_return(),
        Some(Kind::AcceptMulti { .. }) => {
            // The waker was made when the operation was pushed.
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
