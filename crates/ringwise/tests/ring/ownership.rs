//! Memory that the kernel may touch is not freed before it is done (invariants 1, 2, 7 and 13).
//!
//! The allocator of this test overwrites what is freed. A loop that let go of a buffer too early
//! would send overwritten bytes, or the kernel would write into memory that is somebody else's.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::{Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use ringwise::{BackendChoice, BufferGroup, Descriptor, Local, OpenOptions, Operation};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

struct Overwriting;

const FREED: u8 = 0xDD;
/// The memory of a pool or a group that is watched: nothing else here is as long and as aligned.
const WATCHED: (usize, usize) = (7 * 4096, 4096);

std::thread_local! {
    /// How often this thread freed such memory. Other tests run beside this one.
    static WATCHED_FREED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator; what it frees it overwrites before.
unsafe impl GlobalAlloc for Overwriting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if (layout.size(), layout.align()) == WATCHED {
            WATCHED_FREED.set(WATCHED_FREED.get() + 1);
        }
        // SAFETY: the memory is the caller's to free, so it is nobody's to read.
        unsafe {
            std::ptr::write_bytes(pointer, FREED, layout.size());
            System.dealloc(pointer, layout);
        }
    }
}

#[global_allocator]
static ALLOCATOR: Overwriting = Overwriting;

fn loops() -> Vec<Local> {
    [BackendChoice::Uring, BackendChoice::Classic]
        .into_iter()
        .filter_map(|choice| match Local::builder().entries(8).backend(choice).build() {
            Ok(local) => Some(local),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
                println!("skipped: {error}");
                None
            }
        })
        .collect()
}

/// A pipe that takes no more, and how much it holds.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter, usize) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = set_nonblocking(&writer);
    let mut filled = 0;
    while let Ok(count) = writer.write(&[1; 4096]) {
        filled += count;
    }
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer, filled)
}

/// Makes a pipe's end non-blocking and gives the flags that it had.
fn set_nonblocking(end: impl AsFd) -> OFlags {
    let flags = fcntl_getfl(&end).unwrap();
    fcntl_setfl(&end, flags | OFlags::NONBLOCK).unwrap();
    flags
}

#[test]
fn a_dropped_loop_keeps_the_memory_of_a_write_in_flight() {
    for mut local in loops() {
        let (mut reader, writer, filled) = full_pipe();
        let writer = Descriptor::from(OwnedFd::from(writer));
        local.push(Operation::write_at(writer, vec![0xAB; 4096], 0), 0).unwrap();
        local.submit().unwrap();
        let drain = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150));
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        });
        drop(local);
        let bytes = drain.join().unwrap();
        assert_eq!(bytes.len(), filled + 4096);
        assert!(bytes[filled..].iter().all(|&byte| byte == 0xAB), "freed memory was written");
    }
}

#[test]
fn a_forgotten_loop_leaks_and_nothing_worse() {
    for mut local in loops() {
        let (mut reader, writer, filled) = full_pipe();
        let writer = Descriptor::from(OwnedFd::from(writer));
        local.push(Operation::write_at(writer, vec![0xAB; 4096], 0), 0).unwrap();
        local.submit().unwrap();
        std::mem::forget(local);
        reader.read_exact(&mut vec![0; filled]).unwrap();
        // A thread of the pool goes on; a ring that defers work does nothing unless it is entered.
        // Whatever comes has to come from memory that was not freed.
        set_nonblocking(&reader);
        let mut bytes = Vec::new();
        std::thread::sleep(Duration::from_millis(50));
        let _ = reader.read_to_end(&mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0xAB), "freed memory was written");
    }
}

