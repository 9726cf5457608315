//! The state that the loops of a simulation share: time, the disk, open files, and operations in
//! flight.
//!
//! An operation is due at once, unless a fault delays it. It takes effect in one step when it is
//! due, and its outcome lies in its loop's mailbox until the loop takes it. Operations take effect
//! one after the other in the order of their times, so the same program with the same seed gives
//! the same run. Nothing here sleeps: the driver does that.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::{Arc, Condvar},
    task::Waker,
};

use crate::{
    error::Errno,
    op::Opcode,
    sim::{
        action::{Action, Deed, Outcome, Payload},
        disk::{Disk, Left, content::Remains},
        fault::{Fault, Faults, When},
        files::Files,
        network::{Network, traffic::Lane},
        random::Random,
        trace::Trace,
    },
};

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) number: u64,
    pub(super) owner: u32,
    pub(super) action: Action,
}

/// The time at which an operation is due, and its number. Operations that are due at the same time
/// run in the order of their submission.
type Due = (u64, u64);

/// The streams of random numbers that do not belong to a fault.
const LATENCY_STREAM: u64 = 1;
const SHORTNESS_STREAM: u64 = 2;
const DISK_STREAM: u64 = 3;
const SUBMIT_STREAM: u64 = 4;

/// The owner of events that no loop asked for.
const NOBODY: u32 = u32::MAX;

/// The most submits that are refused one after the other.
const REFUSALS_MAX: u32 = 8;

