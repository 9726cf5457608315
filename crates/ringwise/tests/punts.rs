//! What a ring says of the kernel's worker threads, beside what the kernel counts. A file of its own,
//! because the tests of one file share a process and would be counted too.

use std::{collections::HashSet, fs, path::PathBuf};

use futures::executor::block_on;
use ringwise::{
    AllocateMode, BackendChoice, Local, OpenOptions, Operation, fs::File, sim::Simulation,
};

const EVENT: &str = "/sys/kernel/tracing/events/io_uring/io_uring_queue_async_work/enable";
const TRACE: &str = "/sys/kernel/tracing/trace";

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

/// How many operations this process handed to workers since the kernel was asked to tell.
fn told_by_the_kernel() -> usize {
    let trace = fs::read_to_string(TRACE).unwrap();
    let threads: HashSet<String> = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|thread| format!("-{}", thread.unwrap().file_name().display()))
        .collect();
    let is_ours = |line: &&str| {
        let thread = line.split_whitespace().next().unwrap();
        threads.iter().any(|number| thread.ends_with(number.as_str()))
    };
    trace.lines().filter(|line| line.contains("io_uring_queue_async_work")).filter(is_ours).count()
}

#[test]
fn as_many_operations_went_to_workers_as_the_kernel_says() {
    let builder = Local::builder().backend(BackendChoice::Uring).driver_thread(true);
    let ring = match builder.build_ring() {
        Ok(ring) => ring,
        Err(error) => return skip(&error.to_string()),
    };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| directory.path().join(name);
    let options = OpenOptions::new().read(true).write(true);
    if let Err(error) = fs::write(TRACE, "").and_then(|()| fs::write(EVENT, "1")) {
        return skip(&format!("{EVENT}: {error}"));
    }
    let mut expected = 0;
    block_on(async {
        let mut tell = |what: &str, more: u64| {
            expected += more;
            let told = (ring.stats().local.worker_punts, told_by_the_kernel() as u64);
            assert_eq!(told, (expected, expected), "{what}");
        };
        let file = File::open(&ring, at("file"), options.create(true)).await.unwrap();
        tell("an open that makes a file", 1);
        file.set_len(100).await.unwrap();
        file.allocate(AllocateMode::Extend, 0, 4096).await.unwrap();
        tell("its length, space", 2);
        file.metadata().await.unwrap();
        tell("its metadata, which the caller's thread reads", 0);
        file.sync_data().await.unwrap();
        file.chain().sync_all().sync_all().run().await.into_iter().for_each(|step| {
            step.result.unwrap();
        });
        tell("syncs, two of them linked", 3);
        for operation in [
            Operation::create_dir(at("directory"), 0o700),
            Operation::rename(at("directory"), at("other")),
            Operation::link(at("file"), at("again")),
            Operation::unlink(at("again")),
        ] {
            ring.submit(operation).await.result().unwrap();
        }
        tell("names", 4);
        // The first is tried without waiting, and refused; of the second that is known.
        let hits = ring.stats().inline_hits;
        for _ in 0..2 {
            file.write_at(vec![7; 512], 0).await.0.unwrap();
        }
        let is_refused = ring.stats().inline_hits == hits;
        tell("writes, if the file system knows none that must not wait", 2 * u64::from(is_refused));
        let hits = ring.stats().inline_hits;
        file.read_at(vec![0; 512], 0).await.0.unwrap();
        assert_eq!(ring.stats().inline_hits, hits + 1);
        tell("a read of what is cached", 0);
        // Past its limit of processes it would be the loop's own threads.
        ring.submit(Operation::statx(at("file"))).await.metadata().unwrap();
        tell("metadata by name", 1);
    });
    fs::write(EVENT, "0").unwrap();
    others_have_no_workers(at("file"));
}

fn others_have_no_workers(file: PathBuf) {
    let classic = Local::builder().backend(BackendChoice::Classic).build_ring().unwrap();
    let simulated = Local::builder().simulation(&Simulation::new(1)).build_ring().unwrap();
    for (ring, path) in [(classic, file), (simulated, "/file".into())] {
        block_on(async {
            let file =
                File::open(&ring, path, OpenOptions::new().read(true).write(true).create(true))
                    .await
                    .unwrap();
            file.sync_all().await.unwrap();
        });
        assert_eq!(ring.stats().local.worker_punts, 0);
    }
}
