//! `ringwise lab record` as a user runs it: fio says what it did, and the trace has the same. Recorders that are killed,
//! disks that are full and programs that cannot be recorded are told.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufReader, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use ringwise_trace::{
    AnyReader, End, FileId, FileKind, Header, Interface, Kind, Name, Operation, Outcome, Reason,
    Record, Source, TraceError,
};
use serde_json::Value;

/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory on the device that the target is on, because a tmpfs has no direct I/O.
pub(super) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(super) fn command(directory: &Path, options: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["lab", "record"]).args(options.split_whitespace()).current_dir(directory);
    command
}

pub(super) fn record(directory: &Path, options: &str, recorded: &[&str]) -> Output {
    command(directory, options).args(["--out", "t", "--"]).args(recorded).output().unwrap()
}

pub(super) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub(super) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(super) fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

/// Whether tracepoints are allowed here. If not, the reason is the recorder's.
fn has_tracepoints() -> bool {
    let directory = directory();
    let output = record(directory.path(), "--method perf", &["true"]);
    if !output.status.success() {
        skip(&stderr(&output));
    }
    output.status.success()
}

pub(super) fn has_program(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        skip(&format!("no {program} here"));
    }
    found
}

/// A whole trace.
pub(super) struct Trace {
    pub(super) header: Header,
    names: HashMap<FileId, (PathBuf, FileKind)>,
    pub(super) operations: Vec<Operation>,
    pub(super) end: End,
}

impl Trace {
    #[track_caller]
    pub(super) fn read(path: &Path) -> Trace {
        let (header, records, error) = records(path);
        assert!(error.is_none(), "{}", error.unwrap());
        let (mut names, mut operations) = (HashMap::new(), Vec::new());
        let mut end = None;
        for record in records {
            match record {
                Record::File(file) => {
                    let Name::Path(path) = file.name else { panic!("a hash was not asked for") };
                    names.insert(file.id, (path.into(), file.kind));
                }
                Record::Operation(operation) => operations.push(operation),
                Record::End(found) => end = Some(*found),
                Record::Thread(_) | Record::Lost(_) => {}
            }
        }
        Trace { header, names, operations, end: end.unwrap() }
    }

    /// The operations on a file.
    pub(super) fn on(&self, path: &Path) -> Vec<Operation> {
        let is_meant = |id: &FileId| self.names[id].0 == path;
        let operations = self.operations.iter();
        operations.filter(|one| one.file.as_ref().is_some_and(is_meant)).copied().collect()
    }
}

fn records(path: &Path) -> (Header, Vec<Record>, Option<TraceError>) {
    let mut reader = AnyReader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut records = Vec::new();
    let error = reader.find_map(|record| record.map(|record| records.push(record)).err());
    (reader.header().clone(), records, error)
}

fn count_operations(records: &[Record]) -> usize {
    records.iter().filter(|record| matches!(record, Record::Operation(_))).count()
}

pub(super) fn count(operations: &[Operation], kind: Kind) -> (u64, u64) {
    let of_kind = || operations.iter().filter(|operation| operation.kind == kind);
    (of_kind().count() as u64, of_kind().map(Operation::bytes).sum())
}

/// A file of random bytes, which no file system compresses, in the page cache.
pub(super) fn file(directory: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = directory.join(name);
    let mut content = vec![0; bytes];
    File::open("/dev/urandom").unwrap().read_exact(&mut content).unwrap();
    fs::write(&path, content).unwrap();
    // Pages that are not on the device yet would be written by a direct read.
    File::open(&path).unwrap().sync_all().unwrap();
    path.canonicalize().unwrap()
}

/// Records fio on a file that is there, and compares the counts.
fn compare_with_fio(engine: &str, options: &str, method: &str) -> Trace {
    compare_with_fio_in(directory(), engine, options, method)
}

