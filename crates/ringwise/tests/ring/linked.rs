//! Chains of a ring, on every kind of ring: order, parts, and what ends one.

use std::{
    future::Future,
    os::fd::OwnedFd,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use crate::rings::places;
use futures::{executor::block_on, future::join_all};
use ringwise::{Completion, Descriptor, ErrorKind, Local, Operation};

fn pipe() -> (Descriptor, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Descriptor::from(OwnedFd::from(reader)), writer)
}

fn kinds(taken: &[Completion]) -> Vec<Option<ErrorKind>> {
    taken.iter().map(|done| done.result().err().map(|error| error.kind())).collect()
}

const CANCELLED: Option<ErrorKind> = Some(ErrorKind::Cancelled);
const ENOUGH: Duration = Duration::from_secs(20);

#[test]
fn chains_run_in_their_order() {
    for place in places() {
        let ring = &place.ring;
        block_on(async {
            let file = place.create("file").await;
            let file = file.descriptor();
            let chains: Vec<_> = (0..60_u64)
                .map(|chain| {
                    let at = chain * 8;
                    ring.submit_linked([
                        Operation::write_at(file, vec![1; 8], at),
                        Operation::write_at(file, vec![chain as u8; 8], at),
                        Operation::read_at(file, vec![0; 8], at),
                    ])
                })
                .collect();
            for (chain, pending) in chains.into_iter().enumerate() {
                let done = join_all(pending).await;
                assert!(done.iter().all(|done| done.result().unwrap() == 8), "{}", place.name);
                let read = done.into_iter().next_back().unwrap().into_buffer().unwrap();
                assert_eq!(read.as_slice(), [chain as u8; 8], "{}", place.name);
            }
        });
    }
}

/// It goes step by step, beside another that is as long.
#[test]
fn a_chain_longer_than_the_queue() {
    for place in places() {
        let ring = &place.ring;
        block_on(async {
            let file = place.create("file").await;
            let file = file.descriptor();
            let long = |half: u64| {
                let steps = (0..1500_u64).map(move |at| {
                    Operation::write_at(file, vec![at as u8; 8], half * 20_000 + 7 * at)
                });
                ring.submit_linked(steps)
            };
            let (first, second) = (long(0), long(1));
            for done in join_all(first.into_iter().chain(second)).await {
                assert_eq!(done.result().unwrap(), 8, "{}", place.name);
            }
            for half in 0..2_u64 {
                let read = Operation::read_at(file, vec![0; 7 * 1500], half * 20_000);
                let bytes = ring.submit(read).await.into_buffer().unwrap();
                assert!((0..1500).all(|at| bytes.as_slice()[7 * at..][..7] == [at as u8; 7]));
            }
            // Its end is an end, in whatever part it comes.
            let steps = (0..1500_u64).map(|at| {
                let len = if at == 700 { 9 } else { 8 };
                let offset = if at == 700 { 1 << 40 } else { 0 };
                Operation::read_at(file, vec![0; len], offset)
            });
            let done = join_all(ring.submit_linked(steps)).await;
            assert!(kinds(&done[..=700]).iter().all(Option::is_none));
            assert_eq!(done[700].result().unwrap(), 0, "past the end");
            assert!(kinds(&done[701..]).iter().all(|kind| *kind == CANCELLED), "{}", place.name);
        });
    }
}

#[test]
fn a_chain_over_several_files() {
    for place in places() {
        let ring = &place.ring;
        block_on(async {
            let (first, second) = (place.create("first").await, place.create("second").await);
            let chain = ring.submit_linked([
                Operation::write_at(first.descriptor(), b"data".to_vec(), 0),
                Operation::sync_data(first.descriptor()),
                Operation::write_at(second.descriptor(), b"pointer".to_vec(), 0),
                Operation::sync_data(second.descriptor()),
                Operation::nop(),
            ]);
            assert_eq!(kinds(&join_all(chain).await), [None; 5], "{}", place.name);
            // The second names what the first failed to hold: it is not written.
            let chain = ring.submit_linked([
                Operation::read_at(first.descriptor(), vec![0; 8], 0),
                Operation::write_at(second.descriptor(), b"dangles".to_vec(), 0),
                Operation::sync_data(second.descriptor()),
            ]);
            assert_eq!(kinds(&join_all(chain).await), [None, CANCELLED, CANCELLED]);
            assert_eq!(second.read_to_end().await.unwrap(), b"pointer", "{}", place.name);
        });
    }
}

