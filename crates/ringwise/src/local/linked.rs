//! Chains: each operation starts when the one before it has completed in full.
//!
//! If the ring can, it runs a whole chain by itself (`IOSQE_IO_LINK`, Linux 5.3). Otherwise the
//! loop queues the next member when it sees that the one before is complete. Both mean the same: a
//! member that fails, or moves fewer bytes than it was asked to, ends the chain. The members after
//! it do nothing and complete with `ECANCELED` (io_uring_enter(2), `IOSQE_IO_LINK`: "any unexpected
//! result" is an error, a short read or write too).
//!
//! The loop repairs nothing: the caller decides what a short write means (invariant 11).

use std::time::Instant;

use super::{
    Local,
    chains::{Due, Expected, Member},
};
use crate::{
    backend::{Cqe, Driver},
    buf::MOVED_BYTES_MAX,
    descriptor::{Blocking, Target},
    error::{Errno, Error},
    flight::{
        call::{Call, Context, File},
        refusal::{LinkError, PushRefusal},
        slot::{BY_THREAD, NEVER_RAN, OWN_CANCEL, Room, Ticket},
    },
    op::{Closing, Kind, Opcode, Operation},
};

impl Local {
    /// Pushes a chain: each operation, given with its tag, starts when the one before it has
    /// completed in full. The chain is submitted with the next [`submit`](Self::submit). Tickets
    /// come in the order of the operations, completions in any order.
    ///
    /// An operation that fails ends the chain. So does a read or write that moves fewer bytes than
    /// it was asked to, even at a file's end. The operations after it do nothing and fail with
    /// [`Cancelled`](crate::ErrorKind::Cancelled). So if a sync succeeds, the writes before it in
    /// the chain were made in full.
    ///
    /// An operation that waits for its turn cannot be cancelled at once: the cancel fails with
    /// [`TooLateToCancel`](crate::ErrorKind::TooLateToCancel), and the operation is cancelled when
    /// its turn comes.
    ///
    /// On a ring the kernel goes from one operation to the next by itself, if it makes all of them
    /// and they fit into its queues. Otherwise the loop does it, for example with a submission
    /// thread, with polling, and before Linux 5.18. Then each step needs a submit or a wait after
    /// the step before it has completed.
    ///
    /// # Errors
    ///
    /// [`LinkError`] with all operations in it; none of them was taken. Either too many are in
    /// flight, or one of them cannot be handed over, such as a close or an open into the table of
    /// registered files.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Local, Operation};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let mut local = Local::new()?;
    /// let file = Descriptor::from(std::fs::File::create(&path)?);
    /// let write = Operation::write_at(&file, b"a record".to_vec(), 0);
    /// local.push_linked(vec![(write, 1), (Operation::sync_data(&file), 2)])?;
    /// local.submit_and_wait(2)?;
    /// while let Some(done) = local.next_completion() {
    ///     println!("{}: {} bytes", done.opcode(), done.result()?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn push_linked(
        &mut self,
        operations: Vec<(Operation, u64)>,
    ) -> Result<Vec<Ticket>, LinkError> {
        let Checked { by_ring, files } = match self.check_chain(&operations) {
            Ok(checked) => checked,
            Err((place, reason)) => return Err(LinkError { operations, place, reason }),
        };
        let mut members = Vec::with_capacity(operations.len());
        let mut calls = Vec::with_capacity(operations.len());
        // Operations after one that waits wait too.
        let mut has_waiting = false;
        for ((operation, tag), (file, blocking, waits)) in operations.into_iter().zip(files) {
            let operation =
                if operation.is_nop() { Operation::of(Kind::LinkedNop) } else { operation };
            let expected = Expected::of(&operation);
            let (ticket, call) = self.place(operation, tag, Context { file, ..self.context() });
            has_waiting |= waits;
            // If the loop makes the chain, each member gets the permit of the one before it when
            // its turn comes.
            if has_waiting || !(by_ring || members.is_empty()) {
                self.slots.let_wait(ticket);
            }
            calls.push((ticket.user_data(), call));
            members.push(Member {
                ticket,
                expected,
                call: Some((call, blocking)),
                waits,
                is_doomed: false,
            });
        }
        if by_ring && self.driver.queue_linked(&calls) {
            members.iter_mut().for_each(|member| member.call = None);
        }
        let tickets = members.iter().map(|member| member.ticket).collect();
        if !members.is_empty() {
            self.chains.begin(members);
        }
        Ok(tickets)
    }

    fn context(&self) -> Context {
        Context { ring: self.number, file: None, entry: None, cancels: None }
    }

    /// Finds everything that a chain needs, and room for it, without taking anything. Returns
    /// whether the ring makes the whole chain, or the place of an operation that stands in the way
    /// and the reason.
    fn check_chain(
        &mut self,
        operations: &[(Operation, u64)],
    ) -> Result<Checked, (usize, PushRefusal)> {
        let len = operations.len();
        let mut by_ring = self.driver.links()
            && (2..=self.setup.submission_entries as usize).contains(&len)
            && operations.iter().all(|(operation, _)| self.links_by_ring(operation));
        let mut files = Vec::with_capacity(len);
        for (at, (operation, _)) in operations.iter().enumerate() {
            let rejected = |error| (at, PushRefusal::Rejected(error));
            check_member(operation).map_err(rejected)?;
            let by_ring = self.is_by_ring(operation);
            let room = self.room_for(operation, by_ring);
            let by_ring = by_ring && room != Room::WaitsBeside;
            let (file, blocking) = self.resolve(operation, by_ring).map_err(rejected)?;
            files.push((file, blocking, room.waits()));
        }
        let permits = self.slots.capacity().saturating_sub(self.slots.working());
        let waits = files.first().is_some_and(|(.., waits)| *waits);
        if !(permits > 0 || waits) || !self.slots.has_number() {
            return Err((0, PushRefusal::Full));
        }
        by_ring &= permits >= len || waits;
        if by_ring {
            // The kernel ends a chain with the submit that it came in (io_uring/io_uring.c,
            // io_submit_state_end).
            self.make_room_for(len).map_err(|reason| (0, reason))?;
        }
        Ok(Checked { by_ring, files })
    }

    /// Returns whether the ring makes this operation and knows by itself whether it is complete. A
    /// link takes the normal end of a timeout for an error, and a cancel may be for the call of a
    /// thread.
    fn links_by_ring(&self, operation: &Operation) -> bool {
        let opcode = operation.opcode();
        let is_whole = match Expected::of(operation) {
            // The kernel cuts a longer length to this limit before it compares, so a link would not
            // see that bytes are missing.
            Expected::Bytes(asked) => asked <= MOVED_BYTES_MAX as u64,
            Expected::Success => true,
            Expected::Expiry => false,
        };
        let by_ring = self.is_by_ring(operation);
        is_whole
            && opcode != Opcode::Cancel
            && by_ring
            && self.room_for(operation, by_ring) != Room::WaitsBeside
    }

    /// Puts an operation of a chain into its slot, and lowers it there.
    fn place(&mut self, operation: Operation, tag: u64, context: Context) -> (Ticket, Call) {
        if let Some(Target::Registered(file)) = operation.target() {
            self.registry.begin(*file);
        }
        let ticket = self.slots.insert(operation, tag);
        (ticket, Call::lower(self.slots.operation_mut(ticket), context))
    }

    /// Takes a result of the loop's own, which nobody else gets.
    #[cold]
    pub(super) fn complete_own(&mut self, mut cqe: Cqe) {
        if !self.chains.is_empty() {
            self.observe(&mut cqe);
        }
    }

    /// Looks at a result on its way out.
    #[cold]
    pub(super) fn observe(&mut self, cqe: &mut Cqe) {
        let user_data = cqe.user_data & !(BY_THREAD | NEVER_RAN);
        if cqe.result == -libc::ENOENT {
            self.observe_missed_cancel(user_data, cqe);
        }
        if !self.chains.contains(user_data) {
            return;
        }
        if cqe.result >= 0 && self.driver.is_severed(user_data) {
            // It may have run before its turn, so its success proves nothing.
            cqe.result = -libc::EIO;
        }
        if let Some((from, to)) = self.chains.hand_on(user_data) {
            // It may be out of its slot already.
            if self.slots.get(from).is_some() {
                self.slots.let_wait(from);
            }
            self.slots.let_work(to);
        }
        let mut ended = Vec::new();
        self.chains.observe(user_data, cqe.result, &mut ended);
        self.driver.append(&ended);
    }

    fn observe_missed_cancel(&mut self, user_data: u64, cqe: &mut Cqe) {
        if user_data == OWN_CANCEL {
            return self.chains.doom_all_again();
        }
        let Some(ticket) = Ticket::from_user_data(user_data, self.number) else { return };
        if let Some(Kind::Cancel(target)) = self.slots.operation_mut(ticket).0.as_deref()
            && self.chains.doom_again(target.user_data_in(self.number))
        {
            cqe.result = -libc::EALREADY;
        }
    }

    /// Looks at all results that are there, so that chains go on. Returns how many there are.
    fn observe_all(&mut self) -> usize {
        let mut results = Vec::new();
        while let Some(mut cqe) = self.driver.next() {
            self.observe(&mut cqe);
            // Nobody waits for the loop's own results.
            if cqe.user_data & !(BY_THREAD | NEVER_RAN) != OWN_CANCEL {
                results.push(cqe);
            }
        }
        self.driver.put_back(&results);
        results.len()
    }

    /// Returns whether a step of a chain waits for a submit.
    pub(crate) fn has_due_steps(&self) -> bool {
        !self.chains.due.is_empty()
    }

    /// Queues the steps whose turn has come.
    pub(super) fn start_due(&mut self) -> Result<(), PushRefusal> {
        while let Some(due) = self.chains.due.front().copied() {
            self.make_room()?;
            self.chains.due.pop_front();
            match due {
                Due::Start(ticket, call, blocking) => {
                    self.driver.queue(ticket.user_data(), call, blocking);
                }
                Due::Cancel(ticket) => {
                    self.queue_own_cancel(ticket);
                }
            }
        }
        Ok(())
    }

    /// Does the same as [`drive`](Self::drive), with chains that go on only if the loop looks at
    /// results.
    #[cold]
    pub(super) fn drive_chains(
        &mut self,
        want: usize,
        deadline: Option<Instant>,
    ) -> Result<usize, Error> {
        let failed = |errno| Error::new(Opcode::Submit, errno);
        loop {
            let ready = self.observe_all();
            if self.has_due_steps() {
                self.start_due().map_err(PushRefusal::into_error)?;
            }
            // Waits for one more result at a time, since a member may wait for each.
            let goal = if ready < want { ready + 1 } else { 0 };
            let came = self.driver.submit(goal, deadline).map_err(failed)? > ready;
            let ready = self.observe_all();
            if !self.has_due_steps() && (ready >= want || !came) {
                return Ok(ready);
            }
        }
    }

    /// Cancels an operation that waits for its turn in a chain, so that it does not run. Returns
    /// false if it does not wait there.
    pub(super) fn dooms(&mut self, user_data: u64) -> Result<bool, PushRefusal> {
        if self.chains.is_empty() {
            return Ok(false);
        }
        // A result that nobody has looked at yet may have ended the wait.
        self.observe_all();
        self.start_due()?;
        Ok(self.chains.doom(user_data))
    }
}

/// The needs of a chain.
struct Checked {
    /// Whether the ring makes the whole chain.
    by_ring: bool,
    /// The file of each member, and whether the member waits without a permit.
    files: Vec<(Option<File>, Blocking, bool)>,
}

/// Refuses operations that change the loop's own tables, or that give away something that a failure
/// has to give back.
fn check_member(operation: &Operation) -> Result<(), Error> {
    let (errno, advice) = match operation.0.as_deref() {
        _ if operation.is_watched() => {
            (libc::EOPNOTSUPP, "what has several completions, or none, cannot be part of a chain")
        }
        Some(Kind::Close(Closing::Descriptor(_) | Closing::Registered(_))) => {
            (libc::EOPNOTSUPP, "a close cannot be part of a chain")
        }
        Some(Kind::Open(open)) if open.into_table => {
            (libc::EOPNOTSUPP, "a file cannot be opened into the table as part of a chain")
        }
        _ => return Ok(()),
    };
    Err(Error::of(operation, Errno(errno)).advise(advice))
}
