//! The simulated backend of one loop.
//!
//! Calls on the simulation's files and names go to the world, which the loops share. The classic
//! backend makes calls on other files (a pipe, a real file), in real time. A wait moves the
//! simulation's clock to the next event instead of sleeping, unless the clock is manual or a real
//! call is in progress.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    task::Waker,
    time::{Duration, Instant},
};

use crate::{
    backend::{Cqe, Driver, classic::Classic},
    descriptor::Blocking,
    error::Errno,
    flight::{
        call::Call,
        slot::{BY_THREAD, NEVER_RAN, OWN_NUDGE},
    },
    op::Opcode,
    settings::stats::Stats,
    sim::{
        Simulation,
        action::{Action, Deed},
        network::address::{Lent, Whose},
        world::World,
    },
};

/// The simulated time of one submit. It lets time pass for a loop that only polls.
const ENTER_NS: u64 = 1_000;

/// The simulated backend of one loop.
pub(crate) struct Simulated {
    simulation: Simulation,
    number: u32,
    queued: VecDeque<Lent>,
    queued_max: usize,
    /// Calls that the world has, by the world's numbers for them.
    lent: BTreeMap<u64, Lent>,
    /// Makes calls on files that are not the simulation's, and wakes the loop when it sleeps.
    foreign: Classic,
    /// Whether the loop gets nudges as results.
    expects_nudges: bool,
    in_foreign: BTreeSet<u64>,
    ready: VecDeque<Cqe>,
}

/// The next step of a loop that waits.
enum Next {
    /// Look for results again.
    Look,
    /// The deadline has passed.
    GiveUp,
    /// Sleep until a real call is done or another thread moves the simulation on, for at most this
    /// time.
    Sleep(Option<Duration>),
}

impl Simulated {
    pub(crate) fn new(
        simulation: &Simulation,
        threads_max: usize,
        queued_max: usize,
    ) -> io::Result<Simulated> {
        let mut foreign = Classic::new(threads_max, queued_max)?;
        foreign.expect_nudges();
        Ok(Simulated {
            simulation: simulation.clone(),
            number: simulation.lock().join(foreign.waker()),
            queued: VecDeque::new(),
            queued_max,
            lent: BTreeMap::new(),
            foreign,
            expects_nudges: false,
            in_foreign: BTreeSet::new(),
            ready: VecDeque::new(),
        })
    }

    /// Returns the time on the simulation's clock.
    pub(crate) fn now(&self) -> Instant {
        self.simulation.instant(self.simulation.lock().clock_ns)
    }

    pub(crate) fn count(&self, stats: &mut Stats) {
        self.foreign.count(stats);
    }

    /// Returns a waker with which other threads wake the loop.
    pub(crate) fn waker(&self) -> Waker {
        self.foreign.waker()
    }

    /// From now on treats these operations as if threads of the loop made them. The kernel needs no
    /// thread for them, so [`Fault::NoThread`](crate::sim::Fault::NoThread) spares them.
    pub(crate) fn leave_to_threads(&self, opcode: Opcode) {
        self.simulation.lock().leave_to_threads(self.number, opcode);
    }

    /// From now on reports nudges as results.
    pub(crate) fn expect_nudges(&mut self) {
        self.expects_nudges = true;
    }

    /// Removes the results that `keep` refuses.
    pub(crate) fn sift(&mut self, keep: &mut dyn FnMut(Cqe) -> bool) {
        self.ready.retain(|cqe| keep(*cqe));
    }

    /// Returns whether a result is ready. This does not move the clock.
    pub(crate) fn has_work(&mut self) -> bool {
        let _ = self.collect();
        !self.ready.is_empty()
    }

    /// Hands over the operations that this submit takes from the queue.
    fn hand_over(&mut self) -> Result<(), Errno> {
        let simulation = self.simulation.clone();
        let mut world = simulation.lock();
        world.notice_closed(false);
        let taken = world.admit(self.number, self.queued.len()).map_err(Errno)?;
        for _ in 0..taken {
            let Some(lent) = self.queued.pop_front() else { break };
            let whose = lent.take_in(&world.files);
            match whose {
                Whose::Simulated(action) => self.hand_to_world(&mut world, lent, action),
                Whose::Cancel(target) if !self.in_foreign.contains(&target) => {
                    let deed = Deed::Cancel { target: self.number_of(target) };
                    self.hand_to_world(&mut world, lent, Action { opcode: Opcode::Cancel, deed });
                }
                Whose::Cancel(_) | Whose::Foreign => self.hand_to_classic(lent),
            }
        }
        // While a real call is in progress, the clock follows real time: `sleep` moves it.
        if !world.manual && self.in_foreign.is_empty() {
            let now = world.clock_ns.saturating_add(ENTER_NS);
            world.advance_to(now);
        }
        world.catch_up();
        Ok(())
    }

    fn hand_to_world(&mut self, world: &mut World, lent: Lent, action: Action) {
        let number = world.hand_over(self.number, action);
        self.lent.insert(number, lent);
    }

