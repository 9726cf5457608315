//! The simulated machine where it is not compiled (feature `sim`): types without a value, so that what
//! asks for one is the same with and without it. Nothing here can be called.

/// There is none.
#[derive(Clone, Debug)]
pub(crate) enum Simulation {}

pub(crate) mod driver {
    //! The backend that nobody has.

    use std::{io, time::Instant};

    use super::Simulation;
    use crate::{
        backend::{Blocking, Cqe, Driver, classic::pool::Wake},
        call::Call,
        error::Errno,
        op::Opcode,
        stats::Stats,
    };

    pub(crate) enum Simulated {}

    impl Simulated {
        pub(crate) fn new(of: &Simulation, _threads: usize, _entries: usize) -> io::Result<Self> {
            match *of {}
        }

        pub(crate) fn now(&self) -> Instant {
            match *self {}
        }

        pub(crate) fn count(&self, _stats: &mut Stats) {
            match *self {}
        }

        pub(crate) fn waker(&self) -> Wake {
            match *self {}
        }

        pub(crate) fn leave_to_threads(&self, _opcode: Opcode) {
            match *self {}
        }

        pub(crate) fn expect_nudges(&mut self) {
            match *self {}
        }

        pub(crate) fn sift(&mut self, _keep: &mut dyn FnMut(Cqe) -> bool) {
            match *self {}
        }

        pub(crate) fn has_work(&mut self) -> bool {
            match *self {}
        }
    }

    impl Driver for Simulated {
        fn has_room(&mut self) -> bool {
            match *self {}
        }

        fn queue_nop(&mut self, _user_data: u64) -> bool {
            match *self {}
        }

        fn queue(&mut self, _user_data: u64, _call: Call, _blocking: Blocking) {
            match *self {}
        }

        fn has_room_for(&mut self, _count: usize) -> bool {
            match *self {}
        }

        fn submit(&mut self, _want: usize, _deadline: Option<Instant>) -> Result<usize, Errno> {
            match *self {}
        }

        fn next(&mut self) -> Option<Cqe> {
            match *self {}
        }

        fn put_back(&mut self, _results: &[Cqe]) {
            match *self {}
        }

        fn append(&mut self, _results: &[Cqe]) {
            match *self {}
        }

        fn supports(&self, _opcode: Opcode) -> bool {
            match *self {}
        }
    }
}

pub(crate) mod socket {
    //! The sockets that nobody has.

    use std::time::Duration;

    use super::Simulation;
    use crate::{
        descriptor::Descriptor,
        net::{Address, KeepAlive, ListenOptions, Shutdown},
    };

    pub(crate) enum SimulatedSocket {}

    /// No descriptor leads to one.
    pub(crate) fn find(_descriptor: &Descriptor) -> Option<SimulatedSocket> {
        None
    }

    impl SimulatedSocket {
        pub(crate) fn local_address(&self) -> Result<Address, i32> {
            match *self {}
        }

        pub(crate) fn peer_address(&self) -> Result<Address, i32> {
            match *self {}
        }

        pub(crate) fn set_keepalive(&self, _keepalive: Option<KeepAlive>) -> Result<(), i32> {
            match *self {}
        }

        pub(crate) fn set_user_timeout(&self, _timeout: Duration) -> Result<(), i32> {
            match *self {}
        }

        pub(crate) fn set_send_buffer(&self, _bytes: usize) -> Result<(), i32> {
            match *self {}
        }

        pub(crate) fn set_receive_buffer(&self, _bytes: usize) -> Result<(), i32> {
            match *self {}
        }

        pub(crate) fn set_reset_on_close(&self) -> Result<(), i32> {
            match *self {}
        }

        pub(crate) fn shutdown(&self, _which: Shutdown) -> Result<(), i32> {
            match *self {}
        }
    }

    impl Simulation {
        pub(crate) fn listen_at(
            &self,
            _address: &Address,
            _options: &ListenOptions,
        ) -> Result<Descriptor, i32> {
            match *self {}
        }

        pub(crate) fn stream_for(&self, _address: &Address) -> Result<Descriptor, i32> {
            match *self {}
        }

        pub(crate) fn datagrams_at(&self, _address: &Address) -> Result<Descriptor, i32> {
            match *self {}
        }
    }
}
