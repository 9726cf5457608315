//! Writes whose futures are dropped: none lands over a newer one or after a sync that was to cover it, and
//! how it failed is told.
//!
//! RINGWISE_SEEDS: how many random programs are made (200 unless set).

#[path = "shared/rings.rs"]
mod rings;

use std::{
    sync::mpsc,
    thread::{self, ThreadId},
    time::Duration,
};

use futures::{executor::block_on, future::poll_immediate};
use rings::{places, real_places, simulated};
use ringwise::{
    BufResult, Custom, ErrorKind, Opcode, StableBytes,
    fs::File,
    sim::{Fault, Simulation, When},
};

/// More than the caller's own thread writes at a time.
const MUCH: usize = 8 << 20;

/// Begins a write and drops its future.
async fn drop_write(file: &File, bytes: Vec<u8>, offset: u64) {
    drop(poll_immediate(Box::pin(file.write_at(bytes, offset))).await);
}

#[test]
fn a_newer_write_is_not_overwritten() {
    for place in real_places() {
        block_on(async {
            let file = place.create("file").await;
            for round in 0..12_u8 {
                drop_write(&file, vec![200; MUCH], 0).await;
                let (clone, newer) = (file.clone(), vec![round; 64 << 10]);
                match round % 3 {
                    0 => clone.write_durable_at(newer, MUCH as u64 / 2).await.0.unwrap(),
                    1 => clone.write_all_at(newer, MUCH as u64 / 2).await.0.unwrap(),
                    _ => {
                        clone
                            .write_vectored_at(vec![newer], MUCH as u64 / 2)
                            .await
                            .0
                            .map(drop)
                            .unwrap();
                    }
                }
                file.settled().await.unwrap();
                let bytes = place.read("file");
                let part = &bytes[MUCH / 2..MUCH / 2 + (64 << 10)];
                assert!(part.iter().all(|byte| *byte == round), "{}: {round}", place.name);
            }
        });
    }
}

#[test]
fn a_sync_covers_what_was_dropped_before_it() {
    for place in real_places() {
        block_on(async {
            let file = place.create("file").await;
            for round in 0..8_u8 {
                drop_write(&file, vec![round; MUCH], 0).await;
                match round % 4 {
                    0 => file.sync_all().await.unwrap(),
                    1 => file.sync_data().await.unwrap(),
                    2 => file.settled().await.unwrap(),
                    _ => {
                        let steps = file.chain().sync_data().run().await;
                        assert!(steps.iter().all(|step| step.result.is_ok()));
                    }
                }
                let bytes = place.read("file");
                let late = bytes.iter().filter(|byte| **byte != round).count();
                assert_eq!(late, 0, "{}: {round}", place.name);
            }
            // A new length is no less of a change.
            drop_write(&file, vec![9; MUCH], 0).await;
            file.set_len(10).await.unwrap();
            file.settled().await.unwrap();
            assert_eq!(place.read("file"), [9; 10], "{}", place.name);
            drop_write(&file, vec![8; MUCH], 0).await;
            file.close().await.unwrap();
            assert!(place.read("file") == vec![8; MUCH], "{}", place.name);
        });
    }
}

/// A buffer whose memory takes long to free.
struct Slow(Box<[u8]>);

// SAFETY: a box stays where it is when it is moved.
unsafe impl StableBytes for Slow {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(50));
    }
}

/// The driver's thread still had the write's buffer and descriptor when the close was told that it had ended.
#[test]
fn a_close_finds_nothing_left_of_a_dropped_write() {
    for place in real_places() {
        block_on(async {
            for round in 0..3 {
                let file = place.create(&format!("file{round}")).await;
                let bytes = Custom(Slow(vec![1; MUCH].into()));
                drop(poll_immediate(Box::pin(file.write_at(bytes, 0))).await);
                file.close().await.unwrap_or_else(|error| panic!("{}: {error}", place.name));
            }
        });
    }
}

/// A buffer that says when another thread drops it, and then waits for a word.
struct Held {
    bytes: Box<[u8]>,
    owner: ThreadId,
    dropped: mpsc::Sender<bool>,
    word: mpsc::Receiver<()>,
}

// SAFETY: a box stays where it is when it is moved.
unsafe impl StableBytes for Held {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let is_elsewhere = thread::current().id() != self.owner;
        self.dropped.send(is_elsewhere).unwrap();
        if is_elsewhere {
            self.word.recv().unwrap();
        }
    }
}

/// A buffer, how it says that it is dropped, and how it is given the word.
fn held(bytes: Vec<u8>) -> (Custom<Held>, mpsc::Receiver<bool>, mpsc::Sender<()>) {
    let ((dropped, is_dropped), (word, waits)) = (mpsc::channel(), mpsc::channel());
    let owner = thread::current().id();
    (Custom(Held { bytes: bytes.into(), owner, dropped, word: waits }), is_dropped, word)
}

/// It waited while the driver's thread looked at a dropped write elsewhere in the file, so it was not begun. And nobody
/// looked at it afterwards, so that its buffer stayed.
#[test]
fn a_write_that_overlaps_with_none_is_begun_when_it_is_polled() {
    for place in real_places() {
        block_on(async {
            let file = place.create("file").await;
            loop {
                let (first, is_dropped, word) = held(vec![1; MUCH]);
                drop(poll_immediate(Box::pin(file.write_at(first, 0))).await);
                if !is_dropped.recv().unwrap() {
                    // It had ended before its future was dropped.
                    continue;
                }
                let (second, is_freed, goes_on) = held(vec![2; 100]);
                goes_on.send(()).unwrap();
                drop(poll_immediate(Box::pin(file.write_at(second, MUCH as u64))).await);
                word.send(()).unwrap();
                is_freed.recv_timeout(Duration::from_secs(20)).expect("its buffer is freed");
                break;
            }
            file.settled().await.unwrap();
            assert!(place.read("file")[MUCH..] == [2; 100], "{}", place.name);
        });
    }
}

