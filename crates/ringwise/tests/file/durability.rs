//! A sync that failed poisons its file: it is never retried into success (invariant 10).

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use futures::executor::block_on;
use ringwise::{
    BufResult, Opcode,
    sim::{Fault, Simulation, When},
};

use super::rings::{places, simulated};

#[test]
fn a_failed_sync_poisons_the_file() {
    for data_only in [true, false] {
        let simulation =
            Simulation::builder(5).fault(Fault::Io, When::nth(1).of(Opcode::Sync)).build();
        let place = simulated(&simulation);
        block_on(async {
            let file = place.create("file").await;
            let clone = file.clone();
            file.write_all_at(b"record".to_vec(), 0).await.0.unwrap();
            let synced = if data_only { file.sync_data().await } else { file.sync_all().await };
            assert_eq!(synced.unwrap_err().errno(), libc::EIO);
            // The disk is well again, and the file is not; nor is its clone.
            let BufResult(one, back) = file.write_at(b"x".to_vec(), 0).await;
            assert_eq!(back, b"x");
            let BufResult(all, back) = clone.write_all_at(b"y".to_vec(), 0).await;
            assert_eq!(back, b"y");
            let BufResult(vectored, back) = clone.write_vectored_at(vec![b"z".to_vec()], 0).await;
            assert_eq!(back, [b"z"]);
            let later = [
                one.map(drop),
                all,
                vectored.map(drop),
                file.sync_data().await,
                clone.sync_all().await,
            ];
            for result in later {
                let error = result.unwrap_err();
                assert_eq!(error.errno(), libc::EIO);
                assert!(error.to_string().contains("an earlier sync"), "{error}");
            }
            // What was written can still be read, and another opening starts anew.
            assert_eq!(file.read_to_end().await.unwrap(), b"record");
            let anew = place.create("file").await;
            anew.write_all_at(b"record".to_vec(), 0).await.0.unwrap();
            anew.sync_data().await.unwrap();
        });
    }
}

/// Nobody saw the error of a sync whose future was dropped, and the next one told of success: the
/// kernel reports a lost write once.
#[test]
fn a_sync_that_fails_unseen_poisons_the_file() {
    struct Silent;
    impl Wake for Silent {
        fn wake(self: Arc<Self>) {}
    }
    for seed in 0..10 {
        let simulation =
            Simulation::builder(seed).fault(Fault::Io, When::nth(1).of(Opcode::Sync)).build();
        let place = simulated(&simulation);
        block_on(async {
            let file = place.create("file").await;
            file.write_all_at(b"record".to_vec(), 0).await.0.unwrap();
            {
                let mut sync = pin!(file.sync_data());
                let waker = Waker::from(Arc::new(Silent));
                let _ = sync.as_mut().poll(&mut Context::from_waker(&waker));
            }
            let error = file.sync_data().await.expect_err("what was written may be lost");
            assert_eq!(error.errno(), libc::EIO, "seed {seed}");
            assert!(error.to_string().contains("an earlier sync"), "{error}");
        });
    }
}

/// What never reached the file says nothing about it: a sync that is refused is not judged.
#[test]
fn a_ring_that_is_shut_down_poisons_no_file() {
    for place in places() {
        block_on(async {
            let file = place.create("file").await;
            file.write_all_at(b"x".to_vec(), 0).await.0.unwrap();
            place.ring.shutdown(Duration::from_secs(5)).await.unwrap();
            for _ in 0..2 {
                let error = file.sync_data().await.unwrap_err();
                assert_eq!(error.errno(), libc::ESHUTDOWN);
                assert!(!error.to_string().contains("earlier"), "{}: {error}", place.name);
            }
            let BufResult(written, back) = file.write_all_at(b"back".to_vec(), 0).await;
            assert_eq!(written.unwrap_err().errno(), libc::ESHUTDOWN);
            assert_eq!(back, b"back");
        });
    }
}

/// The kernel tells of a lost write to one sync of several; in whatever order they end and are looked
/// at, none is told as a success.
#[test]
fn of_several_syncs_none_succeeds_where_one_failed() {
    for seed in 0..12 {
        let simulation = Simulation::builder(seed)
            .fault(Fault::Delay, When::always().of(Opcode::Sync))
            .latency(Duration::from_millis(20))
            .fault(Fault::Io, When::nth(seed % 4 + 1).of(Opcode::Sync))
            .build();
        let place = simulated(&simulation);
        block_on(async {
            let file = place.create("file").await;
            file.write_all_at(b"record".to_vec(), 0).await.0.unwrap();
            let clone = file.clone();
            let mut syncs = [&file, &clone, &file, &clone].map(|file| Box::pin(file.sync_data()));
            let mut context = Context::from_waker(Waker::noop());
            for sync in &mut syncs {
                assert!(sync.as_mut().poll(&mut context).is_pending());
            }
            // The last is looked at alone: it cannot rely on anybody to look at the others.
            let [first, second, third, last] = syncs;
            let mut results = vec![last.await];
            results.extend([third.await, second.await, first.await]);
            for result in results {
                assert_eq!(result.unwrap_err().errno(), libc::EIO, "{}", simulation.trace());
            }
        });
    }
}
