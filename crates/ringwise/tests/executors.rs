//! One program on every executor: a future of a ring needs none in particular, and a ring outlives
//! the one that it was built in. And a child of fork(2), which has no driver.

#[path = "shared/rings.rs"]
mod rings;

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    channel::mpsc,
    executor::{LocalPool, ThreadPool},
    future::{join_all, poll_immediate},
    task::SpawnExt,
};
use rings::{in_child, may_have_threads, read_write, skip};
use ringwise::{
    BackendChoice, BufResult, Builder, Descriptor, Effect, Local, Operation, Ring, fs, fs::File,
    sim::Simulation,
};
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

const TASKS: u64 = 16;
const SECOND: Duration = Duration::from_secs(1);

/// Rings as they come where they are built: with a thread of their own, or driven by the runtime
/// around. With each whether its files are simulated.
fn builders() -> Vec<(Builder, bool)> {
    let real = [
        Local::builder().backend(BackendChoice::Uring).driver_thread(true),
        Local::builder().backend(BackendChoice::Uring).driver_thread(false),
        Local::builder().backend(BackendChoice::Classic).driver_thread(true),
        Local::builder().backend(BackendChoice::Classic).driver_thread(false),
    ];
    let real = real.into_iter().filter(|builder| match builder.clone().build() {
        Ok(_) => true,
        Err(error) => {
            skip(&error.to_string());
            false
        }
    });
    let simulated = Local::builder().simulation(&Simulation::new(1));
    let all = real.map(|builder| (builder, false)).chain([(simulated, true)]);
    all.map(|(builder, is_simulated)| (builder.entries(8), is_simulated)).collect()
}

