//! The shared handle: on executors of every kind, dropped at every moment, at its end.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures::{executor::block_on, future::poll_immediate};
use ringwise::{
    BackendChoice, BufResult, Builder, Descriptor, ErrorKind, Local, OpenOptions, Operation, Ring,
    fs, fs::File,
};

/// Every backend, each with a driver thread.
fn builders() -> Vec<Builder> {
    [BackendChoice::Uring, BackendChoice::Classic]
        .map(|choice| Local::builder().entries(8).backend(choice).driver_thread(true))
        .into_iter()
        .filter(|builder| match builder.clone().build() {
            Ok(_) => true,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
                println!("skipped: {error}");
                false
            }
        })
        .collect()
}

/// A ring of every kind: with a thread of its own, and driven by a runtime.
fn rings() -> Vec<Ring> {
    #[cfg_attr(not(feature = "tokio"), allow(unused_mut))]
    let mut rings: Vec<Ring> =
        builders().into_iter().map(|builder| builder.build_ring().unwrap()).collect();
    #[cfg(feature = "tokio")]
    rings.extend(runtime::ring(Local::builder().entries(8)));
    rings
}

#[cfg(feature = "tokio")]
mod runtime {
    //! Rings that a tokio runtime drives.

    use std::{
        sync::{
            OnceLock,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
        time::Instant,
    };

    use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

    use super::*;

    /// Runs as long as the tests do.
    fn shared() -> &'static Runtime {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        RUNTIME.get_or_init(|| {
            RuntimeBuilder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
        })
    }

    pub fn ring(builder: Builder) -> Option<Ring> {
        let _context = shared().enter();
        builder.build_ring().ok()
    }

    /// Nothing but its timer wakes the runtime, and a later one does not hide an earlier.
    #[test]
    fn a_timer_on_classic_calls_wakes_a_runtime() {
        let classic = Local::builder().entries(8).backend(BackendChoice::Classic);
        let ring = ring(classic).expect("classic calls are everywhere");
        let (reader, _writer) = pipe();
        let after = |milliseconds| {
            let read = ring.submit(Operation::read_at(&reader, vec![0; 8], 0));
            let deadline = read.deadline(Duration::from_millis(milliseconds));
            shared().spawn(async move { deadline.await.result().unwrap_err().kind() })
        };
        let tasks = [after(60_000), after(30), after(10)];
        let [late, ended @ ..] = tasks;
        for task in ended {
            let end = async { tokio::time::timeout(Duration::from_secs(20), task).await };
            let kind = shared().block_on(end).expect("no timer is missed");
            assert_eq!(kind.unwrap(), ErrorKind::TimedOut);
        }
        late.abort();
    }

    #[test]
    fn tasks_of_a_runtime_share_a_ring() {
        for runtime in [
            RuntimeBuilder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
            RuntimeBuilder::new_current_thread().enable_all().build().unwrap(),
        ] {
            runtime.block_on(async {
                let ring = Local::builder().entries(8).build_ring().unwrap();
                let file = File::from_std(&ring, std::fs::File::open("/dev/zero").unwrap());
                let tasks = (0..50).map(|task| {
                    let file = file.clone();
                    tokio::spawn(async move {
                        for round in 0..20 {
                            let BufResult(read, bytes) =
                                file.read_exact_at(vec![1; 100 + task], round).await;
                            read.unwrap();
                            assert_eq!(bytes, vec![0; 100 + task]);
                        }
                    })
                });
                for task in tasks.collect::<Vec<_>>() {
                    task.await.unwrap();
                }
                ring.shutdown(Duration::from_secs(5)).await.unwrap();
            });
        }
    }

    /// The kernel ends a read that waits for a stream when the thread ends that submitted it.
    #[test]
    fn a_read_outlives_the_thread_that_submitted_it() {
        let ring = ring(Local::builder().entries(8)).unwrap();
        let (reader, mut writer) = pipe();
        let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
        let polled = std::thread::spawn(move || {
            assert!(poll_once(read.as_mut()).is_pending());
            read
        });
        let read = polled.join().unwrap();
        std::io::Write::write_all(&mut writer, b"late").unwrap();
        assert_eq!(block_on(read).result().unwrap(), 4);
        // A cancel is still one.
        let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
        assert!(poll_once(read.as_mut()).is_pending());
        drop(read);
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        assert!(reader.into_owned().is_ok());
    }

    /// The driver goes on with a thread, and nothing is lost.
    #[test]
    fn a_runtime_ends_before_its_ring() {
        let runtime = RuntimeBuilder::new_multi_thread().enable_all().build().unwrap();
        let ring = runtime.block_on(async { Local::builder().build_ring().unwrap() });
        let (reader, mut writer) = pipe();
        let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
        assert!(poll_once(read.as_mut()).is_pending());
        drop(runtime);
        std::io::Write::write_all(&mut writer, b"after").unwrap();
        assert_eq!(block_on(read).result().unwrap(), 5);
        assert_eq!(block_on(ring.submit(Operation::nop())).result().unwrap(), 0);
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
    }

    #[test]
    fn a_runtime_without_io_leaves_the_ring_to_a_thread() {
        let runtime = RuntimeBuilder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let ring = Local::builder().build_ring().unwrap();
            assert_eq!(ring.submit(Operation::nop()).await.result().unwrap(), 0);
        });
    }

    /// Tasks wake each other in turn: one that was woken and never looks holds nobody up.
    #[test]
    fn a_task_that_never_takes_its_result_holds_nobody_up() {
        let ring = ring(Local::builder()).unwrap();
        let file = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        let read = || ring.submit(Operation::read_at(&file, vec![1; 64], 0));
        for _ in 0..50 {
            let mut idle: Vec<_> = (0..4).map(|_| Box::pin(read())).collect();
            let tasks: Vec<_> = (0..8).map(|_| shared().spawn(read())).collect();
            for future in &mut idle {
                assert!(poll_once(future.as_mut()).is_pending());
            }
            for task in tasks {
                let end = async { tokio::time::timeout(Duration::from_secs(20), task).await };
                let done = shared().block_on(end).expect("each has its turn").unwrap();
                assert_eq!(done.result().unwrap(), 64);
            }
        }
    }

    /// Tasks that compute between two operations do so on all of a runtime's threads.
    #[test]
    fn tasks_that_compute_are_spread_over_threads() {
        let ring = ring(Local::builder()).unwrap();
        let file = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        let busy = Arc::new(AtomicUsize::new(0));
        let both = Arc::new(AtomicBool::new(false));
        let end = Instant::now() + Duration::from_secs(20);
        let task = || {
            let (ring, file, busy, both) = (ring.clone(), file.clone(), busy.clone(), both.clone());
            async move {
                while !both.load(Ordering::Relaxed) && Instant::now() < end {
                    let done = ring.submit(Operation::read_at(&file, vec![1; 64], 0)).await;
                    done.result().unwrap();
                    let others = busy.fetch_add(1, Ordering::Relaxed);
                    both.fetch_or(others > 0, Ordering::Relaxed);
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_millis(2) {}
                    busy.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let tasks: Vec<_> = (0..8).map(|_| shared().spawn(task())).collect();
        tasks.into_iter().for_each(|task| shared().block_on(task).unwrap());
        assert!(both.load(Ordering::Relaxed), "two at a time");
    }

    /// A ring that is driven by a runtime uses no processor while nothing happens.
    #[test]
    fn an_idle_ring_costs_nothing() {
        let ring = ring(Local::builder()).unwrap();
        let (reader, _writer) = pipe();
        let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
        assert!(poll_once(read.as_mut()).is_pending());
        let enters = ring.stats().local.enters;
        std::thread::sleep(Duration::from_millis(200));
        assert!(ring.stats().local.enters - enters <= 2);
    }
}

fn pipe() -> (Descriptor, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Descriptor::from(std::os::fd::OwnedFd::from(reader)), writer)
}

#[test]
fn a_plain_thread_is_an_executor() {
    for ring in rings() {
        block_on(async {
            let read = fs::read(&ring, "/proc/self/comm").await.unwrap();
            assert!(read.ends_with(b"\n"));
            ring.shutdown(Duration::from_secs(5)).await.unwrap();
            let refused = ring.submit(Operation::nop()).await.result().unwrap_err();
            assert_eq!(refused.errno(), libc::ESHUTDOWN);
        });
    }
}

#[test]
fn a_future_is_send_and_the_handle_shared() {
    fn is_send(_: &impl Send) {}
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    for ring in rings() {
        is_shared(&ring);
        let file = File::from_std(&ring, std::fs::File::open("/dev/zero").unwrap());
        is_shared(&file);
        is_send(&ring.submit(Operation::nop()));
        is_send(&file.read_at(vec![0; 8], 0));
        is_send(&file.sync_all());
    }
}

#[test]
fn many_threads_share_a_ring_of_eight_entries() {
    for ring in rings() {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let ring = ring.clone();
                scope.spawn(move || {
                    block_on(async {
                        let nops = (0..100).map(|_| ring.submit(Operation::nop()));
                        for done in futures::future::join_all(nops).await {
                            assert_eq!(done.result().unwrap(), 0, "thread {thread}");
                        }
                    });
                });
            }
        });
        let stats = ring.stats();
        assert_eq!((stats.submitted, stats.delivered, stats.reclaimed), (400, 400, 0));
    }
}

