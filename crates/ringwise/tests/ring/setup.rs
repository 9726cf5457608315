//! What was asked for and what was granted; polling modes that have no effect say so.

use std::{os::fd::OwnedFd, time::Duration};

use ringwise::{
    BackendChoice, Builder, Descriptor, Effect, Local, Opcode, OpenOptions, Operation, SetupError,
};

fn ring(local: Result<Local, SetupError>) -> Option<Local> {
    match local {
        Ok(local) => Some(local),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

#[test]
fn what_is_asked_for_can_be_read() {
    let builder = Local::builder().backend(BackendChoice::Uring).entries(100);
    let Some(local) = ring(builder.build()) else { return };
    let setup = local.setup();
    assert_eq!(setup.submission_entries(), 128, "rounded up");
    assert_eq!(setup.completion_entries(), 256);
    assert!(local.capacity() >= 128);
    assert!(setup.asked().has("DEFER_TASKRUN"));
    for granted in setup.granted().iter() {
        assert!(setup.asked().has(granted), "{granted} was not asked for");
    }
    assert_eq!(setup.sqpoll(), &Effect::NotAsked);
    assert_eq!(setup.iopoll(), &Effect::NotAsked);
}

#[test]
fn the_lengths_of_the_queues_may_be_set_in_either_order() {
    let builder = || Local::builder().backend(BackendChoice::Uring);
    let length = |builder: Builder| Some(ring(builder.build())?.setup().completion_entries());
    let Some(unset) = length(builder()) else { return };
    assert_eq!(unset, 4096);
    assert_eq!(length(builder().entries(64)), Some(128));
    assert_eq!(length(builder().entries(64).completion_entries(512)), Some(512));
    assert_eq!(length(builder().completion_entries(512).entries(64)), Some(512));
}

#[test]
fn a_submission_thread_says_that_it_is_effective() {
    let builder =
        Local::builder().backend(BackendChoice::Uring).sqpoll(Some(Duration::from_millis(50)));
    let Some(mut local) = ring(builder.build()) else { return };
    assert_eq!(local.setup().sqpoll(), &Effect::Effective);
    assert!(!local.setup().granted().has("DEFER_TASKRUN"), "the kernel takes one of the two");
    for _ in 0..100 {
        local.run(Operation::nop()).unwrap().result().unwrap();
    }
}

#[test]
fn a_polling_ring_says_whether_it_polls() {
    let builder = Local::builder().backend(BackendChoice::Uring).iopoll(true);
    let Some(mut local) = ring(builder.build()) else { return };
    assert_eq!(local.setup().iopoll(), &Effect::Unknown);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![1; 8192]).unwrap();
    let mut opener = Local::new().unwrap();
    let open = Operation::open(&path, OpenOptions::new().read(true).direct(true));
    let file = opener.run(open).unwrap().into_descriptor().unwrap();
    match local.probe_iopoll(&file).unwrap() {
        Effect::Effective => {}
        Effect::Ineffective(reason) => {
            assert!(reason.contains("io_poll"), "{reason}");
            // Reported, not replaced: the next read fails in the same way.
            let buffer = ringwise::AlignedBuf::zeroed(4096, 4096);
            let read = local.run(Operation::read_at(&file, buffer, 0)).unwrap();
            assert!(read.result().is_err());
        }
        other => panic!("{other:?}"),
    }
    assert_ne!(local.setup().iopoll(), &Effect::Unknown, "the answer is kept");
}

#[test]
fn a_polling_probe_of_a_loop_that_does_not_poll() {
    let mut local = Local::new().unwrap();
    let file = std::fs::File::open("/dev/zero").unwrap().into();
    assert_eq!(local.probe_iopoll(&file).unwrap(), Effect::NotAsked);
}

#[test]
fn many_loops_in_one_thread() {
    // The kernel registers sixteen rings with a thread; those beyond are entered by descriptor.
    let loops: Vec<Option<Local>> = (0..20)
        .map(|_| ring(Local::builder().backend(BackendChoice::Uring).entries(8).build()))
        .collect();
    for mut local in loops.into_iter().flatten() {
        local.run(Operation::nop()).unwrap().result().unwrap();
    }
    // And a dropped ring gives its place back.
    for _ in 0..40 {
        let Some(local) = ring(Local::builder().backend(BackendChoice::Uring).entries(8).build())
        else {
            return;
        };
        assert!(local.setup().is_ring_registered());
    }
}

/// A polled ring takes reads, writes and no-ops; the rest is made beside it, and the loop sleeps
/// meanwhile. (It spun.)
#[test]
fn a_polling_ring_makes_other_calls_beside_it() {
    let builder = Local::builder().backend(BackendChoice::Uring).iopoll(true);
    let Some(mut local) = ring(builder.build()) else { return };
    assert!(local.supports(Opcode::Read) && !local.supports(Opcode::Statx));
    local.run(Operation::nop()).unwrap().result().unwrap();
    local.run(Operation::statx("/")).unwrap().metadata().unwrap();
    let open = Operation::open("/dev/null", OpenOptions::new().read(true));
    local.run(open).unwrap().into_descriptor().unwrap();
    let before = processor_time();
    local.run(Operation::timeout(Duration::from_millis(300))).unwrap().result().unwrap();
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(75), "{used:?} of the processor for a sleep");
    // What has no queue to be polled.
    let file = Descriptor::from(std::fs::File::open("/proc/self/exe").unwrap());
    let read = local.run(Operation::read_at(&file, vec![0; 4], 0)).unwrap();
    assert_eq!(read.result().unwrap(), 4);
    assert_eq!(read.into_buffer().unwrap().as_slice(), b"\x7fELF");
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"pipe").unwrap();
    let pipe = Descriptor::from(OwnedFd::from(reader));
    assert_eq!(local.run(Operation::read_at(&pipe, vec![0; 4], 0)).unwrap().result().unwrap(), 4);
}

