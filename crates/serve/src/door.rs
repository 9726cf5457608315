//! Who comes in: a listener, and no more connections than there are places for.
//!
//! The door stops accepting while all places are taken, so that a new client waits in the kernel's queue
//! and costs no descriptor. Connections that were accepted before that wait here.
//!
//! A failed accept ends the server only if the listener itself is broken. After a failure of one
//! connection the door accepts again at once; when the kernel is short of memory, after [`REST`].

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use ringwise::{
    AcceptFailure, Completion, Descriptor, Error, ErrorKind, Local, Operation, Ticket, net,
};

use crate::{error::ServeError, places::Share};

/// How long nothing is accepted when the kernel has no memory for a socket.
const REST: Duration = Duration::from_millis(100);

/// A listener and the places behind it.
#[derive(Debug)]
pub struct Door {
    /// Open until the drain begins: another server may then listen here.
    listener: Option<Descriptor>,
    is_own: bool,
    accepting: Accepting,
    /// The next accept comes after a rest.
    must_rest: bool,
    /// Accepted beyond what may be open.
    waiting: VecDeque<Descriptor>,
    share: Share,
    accept_tag: u64,
    nothing_tag: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// An accept is in flight, or the rest before one.
    On(Ticket),
    /// On, and told to end.
    Ending,
    Off,
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
            accepting: Accepting::Off,
            must_rest: false,
            waiting: VecDeque::new(),
            share,
            accept_tag,
            nothing_tag,
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// It does not any more, or not on an address of the internet.
    pub fn address(&self) -> Result<SocketAddr, ServeError> {
        let listener = self.listener.as_ref().ok_or_else(|| ServeError::new("it drains"))?;
        match net::local_address(listener).map_err(ServeError::new)? {
            net::Address::Ip(address) => Ok(address),
            other => Err(ServeError::new(format!("listening on {other:?}, of another kind"))),
        }
    }

    /// Gives connections up whose other end vanished without a word: when the kernel has had no
    /// answer for about `patience`, at least two seconds, from keepalive or to what was sent. Those
    /// that are accepted have it from their listener (net/ipv4/tcp_minisocks.c,
    /// tcp_create_openreq_child), so it costs no call for each.
    ///
    /// # Errors
    ///
    /// It listens no more, or the kernel does not take it.
    pub fn give_up_after(&self, patience: Duration) -> Result<(), ServeError> {
        let listener = self.listener.as_ref().ok_or_else(|| ServeError::new("it drains"))?;
        let interval = (patience / 8).max(Duration::from_secs(1));
        let keepalive = net::KeepAlive { idle: patience / 2, interval, count: 4 };
        net::set_keepalive(listener, Some(keepalive)).map_err(ServeError::new)?;
        net::set_user_timeout(listener, patience).map_err(ServeError::new)
    }

    /// Connections that came in and have not [left](Door::left).
    pub fn open(&self) -> usize {
        self.share.own()
    }

    /// Takes the result of an accept. Gives the error if it failed and accepting goes on, for the worker
    /// to count and to tell.
    ///
    /// # Errors
    ///
    /// The listener is broken: no accept would succeed.
    pub fn take(&mut self, completion: Completion) -> Result<Option<Error>, ServeError> {
        if !completion.has_more() {
            self.accepting = Accepting::Off;
        }
        match completion.result() {
            Ok(_) => {
                // The end of a rest has none.
                self.waiting.extend(completion.into_descriptor());
                Ok(None)
            }
            Err(error) => self.sort(error),
        }
    }

    fn sort(&mut self, error: Error) -> Result<Option<Error>, ServeError> {
        // Shut for reading, a listener accepts no more, and says so.
        if error.kind() == ErrorKind::Cancelled || self.listener.is_none() {
            return Ok(None);
        }
        match error.accept_failure() {
            AcceptFailure::Connection => Ok(Some(error)),
            AcceptFailure::Exhausted => {
                self.must_rest = true;
                Ok(Some(error))
            }
            _ => Err(ServeError::new(error)),
        }
    }

