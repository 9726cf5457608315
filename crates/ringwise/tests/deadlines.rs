//! Deadlines on operations of a ring, on every kind of ring and on a simulated clock.

use std::{
    future::Future,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use futures::{executor::block_on, future::join_all};
use ringwise::{
    BackendChoice, Builder, Descriptor, ErrorKind, Local, Opcode, Operation, Ring,
    sim::{Fault, Simulation, When},
};

/// A ring of every kind: with a thread of its own, and driven by a runtime.
fn rings() -> Vec<Ring> {
    let builder = || Local::builder().entries(8);
    let threads = [BackendChoice::Uring, BackendChoice::Classic]
        .map(|choice| builder().backend(choice).driver_thread(true).build_ring());
    let rings = threads.into_iter().chain(by_runtime(builder()));
    rings
        .filter_map(|ring| match ring {
            Ok(ring) => Some(ring),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
                println!("skipped: {error}");
                None
            }
        })
        .collect()
}

#[cfg(feature = "tokio")]
fn by_runtime(builder: Builder) -> Option<Result<Ring, ringwise::SetupError>> {
    use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
    static RUNTIME: std::sync::OnceLock<Runtime> = std::sync::OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        RuntimeBuilder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    });
    let _context = runtime.enter();
    Some(builder.build_ring())
}

#[cfg(not(feature = "tokio"))]
fn by_runtime(_: Builder) -> Option<Result<Ring, ringwise::SetupError>> {
    None
}

fn pipe() -> (Descriptor, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Descriptor::from(OwnedFd::from(reader)), writer)
}

const SOON: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(3600);

#[test]
fn a_read_past_its_deadline_times_out_with_its_buffer() {
    for ring in rings() {
        let (reader, _writer) = pipe();
        let start = Instant::now();
        let read = ring.submit(Operation::read_at(&reader, vec![7; 8], 0)).deadline(SOON);
        let done = block_on(read).unwrap();
        assert!(start.elapsed() >= SOON);
        assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(done.into_buffer().unwrap().as_slice(), [7; 8]);
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        assert!(reader.into_owned().is_ok(), "the operation let go of it");
    }
}

#[test]
fn what_ends_in_time_knows_no_deadline() {
    for ring in rings() {
        let file = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        for _ in 0..200 {
            let read = ring.submit(Operation::read_at(&file, vec![1; 8], 0)).deadline(LATE);
            assert_eq!(block_on(read).unwrap().result().unwrap(), 8);
        }
        // The timeout by which deadlines are kept does not keep a ring from ending.
        let start = Instant::now();
        block_on(ring.shutdown(Duration::from_secs(60))).unwrap();
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

/// Each is kept, in whatever order they were set, and others are left alone.
#[test]
fn deadlines_come_in_their_own_order() {
    for ring in rings() {
        let (reader, writer) = pipe();
        let read = |time| {
            let read = ring.submit(Operation::read_at(&reader, vec![0; 1], 0)).deadline(time);
            async move { (read.await.unwrap().result().map_err(|e| e.kind()), Instant::now()) }
        };
        let times = [LATE, SOON * 4, SOON, SOON * 3, SOON * 2];
        let start = Instant::now();
        let (mut ends, ()) = block_on(futures::future::join(join_all(times.map(read)), async {
            let after = ring.submit(Operation::timeout(SOON * 6)).await;
            after.result().unwrap();
            std::io::Write::write_all(&mut &writer, b"x").unwrap();
        }));
        assert_eq!(ends.remove(0).0, Ok(1));
        for ((result, end), time) in ends.iter().zip(&times[1..]) {
            assert_eq!(*result, Err(ErrorKind::TimedOut));
            assert!(end.duration_since(start) >= *time);
        }
        let order: Vec<Instant> = [1, 3, 2, 0].into_iter().map(|at: usize| ends[at].1).collect();
        assert!(order.is_sorted());
    }
}

/// A pipe that holds no more.
fn full_pipe() -> (std::io::PipeReader, Descriptor) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, &vec![0; 64 << 10]).unwrap();
    (reader, Descriptor::from(OwnedFd::from(writer)))
}

