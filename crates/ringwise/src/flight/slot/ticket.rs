//! The name of an operation in flight, and how it lies in the number that the kernel hands back.
//!
//! The number has the slot's index, its generation and a few marks of how a result came about. Which
//! slots there are is `slot.rs`'s to know.

use std::num::NonZeroU64;

/// The name of one pushed operation. A later operation in the same slot has another ticket.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise::{ErrorKind, Local, Operation};
///
/// let mut local = Local::new()?;
/// let ticket = local.push(Operation::timeout(Duration::from_secs(60)), 1)?;
/// local.push(Operation::cancel(ticket), 2)?;
/// local.submit_and_wait(2)?;
/// while let Some(done) = local.next_completion() {
///     if done.ticket() == ticket {
///         assert_eq!(done.result().unwrap_err().kind(), ErrorKind::Cancelled);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The slot's index and generation, as the kernel hands them back. One number, not two: what
    /// is taken apart and put together again for every completion shows in a no-op's price.
    pub(crate) number: NonZeroU64,
    /// The loop's number: another loop has a slot of this index too.
    pub(crate) table: u32,
}

/// Slot indices take the low 24 bits of the kernel's `user_data`, what kind of number it is the
/// next 8, the generation the high 32.
const INDEX_BITS: u32 = 24;
pub(super) const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// A slot's number with an even generation, which no operation in flight has.
const NOBODY: u64 = 0;

/// The `user_data` of what the loop submits for itself, not for a slot.
const INTERNAL: u64 = 1 << INDEX_BITS;
/// Marks a result that a thread of the loop made.
pub(crate) const BY_THREAD: u64 = 1 << (INDEX_BITS + 1);
/// Marks the result of a call that was cancelled before anybody made it.
pub(crate) const NEVER_RAN: u64 = 1 << (INDEX_BITS + 2);
/// An operation that may have several results, or none: the loop looks at each before it is a
/// completion. Part of the ticket's number, so that it is in every result by itself.
pub(crate) const WATCHED: u64 = 1 << (INDEX_BITS + 3);
/// In a completion's number, not in a ticket's: it is not the operation's last.
pub(crate) const MORE: u64 = 1 << (INDEX_BITS + 4);
/// The poll by which threads, and files that became ready, wake a ring.
pub(crate) const OWN_POLL: u64 = INTERNAL;
/// A cancel at the loop's end, whose own result nobody waits for.
pub(crate) const OWN_CANCEL: u64 = INTERNAL | 1;
/// Something came back that an operation of the loop is parked for.
pub(crate) const OWN_NUDGE: u64 = INTERNAL | 2;

/// What a ticket's number is made of: the rest says how its result came about.
const NUMBER_MASK: u64 = !(0xFF << INDEX_BITS) | WATCHED;

/// Occupied slots have odd generations, so this bit is in every ticket's number.
const OCCUPIED: NonZeroU64 = NonZeroU64::new(1 << 32).unwrap();

impl Ticket {
    /// Names no operation of any loop: 0 is no loop's number.
    pub(crate) const NONE: Ticket = Ticket { number: OCCUPIED, table: 0 };

    #[inline]
    pub(super) fn new(table: u32, index: u32, generation: u32) -> Ticket {
        Ticket { number: OCCUPIED | (u64::from(generation) << 32 | u64::from(index)), table }
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        (self.number.get() & INDEX_MASK) as usize
    }

    #[inline]
    pub(super) fn generation(self) -> u32 {
        (self.number.get() >> 32) as u32
    }

    #[inline]
    pub(crate) fn user_data(self) -> u64 {
        self.number.get()
    }

    /// The same, for an operation whose results the loop looks at first.
    pub(super) fn watched(self) -> Ticket {
        Ticket { number: self.number | WATCHED, table: self.table }
    }

    /// The same, of a completion that is not the operation's last.
    pub(crate) fn with_more(self) -> Ticket {
        Ticket { number: self.number | MORE, table: self.table }
    }

    #[inline]
    pub(crate) fn is_watched(self) -> bool {
        self.number.get() & WATCHED != 0
    }

    /// The number that a cancel by loop `table` looks for: nobody's, where the ticket is another
    /// loop's.
    pub(crate) fn user_data_in(self, table: u32) -> u64 {
        if self.table == table { self.user_data() } else { NOBODY }
    }

    /// Whether a result is anything but the one and only of an operation: one look, for all that
    /// are not.
    #[inline]
    pub(crate) fn is_special(user_data: u64) -> bool {
        user_data & (INTERNAL | WATCHED) != 0
    }

    /// The ticket in a completion's number, or nothing where it is one of the loop's own.
    #[inline]
    pub(crate) fn from_user_data(user_data: u64, table: u32) -> Option<Ticket> {
        if user_data & INTERNAL != 0 {
            return None;
        }
        let number = NonZeroU64::new(user_data & NUMBER_MASK)?;
        Some(Ticket { number, table })
    }
}
