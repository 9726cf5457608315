//! The in-flight table: every operation from its push to its last completion.
//!
//! A slot owns what the kernel may touch (invariant 1): the buffer, the descriptor's reference,
//! the path. It is found again by the number that the kernel hands back, which carries the slot's
//! index and its generation, so that a completion for an operation that is no longer there is
//! told from one that is (invariant 5). A free slot is the permit to push (invariant 3): there
//! are never more slots than the completion queue has room for. The table makes no system calls.

use crate::op::{Kind, Operation};

/// Names one pushed operation; a later operation in the same slot has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

/// Slot indices take the low 24 bits of the kernel's `user_data`, what kind of number it is the
/// next 8, the generation the high 32.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// The `user_data` of what the loop submits for itself, not for a slot.
const INTERNAL: u64 = 1 << INDEX_BITS;
/// The poll on the eventfd by which threads wake a ring.
pub(crate) const OWN_POLL: u64 = INTERNAL;
/// A cancel at the loop's end, whose own result nobody waits for.
pub(crate) const OWN_CANCEL: u64 = INTERNAL | 1;

impl Ticket {
    pub(crate) fn user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The ticket in a completion's number, or nothing where it is one of the loop's own.
    pub(crate) fn from_user_data(user_data: u64) -> Option<Ticket> {
        if user_data & INTERNAL != 0 {
            return None;
        }
        Some(Ticket {
            index: (user_data & INDEX_MASK) as u32,
            generation: (user_data >> 32) as u32,
        })
    }
}

/// The table. Its length is the most that can be in flight.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    /// Indices of free slots; the last freed is used first, while it is in the cache.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    operation: Operation,
    tag: u64,
    generation: u32,
    occupied: bool,
}

impl Slots {
    pub(crate) fn new(capacity: usize) -> Slots {
        assert!(capacity as u64 <= INDEX_MASK, "the completion queue has at most 65536 entries");
        let vacant =
            || Slot { operation: Operation(Kind::Nop), tag: 0, generation: 0, occupied: false };
        Slots {
            slots: std::iter::repeat_with(vacant).take(capacity).collect(),
            free: (0..capacity as u32).rev().collect(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes an operation in. The caller has seen that the table is not full.
    #[inline]
    pub(crate) fn insert(&mut self, operation: Operation, tag: u64) -> Ticket {
        let index = self.free.pop().expect("the caller checked that a slot is free");
        let slot = &mut self.slots[index as usize];
        slot.operation = operation;
        slot.tag = tag;
        slot.occupied = true;
        Ticket { index, generation: slot.generation }
    }

    /// The operation in its place, from where the kernel is told its addresses.
    #[inline]
    pub(crate) fn operation_mut(&mut self, ticket: Ticket) -> &mut Operation {
        &mut self.slots[ticket.index as usize].operation
    }

    /// Lets an operation go after its last completion. Nothing where the ticket is stale.
    #[inline]
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<(Operation, u64)> {
        let slot = self.slots.get_mut(ticket.index as usize)?;
        if !slot.occupied || slot.generation != ticket.generation {
            return None;
        }
        slot.occupied = false;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(ticket.index);
        Some((std::mem::replace(&mut slot.operation, Operation(Kind::Nop)), slot.tag))
    }

    /// The operations in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &Operation)> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.occupied).map(|(index, slot)| {
            (Ticket { index: index as u32, generation: slot.generation }, &slot.operation)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_the_kernel() {
        let ticket = Ticket { index: 65_535, generation: u32::MAX };
        assert_eq!(Ticket::from_user_data(ticket.user_data()), Some(ticket));
        assert_eq!(Ticket::from_user_data(OWN_POLL), None);
        assert_eq!(Ticket::from_user_data(OWN_CANCEL), None);
    }

    #[test]
    fn a_stale_ticket_finds_nothing() {
        let mut slots = Slots::new(1);
        let first = slots.insert(Operation::nop(), 1);
        assert!(slots.is_full());
        assert!(slots.remove(first).is_some());
        assert!(slots.remove(first).is_none(), "completed twice");
        let second = slots.insert(Operation::nop(), 2);
        assert!(slots.remove(first).is_none(), "completed for the slot's last user");
        assert_eq!(slots.remove(second).unwrap().1, 2);
    }

    #[test]
    fn a_ticket_of_a_larger_table_finds_nothing() {
        let mut slots = Slots::new(1);
        assert!(slots.remove(Ticket { index: 7, generation: 0 }).is_none());
    }
}
