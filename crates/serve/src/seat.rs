//! What a worker is given: its number, its share of the places, where it listens, and the two
//! ends by which it is asked and tells.

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

/// Completions that a loop has room for at most, for its user.
const OPERATIONS_MAX: usize = 65_534;

/// Connections beyond twice its part that a thread has room for: with few in all it may have every one.
const UNEVEN: usize = 1024;

/// How many of all connections one thread has room for: as the kernel spreads them, none has twice its
/// part of many, and room for all of them would be memory of each thread.
pub(crate) fn own_most(connections: usize, part: usize) -> usize {
    connections.min(2 * part + UNEVEN)
}

/// A worker's place in a server.
#[derive(Debug)]
pub struct Seat<S> {
    /// Counted from 0.
    pub number: u32,
    /// Connections that it has to have room for: where all threads have as many.
    pub(crate) part: usize,
    pub(crate) share: Share,
    pub(crate) backend: BackendChoice,
    pub(crate) sqpoll: Option<Duration>,
    pub(crate) listen: Listen,
    pub(crate) control: UnixStream,
    /// Where it tells what it counted.
    pub stats: Sender<S>,
}

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Listen {
    /// A socket of its own on an address.
    Address(SocketAddr, ListenOptions),
    /// One that somebody else opened, and may go on to use.
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

/// Operations of so many connections, `each` of one and those `beside` them, where one thread's loop
/// holds them.
///
/// # Errors
///
/// It does not.
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

/// How long an address is asked for that is in use: the end of a ring, which may hold a listener,
/// comes after that of its process (io_ring_exit_work, io_uring/io_uring.c).
const LISTEN_TIME: Duration = Duration::from_secs(2);
const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// Listens on an address.
pub(crate) fn listen(
    address: &SocketAddr,
    options: &ListenOptions,
) -> Result<Descriptor, ServeError> {
    let in_use = rustix::io::Errno::ADDRINUSE.raw_os_error();
    let until = Instant::now() + LISTEN_TIME;
    loop {
        match net::listen_tcp(address, options) {
            Err(error) if error.errno() == in_use => {
                if Instant::now() >= until {
                    let remedy = "another program listens there: end it, or ask for another port";
                    return Err(ServeError::new(format!("--listen: {error}: {remedy}")));
                }
                std::thread::sleep(LISTEN_PAUSE);
            }
            Err(error) if error.errno() == rustix::io::Errno::ACCESS.raw_os_error() => {
                let remedy = "ports below 1024 need CAP_NET_BIND_SERVICE (root has it)";
                return Err(ServeError::new(format!("--listen: {error}: {remedy}")));
            }
            listened => {
                return listened.map_err(|error| ServeError::new(format!("--listen: {error}")));
            }
        }
    }
}

impl<S> Seat<S> {
    /// Opens a loop on this thread, with room for `each` operations of a connection and those
    /// `beside` them; the door lets no more in than it holds.
    ///
    /// # Errors
    ///
    /// The engine is not to be had, or one loop does not hold so many.
    pub fn open_loop(&mut self, each: usize, beside: usize) -> Result<Local, ServeError> {
        loop_room(self.part, each, beside)?;
        let beside = beside + door::OPERATIONS;
        let operations = OPERATIONS_MAX.min(self.share.own_most() * each + beside);
        self.share.limit((operations - beside) / each);
        // A ring that is refused its thread is as any other: what that excludes stays asked for.
        let builder = Local::builder().backend(self.backend).sqpoll(self.sqpoll);
        let entries = (operations.div_ceil(2) + 1).max(64);
        builder.entries(entries as u32).build().map_err(ServeError::new)
    }

    /// Listens; gives the door, what is heard from the panel, and where to tell what was counted.
    /// Operations of the door are tagged `accept`, those of the panel `control`, and results that
    /// say nothing `nothing`.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
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
