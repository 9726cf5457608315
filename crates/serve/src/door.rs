//! A listener that accepts no more connections than there are places.
//!
//! While all places are taken, the door accepts nothing: new clients wait in the kernel's queue and cost no descriptor.
//! It uses single accepts, with at most [`ACCEPTS`] in flight. A multishot accept could take the kernel's whole queue,
//! 4,096 connections, before it can be cancelled. So a worker has at most [`ACCEPTS`] connections beyond the places,
//! and they wait in the door.
//!
//! A failed accept ends the server only if the listener itself is broken. If the error belongs to one connection, the
//! door accepts again at once. If the process or the kernel is short of memory or descriptors, or after [`ACCEPTS`]
//! failures in a row, the door accepts again after [`REST`].

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use ringwise::{
    AcceptFailure, Completion, Descriptor, Error, ErrorKind, Local, Operation, Ticket, net,
};

use crate::{error::ServeError, places::Share};

/// Accepts of one door in flight.
pub(crate) const ACCEPTS: usize = 16;
/// Operations of a door in flight: each accept, and the cancel of each.
pub(crate) const OPERATIONS: usize = 2 * ACCEPTS;

/// How long the door accepts nothing when the next accept would fail too.
const REST: Duration = Duration::from_millis(20);

/// Lets the kernel end connections of a listener whose peer vanished. It does so if it had no answer to keepalives or
/// data for about `patience`, at least two seconds. Accepted sockets inherit this from the listener
/// (net/ipv4/tcp_minisocks.c, tcp_create_openreq_child), so it costs no syscall per connection.
///
/// # Errors
///
/// The kernel refuses the options.
pub fn give_up_after(listener: &Descriptor, patience: Duration) -> Result<(), ServeError> {
    let interval = (patience / 8).max(Duration::from_secs(1));
    let keepalive = net::KeepAlive { idle: patience / 2, interval, count: 4 };
    net::set_keepalive(listener, Some(keepalive)).map_err(ServeError::new)?;
    net::set_user_timeout(listener, patience).map_err(ServeError::new)
}

/// A listener and its share of the places.
#[derive(Debug)]
pub struct Door {
    /// Open until the drain begins. Then another server may listen on the address.
    listener: Option<Descriptor>,
    is_own: bool,
    /// Accepts in flight, and the timer of a rest.
    in_flight: Vec<Ticket>,
    /// The accepts in flight were cancelled.
    is_ending: bool,
    /// A rest is due, or its timer runs.
    must_rest: bool,
    rest: Option<Ticket>,
    /// Accepts that failed since the last that succeeded.
    failures: usize,
    /// Connections that were accepted beyond the places.
    waiting: VecDeque<Descriptor>,
    share: Share,
    accept_tag: u64,
    nothing_tag: u64,
}

