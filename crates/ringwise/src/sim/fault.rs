//! What goes wrong, and when: faults chosen by rate or at the Nth operation.
//!
//! Each rule counts and draws for itself. This file decides that a fault happens; what it does is
//! in the world that asks.

use crate::{op::Opcode, sim::random::Random};

/// Something that goes wrong in a [`Simulation`](super::Simulation).
///
/// Each is something that a kernel or a disk does: a program that cannot stand one is wrong, not
/// unlucky.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The operation takes up to [`latency`](super::SimulationBuilder::latency), so that others,
    /// pushed after it, come first. Any operation but a timeout.
    Delay,
    /// A read, or a receive on a stream, gives fewer bytes than are there, and at least one. Counted
    /// in those of two bytes or more.
    ShortRead,
    /// A write, or a send, takes fewer bytes than it was given, and at least one. Counted in those
    /// of two bytes or more.
    ShortWrite,
    /// The operation fails with `EINTR` and did nothing. Reads, writes, syncs, opens, what changes a
    /// file's length or space, receives that give one result, and sends.
    Interrupted,
    /// The operation fails with `EAGAIN` and did nothing. Reads, writes, syncs, receives that give one
    /// result, and sends.
    Again,
    /// The operation fails with `ECANCELED` and did nothing, though nobody cancelled it: the kernel has
    /// no thread for it, as beyond a limit of processes (io_uring/io-wq.c, io_wq_enqueue). Reads, writes
    /// and syncs; a [`Ring`](crate::Ring) makes them again, by threads of its own, as beside a kernel.
    NoThread,
    /// The operation fails with `EIO`. One that changes names did nothing, and a write did
    /// nothing. A sync that fails so drops what it was to make durable: the file still reads as
    /// written, but what the disk does not happen to have is never written to it, by no later sync.
    Io,
    /// The operation fails with `ENOSPC` and did nothing. Writes, allocations, and what makes a
    /// name.
    NoSpace,
    /// A submit hands over only the first part of what is queued, at least one operation; the
    /// rest stays queued for the next submit. Counted in submits of two operations or more.
    PartialSubmit,
    /// A submit hands over nothing and fails with `EAGAIN`, at most eight times in a row. Counted in
    /// submits of one operation or more.
    SubmitRefused,
    /// A cancel comes too late: it fails with `EALREADY`, and the other operation goes on. Counted
    /// in cancels that find an operation other than a timeout.
    CancelLate,
    /// A cancel misses: the other operation is over just before, and the cancel fails with
    /// `ENOENT`. Counted as [`CancelLate`](Self::CancelLate), but for what waits at a socket, which
    /// cannot be over.
    CancelMissed,
    /// A receive that gives several results, or an accept, ends with one of them, without an error:
    /// the loop begins it again. Counted in results.
    MultishotEnds,
    /// No buffer is left of the group that a receive takes from (`ENOBUFS`): it waits until one comes
    /// back. Counted when there is something to be received and a buffer is out, since there are all
    /// of them otherwise.
    NoBuffers,
    /// The limit of open descriptors is reached (`EMFILE`): the connection waits where it is, and an
    /// accept that gives several results waits until a [`Descriptor`](crate::Descriptor) closes.
    /// Counted when there is a connection to be accepted.
    NoDescriptors,
    /// The kernel has no memory for another socket (`ENOMEM`): the connection waits where it is. Counted
    /// when there is a connection to be accepted.
    NoMemory,
    /// The limit of open files of the whole machine is reached (`ENFILE`). Otherwise as
    /// [`NoDescriptors`](Self::NoDescriptors).
    NoFiles,
    /// The kernel has no memory for the buffers of another socket (`ENOBUFS`): the connection waits
    /// where it is. Counted when there is a connection to be accepted.
    NoSocketMemory,
    /// A rule of the machine forbids the accept (`EPERM`). The connection waits where it is, since the
    /// kernel asks before it takes one (net/socket.c, do_accept). Counted when there is a connection to
    /// be accepted.
    Forbidden,
    /// A connection is gone before it is accepted (`ECONNABORTED`). Counted in accepts.
    ConnectionAborted,
    /// The other end resets the connection just before a receive or a send.
    Reset,
    /// The other end of the connection vanishes just before a receive or a send: nothing comes, and
    /// what is sent goes nowhere. Time tells, by a deadline of the program's own,
    /// [`set_keepalive`](crate::net::set_keepalive) or
    /// [`set_user_timeout`](crate::net::set_user_timeout).
    PeerVanishes,
    /// The power fails during this operation. Everything fails with `EIO` until
    /// [`Simulation::crash`](super::Simulation::crash) starts the machine again.
    PowerLoss,
}