/// One that cannot be handed over fails in its turn; what is before it is made.
#[test]
fn what_is_refused_fails_in_its_turn() {
    for place in places() {
        block_on(async {
            let file = place.create("file").await;
            let write = |at| Operation::write_at(file.descriptor(), vec![7; 3], at);
            let chain = [write(0), Operation::nop(), write(u64::MAX), write(3)];
            let done = join_all(place.ring.submit_linked(chain)).await;
            let wrong = Some(ErrorKind::InvalidInput);
            assert_eq!(kinds(&done), [None, None, wrong, CANCELLED], "{}", place.name);
            let buffers: Vec<_> = done.into_iter().filter_map(Completion::into_buffer).collect();
            assert!(buffers.len() == 3 && buffers.iter().all(|each| each.as_slice() == [7; 3]));
            assert_eq!(file.read_to_end().await.unwrap(), [7; 3]);
        });
    }
}

/// A chain finds room among operations that fill the ring, and reads that wait for ever do not keep
/// what comes after it out.
#[test]
fn a_chain_on_a_full_ring() {
    for place in places() {
        let ring = &place.ring;
        block_on(async {
            let file = place.create("file").await;
            let (reader, mut writer) = pipe();
            let capacity = 2 * ring.setup().submission_entries() as usize;
            // All but a little room is taken by reads that wait.
            let wait = || Operation::read_at(&reader, vec![0; 1], 0);
            let idle = ring.submit_all((0..capacity - 6).map(|_| wait()));
            let long = (0..50).map(|at| Operation::write_at(file.descriptor(), vec![9; 1], at));
            let chain = ring.submit_linked(long);
            let write = Operation::write_at(file.descriptor(), vec![8; 1], 100);
            assert_eq!(ring.submit(write).await.result().unwrap(), 1);
            assert!(kinds(&join_all(chain).await).iter().all(Option::is_none), "{}", place.name);
            drop(idle);
            std::io::Write::write_all(&mut writer, b"x").unwrap();
        });
    }
}

/// A read that waits behind another is cancelled when its turn comes, so that a ring ends.
#[test]
fn a_chain_in_flight_ends_with_its_ring() {
    for place in places() {
        let ring = &place.ring;
        let (reader, writer) = pipe();
        let read = || Operation::read_at(&reader, vec![0; 8], 0);
        drop(ring.submit_linked([Operation::nop(), read(), read()]));
        let held = ring.submit_linked([read(), Operation::nop()]);
        let long = ring.submit_linked((0..2000).map(|_| read()));
        let start = Instant::now();
        block_on(ring.shutdown(ENOUGH)).unwrap();
        assert!(start.elapsed() < ENOUGH / 2, "{}: cancelled, not waited for", place.name);
        for done in block_on(join_all(held.into_iter().chain(long))) {
            assert_eq!(done.result().unwrap_err().kind(), ErrorKind::Cancelled);
        }
        let stats = ring.stats();
        assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
        drop(writer);
    }
}

/// Writes are made all the same.
#[test]
fn a_chain_whose_futures_are_dropped_goes_on() {
    for place in places() {
        block_on(async {
            let file = place.create("file").await;
            let writes = (0..300_u64)
                .map(|at| Operation::write_at(file.descriptor(), vec![at as u8; 2], at));
            drop(place.ring.submit_linked(writes));
            let shut = place.ring.shutdown(ENOUGH).await;
            shut.unwrap();
            let stats = place.ring.stats();
            assert_eq!(
                (stats.delivered + stats.reclaimed, stats.local.in_flight),
                (stats.submitted, 0)
            );
            let bytes = place.read("file");
            let expected: Vec<u8> = (0..=300_u64).map(|at| at.min(299) as u8).collect();
            assert_eq!(bytes, expected, "{}", place.name);
        });
    }
}

