//! Files with a deadline: what waits ends when the time is over, for all its parts together, and the
//! buffer comes back.

use std::{
    future::Future,
    io::Write,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use ringwise::{
    AllocateMode, BufResult, Error, ErrorKind, Opcode, fs,
    fs::File,
    sim::{Fault, Simulation, When},
};

use super::rings::{Place, real_places, simulated};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(3600);

fn pipe(place: &Place) -> (File, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (File::from_std(&place.ring, OwnedFd::from(reader).into()), writer)
}

fn timed_out<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_read_ends_and_its_buffers_come_back() {
    for place in real_places() {
        println!("{}", place.name);
        let (file, mut writer) = pipe(&place);
        let limited = file.with_deadline(SHORT);
        block_on(async {
            let start = Instant::now();
            let BufResult(result, buffer) = limited.read_at(vec![5; 32], 0).await;
            timed_out(result);
            assert_eq!(buffer, [5; 32]);
            let BufResult(result, buffers) =
                limited.read_vectored_at(vec![vec![5; 3], vec![6; 4]], 0).await;
            timed_out(result);
            assert_eq!(buffers, [vec![5; 3], vec![6; 4]]);
            let mut steps = limited.chain().read_at(vec![7; 5], 0).run().await;
            let step = steps.pop().unwrap();
            timed_out(step.result);
            assert!(start.elapsed() >= 3 * SHORT);
            // Nothing of it is left behind to take what comes later.
            writer.write_all(b"late").unwrap();
            let BufResult(result, buffer) = file.with_deadline(LONG).read_at(vec![0; 32], 0).await;
            assert_eq!((result.unwrap(), &buffer[..4]), (4, &b"late"[..]));
        });
    }
}

/// Each part comes in time; all together do not.
#[test]
fn the_time_is_that_of_all_parts() {
    for place in real_places() {
        println!("{}", place.name);
        let (file, mut writer) = pipe(&place);
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    writer.write_all(b"x").unwrap();
                    std::thread::sleep(SHORT / 10);
                }
            });
            let limited = file.with_deadline(SHORT);
            let read = limited.read_exact_at(vec![0; 4000], 0);
            let BufResult(result, buffer) = block_on(read);
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            timed_out(result);
            assert!(buffer.starts_with(b"x") && buffer.ends_with(b"\0"));
        });
    }
}

/// Every function, where each operation takes up to half a second.
#[test]
fn every_function_has_its_end() {
    // The cancels are not.
    let slow = [
        Opcode::Read,
        Opcode::Write,
        Opcode::Sync,
        Opcode::SetLen,
        Opcode::Allocate,
        Opcode::Statx,
    ];
    let simulation = slow
        .into_iter()
        .fold(Simulation::builder(1), |builder, opcode| {
            builder.fault(Fault::Delay, When::always().of(opcode))
        })
        .latency(SHORT * 10)
        .build();
    simulation.write("/file", "text").unwrap();
    let place = simulated(&simulation);
    async fn ends<T: std::fmt::Debug>(
        simulation: &Simulation,
        what: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) {
        let start = simulation.elapsed();
        let result = call.await;
        let took = simulation.elapsed() - start;
        println!("{what}: {result:?} in {took:?}");
        timed_out(result);
    }
    block_on(async {
        let file = place.open("file", super::rings::read_write()).await;
        let file = file.with_deadline(SHORT / 10);
        let simulation = &simulation;
        timed_out(file.read_at(vec![0; 4], 0).await.0);
        ends(simulation, "metadata", file.metadata()).await;
        ends(simulation, "set_len", file.set_len(9)).await;
        ends(simulation, "allocate", file.allocate(AllocateMode::Extend, 0, 9)).await;
        ends(simulation, "read_to_end", file.read_to_end()).await;
        ends(simulation, "sync_data", file.sync_data()).await;
        ends(simulation, "write_all_at", async { file.write_all_at(vec![1; 4], 0).await.0 }).await;
        let within = place.ring.within(SHORT / 10, fs::metadata(&place.ring, "/file")).await;
        timed_out(within);
    });
}
