//! One direction of a socket: one operation at a time, and what a dropped future left behind.
//!
//! Two receives on one stream, or two sends, would complete in any order. So each user enters the lane and
//! waits for its turn, first come, first served. If a future is dropped, its operation stays with the
//! lane. The next user waits for its end first, so that no byte is lost (invariant 6). It knows no
//! operation.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{
    flight::completion::Completion,
    ring::{self, Flow, Pending, Timer},
    sync::lock,
};

/// One direction; `T` is what operations whose futures were dropped have left.
#[derive(Debug, Default)]
pub(super) struct Lane<T> {
    line: Mutex<Line>,
    /// The operation of a future that was dropped.
    set_aside: Mutex<Option<Pending>>,
    /// That of one which took many results.
    flow: Mutex<Option<Flow>>,
    rest: Mutex<T>,
}

/// Who is on the lane, and who waits for that.
#[derive(Debug, Default)]
struct Line {
    /// Nobody waits while there is none.
    holder: Option<u64>,
    next: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl<T> Lane<T> {
    /// Waits for its turn.
    pub(super) fn enter(&self) -> Entering<'_, T> {
        Entering { lane: self, number: None }
    }

    /// Its turn now, if nobody is on the lane and no operation of a dropped future is under way.
    pub(super) fn try_enter(&self) -> Option<Turn<'_, T>> {
        let mut line = lock(&self.line);
        if line.holder.is_some() {
            return None;
        }
        line.holder = Some(line.next);
        line.next += 1;
        drop(line);
        let turn = Turn { lane: self };
        let is_clear = lock(&self.set_aside).is_none() && lock(&self.flow).is_none();
        is_clear.then_some(turn)
    }

    /// The operation of a dropped future, when nobody else can reach the lane.
    pub(super) fn take_last(&mut self) -> Option<Pending> {
        lock(&self.set_aside).take()
    }

    /// What was left, when nobody else can reach the lane.
    pub(super) fn rest_mut(&mut self) -> &mut T {
        self.rest.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an operation is still under way, when nobody else can reach the lane.
    pub(super) fn is_under_way(&mut self) -> bool {
        lock(&self.set_aside).is_some() || lock(&self.flow).is_some()
    }

    /// The next one's turn.
    fn pass_on(&self) {
        let mut line = lock(&self.line);
        let next = line.waiting.pop_front();
        line.holder = next.as_ref().map(|(number, _)| *number);
        drop(line);
        if let Some((_, waker)) = next {
            ring::wake(Some(waker));
        }
    }
}

/// A place in the line: a future of the [`Turn`].
pub(super) struct Entering<'a, T> {
    lane: &'a Lane<T>,
    number: Option<u64>,
}

impl<'a, T> Future for Entering<'a, T> {
    type Output = Turn<'a, T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn<'a, T>> {
        let lane = self.lane;
        // A waker is a user's code, and neither cloned nor dropped under the lock.
        let waker = context.waker().clone();
        let mut line = lock(&lane.line);
        let Some(number) = self.number else {
            let number = line.next;
            line.next += 1;
            if line.holder.is_none() {
                line.holder = Some(number);
                return Poll::Ready(Turn { lane });
            }
            line.waiting.push_back((number, waker));
            self.number = Some(number);
            return Poll::Pending;
        };
        if line.holder == Some(number) {
            self.number = None;
            return Poll::Ready(Turn { lane });
        }
        let place = line.waiting.iter_mut().find(|(waiting, _)| *waiting == number);
        let old = place.map(|(_, waiting)| std::mem::replace(waiting, waker));
        drop(line);
        drop(old);
        Poll::Pending
    }
}

impl<T> Drop for Entering<'_, T> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut line = lock(&self.lane.line);
        if line.holder == Some(number) {
            drop(line);
            return self.lane.pass_on();
        }
        let place = line.waiting.iter().position(|(waiting, _)| *waiting == number);
        let left = place.and_then(|at| line.waiting.remove(at));
        drop(line);
        drop(left);
    }
}

/// Being on the lane, until it is dropped.
pub(super) struct Turn<'a, T> {
    lane: &'a Lane<T>,
}