/// What each task does: a region of its own in a shared file, written, read and synced.
async fn task(file: File, number: u64) -> u64 {
    let mut sum = 0;
    for round in 0..10_u64 {
        let offset = (number * 10 + round) * 100;
        let BufResult(written, bytes) = file.write_all_at(vec![number as u8; 100], offset).await;
        written.unwrap();
        let BufResult(read, back) = file.read_exact_at(vec![0; 100], offset).await;
        read.unwrap();
        assert_eq!(back, bytes);
        sum += back.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    file.sync_data().await.unwrap();
    sum
}

/// The program: tasks on whatever `run` makes of them, then its end.
async fn program<R, O>(builder: Builder, path: PathBuf, run: R)
where
    R: FnOnce(Vec<BoxedTask>) -> O,
    O: Future<Output = Vec<u64>>,
{
    let ring = builder.build_ring().unwrap();
    let file = File::open(&ring, &path, read_write().create(true)).await.unwrap();
    let tasks = (0..TASKS).map(|number| Box::pin(task(file.clone(), number)) as BoxedTask);
    let sums = run(tasks.collect()).await;
    assert_eq!(sums, (0..TASKS).map(|number| number * 1000).collect::<Vec<_>>());
    let content = fs::read(&ring, &path).await.unwrap();
    assert!(content.chunks(1000).zip(0_u8..).all(|(part, number)| part == [number; 1000]));
    drop(file);
    ring.shutdown(10 * SECOND).await.unwrap();
    let stats = ring.stats();
    assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
}

type BoxedTask = std::pin::Pin<Box<dyn Future<Output = u64> + Send>>;

/// Runs the program on each kind of ring; `start` makes an executor and runs one.
fn on_every_ring(start: impl Fn(Builder, PathBuf)) {
    for (builder, is_simulated) in builders() {
        let directory = tempfile::tempdir().unwrap();
        let path = if is_simulated { Path::new("/") } else { directory.path() }.join("file");
        start(builder, path);
    }
}

fn tokio_runtimes() -> [Runtime; 2] {
    [
        RuntimeBuilder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        RuntimeBuilder::new_current_thread().enable_all().build().unwrap(),
    ]
}

async fn by_tokio(tasks: Vec<BoxedTask>) -> Vec<u64> {
    let spawned: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    join_all(spawned).await.into_iter().map(Result::unwrap).collect()
}

#[test]
fn on_tokio_with_threads_and_without() {
    on_every_ring(|builder, path| {
        for runtime in tokio_runtimes() {
            runtime.block_on(program(builder.clone(), path.clone(), by_tokio));
        }
    });
}

#[test]
fn on_the_pools_of_futures() {
    on_every_ring(|builder, path| {
        let pool = ThreadPool::builder().pool_size(2).create().unwrap();
        let run = |tasks: Vec<BoxedTask>| {
            let spawned: Vec<_> =
                tasks.into_iter().map(|task| pool.spawn_with_handle(task).unwrap()).collect();
            join_all(spawned)
        };
        futures::executor::block_on(program(builder.clone(), path.clone(), run));
        let mut pool = LocalPool::new();
        let spawner = pool.spawner();
        pool.run_until(program(builder, path, |tasks| {
            let spawned: Vec<_> =
                tasks.into_iter().map(|task| spawner.spawn_with_handle(task).unwrap()).collect();
            join_all(spawned)
        }));
    });
}

#[test]
fn on_smol() {
    on_every_ring(|builder, path| {
        let run = |tasks: Vec<BoxedTask>| join_all(tasks.into_iter().map(smol::spawn));
        smol::block_on(program(builder.clone(), path.clone(), run));
        let executor = smol::LocalExecutor::new();
        smol::block_on(executor.run(program(builder, path, |tasks: Vec<BoxedTask>| {
            join_all(tasks.into_iter().map(|task| executor.spawn(task)).collect::<Vec<_>>())
        })));
    });
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn on_this_thread<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn on_plain_threads() {
    on_every_ring(|builder, path| {
        on_this_thread(program(builder, path, |tasks: Vec<BoxedTask>| {
            let threads: Vec<_> = tasks
                .into_iter()
                .map(|task| std::thread::spawn(move || on_this_thread(task)))
                .collect();
            async { threads.into_iter().map(|thread| thread.join().unwrap()).collect() }
        }));
    });
}

fn zeros(ring: &Ring) -> File {
    File::from_std(ring, std::fs::File::open("/dev/zero").unwrap())
}

#[test]
fn a_ring_of_one_runtime_is_used_from_others() {
    for (builder, _) in builders() {
        for home in tokio_runtimes() {
            let ring = home.block_on(async { builder.clone().build_ring().unwrap() });
            let use_it = async |ring: Ring| {
                for _ in 0..50 {
                    zeros(&ring).read_exact_at(vec![1; 100], 0).await.0.unwrap();
                }
            };
            // A runtime without threads moves only while somebody is in it.
            let is_driven_without_threads = cfg!(feature = "tokio")
                && home.metrics().num_workers() == 1
                && !has_thread(&builder);
            if !is_driven_without_threads {
                for other in tokio_runtimes() {
                    other.block_on(use_it(ring.clone()));
                }
                smol::block_on(use_it(ring.clone()));
                on_this_thread(use_it(ring.clone()));
            }
            home.block_on(use_it(ring.clone()));
            home.block_on(ring.shutdown(10 * SECOND)).unwrap();
        }
    }
}

/// Whether a ring built so has a thread of its own wherever it is built.
fn has_thread(builder: &Builder) -> bool {
    let runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
    let ring = runtime.block_on(async { builder.clone().build_ring().unwrap() });
    // Only a thread of its own serves it while nobody is in the runtime.
    let mut nop = pin!(ring.submit(Operation::nop()));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    assert!(nop.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let start = Instant::now();
    while start.elapsed() < SECOND {
        if nop.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    false
}

/// Nobody is inside the runtime that the ring was built in, and its users are elsewhere.
#[test]
fn a_ring_of_a_runtime_of_one_thread_serves_others_at_once() {
    let runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let ring = runtime.block_on(async { Local::builder().backend(choice).build_ring() });
        let Ok(ring) = ring else {
            skip("no ring");
            continue;
        };
        let (told, tells) = std::sync::mpsc::channel();
        let user = ring.clone();
        std::thread::spawn(move || {
            let read = user.submit(Operation::statx("/proc"));
            let _ = told.send(on_this_thread(read).metadata().is_ok());
        });
        assert!(tells.recv_timeout(10 * SECOND).expect("it hangs"));
        assert!(on_this_thread(ring.submit(Operation::nop())).result().is_ok());
        on_this_thread(ring.shutdown(10 * SECOND)).unwrap();
    }
}

/// Tokio panics where a runtime has no I/O; nobody is to read of that.
#[cfg(feature = "tokio")]
#[test]
fn a_runtime_without_io_is_told_from_others_in_silence() {
    const MARK: &str = "RINGWISE_TEST_WITHOUT_IO";
    if std::env::var_os(MARK).is_some() {
        let runtime = RuntimeBuilder::new_multi_thread().worker_threads(1).build().unwrap();
        let ring = runtime.block_on(async { Ring::new().unwrap() });
        assert!(on_this_thread(ring.submit(Operation::nop())).result().is_ok());
        assert!(std::panic::catch_unwind(|| panic!("others are told")).is_err());
        return;
    }
    let name = "a_runtime_without_io_is_told_from_others_in_silence";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(MARK, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("panicked at").count(), 1, "{told}");
    assert!(told.contains("others are told"), "{told}");
}

/// Keeps the name of the thread that woke it.
#[cfg(feature = "tokio")]
struct WokenBy(Thread, std::sync::Mutex<Option<String>>);

#[cfg(feature = "tokio")]
impl Wake for WokenBy {
    fn wake(self: Arc<Self>) {
        let name = std::thread::current().name().map(str::to_owned);
        *self.1.lock().unwrap() = name;
        self.0.unpark();
    }
}

/// On classic calls, in a runtime: that is a wake-up less than by way of the driver's task.
#[cfg(feature = "tokio")]
#[test]
fn a_threads_result_is_handed_out_by_that_thread() {
    for runtime in tokio_runtimes() {
        let ring = {
            let _context = runtime.enter();
            let builder = Local::builder().backend(BackendChoice::Classic);
            builder.driver_thread(false).build_ring().unwrap()
        };
        // A runtime of one thread drives what it runs only while somebody waits for it.
        let by_thread = runtime.block_on(async {
            let looks = tokio::task::spawn_blocking(move || {
                // Not each time: somebody else may use the loop just then.
                (0..100).any(|_| name_of_waker(&ring).as_deref() == Some("ringwise-worker"))
            });
            looks.await.unwrap()
        });
        assert!(by_thread);
    }
}

/// Who wakes the task that waits for a call which a thread makes.
#[cfg(feature = "tokio")]
fn name_of_waker(ring: &Ring) -> Option<String> {
    let woken_by = Arc::new(WokenBy(std::thread::current(), std::sync::Mutex::default()));
    let waker = Waker::from(woken_by.clone());
    let mut statx = Box::pin(ring.submit(Operation::statx("/proc")));
    let start = Instant::now();
    while statx.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        assert!(start.elapsed() < 10 * SECOND, "it hangs");
        std::thread::park_timeout(SECOND / 50);
    }
    woken_by.1.lock().unwrap().take()
}

/// What the kernel and a ring share is no child's: it would read the other process's queues as its own.
#[test]
fn a_rings_memory_is_not_for_children() {
    in_child("a_rings_memory_is_not_for_children", || {
        let built = Local::builder().backend(BackendChoice::Uring).build();
        let Ok(_local) = built else { return skip(&built.unwrap_err().to_string()) };
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_ring = false;
        let mut found = 0;
        for line in maps.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags: ") {
                // "dc": do not copy the area on fork (proc_pid_smaps(5)).
                assert!(!is_ring || flags.split(' ').any(|flag| flag == "dc"), "{flags}");
                found += usize::from(is_ring);
            } else if line.split(' ').next().is_some_and(|word| word.contains('-')) {
                is_ring = line.contains("io_uring");
            }
        }
        assert!(found > 0, "{maps}");
    });
}

