//! The simulated network: connections, and the bytes on their way.
//!
//! Each end of a connection is an endpoint. A descriptor of the simulated program, a listener's
//! backlog or the world outside holds it. Sent bytes are with the receiver at once, as far as the
//! two ends have room for them. Nothing here waits: a caller that finds an endpoint not ready tries
//! again when [`take_touched`](Network::take_touched) returns it. Nothing here fails by itself: the
//! world has the faults.

pub(crate) mod address;
pub(crate) mod endpoint;
pub(crate) mod outside;
pub(crate) mod traffic;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::{net::Address, sim::network::endpoint::Stream};

/// The number of an endpoint, in the order in which they were made.
pub(crate) type EndpointId = u64;

/// The result of a call on an endpoint.
pub(crate) type Answer<T> = Result<T, Stop>;

/// Why a call on an endpoint gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// There is nothing yet, or no room.
    NotReady,
    Failed(i32),
}

/// A kind of transport. Sockets of different kinds can be bound to the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Stream,
    Datagram,
}

/// One end.
#[derive(Debug)]
pub(super) enum Endpoint {
    Stream(Stream),
    Listener(Listener),
    Datagrams(Datagrams),
}

#[derive(Debug)]
pub(super) struct Listener {
    name: Address,
    backlog: VecDeque<EndpointId>,
    backlog_max: usize,
    /// Endpoints that want to connect and found the backlog full.
    knocking: Vec<EndpointId>,
    is_shut: bool,
}

#[derive(Debug)]
pub(super) struct Datagrams {
    name: Address,
    /// The connected address: the only sender it receives from, and its default destination.
    remote: Option<Address>,
    queue: VecDeque<(Address, Vec<u8>)>,
}

/// The most datagrams that wait at a receiver. Further ones are lost (udp(7)).
const DATAGRAMS_MAX: usize = 256;
/// The most bytes of a datagram over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// The first port that the network picks, as in `net.ipv4.ip_local_port_range`.
const FIRST_PICKED_PORT: u16 = 32_768;

/// All endpoints.
#[derive(Debug)]
pub(crate) struct Network {
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// The endpoints bound to each name; several if they share it (`SO_REUSEPORT`).
    bound: HashMap<(Transport, Address), Vec<EndpointId>>,
    made: EndpointId,
    next_port: u16,
    touched: VecDeque<EndpointId>,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            endpoints: BTreeMap::new(),
            bound: HashMap::new(),
            made: 0,
            next_port: FIRST_PICKED_PORT,
            touched: VecDeque::new(),
        }
    }
}

impl Network {
    fn add(&mut self, endpoint: Endpoint) -> EndpointId {
        let id = self.made;
        self.made += 1;
        self.endpoints.insert(id, endpoint);
        id
    }

    /// Takes the endpoints that may have become ready since the last call, in order.
    pub(crate) fn take_touched(&mut self) -> VecDeque<EndpointId> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn stream(&mut self, id: EndpointId) -> Result<&mut Stream, i32> {
        match self.endpoints.get_mut(&id) {
            Some(Endpoint::Stream(stream)) => Ok(stream),
            Some(_) => Err(libc::EOPNOTSUPP),
            // The power has failed since.
            None => Err(libc::EIO),
        }
    }

    pub(super) fn touch(&mut self, id: EndpointId) {
        self.touched.push_back(id);
    }

    /// Makes an unconnected stream socket.
    pub(crate) fn open_stream(&mut self, is_unix: bool) -> EndpointId {
        self.add(Endpoint::Stream(Stream::new(is_unix)))
    }

    /// Makes two streams that are connected to each other.
    pub(crate) fn pair(&mut self) -> (EndpointId, EndpointId) {
        let names = [self.pick(), self.pick()];
        let (own, other) = (self.open_stream(false), self.open_stream(false));
        self.join((own, &names[0]), (other, &names[1]));
        (own, other)
    }

    fn join(&mut self, one: (EndpointId, &Address), other: (EndpointId, &Address)) {
        for ((id, name), (to, remote)) in [(one, other), (other, one)] {
            if let Some(Endpoint::Stream(stream)) = self.endpoints.get_mut(&id) {
                stream.connect((to, remote.clone()), name.clone());
            }
        }
    }

