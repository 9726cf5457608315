//! Reading, writing, syncing and allocating.

use std::{
    io::{Read, Write},
    os::fd::OwnedFd,
};

use ringwise::{
    AlignedBuf, AllocateMode, Buffer, Descriptor, ErrorKind, Local, Mapping, OpenOptions,
    Operation, OwnedBuffer, PoolBuf,
};

use crate::{
    disk::Disk,
    loops::{Loop, counted, next, run, skip},
};

fn create(local: &mut Local, path: &std::path::Path) -> Descriptor {
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    run(local, Operation::open(path, options)).into_descriptor().unwrap()
}

pub fn what_was_written_is_read(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.path().join("file");
    let file = create(&mut local, &path);
    let written = run(&mut local, Operation::write_at(&file, counted(10_000), 5));
    assert_eq!(written.result().unwrap(), 10_000);
    assert_eq!(run(&mut local, Operation::sync_data(&file)).result().unwrap(), 0);
    assert_eq!(run(&mut local, Operation::sync_all(&file)).result().unwrap(), 0);

    let read = run(&mut local, Operation::read_at(&file, vec![9; 10_005], 0));
    assert_eq!(read.result().unwrap(), 10_005);
    let bytes = read.into_buffer().unwrap().into_vec().unwrap();
    assert_eq!(bytes[..5], [0; 5]);
    assert_eq!(bytes[5..], counted(10_000));
    assert_eq!(directory.read(&path).unwrap(), bytes);
}

pub fn a_read_at_the_end_is_short_and_past_it_empty(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let file = directory.open(directory.counted_file(10));
    for (offset, count) in [(0, 10), (4, 6), (10, 0), (1 << 40, 0), (i64::MAX as u64 - 64, 0)] {
        let read = run(&mut local, Operation::read_at(&file, vec![7; 64], offset));
        assert_eq!(read.result().unwrap(), count, "at {offset}");
        let bytes = read.into_buffer().unwrap().into_vec().unwrap();
        assert!(bytes[count..].iter().all(|&byte| byte == 7), "nothing was written past the end");
    }
    assert_eq!(run(&mut local, Operation::read_at(&file, vec![], 0)).result().unwrap(), 0);
}

/// Never SIGBUS: nobody here looks into a mapping.
pub fn a_mapping_is_written_and_what_was_cut_off_is_an_error(way: Loop) {
    let mut local = way.build();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, copy) = (directory.path().join("source"), directory.path().join("copy"));
    std::fs::write(&source, counted(10_000)).unwrap();
    let mapping = Mapping::of(&std::fs::File::open(&source).unwrap().into(), 10_000).unwrap();
    let file = Descriptor::from(std::fs::File::create(&copy).unwrap());
    let mut write = |range| {
        let done = local.run(Operation::write_mapped_at(&file, &mapping, range, 3));
        done.map_err(|error| error.errno())
            .and_then(|done| done.result().map_err(|error| error.errno()))
    };
    if matches!(way, Loop::Simulated | Loop::SimulatedReordered) {
        assert_eq!(write(0..10_000).unwrap_err(), libc::EOPNOTSUPP);
        return;
    }
    assert_eq!(write(100..10_001), Ok(9901), "a zero from behind the end of the file");
    let written = std::fs::read(&copy).unwrap();
    assert_eq!(written[3..], [&counted(10_000)[100..], &[0]].concat());
    std::fs::File::options().write(true).open(&source).unwrap().set_len(4096).unwrap();
    assert_eq!(write(0..8192), Ok(4096), "what is left of it");
    assert_eq!(write(4096..8192), Err(libc::EFAULT));
    let dropped = Operation::write_mapped_at(&file, &mapping, 0..4096, 0);
    drop((mapping, file));
    assert_eq!(run(&mut local, dropped).result().unwrap(), 4096, "an operation keeps it mapped");
}