impl Door {
    pub(crate) fn new(
        listener: Descriptor,
        is_own: bool,
        share: Share,
        accept_tag: u64,
        nothing_tag: u64,
    ) -> Door {
        Door {
            listener: Some(listener),
            is_own,
            in_flight: Vec::new(),
            is_ending: false,
            must_rest: false,
            rest: None,
            failures: 0,
            waiting: VecDeque::new(),
            share,
            accept_tag,
            nothing_tag,
        }
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    ///
    /// The door is shut, or the listener has no internet address.
    pub fn address(&self) -> Result<SocketAddr, ServeError> {
        match net::local_address(self.listener()?).map_err(ServeError::new)? {
            net::Address::Ip(address) => Ok(address),
            other => {
                Err(ServeError::new(format!("listening on {other:?}: not an internet address")))
            }
        }
    }

    fn listener(&self) -> Result<&Descriptor, ServeError> {
        self.listener.as_ref().ok_or_else(|| ServeError::new("the listener is closed"))
    }

    /// Lets the kernel end connections whose peer vanished, as [`give_up_after`] does.
    ///
    /// # Errors
    ///
    /// The door is shut, or the kernel refuses the options.
    pub fn give_up_after(&self, patience: Duration) -> Result<(), ServeError> {
        give_up_after(self.listener()?, patience)
    }

    /// Returns the number of connections that were let in and have not [left](Door::left).
    pub fn open(&self) -> usize {
        self.share.own()
    }

    /// Takes the result of an accept. If the accept failed but the door continues, returns the error, so that the
    /// worker can count and report it.
    ///
    /// # Errors
    ///
    /// The listener is broken, so no accept would succeed.
    pub fn take(&mut self, completion: Completion) -> Result<Option<Error>, ServeError> {
        let ticket = completion.ticket();
        self.in_flight.retain(|own| *own != ticket);
        if self.rest == Some(ticket) {
            (self.rest, self.must_rest) = (None, false);
        }
        self.is_ending &= !self.in_flight.is_empty();
        match completion.result() {
            Ok(_) => {
                // The timer of a rest has no descriptor.
                if let Ok(accepted) = completion.into_descriptor() {
                    self.failures = 0;
                    self.waiting.push_back(accepted);
                }
                Ok(None)
            }
            Err(error) => self.sort(error),
        }
    }

    fn sort(&mut self, error: Error) -> Result<Option<Error>, ServeError> {
        // Accepts fail after the listener was shut for reading.
        if error.kind() == ErrorKind::Cancelled || self.listener.is_none() {
            return Ok(None);
        }
        self.failures += 1;
        match error.accept_failure() {
            // Connections that all fail would take a whole processor.
            AcceptFailure::Connection => self.must_rest |= self.failures >= ACCEPTS,
            AcceptFailure::Exhausted => self.must_rest = true,
            _ => return Err(ServeError::new(error)),
        }
        Ok(Some(error))
    }

    /// Lets the next connection in, if one waits and there is a free place. It then counts as open.
    pub fn admit(&mut self) -> Option<Descriptor> {
        if self.waiting.is_empty() || !self.share.take() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Returns the place of a closed connection.
    pub fn left(&mut self) {
        self.share.give_back();
    }

    /// Accepts while there are free places, and stops while there are none. The worker is woken when a place may be
    /// free.
    ///
    /// # Errors
    ///
    /// The loop refuses the operation.
    pub fn keep(&mut self, local: &mut Local) -> Result<(), ServeError> {
        let room = self.share.room().saturating_sub(self.waiting.len());
        if room == 0 {
            return self.end_accepting(local);
        }
        let Some(listener) = self.listener.as_ref().filter(|_| !self.is_ending) else {
            return Ok(());
        };
        if self.must_rest {
            if self.rest.is_none() {
                let rest = local.push(Operation::timeout(REST), self.accept_tag);
                let rest = rest.map_err(ServeError::new)?;
                self.rest = Some(rest);
                self.in_flight.push(rest);
            }
            return Ok(());
        }
        while self.in_flight.len() < room.min(ACCEPTS) {
            let accept = local.push(Operation::accept(listener), self.accept_tag);
            self.in_flight.push(accept.map_err(ServeError::new)?);
        }
        Ok(())
    }

    /// Stops listening. Connections that were accepted before are still [let in](Door::admit).
    ///
    /// # Errors
    ///
    /// The loop refuses the operation.
    pub fn shut(&mut self, local: &mut Local) -> Result<(), ServeError> {
        if let Some(listener) = self.listener.take().filter(|_| self.is_own) {
            // This happens before anybody learns of the end of the server. The accepts in flight keep the listener open
            // (net/ipv4/af_inet.c, inet_shutdown).
            let _ = net::shutdown(&listener, net::Shutdown::Read);
        }
        self.end_accepting(local)
    }

    /// Closes the connections that wait in the door.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    fn end_accepting(&mut self, local: &mut Local) -> Result<(), ServeError> {
        if self.in_flight.is_empty() || std::mem::replace(&mut self.is_ending, true) {
            return Ok(());
        }
        for ticket in &self.in_flight {
            local.push(Operation::cancel(*ticket), self.nothing_tag).map_err(ServeError::new)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::UdpSocket,
        os::{fd::OwnedFd, unix::net::UnixStream},
        sync::Arc,
    };

    use ringwise::{
        BackendChoice,
        net::ListenOptions,
        sim::{Fault, Simulation, When},
    };

    use super::*;
    use crate::places::Places;

    const ACCEPT: u64 = 1;
    const NOTHING: u64 = 2;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn door(listener: Descriptor, places: usize) -> Door {
        let (control, _) = UnixStream::pair().unwrap();
        let share = Share::new(&Places::new(places), &Arc::new(control), places);
        Door::new(listener, true, share, ACCEPT, NOTHING)
    }

    /// Does what a worker does in a turn. Returns whether an accept failed.
    fn turn(door: &mut Door, local: &mut Local) -> Result<bool, ServeError> {
        door.keep(local)?;
        local.submit_and_wait(1).map_err(ServeError::new)?;
        let mut has_failed = false;
        while let Some(completion) = local.next_completion() {
            if completion.tag() == ACCEPT {
                has_failed |= door.take(completion)?.is_some();
            }
        }
        Ok(has_failed)
    }

    fn behind(fault: Fault, when: When) -> (Simulation, Local, Door) {
        let simulation = Simulation::builder(1).fault(fault, when).build();
        let local = Local::builder().simulation(&simulation).build().unwrap();
        let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
        (simulation, local, door(listener, 1))
    }

    /// One ENOBUFS or EPERM ended the server.
    #[test]
    fn it_goes_on_after_every_failure_that_passes() {
        for fault in [
            Fault::NoMemory,
            Fault::NoSocketMemory,
            Fault::NoDescriptors,
            Fault::NoFiles,
            Fault::Forbidden,
        ] {
            let (simulation, mut local, mut door) = behind(fault, When::nth(1));
            let _client = simulation.connect(door.address().unwrap()).unwrap();
            let before = simulation.elapsed();
            assert!(turn(&mut door, &mut local).unwrap(), "{fault:?}: the accept failed");
            while door.waiting.is_empty() {
                assert!(!turn(&mut door, &mut local).unwrap());
            }
            assert!(simulation.elapsed() >= before + REST, "{fault:?}");
            assert!(door.admit().is_some());
        }
    }

    /// It accepted again at once, and again, and took a processor.
    #[test]
    fn what_forbids_every_connection_is_asked_with_rests() {
        let (simulation, mut local, mut door) = behind(Fault::Forbidden, When::always());
        let _client = simulation.connect(door.address().unwrap()).unwrap();
        let failed = (0..100).filter(|_| turn(&mut door, &mut local).unwrap()).count();
        assert!(failed < 60, "{failed} accepts failed in {:?}", simulation.elapsed());
        simulation.heal();
        while door.waiting.is_empty() {
            turn(&mut door, &mut local).unwrap();
        }
        assert!(door.admit().is_some(), "it goes on when nothing forbids it");
    }

    #[test]
    fn it_is_shut_while_it_rests() {
        let (simulation, mut local, mut door) = behind(Fault::NoMemory, When::nth(1));
        let _client = simulation.connect(door.address().unwrap()).unwrap();
        assert!(turn(&mut door, &mut local).unwrap());
        door.keep(&mut local).unwrap();
        door.shut(&mut local).unwrap();
        while !door.in_flight.is_empty() {
            assert!(!turn(&mut door, &mut local).unwrap());
        }
        door.keep(&mut local).unwrap();
        assert_eq!(local.in_flight(), 0, "no accept is in flight any more");
    }

    /// A multishot accept took all waiting connections, up to the kernel's 4,096, before it could be cancelled.
    #[test]
    fn no_more_than_the_places_are_accepted() {
        for choice in [BackendChoice::Uring, BackendChoice::Classic] {
            let mut local = Local::builder().backend(choice).build().unwrap();
            let listener = net::listen_tcp(&any(), &ListenOptions::default()).unwrap();
            let mut door = door(listener, 20);
            let address = door.address().unwrap();
            let _clients: Vec<_> =
                (0..200).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
            let mut open = Vec::new();
            while open.len() < 20 {
                turn(&mut door, &mut local).unwrap();
                assert!(open.len() + door.waiting.len() <= 20 + ACCEPTS);
                open.extend(std::iter::from_fn(|| door.admit()));
            }
            door.keep(&mut local).unwrap();
            while !door.in_flight.is_empty() {
                turn(&mut door, &mut local).unwrap();
            }
            assert_eq!((door.waiting.len(), local.in_flight()), (0, 0));
            drop(open.pop());
            door.left();
            turn(&mut door, &mut local).unwrap();
            assert!(door.admit().is_some(), "the door accepts again");
        }
    }

    #[test]
    fn a_broken_listener_is_an_error() {
        for choice in [BackendChoice::Uring, BackendChoice::Classic] {
            let shut = net::listen_tcp(&any(), &ListenOptions::default()).unwrap();
            net::shutdown(&shut, net::Shutdown::Read).unwrap();
            // EOPNOTSUPP: a socket of datagrams accepts nothing, ever.
            let datagrams = Descriptor::from(OwnedFd::from(UdpSocket::bind(any()).unwrap()));
            for listener in [shut, datagrams] {
                let mut local = Local::builder().backend(choice).build().unwrap();
                assert!(turn(&mut door(listener, 8), &mut local).is_err());
            }
        }
    }
}