    /// Picks a name that is not in use.
    fn pick(&mut self) -> Address {
        loop {
            let port = self.next_port;
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PICKED_PORT);
            let name = Address::Ip(([127, 0, 0, 1], port).into());
            let is_free = |transport| !self.bound.contains_key(&(transport, name.clone()));
            if is_free(Transport::Stream) && is_free(Transport::Datagram) {
                return name;
            }
        }
    }

    fn bind(&mut self, transport: Transport, name: &Address, shares: bool) -> Result<Address, i32> {
        let name = match name {
            Address::Ip(address) if address.port() == 0 => {
                let port = self.pick().ip().map_or(0, |picked| picked.port());
                Address::Ip((address.ip(), port).into())
            }
            name => name.clone(),
        };
        let holders = self.bound.entry((transport, name.clone())).or_default();
        if !holders.is_empty() && !shares {
            return Err(libc::EADDRINUSE);
        }
        holders.push(self.made);
        Ok(name)
    }

    fn unbind(&mut self, transport: Transport, name: &Address, id: EndpointId) {
        let key = (transport, name.clone());
        if let Some(holders) = self.bound.get_mut(&key) {
            holders.retain(|holder| *holder != id);
            if holders.is_empty() {
                self.bound.remove(&key);
            }
        }
    }

    /// Finds the endpoint bound to a name, or to its port on all addresses. Endpoints that share a
    /// name take turns.
    fn find(&self, transport: Transport, name: &Address) -> Option<EndpointId> {
        let anywhere = name.ip().map(|address| {
            let all: std::net::IpAddr = match address {
                std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            Address::Ip((all, address.port()).into())
        });
        let holders = [Some(name.clone()), anywhere]
            .into_iter()
            .flatten()
            .find_map(|name| self.bound.get(&(transport, name)))?;
        holders.get(self.made as usize % holders.len()).copied()
    }

    /// Makes a listening socket.
    pub(crate) fn listen(
        &mut self,
        name: &Address,
        backlog_max: usize,
        shares: bool,
    ) -> Result<EndpointId, i32> {
        let name = self.bind(Transport::Stream, name, shares)?;
        Ok(self.add(Endpoint::Listener(Listener {
            name,
            backlog: VecDeque::new(),
            backlog_max: backlog_max.max(1),
            knocking: Vec::new(),
            is_shut: false,
        })))
    }

    /// Makes a datagram socket.
    pub(crate) fn open_datagrams(&mut self, name: &Address) -> Result<EndpointId, i32> {
        let name = self.bind(Transport::Datagram, name, false)?;
        let datagrams = Datagrams { name, remote: None, queue: VecDeque::new() };
        Ok(self.add(Endpoint::Datagrams(datagrams)))
    }

    pub(crate) fn connect(&mut self, id: EndpointId, to: &Address) -> Answer<()> {
        if let Some(Endpoint::Datagrams(datagrams)) = self.endpoints.get_mut(&id) {
            datagrams.remote = Some(to.clone());
            return Ok(());
        }
        let stream = self.stream(id).map_err(Stop::Failed)?;
        if stream.is_connected() {
            return Err(Stop::Failed(libc::EISCONN));
        }
        let refusal = if stream.is_unix() { libc::ENOENT } else { libc::ECONNREFUSED };
        let is_unix = stream.is_unix();
        let found = self.find(Transport::Stream, to);
        let Some((at, Some(Endpoint::Listener(listener)))) =
            found.map(|at| (at, self.endpoints.get_mut(&at)))
        else {
            return Err(Stop::Failed(refusal));
        };
        if listener.backlog.len() >= listener.backlog_max {
            listener.knocking.push(id);
            return Err(Stop::NotReady);
        }
        let name = if is_unix { Address::UnixUnnamed } else { self.pick() };
        let accepted = self.open_stream(is_unix);
        self.join((id, &name), (accepted, to));
        if let Some(Endpoint::Listener(listener)) = self.endpoints.get_mut(&at) {
            listener.backlog.push_back(accepted);
        }
        self.touch(at);
        Ok(())
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn accept(&mut self, id: EndpointId) -> Answer<EndpointId> {
        match self.endpoints.get_mut(&id) {
            Some(Endpoint::Listener(listener)) if listener.is_shut => {
                Err(Stop::Failed(libc::EINVAL))
            }
            Some(Endpoint::Listener(listener)) => {
                let accepted = listener.backlog.pop_front().ok_or(Stop::NotReady)?;
                self.touched.extend(listener.knocking.drain(..));
                Ok(accepted)
            }
            Some(_) => Err(Stop::Failed(libc::EINVAL)),
            None => Err(Stop::Failed(libc::EIO)),
        }
    }

    /// Puts an accepted connection back into the backlog.
    pub(crate) fn unaccept(&mut self, id: EndpointId, accepted: EndpointId) {
        if let Some(Endpoint::Listener(listener)) = self.endpoints.get_mut(&id) {
            listener.backlog.push_front(accepted);
        }
    }

    /// Returns how many bytes a receive, or how many connections an accept, could take now. An
    /// error or the end of a stream counts as none.
    pub(crate) fn available(&self, id: EndpointId) -> usize {
        match self.endpoints.get(&id) {
            Some(Endpoint::Stream(stream)) => stream.incoming(),
            Some(Endpoint::Listener(listener)) => listener.backlog.len(),
            Some(Endpoint::Datagrams(datagrams)) => {
                datagrams.queue.front().map_or(0, |(_, bytes)| bytes.len().max(1))
            }
            None => 0,
        }
    }

    pub(crate) fn is_stream(&self, id: EndpointId) -> bool {
        matches!(self.endpoints.get(&id), Some(Endpoint::Stream(_)))
    }

    /// Receives at most `len` bytes of a stream, or one whole datagram. A caller with less room
    /// cuts the datagram.
    pub(crate) fn receive(
        &mut self,
        id: EndpointId,
        len: usize,
    ) -> Answer<(Vec<u8>, Option<Address>)> {
        if let Some(Endpoint::Datagrams(datagrams)) = self.endpoints.get_mut(&id) {
            let (from, bytes) = datagrams.queue.pop_front().ok_or(Stop::NotReady)?;
            return Ok((bytes, Some(from)));
        }
        let stream = self.stream(id).map_err(Stop::Failed)?;
        let bytes = stream.receive(len)?;
        let other = stream.other().filter(|_| !bytes.is_empty());
        // The sender has room again.
        self.touched.extend(other);
        Ok((bytes, None))
    }

    /// Sends as many bytes as there is room for, or one datagram. Returns the number of bytes
    /// taken.
    pub(crate) fn send(
        &mut self,
        id: EndpointId,
        bytes: &[u8],
        to: Option<&Address>,
    ) -> Answer<usize> {
        if let Some(Endpoint::Datagrams(datagrams)) = self.endpoints.get(&id) {
            let to = to.or(datagrams.remote.as_ref()).cloned();
            let from = datagrams.name.clone();
            let to = to.ok_or(Stop::Failed(libc::EDESTADDRREQ))?;
            return self.send_datagram(from, bytes, &to).map_err(Stop::Failed);
        }
        if to.is_some() {
            return Err(Stop::Failed(libc::EISCONN));
        }
        let stream = self.stream(id).map_err(Stop::Failed)?;
        let (room, other) = (stream.room_to_send()?, stream.other());
        let Some(Endpoint::Stream(receiver)) = other.and_then(|at| self.endpoints.get_mut(&at))
        else {
            return self.stream(id).map_err(Stop::Failed)?.send_to_nobody(bytes.len());
        };
        let room = receiver.room_to_receive(room);
        let len = bytes.len().min(room);
        if len == 0 && !bytes.is_empty() {
            return Err(Stop::NotReady);
        }
        receiver.take_in(&bytes[..len]);
        self.touched.extend(other);
        Ok(len)
    }

    fn send_datagram(&mut self, from: Address, bytes: &[u8], to: &Address) -> Result<usize, i32> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(libc::EMSGSIZE);
        }
        let found = self.find(Transport::Datagram, to);
        let Some((at, Some(Endpoint::Datagrams(receiver)))) =
            found.map(|at| (at, self.endpoints.get_mut(&at)))
        else {
            return Ok(bytes.len());
        };
        let is_wanted = receiver.remote.as_ref().is_none_or(|remote| *remote == from);
        if is_wanted && receiver.queue.len() < DATAGRAMS_MAX {
            receiver.queue.push_back((from, bytes.to_vec()));
            self.touch(at);
        }
        Ok(bytes.len())
    }

    /// Shuts down directions of a connection. A listener that is shut down accepts no more.
    pub(crate) fn shut(&mut self, id: EndpointId, reads: bool, writes: bool) -> Result<(), i32> {
        if let Some(Endpoint::Listener(listener)) = self.endpoints.get_mut(&id) {
            listener.is_shut = true;
            let name = listener.name.clone();
            let left: Vec<_> = listener.knocking.drain(..).collect();
            self.unbind(Transport::Stream, &name, id);
            self.touched.extend(left);
            self.touch(id);
            return Ok(());
        }
        let stream = self.stream(id)?;
        stream.shut(reads, writes)?;
        let other = stream.other().filter(|_| writes);
        if let Some(Endpoint::Stream(other)) = other.and_then(|at| self.endpoints.get_mut(&at)) {
            other.end();
        }
        self.touched.extend(other.into_iter().chain([id]));
        Ok(())
    }

    /// Removes an endpoint after its last descriptor has closed.
    pub(crate) fn close(&mut self, id: EndpointId) {
        match self.endpoints.remove(&id) {
            Some(Endpoint::Stream(stream)) => self.part(&stream),
            Some(Endpoint::Listener(listener)) => {
                self.unbind(Transport::Stream, &listener.name, id);
                self.touched.extend(listener.knocking);
                // Nobody will ever accept them.
                for waiting in listener.backlog {
                    self.reset(waiting);
                }
            }
            Some(Endpoint::Datagrams(datagrams)) => {
                self.unbind(Transport::Datagram, &datagrams.name, id);
            }
            None => {}
        }
    }

    /// Closes an endpoint so that the other end sees a reset.
    pub(crate) fn reset(&mut self, id: EndpointId) {
        if let Ok(stream) = self.stream(id) {
            stream.reset_on_close();
        }
        self.close(id);
    }

    fn part(&mut self, gone: &Stream) {
        let Some(at) = gone.other() else { return };
        if let Some(Endpoint::Stream(other)) = self.endpoints.get_mut(&at) {
            other.lose_other(gone.closes_hard());
            self.touch(at);
        }
    }

    /// Cuts the connection: nothing passes in either direction any more, and neither end is told.
    pub(crate) fn cut(&mut self, id: EndpointId) {
        let Ok(stream) = self.stream(id) else { return };
        let other = stream.other();
        stream.cut();
        if let Some(Endpoint::Stream(other)) = other.and_then(|at| self.endpoints.get_mut(&at)) {
            other.cut();
        }
    }

    /// Resets the connection, as if by the other end.
    pub(crate) fn be_reset(&mut self, id: EndpointId) {
        let Ok(stream) = self.stream(id) else { return };
        let other = stream.other();
        stream.lose_other(true);
        if let Some(Endpoint::Stream(other)) = other.and_then(|at| self.endpoints.get_mut(&at)) {
            other.lose_other(true);
        }
        self.touched.extend(other.into_iter().chain([id]));
    }

    /// Returns the address that the endpoint is bound to.
    pub(crate) fn local_address(&self, id: EndpointId) -> Result<Address, i32> {
        match self.endpoints.get(&id) {
            Some(Endpoint::Stream(stream)) => Ok(stream.name()),
            Some(Endpoint::Listener(listener)) => Ok(listener.name.clone()),
            Some(Endpoint::Datagrams(datagrams)) => Ok(datagrams.name.clone()),
            None => Err(libc::EIO),
        }
    }

    /// Returns the address that the endpoint is connected to.
    pub(crate) fn peer_address(&self, id: EndpointId) -> Result<Address, i32> {
        let remote = match self.endpoints.get(&id) {
            Some(Endpoint::Stream(stream)) => stream.remote(),
            Some(Endpoint::Datagrams(datagrams)) => datagrams.remote.clone(),
            Some(Endpoint::Listener(_)) => None,
            None => return Err(libc::EIO),
        };
        remote.ok_or(libc::ENOTCONN)
    }
}
