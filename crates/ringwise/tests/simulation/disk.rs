//! The disk, where the conformance suite does not look.

use ringwise::{AlignedBuf, Descriptor, ErrorKind, OpenOptions, Operation, sim::Simulation};

use crate::{count, file, kind, local, read_write};

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
fn a_range_beyond_all_offsets_is_refused() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let file = file(&simulation, "/file");
    let last = i64::MAX as u64;
    let read = |offset| Operation::read_at(&file, vec![0; 64], offset);
    assert_eq!(kind(&mut local, read(last - 64)), None);
    assert_eq!(kind(&mut local, read(last - 63)), Some(ErrorKind::InvalidInput));
    let write = Operation::write_at(&file, vec![0; 64], last - 63);
    assert_eq!(kind(&mut local, write), Some(ErrorKind::InvalidInput));
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