/// What needs a worker of the kernel is cancelled where it may start none (io_uring/io-wq.c,
/// io_wq_enqueue): it was handed over again without end, and of several at once all but the first failed.
#[test]
fn what_the_kernel_has_no_thread_for_ends() {
    in_child("what_the_kernel_has_no_thread_for_ends", || {
        let Some((file, builder)) = file_and_ring() else { return };
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ring = builder.build_ring().unwrap();
            if may_have_threads(1) {
                writes_of_which_none_has_a_worker(&ring, file).await;
            }
        });
    });
}

/// The same of a driver with a thread of its own, which is the second.
#[test]
fn what_the_kernel_has_no_thread_for_ends_with_a_driver_thread() {
    in_child("what_the_kernel_has_no_thread_for_ends_with_a_driver_thread", || {
        let Some((file, builder)) = file_and_ring() else { return };
        if may_have_threads(2) {
            let ring = builder.driver_thread(true).build_ring().unwrap();
            futures::executor::block_on(writes_of_which_none_has_a_worker(&ring, file));
        }
    });
}

/// A file, which was not opened by a ring and so has left no worker behind, and a ring to be; nothing,
/// and said so, where there is none.
fn file_and_ring() -> Option<(std::fs::File, Builder)> {
    let builder = Local::builder().backend(BackendChoice::Uring);
    builder.clone().build().map_err(|error| skip(&error.to_string())).ok()?;
    Some((tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), builder))
}