#[test]
fn what_does_not_come_back_is_leaked_and_told() {
    // Opening a FIFO for reading waits for a writer, and a thread in open(2) cannot be stopped.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut local = Local::builder().entries(8).backend(BackendChoice::Classic).build().unwrap();
    let held = Descriptor::from(std::fs::File::open(directory.path()).unwrap());
    let number = held.as_raw_fd();
    local.push(Operation::open_at(&held, "fifo", OpenOptions::new().read(true)), 0).unwrap();
    drop(held);
    local.submit().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let leaked = local.shutdown(Duration::from_millis(50)).unwrap_err();
    assert_eq!(leaked.operations, 1);
    assert!(leaked.to_string().contains("leaked"), "{leaked}");
    // The thread still has the directory's number and the path's address: nothing may be freed.
    let leads_to = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
    assert_eq!(leads_to, directory.path(), "the number was closed under the call");
    drop(std::fs::File::options().write(true).open(&path).unwrap());
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn a_lease_outlives_its_loop() {
    for mut local in loops() {
        let pool = local.register_pool(2, 4096).unwrap();
        let mut lease = pool.take().unwrap();
        drop((pool, local));
        lease.fill(7);
        let other = vec![0_u8; 8192];
        assert!(lease.iter().all(|&byte| byte == 7));
        drop(other);
    }
}

/// The kernel has the pages of a pool and of a group, whoever else has gone.
#[test]
fn what_is_registered_lives_as_long_as_its_loop() {
    for mut local in loops() {
        let pool = local.register_pool(7, 4096).unwrap();
        let group = BufferGroup::new(&mut local, 16, 1792).unwrap();
        let registered = usize::from(pool.is_registered()) + usize::from(group.is_registered());
        let before = WATCHED_FREED.get();
        let freed = || WATCHED_FREED.get() - before;
        drop((pool, group));
        assert_eq!(freed(), 2 - registered);
        drop(local);
        assert_eq!(freed(), 2);
    }
}

/// What nobody uses any more is given up while the loop lives, and its place is another's.
#[test]
fn what_was_registered_is_given_up_after_its_last_user() {
    for mut local in loops() {
        let before = WATCHED_FREED.get();
        let freed = || WATCHED_FREED.get() - before;
        let pool = local.register_pool(7, 4096).unwrap();
        let group = BufferGroup::new(&mut local, 16, 1792).unwrap();
        let is_registered = (pool.is_registered(), group.is_registered());
        let lease = pool.take().unwrap();
        drop((pool, group));
        local.submit().unwrap();
        assert_eq!(freed(), 1, "the lease has the pool");
        drop(lease);
        local.submit().unwrap();
        assert_eq!(freed(), 2);
        // More than the ring has places for.
        for _ in 0..200 {
            let pool = local.register_pool(1, 4096).unwrap();
            let group = BufferGroup::new(&mut local, 2, 64).unwrap();
            assert_eq!((pool.is_registered(), group.is_registered()), is_registered);
        }
    }
}

#[test]
fn a_group_lives_as_long_as_a_receive_from_it() {
    for mut local in loops() {
        let group = BufferGroup::new(&mut local, 2, 64).unwrap();
        let (own, mut peer) = UnixStream::pair().unwrap();
        let own = Descriptor::from(OwnedFd::from(own));
        local.push(Operation::recv_multi(&own, &group), 0).unwrap();
        local.submit().unwrap();
        drop(group);
        peer.write_all(b"kept").unwrap();
        local.submit_and_wait(1).unwrap();
        let lease = local.next_completion().unwrap().into_received().unwrap();
        assert_eq!(&*lease, b"kept");
    }
}

#[test]
fn a_panic_with_operations_in_flight_frees_nothing_early() {
    for local in loops() {
        let (mut reader, writer, filled) = full_pipe();
        let drain = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150));
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let mut local = local;
            let writer = Descriptor::from(OwnedFd::from(writer));
            local.push(Operation::write_at(writer, vec![0xAB; 4096], 0), 0).unwrap();
            local.submit().unwrap();
            panic!("the user's own");
        }));
        assert!(panicked.is_err());
        let bytes = drain.join().unwrap();
        assert_eq!(bytes.len(), filled + 4096);
        assert!(bytes[filled..].iter().all(|&byte| byte == 0xAB), "freed memory was written");
    }
}