#[test]
fn a_write_past_its_deadline_goes_on_and_is_told() {
    for ring in rings() {
        let (mut reader, writer) = full_pipe();
        let write = ring.submit(Operation::write_at(&writer, vec![1; 100], 0)).deadline(SOON);
        let overdue = block_on(write).unwrap_err();
        assert!(overdue.to_string().contains("goes on"), "{overdue}");
        let mut drained = vec![0; 64 << 10];
        std::io::Read::read_exact(&mut reader, &mut drained).unwrap();
        let done = block_on(overdue.into_pending());
        assert_eq!(done.result().unwrap(), 100);
        assert_eq!(done.into_buffer().unwrap().as_slice(), [1; 100]);
        // Asked to be cancelled when dropped, it is cancelled at its deadline too.
        let (_reader, writer) = full_pipe();
        let write = ring.submit(Operation::write_at(&writer, vec![1; 100], 0)).cancel_on_drop();
        let done = block_on(write.deadline(SOON)).unwrap();
        assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
    }
}

/// A ring full of reads that wait had no room for a timeout.
#[test]
fn a_full_ring_keeps_deadlines() {
    for ring in rings() {
        let (reader, writer) = pipe();
        let read = || Operation::read_at(&reader, vec![0; 8], 0);
        let mut full = ring.batch().extend((0..64).map(|_| read())).submit();
        let done = block_on(ring.submit(read()).deadline(SOON)).unwrap();
        assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
        // What never began did nothing, a write too.
        let file = Descriptor::from(std::fs::File::open("/dev/null").unwrap());
        let write = ring.submit(Operation::write_at(&file, vec![1; 4], 0)).deadline(SOON);
        let done = block_on(write).unwrap();
        assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
        // Futures that were submitted before take a deadline too.
        let timed = full.drain(..32).map(|read| read.deadline(SOON)).collect::<Vec<_>>();
        for done in block_on(join_all(timed)) {
            assert_eq!(done.unwrap().result().unwrap_err().kind(), ErrorKind::TimedOut);
        }
        drop((full, writer));
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        let stats = ring.stats();
        assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
    }
}

#[test]
fn a_deadline_that_is_dropped_is_a_future_that_is_dropped() {
    for ring in rings() {
        let (reader, _writer) = pipe();
        for _ in 0..50 {
            let mut read =
                Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)).deadline(LATE));
            let waker = std::task::Waker::noop();
            let polled = Future::poll(read.as_mut(), &mut std::task::Context::from_waker(waker));
            assert!(polled.is_pending());
        }
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        assert_eq!(ring.stats().reclaimed, 50);
        let read = ring.submit(Operation::read_at(&reader, vec![0; 8], 0)).deadline(SOON);
        let refused = block_on(read).unwrap().result().unwrap_err();
        assert_eq!(refused.errno(), libc::ESHUTDOWN);
    }
}

/// An hour of the simulation's time passes when its clock says so.
#[test]
fn a_simulated_clock_decides() {
    let simulation = Simulation::builder(1)
        .fault(Fault::Delay, When::always().of(Opcode::Read))
        .latency(Duration::from_secs(7200))
        .build();
    simulation.write("/file", [3; 8]).unwrap();
    let ring = Local::builder().simulation(&simulation).build_ring().unwrap();
    let start = Instant::now();
    let file = simulation.open("/file", ringwise::OpenOptions::new().read(true)).unwrap();
    let mover = simulation.clone();
    let read = |time| ring.submit(Operation::read_at(&file, vec![0; 8], 0)).deadline(time);
    let (reads, ()) = block_on(futures::future::join(
        join_all([Duration::from_nanos(1), LATE * 24].map(read)),
        async move {
            for _ in 0..4 {
                mover.advance(LATE);
                ring.submit(Operation::nop()).await.result().unwrap();
            }
        },
    ));
    let results: Vec<_> = reads.into_iter().map(|read| read.unwrap().result()).collect();
    assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(*results[1].as_ref().unwrap(), 8);
    assert!(start.elapsed() < Duration::from_secs(60));
}