#[test]
fn a_batch_is_handed_over_at_once() {
    for builder in builders() {
        let ring = builder.entries(64).build_ring().unwrap();
        let file = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        // The first brings the counts up to date.
        let before = block_on(async {
            ring.submit(Operation::nop()).await.result().unwrap();
            ring.stats()
        });
        let reads = (0..32).map(|_| Operation::read_at(&file, vec![1; 64], 0));
        let done = block_on(futures::future::join_all(ring.submit_all(reads)));
        assert_eq!(done.len(), 32);
        for done in done {
            assert_eq!(done.result().unwrap(), 64);
            assert_eq!(done.into_buffer().unwrap().as_slice(), [0; 64]);
        }
        let after = ring.stats();
        assert!(after.wakes - before.wakes <= 1, "{before:?} {after:?}");
        assert!(after.local.enters - before.local.enters <= 3, "{before:?} {after:?}");
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        for refused in ring.submit_all([Operation::nop(), Operation::nop()]) {
            assert_eq!(block_on(refused).result().unwrap_err().errno(), libc::ESHUTDOWN);
        }
    }
}

#[test]
fn a_batch_is_under_way_before_it_is_polled() {
    let directory = tempfile::tempdir().unwrap();
    for ring in rings() {
        let path = directory.path().join("batch");
        let file = Descriptor::from(std::fs::File::create(&path).unwrap());
        let write = |at: u64| Operation::write_at(&file, vec![b'a' + at as u8], at);
        drop(ring.submit_all((0..5).map(write)));
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcde");
        assert_eq!(ring.stats().reclaimed, 5);
    }
}

