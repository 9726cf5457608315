//! Tests of the hub alone: futures and their results, in every order in which they can come. No
//! kernel is needed, so Miri runs these too (CONTRIBUTING.md).
//!
//! # Safety
//!
//! A buffer of these tests has no bytes, so there are none to move. A waker made of a pointer points
//! to a value that outlives it.
#![allow(unsafe_code)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{RawWaker, RawWakerVTable, Wake},
};

use super::{
    turns::{By, Spread},
    *,
};
use crate::{
    buf::{Custom, OwnedBufferMut, StableBytes, StableBytesMut},
    descriptor::RegisteredFile,
};

/// Counts how often something happened.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn waker() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (count.clone(), Waker::from(count))
}

/// A buffer that counts its drops, and can panic then.
struct Told {
    dropped: Arc<Count>,
    panics: bool,
}

// SAFETY: it gives no bytes.
unsafe impl StableBytes for Told {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

// SAFETY: the same.
unsafe impl StableBytesMut for Told {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.dropped.0.fetch_add(1, Relaxed);
        assert!(!self.panics, "a buffer's own fault");
    }
}

fn operation(dropped: &Arc<Count>, panics: bool) -> Operation {
    let buffer = Custom(Told { dropped: dropped.clone(), panics }).into_buffer_mut();
    Operation::read_at(RegisteredFile { table: 0, index: 0, generation: 0 }, buffer, 0)
}

fn submit(hub: &Hub, operation: Operation, waker: Waker) -> (Key, Next) {
    match hub.submit(operation, waker) {
        Admission::Taken(key, next) => (key, next),
        Admission::Refused(_) => panic!("the hub is open"),
    }
}

/// An event that can happen to one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Submit,
    /// Polled, before the result came.
    Poll,
    /// Polled by another task, before the result came.
    PollByAnother,
    Deliver,
    Take,
    Abandon {
        cancel: bool,
    },
}

use Event::{Abandon, Deliver, Poll, PollByAnother, Submit, Take};

/// Every life of an operation, from its submission to its end.
const LIVES: [&[Event]; 8] = [
    &[Submit, Deliver, Take],
    &[Submit, Poll, Deliver, Take],
    &[Submit, PollByAnother, Deliver, Take],
    &[Submit, Deliver, Abandon { cancel: true }],
    &[Submit, Deliver, Abandon { cancel: false }],
    &[Submit, Abandon { cancel: true }, Deliver],
    &[Submit, Abandon { cancel: false }, Deliver],
    &[Submit, PollByAnother, Abandon { cancel: true }, Deliver],
];

/// An operation that goes through a life.
struct Actor {
    life: &'static [Event],
    key: Option<Key>,
    first: Arc<Count>,
    second: Arc<Count>,
    dropped: Arc<Count>,
    operation: Option<Operation>,
}

impl Actor {
    fn new(life: &'static [Event]) -> Actor {
        let dropped = Arc::new(Count::default());
        let operation = Some(operation(&dropped, false));
        let (first, second) = (Arc::default(), Arc::default());
        Actor { life, key: None, first, second, dropped, operation }
    }

    fn act(&mut self, event: Event, hub: &Hub) {
        let (first, second) = (Waker::from(self.first.clone()), Waker::from(self.second.clone()));
        if event == Submit {
            self.key = Some(submit(hub, self.operation.take().unwrap(), first).0);
            self.accept(hub);
            return;
        }
        let key = self.key.unwrap();
        match event {
            Submit => unreachable!("done above"),
            Poll => assert!(hub.poll(key, &first).is_none()),
            PollByAnother => assert!(hub.poll(key, &second).is_none()),
            Deliver => {
                let completion = Completion::refused(self.operation.take().unwrap(), 0);
                hub.deliver(&mut vec![(key, completion)], Stats::default());
            }
            Take => {
                assert_eq!(self.dropped.get(), 0, "the result is kept for its future");
                drop(hub.poll(key, &first).expect("delivered"));
            }
            Abandon { cancel } => {
                let (_, completion) = hub.abandon(key, cancel);
                let is_delivered = self.operation.is_none();
                assert_eq!(completion.is_some(), is_delivered);
                assert_eq!(self.dropped.get(), 0, "an operation in flight is kept");
                drop(completion);
                self.hear_cancel(hub, cancel && !is_delivered);
            }
        }
    }