pub fn vectors_are_read_and_written_in_order(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.path().join("file");
    let file = create(&mut local, &path);
    let parts = vec![b"one".to_vec().into(), Vec::new().into(), b"three".to_vec().into()];
    let written = run(&mut local, Operation::write_vectored_at(&file, parts, 2));
    assert_eq!(written.result().unwrap(), 8);
    assert_eq!(written.into_buffers().len(), 3);
    assert_eq!(directory.read(&path).unwrap(), b"\0\0onethree");

    let parts = vec![vec![0; 4].into(), Buffer::from(vec![0; 9]).slice(1..3), vec![0; 9].into()];
    let read = run(&mut local, Operation::read_vectored_at(&file, parts, 1));
    assert_eq!(read.result().unwrap(), 9);
    let parts = read.into_buffers();
    assert_eq!(parts[0].as_slice(), b"\0one");
    assert_eq!(parts[1].as_slice(), b"\0th\0\0\0\0\0\0");
    assert_eq!(&parts[2].as_slice()[..3], b"ree");

    let read = run(&mut local, Operation::read_vectored_at(&file, Vec::new(), 0));
    assert_eq!(read.result().unwrap(), 0);
    let many = (0..1025).map(|_| vec![0].into()).collect();
    let read = run(&mut local, Operation::read_vectored_at(&file, many, 0));
    assert_eq!(read.result().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(read.into_buffers().len(), 1025);
}

pub fn a_slice_limits_what_is_moved(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let file = directory.open(directory.counted_file(100));
    let buffer = Buffer::from(vec![255; 10]).slice(3..5);
    let read = run(&mut local, Operation::read_at(&file, buffer, 50));
    assert_eq!(read.result().unwrap(), 2);
    let bytes = read.into_buffer().unwrap().into_vec().unwrap();
    assert_eq!(bytes, [255, 255, 255, 50, 51, 255, 255, 255, 255, 255]);
}

pub fn space_is_allocated_and_cut(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let file = create(&mut local, &directory.path().join("file"));
    let len = |local: &mut Local| {
        run(local, Operation::statx_descriptor(&file)).metadata().unwrap().len()
    };
    let extend = Operation::allocate(&file, AllocateMode::Extend, 0, 8192);
    run(&mut local, extend).result().unwrap();
    assert_eq!(len(&mut local), 8192);
    let keep = Operation::allocate(&file, AllocateMode::KeepSize, 0, 1 << 20);
    run(&mut local, keep).result().unwrap();
    assert_eq!(len(&mut local), 8192);
    run(&mut local, Operation::set_len(&file, 100)).result().unwrap();
    assert_eq!(len(&mut local), 100);
    let empty = run(&mut local, Operation::allocate(&file, AllocateMode::Extend, 0, 0));
    assert_eq!(empty.result().unwrap_err().kind(), ErrorKind::InvalidInput);
    let endless = run(&mut local, Operation::set_len(&file, u64::MAX));
    assert!(endless.result().is_err());
}

pub fn a_buffer_comes_back_from_a_failure(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let file = directory.open(directory.counted_file(10));
    let bytes = vec![3; 4096];
    let address = bytes.as_ptr();
    let written = run(&mut local, Operation::write_at(&file, bytes, 0));
    assert_eq!(written.result().unwrap_err().kind(), ErrorKind::BadDescriptor);
    let bytes = written.into_buffer().unwrap().into_vec().unwrap();
    assert_eq!((bytes.as_ptr(), bytes), (address, vec![3; 4096]));
}

fn open_direct(local: &mut Local, path: &std::path::Path) -> Option<Descriptor> {
    let options = OpenOptions::new().read(true).direct(true);
    match run(local, Operation::open(path, options)).into_descriptor() {
        Ok(file) => Some(file),
        Err(error) => {
            skip(&format!("direct I/O: {error}"));
            None
        }
    }
}

pub fn an_unaligned_direct_read_is_refused(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(16_384);
    let Some(file) = open_direct(&mut local, &path) else { return };
    let read = run(&mut local, Operation::read_at(&file, AlignedBuf::zeroed(4096, 4096), 1));
    let error = read.result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("aligned"), "{error}");
    assert_eq!(AlignedBuf::from_buffer(read.into_buffer().unwrap()).len(), 4096);
}

pub fn an_aligned_direct_read_works(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(10_000);
    let Some(file) = open_direct(&mut local, &path) else { return };
    let told = run(&mut local, Operation::statx_descriptor(&file)).metadata().unwrap();
    let alignment = told.direct_alignment().unwrap_or_default();
    let len = 12_288_usize.next_multiple_of(alignment.offset as usize);
    let buffer = AlignedBuf::zeroed(len, alignment.memory as usize);
    let read = run(&mut local, Operation::read_at(&file, buffer, 0));
    assert_eq!(read.result().unwrap(), 10_000, "the end of the file may be unaligned");
    assert_eq!(read.into_buffer().unwrap().as_slice()[..10_000], counted(10_000));
}

pub fn a_pool_serves_reads_and_writes(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let pool = local.register_pool(3, 5000).unwrap();
    assert_eq!(
        pool.is_registered(),
        !matches!(way, Loop::Classic) && !way.is_simulated(),
        "{:?}",
        pool.registration()
    );
    let file = create(&mut local, &directory.path().join("file"));
    let fixed = local.register_file(&file).unwrap();
    let mut lease = pool.take().unwrap();
    lease.copy_from_slice(&counted(5000));
    let written = run(&mut local, Operation::write_at(fixed, lease, 0));
    assert_eq!(written.result().unwrap(), 5000);
    drop(written);
    assert_eq!(pool.available(), 3, "the lease went back");
    for offset in 0..3 {
        local.push(Operation::read_at(fixed, pool.take().unwrap(), offset), offset).unwrap();
    }
    assert!(pool.take().is_none(), "the kernel has all of them");
    for _ in 0..3 {
        let read = next(&mut local);
        let offset = read.tag() as usize;
        assert_eq!(read.result().unwrap(), 5000 - offset);
        let lease = PoolBuf::from_buffer(read.into_buffer().unwrap());
        assert_eq!(lease[..5000 - offset], counted(5000)[offset..]);
    }
    assert_eq!(pool.available(), 3);
}

