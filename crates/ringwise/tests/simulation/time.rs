//! The clock: it jumps where a loop would wait, or is moved by hand.

use std::time::Duration;

use ringwise::{
    Operation,
    sim::{Fault, Simulation, When},
};

use crate::{file, local, read_write, with};

#[test]
fn a_wait_moves_the_clock_and_takes_no_time() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let start = std::time::Instant::now();
    local.run(Operation::timeout(Duration::from_secs(86_400))).unwrap().result().unwrap();
    assert!(simulation.elapsed() >= Duration::from_secs(86_400));
    local.push(Operation::timeout(Duration::MAX), 0).unwrap();
    let before = simulation.elapsed();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_secs(3600)).unwrap(), 0);
    let waited = simulation.elapsed() - before;
    assert_eq!(waited, Duration::from_secs(3600));
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_loop_that_only_polls_sees_time_pass() {
    let (_, mut local) = with(Fault::Delay, When::always());
    local.push(Operation::nop(), 0).unwrap();
    let polls = (0..100_000).find(|_| local.submit().unwrap() == 1);
    assert!(polls.is_some_and(|polls| polls > 0), "{polls:?}");
}

#[test]
fn a_clock_that_is_moved_by_hand_stands_still() {
    let simulation = Simulation::builder(1)
        .manual_clock()
        .fault(Fault::Delay, When::always())
        .latency(Duration::from_secs(1))
        .build();
    let mut local = local(&simulation);
    local.push(Operation::timeout(Duration::from_millis(10)), 1).unwrap();
    let opened = local.run(Operation::open("/file", read_write())).unwrap();
    opened.into_descriptor().unwrap();
    assert_eq!(simulation.elapsed(), Duration::ZERO, "work takes no time");
    simulation.advance(Duration::from_millis(9));
    assert_eq!(local.submit().unwrap(), 0);
    simulation.advance(Duration::from_millis(1));
    assert_eq!(local.submit().unwrap(), 1);
    assert_eq!(local.next_completion().unwrap().tag(), 1);
}

#[test]
fn a_loop_waits_until_another_thread_moves_the_clock() {
    let simulation = Simulation::builder(1).manual_clock().build();
    let mut local = local(&simulation);
    local.push(Operation::timeout(Duration::from_millis(10)), 1).unwrap();
    // From here on its time runs, however soon the other thread starts.
    assert_eq!(local.submit().unwrap(), 0);
    std::thread::scope(|scope| {
        let mover = simulation.clone();
        scope.spawn(move || {
            for _ in 0..10 {
                mover.advance(Duration::from_millis(1));
            }
        });
        assert_eq!(local.submit_and_wait(1).unwrap(), 1);
    });
    assert_eq!(simulation.elapsed(), Duration::from_millis(10));
}

#[test]
fn a_loop_on_a_clock_that_stands_still_can_be_dropped() {
    let simulation = Simulation::builder(1)
        .manual_clock()
        .fault(Fault::Delay, When::always())
        .fault(Fault::CancelLate, When::always())
        .fault(Fault::CancelMissed, When::always())
        .build();
    simulation.write("/file", "x").unwrap();
    let mut local = local(&simulation);
    local.push(Operation::timeout(Duration::from_secs(10)), 1).unwrap();
    local.push(Operation::read_at(file(&simulation, "/file"), vec![0; 4], 0), 2).unwrap();
    local.submit().unwrap();
    local.shutdown(Duration::from_secs(1)).unwrap();
    assert_eq!(simulation.elapsed(), Duration::ZERO);
}

#[test]
fn the_clock_has_an_end_and_stays_there() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    simulation.advance(Duration::MAX);
    simulation.advance(Duration::MAX);
    local.run(Operation::timeout(Duration::MAX)).unwrap().result().unwrap();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::MAX).unwrap(), 0);
}
