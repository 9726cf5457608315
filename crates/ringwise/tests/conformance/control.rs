//! No-ops, time, cancelling, shutting down, signals.

use std::{
    io::{Read, Write},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use ringwise::{Descriptor, ErrorKind, Local, Operation, Ticket};

use crate::loops::{Loop, next, run};

pub fn a_noop_completes_with_its_tag(way: Loop) {
    let mut local = way.build();
    for tag in 0..10 {
        local.push(Operation::nop(), tag).unwrap();
    }
    assert_eq!(local.submit_and_wait(10).unwrap(), 10);
    let mut tags: Vec<u64> = std::iter::from_fn(|| local.next_completion())
        .map(|done| {
            assert_eq!(done.result().unwrap(), 0);
            done.tag()
        })
        .collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..10).collect::<Vec<_>>());
    assert!(local.next_completion().is_none());
}

pub fn a_timeout_takes_its_time(way: Loop) {
    let mut local = way.build();
    let start = way.now();
    local.push(Operation::timeout(Duration::from_millis(60)), 1).unwrap();
    local.push(Operation::timeout(Duration::from_millis(20)), 2).unwrap();
    let first = next(&mut local);
    assert_eq!((first.tag(), first.result().unwrap()), (2, 0));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(next(&mut local).tag(), 1);
    assert!(start.elapsed() >= Duration::from_millis(60));
}

pub fn a_wait_ends_at_its_deadline(way: Loop) {
    let mut local = way.build();
    let start = way.now();
    local.push(Operation::timeout(Duration::from_secs(3600)), 0).unwrap();
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_millis(30)).unwrap(), 0);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(local.submit_and_wait_timeout(1, Duration::ZERO).unwrap(), 0);
    assert_eq!(local.in_flight(), 1);
    // Where some results are ready, and not as many as were to be waited for, too.
    local.push(Operation::nop(), 1).unwrap();
    assert_eq!(local.submit_and_wait_timeout(2, Duration::from_millis(30)).unwrap(), 1);
    assert_eq!(local.next_completion().map(|done| done.tag()), Some(1));
}

/// A read that waits for a pipe to hold something.
fn pending_read(local: &mut Local) -> (Ticket, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = Descriptor::from(OwnedFd::from(reader));
    let ticket = local.push(Operation::read_at(reader, vec![5; 32], 0), 1).unwrap();
    local.submit().unwrap();
    (ticket, writer)
}

pub fn a_cancel_before_completion(way: Loop) {
    cancels_a_pending_read(way, Duration::ZERO);
}

pub fn a_cancel_of_what_is_under_way(way: Loop) {
    // By then a thread, where one makes the call, has it.
    cancels_a_pending_read(way, Duration::from_millis(50));
}

fn cancels_a_pending_read(way: Loop, after: Duration) {
    let mut local = way.build();
    let (ticket, _writer) = pending_read(&mut local);
    std::thread::sleep(after);
    local.push(Operation::cancel(ticket), 2).unwrap();
    let mut seen = 0;
    for _ in 0..2 {
        let done = next(&mut local);
        seen += done.tag();
        match done.tag() {
            1 => {
                assert_eq!(done.result().unwrap_err().kind(), ErrorKind::Cancelled);
                assert_eq!(done.into_buffer().unwrap().into_vec().unwrap(), [5; 32]);
            }
            _ => assert_eq!(done.result().unwrap(), 0),
        }
    }
    assert_eq!((seen, local.in_flight()), (3, 0));
}

pub fn a_cancel_after_completion(way: Loop) {
    let mut local = way.build();
    let (ticket, mut writer) = pending_read(&mut local);
    writer.write_all(b"x").unwrap();
    assert_eq!(next(&mut local).result().unwrap(), 1);
    let error = run(&mut local, Operation::cancel(ticket)).result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NothingToCancel);
    // A new operation in the same slot is not the one that the old ticket names.
    let (_, mut writer) = pending_read(&mut local);
    let error = run(&mut local, Operation::cancel(ticket)).result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NothingToCancel);
    writer.write_all(b"y").unwrap();
    assert_eq!(next(&mut local).result().unwrap(), 1);
}

