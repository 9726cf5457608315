//! Tasks that compute: whoever keeps a thread of the runtime for a second keeps nobody else of the
//! ring from going on, since there are other threads.
//!
//! Tokio itself looks at its epoll late where the only task that an event woke computes (tokio 1.54:
//! its sockets and timers then wait for that second too). Nothing here depends on that: who computes
//! was woken by no event, or together with others.
#![cfg(feature = "tokio")]

#[path = "shared/rings.rs"]
mod rings;

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use futures::future::{BoxFuture, poll_immediate};
use rings::skip;
use ringwise::{BackendChoice, Descriptor, Local, Operation, Ring, net};
use tokio::{
    net::UnixStream,
    runtime::{Builder as RuntimeBuilder, Handle, Runtime},
};

/// How long a task computes.
const COMPUTES: Duration = Duration::from_millis(1000);
/// How long others may be held up: much less, and more than a busy machine keeps a thread.
const HELD_UP_MAX: Duration = Duration::from_millis(400);

fn runtime() -> Runtime {
    RuntimeBuilder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

fn rings() -> Vec<(&'static str, Runtime, Ring)> {
    rings_in(runtime)
}

fn rings_in(runtime: impl Fn() -> Runtime) -> Vec<(&'static str, Runtime, Ring)> {
    let choices = [("uring", BackendChoice::Uring), ("classic", BackendChoice::Classic)];
    let build = |(name, choice)| {
        let runtime = runtime();
        let context = runtime.enter();
        let ring = Local::builder().backend(choice).registered_files(4).build_ring();
        drop(context);
        Some((name, runtime, ring.map_err(|error| skip(&error.to_string())).ok()?))
    };
    choices.into_iter().filter_map(build).collect()
}

/// Keeps its thread, as a task that computes does.
fn compute() {
    std::thread::sleep(COMPUTES);
}

/// The longest that a short timeout took while `offend` went on in a task of its own.
fn longest_tick<F>(runtime: &Runtime, ring: &Ring, offend: impl FnOnce(Ring) -> F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let is_over = Arc::new(AtomicBool::new(false));
    let tick = |ring: Ring, is_over: Arc<AtomicBool>| async move {
        let mut longest = Duration::ZERO;
        while !is_over.load(Ordering::Relaxed) {
            let start = Instant::now();
            ring.submit(Operation::timeout(Duration::from_millis(2))).await.result().unwrap();
            longest = longest.max(start.elapsed());
        }
        longest
    };
    let ticks: Vec<_> =
        (0..2).map(|_| runtime.spawn(tick(ring.clone(), is_over.clone()))).collect();
    let offender = runtime.spawn(offend(ring.clone()));
    runtime.block_on(async {
        offender.await.unwrap();
        is_over.store(true, Ordering::Relaxed);
        let mut longest = Duration::ZERO;
        for tick in ticks {
            longest = longest.max(tick.await.unwrap());
        }
        longest
    })
}

/// Runs it several times: whom the driver is woken beside is a matter of chance.
fn holds_nobody_up<F>(offend: impl Fn(Ring) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for (name, runtime, ring) in rings() {
        for _ in 0..3 {
            let longest = longest_tick(&runtime, &ring, &offend);
            assert!(longest < HELD_UP_MAX, "{name}: {longest:?}");
        }
    }
}

fn silent_pipe() -> (Descriptor, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Descriptor::from(OwnedFd::from(reader)), writer)
}

#[test]
fn whoever_drops_a_read_and_computes() {
    holds_nobody_up(|ring| async move {
        let (reader, _writer) = silent_pipe();
        let mut read = ring.submit(Operation::read_at(&reader, vec![0; 8], 0));
        assert!(poll_immediate(&mut read).await.is_none());
        std::thread::sleep(Duration::from_millis(10));
        drop(read);
        compute();
    });
}

#[test]
fn whoever_registers_a_file_and_computes() {
    holds_nobody_up(|ring| async move {
        let (reader, _writer) = silent_pipe();
        let mut registered = Box::pin(ring.register_file(&reader));
        let _ = poll_immediate(&mut registered).await;
        compute();
    });
}

#[test]
fn whoever_drops_a_stream_of_connections_and_computes() {
    holds_nobody_up(|ring| async move {
        let any = "127.0.0.1:0".parse().unwrap();
        let options = net::ListenOptions::default();
        let listener = net::TcpListener::bind(&ring, &any, &options).unwrap();
        {
            let mut accepted = Box::pin(listener.accept_multi(4));
            assert!(poll_immediate(accepted.next()).await.is_none());
            std::thread::sleep(Duration::from_millis(10));
        }
        compute();
    });
}

