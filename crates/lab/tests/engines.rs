//! Every engine on real files: it reads what was written, notices what was not, and says so.
//!
//! Direct reads are tried on the file system of the build.

#[path = "../../measure/tests/shared/tracefs.rs"]
mod tracefs;

use std::{fs, os::unix::fs::FileExt, sync::Arc, time::Duration};

use ringwise_lab::{
    checks::gates,
    dataset::{DataFile, Directory, Layout, Size},
    engine::{
        Engine, Named, Tally,
        aio::Aio,
        chain::{Flow, RingChain, SyncKind},
        fio::{Fio, Way},
        handle::Ringwise,
        mmap::Mapped,
        sync::Sync,
        threads::Threads,
        tokio::Tokio,
        uring::{Switches, Uring},
    },
    results::row::{Row, RowKind},
    sampling::{
        job::{Cache, Extent, Failure, Job, Pattern, Start, Timing, Window},
        lane::{Counts, Record},
        sample::{self, Instruments},
        schedule::{Schedule, Spare},
    },
    workload::{
        objects::{RANGES, Store},
        read::page_cache,
    },
};
use ringwise_measure::{Latency, Sources};
use tracefs::Tracefs;

const SEED: u64 = 3;
const FILE_BYTES: u64 = 1 << 20;
const TIMING: Timing =
    Timing { warm_up: Duration::from_millis(5), extent: Extent::Time(Duration::from_millis(40)) };

struct Files {
    files: Vec<DataFile>,
    _directory: Directory,
    _parent: tempfile::TempDir,
}

fn files() -> Files {
    let parent = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = Directory::open(parent.path(), false).unwrap();
    let size = Size::exactly(2 * FILE_BYTES);
    let files =
        Layout { set: "test", files: 2, size, seed: SEED }.lay(&directory, &mut |_| true).unwrap();
    Files { files, _directory: directory, _parent: parent }
}

fn job(files: &Files, depth: usize, cache: Cache) -> Job {
    let pattern = if cache == Cache::Bypassed { Pattern::Random } else { Pattern::Sequential };
    Job {
        files: files.files.clone().into(),
        seed: SEED,
        block_bytes: 4096,
        depth,
        pattern,
        cache,
        order_seed: 1,
        heatmap: false,
        interrupt: Arc::default(),
        failed: false.into(),
        latency: Record::default(),
    }
}

/// Without the process's account of its reads: other tests read at the same time.
fn instruments() -> Instruments {
    Instruments { sources: Sources::below("/nonexistent"), device_number: None, idle: None }
}

fn uring(text: &str) -> Box<dyn Engine> {
    Box::new(Uring { switches: Switches::parse(text).unwrap() })
}

/// Each engine with its depth.
fn engines() -> Vec<(&'static str, Box<dyn Engine>, usize)> {
    vec![
        ("sync", Box::new(Sync), 1),
        ("mmap", Box::new(Mapped), 1),
        ("mmap", Box::new(Mapped), 8),
        ("threads", Box::new(Threads), 1),
        ("threads", Box::new(Threads), 8),
        ("tokio", Box::new(Tokio), 1),
        ("tokio", Box::new(Tokio), 8),
        ("ringwise", Box::new(Ringwise::default()), 1),
        ("ringwise", Box::new(Ringwise::default()), 8),
        ("ringwise", Box::new(Ringwise { driver_thread: true, ..Ringwise::default() }), 8),
        ("aio", Box::new(Aio), 1),
        ("aio", Box::new(Aio), 8),
        ("uring", uring(""), 1),
        ("uring", uring(""), 8),
        ("uring", uring("-registered-buffers"), 8),
        ("uring", uring("-registered-files"), 8),
        ("uring", uring("-defer-taskrun"), 8),
        ("uring", uring("-defer-taskrun+coop-taskrun"), 8),
        ("uring", uring("+sqpoll"), 8),
        ("uring", uring("+unverified"), 8),
    ]
}