    /// The driver takes the order, with the operation and everything that it owns.
    fn accept(&mut self, hub: &Hub) {
        let mut orders = Vec::new();
        hub.take_orders(&mut orders);
        let Some(Order::Start(key, operation)) = orders.pop() else { panic!("an order to start") };
        assert!(orders.is_empty());
        assert_eq!(Some(key), self.key);
        assert_eq!(Key::from_tag(key.tag()), key);
        self.operation = Some(operation);
    }

    fn hear_cancel(&self, hub: &Hub, expected: bool) {
        let mut orders = Vec::new();
        hub.take_orders(&mut orders);
        match orders.pop() {
            Some(Order::Cancel(key)) => assert!(expected && Some(key) == self.key),
            Some(_) => panic!("an order to cancel, or none"),
            None => assert!(!expected),
        }
    }

    fn check(&self) {
        assert_eq!(self.dropped.get(), 1, "{:?}", self.life);
        let has = |event: Event| self.life.contains(&event);
        let is_told = has(Take) || self.life[1] == Deliver;
        let by_another = has(PollByAnother);
        assert_eq!(self.first.get(), usize::from(is_told && !by_another), "{:?}", self.life);
        assert_eq!(self.second.get(), usize::from(is_told && by_another), "{:?}", self.life);
        // Nothing keeps a waker: a task that is held forever is a leak.
        assert_eq!(Arc::strong_count(&self.first), 1, "{:?}", self.life);
        assert_eq!(Arc::strong_count(&self.second), 1, "{:?}", self.life);
    }
}

/// Calls `act` with every way to merge two sequences of these lengths: true is the first's turn.
fn merged(left: usize, right: usize, turns: &mut Vec<bool>, act: &mut impl FnMut(&[bool])) {
    if left + right == 0 {
        return act(turns);
    }
    for (is_first, left_of, right_of) in
        [(true, left.checked_sub(1), Some(right)), (false, Some(left), right.checked_sub(1))]
    {
        if let (Some(left), Some(right)) = (left_of, right_of) {
            turns.push(is_first);
            merged(left, right, turns, act);
            turns.pop();
        }
    }
}

/// Wakes the driver, if that is the next step.
fn heed(next: Next) {
    if let Next::Wake(waker) = next {
        waker.wake();
    }
}

#[test]
fn two_operations_live_in_every_order() {
    // Miri takes a tenth of a second for each.
    let each = if cfg!(miri) { 17 } else { 1 };
    let (mut orders, mut tried) = (0, 0);
    for one in LIVES {
        for other in LIVES {
            merged(one.len(), other.len(), &mut Vec::new(), &mut |turns| {
                orders += 1;
                if orders % each != 0 {
                    return;
                }
                let hub = Hub::new();
                let mut actors = [Actor::new(one), Actor::new(other)];
                let mut next = [0, 0];
                for turn in turns {
                    let who = usize::from(!*turn);
                    actors[who].act(actors[who].life[next[who]], &hub);
                    next[who] += 1;
                }
                actors.iter().for_each(Actor::check);
                let (counts, _) = hub.counts();
                assert_eq!((counts.submitted, counts.delivered + counts.reclaimed), (2, 2));
                // Both places are free again, with new keys.
                let dropped = Arc::default();
                for _ in 0..2 {
                    let (key, _) = submit(&hub, operation(&dropped, false), waker().1);
                    assert!(key.index() < 2);
                    assert!(actors.iter().all(|actor| actor.key != Some(key)));
                }
                tried += 1;
            });
        }
    }
    assert!(tried > 1000 / each, "{tried}");
}

#[test]
fn a_driver_does_not_sleep_on_orders() {
    let hub = Hub::new();
    let (rung, bell) = waker();
    let dropped = Arc::default();
    assert!(hub.sleep(&bell));
    let (_, next) = submit(&hub, operation(&dropped, false), waker().1);
    assert!(matches!(next, Next::Wake(_)));
    let (_, next) = submit(&hub, operation(&dropped, false), waker().1);
    assert!(matches!(next, Next::Nothing), "the driver is woken once");
    assert!(!hub.sleep(&bell), "orders are there");
    let mut orders = Vec::new();
    assert_eq!(hub.take_orders(&mut orders), Phase::Open);
    assert_eq!(orders.len(), 2);
    assert!(hub.sleep(&bell));
    heed(hub.visit(Box::new(|_| None)).unwrap_or_else(|_| panic!("it is open")));
    assert_eq!(rung.get(), 1);
    hub.awake();
    orders.clear();
    hub.take_orders(&mut orders);
    assert!(hub.sleep(&bell));
    hub.awake();
    let (_, next) = submit(&hub, operation(&dropped, false), waker().1);
    assert!(matches!(next, Next::Nothing), "the driver is awake, and looks before it sleeps");
    assert_eq!(hub.counts().0.wakes, 2);
}