/// It is told once, to whoever asks next, and lost by no clone.
#[test]
fn how_a_dropped_write_failed_is_told_once() {
    for asks in 0..4 {
        let simulation = Simulation::builder(asks)
            .fault(Fault::Io, When::nth(1).of(Opcode::Write))
            .fault(Fault::Delay, When::rate(1.0).of(Opcode::Write))
            .build();
        let place = simulated(&simulation);
        block_on(async {
            let file = place.create("file").await;
            drop_write(&file, vec![1; 100], 0).await;
            let told = match asks {
                0 => file.settled().await,
                1 => file.clone().sync_data().await,
                2 => file.write_durable_at(vec![2; 100], 200).await.0,
                _ => file.clone().close().await.map(drop),
            };
            let error = told.unwrap_err();
            assert_eq!((error.errno(), error.opcode()), (libc::EIO, Opcode::Write), "{asks}");
            file.settled().await.unwrap();
            file.sync_all().await.unwrap();
        });
    }
}

/// Many wait for one write, some of them give up, and the others are told all the same.
#[test]
fn all_who_wait_are_told() {
    for place in places() {
        let file = block_on(place.create("file"));
        for _ in 0..5 {
            block_on(drop_write(&file, vec![3; MUCH / 4], 0));
            let wait = |gives_up: bool| {
                let file = file.clone();
                thread::spawn(move || {
                    if gives_up {
                        drop(block_on(poll_immediate(Box::pin(file.settled()))));
                    } else {
                        block_on(file.settled()).unwrap();
                    }
                })
            };
            let waits: Vec<_> = (0..8).map(|at| wait(at % 2 == 0)).collect();
            waits.into_iter().for_each(|wait| wait.join().unwrap());
        }
    }
}

#[test]
fn a_wait_for_a_dropped_write_has_its_deadline() {
    let simulation = Simulation::builder(1)
        .latency(Duration::from_secs(5))
        .fault(Fault::Delay, When::rate(1.0).of(Opcode::Write))
        .build();
    let place = simulated(&simulation);
    block_on(async {
        let file = place.create("file").await;
        drop_write(&file, vec![1; 100], 0).await;
        let hasty = file.with_deadline(Duration::from_micros(1));
        let late = hasty.settled().await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let BufResult(late, back) = hasty.write_at(vec![2; 10], 50).await;
        assert_eq!((late.unwrap_err().kind(), back), (ErrorKind::TimedOut, vec![2; 10]));
        file.settled().await.unwrap();
        assert_eq!(place.read("file"), [1; 100]);
    });
}

/// Draws numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Writes of any place and length, some dropped, syncs of any kind and clones, on a disk that is slow now
/// and then; then the power fails. After each wait the file is what a model says, and after the crash it
/// has all that was synced and nothing that the model does not have.
fn random_program(seed: u64) {
    const LEN: u64 = 64;
    let simulation = Simulation::builder(seed).fault(Fault::Delay, When::rate(0.6)).build();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let place = simulated(&simulation);
    place.write("file", &[0; LEN as usize]);
    let options = rings::read_write();
    let (mut model, mut dropped) = (vec![0; LEN as usize], Vec::new());
    block_on(async {
        let handles = place.open("file", options).await;
        let handles = [handles.clone(), handles];
        for step in 1..=40_u8 {
            let file = &handles[random.below(2) as usize];
            let offset = random.below(LEN);
            let len = (1 + random.below(LEN - offset)) as usize;
            let mut is_synced = false;
            match random.below(10) {
                0..=3 => {
                    // One that waits for another when it is dropped is not begun.
                    let range = offset..offset + len as u64;
                    let overlaps = |other: &std::ops::Range<u64>| {
                        other.start < range.end && range.start < other.end
                    };
                    if dropped.iter().any(overlaps) {
                        file.settled().await.unwrap();
                        dropped.clear();
                    }
                    dropped.push(range);
                    model[offset as usize..offset as usize + len].fill(step);
                    drop_write(file, vec![step; len], offset).await;
                }
                4 | 5 => {
                    model[offset as usize..offset as usize + len].fill(step);
                    file.write_all_at(vec![step; len], offset).await.0.unwrap();
                }
                6 => {
                    model[offset as usize..offset as usize + len].fill(step);
                    file.write_durable_at(vec![step; len], offset).await.0.unwrap();
                    is_synced = true;
                }
                7 => {
                    file.sync_all().await.unwrap();
                    is_synced = true;
                }
                8 => {
                    let steps = file.chain().sync_data().run().await;
                    assert!(steps.iter().all(|step| step.result.is_ok()));
                    is_synced = true;
                }
                _ => file.settled().await.unwrap(),
            }
            if is_synced {
                assert_eq!(place.read("file"), model, "seed {seed}, step {step}");
                if random.below(8) == 0 {
                    break;
                }
            }
        }
        handles[0].sync_all().await.unwrap();
    });
    simulation.crash();
    assert_eq!(place.read("file"), model, "seed {seed}, after the crash");
}

#[test]
fn random_programs_agree_with_a_model() {
    let seeds = std::env::var("RINGWISE_SEEDS").map_or(200, |seeds| seeds.parse().unwrap());
    (0..seeds).for_each(random_program);
}
