//! Each fault, and what it leaves alone.

use std::{collections::BTreeSet, time::Duration};

use ringwise::{
    AlignedBuf, AllocateMode, BufResult, ErrorKind, Local, Opcode, Operation,
    fs::File,
    sim::{Fault, Simulation, When},
};

use crate::{SEEDS, count, file, kind, local, read_write, with};

/// Pushes no-ops and tells in which order they came.
fn order(local: &mut Local, operations: u64) -> Vec<u64> {
    for tag in 0..operations {
        local.push(Operation::nop(), tag).unwrap();
    }
    let mut tags = Vec::new();
    while local.in_flight() > 0 {
        local.submit_and_wait(1).unwrap();
        tags.extend(std::iter::from_fn(|| local.next_completion()).map(|done| done.tag()));
    }
    tags
}

#[test]
fn completions_are_delayed_and_reordered() {
    let (_, mut on_time) = with(Fault::Delay, When::rate(0.0));
    assert_eq!(order(&mut on_time, 20), (0..20).collect::<Vec<_>>());
    let latency = Duration::from_millis(5);
    let simulation =
        Simulation::builder(1).fault(Fault::Delay, When::rate(0.5)).latency(latency).build();
    let mut late = local(&simulation);
    let tags = order(&mut late, 20);
    assert!(!tags.is_sorted(), "{tags:?}");
    assert_eq!(tags.iter().collect::<BTreeSet<_>>().len(), 20, "each came once");
    let elapsed = simulation.elapsed();
    assert!(elapsed > latency / 2 && elapsed <= latency + latency, "{elapsed:?}");
}

#[test]
fn a_read_is_short() {
    let (simulation, mut local) = with(Fault::ShortRead, When::nth(2));
    simulation.write("/file", [7; 1000]).unwrap();
    let file = file(&simulation, "/file");
    assert_eq!(count(&mut local, Operation::read_at(&file, vec![0; 600], 0)), 600);
    let done = local.run(Operation::read_at(&file, vec![0; 600], 0)).unwrap();
    let short = done.result().unwrap();
    assert!((1..600).contains(&short), "{short}");
    let bytes = done.into_buffer().unwrap().into_vec().unwrap();
    assert_eq!((&bytes[..short], &bytes[short..]), (&[7; 600][..short], &[0; 600][short..]));
    let parts = vec![vec![0; 300].into(), vec![0; 300].into()];
    assert_eq!(count(&mut local, Operation::read_vectored_at(&file, parts, 0)), 600);
}

#[test]
fn a_write_is_short() {
    let (simulation, mut local) = with(Fault::ShortWrite, When::nth(1));
    let file = file(&simulation, "/file");
    let short = count(&mut local, Operation::write_at(&file, vec![7; 1000], 0));
    assert!((1..1000).contains(&short), "{short}");
    assert_eq!(simulation.read("/file").unwrap(), vec![7; short]);
}

#[test]
fn a_short_direct_transfer_is_whole_sectors() {
    for seed in 0..SEEDS {
        let simulation = Simulation::builder(seed)
            .fault(Fault::ShortRead, When::always())
            .fault(Fault::ShortWrite, When::always())
            .build();
        let mut local = local(&simulation);
        let file = simulation.open("/file", read_write().direct(true)).unwrap();
        let buffer = AlignedBuf::zeroed(8192, 512);
        let written = count(&mut local, Operation::write_at(&file, buffer, 0));
        assert!(written.is_multiple_of(512) && (512..8192).contains(&written), "{written}");
        let one = AlignedBuf::zeroed(512, 512);
        assert_eq!(count(&mut local, Operation::write_at(&file, one, 0)), 512);
    }
}

#[test]
fn an_interrupted_write_did_nothing() {
    let (simulation, mut local) = with(Fault::Interrupted, When::nth(1).of(Opcode::Write));
    let file = file(&simulation, "/file");
    let write = || Operation::write_at(&file, vec![7; 10], 0);
    assert_eq!(kind(&mut local, write()), Some(ErrorKind::Interrupted));
    assert_eq!(simulation.read("/file").unwrap(), []);
    assert_eq!(kind(&mut local, write()), None);
}

#[test]
fn an_operation_is_to_be_tried_again() {
    let (simulation, mut local) = with(Fault::Again, When::nth(2));
    let file = file(&simulation, "/file");
    assert_eq!(kind(&mut local, Operation::sync_data(&file)), None);
    let error = local.run(Operation::sync_data(&file)).unwrap().result().unwrap_err();
    assert_eq!(error.errno(), 11, "EAGAIN");
    assert_eq!(kind(&mut local, Operation::sync_data(&file)), None);
}

