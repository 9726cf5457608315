//! What a simulated machine does: each fault, time, crashes as a program sees them, and that the
//! same seed does the same. What survives on the disk is tested beside the disk.

mod crashes;
mod disk;
mod faults;
mod network;
#[path = "../shared/rings.rs"]
mod rings;
mod simulated_disk;
mod time;
mod write_ahead_log;

use std::time::Duration;

use ringwise::{
    Backend, Descriptor, ErrorKind, Local, OpenOptions, Operation,
    sim::{Fault, Simulation, When},
};

/// As many seeds are tried where a test is about chance.
const SEEDS: u64 = 60;

fn local(simulation: &Simulation) -> Local {
    Local::builder().simulation(simulation).build().unwrap()
}

fn with(fault: Fault, when: When) -> (Simulation, Local) {
    let simulation = Simulation::builder(1).fault(fault, when).build();
    let local = local(&simulation);
    (simulation, local)
}

fn read_write() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

/// A file that a test prepared, outside of the faults.
fn file(simulation: &Simulation, path: &str) -> Descriptor {
    simulation.open(path, read_write()).unwrap()
}

fn kind(local: &mut Local, operation: Operation) -> Option<ErrorKind> {
    local.run(operation).unwrap().result().err().map(|error| error.kind())
}

fn count(local: &mut Local, operation: Operation) -> usize {
    local.run(operation).unwrap().result().unwrap()
}

#[test]
fn a_loop_says_that_it_is_simulated() {
    let simulation = Simulation::new(3);
    let local = local(&simulation);
    assert_eq!(local.setup().backend(), Backend::Simulated);
    assert_eq!(local.setup().backend().to_string(), "simulated");
    assert!(local.setup().fallback().is_none());
    assert_eq!(simulation.seed(), 3);
}

#[test]
fn a_simulation_can_be_shared_between_threads() {
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    let simulation = Simulation::new(1);
    is_shared(&simulation);
    std::thread::scope(|scope| {
        for name in ["/a", "/b", "/c"] {
            let simulation = &simulation;
            scope.spawn(move || {
                let mut local = local(simulation);
                let file = local.run(Operation::open(name, read_write())).unwrap();
                let file = file.into_descriptor().unwrap();
                for block in 0..100 {
                    let write = Operation::write_at(&file, vec![block as u8; 512], block * 512);
                    assert_eq!(count(&mut local, write), 512);
                    local
                        .run(Operation::timeout(Duration::from_secs(1)))
                        .unwrap()
                        .result()
                        .unwrap();
                }
            });
        }
    });
    for name in ["/a", "/b", "/c"] {
        assert_eq!(simulation.metadata(name).unwrap().len(), 51_200);
    }
}

#[test]
fn a_ring_runs_on_a_simulation() {
    let simulation = Simulation::builder(1).fault(Fault::Delay, When::rate(0.5)).build();
    let ring = Local::builder().simulation(&simulation).build_ring().unwrap();
    futures::executor::block_on(async {
        let opened = ring.submit(Operation::open("/file", read_write())).await;
        let file = opened.into_descriptor().unwrap();
        let write = |block: u64| ring.submit(Operation::write_at(&file, vec![7; 512], block * 512));
        for done in futures::future::join_all((0..16).map(write)).await {
            assert_eq!(done.result().unwrap(), 512);
        }
    });
    assert_eq!(simulation.read("/file").unwrap(), [7; 16 * 512]);
}

/// A program in which most things go wrong.
fn program(seed: u64) -> String {
    let mut builder = Simulation::builder(seed);
    for fault in [
        Fault::Delay,
        Fault::ShortRead,
        Fault::ShortWrite,
        Fault::Interrupted,
        Fault::Again,
        Fault::NoThread,
        Fault::Io,
        Fault::NoSpace,
        Fault::PartialSubmit,
        Fault::SubmitRefused,
        Fault::CancelLate,
        Fault::CancelMissed,
    ] {
        builder = builder.fault(fault, When::rate(0.1));
    }
    let simulation = builder.build();
    let mut loops = [local(&simulation), local(&simulation)];
    for round in 0..200_u64 {
        let path = format!("/{}", round % 7);
        let file = file(&simulation, &path);
        let local = &mut loops[(round % 2) as usize];
        let at = round % 5 * 700;
        let write = Operation::write_at(&file, vec![round as u8; 900], at);
        let Ok(ticket) = local.push(write, round) else { continue };
        let others = [
            Operation::cancel(ticket),
            Operation::read_at(&file, vec![0; 2000], 0),
            Operation::rename(&path, format!("/{}", round % 3)),
            Operation::timeout(Duration::from_micros(50)),
            Operation::sync_all(&file),
        ];
        for operation in others {
            let _ = local.push(operation, round);
        }
        let _ = local.submit_and_wait_timeout(3, Duration::from_millis(1));
        while local.next_completion().is_some() {}
        if round % 40 == 39 {
            simulation.crash();
        }
    }
    drop(loops);
    simulation.trace()
}

#[test]
fn the_same_seed_does_the_same() {
    let trace = program(11);
    assert_eq!(trace, program(11));
    assert_ne!(trace, program(12));
    for word in ["write file", "the power fails", "submit of", "cancel #", "EAGAIN", ", ShortRead"]
    {
        assert!(trace.contains(word), "{word} in\n{trace}");
    }
}
