//! What a worker is given: its number, its share of the connections, where it listens, and the two
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

use crate::{door::Door, error::ServeError, panel::Ear};

/// Completions that a loop has room for at most, for its user.
const OPERATIONS_MAX: usize = 65_534;

/// A worker's place in a server.
#[derive(Debug)]
pub struct Seat<S> {
    /// Counted from 0.
    pub number: u32,
    /// How many connections it may have open.
    pub connections_max: usize,
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
    let operations = connections * each + beside;
    if operations > OPERATIONS_MAX {
        return Err(ServeError::new(format!(
            "{connections} connections are more than one thread's loop holds: ask for --threads {}",
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
                    return Err(ServeError::new(format!("{error}: another program listens there")));
                }
                std::thread::sleep(LISTEN_PAUSE);
            }
            listened => return listened.map_err(ServeError::new),
        }
    }
}

impl<S> Seat<S> {
    /// Opens a loop on this thread, with room for `each` operations of a connection and those
    /// `beside` them.
    ///
    /// # Errors
    ///
    /// The engine is not to be had, or one loop does not hold so many.
    pub fn open_loop(&self, each: usize, beside: usize) -> Result<Local, ServeError> {
        let operations = loop_room(self.connections_max, each, beside)?;
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
        let door = Door::new(listener, is_own, self.connections_max, accept, nothing);
        Ok((door, Ear::new(self.control, control), self.stats))
    }
}
