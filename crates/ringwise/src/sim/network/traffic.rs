//! Calls on the simulation's sockets: their faults, their results, and how they wait.
//!
//! Each endpoint has a lane, which is a queue, for each direction. A call that finds nothing to
//! take, or no room, waits at the end of its lane and is tried again when something changes at the
//! endpoint. A call has all its effects at once. Time passes only before a call is performed, by
//! [`Delay`](crate::sim::Fault::Delay) and by timeouts.

use std::collections::VecDeque;

use crate::{
    buf::BufferGroup,
    op::{Manner, Opcode},
    sim::{
        action::{Action, Deed, Exchange, Outcome, Payload},
        fault::Fault,
        network::{Answer, EndpointId, Stop},
        world::{Pending, World},
    },
};

/// A lane: the endpoint, and whether the calls that wait there go outwards.
pub(crate) type Lane = (EndpointId, bool);

/// The result of one attempt.
enum Step {
    Done(Outcome),
    /// A result of a call that goes on.
    More(Outcome),
    NotReady,
}

impl World {
    /// Performs a call on a socket, or lets it wait.
    pub(crate) fn begin_exchange(&mut self, pending: Pending) {
        let Deed::Exchange { endpoint, ref exchange } = pending.action.deed else {
            unreachable!("asked for exchanges only")
        };
        self.notice_closed(false);
        let lane = (endpoint, exchange.is_outward());
        let is_first = !self.waiting.contains_key(&lane);
        if !self.powered {
            self.answer(pending, Err(libc::EIO));
        } else if let Some(errno) = self.fault_on_socket(pending.action.opcode, endpoint) {
            self.answer(pending, Err(errno));
        } else if !is_first && is_quiet(exchange) {
            // A quiet send never waits, and it must not overtake the calls that do.
            self.answer(pending, Ok(0));
        } else {
            self.waiting.entry(lane).or_default().push_back(pending);
            self.serve(lane);
        }
        self.settle_network();
    }

    fn answer(&mut self, pending: Pending, result: Result<usize, i32>) {
        let Pending { number, owner, action } = pending;
        self.deliver(number, owner, &action.to_string(), Outcome::of(result));
    }

    /// Applies the faults that strike before a call is performed, and returns their error. Every
    /// fault counts the call.
    fn fault_on_socket(&mut self, opcode: Opcode, endpoint: EndpointId) -> Option<i32> {
        let interrupted = self.faults.strike(Fault::Interrupted, opcode).then_some(libc::EINTR);
        let again = self.faults.strike(Fault::Again, opcode).then_some(libc::EAGAIN);
        if !self.network.is_stream(endpoint) {
            return interrupted.or(again);
        }
        if self.faults.strike(Fault::Reset, opcode) {
            self.network.be_reset(endpoint);
        }
        if self.faults.strike(Fault::PeerVanishes, opcode) {
            self.cut(endpoint);
        }
        interrupted.or(again)
    }

    /// Makes the other end of a connection vanish. Only a timeout notices.
    pub(crate) fn cut(&mut self, endpoint: EndpointId) {
        self.network.cut(endpoint);
        self.expect_silence(endpoint);
    }

