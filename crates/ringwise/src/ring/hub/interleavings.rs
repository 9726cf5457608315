//! Tries every order in which threads can meet at the hub, under loom: no wake-up is lost. After a
//! lost wake-up a driver or a future would sleep forever, which loom reports as a deadlock.

use std::{sync::Arc, task::Wake};

use loom::{
    sync::{Condvar, Mutex as LoomMutex},
    thread,
};

use super::*;

/// A bell on which a thread sleeps until somebody wakes it.
#[derive(Default)]
struct Bell {
    rung: LoomMutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !std::mem::take(&mut *rung) {
            rung = self.changed.wait(rung).unwrap();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (bell.clone(), Waker::from(bell))
}

/// A driver: takes orders and gives results until the ring is closed, and sleeps in between.
fn drive(hub: &Hub) {
    let (bell, waker) = bell();
    let mut orders = Vec::new();
    loop {
        hub.awake();
        let phase = hub.take_orders(&mut orders);
        let mut results: Vec<_> = orders
            .drain(..)
            .filter_map(|order| match order {
                Order::Start(key, operation) => Some((key, Completion::refused(operation, 0))),
                _ => None,
            })
            .collect();
        if !results.is_empty() {
            hub.deliver(&mut results, Stats::default());
        } else if phase != Phase::Open {
            hub.closed();
            return hub.end(Ok(()));
        } else if hub.sleep(&waker) {
            bell.wait();
        }
    }
}

/// A future: submits, and waits to be woken for its result.
fn run(hub: &Hub) {
    let (bell, waker) = bell();
    let Admission::Taken(key, next) = hub.submit(Operation::nop(), waker.clone()) else {
        panic!("the hub is open")
    };
    if let Next::Wake(driver) = next {
        driver.wake();
    }
    while hub.poll(key, &waker).is_none() {
        bell.wait();
    }
}

fn close_and_wait(hub: &Hub) {
    let (bell, waker) = bell();
    hub.close(Duration::ZERO);
    while hub.poll_ended(&waker).is_none() {
        bell.wait();
    }
}

/// Checks that everything is done by the end, in every order.
fn check(bodies: &'static [fn(&Hub)]) {
    let mut settings = loom::model::Builder::new();
    settings.preemption_bound = Some(3);
    settings.check(move || {
        let hub = Arc::new(Hub::new());
        let driver = thread::spawn({
            let hub = hub.clone();
            move || drive(&hub)
        });
        let (last, others) = bodies.split_last().unwrap();
        let threads: Vec<_> = others
            .iter()
            .map(|body| {
                let hub = hub.clone();
                thread::spawn(move || body(&hub))
            })
            .collect();
        last(&hub);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        close_and_wait(&hub);
        driver.join().unwrap();
        let (counts, _) = hub.counts();
        assert_eq!(counts.delivered + counts.reclaimed, counts.submitted);
    });
}

#[test]
fn a_submission_is_heard_and_its_result_too() {
    check(&[run]);
}

#[test]
fn two_submissions_are_heard() {
    check(&[run, run]);
}

#[test]
fn a_close_is_heard_and_its_end_too() {
    check(&[close_and_wait, close_and_wait]);
}

/// A future that is dropped while its result comes.
#[test]
fn a_future_is_dropped_at_any_moment() {
    fn submit_and_drop(hub: &Hub) {
        let Admission::Taken(key, next) = hub.submit(Operation::nop(), Waker::noop().clone())
        else {
            panic!("the hub is open")
        };
        if let Next::Wake(driver) = next {
            driver.wake();
        }
        let (next, completion) = hub.abandon(key, true);
        if let Next::Wake(driver) = next {
            driver.wake();
        }
        drop(completion);
    }
    check(&[run, submit_and_drop]);
}

/// A future that moves to another task while its result comes: the last task to poll is woken.
#[test]
fn a_future_changes_its_waker_at_any_moment() {
    fn submit_and_move(hub: &Hub) {
        let Admission::Taken(key, next) = hub.submit(Operation::nop(), Waker::noop().clone())
        else {
            panic!("the hub is open")
        };
        if let Next::Wake(driver) = next {
            driver.wake();
        }
        let (bell, waker) = bell();
        while hub.poll(key, &waker).is_none() {
            bell.wait();
        }
    }
    check(&[submit_and_move, run]);
}

/// A visit is an order as well.
#[test]
fn a_visit_is_heard() {
    fn visit(hub: &Hub) {
        let told = Arc::new(Bell::default());
        let teller = Waker::from(told.clone());
        // The driver of this test drops the visit, and the test sees only this drop.
        struct Told(Waker);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.wake_by_ref();
            }
        }
        let promise = Told(teller);
        let visit = Box::new(move |_: &mut crate::local::Local| {
            drop(promise);
            None
        });
        let Ok(next) = hub.visit(visit) else { panic!("the hub is open") };
        if let Next::Wake(driver) = next {
            driver.wake();
        }
        told.wait();
    }
    check(&[visit, run]);
}