#[test]
fn an_end_is_heard_and_told_once() {
    let hub = Hub::new();
    let ((rung, bell), (told, mourner)) = (waker(), waker());
    assert!(hub.sleep(&bell));
    assert_eq!(hub.poll_ended(&mourner), None);
    hub.close(Duration::from_secs(1));
    hub.close(Duration::from_secs(2));
    assert_eq!(rung.get(), 1);
    assert!(!hub.sleep(&bell), "it is closing");
    assert_eq!(hub.take_orders(&mut Vec::new()), Phase::Closing(Duration::from_secs(1)));
    let dropped = Arc::default();
    let (kept, refused) = waker();
    assert!(matches!(hub.submit(operation(&dropped, false), refused), Admission::Refused(_)));
    assert_eq!((Arc::strong_count(&kept), dropped.get()), (1, 1));
    assert!(hub.visit(Box::new(|_| None)).is_err());
    hub.end(Err(Leaked { operations: 3 }));
    hub.end(Ok(()));
    assert_eq!(told.get(), 1);
    assert_eq!(hub.poll_ended(&mourner), Some(Err(Leaked { operations: 3 })));
    hub.closed();
    hub.close(Duration::ZERO);
    assert_eq!(hub.take_orders(&mut Vec::new()), Phase::Closed, "a closed ring stays closed");
    assert_eq!(hub.counts().0.submitted, 0);
}

/// Of three results, the waker of one panics and the buffer of another. The third is still
/// delivered.
#[test]
fn a_panic_of_a_users_code_is_contained() {
    struct Panicking;
    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("a waker's own fault");
        }
    }
    let hub = Hub::new();
    let dropped = Arc::default();
    let (told, good) = waker();
    let keys = [Waker::from(Arc::new(Panicking)), waker().1, good]
        .map(|waker| submit(&hub, Operation::nop(), waker).0);
    assert!(hub.abandon(keys[1], false).1.is_none());
    let operations = [Operation::nop(), operation(&dropped, true), Operation::nop()];
    let mut results: Vec<_> = keys
        .into_iter()
        .zip(operations)
        .map(|(key, operation)| (key, Completion::refused(operation, 0)))
        .collect();
    hub.deliver(&mut results, Stats::default());
    assert_eq!((told.get(), dropped.get()), (1, 1));
    assert!(hub.poll(keys[0], &waker().1).is_some());
    assert!(hub.poll(keys[2], &waker().1).is_some());
}

/// The drop of a waker may use the ring: it must not find the lock held.
#[test]
fn a_waker_that_uses_the_ring_when_dropped() {
    struct Reentrant(Arc<Hub>, Arc<Count>);
    impl Wake for Reentrant {
        fn wake(self: Arc<Self>) {
            self.0.counts();
        }
    }
    impl Drop for Reentrant {
        fn drop(&mut self) {
            self.0.counts();
            self.1.0.fetch_add(1, Relaxed);
        }
    }
    let (hub, dropped) = (Arc::new(Hub::new()), Arc::new(Count::default()));
    let reentrant = || Waker::from(Arc::new(Reentrant(hub.clone(), dropped.clone())));
    let (polled, _) = submit(&hub, Operation::nop(), reentrant());
    assert!(hub.poll(polled, &reentrant()).is_none());
    assert_eq!(dropped.get(), 1, "the first is gone");
    let (abandoned, _) = submit(&hub, Operation::nop(), reentrant());
    hub.abandon(abandoned, true);
    assert_eq!(dropped.get(), 2);
    let (delivered, _) = submit(&hub, Operation::nop(), reentrant());
    let done = |key| (key, Completion::refused(Operation::nop(), 0));
    hub.deliver(&mut vec![done(polled), done(abandoned), done(delivered)], Stats::default());
    assert_eq!(dropped.get(), 4);
    hub.sleep(&reentrant());
    hub.close(Duration::ZERO);
    let refused = hub.submit(Operation::nop(), reentrant());
    assert!(matches!(refused, Admission::Refused(_)));
    assert_eq!(dropped.get(), 6);
}