/// The deadline of one that waits for its turn ends it and what comes after it.
#[test]
fn a_deadline_in_a_chain() {
    for place in places() {
        let (reader, mut writer) = pipe();
        let read = || Operation::read_at(&reader, vec![5; 4], 0);
        let mut chain = place.ring.submit_linked([read(), read(), Operation::nop()]).into_iter();
        let (first, second) = (chain.next().unwrap(), chain.next().unwrap());
        let mut second = Box::pin(second.deadline(Duration::from_millis(20)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        let after = place.ring.submit(Operation::timeout(Duration::from_millis(100)));
        block_on(after).result().unwrap();
        // It has passed; now it is polled to be told, and still waits for its turn.
        assert!(second.as_mut().poll(&mut context).is_pending(), "{}", place.name);
        std::io::Write::write_all(&mut writer, b"goes").unwrap();
        assert_eq!(block_on(first).result().unwrap(), 4);
        let done = block_on(second);
        assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut, "{}", place.name);
        assert_eq!(done.into_buffer().unwrap().as_slice(), [5; 4]);
        assert_eq!(kinds(&block_on(join_all(chain))), [CANCELLED]);
    }
}

/// Chains that no ring links, since a time is an error to a link: the loop goes from step to step,
/// wherever its driver runs.
#[test]
fn chains_that_the_loop_makes() {
    for place in places() {
        let file = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        let chains: Vec<_> = (0..40)
            .flat_map(|_| {
                place.ring.submit_linked([
                    Operation::timeout(Duration::from_micros(200)),
                    Operation::read_at(&file, vec![1; 8], 0),
                    Operation::timeout(Duration::from_micros(100)),
                    Operation::nop(),
                ])
            })
            .collect();
        for done in block_on(join_all(chains)) {
            done.result().unwrap();
        }
        block_on(place.ring.shutdown(ENOUGH)).unwrap();
    }
}

/// What the kernel ends because the thread that submitted it has ended begins anew, and what comes
/// after it still comes after it.
#[test]
fn a_chain_outlives_the_thread_that_submitted_it() {
    for place in places() {
        let file = block_on(place.create("file"));
        for round in 0..20_u8 {
            let (reader, mut writer) = pipe();
            let ring = place.ring.clone();
            let descriptor = file.descriptor().clone();
            let submitter = std::thread::spawn(move || {
                ring.submit_linked([
                    Operation::write_at(&descriptor, vec![round; 4], 0),
                    Operation::read_at(&reader, vec![0; 4], 0),
                    Operation::write_at(&descriptor, vec![round; 4], 2),
                    Operation::sync_data(&descriptor),
                    Operation::read_at(&descriptor, vec![0; 6], 0),
                ])
            });
            let chain = submitter.join().unwrap();
            std::io::Write::write_all(&mut writer, b"late").unwrap();
            let done = block_on(join_all(chain));
            assert_eq!(kinds(&done), [None; 5], "{}", place.name);
            let read = done.into_iter().next_back().unwrap().into_buffer().unwrap();
            assert_eq!(read.as_slice(), [round; 6]);
        }
    }
}

/// A cancel has a step of a chain begin that is due: both find room in the queue, however full it was.
#[test]
fn a_cancel_behind_a_step_that_takes_the_last_room() {
    for queued in 0..4 {
        let mut local = Local::builder().entries(4).build().unwrap();
        let chain = vec![(Operation::timeout(60 * ENOUGH), 1), (Operation::nop(), 2)];
        let tickets = local.push_linked(chain).unwrap();
        for number in 0..queued {
            local.push(Operation::nop(), 10 + number).unwrap();
        }
        local.push(Operation::cancel(tickets[0]), 20).unwrap();
        let mut ended = Vec::new();
        while ended.len() < queued as usize + 3 {
            local.submit_and_wait(1).unwrap();
            ended.extend(std::iter::from_fn(|| local.next_completion()).map(|done| done.tag()));
        }
        ended.sort_unstable();
        assert_eq!((ended[0], ended[1], *ended.last().unwrap()), (1, 2, 20), "{queued}");
    }
}