/// Compares the operations on fio's file with what it says it did, in the file `o`.
#[track_caller]
pub(super) fn has_what_fio_did(directory: &Path, engine: &str, operations: &[Operation]) {
    let text = fs::read_to_string(directory.join("o")).unwrap();
    let fio: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let number = |way: &str, name: &str| fio["jobs"][0][way][name].as_u64().unwrap();
    for (kind, way) in [(Kind::Read, "read"), (Kind::Write, "write")] {
        let expected = (number(way, "total_ios"), number(way, "io_bytes"));
        assert!(expected.0 > 100, "{expected:?}");
        assert_eq!(count(operations, kind), expected, "{engine} {way}");
    }
}

#[track_caller]
fn compare_with_fio_in(
    directory: tempfile::TempDir,
    engine: &str,
    options: &str,
    method: &str,
) -> Trace {
    let path = file(directory.path(), "f", 4 << 20);
    let job = format!(
        "fio --name=j --filename=f --size=4m --rw=randrw --ioengine={engine} --output=o --output-format=json {options}"
    );
    let output = record(directory.path(), &format!("--method {method}"), &words(&job));
    assert!(output.status.success(), "{engine}: {}", stderr(&output));
    let trace = Trace::read(&directory.path().join("t"));
    let operations = trace.on(&path);
    has_what_fio_did(directory.path(), engine, &operations);
    assert_eq!(trace.end.lost_events, 0, "{engine}");
    assert_eq!(trace.end.reason, Reason::Exited);
    let (reads, _) = count(&operations, Kind::Read);
    let said = stderr(&output);
    let all = format!("recorded {} operations", trace.operations.len());
    assert!(said.replace(' ', "").contains(&all.replace(' ', "")), "{said}");
    assert!(reads > 0 && said.contains("in flight at once: "), "{said}");
    assert!(
        trace.end.added_ns_per_syscall.is_some_and(|added_ns| added_ns > 0),
        "{engine} by {method}: recording costs nothing? {:?}",
        trace.end.added_ns_per_syscall
    );
    let cost = said.lines().find(|line| line.starts_with("cost: ")).unwrap_or_default();
    assert!(
        cost.contains(" more for a syscall that does not wait, ")
            && cost.ends_with(" 0 events lost"),
        "{said}"
    );
    trace
}

/// Every block of 4 KiB of 4 MiB, once.
fn every_block() -> Vec<u64> {
    (0..1024).map(|block| block * 4096).collect()
}

fn offsets(operations: &[Operation]) -> Vec<u64> {
    let mut offsets: Vec<u64> =
        operations.iter().filter_map(|operation| operation.offset).collect();
    offsets.sort_unstable();
    offsets
}

fn on_f(trace: &Trace) -> Vec<Operation> {
    let path = trace.names.values().find(|(path, _)| path.ends_with("f")).unwrap().0.clone();
    let is_io = |operation: &Operation| matches!(operation.kind, Kind::Read | Kind::Write);
    trace.on(&path).into_iter().filter(is_io).collect()
}

#[test]
fn what_fio_did_by_psync_was_seen() {
    if !has_program("fio") || !has_tracepoints() {
        return;
    }
    let trace = compare_with_fio("psync", "--fsync=64", "perf");
    assert_eq!(trace.header.method, "perf");
    let operations = on_f(&trace);
    assert_eq!(offsets(&operations), every_block());
    assert!(operations.iter().all(|one| one.asked_bytes == Some(4096)));
    assert!(operations.iter().all(|one| one.interface == Interface::Syscall && !one.is_direct));
    // fio drops the page cache first, and then reads from the device.
    assert!(operations.iter().any(|one| one.source == Source::Device && one.kind == Kind::Read));
    let syncs = trace.operations.iter().filter(|one| one.kind == Kind::Sync).count();
    assert!(syncs > 0, "fio syncs after each 64 writes");
}

