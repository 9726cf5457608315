//! Who comes in: a listener, and no more connections than there are places for.
//!
//! Accepting ends while all places are taken, so that who comes waits in the kernel's queue and
//! costs no descriptor; what was accepted before it ended waits here.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use ringwise::{Completion, Descriptor, Local, Operation, Ticket, net};

use crate::{error::ServeError, places::Share};

/// A listener and the places behind it.
#[derive(Debug)]
pub struct Door {
    /// Open until the drain begins: another server may then listen here.
    listener: Option<Descriptor>,
    is_own: bool,
    accepting: Accepting,
    /// Accepted beyond what may be open.
    waiting: VecDeque<Descriptor>,
    share: Share,
    accept_tag: u64,
    nothing_tag: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
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

    /// Takes the result of an accept.
    ///
    /// # Errors
    ///
    /// Accepting ended, and not because it was told to.
    pub fn take(&mut self, completion: Completion) -> Result<(), ServeError> {
        if !completion.has_more() {
            self.accepting = Accepting::Off;
            let result = completion.raw_result();
            let is_told = -result == rustix::io::Errno::CANCELED.raw_os_error();
            // Shut for reading, a listener accepts no more, and says so.
            if result < 0 && !is_told && self.listener.is_some() {
                return completion.result().map(drop).map_err(ServeError::new);
            }
        }
        if let Ok(socket) = completion.into_descriptor() {
            self.waiting.push_back(socket);
        }
        Ok(())
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
        let accept = Operation::accept_multi(listener);
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