async fn writes_of_which_none_has_a_worker(ring: &Ring, file: std::fs::File) {
    let file = File::from_std(ring, file);
    let writes = (0..8).map(|at| file.write_all_at(vec![at; 512], u64::from(at) * 512));
    let written = join_all(writes).await;
    written.into_iter().for_each(|BufResult(written, _)| written.unwrap());
    let chain = |at: u8| {
        let chain = file.chain().write_at(vec![at; 512], u64::from(at) * 512).sync_data();
        chain.run()
    };
    let outcomes = join_all((8..12).map(chain)).await;
    assert!(outcomes.into_iter().flatten().all(|outcome| outcome.result.is_ok()));
    assert_eq!(file.metadata().await.unwrap().len(), 12 * 512);
    let expected: Vec<u8> = (0..12).flat_map(|at| [at; 512]).collect();
    assert!(file.read_to_end().await.unwrap() == expected);
}

/// A task that finds all it reads in the page cache never waits: others on its thread get on all the
/// same.
#[test]
fn reads_that_never_wait_let_other_tasks_run() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [7; 4096]).unwrap();
    let reads = async |ring: Ring| {
        let file = File::open(&ring, &path, read_write()).await.unwrap();
        let is_over = std::cell::Cell::new(false);
        let reads = async {
            for _ in 0..100_000 {
                file.read_exact_at(vec![0; 4096], 0).await.0.unwrap();
                if is_over.get() {
                    return true;
                }
            }
            false
        };
        let other = async { is_over.set(true) };
        assert!(futures::future::join(reads, other).await.0, "in no turn");
    };
    for (builder, is_simulated) in builders() {
        if is_simulated {
            continue;
        }
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { reads(builder.clone().build_ring().unwrap()).await });
        futures::executor::block_on(reads(builder.build_ring().unwrap()));
    }
}

/// Reads of pipes and timeouts in flight, some awaited by tasks of the runtime that dies and some
/// by a thread that does not.
#[test]
fn a_runtime_dies_with_operations_in_flight() {
    for (builder, is_simulated) in builders() {
        // Room for all of them: a ring full of reads that wait has none for another operation.
        let builder = builder.entries(64);
        for runtime in tokio_runtimes() {
            let ring = runtime.block_on(async { builder.clone().build_ring().unwrap() });
            let pipes: Vec<_> = (0..20).map(|_| std::io::pipe().unwrap()).collect();
            let (readers, writers): (Vec<_>, Vec<_>) = pipes
                .into_iter()
                .map(|(reader, writer)| {
                    (Descriptor::from(std::os::fd::OwnedFd::from(reader)), writer)
                })
                .unzip();
            let read = |reader: &Descriptor| {
                Box::pin(ring.submit(Operation::read_at(reader, vec![0; 8], 0)))
            };
            for reader in &readers[..10] {
                runtime.spawn(read(reader));
            }
            let mut kept: Vec<_> = readers[10..].iter().map(read).collect();
            let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
            for read in &mut kept {
                assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            runtime.block_on(async {
                tokio::task::yield_now().await;
                if !is_simulated {
                    zeros(&ring).read_exact_at(vec![1; 100], 0).await.0.unwrap();
                }
            });
            drop(runtime);
            for writer in &writers {
                std::io::Write::write_all(&mut &*writer, b"after").unwrap();
            }
            for done in on_this_thread(join_all(kept)) {
                assert_eq!(done.result().unwrap(), 5);
            }
            on_this_thread(ring.shutdown(10 * SECOND)).unwrap();
            let stats = ring.stats();
            assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
            assert_eq!(stats.local.in_flight, 0);
            assert_eq!(stats.local.submitted, stats.local.completed);
        }
    }
}

/// Tells by number that it was woken.
struct Told(mpsc::UnboundedSender<usize>, usize);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        let _ = self.0.unbounded_send(self.1);
    }
}

