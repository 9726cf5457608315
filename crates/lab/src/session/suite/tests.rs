//! What a command line means, what it is refused for, and what happens where there is no ring.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use ringwise_measure::{Fact, Sources};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::*;
use crate::{
    engine::{mmap::Mapped, name::EngineName},
    sampling::{
        job::{Cache, Pattern},
        sample::Instruments,
        schedule::Spare,
    },
    session::progress::Progress,
    testing::read_groups,
};

/// Measures no-ops where there is no ring, as part of the suite or by name: what is said, and how it
/// ends.
fn without_a_ring(is_suite: bool) -> (String, Result<(), LabError>) {
    // The filter is this thread's.
    let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
    let args = Args { reads: Some("1000".into()), workload: Some("nop".into()), ..Args::default() };
    let mut suite = Suite::new(&args).unwrap();
    (suite.plan.is_suite, suite.plan.is_verbose) = (is_suite, true);
    let sources = Sources::below("/nonexistent");
    let context = Context {
        plan: &suite.plan,
        instruments: &Instruments { sources, device_number: None, idle: None },
        warmth: &Default::default(),
        timing: suite.timing(&suite.workloads[0]),
        interrupt: &Arc::default(),
        progress: &Progress::new(),
        spare: &Spare::default(),
        resumed: None,
        directory: None,
        run: 0,
    };
    let mut out = Vec::new();
    let result = measure(&suite, &context, &mut |_| panic!("nothing was measured"), &mut out);
    (String::from_utf8(out).unwrap(), result)
}

#[test]
fn a_section_says_that_processors_were_throttled_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let sources = Sources::below(root.path());
    let directory = sources.sys.join("devices/system/cpu/cpu0/thermal_throttle");
    std::fs::create_dir_all(&directory).unwrap();
    let suite = Suite::new(&Args::default()).unwrap();
    let instruments = Instruments { sources, device_number: None, idle: None };
    let count = directory.join("core_throttle_count");
    std::fs::write(&count, "7\n").unwrap();
    let context = Context {
        plan: &suite.plan,
        instruments: &instruments,
        warmth: &instruments.warmth(),
        timing: suite.timing(&suite.workloads[0]),
        interrupt: &Arc::default(),
        progress: &Progress::new(),
        spare: &Spare::default(),
        resumed: None,
        directory: None,
        run: 0,
    };
    let mut told = Vec::new();
    for throttles in ["7\n", "9\n"] {
        std::fs::write(&count, throttles).unwrap();
        let outcome = Outcome { section: crate::testing::section(), result: Ok(()) };
        let mut done = |section: Section| {
            told.push(section.notes.iter().filter(|note| note.contains("too hot")).count());
        };
        keep(&context, &mut done, &mut Vec::new(), outcome).unwrap();
    }
    assert_eq!(told, [0, 1]);
}

#[test]
fn what_cannot_run_here_is_left_out_of_the_suite_and_an_error_by_name() {
    let (told, result) = std::thread::spawn(|| without_a_ring(true)).join().unwrap();
    assert!(told.starts_with("nop: left out: no io_uring: io_uring_setup: "), "{told}");
    assert!(result.is_ok(), "{result:?}");
    let (told, result) = std::thread::spawn(|| without_a_ring(false)).join().unwrap();
    assert_eq!(told, "");
    let error = result.unwrap_err().to_string();
    assert!(error.starts_with("nop cannot run here: no io_uring: "), "{error}");
}

fn args(change: impl FnOnce(&mut Args)) -> Args {
    let mut args = Args { workload: Some("read".to_owned()), ..Args::default() };
    change(&mut args);
    args
}

