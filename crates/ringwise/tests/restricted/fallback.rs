//! Where a ring cannot be had, the loop runs on classic calls and says why (invariant 8).
//!
//! Each test runs itself again as a child under a seccomp filter, since a filter cannot be taken
//! off.

use std::collections::BTreeMap;

use crate::rings::{in_child, may_have_threads};
use ringwise::{
    Backend, BackendChoice, Builder, Descriptor, Effect, FallbackReason, Local, Opcode, Operation,
    PushRefusal, SetupError,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

const SETUP: i64 = libc::SYS_io_uring_setup;
const ENTER: i64 = libc::SYS_io_uring_enter;

/// Answers `errno` to one system call, for this process from now on.
fn forbid(call: i64, errno: i32) {
    filter(call, errno, Vec::new());
}

/// The same, where one of these rules matches; always where there are none.
fn filter(call: i64, errno: i32, rules: Vec<SeccompRule>) {
    let rules = BTreeMap::from([(call, rules)]);
    let refuse = SeccompAction::Errno(errno as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// A loop on a ring; a skip where there is none.
fn ring(builder: Builder) -> Option<Local> {
    let built = builder.backend(BackendChoice::Uring).build();
    if let Err(error) = &built {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
        println!("skipped: {error}");
    }
    built.ok()
}

/// An ordinary loop works on classic calls and gives `reason`; a ring that is demanded is an error.
fn falls_back(reason: &str) {
    let mut local = Local::new().unwrap();
    assert_eq!(local.setup().backend(), Backend::Classic);
    let told = local.setup().fallback().unwrap().to_string();
    assert!(told.contains(reason), "{told}");
    let file = Descriptor::from(std::fs::File::open("/proc/self/comm").unwrap());
    let read = local.run(Operation::read_at(&file, vec![0; 64], 0)).unwrap();
    assert!(read.result().unwrap() > 0);

    let demanded = Local::builder().backend(BackendChoice::Uring).build().unwrap_err();
    assert!(matches!(demanded, SetupError::NoRing(_)));
    let told = demanded.to_string();
    assert!(told.starts_with("no io_uring: ") && told.contains(reason), "{told}");
}

#[test]
fn a_filter_that_answers_eperm() {
    in_child("fallback::a_filter_that_answers_eperm", || {
        forbid(SETUP, libc::EPERM);
        falls_back("io_uring_setup: Operation not permitted");
        falls_back("seccomp");
    });
}

#[test]
fn a_filter_that_answers_enosys() {
    in_child("fallback::a_filter_that_answers_enosys", || {
        forbid(SETUP, libc::ENOSYS);
        falls_back("io_uring_setup: Function not implemented");
    });
}

/// Rings count against the limit of locked memory before Linux 5.12.
#[test]
fn a_filter_that_answers_enomem() {
    in_child("fallback::a_filter_that_answers_enomem", || {
        forbid(SETUP, libc::ENOMEM);
        falls_back("io_uring_setup: Cannot allocate memory");
        falls_back("ulimit -l");
    });
}

/// A smaller ring may be within the limit, and a smaller one is better than none.
#[test]
fn a_ring_of_which_only_a_part_is_granted() {
    in_child("fallback::a_ring_of_which_only_a_part_is_granted", || {
        let Some(whole) = ring(Local::builder().entries(256)) else { return };
        let more_than_64 =
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, 64).unwrap();
        filter(SETUP, libc::ENOMEM, vec![SeccompRule::new(vec![more_than_64]).unwrap()]);
        let mut part = ring(Local::builder().entries(256)).unwrap();
        assert_eq!(part.setup().backend(), Backend::Uring);
        let entries = [&whole, &part].map(|local| local.setup().submission_entries());
        assert_eq!(entries, [256, 64]);
        part.run(Operation::nop()).unwrap().result().unwrap();
    });
}

#[test]
fn a_ring_that_opens_and_does_not_work() {
    in_child("fallback::a_ring_that_opens_and_does_not_work", || {
        forbid(ENTER, libc::EPERM);
        falls_back("a ring opened but does not work: io_uring_enter: Operation not permitted");
    });
}

/// The self-test once waited for ever.
#[test]
fn a_ring_whose_calls_do_nothing() {
    in_child("fallback::a_ring_whose_calls_do_nothing", || {
        forbid(ENTER, 0);
        falls_back("a ring opened but does not work: io_uring_enter: returned without taking");
    });
}

/// A full queue that the kernel did not empty was a panic.
#[test]
fn a_queue_that_stays_full() {
    in_child("fallback::a_queue_that_stays_full", || {
        let Some(mut local) = ring(Local::builder().entries(8)) else { return };
        for tag in 0..4 {
            local.push(Operation::nop(), tag).unwrap();
        }
        local.submit().unwrap();
        for tag in 4..12 {
            local.push(Operation::nop(), tag).unwrap();
        }
        forbid(ENTER, libc::EAGAIN);
        let error = local.push(Operation::nop(), 12).unwrap_err();
        assert!(
            matches!(error.reason, PushRefusal::Submit(ref why) if why.errno() == libc::EAGAIN)
        );
        assert_eq!(local.in_flight(), 12);
        std::mem::forget(local);
    });
}

/// Where no thread can be started, the loop's own makes the calls: a loop beside a ring hung.
#[test]
fn no_thread_can_be_started() {
    in_child("fallback::no_thread_can_be_started", || {
        let avoiding = Local::builder().backend(BackendChoice::Uring).avoid(&[Opcode::Read]);
        let classic = Local::builder().backend(BackendChoice::Classic);
        let loops: Vec<Local> = [avoiding, classic].into_iter().flat_map(Builder::build).collect();
        let file = Descriptor::from(std::fs::File::open("/proc/self/comm").unwrap());
        forbid(libc::SYS_clone3, libc::EAGAIN);
        forbid(libc::SYS_clone, libc::EAGAIN);
        for mut local in loops {
            for tag in 0..3 {
                local.push(Operation::read_at(&file, vec![0; 64], 0), tag).unwrap();
            }
            local.submit().unwrap();
            assert_eq!(local.submit_and_wait(3).unwrap(), 3);
            while let Some(done) = local.next_completion() {
                assert!(done.result().unwrap() > 0);
            }
        }
    });
}

/// There was no ring at all then. What would wait in the kernel has no thread either and is cancelled
/// (io_uring/io-wq.c, io_wq_enqueue); the rest works.
#[test]
fn no_submission_thread_can_be_started() {
    in_child("fallback::no_submission_thread_can_be_started", || {
        let Some(plain) = ring(Local::builder()) else { return };
        let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::io::Write::write_all(&mut file, b"a line\n").unwrap();
        let file = Descriptor::from(file);
        if !may_have_threads(1) {
            return;
        }
        let builder = Local::builder().backend(BackendChoice::Uring);
        let mut local = builder.sqpoll(Some(std::time::Duration::from_millis(10))).build().unwrap();
        let setup = local.setup();
        assert!(setup.asked().has("SQPOLL"));
        assert_eq!(setup.granted(), plain.setup().granted(), "as if it had not been asked for");
        let Effect::Ineffective(reason) = setup.sqpoll() else { panic!("{}", setup.sqpoll()) };
        assert!(reason.contains("io_uring_setup: Resource temporarily unavailable"), "{reason}");
        assert!(reason.contains("ulimit -u"), "{reason}");
        let read = local.run(Operation::read_at(&file, vec![0; 64], 0)).unwrap();
        assert_eq!(read.result().unwrap(), 7);
    });
}

/// It was told with each file, as `ENXIO`.
#[test]
fn a_table_of_files_beyond_the_limit() {
    in_child("fallback::a_table_of_files_beyond_the_limit", || {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = Rlimit { current: Some(256), maximum: Some(256) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let Some(mut local) = ring(Local::builder().registered_files(1024)) else { return };
        let file = Descriptor::from(std::fs::File::open("/proc/self/comm").unwrap());
        let error = local.register_file(&file).unwrap_err();
        assert_eq!(error.errno(), libc::EMFILE);
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    });
}

#[test]
fn descriptors_exhausted() {
    in_child("fallback::descriptors_exhausted", || {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let held = std::fs::File::open("/proc/self/comm").unwrap();
        let limit = std::os::fd::AsRawFd::as_raw_fd(&held) as u64 + 3;
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
        // Two descriptors are left: the classic backend's, but not a ring's and its test's.
        let local = Local::new().unwrap();
        let reason = local.setup().fallback().unwrap();
        assert!(matches!(reason, FallbackReason::SelfTest(_) | FallbackReason::Refused(_)));
        assert_eq!(local.setup().backend(), Backend::Classic);
    });
}

#[test]
fn a_number_of_entries_that_cannot_be() {
    for entries in [0, 32_769, u32::MAX] {
        let error = Local::builder().entries(entries).build().unwrap_err();
        assert!(matches!(error, SetupError::Entries(told) if told == entries));
    }
    for choice in [BackendChoice::Auto, BackendChoice::Classic] {
        let mut one = Local::builder().entries(1).backend(choice).build().unwrap();
        assert!(one.capacity() >= 1);
        one.run(Operation::nop()).unwrap().result().unwrap();
    }
    Local::builder().entries(32_768).build().unwrap();
}

#[test]
fn classic_can_be_demanded() {
    let local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
    assert_eq!(local.setup().fallback(), Some(&FallbackReason::Chosen));
}

#[test]
fn a_failed_enter_frees_nothing() {
    in_child("fallback::a_failed_enter_frees_nothing", || {
        let Some(mut local) = ring(Local::builder()) else { return };
        let pool = local.register_pool(1, 4096).unwrap();
        let file = Descriptor::from(std::fs::File::open("/proc/self/comm").unwrap());
        local.push(Operation::read_at(&file, pool.take().unwrap(), 0), 0).unwrap();
        forbid(ENTER, libc::EAGAIN);
        for _ in 0..3 {
            let error = local.submit_and_wait(1).unwrap_err();
            assert_eq!((error.opcode(), error.errno()), (Opcode::Submit, libc::EAGAIN));
        }
        assert_eq!((local.in_flight(), pool.available()), (1, 0), "it stays queued");
        let leaked = local.shutdown(std::time::Duration::from_millis(20)).unwrap_err();
        assert_eq!((leaked.operations, pool.available()), (1, 0), "the entry may yet be taken");
    });
}