/// Results for more tasks than are woken in a turn, all there at once. None of them takes its own
/// while the others wait, so nobody passes the turn on: the driver has to come back for each.
#[test]
fn everybody_is_told_though_nobody_takes_a_result() {
    for (builder, _) in builders() {
        let builder = builder.entries(64);
        for home in tokio_runtimes() {
            let ring = home.block_on(async { builder.clone().build_ring().unwrap() });
            let (tell, mut told) = mpsc::unbounded();
            home.block_on(async {
                let mut reads = Vec::new();
                let mut writers = Vec::new();
                for number in 0..20 {
                    let (reader, writer) = std::io::pipe().unwrap();
                    let reader = Descriptor::from(std::os::fd::OwnedFd::from(reader));
                    let mut read = Box::pin(ring.submit(Operation::read_at(reader, vec![0; 8], 0)));
                    let waker = Waker::from(Arc::new(Told(tell.clone(), number)));
                    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                    reads.push(read);
                    writers.push(writer);
                }
                tokio::task::yield_now().await;
                for writer in &mut writers {
                    std::io::Write::write_all(writer, b"after").unwrap();
                }
                let mut numbers = Vec::new();
                for _ in &reads {
                    let number = tokio::time::timeout(10 * SECOND, told.next()).await;
                    numbers.push(number.expect("everybody is told").unwrap());
                }
                numbers.sort_unstable();
                assert_eq!(numbers, Vec::from_iter(0..20), "each once");
                for read in reads {
                    assert_eq!(read.await.result().unwrap(), 5);
                }
                ring.shutdown(10 * SECOND).await.unwrap();
            });
        }
    }
}

/// The kernel ties an operation to the thread that handed it over, and cancelled what still waited
/// when that thread ended: a future that somebody else went on with failed with `ECANCELED`.
#[test]
fn a_thread_that_handed_an_operation_over_ends() {
    for (builder, _) in builders() {
        let runtime = tokio_runtimes().into_iter().next().unwrap();
        let ring = runtime.block_on(async { builder.build_ring().unwrap() });
        for _ in 0..20 {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let reader = Descriptor::from(std::os::fd::OwnedFd::from(reader));
            let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
            let read = std::thread::spawn(move || {
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                read
            });
            let read = read.join().unwrap();
            std::io::Write::write_all(&mut writer, b"after").unwrap();
            let done = on_this_thread(read);
            assert_eq!(done.result().unwrap(), 5);
            assert_eq!(&done.into_buffer().unwrap().as_slice()[..5], b"after");
        }
        on_this_thread(ring.shutdown(10 * SECOND)).unwrap();
    }
}

/// A receive needs none of the kernel's workers: it begins anew however often its thread ends, where
/// what needs one would be given up.
#[test]
fn a_receive_begins_anew_however_often_its_thread_ends() {
    let Some((_, builder)) = file_and_ring() else { return };
    let mut runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
    let ring = runtime.block_on(async { builder.driver_thread(false).build_ring().unwrap() });
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let beside = ours.try_clone().unwrap();
    let ours = Descriptor::from(std::os::fd::OwnedFd::from(ours));
    let mut receive = Box::pin(ring.submit(Operation::recv(&ours, vec![0; 8])));
    for _ in 0..20 {
        // The runtime's only thread, for as long as it takes to hand the receive over anew.
        let passed_on = std::thread::spawn(move || {
            let waits = async { tokio::time::timeout(SECOND / 500, &mut receive).await };
            runtime.block_on(waits).unwrap_err();
            (runtime, receive)
        });
        (runtime, receive) = passed_on.join().unwrap();
        // It hears of bytes when it is lost already, and somebody else has them then.
        std::io::Write::write_all(&mut theirs, b"x").unwrap();
        std::io::Read::read_exact(&mut &beside, &mut [0]).unwrap();
    }
    std::io::Write::write_all(&mut theirs, b"after").unwrap();
    let done = runtime.block_on(receive);
    assert_eq!(done.result().unwrap(), 5);
    assert_eq!(&done.into_buffer().unwrap().as_slice()[..5], b"after");
    runtime.block_on(ring.shutdown(10 * SECOND)).unwrap();
}

