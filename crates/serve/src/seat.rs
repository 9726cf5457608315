//! The input of a worker: its number, its share of the places, its listener, and its two channels, for requests and for
//! statistics.

use std::{
    net::SocketAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use ringwise::{BackendChoice, Descriptor, Local, net, net::ListenOptions};

use crate::{
    door::{self, Door},
    error::ServeError,
    panel::Ear,
    places::Share,
};

/// The most completions that a loop has room for.
const OPERATIONS_MAX: usize = 65_534;

/// Connections that a thread has room for beyond twice its part. If there are few connections, one thread may have all.
const UNEVEN: usize = 1024;

/// Computes how many of all connections one thread has room for. The kernel spreads many connections so that no thread
/// has twice its part. Room for all connections would cost memory on each thread.
pub(crate) fn own_most(connections: usize, part: usize) -> usize {
    connections.min(2 * part + UNEVEN)
}

/// A worker's place in a server.
#[derive(Debug)]
pub struct Seat<S> {
    /// The worker's number, from 0.
    pub number: u32,
    /// The connections of this worker if all threads have equally many. It must have room for so many.
    pub(crate) part: usize,
    pub(crate) share: Share,
    pub(crate) backend: BackendChoice,
    pub(crate) sqpoll: Option<Duration>,
    pub(crate) listen: Listen,
    pub(crate) control: UnixStream,
    /// The channel for the worker's statistics.
    pub stats: Sender<S>,
}

/// The source of connections.
#[derive(Debug)]
pub(crate) enum Listen {
    /// The worker's own socket on an address.
    Address(SocketAddr, ListenOptions),
    /// A socket that another program opened and may continue to use.
    Given(OwnedFd),
}

impl Listen {
    pub(crate) fn another(&self) -> std::io::Result<Listen> {
        Ok(match self {
            Listen::Address(address, options) => Listen::Address(*address, options.clone()),
            Listen::Given(socket) => Listen::Given(socket.as_fd().try_clone_to_owned()?),
        })
    }
}

/// Computes the operations of so many connections: `each` per connection, and those `beside` them.
///
/// # Errors
///
/// One thread's loop does not have room for so many.
pub fn loop_room(connections: usize, each: usize, beside: usize) -> Result<usize, ServeError> {
    let operations = connections * each + beside + door::OPERATIONS;
    if operations > OPERATIONS_MAX {
        return Err(ServeError::new(format!(
            "{connections} connections (--max-connections) are more than one thread's loop holds: ask for \
             --threads {}",
            operations.div_ceil(OPERATIONS_MAX) + 1
        )));
    }
    Ok(operations)
}

/// How long the server tries to listen on an address in use. A ring may hold a listener, and ends only after its
/// process (io_ring_exit_work, io_uring/io_uring.c).
const LISTEN_TIME: Duration = Duration::from_secs(2);
const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// Returns what to do if the kernel refuses to listen on an address with this number of an error.
pub fn listen_remedy(errno: i32) -> Option<&'static str> {
    match rustix::io::Errno::from_raw_os_error(errno) {
        rustix::io::Errno::ADDRINUSE => {
            Some("another program listens there: end it, or ask for another port")
        }
        rustix::io::Errno::ACCESS => {
            Some("ports below 1024 need CAP_NET_BIND_SERVICE (root has it)")
        }
        _ => None,
    }
}

/// Listens on an address.
pub(crate) fn listen(
    address: &SocketAddr,
    options: &ListenOptions,
) -> Result<Descriptor, ServeError> {
    let in_use = rustix::io::Errno::ADDRINUSE.raw_os_error();
    let until = Instant::now() + LISTEN_TIME;
    loop {
        let error = match net::listen_tcp(address, options) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        if error.errno() != in_use || Instant::now() >= until {
            let remedy = listen_remedy(error.errno()).map(|remedy| format!(": {remedy}"));
            let remedy = remedy.unwrap_or_default();
            return Err(ServeError::new(format!("--listen: {error}{remedy}")));
        }
        std::thread::sleep(LISTEN_PAUSE);
    }
}

impl<S> Seat<S> {
    /// Opens a loop on this thread, with room for `each` operations per connection and those `beside` them. The door
    /// lets in no more connections than the loop has room for.
    ///
    /// # Errors
    ///
    /// The engine is not available, or one loop does not have room for so many connections.
    pub fn open_loop(&mut self, each: usize, beside: usize) -> Result<Local, ServeError> {
        loop_room(self.part, each, beside)?;
        let beside = beside + door::OPERATIONS;
        let operations = OPERATIONS_MAX.min(self.share.own_most() * each + beside);
        self.share.limit((operations - beside) / each);
        // The builder keeps the flags that SQPOLL excludes. The ring has them if the kernel refuses SQPOLL.
        let builder = Local::builder().backend(self.backend).sqpoll(self.sqpoll);
        let entries = (operations.div_ceil(2) + 1).max(64);
        builder.entries(entries as u32).build().map_err(ServeError::new)
    }

    /// Listens. Returns the door, the receiver of requests, and the channel for statistics. The door's operations have
    /// the tag `accept`, those of the panel `control`, and results without meaning `nothing`.
    ///
    /// # Errors
    ///
    /// Listening on the address failed.
    pub fn take(
        self,
        accept: u64,
        control: u64,
        nothing: u64,
    ) -> Result<(Door, Ear, Sender<S>), ServeError> {
        let is_own = matches!(self.listen, Listen::Address(..));
        let listener = match self.listen {
            Listen::Address(address, options) => listen(&address, &options)?,
            Listen::Given(socket) => Descriptor::from(socket),
        };
        let door = Door::new(listener, is_own, self.share, accept, nothing);
        Ok((door, Ear::new(self.control, control), self.stats))
    }
}
