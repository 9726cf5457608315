//! What a simulated machine does: each fault, time, crashes as a program sees them, and that the
//! same seed does the same. What survives on the disk is tested beside the disk.

use std::{collections::BTreeSet, time::Duration};

use ringwise::{
    AlignedBuf, AllocateMode, Backend, Descriptor, ErrorKind, Local, Opcode, OpenOptions,
    Operation,
    sim::{Fault, Simulation, When},
};

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

// Faults.

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
    for tag in 0..8 {
        local.push(Operation::nop(), tag).unwrap();
    }
    let taken = local.submit_and_wait(8).unwrap();
    assert!((1..8).contains(&taken), "{taken}");
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

// Crashes.

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
fn a_synchronous_file_needs_no_sync() {
    let simulation = Simulation::new(2);
    let mut local = local(&simulation);
    let options = read_write().custom_flags(libc::O_DSYNC);
    let file = simulation.open("/file", options).unwrap();
    count(&mut local, Operation::write_at(&file, vec![1; 5000], 0));
    simulation.crash();
    assert_eq!(simulation.read("/file").unwrap(), [1; 5000]);
}

// The disk, where the conformance suite does not look.

#[test]
fn an_appending_write_goes_to_the_end() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    simulation.write("/file", "one").unwrap();
    let file = simulation.open("/file", OpenOptions::new().append(true)).unwrap();
    count(&mut local, Operation::write_at(&file, b"two".to_vec(), 0));
    assert_eq!(simulation.read("/file").unwrap(), b"onetwo");
    drop(simulation.open("/file", OpenOptions::new().write(true).truncate(true)).unwrap());
    assert_eq!(simulation.read("/file").unwrap(), b"");
}

#[test]
fn a_file_lives_on_without_a_name_while_it_is_open() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let file = file(&simulation, "/file");
    count(&mut local, Operation::unlink("/file"));
    count(&mut local, Operation::write_at(&file, b"unnamed".to_vec(), 0));
    assert_eq!(count(&mut local, Operation::read_at(&file, vec![0; 9], 0)), 7);
    let told = local.run(Operation::statx_descriptor(&file)).unwrap().metadata().unwrap();
    assert_eq!((told.links(), told.len()), (0, 7));
    assert!(!simulation.exists("/file"));
}

#[test]
fn a_hole_takes_no_space_and_reads_as_zeros() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let file = file(&simulation, "/file");
    count(&mut local, Operation::write_at(&file, vec![1; 10], 1 << 40));
    let told = simulation.metadata("/file").unwrap();
    assert_eq!((told.len(), told.blocks()), ((1 << 40) + 10, 8));
    let done = local.run(Operation::read_at(&file, vec![9; 8192], 1 << 20)).unwrap();
    assert_eq!(done.into_buffer().unwrap().into_vec().unwrap(), [0; 8192]);
    let beyond = Operation::write_at(&file, vec![1], i64::MAX as u64 - 1);
    assert_eq!(kind(&mut local, beyond), Some(ErrorKind::NoSpace), "EFBIG");
}

#[test]
fn direct_transfers_are_aligned() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let file = simulation.open("/file", read_write().direct(true)).unwrap();
    let sector = || AlignedBuf::zeroed(1024, 512);
    assert_eq!(kind(&mut local, Operation::write_at(&file, sector(), 512)), None);
    let unaligned = [
        Operation::write_at(&file, sector(), 100),
        Operation::write_at(&file, ringwise::Buffer::from(sector()).slice(..100), 0),
        Operation::write_at(&file, ringwise::Buffer::from(sector()).slice(8..520), 0),
        Operation::read_at(&file, sector(), 1),
    ];
    for operation in unaligned {
        assert_eq!(kind(&mut local, operation), Some(ErrorKind::InvalidInput));
    }
}

#[test]
fn two_loops_see_one_disk() {
    let simulation = Simulation::new(1);
    let (mut first, mut second) = (local(&simulation), local(&simulation));
    let file = first.run(Operation::open("/file", read_write())).unwrap();
    let file = file.into_descriptor().unwrap();
    count(&mut first, Operation::write_at(&file, b"shared".to_vec(), 0));
    assert_eq!(count(&mut second, Operation::read_at(&file, vec![0; 10], 0)), 6);
    let other = Simulation::new(1);
    let mut stranger = local(&other);
    // To another simulation it is a socket.
    assert!(kind(&mut stranger, Operation::read_at(&file, vec![0; 10], 0)).is_some());
    assert!(kind(&mut stranger, Operation::sync_all(&file)).is_some());
}

#[test]
fn a_real_file_is_read_for_real_and_not_linked_across() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("real"), "real").unwrap();
    let real = Descriptor::from(std::fs::File::open(directory.path()).unwrap());
    let open = Operation::open_at(&real, "real", OpenOptions::new().read(true));
    let file = local.run(open).unwrap().into_descriptor().unwrap();
    assert_eq!(count(&mut local, Operation::read_at(&file, vec![0; 9], 0)), 4);
    let root = simulation.open("/", OpenOptions::new().read(true)).unwrap();
    let across = local.run(Operation::link_at((&real, "real"), (&root, "x"))).unwrap();
    assert_eq!(across.result().unwrap_err().errno(), libc::EXDEV);
}

// Time.

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
    let simulation =
        Simulation::builder(1).manual_clock().fault(Fault::Delay, When::always()).build();
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

// Determinism.

/// A program in which most things go wrong.
fn program(seed: u64) -> String {
    let mut builder = Simulation::builder(seed);
    for fault in [
        Fault::Delay,
        Fault::ShortRead,
        Fault::ShortWrite,
        Fault::Interrupted,
        Fault::Again,
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
    for word in ["write file", "the power fails", "submit of", "cancel #", "EAGAIN", ", ShortRead"] {
        assert!(trace.contains(word), "{word} in\n{trace}");
    }
}