/// What a child of fork(2) does with its parent's ring; each an error at once.
fn misuse(ring: Ring, file: File, futures: Vec<Box<dyn std::any::Any>>) {
    drop(futures);
    on_this_thread(async {
        let done = ring.submit(Operation::read_at(file.descriptor(), vec![7; 100], 0)).await;
        let error = done.result().unwrap_err();
        assert_eq!(error.errno(), libc::EOWNERDEAD);
        assert!(error.to_string().contains("forked"), "{error}");
        assert_eq!(done.into_buffer().unwrap().as_slice(), [7; 100]);
        // In the cache, where no ring would be needed.
        let BufResult(read, back) = file.read_at(vec![7; 100], 0).await;
        let error = read.unwrap_err();
        assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
        assert_eq!(back, [7; 100]);
        assert_eq!(file.sync_data().await.unwrap_err().errno(), libc::EOWNERDEAD);
        let mut steps = file.chain().write_at(vec![1; 10], 0).sync_data().run().await.into_iter();
        let (written, sync) = (steps.next().unwrap(), steps.next().unwrap());
        assert_eq!(written.result.as_ref().unwrap_err().errno(), libc::EOWNERDEAD);
        assert_eq!(written.into_buffer::<Vec<u8>>(), [1; 10]);
        assert!(sync.result.is_err());
        let BufResult(written, back) = file.write_all_at(vec![1; 10], 0).await;
        assert_eq!(written.unwrap_err().errno(), libc::EOWNERDEAD);
        assert_eq!(back, [1; 10]);
        let pool = ring.register_pool(1, 4096).await;
        assert_eq!(pool.unwrap_err().errno(), libc::EOWNERDEAD);
        assert_eq!(ring.stats().submitted, 0);
        ring.shutdown(SECOND).await.unwrap();
        let own = Ring::new().unwrap();
        own.submit(Operation::nop()).await.result().unwrap();
        own.shutdown(SECOND).await.unwrap();
    });
    drop((file, ring));
}