pub fn a_partly_cached_read_is_whole(way: Loop) {
    // A real file, which a simulated loop reads too.
    let (mut local, directory) = (way.build(), Disk::real());
    let path = directory.counted_file(1 << 20);
    let file = directory.open(&path);
    // No reading ahead, so that one page comes alone.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    ringwise::drop_page_cache(&file, 0, 0).unwrap();
    run(&mut local, Operation::read_at(&file, vec![0; 4096], 0)).result().unwrap();
    match ringwise::page_cache(&file, 0, 0) {
        Ok(state) if state.cached_pages < 256 => assert!(state.cached_pages > 0),
        other => return skip(&format!("the file is not partly cached: {other:?}")),
    }
    // Two at once: for a single one a loop may block, and the cache is not asked.
    local.push(Operation::nop(), 0).unwrap();
    local.push(Operation::read_at(&file, vec![0; 65_536], 0), 1).unwrap();
    for _ in 0..2 {
        let done = next(&mut local);
        if done.tag() == 1 {
            assert_eq!(done.result().unwrap(), 65_536, "what is cached is not all there is");
            assert_eq!(done.into_buffer().unwrap().as_slice(), counted(65_536));
        }
    }
}

pub fn an_offset_beyond_the_kernels_is_refused(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let file = directory.open(directory.counted_file(10));
    for offset in [1 << 63, u64::MAX] {
        let refused = local.push(Operation::read_at(&file, vec![1; 4], offset), 0).unwrap_err();
        assert!(refused.to_string().contains("2^63"), "{refused}");
        assert_eq!(refused.operation.into_buffer().unwrap().into_vec().unwrap(), [1; 4]);
    }
    assert_eq!(local.in_flight(), 0);
}

pub fn a_pipe_has_no_positions(way: Loop) {
    let mut local = way.build();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = Descriptor::from(OwnedFd::from(reader));
    local.push(Operation::read_at(&reader, vec![0; 16], 1000), 0).unwrap();
    local.submit().unwrap();
    writer.write_all(b"through").unwrap();
    let read = next(&mut local);
    assert_eq!(read.result().unwrap(), 7);
    assert_eq!(&read.into_buffer().unwrap().as_slice()[..7], b"through");

    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer = Descriptor::from(OwnedFd::from(writer));
    let written = run(&mut local, Operation::write_at(&writer, b"back".to_vec(), 77));
    assert_eq!(written.result().unwrap(), 4);
    drop((written, writer));
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"back");
}

/// An empty buffer has the room that it has: read within its length, it read nothing and said so as the
/// end of a file is said.
pub fn an_empty_buffer_is_filled_within_its_capacity(way: Loop) {
    let (mut local, disk) = (way.build(), way.disk());
    let path = disk.counted_file(100);
    let file = disk.open(&path);
    let room = || Vec::with_capacity(64);
    let done = run(&mut local, Operation::read_at(&file, room(), 0));
    assert_eq!(done.result().unwrap(), 64);
    assert_eq!(done.into_buffer().unwrap().into_vec().unwrap(), counted(64));
    let done = run(&mut local, Operation::read_at(&file, room(), 90));
    let bytes = done.into_buffer().unwrap().into_vec().unwrap();
    assert_eq!((&*bytes, bytes.capacity()), (&counted(100)[90..], 64));
    let buffers = vec![room().into(), vec![0; 4].into(), room().into()];
    let done = run(&mut local, Operation::read_vectored_at(&file, buffers, 0));
    assert_eq!(done.result().unwrap(), 100);
    let bytes: Vec<_> =
        done.into_buffers().into_iter().map(|buffer| buffer.into_vec().unwrap()).collect();
    assert_eq!(bytes.iter().map(Vec::len).collect::<Vec<_>>(), [64, 4, 32]);
    assert_eq!(bytes.concat(), counted(100));
    // What failed has read nothing, and what never ran is as it was.
    let failed = run(&mut local, Operation::read_at(disk.open(disk.path()), room(), 0));
    assert!(failed.result().is_err());
    let back = failed.into_buffer().unwrap().into_vec().unwrap();
    assert!(back.is_empty() && back.capacity() == 64);
    let back = Operation::read_at(&file, room(), 0).into_buffer().unwrap().into_vec().unwrap();
    assert!(back.is_empty() && back.capacity() == 64);
    // A write of nothing writes nothing.
    let wide = disk.open_with(&path, OpenOptions::new().write(true));
    assert_eq!(run(&mut local, Operation::write_at(wide, room(), 0)).result().unwrap(), 0);
    assert_eq!(disk.read(&path).unwrap(), counted(100));
}