#[test]
fn what_is_in_the_page_cache_comes_from_there() {
    if !has_program("fio") || !has_tracepoints() {
        return;
    }
    // Other programs cannot drop pages of a tmpfs from the page cache.
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return skip("no tmpfs here") };
    let trace = compare_with_fio_in(directory, "psync", "--invalidate=0", "perf");
    let reads: Vec<_> = on_f(&trace).into_iter().filter(|one| one.kind == Kind::Read).collect();
    let cached = reads.iter().filter(|one| one.source == Source::Cache).count();
    // A read that waits for something else is not told as cached.
    assert!(cached * 10 > reads.len() * 9, "{cached} of {}", reads.len());
    assert!(reads.iter().all(|one| one.source != Source::Device));
}

#[test]
fn what_fio_did_by_io_uring_was_seen() {
    if !has_program("fio") || !has_tracepoints() {
        return;
    }
    if !fio_has("io_uring") {
        return skip("fio cannot set up a ring here");
    }
    for options in ["", "--fixedbufs=1 --registerfiles=1"] {
        let options = format!("--iodepth=8 --direct=1 {options}");
        let trace = compare_with_fio("io_uring", &options, "perf");
        let operations = on_f(&trace);
        assert!(operations.iter().all(|one| one.interface == Interface::IoUring && one.is_direct));
        assert!(operations.iter().all(|one| one.source == Source::Device));
        // ext4 and XFS tell offsets.
        assert!(offsets(&operations).is_empty() || offsets(&operations) == every_block());
        assert!((1..=16).contains(&trace.end.in_flight_max), "{}", trace.end.in_flight_max);
    }
}

#[test]
fn what_fio_did_by_linux_aio_was_seen() {
    if !has_program("fio") || !has_tracepoints() {
        return;
    }
    let trace = compare_with_fio("libaio", "--iodepth=8 --direct=1", "perf");
    let operations = on_f(&trace);
    assert!(operations.iter().all(|one| one.interface == Interface::LinuxAio && one.is_direct));
    assert_eq!(offsets(&operations), every_block());
    assert!(trace.end.in_flight_max >= 8, "{}", trace.end.in_flight_max);
}

#[test]
fn ptrace_sees_the_same() {
    if !has_program("fio") {
        return;
    }
    let trace = compare_with_fio("psync", "", "ptrace");
    assert_eq!(trace.header.method, "ptrace");
    assert_eq!(offsets(&on_f(&trace)), every_block());
    let trace = compare_with_fio("libaio", "--iodepth=8 --direct=1", "ptrace");
    assert_eq!(offsets(&on_f(&trace)), every_block());
}