/// Runs `body` in a child of fork(2), and fails when it does or takes ten seconds.
fn in_fork(body: impl FnOnce()) {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    // SAFETY: the child runs ordinary code, although its parent has threads: glibc's allocator is
    // made ready for that, and what else is locked for ever is what this is to find.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child without running what belongs to its parent.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let child = Pid::from_raw(child).unwrap();
    let start = Instant::now();
    loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            assert_eq!(status.exit_status(), Some(0), "{status:?}");
            return;
        }
        if start.elapsed() > 10 * SECOND {
            kill_process(child, Signal::KILL).unwrap();
            panic!("a child of fork hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The locks of a busy ring are held by somebody at most moments.
#[test]
fn a_forked_child_is_told() {
    in_child("a_forked_child_is_told", || {
        for (builder, is_simulated) in builders() {
            if is_simulated {
                continue;
            }
            let runtime = tokio_runtimes().into_iter().next().unwrap();
            let ring = runtime.block_on(async { builder.build_ring().unwrap() });
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            std::fs::write(&path, [3; 100]).unwrap();
            let file = on_this_thread(File::open(&ring, &path, read_write())).unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let reader = Descriptor::from(std::os::fd::OwnedFd::from(reader));
            let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let busy: Vec<_> = (0..2)
                .map(|_| {
                    let (ring, stop) = (ring.clone(), stop.clone());
                    std::thread::spawn(move || {
                        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                            on_this_thread(ring.submit(Operation::nop())).result().unwrap();
                        }
                    })
                })
                .collect();
            for _ in 0..20 {
                let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                let fresh = ring.submit(Operation::nop());
                in_fork(|| {
                    misuse(ring.clone(), file.clone(), vec![Box::new(read), Box::new(fresh)])
                });
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            busy.into_iter().for_each(|thread| thread.join().unwrap());
            // The parent's ring is as it was.
            drop(writer);
            drop(file);
            on_this_thread(ring.shutdown(10 * SECOND)).unwrap();
            let stats = ring.stats();
            assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
        }
    });
}

/// A child that ends its copy of the runtime leaves its parent's ring alone, and does not run one.
#[test]
fn a_forked_child_may_drop_the_runtime() {
    in_child("a_forked_child_may_drop_the_runtime", || {
        for (builder, is_simulated) in builders() {
            if is_simulated {
                continue;
            }
            let runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
            let ring = runtime.block_on(async { builder.build_ring().unwrap() });
            let (reader, writer) = std::io::pipe().unwrap();
            let reader = Descriptor::from(std::os::fd::OwnedFd::from(reader));
            let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
            let poll = |read: &mut std::pin::Pin<Box<ringwise::Pending>>| {
                read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
            };
            runtime.block_on(async {
                assert!(poll(&mut read));
                tokio::task::yield_now().await;
            });
            let mut runtime = Some(runtime);
            in_fork(|| {
                assert!(poll(&mut read), "it is the other process's");
                drop(runtime.take());
                std::thread::sleep(Duration::from_millis(50));
            });
            // The parent's ring is still watched.
            std::io::Write::write_all(&mut &writer, b"news").unwrap();
            let done = runtime.as_ref().unwrap().block_on(async {
                tokio::time::timeout(10 * SECOND, read).await.expect("still watched")
            });
            assert_eq!(done.result().unwrap(), 4);
        }
    });
}

/// A ring that cannot hand anything over goes on with what it has: those whose results had come
/// waited as long as the error lasted.
#[test]
fn results_are_told_while_nothing_can_be_handed_over() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::{AsRawFd, OwnedFd};
    in_child("results_are_told_while_nothing_can_be_handed_over", || {
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ring = Local::builder().backend(BackendChoice::Classic).build_ring().unwrap();
            let (reader, mut writer) = std::io::pipe().unwrap();
            let reader = Descriptor::from(OwnedFd::from(reader));
            let mut read = Box::pin(ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
            assert!(poll_immediate(&mut read).await.is_none());
            // None is left for the timer by which a runtime is told of a timeout.
            let lowest = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
            let before = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(lowest as u64), ..before }).unwrap();
            let mut timeout = Box::pin(ring.submit(Operation::timeout(60 * SECOND)));
            assert!(poll_immediate(&mut timeout).await.is_none());
            std::io::Write::write_all(&mut writer, b"now").unwrap();
            let done = tokio::time::timeout(10 * SECOND, read).await.expect("nobody told it");
            assert_eq!(done.result().unwrap(), 3);
            setrlimit(Resource::Nofile, before).unwrap();
            drop(timeout);
            ring.shutdown(10 * SECOND).await.unwrap();
        });
    });
}

/// It was polled by nobody, and panicked or hung at what it cannot poll for.
#[test]
fn a_ring_in_a_runtime_does_not_poll() {
    let polled = Local::builder().backend(BackendChoice::Uring).iopoll(true);
    if let Err(error) = polled.clone().build() {
        return skip(&error.to_string());
    }
    for has_thread in [false, true] {
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build().unwrap();
        let ring = runtime.block_on(async {
            let ring = polled.clone().driver_thread(has_thread).build_ring().unwrap();
            let operations = async {
                ring.submit(Operation::timeout(SECOND / 100)).await.result().unwrap();
                ring.submit(Operation::statx("/proc")).await.metadata().unwrap();
                ring.submit(Operation::nop()).await.result().unwrap();
            };
            tokio::time::timeout(10 * SECOND, operations).await.expect("it hangs");
            ring.shutdown(10 * SECOND).await.unwrap();
            ring
        });
        let setup = ring.setup();
        // Without the feature no runtime drives it.
        let has_thread = has_thread || !cfg!(feature = "tokio");
        assert!(setup.asked().has("IOPOLL"));
        assert_eq!(setup.granted().has("IOPOLL"), has_thread);
        match setup.iopoll() {
            Effect::Unknown => assert!(has_thread),
            Effect::Ineffective(reason) => {
                assert!(!has_thread && reason.contains("a runtime"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
