//! The end of a loop: nothing that the kernel still has is freed (invariant 7).
//!
//! What waits and may be dropped without harm is cancelled (`Opcode::cancels_on_shutdown`), and all other
//! operations go on to their end. Operations that do not come back in time are leaked and reported. Closing the ring is no barrier: the kernel's
//! own teardown goes on after it (io_uring_cancelation(7)).

use std::{
    io::{self, Write},
    time::Duration,
};

use super::{Leaked, Local};
use crate::{
    backend::Driver,
    descriptor::{Blocking, registry::Registry},
    flight::{
        call::Call,
        completion::Completion,
        slot::{OWN_CANCEL, Slots, Ticket},
    },
    op::Opcode,
};

/// How long a dropped loop waits for operations in flight before it leaks them.
const DROP_DEADLINE: Duration = Duration::from_secs(5);
/// The time that cancelled operations get to come back.
const LAST_MOMENT: Duration = Duration::from_millis(100);

impl Local {
    /// Ends the loop. Submits the pushed operations, cancels reads, receives, accepts, connects and timeouts, and waits
    /// until the others have ended, at most for `deadline`. Then cancels everything and gives it a last
    /// moment. Completions that nobody took are dropped with everything that they own.
    ///
    /// # Errors
    ///
    /// [`Leaked`] if the kernel still had operations. Their memory is leaked, since the kernel may
    /// still write to it.
    pub fn shutdown(mut self, deadline: Duration) -> Result<(), Leaked> {
        self.drain(deadline)
    }

    /// Waits for everything in flight, and leaks the operations that do not come back.
    fn drain(&mut self, time: Duration) -> Result<(), Leaked> {
        if self.slots.in_flight() == 0 {
            return Ok(());
        }
        self.cancel_where(Opcode::cancels_on_shutdown, &mut drop);
        self.reap_until(time);
        if self.slots.in_flight() > 0 {
            self.cancel_where(|_| true, &mut drop);
            self.reap_until(LAST_MOMENT);
        }
        let operations = self.slots.in_flight();
        if operations == 0 {
            return Ok(());
        }
        // Invariant 7: everything that the kernel or a thread still has stays where it is forever.
        // So do the files of the table: a thread may be using their numbers.
        std::mem::forget(std::mem::replace(&mut self.slots, Slots::new(0, 0)));
        std::mem::forget(std::mem::replace(&mut self.registry, Registry::new(0, 0)));
        Err(Leaked { operations })
    }

    /// Cancels every operation that may be cancelled when a loop ends. Completions that have to be
    /// taken meanwhile go to `take`. Returns false if the kernel did not take all cancels.
    pub(crate) fn cancel_for_shutdown(&mut self, take: &mut dyn FnMut(Completion)) -> bool {
        self.cancel_where(Opcode::cancels_on_shutdown, take)
    }

    fn cancel_where(
        &mut self,
        condition: impl Fn(Opcode) -> bool,
        take: &mut dyn FnMut(Completion),
    ) -> bool {
        self.end_parked();
        let tickets: Vec<Ticket> = self
            .slots
            .iter()
            .filter(|(_, operation)| condition(operation.opcode()))
            .map(|(ticket, _)| ticket)
            .collect();
        let mut tickets = &tickets[..];
        while !tickets.is_empty() {
            // A cancel has a completion too, and the queue must hold it beside those of all
            // operations in flight and of the poll. So a full loop sends one cancel at a time, and
            // more as operations end (invariant 3).
            let spare = self.setup.completion_entries as usize - 1 - self.slots.working();
            let (batch, rest) = tickets.split_at(spare.min(tickets.len()));
            tickets = rest;
            for ticket in batch {
                match self.dooms(ticket.user_data()) {
                    Ok(false) => {}
                    // It will not run when its turn comes.
                    Ok(true) => continue,
                    Err(_) => return false,
                }
                if self.make_room().is_err() {
                    return false;
                }
                self.queue_own_cancel(*ticket);
            }
            if self.driver.submit(0, None).is_err() {
                return false;
            }
            while let Some(done) = self.next_completion() {
                take(done);
            }
        }
        true
    }

    /// Queues a cancel of the loop's own. There must be room for it.
    pub(super) fn queue_own_cancel(&mut self, ticket: Ticket) {
        let fd = self.descriptor_of(ticket);
        let call = Call::Cancel { user_data: ticket.user_data(), fd };
        self.driver.queue(OWN_CANCEL, call, Blocking::Device);
    }

    fn reap_until(&mut self, time: Duration) {
        let deadline = self.driver.now().checked_add(time);
        loop {
            while let Some(done) = self.next_completion() {
                drop(done);
            }
            let over = deadline.is_some_and(|deadline| self.driver.now() >= deadline);
            if self.slots.in_flight() == 0 || over {
                return;
            }
            if self.has_watched() {
                self.sift();
            }
            if self.slots.in_flight() > 0 && self.drive(1, deadline).is_err() {
                // The kernel is short of memory; the deadline bounds how often this is tried.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Err(leaked) = self.drain(DROP_DEADLINE) {
            let _ = writeln!(io::stderr(), "ringwise: a loop was dropped: {leaked}");
        }
    }
}