/// A result comes while a future clones its waker. The clone is too late, and its drop must not find
/// the lock held.
#[test]
fn a_result_that_comes_while_a_waker_is_cloned() {
    struct Early {
        hub: Hub,
        key: Key,
        drops: Count,
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(deliver, look, look, look);
    fn early<'a>(pointer: *const ()) -> &'a Early {
        // SAFETY: the test's own value, which outlives its wakers.
        unsafe { &*pointer.cast() }
    }
    fn deliver(pointer: *const ()) -> RawWaker {
        let Early { hub, key, .. } = early(pointer);
        let done = (*key, Completion::refused(Operation::nop(), 0));
        hub.deliver(&mut vec![done], Stats::default());
        RawWaker::new(pointer, &TABLE)
    }
    fn look(pointer: *const ()) {
        let Early { hub, drops, .. } = early(pointer);
        assert!(hub.state.try_lock().is_ok(), "the lock is held");
        drops.0.fetch_add(1, Relaxed);
    }
    let hub = Hub::new();
    let (key, _) = submit(&hub, Operation::nop(), waker().1);
    let early = Early { hub, key, drops: Count::default() };
    // SAFETY: the functions accept the pointer, which none of them frees.
    let waker = unsafe { Waker::from_raw(RawWaker::new((&raw const early).cast(), &TABLE)) };
    assert!(early.hub.poll(key, &waker).is_some());
    assert_eq!(early.drops.get(), 1);
}

/// Five results are ready, and one task is woken. Each task wakes the next when it takes its
/// result, three in a row; then the driver has a turn again. A task that drops its future passes
/// the turn on.
#[cfg(feature = "tokio")]
#[test]
fn each_wakes_the_next() {
    let hub = Hub::new();
    hub.let_callers_hand_over(true);
    let (tasks, keys): (Vec<_>, Vec<_>) = (0..6)
        .map(|_| {
            let (told, waker) = waker();
            (told, submit(&hub, Operation::nop(), waker).0)
        })
        .unzip();
    let woken = || tasks.iter().map(|told| told.get()).collect::<Vec<_>>();
    let done = |key| (key, Completion::refused(Operation::nop(), 0));
    let begin_turn = |spread| {
        let (first, others_wait) = hub.begin_turn(spread);
        first.into_iter().for_each(|waker| wake(Some(waker)));
        others_wait
    };
    let mut results = keys[..5].iter().copied().map(done).collect();
    assert!(hub.keep(By::Driver, &mut results, Vec::new(), Stats::default()));
    assert_eq!(woken(), [0, 0, 0, 0, 0, 0]);
    assert!(begin_turn(Spread::InTurn));
    assert_eq!(woken(), [1, 0, 0, 0, 0, 0]);
    assert!(hub.poll(keys[0], Waker::noop()).is_some());
    assert_eq!(woken(), [1, 1, 0, 0, 0, 0]);
    heed(hub.abandon(keys[1], true).0);
    assert_eq!(woken(), [1, 1, 1, 0, 0, 0]);
    assert!(hub.poll(keys[2], Waker::noop()).is_some());
    assert_eq!(woken(), [1, 1, 1, 0, 0, 0]);
    // The driver does not wait for a task that never comes.
    assert!(begin_turn(Spread::InTurn) && !begin_turn(Spread::InTurn));
    assert_eq!(woken(), [1, 1, 1, 1, 1, 0]);
    hub.keep(By::Driver, &mut vec![done(keys[5])], vec![waker().1], Stats::default());
    assert!(!begin_turn(Spread::AtOnce));
    assert_eq!(woken(), [1, 1, 1, 1, 1, 1]);
}

/// A step of a chain is not an order. A thread that finds a step to make, while the driver is about
/// to sleep, keeps the driver awake.
#[cfg(feature = "tokio")]
#[test]
fn a_driver_that_was_called_looks_again_before_it_sleeps() {
    let hub = Hub::new();
    let (told, driver) = waker();
    hub.awake();
    hub.wake_driver();
    assert!(!hub.sleep(&driver), "called since it looked");
    assert!(hub.sleep(&driver), "and has looked again");
    hub.wake_driver();
    assert_eq!(told.get(), 1);
    hub.awake();
    assert!(hub.sleep(&driver), "the call was heard");
}

/// While nobody waits for a turn, a thread of the loop wakes the first task whose result it brings.
/// A task wakes nobody but itself: others would wait on its thread for its next step.
#[cfg(feature = "tokio")]
#[test]
fn a_result_wakes_nobody_on_the_thread_of_another_task() {
    let hub = Hub::new();
    hub.let_callers_hand_over(true);
    let (tasks, keys): (Vec<_>, Vec<_>) = (0..6)
        .map(|_| {
            let (told, waker) = waker();
            (told, submit(&hub, Operation::nop(), waker).0)
        })
        .unzip();
    let woken = || tasks.iter().map(|told| told.get()).collect::<Vec<_>>();
    let done = |key: &Key| (*key, Completion::refused(Operation::nop(), 0));
    let keep = |by, keys: &[Key]| {
        hub.keep(by, &mut keys.iter().map(done).collect(), Vec::new(), Stats::default())
    };
    assert!(!keep(By::Thread, &keys[..1]));
    assert_eq!(woken(), [1, 0, 0, 0, 0, 0]);
    assert!(keep(By::Thread, &keys[1..3]));
    assert_eq!(woken(), [1, 1, 0, 0, 0, 0]);
    assert!(hub.poll(keys[1], Waker::noop()).is_some());
    assert_eq!(woken(), [1, 1, 1, 0, 0, 0]);
    assert!(!keep(By::Caller(Some(keys[3])), &keys[3..4]), "nobody else waits");
    assert_eq!(woken(), [1, 1, 1, 1, 0, 0]);
    assert!(keep(By::Caller(None), &keys[4..]), "the driver must have a turn for them");
    assert_eq!(woken(), [1, 1, 1, 1, 0, 0]);
    hub.begin_turn(Spread::AtOnce).0.into_iter().for_each(|waker| wake(Some(waker)));
    assert_eq!(woken(), [1; 6]);
}

/// A driver that runs on its own thread has no turns: tasks are woken as their results come.
#[cfg(feature = "tokio")]
#[test]
fn nobody_waits_for_a_turn_that_never_comes() {
    let hub = Hub::new();
    let (told, waker) = waker();
    let (key, _) = submit(&hub, Operation::nop(), waker);
    let mut results = vec![(key, Completion::refused(Operation::nop(), 0))];
    hub.keep(By::Driver, &mut results, Vec::new(), Stats::default());
    assert_eq!(told.get(), 1);
}

/// When the runtime ends there is no thread and no descriptor to spare. The end is reported, and
/// operations that had not started come back.
#[cfg(feature = "tokio")]
#[test]
fn the_loss_of_a_driver_is_reported() {
    let hub = Hub::new();
    let dropped = Arc::default();
    let (_, mourner) = waker();
    let (lost, _) = submit(&hub, operation(&dropped, false), waker().1);
    hub.take_orders(&mut Vec::new());
    let (refused, _) = submit(&hub, operation(&dropped, false), waker().1);
    hub.orphan();
    assert_eq!(hub.poll_ended(&mourner), Some(Err(Leaked { operations: 1 })));
    let done = hub.poll(refused, &mourner).expect("it had not started");
    assert_eq!(done.result().unwrap_err().errno(), libc::ESHUTDOWN);
    assert!(hub.poll(lost, &mourner).is_none());
}

/// A driver that knows that it is closing still gets cancels.
#[test]
fn a_cancel_is_heard_while_the_ring_closes() {
    let hub = Hub::new();
    let (rung, bell) = waker();
    let dropped = Arc::default();
    let (key, _) = submit(&hub, operation(&dropped, false), waker().1);
    hub.close(Duration::from_secs(1));
    hub.take_orders(&mut Vec::new());
    assert!(hub.sleep(&bell));
    heed(hub.cancel(key));
    assert_eq!(rung.get(), 1);
    assert!(!hub.sleep(&bell), "the cancel is there");
}

/// The thread that took results first can deliver them last.
#[test]
fn older_statistics_replace_no_newer_ones() {
    let hub = Hub::new();
    let after = |completed| Stats { completed, enters: 1, ..Stats::default() };
    hub.deliver(&mut Vec::new(), after(7));
    hub.deliver(&mut Vec::new(), after(5));
    assert_eq!(hub.counts().1.completed, 7);
    hub.deliver(&mut Vec::new(), after(8));
    assert_eq!(hub.counts().1.completed, 8);
}
