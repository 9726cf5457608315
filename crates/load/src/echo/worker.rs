//! What a thread does with its connections: who they are, when they begin, and how they end.

use std::{iter, sync::Arc};

use super::{
    args::Mode,
    connection::{Connection, Kit, Role},
    plan::Plan,
};
use crate::{
    crew::{self, Post},
    pace::Pace,
};

/// How often slow readers read.
const TICK_NS: u64 = 10_000_000;

type Worker = crew::Worker<Kit>;

/// Does what a thread is told until it is over.
pub(super) fn run(plan: &Arc<Plan>, seed: u64, post: Post<u64>) {
    // Every connection is in one thread's part and none in two.
    let part = |count: usize| (post.index..count).step_by(plan.threads).count();
    let (senders, others) = (part(plan.connections), part(plan.idle + plan.slow));
    let (active, beside) = match plan.mode {
        Mode::HalfClose => (Role::HalfCloser, Role::Idle),
        Mode::ConnectStorm => (Role::Stormer, Role::Idle),
        Mode::SlowReader => (Role::Pinger, Role::SlowReader),
        Mode::PingPong | Mode::Idle => (Role::Pinger, Role::Idle),
    };
    let roles = iter::repeat_n(active, senders).chain(iter::repeat_n(beside, others));
    let connections = roles.enumerate().map(|(place, role)| Connection::new(role, place)).collect();
    Worker::run(Kit::new(plan.clone(), seed, post.index), connections, senders, post);
}

impl crew::Kit for Kit {
    type Connection = Connection;
    /// Bytes that came back.
    type Ledger = u64;

    const SETTLING_SECONDS: u64 = 5;

    fn is_by_connection(&self) -> bool {
        self.plan.mode.is_by_connection()
    }

    fn pace(worker: &Worker, start_ns: u64) -> Option<Pace> {
        let plan = &worker.desk.kit.plan;
        let (thread, own) = ((worker.thread, plan.threads), (worker.senders, plan.connections));
        plan.rate_per_s.map(|rate| Pace::new(rate as f64, thread, own, start_ns))
    }

    fn begin(worker: &mut Worker, start_ns: u64) {
        worker.desk.kit.tick_ns = start_ns;
        for place in 0..worker.senders {
            worker.advance(place);
        }
    }

    fn step(worker: &mut Worker, now_ns: u64) -> u64 {
        begin_due(worker, now_ns);
        if now_ns >= worker.desk.kit.tick_ns {
            worker.desk.kit.tick_ns = now_ns + TICK_NS;
            tick(worker);
        }
        worker.next_due_ns().min(worker.desk.kit.tick_ns)
    }

    fn end(_: &mut Worker) {}

    fn count_unsent(worker: &mut Worker, pace: Pace) {
        let until_ns = worker.desk.until_ns;
        for place in 0..worker.senders {
            let due = pace.count_before(place, until_ns);
            for number in worker.connections[place].operations()..due {
                let intended_ns = pace.intended_of_ns(place, number);
                if intended_ns >= worker.desk.from_ns {
                    worker.desk.tally.unsent += 1;
                    worker.desk.took(intended_ns, until_ns, 1);
                }
            }
        }
    }

    fn go_on(_: &mut Worker) -> bool {
        false
    }

    fn ledger(self) -> u64 {
        self.bytes_received
    }
}

/// Lets those operations begin whose time has come.
fn begin_due(worker: &mut Worker, now_ns: u64) {
    let Some(pace) = worker.desk.pace else { return };
    loop {
        let intended_ns = pace.intended_ns(worker.next);
        if intended_ns > now_ns || intended_ns >= worker.desk.until_ns {
            return;
        }
        if intended_ns >= worker.desk.from_ns {
            worker.desk.tally.lag.record_ns(now_ns - intended_ns);
        }
        let place = pace.connection(worker.next);
        worker.next += 1;
        worker.connections[place].due += 1;
        worker.advance(place);
    }
}

/// Slow readers read a little.
fn tick(worker: &mut Worker) {
    for place in worker.senders..worker.connections.len() {
        if worker.connections[place].role() == Role::SlowReader {
            let ticked = worker.connections[place].tick(&mut worker.desk);
            worker.settle_fault(place, ticked);
        }
    }
}