#[test]
fn a_deadline_ends_a_read_and_gives_its_buffer_back() {
    for ring in rings() {
        let (reader, mut writer) = pipe();
        let read = ring.submit(Operation::read_at(&reader, vec![5; 32], 0));
        let start = std::time::Instant::now();
        let done = block_on(read.deadline(Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(done.into_buffer().unwrap().as_slice(), [5; 32]);
        // What comes in time is as without; its timer is cancelled with it.
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        let read = ring.submit(Operation::read_at(&reader, vec![5; 32], 0));
        assert_eq!(block_on(read.deadline(Duration::from_secs(3600))).result().unwrap(), 1);
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        assert_eq!(ring.stats().local.in_flight, 0);
    }
}

struct Silent;

impl Wake for Silent {
    fn wake(self: Arc<Self>) {}
}

/// Polls a future once.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::new(Silent));
    future.poll(&mut Context::from_waker(&waker))
}

/// Operations that the loop has, by the time of one more.
fn in_flight(ring: &Ring) -> u64 {
    block_on(ring.submit(Operation::nop())).result().unwrap();
    ring.stats().local.in_flight
}

#[test]
fn a_read_whose_future_is_dropped_is_cancelled() {
    for ring in rings() {
        let (reader, writer) = pipe();
        {
            let mut read = pin!(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
            assert!(poll_once(read.as_mut()).is_pending());
            assert_eq!(in_flight(&ring), 1);
        }
        // By the drop: a shutdown would cancel it too.
        let start = std::time::Instant::now();
        while in_flight(&ring) > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "it goes on");
        }
        let stats = ring.stats();
        assert_eq!((stats.submitted - stats.delivered, stats.reclaimed), (1, 1));
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        drop(writer);
        assert!(reader.into_owned().is_ok(), "the operation let go of it");
    }
}

