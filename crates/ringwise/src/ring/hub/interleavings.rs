//! Every order in which threads can meet at the hub, tried by loom: no wake-up is lost. A lost one
//! is a driver or a future that sleeps for ever, which loom tells as a deadlock.

use std::{sync::Arc, task::Wake};

use loom::{
    sync::{Condvar, Mutex as LoomMutex},
    thread,
};

use super::*;

/// A sleeper that somebody wakes.
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

/// Everything is done by the end, in every order.
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
        let (driver, completion) = hub.abandon(key, true);
        wake(driver);
        drop(completion);
    }
    check(&[run, submit_and_drop]);
}

/// A future that moves to another task while its result comes: the last to poll is woken.
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
        // The driver of this test drops it, which is all that is to be seen.
        struct Told(Waker);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.wake_by_ref();
            }
        }
        let promise = Told(teller);
        assert!(hub.visit(Box::new(move |_| drop(promise))).is_ok());
        told.wait();
    }
    check(&[visit, run]);
}