/// What an engine did; none, with a word about it, where it is not to be had here.
fn take(engine: &dyn Engine, name: &str, job: Job) -> Option<sample::Sample> {
    // A number of reads: in a short time a busy disk may complete none.
    let extent = match job.cache {
        // It ends when all is read.
        Cache::Cold => Extent::Time(Duration::from_secs(30)),
        Cache::Warm | Cache::Bypassed | Cache::Bounded => Extent::Operations(500),
    };
    match sample::take(engine, &Arc::new(job), Timing { extent, ..TIMING }, &instruments()) {
        Ok(sample) => Some(sample),
        Err(Failure::Unavailable(reason)) => {
            assert!(std::env::var_os("CI").is_none(), "skipped in CI: {name}: {reason}");
            println!("skipped: {name}: {reason}");
            None
        }
        Err(failure) => panic!("{name}: {failure}"),
    }
}

#[test]
fn every_engine_reads_verified_blocks_and_passes_its_gates() {
    let files = files();
    for cache in [Cache::Warm, Cache::Bypassed] {
        for (name, engine, depth) in engines() {
            if name == "mmap" && cache == Cache::Bypassed {
                continue;
            }
            let Some(sample) = take(&*engine, name, job(&files, depth, cache)) else { continue };
            let counts = &sample.tally.counts;
            assert!(counts.operations > 0, "{name}@{depth} {cache:?}");
            assert_eq!(counts.bytes, counts.operations * 4096);
            let wrong = gates::completeness(&sample).or_else(|| gates::littles_law(&sample));
            assert_eq!(wrong, None, "{name}@{depth} {cache:?}");
            let in_flight = sample.tally.in_flight_mean();
            assert!(in_flight <= depth as f64 * 1.001, "{name}@{depth}: {in_flight} in flight");
        }
    }
}

#[test]
fn a_number_of_reads_is_met_exactly() {
    let files = files();
    let timing = Timing { warm_up: Duration::ZERO, extent: Extent::Operations(1003) };
    for (name, engine, depth) in engines() {
        let job = Arc::new(job(&files, depth, Cache::Warm));
        match sample::take(&*engine, &job, timing, &instruments()) {
            Ok(sample) => {
                assert_eq!(sample.tally.counts.operations, 1003, "{name}@{depth}");
                assert!(sample.tally.elapsed_ns > 0);
            }
            Err(Failure::Unavailable(reason)) => println!("skipped: {name}: {reason}"),
            Err(failure) => panic!("{name}: {failure}"),
        }
    }
}

#[test]
fn a_cold_run_reads_each_block_once() {
    let files = files();
    for (name, engine, depth) in engines() {
        let Some(sample) = take(&*engine, name, job(&files, depth, Cache::Cold)) else { continue };
        assert_eq!(sample.tally.counts.completed, 2 * FILE_BYTES / 4096, "{name}@{depth}");
    }
}

#[test]
fn every_engine_notices_a_damaged_block() {
    let files = files();
    for file in &files.files {
        let opened = fs::OpenOptions::new().write(true).open(&file.path).unwrap();
        // All blocks, so that whichever is read first is one; a byte far behind the stamp.
        for block in 0..FILE_BYTES / 4096 {
            opened.write_all_at(b"?", block * 4096 + 3000).unwrap();
        }
        opened.sync_all().unwrap();
    }
    for (name, engine, depth) in engines().into_iter().take(16) {
        let job = Arc::new(job(&files, depth, Cache::Warm));
        match sample::take(&*engine, &job, TIMING, &instruments()).unwrap_err() {
            Failure::Unavailable(reason) => println!("skipped: {name}: {reason}"),
            failure => {
                let text = gates::verification(&failure).expect("a gate excludes it");
                assert!(text.contains(" holds damaged data; "), "{name}@{depth}: {text}");
            }
        }
    }
}

#[test]
fn every_engine_notices_a_file_that_went_away_or_shrank() {
    for is_removed in [true, false] {
        let files = files();
        let path = &files.files[0].path;
        if is_removed {
            fs::remove_file(path).unwrap();
        } else {
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
        }
        for (name, engine, depth) in engines() {
            let job = Arc::new(job(&files, depth, Cache::Warm));
            let failure = sample::take(&*engine, &job, TIMING, &instruments()).unwrap_err();
            if let Failure::Unavailable(reason) = failure {
                println!("skipped: {name}: {reason}");
                continue;
            }
            let text = failure.to_string();
            let what = if is_removed { "No such file" } else { "changed during the run" };
            assert!(text.contains(what), "{name}@{depth}: {text}");
            assert!(text.contains("test-000.data"), "{name}@{depth}: {text}");
        }
    }
}

