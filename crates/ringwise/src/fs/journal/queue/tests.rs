//! The queue over a disk that does what the test says, and when.

use std::{
    collections::VecDeque,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::executor::block_on;

use super::*;

/// Commits batches when it is told to.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    /// The batches that were begun.
    begun: Vec<Range<u64>>,
    /// How the next ones end.
    ends: VecDeque<Result<(), Error>>,
    waker: Option<Waker>,
    panics: bool,
}

impl Disk {
    fn begun(&self) -> Vec<Range<u64>> {
        lock(&self.0).begun.clone()
    }

    /// The commit under way ends, or the next one will.
    fn end(&self, result: Result<(), Error>) {
        let waker = {
            let mut shelf = lock(&self.0);
            shelf.ends.push_back(result);
            shelf.waker.take()
        };
        wake(waker);
    }
}

impl Commit for Disk {
    fn commit(self, batch: Batch) -> Committing<Disk> {
        Box::pin(async move {
            lock(&self.0).begun.push(batch.first()..batch.end());
            let ended = |context: &mut Context<'_>| {
                let mut shelf = lock(&self.0);
                assert!(!shelf.panics, "as the test wants it");
                match shelf.ends.pop_front() {
                    Some(result) => Poll::Ready(result),
                    None => {
                        shelf.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            };
            let result = std::future::poll_fn(ended).await;
            Committed { writer: self, bytes: batch.seal(0), result }
        })
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn queue(bytes_max: usize) -> (Disk, Arc<Queue<Disk>>) {
    let disk = Disk::default();
    (disk.clone(), Arc::new(Queue::new(disk, 0, bytes_max)))
}

fn poll(place: &mut Place<'_, Disk>, count: &Arc<Count>) -> Poll<Result<u64, Error>> {
    let waker = Waker::from(Arc::clone(count));
    place.poll_append(b"record", &mut Context::from_waker(&waker))
}

fn failure() -> Error {
    Error::new(Opcode::Sync, Errno(libc::EIO))
}

#[test]
fn what_comes_during_a_commit_is_the_next_one() {
    let (disk, queue) = queue(1 << 20);
    let counts: Vec<_> = (0..6).map(|_| Arc::new(Count::default())).collect();
    let mut places: Vec<_> = (0..6).map(|_| queue.place()).collect();
    for (place, count) in places.iter_mut().zip(&counts) {
        assert!(poll(place, count).is_pending());
    }
    assert_eq!(disk.begun().as_slice(), std::slice::from_ref(&(0..1)));
    disk.end(Ok(()));
    assert_eq!(disk.begun(), [0..1, 1..6], "without a poll of any task");
    let woken: Vec<_> = counts.iter().map(|count| count.0.load(SeqCst)).collect();
    assert_eq!(woken, [1, 0, 0, 0, 0, 0]);
    assert_eq!(queue.durable(), 1);
    disk.end(Ok(()));
    for (number, (place, count)) in places.iter_mut().zip(&counts).enumerate() {
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(matches!(poll(place, count), Poll::Ready(Ok(told)) if told == number as u64));
    }
    assert_eq!(disk.begun().len(), 2);
}

/// The first of them has begun the commit, and the last is the only one that is looked at again.
#[test]
fn futures_that_are_dropped_or_forgotten_stop_nobody() {
    let (disk, queue) = queue(1 << 20);
    let count = Arc::new(Count::default());
    let mut dropped = queue.place();
    assert!(poll(&mut dropped, &count).is_pending());
    let mut forgotten = queue.place();
    assert!(poll(&mut forgotten, &count).is_pending());
    let mut last = queue.place();
    assert!(poll(&mut last, &count).is_pending());
    drop(dropped);
    std::mem::forget(forgotten);
    disk.end(Ok(()));
    disk.end(Ok(()));
    assert_eq!(disk.begun(), [0..1, 1..3]);
    assert!(matches!(poll(&mut last, &count), Poll::Ready(Ok(2))));
}

#[test]
fn who_finds_no_room_waits_in_order_and_passes_the_turn_on() {
    // Room for one record beside the header.
    let (disk, queue) = queue(super::super::frame::FRAME_BYTES + 10);
    let counts: Vec<_> = (0..6).map(|_| Arc::new(Count::default())).collect();
    let mut places: Vec<_> = (0..6).map(|_| Some(queue.place())).collect();
    for (place, count) in places.iter_mut().zip(&counts) {
        assert!(poll(place.as_mut().unwrap(), count).is_pending());
    }
    let woken = |at: usize| counts[at].0.load(SeqCst);
    // The first is committed and the second is gathered. The third leaves before its turn.
    places[2] = None;
    disk.end(Ok(()));
    assert_eq!((woken(3), woken(4)), (1, 0), "there is room for one");
    // Somebody else may not overtake, and who was woken leaves without a look.
    let mut late = queue.place();
    assert!(poll(&mut late, &counts[5]).is_pending());
    places[3] = None;
    assert_eq!(woken(4), 1);
    assert!(poll(places[4].as_mut().unwrap(), &counts[4]).is_pending());
    for _ in 0..4 {
        disk.end(Ok(()));
        let _ = poll(places[5].as_mut().unwrap(), &counts[5]);
    }
    assert!(matches!(poll(places[4].as_mut().unwrap(), &counts[4]), Poll::Ready(Ok(2))));
    assert!(matches!(poll(places[5].as_mut().unwrap(), &counts[5]), Poll::Ready(Ok(3))));
    assert_eq!(disk.begun(), [0..1, 1..2, 2..3, 3..4]);
}

#[test]
fn a_failure_is_told_to_all_and_ends_everything() {
    let (disk, queue) = queue(super::super::frame::FRAME_BYTES + 10);
    let counts: Vec<_> = (0..4).map(|_| Arc::new(Count::default())).collect();
    let mut places: Vec<_> = (0..4).map(|_| queue.place()).collect();
    for (place, count) in places.iter_mut().zip(&counts) {
        assert!(poll(place, count).is_pending());
    }
    disk.end(Ok(()));
    disk.end(Err(failure()));
    assert!(matches!(poll(&mut places[0], &counts[0]), Poll::Ready(Ok(0))), "it was durable");
    for (place, count) in places.iter_mut().zip(&counts).skip(1) {
        assert!(count.0.load(SeqCst) > 0);
        let Poll::Ready(Err(error)) = poll(place, count) else { panic!("it has failed") };
        assert_eq!(error.errno(), libc::EIO);
    }
    assert!(matches!(poll(&mut queue.place(), &counts[0]), Poll::Ready(Err(_))));
    assert_eq!(disk.begun(), [0..1, 1..2]);
}

#[test]
fn a_panic_fails_the_queue_and_leaves_nobody_waiting() {
    let (disk, queue) = queue(1 << 20);
    let count = Arc::new(Count::default());
    let mut place = queue.place();
    assert!(poll(&mut place, &count).is_pending());
    lock(&disk.0).panics = true;
    // The waker is the queue's, and `wake` lets no panic pass.
    disk.end(Ok(()));
    assert_eq!(count.0.load(SeqCst), 1);
    assert!(matches!(poll(&mut place, &count), Poll::Ready(Err(_))));
    let mut other = queue.place();
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut other, &count)));
    assert!(matches!(polled, Ok(Poll::Ready(Err(_)))));
}