#[test]
fn what_has_no_thread_is_cancelled_and_did_nothing() {
    let (simulation, mut local) = with(Fault::NoThread, When::nth(1));
    let file = file(&simulation, "/file");
    let write = || Operation::write_at(&file, vec![7; 10], 0);
    assert_eq!(kind(&mut local, write()), Some(ErrorKind::Cancelled));
    assert_eq!(simulation.read("/file").unwrap(), []);
    assert_eq!(kind(&mut local, write()), None);
}

/// As on a kernel: a `Ring` leaves such operations to threads of its own.
#[test]
fn what_has_no_thread_is_made_all_the_same_for_a_shared_ring() {
    let simulation = Simulation::builder(1).fault(Fault::NoThread, When::always()).build();
    let ring = Local::builder().simulation(&simulation).build_ring().unwrap();
    futures::executor::block_on(async {
        let file = File::open(&ring, "/file", read_write()).await.unwrap();
        file.write_all_at(vec![7; 10], 0).await.0.unwrap();
        for step in file.chain().write_at(vec![8; 2], 10).sync_data().run().await {
            step.result.unwrap();
        }
        let BufResult(read, bytes) = file.read_exact_at(vec![0; 12], 0).await;
        read.unwrap();
        assert_eq!(bytes, [&[7; 10][..], &[8; 2]].concat());
    });
    // A loop is told, as it is of a kernel's.
    let mut local = local(&simulation);
    let file = file(&simulation, "/file");
    assert_eq!(kind(&mut local, Operation::sync_data(&file)), Some(ErrorKind::Cancelled));
}

#[test]
fn a_device_fails_at_the_nth_operation_of_a_kind() {
    let (simulation, mut local) = with(Fault::Io, When::nth(2).of(Opcode::Read));
    let file = file(&simulation, "/file");
    let read = || Operation::read_at(&file, vec![0; 10], 0);
    assert_eq!(kind(&mut local, read()), None);
    assert_eq!(kind(&mut local, Operation::write_at(&file, vec![1], 0)), None);
    assert_eq!(kind(&mut local, read()), Some(ErrorKind::Io));
    assert_eq!(kind(&mut local, read()), None);
    simulation.inject(Fault::Io, When::nth(1).of(Opcode::Unlink));
    assert_eq!(kind(&mut local, Operation::unlink("/file")), Some(ErrorKind::Io));
    assert!(simulation.exists("/file"));
    simulation.inject(Fault::Io, When::always());
    simulation.heal();
    assert_eq!(kind(&mut local, read()), None);
}

#[test]
fn a_failed_sync_is_never_made_good() {
    let lost = |seed: &u64| {
        let when = When::nth(1).of(Opcode::Sync);
        let simulation = Simulation::builder(*seed).fault(Fault::Io, when).build();
        let mut local = local(&simulation);
        let file = file(&simulation, "/file");
        count(&mut local, Operation::write_at(&file, vec![7; 2048], 0));
        assert_eq!(kind(&mut local, Operation::sync_data(&file)), Some(ErrorKind::Io));
        assert_eq!(simulation.read("/file").unwrap(), [7; 2048], "it still reads as written");
        assert_eq!(kind(&mut local, Operation::sync_data(&file)), None, "and this one succeeds");
        simulation.crash();
        simulation.read("/file").unwrap() != [7; 2048]
    };
    let lost = (0..SEEDS).filter(lost).count() as u64;
    assert!(lost > SEEDS / 4, "{lost}");
}

#[test]
fn there_is_no_space() {
    let (simulation, mut local) = with(Fault::NoSpace, When::always());
    let file = file(&simulation, "/file");
    for operation in [
        Operation::write_at(&file, vec![1; 10], 0),
        Operation::allocate(&file, AllocateMode::Extend, 0, 10),
        Operation::open("/new", read_write()),
        Operation::create_dir("/directory", 0o755),
        Operation::link("/file", "/link"),
    ] {
        let what = operation.opcode();
        assert_eq!(kind(&mut local, operation), Some(ErrorKind::NoSpace), "{what}");
    }
    for operation in [
        Operation::open("/file", read_write()),
        Operation::read_at(&file, vec![0; 10], 0),
        Operation::unlink("/file"),
    ] {
        let what = operation.opcode();
        assert_eq!(kind(&mut local, operation), None, "{what} takes no space");
    }
    assert_eq!(simulation.names("/").unwrap(), Vec::<&str>::new());
}

