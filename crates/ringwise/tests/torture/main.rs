//! Random programs of what users do with a ring, beside a model.
//!
//! A seed draws the kind of ring and what drives it, then operations of files, names, sockets and
//! registrations, each through one of the entry points, with one of the types of buffers, and what becomes
//! of its future: awaited, dropped at some stage, dropped by a panic, forgotten, or ended with its
//! runtime. What was seen to be done has to be there at the end, what was dropped there in full or not at
//! all, and everything that is awaited comes to an end.
//!
//! RINGWISE_SEEDS: how many programs are made (200 unless set); RINGWISE_SEED: the first of them.

mod arrivals;
mod content;
mod fate;
mod length;
mod program;
#[path = "../shared/rings.rs"]
mod rings;
mod traffic;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

/// Longer than any program takes, on a busy machine too.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(60);

fn asked(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// Runs a program, and tells which one it was that failed or did not end.
fn run(seed: u64) -> String {
    let (tell, told) = channel();
    let thread = thread::spawn(move || {
        let kind = program::run(seed);
        tell.send(()).unwrap();
        kind
    });
    match told.recv_timeout(PROGRAM_TIME_MAX) {
        Err(RecvTimeoutError::Timeout) => panic!("RINGWISE_SEED={seed}: it did not end"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|_| panic!("RINGWISE_SEED={seed} RINGWISE_SEEDS=1"))
        }
    }
}

#[test]
fn random_programs_agree_with_a_model() {
    fate::silence_expected_panics();
    let first = asked("RINGWISE_SEED", 1);
    let seeds = Mutex::new(first..first + asked("RINGWISE_SEEDS", 200));
    let next_seed = || seeds.lock().unwrap().next();
    let kinds = Mutex::new(BTreeMap::<String, u64>::new());
    // A program waits for about half of its time.
    thread::scope(|scope| {
        for _ in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                std::iter::from_fn(next_seed).for_each(|seed| {
                    let kind = run(seed);
                    *kinds.lock().unwrap().entry(kind).or_default() += 1;
                });
            });
        }
    });
    println!("{:?}", kinds.into_inner().unwrap());
}
