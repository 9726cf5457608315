//! What the connections of a thread share, whatever they send.

use std::{io, net::SocketAddr, net::TcpStream};

use rustix::{
    event::epoll::EventFlags,
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt},
};

use super::{fault::Fault, post::Clock, totals::Totals};
use crate::{account::OwnTime, pace::Pace, poll::Poll};

/// What the connections of a thread share, with a `kit` for what they send.
pub(crate) struct Desk<K> {
    pub clock: Clock,
    pub poll: Poll,
    pub pace: Option<Pace>,
    pub tally: Totals,
    /// The thread's own time over the measured time.
    pub own: OwnTime,
    /// The measured time; not yet known: the end of time.
    pub from_ns: u64,
    pub until_ns: u64,
    /// Whether operations may begin.
    pub may_send: bool,
    /// Connections that were opened, or have failed before.
    pub opened: usize,
    pub kit: K,
}

impl<K> Desk<K> {
    /// A desk at which nothing has been done.
    pub(super) fn new(clock: Clock, poll: Poll, kit: K) -> Desk<K> {
        Desk {
            clock,
            poll,
            pace: None,
            tally: Totals::default(),
            own: OwnTime::default(),
            from_ns: u64::MAX,
            until_ns: u64::MAX,
            may_send: false,
            opened: 0,
            kit,
        }
    }

    pub(crate) fn is_measured(&self, at_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&at_ns)
    }

    /// The latency of `count` operations that were begun at one moment, or the least that it would
    /// have been.
    pub(crate) fn took(&mut self, begun_ns: u64, ended_ns: u64, count: u64) {
        if begun_ns < self.until_ns && ended_ns >= self.from_ns {
            let latency_ns = ended_ns.saturating_sub(begun_ns);
            self.tally.latency.record_many_ns(latency_ns, count);
        }
    }

    /// Begins to connect a socket whose events carry `place`; `set` sets further options.
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
        place: usize,
        set: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> Result<TcpStream, Fault> {
        let connected = self.try_connect(address, place, set);
        connected.map_err(|error| Fault::connecting(address, &error))
    }

    fn try_connect(
        &self,
        address: SocketAddr,
        place: usize,
        set: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> io::Result<TcpStream> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        set(&socket)?;
        match connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.poll.add(&socket, place)?;
        Ok(TcpStream::from(socket))
    }

    /// Whether a connecting socket is connected, by the flags of its event; counts it then.
    pub(crate) fn is_connected(
        &mut self,
        stream: &TcpStream,
        flags: EventFlags,
        address: SocketAddr,
    ) -> Result<bool, Fault> {
        if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            return Ok(false);
        }
        if let Some(error) = stream.take_error().unwrap_or_else(Some) {
            return Err(Fault::connecting(address, &error));
        }
        self.tally.connections_made += 1;
        Ok(true)
    }
}