    /// Schedules the timeout that ends silence, if there is one.
    pub(crate) fn expect_silence(&mut self, endpoint: EndpointId) {
        let patience = self.network.stream(endpoint).ok().and_then(|stream| stream.patience_ns());
        if let Some(after_ns) = patience {
            let action = Action { opcode: Opcode::Timeout, deed: Deed::GiveUp { endpoint } };
            let due = self.clock_ns.saturating_add(after_ns);
            self.schedule(due, action);
        }
    }

    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        if let Ok(stream) = self.network.stream(endpoint) {
            stream.give_up();
        }
        self.network.touch(endpoint);
        self.settle_network();
    }

    /// Tries waiting calls again at the endpoints that changed, until nothing more changes.
    pub(crate) fn settle_network(&mut self) {
        let mut has_changed = false;
        loop {
            let mut touched = self.network.take_touched();
            if touched.is_empty() {
                break;
            }
            has_changed = true;
            while let Some(endpoint) = touched.pop_front() {
                self.serve((endpoint, false));
                self.serve((endpoint, true));
            }
        }
        if has_changed {
            // Wakes threads that wait outside.
            self.stirred.notify_all();
        }
    }

    /// Closes the endpoints whose descriptors were closed.
    pub(crate) fn notice_closed(&mut self, thoroughly: bool) {
        for endpoint in self.files.take_closed(thoroughly) {
            self.network.close(endpoint);
        }
        self.settle_network();
    }

    /// Performs the calls that wait in a lane, in order, until one is still not ready.
    fn serve(&mut self, lane: Lane) {
        let Some(mut queue) = self.waiting.remove(&lane) else { return };
        while let Some(mut pending) = queue.pop_front() {
            let Pending { number, owner, action } = &mut pending;
            let what = action.to_string();
            let (number, owner) = (*number, *owner);
            match self.attempt(action) {
                Step::Done(outcome) => self.deliver(number, owner, &what, outcome),
                Step::More(outcome) => {
                    self.deliver(number, owner, &what, Outcome { has_more: true, ..outcome });
                    queue.push_front(pending);
                }
                Step::NotReady => {
                    queue.push_front(pending);
                    break;
                }
            }
        }
        if !queue.is_empty() {
            self.waiting.insert(lane, queue);
        }
    }

    fn attempt(&mut self, action: &mut Action) -> Step {
        let Deed::Exchange { endpoint, exchange } = &mut action.deed else {
            unreachable!("nothing else waits")
        };
        let (id, opcode) = (*endpoint, action.opcode);
        match exchange {
            Exchange::Accept { multi } => self.accept(opcode, id, *multi),
            Exchange::Connect { to } => match to {
                Some(to) => step_of(self.network.connect(id, to).map(|()| 0)),
                None => Step::Done(Outcome::of(Err(libc::EINVAL))),
            },
            Exchange::Receive { len } => self.receive(opcode, id, *len),
            Exchange::ReceiveMulti { group } => self.receive_leased(opcode, id, group),
            Exchange::Send { bytes, moved, manner, to } => {
                let answer = loop {
                    let rest = &bytes[*moved..];
                    // A datagram goes whole or not at all.
                    let is_stream = self.network.is_stream(id);
                    let is_cut = is_stream
                        && rest.len() > 1
                        && self.faults.strike(Fault::ShortWrite, opcode);
                    let len = match is_cut {
                        true => 1 + self.shortness.below(rest.len() as u64 - 1) as usize,
                        false => rest.len(),
                    };
                    let is_whole = is_stream && *manner != Manner::Some;
                    match self.network.send(id, &rest[..len], to.as_ref()) {
                        Ok(count) => *moved += count,
                        Err(Stop::NotReady) if *manner == Manner::Quiet => break Ok(*moved),
                        Err(Stop::NotReady) => break Err(Stop::NotReady),
                        Err(_) if *moved > 0 => break Ok(*moved),
                        Err(failed) => break Err(failed),
                    }
                    if !is_whole || is_cut || *moved == bytes.len() {
                        break Ok(*moved);
                    }
                };
                // If the other end has vanished, a timeout for unanswered bytes starts with the
                // send.
                self.expect_silence(id);
                step_of(answer)
            }
        }
    }

    /// Receives into a buffer of a group.
    fn receive_leased(&mut self, opcode: Opcode, id: EndpointId, group: &BufferGroup) -> Step {
        let bytes_most = group.buffer_bytes();
        let short_of = self.network.available(id) > 0
            && group.available() < group.count()
            && self.faults.strike(Fault::NoBuffers, opcode);
        let index = if short_of { None } else { group.take() };
        let Some(index) = index else {
            return Step::Done(Outcome::of(Err(libc::ENOBUFS)));
        };
        match self.receive_bytes(opcode, id, bytes_most) {
            Ok((bytes, _)) if !bytes.is_empty() || !self.network.is_stream(id) => {
                let len = bytes.len().min(bytes_most);
                let (group, bytes) = (group.clone(), bytes[..len].to_vec());
                let payload = Payload::Leased { group, index, bytes };
                self.go_on(opcode, Outcome { payload, ..Outcome::of(Ok(len)) })
            }
            nothing => {
                group.put_back(index);
                step_of(nothing.map(|_| 0))
            }
        }
    }

    /// Continues a call with several results, unless a fault ends it.
    fn go_on(&mut self, opcode: Opcode, outcome: Outcome) -> Step {
        let ends = self.faults.strike(Fault::MultishotEnds, opcode);
        if ends { Step::Done(outcome) } else { Step::More(outcome) }
    }

    fn accept(&mut self, opcode: Opcode, id: EndpointId, multi: bool) -> Step {
        let waits = self.network.available(id) > 0;
        if waits && let Some(errno) = self.refused_accept(opcode) {
            return Step::Done(Outcome::of(Err(errno)));
        }
        let accepted = match self.network.accept(id) {
            Ok(accepted) => accepted,
            Err(stop) => return step_of(Err(stop)),
        };
        if self.faults.strike(Fault::ConnectionAborted, opcode) {
            self.network.reset(accepted);
            return Step::Done(Outcome::of(Err(libc::ECONNABORTED)));
        }
        let outcome = match self.files.open_socket(accepted) {
            Ok(placeholder) => {
                Outcome { payload: Payload::Opened(placeholder), ..Outcome::of(Ok(0)) }
            }
            Err(errno) => {
                self.network.unaccept(id, accepted);
                return Step::Done(Outcome::of(Err(errno)));
            }
        };
        if multi { self.go_on(opcode, outcome) } else { Step::Done(outcome) }
    }

    /// The error of an accept that leaves its connection where it is. A fault counts the accept if
    /// none before it in the list strikes.
    fn refused_accept(&mut self, opcode: Opcode) -> Option<i32> {
        let refusals = [
            (Fault::NoDescriptors, libc::EMFILE),
            (Fault::NoFiles, libc::ENFILE),
            (Fault::NoMemory, libc::ENOMEM),
            (Fault::NoSocketMemory, libc::ENOBUFS),
            (Fault::Forbidden, libc::EPERM),
        ];
        let strikes = |(fault, _): &(Fault, i32)| self.faults.strike(*fault, opcode);
        refusals.into_iter().find(strikes).map(|(_, errno)| errno)
    }

    fn receive(&mut self, opcode: Opcode, id: EndpointId, len: usize) -> Step {
        match self.receive_bytes(opcode, id, len) {
            Ok((bytes, from)) => {
                let outcome = Outcome::of(Ok(bytes.len().min(len)));
                let payload = Payload::Received { bytes, from };
                Step::Done(Outcome { payload, ..outcome })
            }
            Err(stop) => step_of(Err(stop)),
        }
    }

    fn receive_bytes(
        &mut self,
        opcode: Opcode,
        id: EndpointId,
        len: usize,
    ) -> Answer<(Vec<u8>, Option<crate::net::Address>)> {
        let there = self.network.available(id).min(len);
        let shortens =
            there > 1 && self.network.is_stream(id) && self.faults.strike(Fault::ShortRead, opcode);
        let len = if shortens { 1 + self.shortness.below(there as u64 - 1) as usize } else { len };
        self.network.receive(id, len)
    }

    /// Removes a waiting call. For a send, also returns how many bytes it has sent.
    pub(crate) fn take_waiting(
        &mut self,
        is_it: impl Fn(&Pending) -> bool,
    ) -> Option<(Pending, usize)> {
        let found = self
            .waiting
            .iter()
            .find_map(|(lane, queue)| queue.iter().position(&is_it).map(|at| (*lane, at)));
        let (lane, at) = found?;
        let queue = self.waiting.get_mut(&lane)?;
        let pending = queue.remove(at)?;
        if queue.is_empty() {
            self.waiting.remove(&lane);
        }
        let moved = match &pending.action.deed {
            Deed::Exchange { exchange: Exchange::Send { moved, .. }, .. } => *moved,
            _ => 0,
        };
        Some((pending, moved))
    }

    /// Removes all waiting calls, lane by lane.
    pub(crate) fn take_all_waiting(&mut self) -> impl Iterator<Item = Pending> + use<> {
        std::mem::take(&mut self.waiting).into_values().flat_map(VecDeque::into_iter)
    }

    /// Resets all connections, because the power fails.
    pub(crate) fn lose_network(&mut self) {
        let endpoints: Vec<_> = self.files.endpoints().collect();
        endpoints.into_iter().for_each(|endpoint| self.network.reset(endpoint));
        self.settle_network();
    }
}

fn step_of(answer: Answer<usize>) -> Step {
    match answer {
        Ok(count) => Step::Done(Outcome::of(Ok(count))),
        Err(Stop::Failed(errno)) => Step::Done(Outcome::of(Err(errno))),
        Err(Stop::NotReady) => Step::NotReady,
    }
}

fn is_quiet(exchange: &Exchange) -> bool {
    matches!(exchange, Exchange::Send { manner: Manner::Quiet, .. })
}
