//! The in-flight table: every operation from its push to its last completion.
//!
//! A slot owns what the kernel may touch (invariant 1): the buffer, the descriptor's reference,
//! the path. It is found again by the number that the kernel hands back, which carries the slot's
//! index and its generation, so that a completion for an operation that is no longer there is
//! told from one that is (invariant 5). So many slots are permits to complete on the ring as its
//! completion queue has room for (invariant 3). What waits takes none and has a slot all the same
//! (`local/waiting.rs`). The table makes no system calls.

mod ticket;

pub use ticket::Ticket;
pub(crate) use ticket::{BY_THREAD, MORE, NEVER_RAN, OWN_CANCEL, OWN_NUDGE, OWN_POLL};

use ticket::INDEX_MASK;

use crate::op::Operation;

/// Where an operation finds room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It has a permit to complete on the ring.
    Permit,
    /// It waits where it is made, and needs none.
    Waits,
    /// It waits beside the ring that could make it.
    WaitsBeside,
}

impl Room {
    pub(crate) fn waits(self) -> bool {
        self != Room::Permit
    }
}

/// The table. It grows with what is in flight.
#[derive(Debug)]
pub(crate) struct Slots {
    table: u32,
    slots: Vec<Slot>,
    /// How many can have a permit.
    permits: usize,
    /// Those in flight without one.
    waiting: usize,
    /// The first free slot, or `NONE`; each free slot names the next. The last freed is used
    /// first, while it is in the cache.
    free: u32,
    inserted: u64,
    /// What `inserted` may come to: one look tells whether a permit is left. It is the number of those
    /// freed, of those that wait and of the permits.
    limit: u64,
}

#[derive(Debug)]
struct Slot {
    operation: Operation,
    /// The caller's number; in a free slot the next free one's index.
    tag: u64,
    /// Odd while the slot is occupied: one number tells whether a ticket is current.
    generation: u32,
    /// It has no permit.
    waits: bool,
}

const NONE: u32 = u32::MAX;

/// A slot that was freed: its tag, and whether it held a no-op.
pub(crate) struct Freed {
    pub(crate) tag: u64,
    pub(crate) nop: bool,
}

impl Slots {
    pub(crate) fn new(capacity: usize, table: u32) -> Slots {
        let slots = Vec::new();
        let limit = capacity as u64;
        Slots { table, slots, permits: capacity, waiting: 0, free: NONE, inserted: 0, limit }
    }

    /// How many can have a permit.
    pub(crate) fn capacity(&self) -> usize {
        self.permits
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.working() + self.waiting
    }

    /// Operations ever taken in.
    pub(crate) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Operations in flight that have a permit.
    #[inline]
    pub(crate) fn working(&self) -> usize {
        (self.inserted + self.permits as u64 - self.limit) as usize
    }

