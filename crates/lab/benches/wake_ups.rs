//! What it costs to wake a thread that drives a ring: by a futex, by an eventfd on which it waits,
//! by an eventfd that its ring reads, and by a message from another ring.
//!
//! A round wakes the other thread, which answers by a futex each time, so that only the way there
//! differs. The ways take turns, in blocks; printed are the median time of a round and the CPU time
//! of both threads. `cargo bench -p ringwise-lab --bench wake_ups`; it asserts nothing.
//!
//! # Safety
//!
//! Entries name an eventfd and eight static bytes, or nothing at all.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, Thread},
    time::Instant,
};

use io_uring::{IoUring, opcode, squeue::Entry, types};
use ringwise_measure::{
    cpu::{allowed_cpus, pin_current_thread, process_cpu_ns},
    statistics::quartiles,
};
use rustix::event::{EventfdFlags, eventfd};

const ROUNDS: u32 = 5_000;
const BLOCKS: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Futex,
    Eventfd,
    EventfdOnRing,
    MessageRing,
}

impl Way {
    const ALL: [Way; 4] = [Way::Futex, Way::Eventfd, Way::EventfdOnRing, Way::MessageRing];

    fn name(self) -> &'static str {
        match self {
            Way::Futex => "futex (cannot wait for results too)",
            Way::Eventfd => "eventfd by read(2) (cannot either)",
            Way::EventfdOnRing => "eventfd, read by the driver's ring",
            Way::MessageRing => "MSG_RING from a ring of the waker's own",
        }
    }
}

/// Where an eventfd's count goes. What is written there is never looked at.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// What the two threads share.
struct Shared {
    event: OwnedFd,
    woken: AtomicBool,
    answered: AtomicBool,
    ended: AtomicBool,
}

fn main() -> io::Result<()> {
    let processors = allowed_cpus()?;
    let (Some(&first), Some(&last)) = (processors.first(), processors.last()) else {
        return Err(io::Error::other("no processor is allowed"));
    };
    pin_current_thread(&[first])?;
    compare("both threads on one processor", first)?;
    if last == first {
        println!("there is only one processor: two cannot be measured here");
        return Ok(());
    }
    compare("each on a processor of its own", last)
}

/// Measures all ways, with the driver on the given processor.
fn compare(title: &str, processor: usize) -> io::Result<()> {
    let mut samples = vec![(Vec::new(), Vec::new()); Way::ALL.len()];
    for block in 0..BLOCKS {
        for turn in 0..Way::ALL.len() {
            // Each way comes first as often as last.
            let at = if block % 2 == 0 { turn } else { Way::ALL.len() - 1 - turn };
            let (elapsed_ns, cpu_ns) = measure(Way::ALL[at], processor)?;
            samples[at].0.push(elapsed_ns);
            samples[at].1.push(cpu_ns);
        }
    }
    println!("{title}: a round there and back, medians of {BLOCKS} blocks of {ROUNDS} (quartiles)");
    for (way, (elapsed, cpu)) in Way::ALL.into_iter().zip(&samples) {
        let text = |samples: &[f64]| {
            let quartiles = quartiles(samples).expect("there are blocks");
            let [low, middle, high] = [quartiles.lower, quartiles.median, quartiles.upper]
                .map(|ns| format!("{:.1}", ns / 1_000.0));
            format!("{middle} us ({low} to {high})")
        };
        println!("  {:42} {:26} CPU {}", way.name(), text(elapsed), text(cpu));
    }
    Ok(())
}

/// Time and CPU time of a round, in nanoseconds.
fn measure(way: Way, processor: usize) -> io::Result<(f64, f64)> {
    // A read of an eventfd that is not ready has to sleep, not to fail.
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    let flags = || AtomicBool::new(false);
    let shared = Arc::new(Shared { event, woken: flags(), answered: flags(), ended: flags() });
    let (send_ring, receive_ring) = mpsc::channel();
    let waker = thread::current();
    let driver = {
        let shared = shared.clone();
        thread::spawn(move || {
            pin_current_thread(&[processor])?;
            drive(way, &shared, &waker, &send_ring)
        })
    };
    let target = receive_ring.recv().map_err(io::Error::other)?;
    let mut own = IoUring::new(8)?;
    let mut round = || -> io::Result<()> {
        wake(way, &shared, driver.thread(), target, &mut own)?;
        while !shared.answered.swap(false, Ordering::Acquire) {
            thread::park();
        }
        Ok(())
    };
    for _ in 0..ROUNDS / 10 {
        round()?;
    }
    let (began, began_cpu_ns) = (Instant::now(), process_cpu_ns());
    for _ in 0..ROUNDS {
        round()?;
    }
    let cpu_ns = process_cpu_ns() - began_cpu_ns;
    let elapsed_ns = began.elapsed().as_nanos();
    shared.ended.store(true, Ordering::Release);
    wake(way, &shared, driver.thread(), target, &mut own)?;
    driver.join().expect("the driver does not panic")?;
    Ok((elapsed_ns as f64 / f64::from(ROUNDS), cpu_ns as f64 / f64::from(ROUNDS)))
}

/// The thread that is woken, with the ring that it would drive.
fn drive(
    way: Way,
    shared: &Shared,
    waker: &Thread,
    send_ring: &mpsc::Sender<RawFd>,
) -> io::Result<()> {
    let mut ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(8)?;
    send_ring.send(ring.as_raw_fd()).map_err(io::Error::other)?;
    loop {
        match way {
            Way::Futex => {
                while !shared.woken.swap(false, Ordering::Acquire) {
                    thread::park();
                }
            }
            Way::Eventfd => {
                rustix::io::read(&shared.event, &mut [0; 8])?;
            }
            Way::EventfdOnRing => {
                let event = types::Fd(shared.event.as_raw_fd());
                push(&mut ring, &opcode::Read::new(event, COUNT.as_ptr().cast(), 8).build())?;
                ring.submit_and_wait(1)?;
            }
            Way::MessageRing => {
                ring.submit_and_wait(1)?;
            }
        }
        check(&mut ring)?;
        if shared.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        shared.answered.store(true, Ordering::Release);
        waker.unpark();
    }
}

fn wake(
    way: Way,
    shared: &Shared,
    driver: &Thread,
    target: RawFd,
    own: &mut IoUring,
) -> io::Result<()> {
    match way {
        Way::Futex => {
            shared.woken.store(true, Ordering::Release);
            driver.unpark();
        }
        Way::Eventfd | Way::EventfdOnRing => {
            rustix::io::write(&shared.event, &1_u64.to_ne_bytes())?;
        }
        Way::MessageRing => {
            push(own, &opcode::MsgRingData::new(types::Fd(target), 0, 1, None).build())?;
            own.submit_and_wait(1)?;
            check(own)?;
        }
    }
    Ok(())
}

fn push(ring: &mut IoUring, entry: &Entry) -> io::Result<()> {
    // SAFETY: an entry names nothing, or an eventfd that lives as long as the thread and `COUNT`.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)
}

/// Takes all completions; fails if one did.
fn check(ring: &mut IoUring) -> io::Result<()> {
    let failed = ring.completion().find(|completion| completion.result() < 0);
    failed.map_or(Ok(()), |failed| Err(io::Error::from_raw_os_error(-failed.result())))
}