/// Everything that the loops of a simulation share.
#[derive(Debug)]
pub(crate) struct World {
    seed: u64,
    pub(super) clock_ns: u64,
    pub(super) manual: bool,
    pub(super) latency_ns: u64,
    pub(super) disk: Disk,
    pub(super) files: Files,
    pub(super) network: Network,
    /// Calls that wait at a socket.
    pub(super) waiting: BTreeMap<Lane, VecDeque<Pending>>,
    /// Notified when something on the network may have changed.
    pub(super) stirred: Arc<Condvar>,
    pub(super) faults: Faults,
    pub(super) trace: Trace,
    pub(super) powered: bool,
    pending: BTreeMap<Due, Pending>,
    mailboxes: BTreeMap<u32, VecDeque<(u64, Outcome)>>,
    wakers: BTreeMap<u32, Waker>,
    /// Loops that sleep until their waker is used.
    asleep: BTreeSet<u32>,
    /// The operations that a loop performs on its own threads.
    by_threads: HashSet<(u32, Opcode)>,
    loops: u32,
    operations: u64,
    /// The number of submits refused since the last accepted one.
    refusals: u32,
    latency: Random,
    pub(super) shortness: Random,
    pub(super) chance: Random,
    submits: Random,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        World {
            seed,
            clock_ns: 0,
            manual: false,
            latency_ns: 1_000_000,
            disk: Disk::new(),
            files: Files::default(),
            network: Network::default(),
            waiting: BTreeMap::new(),
            stirred: Arc::default(),
            faults: Faults::default(),
            trace: Trace::default(),
            powered: true,
            pending: BTreeMap::new(),
            mailboxes: BTreeMap::new(),
            wakers: BTreeMap::new(),
            asleep: BTreeSet::new(),
            by_threads: HashSet::new(),
            loops: 0,
            operations: 0,
            refusals: 0,
            latency: Random::stream(seed, LATENCY_STREAM),
            shortness: Random::stream(seed, SHORTNESS_STREAM),
            chance: Random::stream(seed, DISK_STREAM),
            submits: Random::stream(seed, SUBMIT_STREAM),
        }
    }

    pub(crate) fn inject(&mut self, fault: Fault, when: When) {
        self.faults.add(self.seed, fault, when);
    }

    /// Registers a new loop and returns its number.
    pub(super) fn join(&mut self, waker: Waker) -> u32 {
        let number = self.loops;
        self.loops += 1;
        self.mailboxes.insert(number, VecDeque::new());
        self.wakers.insert(number, waker);
        number
    }

    /// Removes a loop. Its operations in flight still take effect, except those that wait at a
    /// socket, and nobody gets their results.
    pub(super) fn leave(&mut self, number: u32) {
        let untaken = self.mailboxes.remove(&number).unwrap_or_default();
        for (_, outcome) in untaken {
            if let Payload::Leased { group, index, .. } = outcome.payload {
                group.put_back(index);
            }
        }
        self.wakers.remove(&number);
        self.asleep.remove(&number);
        while self.take_waiting(|pending| pending.owner == number).is_some() {}
    }

    /// From now on these operations of a loop need no thread of the kernel.
    pub(super) fn leave_to_threads(&mut self, owner: u32, opcode: Opcode) {
        self.by_threads.insert((owner, opcode));
    }

    pub(super) fn is_by_threads(&self, owner: u32, opcode: Opcode) -> bool {
        self.by_threads.contains(&(owner, opcode))
    }

    /// Notes that a loop has nothing to do and is about to sleep.
    pub(super) fn fall_asleep(&mut self, number: u32) {
        self.asleep.insert(number);
    }

    /// Wakes all loops that sleep, so that they look for results.
    pub(super) fn wake_all(&mut self) {
        for number in std::mem::take(&mut self.asleep) {
            if let Some(waker) = self.wakers.get(&number) {
                waker.wake_by_ref();
            }
        }
    }

    /// Returns how many of the `queued` operations a submit of loop `owner` takes.
    pub(super) fn admit(&mut self, owner: u32, queued: usize) -> Result<usize, i32> {
        if queued == 0 {
            return Ok(0);
        }
        let refused = self.faults.strike(Fault::SubmitRefused, Opcode::Submit);
        self.refusals = if refused && self.refusals < REFUSALS_MAX { self.refusals + 1 } else { 0 };
        if self.refusals > 0 {
            self.trace.note(self.clock_ns, format_args!("loop {owner} submit of {queued}: EAGAIN"));
            return Err(libc::EAGAIN);
        }
        if queued > 1 && self.faults.strike(Fault::PartialSubmit, Opcode::Submit) {
            let taken = 1 + self.submits.below(queued as u64 - 1) as usize;
            self.trace.note(
                self.clock_ns,
                format_args!("loop {owner} submit of {queued}: {taken} taken"),
            );
            return Ok(taken);
        }
        Ok(queued)
    }

    /// Takes over an operation. Returns the number under which its outcome comes back.
    pub(super) fn hand_over(&mut self, owner: u32, action: Action) -> u64 {
        let number = self.operations;
        self.operations += 1;
        let mut due = self.clock_ns;
        if let Deed::Timeout { after_ns } = action.deed {
            due = due.saturating_add(after_ns);
        } else if self.faults.strike(Fault::Delay, action.opcode) {
            due = due.saturating_add(1 + self.latency.below(self.latency_ns.max(1)));
        }
        self.pending.insert((due, number), Pending { number, owner, action });
        number
    }

    /// Schedules an event that no loop asked for.
    pub(super) fn schedule(&mut self, due_ns: u64, action: Action) {
        let number = self.operations;
        self.operations += 1;
        self.pending.insert((due_ns, number), Pending { number, owner: NOBODY, action });
    }

    /// Takes the outcomes of a loop's operations, in the order in which they finished.
    pub(super) fn take(&mut self, owner: u32) -> VecDeque<(u64, Outcome)> {
        self.mailboxes.get_mut(&owner).map(std::mem::take).unwrap_or_default()
    }

    /// Returns whether a loop has outcomes to take.
    pub(super) fn has_mail(&self, owner: u32) -> bool {
        self.mailboxes.get(&owner).is_some_and(|mailbox| !mailbox.is_empty())
    }

    /// Runs everything that is due.
    pub(super) fn catch_up(&mut self) {
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > self.clock_ns {
                return;
            }
            let pending = entry.remove();
            self.finish(pending);
        }
    }

    /// Returns the time of the next scheduled event.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.pending.first_key_value().map(|((due, _), _)| *due)
    }

    /// Moves the clock forward and runs everything that falls due on the way, each at its time.
    pub(super) fn advance_to(&mut self, time_ns: u64) {
        while let Some(due) = self.next_due().filter(|due| *due <= time_ns) {
            self.clock_ns = self.clock_ns.max(due);
            self.catch_up();
        }
        self.clock_ns = self.clock_ns.max(time_ns);
    }

    /// Runs the next event that is not a timeout, as if it took no time. Returns false if there is
    /// none. This is for a manual clock.
    pub(super) fn hurry(&mut self) -> bool {
        let is_work = |(_, pending): &(&Due, &Pending)| !pending.action.deed.is_time();
        let Some(due) = self.pending.iter().find(is_work).map(|(due, _)| *due) else {
            return false;
        };
        if let Some(pending) = self.pending.remove(&due) {
            self.finish(pending);
        }
        true
    }

    fn finish(&mut self, pending: Pending) {
        self.disk.set_time(self.clock_ns);
        // The trace shows struck delays and submits by itself, so they are not noted at this
        // operation.
        self.faults.take_struck();
        if self.powered && self.faults.strike(Fault::PowerLoss, pending.action.opcode) {
            let due = (self.clock_ns, pending.number);
            self.pending.insert(due, pending);
            self.lose_power();
            return;
        }
        match pending.action.deed {
            Deed::Exchange { .. } => return self.begin_exchange(pending),
            Deed::GiveUp { endpoint } => {
                self.trace.note(self.clock_ns, format_args!("{}", pending.action));
                return self.give_up(endpoint);
            }
            _ => {}
        }
        let Pending { number, owner, action } = pending;
        let what = action.to_string();
        let closes = matches!(action.deed, Deed::Close { .. });
        let outcome = match action.deed {
            Deed::Cancel { target } => self.cancel(owner, target),
            deed => self.perform(owner, action.opcode, deed),
        };
        self.deliver(number, owner, &what, outcome);
        if closes {
            self.files.note_close();
            self.notice_closed(true);
        }
        if self.disk.is_crowded() {
            let open = self.files.inodes();
            self.disk.collect(&open);
        }
    }

    pub(super) fn deliver(&mut self, number: u64, owner: u32, what: &str, outcome: Outcome) {
        let told = match outcome.payload {
            // The number of a real descriptor differs between runs.
            Payload::Opened(_) => format!("file {}", self.files.last_opened()),
            _ if outcome.result < 0 => Errno(-outcome.result).to_string(),
            _ => outcome.result.to_string(),
        };
        let faults: String =
            self.faults.take_struck().iter().map(|fault| format!(", {fault:?}")).collect();
        self.trace
            .note(self.clock_ns, format_args!("loop {owner} #{number} {what}: {told}{faults}"));
        if let Some(mailbox) = self.mailboxes.get_mut(&owner) {
            mailbox.push_back((number, outcome));
        }
        if self.asleep.remove(&owner)
            && let Some(waker) = self.wakers.get(&owner)
        {
            waker.wake_by_ref();
        }
    }

    /// Cancels an operation that is not due yet.
    fn cancel(&mut self, owner: u32, target: Option<u64>) -> Outcome {
        let is_target =
            |pending: &Pending| pending.owner == owner && Some(pending.number) == target;
        let due = self.pending.iter().find(|(_, pending)| is_target(pending)).map(|(due, _)| *due);
        let Some(due) = due else { return self.cancel_waiting(is_target) };
        let mut strikes = |fault| self.faults.strike(fault, Opcode::Cancel);
        let is_timeout = matches!(self.pending[&due].action.deed, Deed::Timeout { .. });
        let late = !is_timeout && strikes(Fault::CancelLate);
        let missed = !is_timeout && strikes(Fault::CancelMissed);
        if late {
            return Outcome::of(Err(libc::EALREADY));
        }
        let Some(pending) = self.pending.remove(&due) else {
            unreachable!("found just now");
        };
        if missed {
            self.finish(pending);
            return Outcome::of(Err(libc::ENOENT));
        }
        self.give_back(pending, libc::ECANCELED);
        Outcome::of(Ok(0))
    }

    /// Cancels a call that waits at a socket.
    fn cancel_waiting(&mut self, is_target: impl Fn(&Pending) -> bool) -> Outcome {
        if !self.waiting.values().flatten().any(&is_target) {
            return Outcome::of(Err(libc::ENOENT));
        }
        if self.faults.strike(Fault::CancelLate, Opcode::Cancel) {
            return Outcome::of(Err(libc::EALREADY));
        }
        match self.take_waiting(is_target) {
            Some((pending, 0)) => self.give_back(pending, libc::ECANCELED),
            Some((pending, moved)) => {
                let Pending { number, owner, action } = pending;
                self.deliver(number, owner, &action.to_string(), Outcome::of(Ok(moved)));
            }
            None => unreachable!("found just now"),
        }
        Outcome::of(Ok(0))
    }

    /// Ends an operation that was never performed.
    fn give_back(&mut self, pending: Pending, errno: i32) {
        let Pending { number, owner, action } = pending;
        let what = action.to_string();
        if let (Deed::Close { placeholder, .. }, libc::ECANCELED) = (action.deed, errno) {
            // The descriptor stays open and goes back to the operation, which owns it again.
            let _ = std::os::fd::IntoRawFd::into_raw_fd(placeholder);
        }
        let payload = if errno == libc::ECANCELED { Payload::NeverRan } else { Payload::Nothing };
        let outcome = Outcome { payload, ..Outcome::of(Err(errno)) };
        self.deliver(number, owner, &what, outcome);
    }

    /// Cuts the power. Each operation in flight takes effect or not, and the disk crashes.
    pub(super) fn lose_power(&mut self) {
        if !self.powered {
            return;
        }
        self.powered = false;
        let in_flight = self.take_in_flight();
        let count = in_flight.len();
        self.faults.take_struck();
        for pending in &in_flight {
            if self.chance.chance(0.5) {
                self.take_effect(&pending.action.deed);
            }
        }
        self.lose_network();
        self.files.kill_all();
        let left = self.disk.crash(&mut self.chance);
        self.note_loss(count, &left);
        for pending in in_flight {
            self.give_back(pending, libc::EIO);
        }
    }

    fn note_loss(&mut self, in_flight: usize, left: &Left) {
        let Left { kept, changes, files } = left;
        self.trace.note(
            self.clock_ns,
            format_args!(
                "the power fails: {in_flight} operations in flight, {kept} of {changes} changes of \
                 names kept"
            ),
        );
        for (path, remains) in files {
            let Remains { unsynced, kept, len_before, len } = remains;
            self.trace.note(
                self.clock_ns,
                format_args!(
                    "  {}: {kept} of {unsynced} unsynced sectors kept, {len} bytes long, was \
                     {len_before}",
                    path.escape_ascii()
                ),
            );
        }
    }

    /// Takes the operations in flight that need power, in a random order that a kernel could
    /// choose.
    fn take_in_flight(&mut self) -> Vec<Pending> {
        let needs_power = |pending: &Pending| {
            let deed = &pending.action.deed;
            !deed.is_time() && !matches!(deed, Deed::Cancel { .. } | Deed::Nop)
        };
        let dues: Vec<Due> = self
            .pending
            .iter()
            .filter(|(_, pending)| needs_power(pending))
            .map(|(due, _)| *due)
            .collect();
        let mut taken: Vec<Pending> =
            dues.iter().filter_map(|due| self.pending.remove(due)).collect();
        taken.extend(self.take_all_waiting());
        for at in (1..taken.len()).rev() {
            taken.swap(at, self.chance.below(at as u64 + 1) as usize);
        }
        taken
    }

    /// Starts the machine again if it was off.
    pub(super) fn restore_power(&mut self) {
        if !self.powered {
            self.powered = true;
            self.trace.note(self.clock_ns, format_args!("the power is back"));
        }
    }
}