#[test]
fn who_settles_waits_for_all_that_were_appended_before() {
    let (disk, queue) = queue(1 << 20);
    let mut context = Context::from_waker(Waker::noop());
    assert!(queue.place().poll_settled(&mut context).is_ready(), "there is nothing");
    let count = Arc::new(Count::default());
    (0..2).for_each(|_| assert!(poll(&mut queue.place(), &count).is_pending()));
    let mut settling = queue.place();
    assert!(settling.poll_settled(&mut context).is_pending());
    disk.end(Ok(()));
    assert!(settling.poll_settled(&mut context).is_pending());
    disk.end(Ok(()));
    assert!(matches!(settling.poll_settled(&mut context), Poll::Ready(Ok(()))));
}

/// Threads append, some give up, and a thread ends the commits: everybody is told in the end.
#[test]
fn no_wake_up_is_lost_between_threads() {
    const THREADS: usize = 4;
    const APPENDS: usize = 400;
    let (disk, queue) = queue(64);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let queue = queue.clone();
                scope.spawn(move || append_many(&queue, APPENDS, thread))
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            // Only while somebody waits for it, so that commits take turns with appends.
            let waits = lock(&disk.0).waker.is_some();
            if waits { disk.end(Ok(())) } else { std::thread::yield_now() }
        }
    });
}

fn append_many(queue: &Arc<Queue<Disk>>, count: usize, thread: usize) {
    let mut last = None;
    for turn in 0..count {
        let mut place = queue.place();
        let mut append =
            pin!(std::future::poll_fn(|context| place.poll_append(b"record", context)));
        if (turn + thread).is_multiple_of(5) {
            let _ = append.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            continue;
        }
        let number = block_on(append).unwrap();
        assert!(last.replace(number) < Some(number), "in the order of its appends");
    }
}