impl Fault {
    /// Whether it can befall this operation; submits are [`Opcode::Submit`].
    fn befalls(self, opcode: Opcode) -> bool {
        use Opcode as O;
        let own = matches!(opcode, O::Nop | O::Timeout | O::Cancel | O::Submit | O::Register);
        let reads = matches!(opcode, O::Read | O::ReadVectored);
        let writes = matches!(opcode, O::Write | O::WriteVectored);
        let accepts = matches!(opcode, O::Accept | O::AcceptMulti);
        let receives = matches!(opcode, O::Receive | O::ReceiveMessage);
        let sends = matches!(opcode, O::Send | O::SendZeroCopy | O::SendMessage);
        let on_stream = receives || sends || opcode == O::ReceiveMulti;
        let on_socket = on_stream || accepts || opcode == O::Connect;
        match self {
            Fault::Delay => !matches!(opcode, O::Timeout | O::Submit | O::Register),
            Fault::ShortRead => reads || receives || opcode == O::ReceiveMulti,
            Fault::ShortWrite => writes || sends,
            Fault::Again => reads || writes || opcode == O::Sync || receives || sends,
            Fault::NoThread => reads || writes || opcode == O::Sync,
            Fault::Interrupted => {
                let lasts = matches!(opcode, O::Sync | O::Open | O::Allocate | O::SetLen);
                reads || writes || lasts || receives || sends
            }
            Fault::Io => !own && !on_socket,
            Fault::PowerLoss => !own,
            Fault::NoSpace => {
                let names = matches!(
                    opcode,
                    O::Open | O::CreateDirectory | O::Rename | O::Link | O::Symlink
                );
                writes || names || opcode == O::Allocate
            }
            Fault::PartialSubmit | Fault::SubmitRefused => opcode == O::Submit,
            Fault::CancelLate | Fault::CancelMissed => opcode == O::Cancel,
            Fault::MultishotEnds => matches!(opcode, O::ReceiveMulti | O::AcceptMulti),
            Fault::NoBuffers => opcode == O::ReceiveMulti,
            Fault::NoDescriptors | Fault::NoFiles | Fault::NoMemory => accepts,
            Fault::NoSocketMemory | Fault::Forbidden | Fault::ConnectionAborted => accepts,
            Fault::Reset | Fault::PeerVanishes => on_stream || reads || writes,
        }
    }
}

/// When a [`Fault`] happens.
///
/// # Examples
///
/// ```
/// use ringwise::{Opcode, sim::When};
///
/// let sometimes = When::rate(0.05);
/// let third_sync = When::nth(3).of(Opcode::Sync);
/// # let _ = (sometimes, third_sync);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct When {
    trigger: Trigger,
    opcode: Option<Opcode>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trigger {
    Rate(f64),
    Nth(u64),
}

impl When {
    /// At each operation that the fault can befall, with this probability from 0 to 1.
    pub fn rate(probability: f64) -> When {
        When { trigger: Trigger::Rate(probability), opcode: None }
    }

    /// At every operation that the fault can befall.
    pub fn always() -> When {
        When::rate(1.0)
    }

    /// Once, at the `n`th operation that the fault can befall, counted from 1 and from when the
    /// fault was asked for.
    pub fn nth(n: u64) -> When {
        When { trigger: Trigger::Nth(n), opcode: None }
    }

    /// Only at operations of this kind, which alone are then counted.
    #[must_use]
    pub fn of(mut self, opcode: Opcode) -> When {
        self.opcode = Some(opcode);
        self
    }
}

/// A fault that was asked for.
#[derive(Debug)]
struct Rule {
    fault: Fault,
    when: When,
    random: Random,
    seen: u64,
}

impl Rule {
    /// Counts an operation and tells whether the fault befalls it.
    fn strikes(&mut self, fault: Fault, opcode: Opcode) -> bool {
        let counts = self.fault == fault
            && fault.befalls(opcode)
            && self.when.opcode.is_none_or(|only| only == opcode);
        if !counts {
            return false;
        }
        self.seen += 1;
        match self.when.trigger {
            Trigger::Rate(probability) => self.random.chance(probability),
            Trigger::Nth(n) => self.seen == n,
        }
    }
}

/// All faults that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Rule>,
    /// Rules ever made, so that each has a stream of its own.
    made: u64,
    /// What struck since it was last asked for, for the trace.
    struck: Vec<Fault>,
}

impl Faults {
    pub(crate) fn add(&mut self, seed: u64, fault: Fault, when: When) {
        /// Streams below this number have other uses.
        const FIRST_STREAM: u64 = 1 << 32;
        let random = Random::stream(seed, FIRST_STREAM + self.made);
        self.made += 1;
        self.rules.push(Rule { fault, when, random, seen: 0 });
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Whether this fault befalls this operation. Every rule counts it, whichever strikes.
    pub(crate) fn strike(&mut self, fault: Fault, opcode: Opcode) -> bool {
        let mut struck = false;
        for rule in &mut self.rules {
            struck |= rule.strikes(fault, opcode);
        }
        if struck {
            self.struck.push(fault);
        }
        struck
    }

    /// What struck since this was last asked.
    pub(crate) fn take_struck(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.struck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_is_counted_among_those_that_count() {
        let mut faults = Faults::default();
        faults.add(1, Fault::Io, When::nth(2).of(Opcode::Sync));
        let program = [Opcode::Sync, Opcode::Write, Opcode::Timeout, Opcode::Sync, Opcode::Sync];
        let struck: Vec<bool> =
            program.iter().map(|opcode| faults.strike(Fault::Io, *opcode)).collect();
        assert_eq!(struck, [false, false, false, true, false]);
    }

    #[test]
    fn a_rule_more_leaves_the_others_where_they_were() {
        let strikes = |with_another: bool| {
            let mut faults = Faults::default();
            faults.add(9, Fault::ShortRead, When::rate(0.5));
            if with_another {
                faults.add(9, Fault::Io, When::rate(0.5));
            }
            (0..64)
                .map(|_| {
                    let _ = faults.strike(Fault::Io, Opcode::Read);
                    faults.strike(Fault::ShortRead, Opcode::Read)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(strikes(false), strikes(true));
    }
}