/// A ring in a runtime: a caller hands its order over unless another thread is in the loop, and
/// tasks with results are woken in turn (`ring/driver/task.rs`).
#[cfg(feature = "tokio")]
mod in_turn {
    use super::{
        turns::{By, Spread},
        *,
    };

    #[derive(Default)]
    struct Shared {
        /// Held by the thread that enters the loop. The loop completes each operation at once.
        entering: LoomMutex<()>,
        bell: Arc<Bell>,
    }

    type Body = fn(&Hub, &Shared);

    fn take_results(hub: &Hub) -> (Phase, Vec<(Key, Completion)>) {
        let mut orders = Vec::new();
        let phase = hub.take_orders(&mut orders);
        let result = |order| match order {
            Order::Start(key, operation) => Some((key, Completion::refused(operation, 0))),
            _ => None,
        };
        (phase, orders.into_iter().filter_map(result).collect())
    }

    fn keep(hub: &Hub, by: By, mut results: Vec<(Key, Completion)>) -> bool {
        hub.keep(by, &mut results, Vec::new(), Stats::default())
    }

    fn begin_turn(hub: &Hub, spread: Spread) -> (usize, bool) {
        let (woken, others_wait) = hub.begin_turn(spread);
        let count = woken.len();
        woken.into_iter().for_each(|waker| wake(Some(waker)));
        (count, others_wait)
    }

    fn drive(hub: &Hub, shared: &Shared) {
        let waker = Waker::from(shared.bell.clone());
        hub.awake();
        loop {
            let entering = shared.entering.lock().unwrap();
            let (phase, results) = take_results(hub);
            drop(entering);
            keep(hub, By::Driver, results);
            if phase != Phase::Open {
                begin_turn(hub, Spread::AtOnce);
                hub.closed();
                return hub.end(Ok(()));
            }
            let (count, others_wait) = begin_turn(hub, Spread::InTurn);
            if count <= 1 && !others_wait && hub.sleep(&waker) {
                shared.bell.wait();
            }
            hub.awake();
        }
    }

    fn hand_over(hub: &Hub, shared: &Shared, own: Option<Key>) {
        let Ok(entering) = shared.entering.try_lock() else { return hub.wake_driver() };
        let (phase, results) = take_results(hub);
        drop(entering);
        if keep(hub, By::Caller(own), results) {
            Waker::from(shared.bell.clone()).wake();
        }
        if phase != Phase::Open {
            hub.wake_driver();
        }
    }

    fn submit(hub: &Hub, shared: &Shared, waker: Waker) -> Key {
        let Admission::Taken(key, next) = hub.submit(Operation::nop(), waker) else {
            panic!("the hub is open")
        };
        follow(hub, shared, next);
        key
    }

    fn follow(hub: &Hub, shared: &Shared, next: Next) {
        match next {
            Next::HandOver(own) => hand_over(hub, shared, own),
            Next::Wake(driver) => driver.wake(),
            Next::Nothing => {}
        }
    }

    fn run(hub: &Hub, shared: &Shared) {
        let (bell, waker) = bell();
        let key = submit(hub, shared, waker.clone());
        while hub.poll(key, &waker).is_none() {
            bell.wait();
        }
    }

    fn submit_and_drop(hub: &Hub, shared: &Shared) {
        let key = submit(hub, shared, Waker::noop().clone());
        let (next, completion) = hub.abandon(key, true);
        follow(hub, shared, next);
        drop(completion);
    }

    fn check(bodies: &'static [Body]) {
        let mut settings = loom::model::Builder::new();
        settings.preemption_bound = Some(2);
        settings.check(move || {
            let both = Arc::new((Hub::new(), Shared::default()));
            both.0.let_callers_hand_over(true);
            let spawn = |body: Body| {
                let both = both.clone();
                thread::spawn(move || body(&both.0, &both.1))
            };
            let driver = spawn(drive);
            let (last, others) = bodies.split_last().unwrap();
            let threads: Vec<_> = others.iter().copied().map(spawn).collect();
            last(&both.0, &both.1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            close_and_wait(&both.0);
            driver.join().unwrap();
            let (counts, _) = both.0.counts();
            assert_eq!(counts.delivered + counts.reclaimed, counts.submitted);
        });
    }

    #[test]
    fn an_order_is_handed_over_and_its_result_told() {
        check(&[run]);
    }

    #[test]
    fn two_have_their_turns() {
        check(&[run, run]);
    }

    /// A future that is dropped in its turn passes the turn on.
    #[test]
    fn who_is_dropped_holds_nobody_up() {
        check(&[run, submit_and_drop]);
    }
}