    /// The next connection, if there is one and room for it. It counts as open.
    pub fn admit(&mut self) -> Option<Descriptor> {
        if self.waiting.is_empty() || !self.share.take() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// A connection was closed.
    pub fn left(&mut self) {
        self.share.give_back();
    }

    /// Accepts while there is room, and not while there is none: the worker then hears when there may be.
    ///
    /// # Errors
    ///
    /// The loop takes no operation.
    pub fn keep(&mut self, local: &mut Local) -> Result<(), ServeError> {
        let has_room = self.share.has_room();
        match self.accepting {
            Accepting::Off if has_room => self.accept(local),
            Accepting::On(ticket) if !has_room => self.end_accepting(local, ticket),
            _ => Ok(()),
        }
    }

    /// Listens no more. What was accepted before is still [let in](Door::admit).
    ///
    /// # Errors
    ///
    /// The loop takes no operation.
    pub fn shut(&mut self, local: &mut Local) -> Result<(), ServeError> {
        if let Some(listener) = self.listener.take().filter(|_| self.is_own) {
            // At once, before anybody is told of the end: the accept holds it until its own
            // (net/ipv4/af_inet.c, inet_shutdown).
            let _ = net::shutdown(&listener, net::Shutdown::Read);
        }
        match self.accepting {
            Accepting::On(ticket) => self.end_accepting(local, ticket),
            _ => Ok(()),
        }
    }

    /// Sends away who waits inside.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    fn accept(&mut self, local: &mut Local) -> Result<(), ServeError> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let accept = match std::mem::take(&mut self.must_rest) {
            true => Operation::timeout(REST),
            false => Operation::accept_multi(listener),
        };
        let ticket = local.push(accept, self.accept_tag).map_err(ServeError::new)?;
        self.accepting = Accepting::On(ticket);
        Ok(())
    }

    fn end_accepting(&mut self, local: &mut Local, ticket: Ticket) -> Result<(), ServeError> {
        self.accepting = Accepting::Ending;
        let cancel = Operation::cancel(ticket);
        local.push(cancel, self.nothing_tag).map(drop).map_err(ServeError::new)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, sync::Arc};

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

    fn door(listener: Descriptor) -> Door {
        let (control, _) = UnixStream::pair().unwrap();
        let share = Share::new(&Places::new(8), &Arc::new(control), 8);
        Door::new(listener, true, share, ACCEPT, NOTHING)
    }

    /// What a worker does in a turn; gives whether an accept failed.
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

    fn short_of_memory() -> (Simulation, Local, Door) {
        let simulation = Simulation::builder(1).fault(Fault::NoMemory, When::nth(1)).build();
        let local = Local::builder().simulation(&simulation).build().unwrap();
        let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
        (simulation, local, door(listener))
    }

    #[test]
    fn it_goes_on_when_the_kernel_has_memory_again() {
        let (simulation, mut local, mut door) = short_of_memory();
        let address = SocketAddr::from(([127, 0, 0, 1], door.address().unwrap().port()));
        let _client = simulation.connect(address).unwrap();
        let before = simulation.elapsed();
        assert!(turn(&mut door, &mut local).unwrap(), "the accept failed");
        while door.waiting.is_empty() {
            assert!(!turn(&mut door, &mut local).unwrap());
        }
        assert!(simulation.elapsed() >= before + REST, "it rested");
        assert!(door.admit().is_some());
    }

    #[test]
    fn it_is_shut_while_it_rests() {
        let (simulation, mut local, mut door) = short_of_memory();
        let _client = simulation.connect(door.address().unwrap()).unwrap();
        assert!(turn(&mut door, &mut local).unwrap());
        door.keep(&mut local).unwrap();
        door.shut(&mut local).unwrap();
        while door.accepting != Accepting::Off {
            assert!(!turn(&mut door, &mut local).unwrap());
        }
        door.keep(&mut local).unwrap();
        assert_eq!(local.in_flight(), 0, "nobody is accepted any more");
    }

    #[test]
    fn a_listener_that_is_broken_is_told() {
        for choice in [BackendChoice::Uring, BackendChoice::Classic] {
            let mut local = Local::builder().backend(choice).build().unwrap();
            let listener = net::listen_tcp(&any(), &ListenOptions::default()).unwrap();
            net::shutdown(&listener, net::Shutdown::Read).unwrap();
            assert!(turn(&mut door(listener), &mut local).is_err());
        }
    }
}
