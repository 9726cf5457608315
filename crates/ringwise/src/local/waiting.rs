//! Operations that wait take no room from operations that work.
//!
//! A completion queue has a limited size, and each operation that may complete through it needs a
//! permit (invariant 3). An operation that may wait forever would keep its permit forever: with a
//! few hundred silent connections nothing else would run, not even deadlines. So the operations
//! that wait leave half of the permits to the others. On a ring, the operations beyond that wait
//! beside it, in the epoll set and the timers of its classic backend, where each costs an entry. On
//! the classic backend all of them wait there. Their results need no room in the queue.
//!
//! Accepts, and operations with several results, stay with the ring and take no permit at all. The
//! kernel keeps the results that do not fit into the queue (`IORING_FEAT_NODROP`), and there are
//! only as many accepts as listeners.

use super::Local;
use crate::{
    descriptor::{Blocking, Target},
    flight::slot::Room,
    op::{Kind, Manner, Operation},
};

impl Local {
    /// Returns whether an operation is accepted only while there are permits.
    pub(crate) fn needs_permit(&self, operation: &Operation) -> bool {
        !self.room_for(operation, self.is_by_ring(operation)).waits()
    }

    /// Returns where an operation finds room. `by_ring`: the ring could make it.
    #[inline]
    pub(super) fn room_for(&self, operation: &Operation, by_ring: bool) -> Room {
        match operation.0.as_deref() {
            Some(Kind::Accept { .. } | Kind::AcceptMulti { .. } | Kind::ReceiveMulti { .. }) => {
                Room::Waits
            }
            // Such a send never waits.
            Some(Kind::Send { manner: Manner::Quiet | Manner::Loud, .. }) => Room::Permit,
            Some(
                Kind::Receive { .. }
                | Kind::ReceiveMessage { .. }
                | Kind::Send { .. }
                | Kind::SendMessage { .. }
                | Kind::Connect { .. }
                | Kind::Timeout(_),
            ) => self.waiting_room(operation, by_ring),
            Some(
                Kind::Read { .. }
                | Kind::Write { .. }
                | Kind::ReadVectored { .. }
                | Kind::WriteVectored { .. },
            ) if (self.is_crowded() || !by_ring) && self.is_on_stream(operation) => {
                self.waiting_room(operation, by_ring)
            }
            _ => Room::Permit,
        }
    }

    fn waiting_room(&self, operation: &Operation, by_ring: bool) -> Room {
        if !by_ring {
            Room::Waits
        } else if self.is_crowded() && self.can_be_made_beside(operation) {
            Room::WaitsBeside
        } else {
            Room::Permit
        }
    }

    /// Returns whether half of the permits are taken.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.slots.working() >= self.slots.capacity() / 2
    }

    /// Returns whether its file may keep it waiting forever. The kind of a file is looked up once.
    /// A simulation's files are of no kind that the kernel knows.
    fn is_on_stream(&self, operation: &Operation) -> bool {
        if self.driver.is_simulated() {
            return false;
        }
        let descriptor = match operation.target() {
            Some(Target::Descriptor(descriptor)) => Some(descriptor),
            Some(Target::Registered(file)) => self.registry.descriptor(*file),
            None => None,
        };
        let blocking = descriptor.map(crate::Descriptor::blocking);
        matches!(blocking, Some(Blocking::Unbounded | Blocking::Socket { .. }))
    }

    /// Returns whether it can be made beside the ring. Only the ring has a file that was opened
    /// into its table.
    fn can_be_made_beside(&self, operation: &Operation) -> bool {
        match operation.target() {
            Some(Target::Registered(file)) => self.registry.descriptor(*file).is_some(),
            Some(Target::Descriptor(_)) | None => true,
        }
    }
}
