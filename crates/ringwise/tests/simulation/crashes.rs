//! Losses of power, as a program sees them.

use std::{collections::BTreeSet, time::Duration};

use ringwise::{
    ErrorKind, Opcode, OpenOptions, Operation,
    sim::{Fault, Simulation, When},
};

use crate::{SEEDS, count, file, kind, local, read_write, with};

#[test]
fn descriptors_from_before_a_crash_lead_nowhere() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let file = file(&simulation, "/file");
    simulation.crash();
    for operation in [
        Operation::write_at(&file, vec![1], 0),
        Operation::read_at(&file, vec![0], 0),
        Operation::sync_all(&file),
        Operation::statx_descriptor(&file),
        Operation::set_len(&file, 0),
    ] {
        assert_eq!(kind(&mut local, operation), Some(ErrorKind::Io));
    }
    assert_eq!(kind(&mut local, Operation::close(file)), None);
    let again = local.run(Operation::open("/file", read_write())).unwrap();
    again.into_descriptor().unwrap();
}

#[test]
fn what_is_in_flight_at_a_crash_happened_or_did_not_and_fails() {
    let outcome = |seed| {
        let simulation = Simulation::builder(seed)
            .fault(Fault::Delay, When::always().of(Opcode::Write))
            .latency(Duration::from_secs(1))
            .build();
        simulation.write("/file", [1; 1024]).unwrap();
        let mut local = local(&simulation);
        let file = file(&simulation, "/file");
        local.push(Operation::write_at(&file, vec![2; 1024], 0), 7).unwrap();
        local.push(Operation::timeout(Duration::from_secs(2)), 8).unwrap();
        local.submit().unwrap();
        simulation.crash();
        local.submit_and_wait(1).unwrap();
        let done = local.next_completion().unwrap();
        assert_eq!((done.tag(), done.result().unwrap_err().kind()), (7, ErrorKind::Io));
        assert_eq!(done.into_buffer().unwrap().into_vec().unwrap(), [2; 1024]);
        local.submit_and_wait(1).unwrap();
        assert_eq!(local.next_completion().unwrap().result().unwrap(), 0, "the timeout goes on");
        let bytes = simulation.read("/file").unwrap();
        bytes.chunks(512).map(|sector| sector[0]).collect::<Vec<u8>>()
    };
    let seen: BTreeSet<Vec<u8>> = (0..SEEDS).map(outcome).collect();
    let all = [[1, 1], [1, 2], [2, 1], [2, 2]].map(Vec::from);
    assert_eq!(seen, BTreeSet::from(all), "all of it, none of it, either half");
}

#[test]
fn a_sync_in_flight_at_a_crash_promised_nothing() {
    let is_lost = |seed: &u64| {
        let simulation = Simulation::builder(*seed)
            .fault(Fault::Delay, When::always().of(Opcode::Sync))
            .latency(Duration::from_secs(1))
            .build();
        let mut local = local(&simulation);
        let file = file(&simulation, "/file");
        count(&mut local, Operation::write_at(&file, vec![2; 1024], 0));
        local.push(Operation::sync_all(&file), 1).unwrap();
        local.submit().unwrap();
        simulation.crash();
        simulation.read("/file").unwrap() != [2; 1024]
    };
    let lost = (0..SEEDS).filter(is_lost).count() as u64;
    assert!((SEEDS / 10..SEEDS).contains(&lost), "{lost}");
}

#[test]
fn a_close_in_flight_at_a_crash_closes() {
    let slow = When::always().of(Opcode::Close);
    let simulation = Simulation::builder(5).fault(Fault::Delay, slow).build();
    let mut local = local(&simulation);
    let file = file(&simulation, "/file");
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let target = format!("/proc/self/fd/{number}");
    let placeholder = std::fs::read_link(&target).unwrap();
    local.push(Operation::close(file), 1).unwrap();
    local.submit().unwrap();
    simulation.crash();
    local.submit_and_wait(1).unwrap();
    assert!(local.next_completion().unwrap().result().is_err());
    assert!(std::fs::read_link(&target).map_or(true, |now| now != placeholder));
}

#[test]
fn the_power_fails_at_the_nth_operation_and_comes_back_with_the_crash() {
    let (simulation, mut local) = with(Fault::PowerLoss, When::nth(3));
    let opened = local.run(Operation::open("/file", read_write())).unwrap();
    let file = opened.into_descriptor().unwrap();
    assert_eq!(kind(&mut local, Operation::write_at(&file, vec![1; 10], 0)), None);
    assert!(simulation.has_power());
    assert_eq!(kind(&mut local, Operation::sync_all(&file)), Some(ErrorKind::Io));
    assert!(!simulation.has_power());
    let open = || Operation::open("/new", read_write());
    assert_eq!(kind(&mut local, open()), Some(ErrorKind::Io), "nothing works");
    assert_eq!(kind(&mut local, Operation::nop()), None, "but for what needs no disk");
    simulation.crash();
    assert_eq!(kind(&mut local, open()), None);
}

#[test]
fn synced_bytes_under_a_synced_name_are_there_after_every_crash() {
    for seed in 0..SEEDS {
        let simulation = Simulation::builder(seed).fault(Fault::Delay, When::rate(0.3)).build();
        let mut local = local(&simulation);
        let root = local.run(Operation::open("/", OpenOptions::new().read(true))).unwrap();
        let root = root.into_descriptor().unwrap();
        let opened = local.run(Operation::open("/file", read_write())).unwrap();
        let file = opened.into_descriptor().unwrap();
        count(&mut local, Operation::write_at(&file, vec![1; 5000], 0));
        count(&mut local, Operation::sync_data(&file));
        count(&mut local, Operation::sync_all(&root));
        count(&mut local, Operation::write_at(&file, vec![2; 5000], 5000));
        simulation.crash();
        let bytes = simulation.read("/file").unwrap();
        assert_eq!(bytes[..5000], [1; 5000], "seed {seed}\n{}", simulation.trace());
    }
}

#[test]
fn a_file_replaced_without_a_sync_may_be_empty() {
    let after = |seed| {
        let simulation = Simulation::new(seed);
        let mut local = local(&simulation);
        simulation.write("/file", "old").unwrap();
        let opened = local.run(Operation::open("/new", read_write())).unwrap();
        let file = opened.into_descriptor().unwrap();
        count(&mut local, Operation::write_at(&file, b"new".to_vec(), 0));
        count(&mut local, Operation::rename("/new", "/file"));
        simulation.crash();
        simulation.read("/file").unwrap()
    };
    let seen: BTreeSet<Vec<u8>> = (0..SEEDS).map(after).collect();
    // The length may be there without the bytes, too.
    let all: [&[u8]; 4] = [b"old", b"new", b"", b"\0\0\0"];
    assert_eq!(seen, all.into_iter().map(Vec::from).collect());
}

#[test]
fn a_synchronous_file_needs_no_sync() {
    let simulation = Simulation::new(2);
    let mut local = local(&simulation);
    let options = read_write().custom_flags(libc::O_DSYNC);
    let file = simulation.open("/file", options).unwrap();
    count(&mut local, Operation::write_at(&file, vec![1; 5000], 0));
    simulation.crash();
    assert_eq!(simulation.read("/file").unwrap(), [1; 5000]);
}