#[test]
fn a_write_whose_future_is_dropped_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    for ring in rings() {
        let path = directory.path().join("file");
        let file = Descriptor::from(std::fs::File::create(&path).unwrap());
        {
            let mut write = pin!(ring.submit(Operation::write_at(&file, b"written".to_vec(), 0)));
            let _ = poll_once(write.as_mut());
        }
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"written");
    }
}

#[test]
fn a_panic_in_a_waker_loses_nothing() {
    struct Panicking;
    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("a waker's own fault");
        }
    }
    for ring in rings() {
        let mut nop = pin!(ring.submit(Operation::nop()));
        let waker = Waker::from(Arc::new(Panicking));
        assert!(nop.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // Others are served, and so is this one.
        assert_eq!(block_on(ring.submit(Operation::nop())).result().unwrap(), 0);
        assert_eq!(block_on(nop).result().unwrap(), 0);
    }
}

#[test]
fn a_file_that_nobody_takes_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("opened");
    std::fs::write(&path, "x").unwrap();
    for ring in rings() {
        for _ in 0..20 {
            let open = Operation::open(&path, OpenOptions::new().read(true));
            let mut open = pin!(ring.submit(open));
            let _ = poll_once(open.as_mut());
        }
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = numbers
            .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path));
        assert_eq!(open.count(), 0);
    }
}

#[test]
fn dropped_at_every_stage() {
    for ring in rings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 1 << 16]).unwrap();
        let file = Descriptor::from(std::fs::File::open(&path).unwrap());
        let mut kept = 0;
        for round in 0..3000_u64 {
            let read = Operation::read_at(&file, vec![0; 512], round % 100 * 512);
            let mut read = Box::pin(ring.submit(read));
            match round % 4 {
                // Before it is submitted.
                0 => {}
                // Submitted.
                1 => drop(poll_once(read.as_mut())),
                // Completed, perhaps, and not looked at.
                2 => {
                    let _ = poll_once(read.as_mut());
                    assert_eq!(block_on(ring.submit(Operation::nop())).result().unwrap(), 0);
                    kept += 1;
                }
                _ => {
                    assert_eq!(block_on(read).result().unwrap(), 512);
                    kept += 1;
                }
            }
        }
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        let stats = ring.stats();
        assert_eq!(stats.delivered, kept);
        assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
        assert_eq!((stats.local.in_flight, stats.local.stale_completions), (0, 0));
        assert!(file.into_owned().is_ok(), "no operation holds it");
    }
}