    fn hand_to_classic(&mut self, lent: Lent) {
        self.in_foreign.insert(lent.user_data);
        self.foreign.queue(lent.user_data, lent.call, lent.blocking);
    }

    /// Returns the world's number for an operation of this loop.
    fn number_of(&self, user_data: u64) -> Option<u64> {
        let same = |(_, lent): &(&u64, &Lent)| lent.user_data == user_data;
        self.lent.iter().find(same).map(|(number, _)| *number)
    }

    /// Collects the results of finished calls.
    fn collect(&mut self) -> Result<(), Errno> {
        let outcomes = self.simulation.lock().take(self.number);
        for (number, outcome) in outcomes {
            let Some(lent) = self.lent.get(&number) else { continue };
            let is_last = !outcome.has_more;
            self.ready.push_back(lent.bring_back(outcome));
            if is_last {
                self.lent.remove(&number);
            }
        }
        if !self.in_foreign.is_empty() || self.expects_nudges {
            self.foreign.submit(0, None)?;
            self.collect_foreign();
        }
        Ok(())
    }

    fn collect_foreign(&mut self) {
        while let Some(cqe) = self.foreign.next() {
            if cqe.user_data & !BY_THREAD == OWN_NUDGE && !self.expects_nudges {
                continue;
            }
            if !cqe.has_more() {
                self.in_foreign.remove(&(cqe.user_data & !(BY_THREAD | NEVER_RAN)));
            }
            self.ready.push_back(cqe);
        }
    }

    /// Advances the simulation for a loop that waits.
    fn step(&self, deadline_ns: Option<u64>) -> Next {
        let mut world = self.simulation.lock();
        world.notice_closed(true);
        // Another loop may have moved the clock since this loop looked.
        if world.has_mail(self.number) {
            return Next::Look;
        }
        let real = !self.in_foreign.is_empty();
        if deadline_ns.is_some_and(|deadline| world.clock_ns >= deadline) {
            return Next::GiveUp;
        }
        if world.manual {
            if world.hurry() {
                return Next::Look;
            }
            world.fall_asleep(self.number);
            return Next::Sleep(None);
        }
        let until = [world.next_due(), deadline_ns].into_iter().flatten().min();
        match until {
            Some(until) if !real => world.advance_to(until),
            None if !real && self.lent.is_empty() => return Next::GiveUp,
            // A real call takes real time. A call that waits at a socket needs another thread to
            // act.
            until => {
                let now = world.clock_ns;
                world.fall_asleep(self.number);
                return Next::Sleep(
                    until.map(|until| Duration::from_nanos(until.saturating_sub(now))),
                );
            }
        }
        Next::Look
    }

    /// Sleeps, and moves the simulation's clock by the time slept.
    fn sleep(&mut self, most: Option<Duration>) -> Result<(), Errno> {
        let start = Instant::now();
        self.foreign.submit(1, most.and_then(|most| start.checked_add(most)))?;
        self.collect_foreign();
        let mut world = self.simulation.lock();
        if !world.manual {
            let passed = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let now = world.clock_ns.saturating_add(passed);
            world.advance_to(now);
        }
        Ok(())
    }
}

impl Driver for Simulated {
    fn has_room(&mut self) -> bool {
        self.queued.len() < self.queued_max
    }

    fn has_room_for(&mut self, count: usize) -> bool {
        self.queued_max.saturating_sub(self.queued.len()) >= count
    }

    fn queue_nop(&mut self, user_data: u64) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.queue(user_data, Call::Nop, Blocking::Device);
        }
        has_room
    }

    fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking) {
        self.queued.push_back(Lent { user_data, call, blocking });
    }

    fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno> {
        let deadline_ns = deadline.map(|deadline| self.simulation.clock_of(deadline));
        self.hand_over()?;
        loop {
            self.collect()?;
            // The loop cannot wait for operations that the submit did not take.
            let under_way = self.ready.len() + self.lent.len() + self.in_foreign.len();
            if self.ready.len() >= want.min(under_way) {
                return Ok(self.ready.len());
            }
            match self.step(deadline_ns) {
                Next::Look => {}
                Next::GiveUp => return Ok(self.ready.len()),
                // A submit that took only a part does not wait (io_uring/io_uring.c): an operation
                // left in the queue may be the one that would end the wait.
                Next::Sleep(_) if !self.queued.is_empty() => return Ok(self.ready.len()),
                Next::Sleep(most) => self.sleep(most)?,
            }
        }
    }

    fn next(&mut self) -> Option<Cqe> {
        if self.ready.is_empty() {
            // This submits nothing new, so it cannot fail.
            let _ = self.collect();
        }
        self.ready.pop_front()
    }

    fn put_back(&mut self, results: &[Cqe]) {
        results.iter().rev().for_each(|result| self.ready.push_front(*result));
    }

    fn append(&mut self, results: &[Cqe]) {
        self.ready.extend(results);
    }

    fn supports(&self, _: Opcode) -> bool {
        false
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.simulation.lock().leave(self.number);
    }
}