pub fn a_timeout_is_cancelled(way: Loop) {
    let mut local = way.build();
    let ticket = local.push(Operation::timeout(Duration::from_secs(3600)), 1).unwrap();
    run(&mut local, Operation::cancel(ticket)).result().unwrap();
    let done = next(&mut local);
    assert_eq!((done.tag(), done.result().unwrap_err().kind()), (1, ErrorKind::Cancelled));
}

/// A ticket was once a slot's number alone, and every loop has a first slot.
pub fn a_ticket_of_another_loop_cancels_nothing(way: Loop) {
    let (mut one, mut two) = (way.build(), way.build());
    let (of_one, _writer) = pending_read(&mut one);
    let (_, mut writer) = pending_read(&mut two);
    let error = run(&mut two, Operation::cancel(of_one)).result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NothingToCancel);
    writer.write_all(b"x").unwrap();
    assert_eq!(next(&mut two).result().unwrap(), 1);
}

pub fn a_single_operation_leaves_others_alone(way: Loop) {
    let (mut local, directory) = (way.build(), way.disk());
    let path = directory.counted_file(10);
    let (_, mut writer) = pending_read(&mut local);
    local.push(Operation::nop(), 7).unwrap();
    assert_eq!(run(&mut local, Operation::statx(&path)).metadata().unwrap().len(), 10);
    writer.write_all(b"late").unwrap();
    let mut tags = [next(&mut local).tag(), next(&mut local).tag()];
    tags.sort_unstable();
    assert_eq!(tags, [1, 7]);
}

pub fn a_shutdown_cancels_reads(way: Loop) {
    let mut local = way.build();
    let (_, writer) = pending_read(&mut local);
    local.push(Operation::timeout(Duration::from_secs(3600)), 0).unwrap();
    let start = way.now();
    local.shutdown(Duration::from_secs(20)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "they were cancelled, not waited for");
    drop(writer);
}

pub fn a_dropped_loop_finishes_its_writes(way: Loop) {
    let mut local = way.build();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let filled = fill(&mut writer);
    let writer = Descriptor::from(OwnedFd::from(writer));
    local.push(Operation::write_at(writer, vec![0xAB; 4096], 0), 0).unwrap();
    local.submit().unwrap();
    let drain = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    });
    drop(local);
    let bytes = drain.join().unwrap();
    assert_eq!(bytes.len(), filled + 4096, "the write went on to its end");
    assert!(bytes[filled..].iter().all(|&byte| byte == 0xAB), "from memory that was still its own");
}

/// Fills a pipe until it takes no more.
fn fill(writer: &mut std::io::PipeWriter) -> usize {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    let mut filled = 0;
    while let Ok(count) = writer.write(&[1; 4096]) {
        filled += count;
    }
    fcntl_setfl(&writer, flags).unwrap();
    filled
}

pub fn a_signal_does_not_end_a_wait(way: Loop) {
    static STOP: AtomicBool = AtomicBool::new(false);
    install_handler();
    let mut local = way.build();
    let (_, mut writer) = pending_read(&mut local);
    // SAFETY: `pthread_self` has no preconditions.
    let waiter = unsafe { libc::pthread_self() };
    let stop = &STOP;
    stop.store(false, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..50 {
                // SAFETY: the waiting thread lives until the scope ends, which waits for this one.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_millis(1));
            }
            writer.write_all(b"after fifty signals").unwrap();
        });
        let start = Instant::now();
        let read = next(&mut local);
        assert_eq!(read.result().unwrap(), 19);
        assert!(start.elapsed() >= Duration::from_millis(50));
    });
}

/// A handler without `SA_RESTART`: system calls end with `EINTR`.
fn install_handler() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a zeroed `sigaction` is valid, and the handler touches nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}
