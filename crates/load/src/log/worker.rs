//! What a thread does with its connections: who they are, when they send, and how they end.

use std::sync::Arc;

use super::{
    connection::{Connection, Kit},
    ledger::Ledger,
    lines::Lines,
    plan::Plan,
};
use crate::{
    crew::{self, Post},
    pace::Pace,
};

/// How often at most is looked what is due: what fell due meanwhile is sent by one call for each
/// connection.
const LOOK_NS: u64 = 100_000;

type Worker = crew::Worker<Kit>;

/// Does what a thread is told until it is over.
pub(super) fn run(plan: &Arc<Plan>, lines: &Arc<Lines>, post: Post<Ledger>) {
    let own = |count: usize| (post.index..count).step_by(plan.threads);
    let senders = own(plan.connections).map(|number| (true, number));
    let idle = own(plan.idle).map(|number| (false, plan.connections + number));
    let connections = senders
        .chain(idle)
        .enumerate()
        .map(|(place, (is_sender, number))| Connection::new(is_sender, place, number as u64))
        .collect();
    let senders = own(plan.connections).count();
    Worker::run(Kit::new(plan.clone(), lines.clone()), connections, senders, post);
}

impl crew::Kit for Kit {
    type Connection = Connection;
    type Ledger = Ledger;

    const SETTLING_SECONDS: u64 = 10;

    fn is_by_connection(&self) -> bool {
        false
    }

    fn pace(worker: &Worker, start_ns: u64) -> Option<Pace> {
        let plan = &worker.desk.kit.plan;
        if let Some(period_ns) = plan.burst_period_ns() {
            return Some(Pace::together(period_ns, worker.senders, start_ns));
        }
        let (thread, own) = ((worker.thread, plan.threads), (worker.senders, plan.connections));
        plan.rate_per_s.map(|rate| Pace::new(rate as f64, thread, own, start_ns))
    }

    fn begin(worker: &mut Worker, start_ns: u64) {
        worker.desk.kit.look_ns = start_ns;
        if worker.desk.pace.is_none() {
            worker.desk.kit.again.extend(0..worker.senders);
        }
    }

    fn step(worker: &mut Worker, now_ns: u64) -> u64 {
        if now_ns >= worker.desk.kit.look_ns {
            begin_due(worker, now_ns);
            worker.desk.kit.look_ns = worker.next_due_ns().max(now_ns + LOOK_NS);
        }
        if Self::go_on(worker) { now_ns } else { worker.desk.kit.look_ns }
    }

    fn end(worker: &mut Worker) {
        // What fell due since the last look was due in time.
        begin_due(worker, worker.desk.until_ns);
    }

    fn count_unsent(worker: &mut Worker, pace: Pace) {
        let until_ns = worker.desk.until_ns;
        let burst = worker.desk.kit.plan.burst_lines;
        for place in 0..worker.senders {
            let due = pace.count_before(place, until_ns) * burst;
            let mut line = worker.connections[place].made();
            while line < due {
                let (nth, end) = (line / burst, (line / burst + 1) * burst);
                let begun_ns = pace.intended_of_ns(place, nth);
                if begun_ns >= worker.desk.from_ns {
                    worker.desk.tally.unsent += end - line;
                    worker.desk.took(begun_ns, until_ns, end - line);
                }
                line = end;
            }
        }
    }

    fn go_on(worker: &mut Worker) -> bool {
        for _ in 0..worker.desk.kit.again.len() {
            if let Some(place) = worker.desk.kit.again.pop_front() {
                worker.advance(place);
            }
        }
        !worker.desk.kit.again.is_empty()
    }

    fn ledger(self) -> Ledger {
        self.ledger
    }
}

/// Lets those bursts begin whose time has come.
fn begin_due(worker: &mut Worker, now_ns: u64) {
    let Some(pace) = worker.desk.pace else { return };
    let first_ns = pace.intended_ns(worker.next);
    if first_ns > now_ns {
        return;
    }
    let desk = &mut worker.desk;
    if first_ns >= desk.from_ns && first_ns < desk.until_ns {
        desk.tally.lag.record_ns(now_ns - first_ns);
    }
    let (burst, end_ns) = (desk.kit.plan.burst_lines, (now_ns + 1).min(desk.until_ns));
    let senders = worker.senders as u64;
    while pace.intended_ns(worker.next) < end_ns {
        let place = pace.connection(worker.next);
        if place == 0 && pace.intended_ns(worker.next + senders) < end_ns {
            begin_rounds(worker, pace, end_ns);
            continue;
        }
        worker.connections[place].due += burst;
        worker.next += 1;
        worker.advance(place);
    }
}

/// Lets all bursts of all connections begin that are due, where each has several: a call for each,
/// not for every burst.
fn begin_rounds(worker: &mut Worker, pace: Pace, end_ns: u64) {
    // Of the last connection, which is the last to have begun a round.
    let rounds = pace.count_before(worker.senders - 1, end_ns);
    for place in 0..worker.senders {
        worker.connections[place].due = rounds * worker.desk.kit.plan.burst_lines;
        worker.advance(place);
    }
    worker.next = rounds * worker.senders as u64;
}