#[test]
fn a_ring_says_what_it_was_granted_and_what_has_no_effect() {
    let files = files();
    let Some(sample) = take(&*uring(""), "uring", job(&files, 4, Cache::Warm)) else { return };
    let detail = sample.tally.detail.unwrap();
    assert!(detail.contains("SINGLE_ISSUER"), "{detail}");
    let job = Arc::new(job(&files, 4, Cache::Warm));
    let failure = sample::take(&*uring("+iopoll"), &job, TIMING, &instruments()).unwrap_err();
    assert_eq!(failure, Failure::Unavailable("IOPOLL needs direct reads".to_owned()));
}

#[test]
fn a_ring_that_should_poll_and_does_not_is_void() {
    let files = files();
    let job = Arc::new(job(&files, 4, Cache::Bypassed));
    match sample::take(&*uring("+iopoll"), &job, TIMING, &instruments()) {
        // This device has polling queues.
        Ok(sample) => assert!(sample.tally.detail.unwrap().contains("IOPOLL")),
        Err(Failure::Unavailable(reason)) => {
            assert!(reason.starts_with("not measurable here: IOPOLL is "), "{reason}");
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn the_time_of_the_kernels_threads_is_told_apart() {
    let files = files();
    let timing = Timing { extent: Extent::Time(Duration::from_millis(200)), ..TIMING };
    let job = Arc::new(job(&files, 4, Cache::Warm));
    match sample::kernel_shares(&*uring("+sqpoll"), &job, timing, &Sources::default()) {
        Ok(shares) => assert!(shares.is_some_and(|own| own.sqpoll > 0.0), "{shares:?}"),
        Err(failure) => println!("skipped: {failure}"),
    }
}

#[test]
fn fio_reads_the_same_files() {
    let files = files();
    // Long enough for fio's CPU time, which it tells in whole milliseconds.
    let timing = Timing { extent: Extent::Time(Duration::from_millis(300)), ..TIMING };
    for way in Way::ALL {
        let fio = Fio { way, timing };
        let Some(sample) = take(&fio, "fio", job(&files, 8, Cache::Bypassed)) else { return };
        let counts = &sample.tally.counts;
        assert!(counts.operations > 0 && sample.latency().count() > 0);
        assert!(sample.cpu_ns_per_operation > 0.0 && sample.device_share.is_none());
        let seconds = sample.tally.elapsed_ns as f64 / 1e9;
        assert!((0.2..1.0).contains(&seconds), "{seconds}");
    }
}

/// A sync is no call that the kernel makes without waiting: each goes to a worker, whose time is the
/// process's.
#[test]
fn syncs_of_a_ring_are_counted_as_the_workers_and_so_is_their_time() {
    let files = files();
    let chain = RingChain { sync: SyncKind::Fsync, flow: Flow::Rolling };
    let timing = Timing { extent: Extent::Time(Duration::from_millis(400)), ..TIMING };
    let page = |seed| Arc::new(Job { seed, ..job(&files, 8, Cache::Warm) });
    match sample::kernel_shares(&chain, &page(7), timing, &Sources::default()) {
        Ok(shares) => assert!(shares.is_some_and(|own| own.io_workers > 0.0), "{shares:?}"),
        Err(Failure::Unavailable(reason)) => return skip(&reason),
        Err(failure) => panic!("{failure}"),
    }
    let tracefs = match Tracefs::find("io_uring/io_uring_queue_async_work") {
        Ok(tracefs) => tracefs,
        Err(reason) => return skip(&reason),
    };
    let counted = sample::count(&chain, &page(8), timing, &tracefs.sources).unwrap();
    match counted.worker_punts {
        ringwise_measure::Fact::Known(punts) => assert!((0.9..3.1).contains(&punts), "{punts}"),
        ringwise_measure::Fact::Unknown(reason) => skip(&reason),
    }
}

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

/// An engine that claims what it likes.
struct Liar<F>(F);

impl<F: Fn(&Job, Window) -> Tally + Send + std::marker::Sync> Engine for Liar<F> {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let window = start.ready()?;
        Ok((self.0)(job, window))
    }
}

/// 1000 reads of 1 ms each in a second: one in flight.
fn honest() -> Tally {
    let mut latency = Latency::new();
    latency.record_many_ns(1_000_000, 1000);
    let counts = Counts {
        operations: 1000,
        bytes: 1000 * 4096,
        issued: 1000,
        completed: 1000,
        in_flight_ns: 1_000_000_000,
        ..Counts::default()
    };
    Tally { counts, latency, elapsed_ns: 1_000_000_000, submitted: Some(1000), ..Tally::default() }
}

#[test]
fn the_schedule_voids_what_does_not_pass_and_goes_on_with_the_rest() {
    let files = files();
    let liar = |change: fn(&mut Tally)| -> Box<dyn Engine> {
        Box::new(Liar(move |_: &Job, _| {
            let mut tally = honest();
            change(&mut tally);
            tally
        }))
    };
    let row = |name: &str, runner| Row::new(name.to_owned(), RowKind::Rival, 1, runner);
    let mut rows = vec![
        row("honest", liar(|_| {})),
        row("lost", liar(|tally| tally.submitted = Some(1001))),
        row("batch", liar(|tally| tally.counts.in_flight_ns *= 8)),
        row("another", liar(|tally| tally.lacks = Some("SQPOLL was not granted".to_owned()))),
        row("idle", liar(|tally| tally.counts = Counts::default())),
    ];
    let instruments = instruments();
    let schedule = Schedule {
        blocks: 2,
        seed: 1,
        timing: Timing { warm_up: Duration::ZERO, extent: Extent::Operations(1000) },
        instruments: &instruments,
        job: &|row, order_seed| Job { order_seed, ..job(&files, row.depth, Cache::Warm) },
        prepare: &|_| Ok(None),
        inspect: &|_, _| Ok(None),
        spare: &Spare::default(),
    };
    let mut told = 0;
    schedule.run(&mut rows, &mut |_| told += 1).unwrap();
    assert_eq!(told, 5 * 2 * 2);
    let voids: Vec<Option<&str>> = rows.iter().map(|row| row.measured.void.as_deref()).collect();
    assert_eq!(voids[0], None);
    assert_eq!(rows[0].measured.samples.len(), 4);
    let what = |at: usize| voids[at].and_then(|reason| reason.split("; ").next());
    assert_eq!(what(1), Some("1001 operations submitted by the engine, 1000 completed"));
    assert!(voids[2].unwrap().starts_with("Little's law"), "{voids:?}");
    assert_eq!(what(3), Some("not what its name says: SQPOLL was not granted"));
    assert!(voids[4].unwrap().starts_with("no operation completed"), "{voids:?}");
    assert_eq!(rows[1].measured.samples.len(), 1, "an excluded row is not measured again");
}

#[test]
fn further_blocks_are_measured_while_nothing_can_be_told_and_there_is_time() {
    let files = files();
    let minute = Duration::from_secs(60);
    for (is_noisy, time, blocks) in
        [(true, minute, 6), (true, Duration::ZERO, 2), (false, minute, 2)]
    {
        let random = std::sync::Mutex::new(fastrand::Rng::with_seed(3));
        let engine = |is_noisy: bool| -> Box<dyn Engine> {
            let random = std::sync::Mutex::new(random.lock().unwrap().fork());
            Box::new(Liar(move |_: &Job, _| {
                let mut tally = honest();
                if is_noisy {
                    // Half as fast or half as fast again: Little's law holds at any speed.
                    tally.elapsed_ns = random.lock().unwrap().u64(500_000_000..1_500_000_000);
                }
                tally
            }))
        };
        let row = |name: &str, kind| Row::new(name.to_owned(), kind, 1, engine(is_noisy));
        let mut rows = vec![row("sync", RowKind::Rival), row("uring", RowKind::Subject)];
        let instruments = instruments();
        let spare = Spare::new(time);
        let schedule = Schedule {
            blocks: 2,
            seed: 1,
            timing: Timing { warm_up: Duration::ZERO, extent: Extent::Operations(1000) },
            instruments: &instruments,
            job: &|row, order_seed| Job { order_seed, ..job(&files, row.depth, Cache::Warm) },
            prepare: &|_| Ok(None),
            inspect: &|_, _| Ok(None),
            spare: &spare,
        };
        schedule.run(&mut rows, &mut |_| {}).unwrap();
        assert_eq!(rows[1].measured.void, None);
        assert_eq!(rows[1].measured.samples.len(), 2 * blocks, "{is_noisy} {time:?}");
    }
}

#[test]
fn a_cache_that_is_not_as_expected_voids_the_row() {
    let files = files();
    let row = Row::new("sync".to_owned(), RowKind::Rival, 1, Box::new(Sync));
    let mut rows = vec![row];
    let instruments = instruments();
    let schedule = Schedule {
        blocks: 1,
        seed: 1,
        timing: TIMING,
        instruments: &instruments,
        job: &|row, order_seed| Job { order_seed, ..job(&files, row.depth, Cache::Warm) },
        prepare: &|job| Ok(gates::page_cache(job.cache, Some(0.5))),
        inspect: &|_, _| Ok(None),
        spare: &Spare::default(),
    };
    schedule.run(&mut rows, &mut |_| {}).unwrap();
    assert_eq!(
        rows[0].measured.void.as_deref().and_then(|reason| reason.split("; ").next()),
        Some("warm cache expected and not found: 50.0 % of the files cached")
    );
}

#[test]
fn what_a_warm_cache_lost_is_read_again() {
    let files = files();
    let warm = job(&files, 1, Cache::Warm);
    page_cache::forget(&files.files[0]).unwrap();
    let Some(left) = page_cache::cached_bytes(&files.files).unwrap() else {
        assert!(std::env::var_os("CI").is_none(), "cachestat(2) is missing");
        return println!("skipped: cachestat(2) is missing");
    };
    assert!(left < 2 * FILE_BYTES, "nothing was dropped");
    assert_eq!(page_cache::prepare(&warm).unwrap(), None);
    assert_eq!(page_cache::cached_bytes(&files.files).unwrap(), Some(2 * FILE_BYTES));
}

/// Longer than all requests take together.
const LONG: Timing =
    Timing { warm_up: Duration::ZERO, extent: Extent::Time(Duration::from_secs(30)) };

/// What `objects` asks of the stores: requests for ranges of one block each.
fn objects_job(files: &Files, cache: Cache) -> Job {
    let half = |file: &DataFile| DataFile { bytes: file.bytes / 2, ..file.clone() };
    Job {
        files: files.files.iter().map(half).collect(),
        block_bytes: RANGES * 4096,
        pattern: Pattern::Random,
        ..job(files, 3, cache)
    }
}

#[test]
fn every_store_reads_each_range_of_the_objects_once() {
    let files = files();
    for store in [Store::Local, Store::Pool, Store::Ring] {
        let job = Arc::new(objects_job(&files, Cache::Cold));
        let sample = sample::take(&store, &job, LONG, &instruments()).unwrap();
        let counts = &sample.tally.counts;
        assert!(counts.exhausted, "{store:?}");
        assert_eq!((counts.operations, counts.bytes), (4, FILE_BYTES), "{store:?}");
        assert_eq!(gates::littles_law(&sample), None, "{store:?}");
    }
}

#[test]
fn every_store_notices_a_wrong_range() {
    let files = files();
    // The last range of the last request of the second object.
    let last = FILE_BYTES - 4096;
    let path = &files.files[1].path;
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"x", last + 99).unwrap();
    for store in [Store::Local, Store::Pool, Store::Ring] {
        let job = Arc::new(objects_job(&files, Cache::Cold));
        let failure = sample::take(&store, &job, LONG, &instruments()).unwrap_err();
        assert!(matches!(failure, Failure::Mismatch(_)), "{store:?}: {failure}");
    }
}

#[test]
fn an_interrupt_ends_the_schedule_with_what_there_is() {
    let files = files();
    let interrupt = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut rows = vec![Row::new("sync".to_owned(), RowKind::Rival, 1, Box::new(Sync))];
    let instruments = instruments();
    let schedule = Schedule {
        blocks: 100,
        seed: 1,
        timing: TIMING,
        instruments: &instruments,
        job: &|row, order_seed| Job {
            order_seed,
            interrupt: interrupt.clone(),
            ..job(&files, row.depth, Cache::Warm)
        },
        prepare: &|_| Ok(None),
        inspect: &|_, _| Ok(None),
        spare: &Spare::default(),
    };
    let mut taken = 0;
    let result = schedule.run(&mut rows, &mut |_| {
        taken += 1;
        interrupt.store(taken == 3, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(matches!(result, Err(ringwise_lab::LabError::Interrupted)));
    assert_eq!(rows[0].measured.samples.len(), 2);
}
