//! Faults and when they strike: at a rate, or at the Nth operation.
//!
//! Each rule has its own count and its own random numbers. This file decides whether a fault
//! strikes; the world applies its effect.

use crate::{op::Opcode, sim::random::Random};

/// Something that goes wrong in a [`Simulation`](super::Simulation).
///
/// Kernels and disks do each of these. A program that cannot stand one is wrong, not unlucky.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Opcode, fs, sim::{Fault, Simulation, When}};
///
/// # futures::executor::block_on(async {
/// let full = When::nth(1).of(Opcode::Write);
/// let simulation = Simulation::builder(7).fault(Fault::NoSpace, full).build();
/// let ring = Local::builder().simulation(&simulation).build_ring()?;
/// let written = fs::write(&ring, "/log", "text").await.into_result();
/// assert_eq!(written.unwrap_err().errno(), libc::ENOSPC);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The operation takes up to [`latency`](super::SimulationBuilder::latency), so that operations
    /// pushed after it can finish first. Strikes every kind of operation except timeouts.
    Delay,
    /// A read, or a receive on a stream, returns fewer bytes than are available, and at least one.
    /// Only those of two bytes or more count.
    ShortRead,
    /// A write or a send takes fewer bytes than it was given, and at least one. Only those of two
    /// bytes or more count.
    ShortWrite,
    /// The operation fails with `EINTR` and does nothing. Strikes reads, writes, syncs, opens,
    /// changes of a file's length or space, receives with one result, and sends.
    Interrupted,
    /// The operation fails with `EAGAIN` and does nothing. Strikes reads, writes, syncs, receives
    /// with one result, and sends.
    Again,
    /// The operation fails with `ECANCELED` and does nothing, though nobody cancelled it. The
    /// kernel has no thread for it, for example beyond a limit of processes (io_uring/io-wq.c,
    /// io_wq_enqueue). Strikes reads, writes and syncs. A [`Ring`](crate::Ring) makes them again on
    /// its own threads, as it does on a real kernel.
    NoThread,
    /// The operation fails with `EIO`. A write does nothing, and neither does an operation that
    /// changes names. A sync drops the bytes that it should have made durable: the file still reads
    /// as written, but no later sync writes these bytes to the disk. The disk keeps those that it
    /// happened to write before.
    Io,
    /// The operation fails with `ENOSPC` and does nothing. Strikes writes, allocations, and
    /// operations that make a name.
    NoSpace,
    /// A submit hands over only the first part of the queue, at least one operation. The rest stays
    /// queued for the next submit. Only submits of two operations or more count.
    PartialSubmit,
    /// A submit hands over nothing and fails with `EAGAIN`, at most eight times in a row. Only
    /// submits of one operation or more count.
    SubmitRefused,
    /// A cancel comes too late: it fails with `EALREADY`, and the other operation goes on. Only
    /// cancels that find an operation other than a timeout count.
    CancelLate,
    /// A cancel misses: the other operation finishes just before, and the cancel fails with
    /// `ENOENT`. Counts as [`CancelLate`](Self::CancelLate), but never strikes operations that wait
    /// at a socket, since these cannot have finished.
    CancelMissed,
    /// A receive or an accept with several results ends with one of them, without an error, and the
    /// loop starts it again. Each result counts.
    MultishotEnds,
    /// The group of a receive has no buffer left (`ENOBUFS`), so the receive waits until one comes
    /// back. Counts only if there is something to receive and a buffer is in use; otherwise the
    /// group would have all its buffers.
    NoBuffers,
    /// The limit of open descriptors is reached (`EMFILE`). The connection stays in the backlog,
    /// and an accept with several results waits until a [`Descriptor`](crate::Descriptor) closes.
    /// Counts only if there is a connection to accept.
    NoDescriptors,
    /// The kernel has no memory for another socket (`ENOMEM`), and the connection stays in the
    /// backlog. Counts only if there is a connection to accept.
    NoMemory,
    /// The limit of open files of the whole machine is reached (`ENFILE`). Otherwise as
    /// [`NoDescriptors`](Self::NoDescriptors).
    NoFiles,
    /// The kernel has no memory for the buffers of another socket (`ENOBUFS`). The connection stays in
    /// the backlog. Counts only if there is a connection to accept.
    NoSocketMemory,
    /// A rule of the machine forbids the accept (`EPERM`). The connection stays in the backlog, since the
    /// kernel asks before it takes one (net/socket.c, do_accept), and an accept with several results ends.
    /// Counts only if there is a connection to
    /// accept.
    Forbidden,
    /// A connection is gone before it is accepted (`ECONNABORTED`). Each accept counts.
    ConnectionAborted,
    /// The other end resets the connection just before a receive or a send.
    Reset,
    /// The other end of the connection vanishes just before a receive or a send: nothing arrives,
    /// and sent bytes go nowhere. Only a timeout notices: a deadline of the program,
    /// [`set_keepalive`](crate::net::set_keepalive) or
    /// [`set_user_timeout`](crate::net::set_user_timeout).
    PeerVanishes,
    /// The power fails during this operation. Every operation fails with `EIO` until
    /// [`Simulation::crash`](super::Simulation::crash) starts the machine again.
    PowerLoss,
}

impl Fault {
    /// Returns whether the fault can strike this operation. Submits are [`Opcode::Submit`].
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
    /// Strikes each operation that the fault can strike, with this probability from 0 to 1.
    pub fn rate(probability: f64) -> When {
        When { trigger: Trigger::Rate(probability), opcode: None }
    }

    /// Strikes every operation that the fault can strike.
    pub fn always() -> When {
        When::rate(1.0)
    }

    /// Strikes once, at the `n`th operation that the fault can strike. The count starts at 1, when
    /// the fault is added.
    pub fn nth(n: u64) -> When {
        When { trigger: Trigger::Nth(n), opcode: None }
    }

    /// Strikes only operations of this kind, and counts only these.
    #[must_use]
    pub fn of(mut self, opcode: Opcode) -> When {
        self.opcode = Some(opcode);
        self
    }
}

/// A fault that was added.
#[derive(Debug)]
struct Rule {
    fault: Fault,
    when: When,
    random: Random,
    seen: u64,
}

impl Rule {
    /// Counts an operation, and returns whether the fault strikes it.
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

/// All faults that were added.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Rule>,
    /// The number of rules ever made. It gives each rule its own stream of random numbers.
    made: u64,
    /// The faults that struck since the last `take_struck`, for the trace.
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

    /// Returns whether this fault strikes this operation. Every rule counts the operation,
    /// whichever strikes.
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

    /// Takes the faults that struck since the last call.
    pub(crate) fn take_struck(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.struck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nth_counts_only_operations_of_its_kind() {
        let mut faults = Faults::default();
        faults.add(1, Fault::Io, When::nth(2).of(Opcode::Sync));
        let program = [Opcode::Sync, Opcode::Write, Opcode::Timeout, Opcode::Sync, Opcode::Sync];
        let struck: Vec<bool> =
            program.iter().map(|opcode| faults.strike(Fault::Io, *opcode)).collect();
        assert_eq!(struck, [false, false, false, true, false]);
    }

    #[test]
    fn another_rule_does_not_move_the_first_ones_strikes() {
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