#[test]
fn a_shutdown_ends_the_reads_that_are_in_flight() {
    for ring in rings() {
        let (reader, _writer) = pipe();
        let read = |_| Box::pin(ring.submit(Operation::read_at(&reader, vec![5; 32], 0)));
        let mut reads: Vec<_> = (0..40).map(read).collect();
        for read in &mut reads {
            assert!(poll_once(read.as_mut()).is_pending());
        }
        block_on(ring.shutdown(Duration::from_secs(20))).unwrap();
        for read in reads {
            let done = block_on(read);
            assert_eq!(done.result().unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(done.into_buffer().unwrap().as_slice(), [5; 32]);
        }
        let stats = ring.stats();
        assert_eq!((stats.submitted, stats.delivered, stats.local.in_flight), (40, 40, 0));
        assert!(reader.into_owned().is_ok(), "no operation holds it");
    }
}

#[test]
fn a_shutdown_is_told_when_it_takes_too_long() {
    for ring in rings() {
        let (reader, mut writer) = pipe();
        // A pipe holds 64 KiB; a write to a full one waits until somebody reads.
        std::io::Write::write_all(&mut writer, &vec![0; 64 << 10]).unwrap();
        let writer = Descriptor::from(std::os::fd::OwnedFd::from(writer));
        let mut write = Box::pin(ring.submit(Operation::write_at(&writer, vec![1; 100], 0)));
        assert!(poll_once(write.as_mut()).is_pending());
        let leaked = block_on(ring.shutdown(Duration::from_millis(50))).unwrap_err();
        assert_eq!(leaked.operations, 1);
        // It is waited for all the same.
        drop(reader);
        let done = block_on(write);
        assert_eq!(done.result().unwrap_err().errno(), libc::EPIPE);
        assert_eq!(done.into_buffer().unwrap().as_slice(), [1; 100]);
    }
}

/// What nobody wants any more does not keep a ring that closes.
#[test]
fn a_write_that_is_given_up_while_the_ring_closes_is_cancelled() {
    for ring in rings() {
        let (_reader, mut writer) = pipe();
        std::io::Write::write_all(&mut writer, &vec![0; 64 << 10]).unwrap();
        let writer = Descriptor::from(std::os::fd::OwnedFd::from(writer));
        let write = ring.submit(Operation::write_at(&writer, vec![1; 100], 0)).cancel_on_drop();
        let mut write = Box::pin(write);
        assert!(poll_once(write.as_mut()).is_pending());
        let mut end = Box::pin(ring.shutdown(Duration::from_secs(20)));
        assert!(poll_once(end.as_mut()).is_pending());
        // It knows of the end and sleeps.
        std::thread::sleep(Duration::from_millis(100));
        let start = std::time::Instant::now();
        drop(write);
        block_on(end).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

#[test]
fn a_ring_that_nobody_holds_ends() {
    for builder in builders() {
        let (reader, writer) = pipe();
        let ring = builder.clone().build_ring().unwrap();
        let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
        assert!(poll_once(read.as_mut()).is_pending());
        drop(ring);
        // The future holds it.
        std::io::Write::write_all(&mut &writer, b"x").unwrap();
        assert_eq!(block_on(read).result().unwrap(), 1);
        // Now nobody does, and the driver closes what it has: the pipe's end too.
        let mut abandoned = {
            let ring = builder.clone().build_ring().unwrap();
            Box::pin(ring.submit(Operation::read_at(reader, vec![0; 8], 0)))
        };
        assert!(poll_once(abandoned.as_mut()).is_pending());
        drop(abandoned);
        // A write fails as soon as there is no reader.
        let start = std::time::Instant::now();
        while std::io::Write::write(&mut &writer, b"x").is_ok() {
            assert!(start.elapsed() < Duration::from_secs(10), "the read is still there");
            std::thread::yield_now();
        }
    }
}

/// A loop full of reads that wait had no room for what wakes the driver.
#[test]
fn a_full_ring_hears_its_orders() {
    for ring in rings() {
        let pipes: Vec<_> = (0..64).map(|_| pipe()).collect();
        let mut reads: Vec<_> = pipes
            .iter()
            .map(|(reader, _)| Box::pin(ring.submit(Operation::read_at(reader, vec![0; 8], 0))))
            .collect();
        for read in &mut reads {
            assert!(poll_once(read.as_mut()).is_pending());
        }
        // Each is cancelled, whether the loop has it or there was no room yet.
        drop(reads);
        let done = block_on(ring.submit(Operation::nop()));
        assert_eq!(done.result().unwrap(), 0);
    }
}

#[test]
fn errors_keep_what_they_were_about() {
    for ring in rings() {
        block_on(async {
            let missing = File::open(&ring, "/no/such/file", OpenOptions::new().read(true)).await;
            let error = missing.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().starts_with("open /no/such/file: "), "{error}");
            let file = File::from_std(&ring, std::fs::File::open("/dev/null").unwrap());
            let number = std::os::fd::AsRawFd::as_raw_fd(file.descriptor());
            let BufResult(result, buffer) = file.write_at(b"x".to_vec(), 3).await;
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadDescriptor);
            assert_eq!((error.descriptor(), error.offset()), (Some(number), Some(3)));
            let about = format!("write of descriptor {number} at offset 3: ");
            assert!(error.to_string().starts_with(&about), "{error}");
            assert_eq!(buffer, b"x");
            let BufResult(result, _) = file.read_exact_at(vec![0; 8], 5).await;
            let error = result.unwrap_err();
            assert_eq!(error.errno(), libc::ENODATA);
            assert_eq!((error.descriptor(), error.offset()), (Some(number), Some(5)));
            let error = file.set_len(7).await.unwrap_err();
            assert_eq!((error.descriptor(), error.offset()), (Some(number), None));
        });
    }
}

#[test]
fn a_pool_is_registered_by_the_driver() {
    for ring in rings() {
        block_on(async {
            let pool = ring.register_pool(2, 4096).await.unwrap();
            let file = std::fs::File::open("/proc/self/comm").unwrap();
            let file = Descriptor::from(file);
            let registered = ring.register_file(&file).await.unwrap();
            let read = Operation::read_at(registered, pool.take().unwrap(), 0);
            assert!(ring.submit(read).await.result().unwrap() > 0);
            ring.unregister_file(registered).await.unwrap();
            let stale = Operation::read_at(registered, vec![0; 8], 0);
            assert_eq!(ring.submit(stale).await.result().unwrap_err().errno(), libc::EBADF);
            ring.shutdown(Duration::from_secs(5)).await.unwrap();
            let error = ring.register_pool(1, 4096).await.unwrap_err();
            assert_eq!(error.errno(), libc::ESHUTDOWN);
        });
    }
}

#[test]
fn a_batch_larger_than_the_ring_is_made_all_the_same() {
    for ring in rings() {
        let file = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        let reads = (0..500).map(|at| Operation::read_at(&file, vec![1; 100], at));
        let mut reads = ring.submit_all(std::iter::once(Operation::nop()).chain(reads));
        // Some are dropped before they were ever polled.
        drop(reads.drain(1..101));
        let done = block_on(futures::future::join_all(reads));
        assert!(done[1..].iter().all(|done| done.result().unwrap() == 100));
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        let stats = ring.stats();
        assert_eq!((stats.submitted, stats.delivered, stats.reclaimed), (501, 401, 100));
        let refused = ring.submit_all([Operation::read_at(&file, vec![7; 3], 0)]);
        let refused = block_on(futures::future::join_all(refused)).pop().unwrap();
        assert_eq!(refused.result().unwrap_err().errno(), libc::ESHUTDOWN);
        assert_eq!(refused.into_buffer().unwrap().as_slice(), [7; 3]);
    }
}

/// A future that registers something and is dropped leaves nothing behind: neither a place in a table
/// nor memory that the ring keeps.
#[test]
fn a_dropped_registration_is_undone() {
    for ring in rings() {
        let file = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        block_on(async {
            let is_registered = ring.register_pool(1, 4096).await.unwrap().is_registered();
            for _ in 0..100 {
                drop(poll_immediate(Box::pin(ring.register_pool(1, 4096))).await);
                // A ring that a runtime drives may have given the name by then.
                if let Some(name) = poll_immediate(Box::pin(ring.register_file(&file))).await {
                    ring.unregister_file(name.unwrap()).await.unwrap();
                }
            }
            // Dropped when the answer is there.
            let mut late = Box::pin(ring.register_file(&file));
            let told = poll_immediate(&mut late).await;
            ring.submit(Operation::statx("/proc")).await.metadata().unwrap();
            drop(late);
            if let Some(name) = told {
                ring.unregister_file(name.unwrap()).await.unwrap();
            }
            let pool = ring.register_pool(1, 4096).await.unwrap();
            assert_eq!(pool.is_registered(), is_registered);
            // The whole table is free again.
            let mut taken = Vec::new();
            while let Ok(name) = ring.register_file(&file).await {
                taken.push(name);
            }
            assert_eq!(taken.len(), 16);
        });
    }
}
