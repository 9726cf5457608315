//! Stands in for the simulated machine without the feature `sim`. Its types have no values, so code
//! that uses a simulation compiles with and without the feature. Nothing here can be called.

/// A simulation that cannot exist.
#[derive(Clone, Debug)]
pub(crate) enum Simulation {}

/// Defines the methods of a type without values from their signatures. `self` stands before each
/// because of macro hygiene.
macro_rules! absent {
    ($($kind:ident)+ { $($me:ident [$($signature:tt)*])* }) => {
        #[allow(unused_variables)]
        impl $($kind)+ { $($($signature)* { match *$me {} })* }
    };
}

pub(crate) mod driver {
    //! A backend that cannot exist.

    use std::{io, task::Waker, time::Instant};

    use super::Simulation;
    use crate::{
        backend::{Cqe, Driver},
        descriptor::Blocking,
        error::Errno,
        flight::call::Call,
        op::Opcode,
        settings::stats::Stats,
    };

    pub(crate) enum Simulated {}

    absent! { Simulated {
        of [pub(crate) fn new(of: &Simulation, _threads: usize, _entries: usize) -> io::Result<Self>]
        self [pub(crate) fn now(&self) -> Instant]
        self [pub(crate) fn count(&self, stats: &mut Stats)]
        self [pub(crate) fn waker(&self) -> Waker]
        self [pub(crate) fn leave_to_threads(&self, opcode: Opcode)]
        self [pub(crate) fn expect_nudges(&mut self)]
        self [pub(crate) fn sift(&mut self, keep: &mut dyn FnMut(Cqe) -> bool)]
        self [pub(crate) fn has_work(&mut self) -> bool]
    } }

    absent! { Driver for Simulated {
        self [fn has_room(&mut self) -> bool]
        self [fn queue_nop(&mut self, user_data: u64) -> bool]
        self [fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking)]
        self [fn has_room_for(&mut self, count: usize) -> bool]
        self [fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno>]
        self [fn next(&mut self) -> Option<Cqe>]
        self [fn put_back(&mut self, results: &[Cqe])]
        self [fn append(&mut self, results: &[Cqe])]
        self [fn supports(&self, opcode: Opcode) -> bool]
    } }
}

pub(crate) mod socket {
    //! Sockets that cannot exist.

    use std::time::Duration;

    use super::Simulation;
    use crate::{
        descriptor::Descriptor,
        net::{Address, KeepAlive, ListenOptions, Shutdown},
    };

    pub(crate) enum SimulatedSocket {}

    /// Returns nothing: no descriptor stands for a simulated socket.
    pub(crate) fn find(_descriptor: &Descriptor) -> Option<SimulatedSocket> {
        None
    }

    absent! { SimulatedSocket {
        self [pub(crate) fn local_address(&self) -> Result<Address, i32>]
        self [pub(crate) fn peer_address(&self) -> Result<Address, i32>]
        self [pub(crate) fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> Result<(), i32>]
        self [pub(crate) fn set_user_timeout(&self, timeout: Duration) -> Result<(), i32>]
        self [pub(crate) fn set_send_buffer(&self, bytes: usize) -> Result<(), i32>]
        self [pub(crate) fn set_receive_buffer(&self, bytes: usize) -> Result<(), i32>]
        self [pub(crate) fn set_reset_on_close(&self) -> Result<(), i32>]
        self [pub(crate) fn shutdown(&self, which: Shutdown) -> Result<(), i32>]
    } }

    absent! { Simulation {
        self [pub(crate) fn listen_at(&self, address: &Address, options: &ListenOptions) -> Result<Descriptor, i32>]
        self [pub(crate) fn stream_for(&self, address: &Address) -> Result<Descriptor, i32>]
        self [pub(crate) fn datagrams_at(&self, address: &Address) -> Result<Descriptor, i32>]
        self [pub(crate) fn has_file(&self, descriptor: &Descriptor) -> bool]
        self [pub(crate) fn lock_file(&self, file: &Descriptor) -> Result<(), i32>]
        self [pub(crate) fn unlock_file(&self, file: &Descriptor) -> Result<(), i32>]
    } }
}
