//! What was asked for and what was granted; polling modes that have no effect say so.

use std::time::Duration;

use ringwise::{BackendChoice, Effect, Local, OpenOptions, Operation, SetupError};

fn ring(local: Result<Local, SetupError>) -> Option<Local> {
    match local {
        Ok(local) => Some(local),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
            println!("skipped: {error}");
            None
        }
    }
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
    match local.probe_iopoll(&file) {
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
    assert_eq!(local.probe_iopoll(&file), Effect::NotAsked);
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