fn fio_has(engine: &str) -> bool {
    let directory = directory();
    let job = format!("--name=j --filename=f --size=4k --ioengine={engine} --output=/dev/null");
    let mut fio = Command::new("fio");
    let status = fio.args(words(&job)).current_dir(directory.path()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn a_known_program_is_told_in_order() {
    for method in ["perf", "ptrace"] {
        if method == "perf" && !has_tracepoints() {
            continue;
        }
        let directory = directory();
        let copy = directory.path().canonicalize().unwrap().join("copy");
        let dd = "dd if=/dev/zero of=copy bs=8k count=20 conv=fsync status=none";
        let output = record(directory.path(), &format!("--method {method}"), &words(dd));
        assert!(output.status.success(), "{}", stderr(&output));
        let trace = Trace::read(&directory.path().join("t"));
        let told: Vec<_> = trace
            .on(&copy)
            .iter()
            .map(|one| (one.kind, one.offset, one.asked_bytes, one.outcome))
            .collect();
        let mut expected: Vec<_> = (0..20)
            .map(|block| {
                let outcome = Outcome::Done { bytes: 8192 };
                (Kind::Write, Some(block * 8192), Some(8192), outcome)
            })
            .collect();
        expected.push((Kind::Sync, None, Some(0), Outcome::Done { bytes: 0 }));
        assert_eq!(told, expected, "{method}");
        assert_eq!(count(&trace.on(Path::new("/dev/zero")), Kind::Read), (20, 20 * 8192));
        assert_eq!(trace.header.command, words(dd));
        assert_eq!(trace.end.unknown_files, 0, "{method}");
        let writes = trace.on(&copy);
        assert!(
            writes
                .windows(2)
                .all(|pair| pair[0].begin_ns + pair[0].duration_ns <= pair[1].begin_ns)
        );
    }
}

#[test]
fn children_inherit_descriptors_and_positions() {
    for method in ["perf", "ptrace"] {
        if method == "perf" && !has_tracepoints() {
            continue;
        }
        let directory = directory();
        let path = file(directory.path(), "f", 64 << 10);
        let script = "exec 5<f; dd bs=1000 count=2 of=/dev/null status=none <&5; \
                      dd bs=500 count=1 status=none <&5 | cat >/dev/null";
        let output = record(directory.path(), &format!("--method {method}"), &["sh", "-c", script]);
        assert!(output.status.success(), "{}", stderr(&output));
        let trace = Trace::read(&directory.path().join("t"));
        let reads: Vec<_> = trace.on(&path).iter().map(|one| (one.offset, one.bytes())).collect();
        assert_eq!(reads, [(Some(0), 1000), (Some(1000), 1000), (Some(2000), 500)], "{method}");
        let pipes: Vec<_> =
            trace.names.values().filter(|(_, kind)| *kind == FileKind::Pipe).collect();
        assert!(!pipes.is_empty(), "{method}: the pipe has no name");
    }
}

#[test]
fn a_replay_can_be_recorded_too() {
    if !has_tracepoints() {
        return;
    }
    let directory = directory();
    file(directory.path(), "f", 1 << 20);
    let output = record(directory.path(), "", &["dd", "if=f", "of=/dev/null", "bs=4k"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let replay = |trace: &str| {
        let words =
            ["lab", "replay", trace, "--engines", "recorded", "--repeats", "2", "--recorder"];
        let mut replay = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        replay.args(words).current_dir(directory.path()).output().unwrap()
    };
    let output = replay("t");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("timed the I/O of both"), "{text}");
    // It saw all of the replay.
    assert!(text.contains("fidelity: the recorded engine's I/O time is"), "{text}");
    let left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|own| own.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}: the program's file and the trace");
    // A recording by ptrace has another cost than one by perf.
    fs::write(
        directory.path().join("s"),
        "1 0.000001 pread64(3</f>, \"\"..., 4096, 0) = 4096 <0.000010>\n",
    )
    .unwrap();
    let output = replay("s");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--recorder: s: it is no whole trace"), "{}", stderr(&output));
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    wrong.args(["lab", "replay", "s", "--engines", "tokyo"]).current_dir(directory.path());
    let output = wrong.output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]));
    assert!(stderr(&output).contains(
        "--engines: invalid value 'tokyo': expected one that this trace can have: recorded"
    ));
}

/// What a program did by Linux AIO, `recorded` does by Linux AIO: its replay is recorded and counted.
#[test]
fn linux_aio_is_replayed_by_linux_aio() {
    if !has_program("fio") {
        return;
    }
    let trace = |path: &Path| {
        let operations = Trace::read(path).operations.into_iter();
        let by_aio = operations.filter(|one| one.interface == Interface::LinuxAio);
        by_aio.collect::<Vec<_>>()
    };
    let directory = directory();
    file(directory.path(), "f", 1 << 20);
    let job = "fio --name=j --filename=f --size=1m --rw=randrw --ioengine=libaio --direct=1 --iodepth=8 --output=o";
    let output = record(directory.path(), "--method ptrace", &words(job));
    assert!(output.status.success(), "{}", stderr(&output));
    let program = trace(&directory.path().join("t"));
    assert_eq!(program.len(), 256);
    fs::rename(directory.path().join("t"), directory.path().join("fio.trace")).unwrap();
    let replay = [
        env!("CARGO_BIN_EXE_ringwise"),
        "lab",
        "replay",
        "fio.trace",
        "--engines",
        "sync",
        "--repeats",
        "2",
        "--pace",
        "asap",
    ];
    let output = record(directory.path(), "--method ptrace", &replay);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", stderr(&output));
    let replayed = trace(&directory.path().join("t"));
    for kind in [Kind::Read, Kind::Write] {
        let (operations, bytes) = count(&program, kind);
        // Two blocks of two samples of `recorded` and of `recorded (again)`.
        assert_eq!(count(&replayed, kind), (8 * operations, 8 * bytes), "{kind:?}");
    }
}