#[test]
fn a_submit_takes_a_part_and_the_next_one_the_rest() {
    let (simulation, mut local) = with(Fault::PartialSubmit, When::nth(1));
    let mut other = crate::local(&simulation);
    other.push(Operation::timeout(Duration::from_secs(3600)), 0).unwrap();
    other.submit().unwrap();
    for tag in 0..8 {
        local.push(Operation::nop(), tag).unwrap();
    }
    let taken = local.submit_and_wait(8).unwrap();
    assert!((1..8).contains(&taken), "{taken}");
    assert!(simulation.elapsed() < Duration::from_secs(1), "nothing to wait for");
    assert!(simulation.trace().contains("submit of 8"), "{}", simulation.trace());
    assert_eq!(local.submit_and_wait(8).unwrap(), 8);
    let tags: Vec<u64> =
        std::iter::from_fn(|| local.next_completion()).map(|done| done.tag()).collect();
    assert_eq!(tags, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_submit_is_refused_and_loses_nothing() {
    let (simulation, mut local) = with(Fault::SubmitRefused, When::nth(1));
    let file = file(&simulation, "/file");
    local.push(Operation::write_at(&file, b"kept".to_vec(), 0), 1).unwrap();
    let refused = local.submit_and_wait(1).unwrap_err();
    assert_eq!((refused.errno(), local.in_flight()), (11, 1));
    assert_eq!(local.submit_and_wait(1).unwrap(), 1);
    assert_eq!(local.next_completion().unwrap().result().unwrap(), 4);
}

#[test]
fn a_loop_whose_submits_are_refused_can_be_dropped() {
    let (simulation, mut local) = with(Fault::SubmitRefused, When::always());
    let file = file(&simulation, "/file");
    local.push(Operation::write_at(&file, b"kept".to_vec(), 0), 1).unwrap();
    drop(local);
    assert_eq!(simulation.read("/file").unwrap(), b"kept");
}

/// A read that takes its time, cancelled. Gives what the read and the cancel came to.
fn cancelled(faults: &[Fault]) -> (Result<usize, ErrorKind>, Result<usize, ErrorKind>) {
    let slow = When::always().of(Opcode::Read);
    let mut builder = Simulation::builder(5).fault(Fault::Delay, slow);
    for fault in faults {
        builder = builder.fault(*fault, When::always());
    }
    let simulation = builder.build();
    simulation.write("/file", [7; 10]).unwrap();
    let mut local = local(&simulation);
    let ticket = local.push(Operation::read_at(file(&simulation, "/file"), vec![0; 10], 0), 1);
    let ticket = ticket.unwrap();
    local.submit().unwrap();
    local.push(Operation::cancel(ticket), 2).unwrap();
    assert_eq!(local.submit_and_wait(2).unwrap(), 2);
    let mut results = [Ok(0), Ok(0)];
    while let Some(done) = local.next_completion() {
        let at = done.tag() as usize - 1;
        results[at] = done.result().map_err(|error| error.kind());
    }
    results.into()
}

#[test]
fn a_cancel_comes_in_time_or_late_or_misses() {
    assert_eq!(cancelled(&[]), (Err(ErrorKind::Cancelled), Ok(0)));
    let late = cancelled(&[Fault::CancelLate]);
    assert_eq!(late, (Ok(10), Err(ErrorKind::TooLateToCancel)));
    let missed = cancelled(&[Fault::CancelMissed]);
    assert_eq!(missed, (Ok(10), Err(ErrorKind::NothingToCancel)));
}

#[test]
fn a_close_that_was_cancelled_left_the_file_open() {
    let slow = When::always().of(Opcode::Close);
    let simulation = Simulation::builder(5).fault(Fault::Delay, slow).build();
    let mut local = local(&simulation);
    let ticket = local.push(Operation::close(file(&simulation, "/file")), 1).unwrap();
    local.push(Operation::cancel(ticket), 2).unwrap();
    local.submit_and_wait(2).unwrap();
    let mut completions: Vec<_> = std::iter::from_fn(|| local.next_completion()).collect();
    assert_eq!(completions.len(), 2);
    assert_eq!(simulation.open_files("/file").unwrap(), 1, "the completion holds it");
    completions.clear();
    assert_eq!(simulation.open_files("/file").unwrap(), 0);
}