fn refused(change: impl FnOnce(&mut Args)) -> String {
    let error = Suite::new(&args(change)).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[test]
fn groups_share_their_files() {
    let suite = Suite::new(&args(|args| args.full = true)).unwrap();
    assert_eq!(Needs::of(&suite).space_bytes, (10 << 30) + (1000 << 20));
}

#[test]
fn nothing_typed_is_the_quick_suite() {
    let suite = Suite::new(&Args::default()).unwrap();
    let names: Vec<&str> = suite.workloads.iter().map(Planned::name).collect();
    assert_eq!(
        names,
        ["read", "latency", "nop", "chain", "stat", "echo", "http", "objects", "copy", "log"]
    );
    let log = suite.workloads.iter().find(|planned| planned.name() == "log").unwrap();
    assert_eq!(
        log.work.rows(),
        3,
        "two daemons and a control, one group, one number of connections"
    );
    let plan = &suite.plan;
    assert_eq!((plan.repeats, plan.seed, plan.keep, plan.is_suite), (5, 1, false, true));
    let groups = read_groups(&Args::default()).unwrap();
    let [buffered, direct] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!((buffered.pattern, buffered.cache), (Pattern::Sequential, Cache::Warm));
    assert_eq!((direct.pattern, direct.cache), (Pattern::Random, Cache::Bypassed));
    assert_eq!((buffered.files, buffered.size.most), (10, 120 << 20));
    assert_eq!(direct.depths, [1, 32]);
    assert_eq!(buffered.engines, EngineName::DEFAULT);
    let possible =
        EngineName::DEFAULT.iter().copied().filter(|engine| *engine != EngineName::Mmap(Mapped));
    assert!(direct.engines.iter().copied().eq(possible), "a map goes through the page cache");
    let budget = |planned| match suite.extent_of(planned) {
        ExtentChoice::Budget(budget) => budget,
        other => panic!("{other:?}"),
    };
    let total: Duration = suite.workloads.iter().map(budget).sum();
    assert!(total <= Duration::from_secs(105), "{total:?}");
}

#[test]
fn what_was_typed_is_not_repeated_further() {
    let spare = |repeats: Option<&str>| {
        let args = args(|args| args.repeats = repeats.map(str::to_owned));
        Suite::new(&args).unwrap().plan.spare
    };
    assert_eq!(spare(Some("7")), Duration::ZERO);
    assert!(spare(None) > Duration::ZERO);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn bad_input_is_named_with_what_is_accepted() {
    let set = |text: &str| Some(text.to_owned());
    for (text, parts) in [
        (
            refused(|a| a.workload = set("raed")),
            ["unknown workload or command 'raed'", "did you mean 'read'?"],
        ),
        (
            refused(|a| a.workload = set("reprot")),
            ["unknown workload or command 'reprot'", "did you mean 'report'?"],
        ),
        (
            refused(|a| a.workload = set("banana")),
            [": expected read, latency, ", ", scale, or report, compare, record, explain, replay"],
        ),
        (
            refused(|a| {
                a.workload = None;
                a.depth = set("4")
            }),
            [
                "--depth is for the workloads read, ",
                "; name one, as in: ringwise lab read --depth 4",
            ],
        ),
        (
            refused(|a| {
                a.workload = set("stat");
                a.ablate = true
            }),
            ["--ablate is for the workload read", "; name one, as in: ringwise lab read --ablate"],
        ),
        (
            refused(|a| a.engines = set("sync,uing")),
            ["--engines: invalid value 'uing'", "did you mean 'uring'?"],
        ),
        (
            refused(|a| a.engines = set("uring+sqpol")),
            ["--engines: invalid value 'uring+sqpol': expected sync, ", "uring+sqpoll"],
        ),
        (refused(|a| a.engines = set("")), ["--engines: invalid value ''", "uring"]),
        (refused(|a| a.depth = set("0")), ["--depth: invalid value '0'", "1 to 1024"]),
        (refused(|a| a.depth = set("1,,2")), ["--depth: invalid value '':", "1 to 1024"]),
        (refused(|a| a.depth = set("-1")), ["--depth: invalid value '-1'", "1 to 1024"]),
        (refused(|a| a.block = set("3000")), ["--block: invalid value '3000'", "multiple of 512"]),
        (refused(|a| a.block = set("0")), ["--block: invalid value '0'", "1 to 64m"]),
        (refused(|a| a.block = set("4kb")), ["--block: invalid value '4kb'", "k, m, g or t"]),
        (
            refused(|a| a.profile = set("fast")),
            ["--profile: invalid value 'fast'", "buffered, direct"],
        ),
        (refused(|a| a.pattern = set("up")), ["--pattern: invalid value 'up'", "seq, random"]),
        (
            refused(|a| a.cache = set("hot")),
            ["--cache: invalid value 'hot'", "warm, cold, bounded"],
        ),
        (
            refused(|a| a.cache = set("bounded:x")),
            ["--cache: invalid value 'bounded:x': expected", "k, m, g or t"],
        ),
        (
            refused(|a| a.cache = set("bounded:1m")),
            ["--cache: invalid value 'bounded:1m': ", "at least"],
        ),
        (
            refused(|a| a.cache = set("bounded:2g")),
            ["--cache: invalid value 'bounded:2g': ", "--size"],
        ),
        (
            refused(|a| {
                a.cache = set("bounded");
                a.pattern = set("seq")
            }),
            ["--pattern: invalid value 'seq'", "random"],
        ),
        (
            refused(|a| {
                a.workload = set("chain");
                a.sync = set("msync")
            }),
            ["--sync: invalid value 'msync'", "did you mean 'fsync'?"],
        ),
        (
            refused(|a| {
                a.workload = set("chain");
                a.size = set("1m")
            }),
            ["--size: invalid value '1m'", "170 chains in flight"],
        ),
        (refused(|a| a.sync = set("fsync")), ["--sync is for", "workload chain"]),
        (
            refused(|a| {
                a.workload = set("nop");
                a.engines = set("uring")
            }),
            ["--engines is for", "read, latency, echo"],
        ),
        (refused(|a| a.connections = set("1")), ["--connections is for", "echo"]),
        (
            refused(|a| a.percentiles = set("p50,p95")),
            ["--percentiles: invalid value 'p95': expected", "p50, p90, p99, p99.9"],
        ),
        (
            refused(|a| {
                a.heatmap = Some("x".into());
                a.reads = set("10")
            }),
            ["--heatmap", "--duration"],
        ),
        (
            refused(|a| {
                a.heatmap = Some("x".into());
                a.workload = set("nop")
            }),
            ["--heatmap", "read"],
        ),
        (refused(|a| a.size = set("lots")), ["--size: invalid value 'lots'", "k, m, g or t"]),
        (refused(|a| a.size = set("8k")), ["--size: invalid value '8k'", "need"]),
        (refused(|a| a.files = set("0")), ["--files: invalid value '0'", "1 to 1024"]),
        (refused(|a| a.threads = set("x")), ["--threads: invalid value 'x'", "1 to 1024"]),
        (refused(|a| a.repeats = set("0")), ["--repeats: invalid value '0'", "1 to 1000"]),
        (refused(|a| a.reads = set("0")), ["--reads: invalid value '0'", "at least 1"]),
        (refused(|a| a.seed = set("one")), ["--seed: invalid value 'one'", "whole number"]),
        (refused(|a| a.duration = set("1ms")), ["--duration: invalid value '1ms'", "10ms"]),
        (refused(|a| a.duration = set("soon")), ["--duration: invalid value 'soon'", "us, ms"]),
        (
            refused(|a| {
                a.depth = set("1024");
                a.block = set("2m")
            }),
            ["--depth times --block", "1 GiB"],
        ),
        (
            refused(|a| {
                a.profile = set("direct");
                a.cache = set("cold")
            }),
            ["--cache", "buffered"],
        ),
    ] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn a_place_that_results_cannot_be_written_to_is_told_before_anything_is_measured() {
    let failed = |change: fn(&mut Args)| {
        let error = Suite::new(&args(change)).unwrap_err();
        assert_eq!(error.exit_status(), 1);
        error.to_string()
    };
    assert_eq!(
        failed(|a| a.json = Some("/nope/x.json".into())),
        "--json /nope/x.json: the directory /nope does not exist; name a file in an existing directory"
    );
    assert_eq!(
        failed(|a| a.json = Some("/dev/null/x".into())),
        "--json /dev/null/x: /dev/null is not a directory; name a file in an existing directory"
    );
    assert_eq!(
        failed(|a| a.out = Some("/nope".into())),
        "--out /nope: does not exist; name an existing directory"
    );
    assert_eq!(
        failed(|a| a.out = Some("/dev/null".into())),
        "--out /dev/null: is not a directory; name an existing directory"
    );
    assert_eq!(
        failed(|a| a.heatmap = Some("/nope/x".into())),
        "--heatmap /nope/x: the directory /nope does not exist; name a directory in an existing one"
    );
    assert!(Suite::new(&args(|a| a.json = Some("/dev/null".into()))).is_ok());
}

#[test]
fn room_is_told_for_each_file_system() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let args = Args {
        workload: Some("scale".to_owned()),
        dir: Some(format!("{},{}", one.path().display(), other.path().display()).into()),
        size: Some("64m".to_owned()),
        ..Args::default()
    };
    let suite = Suite::new(&args).unwrap();
    let storage = |path: &PathBuf| Storage::of(&Sources::default(), path);
    let mut storages: Vec<Storage> = suite.directories().iter().map(storage).collect();
    let told = |storages: &[Storage]| {
        let text = needs_text(&Needs::of(&suite), &suite.plan, storages);
        text.lines().skip(1).map(str::to_owned).collect::<Vec<String>>()
    };
    let together = told(&storages);
    assert!(together[0].starts_with("up to 64.0 MiB of test files, "), "{together:?}");
    // The second one is a small file system of its own.
    if let Fact::Known(mount) = &mut storages[1].mount {
        mount.device_number = "4095:1".to_owned();
    }
    if let Fact::Known(found) = &mut storages[1].filesystem {
        found.free_bytes = 1 << 20;
    }
    let apart = told(&storages);
    let of = |path: &Path| {
        let begin = format!("up to 32.0 MiB of test files in {}, ", path.display());
        apart.iter().position(|line| line.starts_with(&begin))
    };
    let (first, second) = (of(one.path()).unwrap(), of(other.path()).unwrap());
    assert_ne!(first, second);
    assert!(apart[second].ends_with("1.0 MiB are free"), "{apart:?}");
    assert!(apart[second + 1].starts_with("not enough"), "{apart:?}");
    assert_eq!(apart.len(), 3, "there is room in the first: {apart:?}");
}