/// Its driver's read of what wakes it failed at once, again and again.
#[test]
fn a_polling_ring_with_a_driver_thread_sleeps() {
    let builder = Local::builder().backend(BackendChoice::Uring).iopoll(true).driver_thread(true);
    let ring = match builder.build_ring() {
        Ok(ring) => ring,
        Err(error) => return skip(&error.to_string()),
    };
    let statx = || futures::executor::block_on(ring.submit(Operation::statx("/"))).metadata();
    statx().unwrap();
    let before = ring.stats().local.enters;
    std::thread::sleep(Duration::from_millis(300));
    statx().unwrap();
    let enters = ring.stats().local.enters - before;
    assert!(enters < 20, "{enters} enters of a ring that had nothing to do");
}

/// Of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// More slots than the completion queue has room for would overflow it (invariant 3).
#[test]
fn the_completion_queue_holds_all_that_can_be_in_flight() {
    for entries in [1, 2, 8, 128] {
        for backend in [BackendChoice::Auto, BackendChoice::Classic] {
            let local = Local::builder().entries(entries).backend(backend).build().unwrap();
            let own = local.setup().completion_entries() as usize - local.capacity();
            assert!(own >= 2, "room for the poll and a cancel of the loop's own, not {own}");
        }
    }
}

/// All reads of a full loop were cancelled at once, and the queue overflowed.
#[test]
fn the_shutdown_of_a_full_loop_overflows_nothing() {
    const EVENT: &str = "/sys/kernel/tracing/events/io_uring/io_uring_cqe_overflow";
    const TRACE: &str = "/sys/kernel/tracing/trace";
    let builder = Local::builder().backend(BackendChoice::Uring).entries(16);
    let Some(mut local) = ring(builder.build()) else { return };
    let pipes: Vec<_> = (0..local.capacity()).map(|_| std::io::pipe().unwrap()).collect();
    for (reader, _) in &pipes {
        let reader = Descriptor::from(OwnedFd::from(reader.try_clone().unwrap()));
        local.push(Operation::read_at(reader, vec![0; 8], 0), 0).unwrap();
    }
    local.submit().unwrap();
    if let Err(error) = std::fs::write(format!("{EVENT}/enable"), "1") {
        return skip(&format!("{EVENT}: {error}"));
    }
    local.shutdown(Duration::from_secs(5)).unwrap();
    let trace = std::fs::read_to_string(TRACE).unwrap();
    std::fs::write(format!("{EVENT}/enable"), "0").unwrap();
    let this = format!("-{} ", rustix::thread::gettid().as_raw_nonzero());
    let overflows =
        trace.lines().filter(|line| line.contains("cqe_overflow") && line.contains(&this));
    assert_eq!(overflows.count(), 0);
}

/// The machine's time in which a processor had nothing to do and a thread waited for I/O, in clock ticks.
fn iowait_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let total = stat.lines().next().unwrap();
    total.split_ascii_whitespace().nth(5).unwrap().parse().unwrap()
}

/// A thread that waits for a completion counted as one that waits for a disk: a processor without work
/// was shown as busy with I/O for as long as a server was idle.
#[test]
fn an_idle_ring_is_no_wait_for_io() {
    let Ok(mut local) = Local::builder().backend(BackendChoice::Uring).build() else {
        return skip("no ring");
    };
    if !local.setup().waits_are_idle() {
        return skip("the kernel knows no IORING_ENTER_NO_IOWAIT (Linux 6.15)");
    }
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let ours = Descriptor::from(OwnedFd::from(ours));
    local.push(Operation::recv(&ours, vec![0; 8]), 0).unwrap();
    // Others may wait for a disk meanwhile; this ring, if it counted, would do so each time.
    let least = (0..20).map(|_| {
        let before = iowait_ticks();
        local.submit_and_wait_timeout(1, Duration::from_millis(200)).unwrap();
        iowait_ticks() - before
    });
    let least = least.take_while(|ticks| *ticks > 4).count();
    assert!(least < 20, "in none of 20 waits was there a processor that was idle");
}
