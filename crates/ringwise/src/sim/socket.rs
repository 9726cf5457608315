//! The sockets of a simulated program: makes, names and configures them without an operation, as
//! the functions of [`net`](crate::net) do with real sockets.
//!
//! Those functions know no loop, so the descriptor alone must tell whether it belongs to a
//! simulation. A process that never made a simulated socket only checks one flag.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    descriptor::Descriptor,
    net::{Address, KeepAlive, ListenOptions, Shutdown},
    sim::{
        Shared, Simulation,
        files::identity,
        network::{EndpointId, Network, endpoint::Stream},
        world::World,
    },
    sync::lock,
};

/// Whether this process ever made a simulated socket.
static ANY: AtomicBool = AtomicBool::new(false);
/// The simulations that have made sockets.
static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// An endpoint of a simulated network, and its simulation.
pub(crate) struct SimulatedSocket {
    simulation: Simulation,
    endpoint: EndpointId,
}

/// Returns the simulated socket that a descriptor stands for, if any.
pub(crate) fn find(descriptor: &Descriptor) -> Option<SimulatedSocket> {
    if !ANY.load(Ordering::Acquire) {
        return None;
    }
    let identity = identity(descriptor)?;
    let simulations: Vec<Simulation> =
        lock(&ALL).iter().filter_map(Weak::upgrade).map(Simulation).collect();
    simulations.into_iter().find_map(|simulation| {
        let world = simulation.lock();
        let endpoint = world.files.find(identity).and_then(|file| world.files.endpoint(file));
        drop(world);
        endpoint.map(|endpoint| SimulatedSocket { simulation, endpoint })
    })
}

impl Simulation {
    /// Lets `find` find this simulation's sockets.
    fn enlist(&self) {
        let mut all = lock(&ALL);
        all.retain(|other| other.strong_count() > 0);
        if !all.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(&self.0))) {
            all.push(Arc::downgrade(&self.0));
        }
        drop(all);
        ANY.store(true, Ordering::Release);
    }

    /// Makes an endpoint and returns its descriptor.
    pub(crate) fn open_endpoint(
        &self,
        make: impl FnOnce(&mut Network) -> Result<EndpointId, i32>,
    ) -> Result<Descriptor, i32> {
        self.enlist();
        let mut world = self.lock();
        world.notice_closed(true);
        let World { network, files, .. } = &mut *world;
        let endpoint = make(network)?;
        let placeholder = files.open_socket(endpoint).inspect_err(|_| network.close(endpoint))?;
        Ok(Descriptor::of_socket(placeholder))
    }

    pub(crate) fn listen_at(
        &self,
        name: &Address,
        options: &ListenOptions,
    ) -> Result<Descriptor, i32> {
        let (backlog, shares) = (options.backlog as usize, options.reuse_port);
        self.open_endpoint(|network| network.listen(name, backlog, shares))
    }

    /// Makes a stream socket for this kind of address.
    pub(crate) fn stream_for(&self, address: &Address) -> Result<Descriptor, i32> {
        let is_unix = address.ip().is_none();
        self.open_endpoint(|network| Ok(network.open_stream(is_unix)))
    }

    pub(crate) fn datagrams_at(&self, name: &Address) -> Result<Descriptor, i32> {
        self.open_endpoint(|network| network.open_datagrams(name))
    }
}

impl SimulatedSocket {
    pub(crate) fn local_address(&self) -> Result<Address, i32> {
        self.simulation.lock().network.local_address(self.endpoint)
    }

    pub(crate) fn peer_address(&self) -> Result<Address, i32> {
        self.simulation.lock().network.peer_address(self.endpoint)
    }

    pub(crate) fn shutdown(&self, which: Shutdown) -> Result<(), i32> {
        let (reads, writes) = (which != Shutdown::Write, which != Shutdown::Read);
        let mut world = self.simulation.lock();
        let result = world.network.shut(self.endpoint, reads, writes);
        world.settle_network();
        result
    }

    pub(crate) fn set_reset_on_close(&self) -> Result<(), i32> {
        self.change(Stream::reset_on_close)
    }

    pub(crate) fn set_send_buffer(&self, bytes: usize) -> Result<(), i32> {
        self.change(|stream| stream.set_send_room(bytes))
    }

    pub(crate) fn set_receive_buffer(&self, bytes: usize) -> Result<(), i32> {
        self.change(|stream| stream.set_receive_room(bytes))
    }

    pub(crate) fn set_user_timeout(&self, timeout: Duration) -> Result<(), i32> {
        self.set_patience(|stream| stream.set_user_timeout(timeout))
    }

    pub(crate) fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> Result<(), i32> {
        self.set_patience(|stream| stream.set_keepalive(keepalive))
    }

    fn change(&self, set: impl FnOnce(&mut Stream)) -> Result<(), i32> {
        self.simulation.lock().network.stream(self.endpoint).map(set)
    }

    fn set_patience(&self, set: impl FnOnce(&mut Stream)) -> Result<(), i32> {
        self.change(set)?;
        self.simulation.lock().expect_silence(self.endpoint);
        Ok(())
    }
}