    /// Operations in flight that have none.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether every permit is taken.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.inserted >= self.limit
    }

    /// Whether there is a number for another operation.
    pub(crate) fn has_number(&self) -> bool {
        self.free != NONE || (self.slots.len() as u64) < INDEX_MASK
    }

    /// Gives the permit of an operation back: it waits, and completes without one.
    pub(crate) fn let_wait(&mut self, ticket: Ticket) {
        let slot = &mut self.slots[ticket.index()];
        if !std::mem::replace(&mut slot.waits, true) {
            (self.waiting, self.limit) = (self.waiting + 1, self.limit + 1);
        }
    }

    /// Gives one that waited a permit, whether or not one is left: what had it before has its result.
    pub(crate) fn let_work(&mut self, ticket: Ticket) {
        let slot = &mut self.slots[ticket.index()];
        if std::mem::replace(&mut slot.waits, false) {
            (self.waiting, self.limit) = (self.waiting - 1, self.limit - 1);
        }
    }

    /// Takes an operation in. The caller has seen that the table is not full.
    pub(crate) fn insert(&mut self, operation: Operation, tag: u64) -> Ticket {
        let ticket = self.insert_nop(tag);
        let watched = operation.is_watched();
        self.slots[ticket.index()].operation = operation;
        if watched { ticket.watched() } else { ticket }
    }

    /// As [`insert`](Self::insert) of a no-op, which a free slot holds anyway.
    #[inline]
    pub(crate) fn insert_nop(&mut self, tag: u64) -> Ticket {
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.tag as u32;
        slot.tag = tag;
        slot.generation = slot.generation.wrapping_add(1);
        self.inserted += 1;
        Ticket::new(self.table, index, slot.generation)
    }

    #[cold]
    fn grow(&mut self) {
        self.free = u32::try_from(self.slots.len()).expect("the caller has seen to a number");
        let (operation, tag) = (Operation(None), u64::from(NONE));
        self.slots.push(Slot { operation, tag, generation: 0, waits: false });
    }

    /// The operation in its place, from where the kernel is told its addresses.
    #[inline]
    pub(crate) fn operation_mut(&mut self, ticket: Ticket) -> &mut Operation {
        &mut self.slots[ticket.index()].operation
    }

    /// The operation of a ticket that is current.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Operation> {
        let slot = self.slots.get(ticket.index())?;
        let is_current = slot.generation == ticket.generation() && slot.generation % 2 == 1;
        is_current.then_some(&slot.operation)
    }

    /// The tag and the operation of a ticket that is current.
    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<(u64, &mut Operation)> {
        let slot = self.slots.get_mut(ticket.index())?;
        let is_current = slot.generation == ticket.generation() && slot.generation % 2 == 1;
        is_current.then_some((slot.tag, &mut slot.operation))
    }

    /// Frees a slot after its operation's last completion. Nothing where the ticket is stale. The
    /// operation is there to be [taken](Self::take) until the next insertion, and has to be,
    /// unless it is a no-op.
    #[inline]
    pub(crate) fn free(&mut self, ticket: Ticket) -> Option<Freed> {
        let slot = self.slots.get_mut(ticket.index())?;
        if slot.generation != ticket.generation() || slot.generation % 2 == 0 {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let tag = std::mem::replace(&mut slot.tag, u64::from(self.free));
        self.free = ticket.index() as u32;
        if std::mem::take(&mut slot.waits) {
            self.waiting -= 1;
        } else {
            self.limit += 1;
        }
        Some(Freed { tag, nop: slot.operation.is_nop() })
    }

    /// Takes the operation out of a slot that was just freed.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Operation {
        let slot = &mut self.slots[ticket.index()];
        std::mem::replace(&mut slot.operation, Operation(None))
    }

    /// The operations in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &Operation)> {
        let occupied = |slot: &Slot| slot.generation % 2 == 1;
        self.slots.iter().enumerate().filter(move |(_, slot)| occupied(slot)).map(
            |(index, slot)| {
                let ticket = Ticket::new(self.table, index as u32, slot.generation);
                let watched = slot.operation.is_watched();
                (if watched { ticket.watched() } else { ticket }, &slot.operation)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag_of(freed: Option<Freed>) -> Option<u64> {
        freed.map(|freed| freed.tag)
    }

    #[test]
    fn a_ticket_survives_the_kernel() {
        let ticket = Ticket::new(1, 65_535, u32::MAX);
        assert_eq!(Ticket::from_user_data(ticket.user_data(), 1), Some(ticket));
        assert_eq!(Ticket::from_user_data(ticket.user_data() | BY_THREAD, 1), Some(ticket));
        let watched = ticket.watched();
        assert_eq!(Ticket::from_user_data(watched.user_data() | BY_THREAD, 1), Some(watched));
        assert_eq!(Ticket::from_user_data(OWN_NUDGE, 1), None);
        assert_eq!(Ticket::from_user_data(OWN_POLL, 1), None);
        assert_eq!(Ticket::from_user_data(OWN_CANCEL, 1), None);
    }

    #[test]
    fn a_stale_ticket_finds_nothing() {
        let mut slots = Slots::new(1, 1);
        let first = slots.insert(Operation::nop(), 1);
        assert!(slots.is_full());
        assert_eq!(tag_of(slots.free(first)), Some(1));
        assert_eq!(tag_of(slots.free(first)), None, "completed twice");
        assert!(slots.get(first).is_none() && slots.get_mut(first).is_none());
        let second = slots.insert(Operation::nop(), 2);
        assert_eq!(tag_of(slots.free(first)), None, "completed for the slot's last user");
        assert!(slots.get(first).is_none() && slots.get_mut(first).is_none());
        assert!(slots.get(second).is_some() && slots.get_mut(second).is_some());
        assert_eq!(tag_of(slots.free(second)), Some(2));
    }

    #[test]
    fn every_slot_is_used_before_the_table_is_full() {
        let mut slots = Slots::new(3, 1);
        let tickets: Vec<Ticket> = (0..3).map(|tag| slots.insert(Operation::nop(), tag)).collect();
        assert!(slots.is_full());
        for (tag, ticket) in tickets.iter().enumerate() {
            assert_eq!(tag_of(slots.free(*ticket)), Some(tag as u64));
        }
        assert_eq!((slots.in_flight(), slots.inserted()), (0, 3));
        let again: Vec<Ticket> = (0..3).map(|tag| slots.insert(Operation::nop(), tag)).collect();
        assert!(slots.is_full());
        assert!(again.iter().all(|ticket| !tickets.contains(ticket)));
    }

    #[test]
    fn what_waits_takes_no_permit() {
        let mut slots = Slots::new(2, 1);
        let waiting: Vec<Ticket> = (0..5)
            .map(|tag| {
                let ticket = slots.insert(Operation::nop(), tag);
                slots.let_wait(ticket);
                ticket
            })
            .collect();
        assert_eq!((slots.in_flight(), slots.working(), slots.waiting()), (5, 0, 5));
        let working: Vec<Ticket> = (5..7).map(|tag| slots.insert_nop(tag)).collect();
        assert!(slots.is_full());
        waiting.iter().for_each(|ticket| assert!(slots.free(*ticket).is_some()));
        assert!(slots.is_full() && slots.in_flight() == 2);
        working.iter().for_each(|ticket| assert!(slots.free(*ticket).is_some()));
        assert_eq!((slots.in_flight(), slots.waiting()), (0, 0));
        let again = slots.insert_nop(7);
        assert_eq!(slots.working(), 1, "a slot that waited waits no longer");
        slots.free(again);
    }

    #[test]
    fn a_number_that_was_never_given_out_finds_nothing() {
        let mut slots = Slots::new(1, 1);
        assert!(slots.free(Ticket::new(1, 0, 1)).is_none());
        assert_eq!(slots.in_flight(), 0);
    }

    #[test]
    fn a_ticket_of_a_larger_table_finds_nothing() {
        let mut slots = Slots::new(1, 1);
        assert!(slots.free(Ticket::new(1, 7, 1)).is_none());
    }
}