#[test]
fn a_running_process_is_recorded_for_a_time() {
    if !has_program("fio") || !has_tracepoints() {
        return;
    }
    let directory = directory();
    let path = file(directory.path(), "f", 4 << 20);
    // Its reads are made by a child, which is there before the recording begins.
    let job = "--name=j --filename=f --size=4m --rw=randread --ioengine=psync --rate_iops=2000 \
               --time_based --runtime=10 --output=o";
    let mut fio = Command::new("fio");
    fio.args(words(job)).current_dir(directory.path()).process_group(0);
    let mut fio = fio.spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", fio.id());
    wait_until(|| {
        let children = fs::read_to_string(&children).unwrap();
        let open = |child: &str| fs::read_dir(format!("/proc/{child}/fd")).into_iter().flatten();
        let links = children.split_whitespace().flat_map(open);
        links.flatten().any(|link| fs::read_link(link.path()).is_ok_and(|link| link == path))
    });
    let options = format!("--pid {} --duration 500ms --out t", fio.id());
    let begin = Instant::now();
    let output = command(directory.path(), &options).output().unwrap();
    let elapsed = begin.elapsed();
    let group = format!("-{}", fio.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    fio.wait().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(elapsed >= Duration::from_millis(500));
    let trace = Trace::read(&directory.path().join("t"));
    let reads = trace.on(&path);
    assert!((500..2000).contains(&reads.len()), "{} reads in half a second", reads.len());
    assert!(reads.iter().all(|one| one.offset.is_some_and(|offset| offset % 4096 == 0)));
    assert_eq!(trace.end.reason, Reason::Duration);
    assert!(trace.header.blind_spots.iter().any(|spot| spot.contains("Linux AIO")));
}

#[test]
fn a_running_process_that_ends_ends_its_recording() {
    if !has_tracepoints() {
        return;
    }
    let directory = directory();
    let script = "exec >>out; i=0; while [ ! -e enough ]; do echo $i; i=$((i+1)); done";
    let mut writer = Command::new("sh");
    let mut writer = writer.args(["-c", script]).current_dir(directory.path()).spawn().unwrap();
    let options = format!("--pid {} --out t", writer.id());
    // Nothing else would end the recorder.
    let mut recorder = Command::new("timeout");
    recorder.args(["20", env!("CARGO_BIN_EXE_ringwise"), "lab", "record"]);
    recorder.args(words(&options)).current_dir(directory.path()).stderr(Stdio::piped());
    let recorder = recorder.spawn().unwrap();
    let trace = directory.path().join("t");
    wait_until(|| is_under_way(&trace));
    fs::write(directory.path().join("enough"), "").unwrap();
    assert!(writer.wait().unwrap().success());
    let output = recorder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let trace = Trace::read(&trace);
    assert_eq!(trace.end.reason, Reason::Exited);
    assert!(trace.end.elapsed_ns < 20_000_000_000, "{}", trace.end.elapsed_ns);
    let out = directory.path().canonicalize().unwrap().join("out");
    let bytes = fs::metadata(&out).unwrap().len();
    let (writes, written) = count(&trace.on(&out), Kind::Write);
    assert!(writes > 10 && written <= bytes, "{writes} writes, {written} of {bytes} bytes");
}

#[test]
fn a_private_trace_has_no_names() {
    let directory = directory();
    file(directory.path(), "a-name-that-is-secret", 8192);
    let output = record(
        directory.path(),
        "--private",
        &["dd", "if=a-name-that-is-secret", "of=another-secret", "status=none"],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes = fs::read(directory.path().join("t")).unwrap();
    let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    assert!(!has(b"secret") && !has(b"/dev"));
    let (header, records, error) = records(&directory.path().join("t"));
    assert!(error.is_none() && header.is_private && header.command.is_empty());
    let is_named = |record: &Record| matches!(record, Record::Thread(one) if !one.name.is_empty());
    assert!(!records.iter().any(is_named));
    let files = records
        .iter()
        .filter_map(|record| if let Record::File(file) = record { Some(file) } else { None });
    assert!(files.clone().count() >= 2);
    files.for_each(|file| assert!(matches!(file.name, Name::Hash(_))));
}

/// Writes for a long time, and opens the file each time.
const OPENING: &str = "trap 'exit 9' TERM; while :; do echo x >>out; done";

/// Writes for a long time, without a call at which the recorder stops it.
const BUILTIN: &str = "trap 'exit 9' TERM; while :; do echo x; done >/dev/null";

/// A command that writes for a long time, with its recorder.
fn long_recording(directory: &Path, options: &str, script: &str) -> Child {
    let mut command = command(directory, options);
    let recorder = command
        .args(["--out", "t", "--", "sh", "-c", script])
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let trace = directory.join("t");
    wait_until(|| is_under_way(&trace));
    recorder
}

/// Whether a trace that is being written has some operations. At first it is not there, or has no header yet.
pub(super) fn is_under_way(trace: &Path) -> bool {
    let Ok(file) = File::open(trace) else { return false };
    let Ok(reader) = AnyReader::new(BufReader::new(file)) else { return false };
    count_operations(&reader.map_while(Result::ok).collect::<Vec<_>>()) > 10
}

pub(super) fn wait_until(mut is_done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < PATIENCE, "it did not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_recorder_leaves_whole_frames_and_no_command() {
    let directory = directory();
    let mut recorder = long_recording(directory.path(), "", OPENING);
    let (header, ..) = records(&directory.path().join("t"));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let (_, records, error) = records(&directory.path().join("t"));
    assert!(matches!(error, Some(TraceError::Cut { .. })), "{error:?}");
    assert!(count_operations(&records) > 10);
    wait_until(|| !Path::new(&format!("/proc/{}", header.pid)).exists());
}

fn send(recorder: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &recorder.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Memory that a process has for itself. None: it has ended.
fn own_bytes(process: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix("kB"))?;
    Some(kib.trim().parse::<u64>().unwrap() << 10)
}

#[test]
fn the_recorder_keeps_no_more_for_a_longer_trace_and_its_order() {
    if !has_tracepoints() {
        return;
    }
    let directory = directory();
    let copy = "dd if=/dev/zero of=/dev/null bs=1 count=150000 status=none";
    let mut recorder = command(directory.path(), "--method perf --memory 1m --out t -- sh -c");
    recorder.arg(format!("{copy} & {copy}; wait")).stderr(Stdio::piped());
    let mut recorder = recorder.spawn().unwrap();
    let mut most = 0;
    while recorder.try_wait().unwrap().is_none() {
        most = most.max(own_bytes(&recorder).unwrap_or(0));
        thread::sleep(Duration::from_millis(5));
    }
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let trace = Trace::read(&directory.path().join("t"));
    let recorded = trace.operations.len() as u64 + trace.end.lost_events;
    assert!(recorded >= 600_000, "{recorded}");
    let ends_ns = trace.operations.iter().map(|own| own.begin_ns + own.duration_ns);
    let ends_ns: Vec<u64> = ends_ns.collect();
    // A record may come late, if the machine holds a processor up while it is made.
    let late = ends_ns.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(late * 1000 < ends_ns.len(), "{late} of {}", ends_ns.len());
    assert!(0 < most && most < 8 << 20, "{most} bytes of memory");
}

#[test]
fn a_recorder_that_falls_behind_counts_what_it_lost() {
    if !has_tracepoints() {
        return;
    }
    let directory = directory();
    let recorder = long_recording(directory.path(), "--memory 1m --method perf", BUILTIN);
    send(&recorder, "-STOP");
    // The command goes on, and fills rings of 512 KiB.
    thread::sleep(Duration::from_millis(500));
    send(&recorder, "-CONT");
    thread::sleep(Duration::from_millis(100));
    send(&recorder, "-TERM");
    let output = recorder.wait_with_output().unwrap();
    let (_, records, error) = records(&directory.path().join("t"));
    assert!(error.is_none(), "{}", stderr(&output));
    let lost = |record: &Record| if let Record::Lost(lost) = record { lost.events } else { 0 };
    let lost: u64 = records.iter().map(lost).sum();
    let Some(Record::End(end)) = records.last() else { panic!("no end") };
    assert!(lost > 0 && end.lost_events == lost, "{lost} {}", end.lost_events);
    let said = stderr(&output);
    assert!(said.contains(&format!("{lost} events lost")) && said.contains("--memory"), "{said}");
}

#[test]
fn a_signal_ends_the_recording_and_goes_to_the_command() {
    let directory = directory();
    let recorder = long_recording(directory.path(), "", OPENING);
    send(&recorder, "-TERM");
    let output = recorder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    assert_eq!(Trace::read(&directory.path().join("t")).end.reason, Reason::Signal);
    assert!(stderr(&output).contains("a signal ended the recording"), "{}", stderr(&output));
}

#[test]
fn the_time_ends_the_recording_and_not_the_command() {
    let directory = directory();
    let script = "echo a >out; sleep 1; echo b >out; exit 3";
    let output = record(directory.path(), "--duration 300ms", &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(fs::read(directory.path().join("out")).unwrap(), b"b\n");
    let trace = Trace::read(&directory.path().join("t"));
    assert_eq!(trace.end.reason, Reason::Duration);
    let out = directory.path().canonicalize().unwrap().join("out");
    assert_eq!(count(&trace.on(&out), Kind::Write), (1, 2));
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    let directory = directory();
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -USR1 $$", 128 + 10)] {
        let output = record(directory.path(), "", &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}: {}", stderr(&output));
        fs::remove_file(directory.path().join("t")).unwrap();
    }
    let output = record(directory.path(), "", &["/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
    let expected = "ringwise: lab: record: running /no/such/program: No such file or directory\n";
    assert_eq!(stderr(&output), expected);
    assert!(!directory.path().join("t").exists(), "nothing was recorded");
}

/// A tmpfs of some size, unmounted at its end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<SmallDisk> {
        let directory = directory();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(directory.path());
        let is_mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !is_mounted {
            skip("no tmpfs can be mounted here");
        }
        is_mounted.then_some(SmallDisk(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_command() {
    let Some(disk) = SmallDisk::mount("96k") else { return };
    let directory = directory();
    let trace = disk.0.path().join("t");
    let script = "i=0; while [ $i -lt 30000 ]; do echo x; i=$((i+1)); done >out";
    let output = command(directory.path(), "--out")
        .arg(&trace)
        .args(["--", "sh", "-c", script])
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.ends_with("t: No space left on device; it is whole up to there and says so\n"),
        "{said}"
    );
    assert_eq!(fs::metadata(directory.path().join("out")).unwrap().len(), 60_000);
    let trace = Trace::read(&trace);
    assert_eq!(trace.end.reason, Reason::WriteFailed);
    assert_eq!(trace.end.detail, "No space left on device");
    assert!(trace.end.dropped_records > 0);
    assert!(trace.operations.len() > 1000, "{}", trace.operations.len());
}

#[test]
fn what_cannot_be_recorded_is_told_with_the_remedy() {
    let directory = directory();
    fs::write(directory.path().join("there"), "mine").unwrap();
    let told = |options: &str| {
        let output = command(directory.path(), options).output().unwrap();
        assert!(!output.status.success(), "{options}");
        stderr(&output)
    };
    assert_eq!(
        told("--out there -- true"),
        "ringwise: lab: record: there: the file exists; remove it or choose another one with --out\n"
    );
    assert_eq!(fs::read(directory.path().join("there")).unwrap(), b"mine");
    assert_eq!(
        told("--pid 4194305 --out t"),
        "ringwise: lab: record: process 4194305: no such process\n"
    );
    assert_eq!(
        told("--memory 1k -- true"),
        "ringwise: lab: record: --memory: invalid value '1k': expected at least 1m\n"
    );
    assert_eq!(
        told("--memory 4m --method ptrace -- true"),
        "ringwise: lab: record: --memory does not go with --method ptrace: leave it out\n"
    );
    assert!(told("--duration soon -- true").contains("--duration: invalid value 'soon': expected"));
    assert!(told("--out /no/such/directory/t -- true").contains("No such file or directory"));
    assert!(told("").contains("missing"), "neither a command nor a process");
    assert!(!directory.path().join("t").exists());
}

#[test]
fn a_command_that_is_traced_already_is_told() {
    if !has_program("strace") {
        return;
    }
    let directory = directory();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=none", "-o", "/dev/null"]);
    strace.arg(env!("CARGO_BIN_EXE_ringwise")).args(["lab", "record", "--out", "t", "--", "true"]);
    let output = strace.current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(126), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("traced already by process") && said.contains("end that tracer"),
        "{said}"
    );
}

#[test]
fn a_user_without_permission_gets_ptrace_and_the_reason() {
    let directory = directory();
    // A user other than root, who can reach neither tracefs nor perf events.
    let program = directory.path().join("ringwise");
    fs::copy(env!("CARGO_BIN_EXE_ringwise"), &program).unwrap();
    let work = tempfile::tempdir().unwrap();
    let copy = work.path().join("ringwise");
    fs::copy(&program, &copy).unwrap();
    for path in [work.path(), &copy] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let run = |words: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(["lab", "record"]).args(words).current_dir(work.path()).uid(65534).gid(65534);
        command.output()
    };
    let Ok(output) =
        run(&["--out", "t", "--", "dd", "if=/dev/zero", "of=o", "count=3", "status=none"])
    else {
        return skip("this user cannot become another one");
    };
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("by ptrace: ") && said.contains("which is slower"), "{said}");
    assert!(said.contains("run as root"), "{said}");
    let trace = Trace::read(&work.path().join("t"));
    let o = work.path().canonicalize().unwrap().join("o");
    assert_eq!(count(&trace.on(&o), Kind::Write), (3, 3 * 512));
    let own = std::process::id().to_string();
    let said = stderr(&run(&["--pid", &own, "--out", "p"]).unwrap());
    assert!(said.contains("it belongs to another user"), "{said}");
    // Its own process can be traced, if the security module Yama does not forbid it.
    let mut writer = Command::new("sh");
    writer.args(["-c", "while :; do echo x >>w; sleep 0.01; done"]).current_dir(work.path());
    let mut writer = writer.uid(65534).gid(65534).spawn().unwrap();
    let pid = writer.id().to_string();
    // Four writes take that long where each `sleep` waits for a processor and for ptrace.
    let output = run(&["--pid", &pid, "--duration", "3s", "--out", "q"]).unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    let said = stderr(&output);
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(scope.trim(), "" | "0") {
        assert!(said.contains("kernel.yama.ptrace_scope"), "{said}");
    } else {
        assert!(output.status.success(), "{said}");
        assert!(said.contains("until then ptrace stops the program"), "{said}");
        let trace = Trace::read(&work.path().join("q"));
        let w = work.path().canonicalize().unwrap().join("w");
        let (writes, bytes) = count(&trace.on(&w), Kind::Write);
        assert!(writes > 3, "{writes} writes");
        // The last one can be unfinished.
        assert!((2 * writes - 2..=2 * writes).contains(&bytes), "{writes} writes of {bytes} bytes");
    }
    let output = run(&["--method", "perf", "--out", "p", "--", "true"]).unwrap();
    assert!(!output.status.success() && output.status.signal().is_none());
}