impl<T> Turn<'_, T> {
    /// What dropped futures' operations have left.
    pub(super) fn rest(&self) -> MutexGuard<'_, T> {
        lock(&self.lane.rest)
    }

    /// The operation of a future that was dropped, to be seen to its end.
    pub(super) fn take_set_aside(&self) -> Option<Pending> {
        lock(&self.lane.set_aside).take()
    }

    /// Leaves an operation with several results to the lane, to end. The next user of the lane takes the results.
    pub(super) fn set_flow_aside(&self, flow: Flow) {
        flow.set_aside();
        *lock(&self.lane.flow) = Some(flow);
    }

    /// Sees such an operation to its end. It stays with the lane until then.
    pub(super) async fn settle_flow(&self, mut keep: impl FnMut(&mut T, Completion)) {
        poll_fn(|context| {
            // Out of the lock: to poll clones a waker, which is a user's code.
            let taken = lock(&self.lane.flow).take();
            let Some(mut flow) = taken else { return Poll::Ready(()) };
            loop {
                match flow.poll_next(context) {
                    Poll::Ready(Some(part)) => keep(&mut self.rest(), part),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => {
                        *lock(&self.lane.flow) = Some(flow);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
    }

    /// Makes an operation. Where this future is dropped, it stays with the lane.
    pub(super) async fn make(&self, operation: Pending) -> Completion {
        self.make_in(&mut Timer::Endless, operation).await
    }

    /// The same, in the time that is left.
    pub(super) async fn make_in(&self, timer: &mut Timer, operation: Pending) -> Completion {
        let mut flight = Flight { lane: self.lane, operation: Some(operation) };
        poll_fn(|context| flight.poll(timer, context)).await
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.lane.pass_on();
    }
}

/// An operation that is waited for.
struct Flight<'a, T> {
    lane: &'a Lane<T>,
    operation: Option<Pending>,
}

impl<T> Flight<'_, T> {
    fn poll(&mut self, timer: &mut Timer, context: &mut Context<'_>) -> Poll<Completion> {
        let operation = self.operation.as_mut().expect("it is polled to its end only");
        let polled = timer.poll_limited(operation, context);
        if polled.is_ready() {
            self.operation = None;
        }
        polled
    }
}

impl<T> Drop for Flight<'_, T> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take().and_then(Pending::set_aside) {
            *lock(&self.lane.set_aside) = Some(operation);
        }
    }
}

/// Whether an error is about the ring and not about the socket.
pub(super) fn is_of_the_ring(error: &crate::error::Error) -> bool {
    matches!(error.errno(), libc::ESHUTDOWN | libc::EOWNERDEAD | libc::ECANCELED)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn turns_come_in_the_order_in_which_they_were_asked_for() {
        let lane = Lane::<()>::default();
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(lane.enter())).collect();
        let Poll::Ready(first) = waiting.remove(0).as_mut().poll(&mut context) else {
            panic!("nobody else is there");
        };
        assert!(
            waiting.iter_mut().all(|entering| entering.as_mut().poll(&mut context).is_pending())
        );
        drop(first);
        assert_eq!(woken.0.load(Relaxed), 1);
        // A third may not overtake the one whose turn it is, who has not seen that yet.
        assert!(pin!(lane.enter()).poll(&mut context).is_pending());
        assert!(waiting[1].as_mut().poll(&mut context).is_pending());
        assert!(waiting[0].as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_turn_now_is_one_among_others() {
        let lane = Lane::<()>::default();
        let mut context = Context::from_waker(Waker::noop());
        let first = lane.try_enter().expect("nobody else is there");
        assert!(lane.try_enter().is_none());
        let mut second = Box::pin(lane.enter());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        // The turn is of the one who waited, who has not seen that yet.
        assert!(lane.try_enter().is_none());
        let Poll::Ready(turn) = second.as_mut().poll(&mut context) else {
            panic!("its turn has come");
        };
        drop(turn);
        assert!(lane.try_enter().is_some());
        assert!(lane.try_enter().is_some(), "the turn before is over");
    }

    #[test]
    fn whoever_leaves_the_line_passes_the_turn_on() {
        let lane = Lane::<()>::default();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(lane.enter()).poll(&mut context) else {
            panic!("nobody else is there");
        };
        let mut second = Box::pin(lane.enter());
        let mut third = Box::pin(lane.enter());
        let mut fourth = Box::pin(lane.enter());
        for entering in [&mut second, &mut third, &mut fourth] {
            assert!(entering.as_mut().poll(&mut context).is_pending());
        }
        // One leaves before its turn has come, and one when it has.
        drop(third);
        drop(first);
        drop(second);
        assert!(fourth.as_mut().poll(&mut context).is_ready());
    }
}
