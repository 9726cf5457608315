//! `ringwise lab record --method ptrace --pid` as a user runs it: what a running program does is counted, and the
//! program goes on afterwards as if nobody had looked.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use ringwise_trace::{Interface, Kind, Operation, Outcome, Reason};

use super::{
    harness::daemon::{has_python, signal},
    lab_record::{
        Trace, command, count, directory, file, has_program, has_what_fio_did, is_under_way, skip,
        stderr, wait_until, words,
    },
};

/// errno(3).
const ENOSYS: u16 = 38;

fn attach(directory: &Path, pid: u32, options: &str) -> Command {
    let mut command = command(directory, "--method ptrace --out t");
    command.args(["--pid", &pid.to_string()]).args(words(options));
    command
}

fn tracer(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    line.trim().parse().unwrap()
}

fn state(pid: u32) -> char {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap();
    line.trim().chars().next().unwrap()
}

/// A program that does not outlive a test that fails.
struct Program(Child);

impl Program {
    fn start(command: &mut Command, directory: &Path) -> Program {
        Program(command.current_dir(directory).spawn().unwrap())
    }

    fn shell(directory: &Path, script: &str) -> Program {
        Program::start(Command::new("sh").args(["-c", script]), directory)
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    #[track_caller]
    fn ends_with(mut self, status: i32) {
        assert_eq!(self.0.wait().unwrap().code(), Some(status));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell that begins to work when a file appears.
#[test]
fn every_operation_of_a_child_that_begins_later_is_seen() {
    let directory = directory();
    let script = "until [ -e go ]; do sleep 0.01; done; \
                  dd if=/dev/zero of=o bs=4096 count=300 conv=fsync status=none; echo end >>o; exit 3";
    let program = Program::shell(directory.path(), script);
    let mut recorder = attach(directory.path(), program.id(), "");
    let recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| is_under_way(&directory.path().join("t")));
    fs::write(directory.path().join("go"), "").unwrap();
    program.ends_with(3);
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let trace = Trace::read(&directory.path().join("t"));
    let o = directory.path().join("o").canonicalize().unwrap();
    let operations = trace.on(&o);
    assert_eq!(count(&operations, Kind::Write), (301, 300 * 4096 + 4));
    assert_eq!(count(&operations, Kind::Sync).0, 1);
    let offsets: Vec<_> = operations.iter().filter_map(|one| one.offset).collect();
    assert_eq!(offsets, (0..300).map(|block| block * 4096).collect::<Vec<u64>>());
    assert_eq!((trace.end.reason, trace.end.lost_events), (Reason::Exited, 0));
    assert_eq!(trace.header.method, "ptrace");
    assert!(trace.end.added_ns_per_syscall.is_some_and(|added_ns| added_ns > 0));
    let blind_spots = trace.header.blind_spots.join("\n");
    assert!(!blind_spots.contains("Linux AIO"), "{blind_spots}");
}

/// Its many children make attaching long, and meanwhile it makes others.
#[test]
fn a_process_that_forks_while_the_tracer_attaches_is_followed() {
    let directory = directory();
    let script = "all=; while [ ${#all} -lt 1500 ]; do sleep 60 & all=\"$all $!\"; done; : >ready; \
                  until [ -e enough ]; do (:); (:); (:); echo x >>o; done; kill $all";
    let program = Program::shell(directory.path(), script);
    wait_until(|| directory.path().join("ready").exists());
    for _ in 0..8 {
        let output = attach(directory.path(), program.id(), "--duration 50ms").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let trace = Trace::read(&directory.path().join("t"));
        // A syscall that begins has this value: its begin would have been taken for its end.
        let is_swapped = |one: &&Operation| one.outcome == Outcome::Failed { errno: ENOSYS };
        assert_eq!(trace.operations.iter().find(is_swapped), None);
        fs::remove_file(directory.path().join("t")).unwrap();
    }
    fs::write(directory.path().join("enough"), "").unwrap();
    program.ends_with(0);
}

/// fio is the oracle, and its job is a process that runs already. Tracepoints cannot see Linux AIO of such a process.
#[test]
fn what_a_running_fio_does_by_linux_aio_is_seen() {
    if !has_program("fio") {
        return;
    }
    let directory = directory();
    let path = file(directory.path(), "f", 4 << 20);
    let job = "--name=j --filename=f --size=4m --rw=randrw --ioengine=libaio --direct=1 --iodepth=8 \
               --startdelay=2 --thread --output=o --output-format=json";
    let fio = Program::start(Command::new("fio").args(words(job)), directory.path());
    let output = attach(directory.path(), fio.id(), "").output().unwrap();
    fio.ends_with(0);
    assert!(output.status.success(), "{}", stderr(&output));
    let trace = Trace::read(&directory.path().join("t"));
    let operations = trace.on(&path);
    has_what_fio_did(directory.path(), "libaio", &operations);
    let by_aio = operations.iter().filter(|one| one.interface == Interface::LinuxAio);
    assert_eq!(by_aio.count(), 1024);
    assert!(trace.end.in_flight_max >= 2, "{}", trace.end.in_flight_max);
}

/// A program with threads that come and go, children, and signals if that is its argument, of which every second one is
/// a real-time signal. It counts what it got, and fails if anything is other than without a tracer.
const STORM: &str = r#"
import os, signal, sys, threading, time
f = os.open("f", os.O_RDONLY)
got = sent = 0
def count(*_):
    global got
    got += 1
kinds = [signal.SIGUSR1, signal.SIGRTMIN + 3]
for kind in kinds:
    signal.signal(kind, count)
def goes_on():
    return not os.path.exists("enough")
failures = []
def whole(work):
    def run():
        try:
            work()
        except BaseException as error:
            failures.append(error)
    return run
def read():
    while goes_on():
        assert len(os.pread(f, 4096, 8192)) == 4096
def begin_threads():
    while goes_on():
        thread = threading.Thread(target=whole(lambda: os.pread(f, 1, 0)))
        thread.start()
        thread.join()
def begin_children():
    turn = 0
    while goes_on():
        child = os.fork()
        if child == 0:
            if turn % 3 == 0:
                os.execvp("true", ["true"])
            os._exit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == (0 if turn % 3 == 0 else 7), status
        turn += 1
threads = [threading.Thread(target=whole(work)) for work in (read, read, begin_threads, begin_children)]
for thread in threads:
    thread.start()
while goes_on():
    if sys.argv[1] == "signals":
        sent += 1
        os.kill(os.getpid(), kinds[sent % 2])
    limit = time.monotonic() + 10
    while got < sent and time.monotonic() < limit:
        time.sleep(0.001)
    assert got == sent, (got, sent)
for thread in threads:
    thread.join()
assert not failures, failures
"#;

fn storm(directory: &Path, word: &str) -> Program {
    file(directory, "f", 1 << 20);
    Program::start(Command::new("python3").args(["-c", STORM, word]), directory)
}

#[track_caller]
fn ends_well(directory: &Path, storm: Program) {
    // It goes on after the tracer has left.
    thread::sleep(Duration::from_millis(100));
    fs::write(directory.join("enough"), "").unwrap();
    storm.ends_with(0);
}

#[test]
fn a_program_does_not_notice_that_it_is_recorded() {
    if !has_python() {
        return;
    }
    let directory = directory();
    let storm = storm(directory.path(), "signals");
    for _ in 0..3 {
        let output = attach(directory.path(), storm.id(), "--duration 1s").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let trace = Trace::read(&directory.path().join("t"));
        assert_eq!((trace.end.reason, trace.end.lost_events), (Reason::Duration, 0));
        assert!(trace.operations.len() > 10, "{}", trace.operations.len());
        fs::remove_file(directory.path().join("t")).unwrap();
    }
    ends_well(directory.path(), storm);
}

/// A signal that the recorder has seen and not passed on yet is lost: the kernel has nobody else to ask.
#[test]
fn a_program_goes_on_when_its_recorder_is_killed() {
    if !has_python() {
        return;
    }
    let directory = directory();
    let storm = storm(directory.path(), "quiet");
    for _ in 0..3 {
        let mut recorder = attach(directory.path(), storm.id(), "").spawn().unwrap();
        wait_until(|| is_under_way(&directory.path().join("t")));
        thread::sleep(Duration::from_millis(100));
        assert_ne!(tracer(storm.id()), 0);
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        wait_until(|| tracer(storm.id()) == 0);
        fs::remove_file(directory.path().join("t")).unwrap();
    }
    ends_well(directory.path(), storm);
}

#[test]
fn a_program_that_is_stopped_stays_so_until_it_is_continued() {
    let directory = directory();
    let program = Program::shell(directory.path(), "while [ ! -e enough ]; do echo x >>o; done");
    wait_until(|| directory.path().join("o").exists());
    signal(&program.0, "-STOP");
    wait_until(|| state(program.id()) == 'T');
    let len = || fs::metadata(directory.path().join("o")).unwrap().len();
    let mut recorder = attach(directory.path(), program.id(), "");
    let recorder = Program::start(&mut recorder, directory.path());
    wait_until(|| directory.path().join("t").exists());
    assert_ne!(tracer(program.id()), 0);
    let before = len();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(len(), before, "it runs, though it was stopped");
    signal(&program.0, "-CONT");
    wait_until(|| len() > before);
    signal(&program.0, "-STOP");
    thread::sleep(Duration::from_millis(100));
    let before = len();
    signal(&recorder.0, "-INT");
    recorder.ends_with(0);
    assert_eq!((state(program.id()), tracer(program.id())), ('T', 0));
    assert_eq!(len(), before, "it runs, though it was stopped");
    fs::write(directory.path().join("enough"), "").unwrap();
    signal(&program.0, "-CONT");
    program.ends_with(0);
    let trace = Trace::read(&directory.path().join("t"));
    assert_eq!(trace.end.reason, Reason::Signal);
    assert!(count(&trace.operations, Kind::Write).0 > 0);
}

/// A mounted file system that may be frozen.
struct Frozen(PathBuf);

impl Frozen {
    fn thaw(&self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).stderr(Stdio::null()).status();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
    }
}

/// A process that waits for a frozen file system does not stop. The recorder lets it be.
#[test]
fn a_process_that_cannot_stop_does_not_hold_the_recorder() {
    let directory = directory();
    let mount = directory.path().join("m");
    let script = "truncate -s 64M i && mkfs.ext4 -q i && mkdir m && mount -o loop i m && : >m/f && fsfreeze -f m";
    let made = Command::new("sh").args(["-c", script]).current_dir(directory.path()).output();
    let made = made.unwrap();
    let frozen = Frozen(mount.clone());
    if !made.status.success() {
        return skip(&format!("no file system can be frozen here: {}", stderr(&made)));
    }
    let program = Program::shell(&mount, "echo x >>f");
    // It has to drop before the program, which waits for it.
    let frozen = frozen;
    wait_until(|| state(program.id()) == 'D');
    let recorded = attach(directory.path(), program.id(), "--duration 100ms").output();
    let is_waiting = state(program.id()) == 'D';
    frozen.thaw();
    program.ends_with(0);
    drop(frozen);
    let output = recorded.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(is_waiting);
    assert_eq!(Trace::read(&directory.path().join("t")).end.reason, Reason::Duration);
}

#[test]
fn a_process_that_is_traced_already_is_told_with_its_tracer() {
    if !has_program("strace") {
        return;
    }
    let directory = directory();
    let sleeper = Program::start(Command::new("sleep").arg("60"), directory.path());
    let pid = sleeper.id().to_string();
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-p", &pid]).stderr(Stdio::null());
    let strace = Program::start(&mut strace, directory.path());
    wait_until(|| tracer(sleeper.id()) == strace.id());
    let output = attach(directory.path(), sleeper.id(), "").output().unwrap();
    assert_eq!(
        stderr(&output),
        format!(
            "ringwise: lab: record: process {pid}: process {} traces it already; end that tracer\n",
            strace.id()
        )
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(!directory.path().join("t").exists());
}
