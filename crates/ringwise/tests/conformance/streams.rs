//! Files that may keep a reader waiting without end, and devices that are no streams.

use std::{
    fs::File,
    io::{PipeWriter, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::{Duration, Instant},
};

use ringwise::{Descriptor, ErrorKind, Local, OpenOptions, Operation};
use rustix::{
    fs::{FileType, Mode, OFlags, inotify, mknodat},
    thread::ClockId,
};

use crate::{
    disk::Disk,
    loops::{Loop, next, run, skip},
};

fn pipe() -> (Descriptor, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Descriptor::from(OwnedFd::from(reader)), writer)
}

/// Reads that wait once took all threads of the classic backend, and a write to a file waited
/// behind them.
pub fn idle_pipes_do_not_keep_files_waiting(way: Loop) {
    let mut local = way.builder().entries(64).classic_threads(2).build().unwrap();
    let directory = Disk::real();
    let path = directory.path().join("file");
    let file = Descriptor::from(File::create_new(&path).unwrap());
    let mut writers = Vec::new();
    for tag in 0..70 {
        let (reader, writer) = pipe();
        writers.push(writer);
        local.push(Operation::read_at(reader, vec![0; 8], 0), tag).unwrap();
    }
    local.submit().unwrap();
    local.push(Operation::write_at(&file, b"x".to_vec(), 0), 1000).unwrap();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_secs(10)).unwrap(), 1);
    assert_eq!(local.next_completion().unwrap().tag(), 1000);
    // They still work, each by itself.
    for (tag, writer) in writers.iter_mut().enumerate().rev() {
        writer.write_all(&[tag as u8]).unwrap();
        let done = next(&mut local);
        assert_eq!((done.tag(), done.result().unwrap()), (tag as u64, 1));
        assert_eq!(done.into_buffer().unwrap().as_slice()[0], tag as u8);
    }
}

/// Which of them gets what is the kernel's choice.
pub fn reads_of_one_pipe_share_what_comes(way: Loop) {
    let mut local = way.build();
    let (reader, mut writer) = pipe();
    for tag in 0..4 {
        local.push(Operation::read_at(&reader, vec![0; 2], 0), tag).unwrap();
    }
    local.submit().unwrap();
    writer.write_all(b"00112233").unwrap();
    let mut read: Vec<Vec<u8>> = (0..4)
        .map(|_| {
            let done = next(&mut local);
            assert_eq!(done.result().unwrap(), 2);
            done.into_buffer().unwrap().as_slice().to_vec()
        })
        .collect();
    read.sort_unstable();
    assert_eq!(read, [b"00", b"11", b"22", b"33"]);
}

pub fn the_other_end_goes(way: Loop) {
    let mut local = way.build();
    let (reader, writer) = pipe();
    local.push(Operation::read_at(reader, vec![0; 8], 0), 0).unwrap();
    local.submit().unwrap();
    drop(writer);
    assert_eq!(next(&mut local).result().unwrap(), 0, "the end of a pipe");

    let (reader, writer) = pipe();
    let writer = Descriptor::from(OwnedFd::from(writer));
    // More than a pipe holds, so that the write waits for its reader.
    local.push(Operation::write_at(&writer, vec![1; 1 << 20], 0), 1).unwrap();
    local.submit().unwrap();
    drop(reader);
    let done = next(&mut local);
    match done.result() {
        Ok(written) => assert!(written < 1 << 20, "{written}"),
        Err(error) => assert_eq!(error.errno(), libc::EPIPE),
    }
}

/// Its reads cannot be asked not to block; a cancel said that it had worked, and the read stayed.
pub fn a_read_of_a_file_that_only_blocks_is_cancelled(way: Loop) {
    let mut local = way.build();
    let file = Descriptor::from(inotify::init(inotify::CreateFlags::CLOEXEC).unwrap());
    let ticket = local.push(Operation::read_at(file, vec![0; 512], 0), 1).unwrap();
    local.submit().unwrap();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_millis(20)).unwrap(), 0);
    local.push(Operation::cancel(ticket), 2).unwrap();
    for _ in 0..2 {
        let done = next(&mut local);
        match done.tag() {
            1 => assert_eq!(done.result().unwrap_err().kind(), ErrorKind::Cancelled),
            _ => assert_eq!(done.result().unwrap(), 0),
        }
    }
}

pub fn a_device_with_positions_has_them(way: Loop) {
    // The contents of a virtual console.
    let device = match File::open("/dev/vcsa1") {
        Ok(device) => device,
        Err(error) => return skip(&format!("/dev/vcsa1: {error}")),
    };
    let mut expected = [0; 16];
    device.read_exact_at(&mut expected, 2).unwrap();
    let mut local = way.build();
    let done = run(&mut local, Operation::read_at(Descriptor::from(device), vec![0; 16], 2));
    assert_eq!(done.result().unwrap(), 16);
    assert_eq!(done.into_buffer().unwrap().as_slice(), expected);
}

/// `O_NONBLOCK` is for callers who cannot wait; a completion can. (Linux before 5.19 answers with
/// `EAGAIN` on a ring: io_uring/rw.c, io_rw_init_file.)
pub fn a_read_of_a_nonblocking_pipe_waits(way: Loop) {
    let mut local = way.build();
    let (reader, mut writer) = pipe();
    rustix::fs::fcntl_setfl(reader.as_fd(), OFlags::NONBLOCK).unwrap();
    local.push(Operation::read_at(reader, vec![0; 8], 0), 0).unwrap();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_millis(20)).unwrap(), 0);
    writer.write_all(b"x").unwrap();
    assert_eq!(next(&mut local).result().unwrap(), 1);
    // So where that flag is the only way to ask.
    let file = Descriptor::from(inotify::init(inotify::CreateFlags::NONBLOCK).unwrap());
    local.push(Operation::read_at(file, vec![0; 512], 0), 0).unwrap();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_millis(20)).unwrap(), 0);
}

/// With a result there already, the loop once made the next call itself and blocked in it.
pub fn a_wait_for_what_is_ready_does_not_block(way: Loop) {
    let directory = Disk::real();
    let path = directory.path().join("fifo");
    mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut local = way.build();
    local.push(Operation::nop(), 1).unwrap();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_secs(5)).unwrap(), 1);
    // By its directory, so that a simulated loop finds it too.
    let held = Descriptor::from(File::open(directory.path()).unwrap());
    local.push(Operation::open_at(&held, "fifo", OpenOptions::new().read(true)), 2).unwrap();
    // A ring opens a FIFO without waiting for its other end (io_uring/openclose.c sets O_NONBLOCK
    // for its first attempt), so the open may be ready too.
    assert!(local.submit_and_wait(1).unwrap() >= 1);
    assert_eq!(local.next_completion().unwrap().tag(), 1);
    // Ends the open where it waits.
    let writer = File::options().write(true).open(&path).unwrap();
    next(&mut local).into_descriptor().unwrap();
    drop(writer);
}

pub fn waiting_costs_nothing(way: Loop) {
    let mut local: Local = way.build();
    let (reader, _writer) = pipe();
    local.push(Operation::read_at(reader, vec![0; 8], 0), 0).unwrap();
    let (start, before) = (Instant::now(), processor_time());
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_millis(300)).unwrap(), 0);
    let (waited, used) = (start.elapsed(), processor_time() - before);
    assert!(waited >= Duration::from_millis(300));
    assert!(used < waited / 4, "{used:?} of the processor in {waited:?}");
}

/// Of this thread.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