/// A runtime of two threads, which run tasks from outside the runtime before all others.
fn runtime_that_prefers_others() -> Runtime {
    let mut builder = RuntimeBuilder::new_multi_thread();
    builder.worker_threads(2).global_queue_interval(1).enable_all().build().unwrap()
}

/// Spawns a task from outside the runtime when it is woken.
struct Spawner(Handle, Mutex<Option<BoxFuture<'static, ()>>>);

impl Wake for Spawner {
    fn wake(self: Arc<Self>) {
        let Some(task) = self.1.lock().unwrap().take() else { return };
        std::thread::scope(|scope| drop(scope.spawn(|| drop(self.0.spawn(task)))));
    }
}

/// Keeps a thread of the runtime until told.
fn hold_thread(runtime: &Runtime) -> Sender<()> {
    let (release, released) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    drop(runtime.spawn(async move {
        tell.send(()).unwrap();
        released.recv().unwrap();
    }));
    told.recv().unwrap();
    release
}

/// Spawns a task that waits for a timeout of the ring, and returns when the timeout is in flight.
fn wait_in_task(runtime: &Runtime, ring: &Ring, time: Duration) -> Receiver<Instant> {
    let (tell, told) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    let mut timeout = ring.submit(Operation::timeout(time));
    drop(runtime.spawn(async move {
        assert!(poll_immediate(&mut timeout).await.is_none());
        begin.send(()).unwrap();
        timeout.await.result().unwrap();
        tell.send(Instant::now()).unwrap();
    }));
    begun.recv().unwrap();
    told
}

/// A thread of tokio takes the event of the ring and keeps the driver's task for itself, and first runs a
/// task that was spawned from outside at this moment. Only then is the other thread free.
#[test]
fn whoever_computes_before_the_driver_that_was_woken() {
    for (name, runtime, ring) in rings_in(runtime_that_prefers_others) {
        let ended = wait_in_task(&runtime, &ring, Duration::from_millis(50));
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let context = runtime.enter();
        let ours = UnixStream::from_std(ours).unwrap();
        drop(context);
        let (first, second) = (hold_thread(&runtime), hold_thread(&runtime));
        let (begin, begun) = mpsc::channel();
        let computing = async move {
            begin.send(Instant::now()).unwrap();
            second.send(()).unwrap();
            compute();
        };
        let computing = Mutex::new(Some(Box::pin(computing) as BoxFuture<'static, ()>));
        let spawner = Waker::from(Arc::new(Spawner(runtime.handle().clone(), computing)));
        assert!(ours.poll_read_ready(&mut Context::from_waker(&spawner)).is_pending());
        // Both events are there when the first thread looks.
        std::thread::sleep(Duration::from_millis(100));
        std::io::Write::write_all(&mut &theirs, b"now").unwrap();
        first.send(()).unwrap();
        let began = begun.recv().unwrap();
        let held_up = ended.recv().unwrap().saturating_duration_since(began);
        assert!(held_up < HELD_UP_MAX, "{name}: {held_up:?}");
    }
}

/// One after the other on one thread is the cheapest for tasks that do little, and half as fast for those
/// that compute.
#[test]
fn tasks_that_compute_share_the_threads() {
    for (name, _, ring) in rings() {
        drop(ring);
        let runtime = RuntimeBuilder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let context = runtime.enter();
        let choice = if name == "uring" { BackendChoice::Uring } else { BackendChoice::Classic };
        let ring = Local::builder().backend(choice).build_ring().unwrap();
        drop(context);
        let task = |ring: Ring| async move {
            let mut threads = Vec::new();
            for _ in 0..60 {
                let pause = Operation::timeout(Duration::from_micros(50));
                ring.submit(pause).await.result().unwrap();
                std::thread::sleep(Duration::from_micros(300));
                threads.push(std::thread::current().id());
            }
            threads
        };
        let tasks: Vec<_> = (0..8).map(|_| runtime.spawn(task(ring.clone()))).collect();
        let threads: Vec<_> =
            tasks.into_iter().flat_map(|task| runtime.block_on(task).unwrap()).collect();
        let on_first = threads.iter().filter(|thread| **thread == threads[0]).count();
        let share = on_first * 100 / threads.len();
        println!("{name}: one thread did {share} %");
        assert!((20..=80).contains(&share), "{name}: one thread did {share} % of it");
    }
}
