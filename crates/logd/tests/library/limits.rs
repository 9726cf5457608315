//! What the daemon makes of a machine that has no threads or no locked memory for it: of a cgroup's limit of
//! processes, and of a limit of locked memory.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
};

use crate::daemon::{Daemon, command, skip, stored};

/// A cgroup that bounds how many threads are in it; it goes when they have gone.
struct Group(PathBuf);

impl Group {
    /// Nothing, and said so, where none can be made.
    fn new(name: &str, threads: u32) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let of_v1 = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
            (kind == "cgroup" && options.split(',').any(|one| one == "pids")).then_some(place)
        });
        let of_v2 = || Path::new("/sys/fs/cgroup/pids.max").exists().then_some("/sys/fs/cgroup");
        let Some(root) = of_v1.or_else(of_v2) else {
            skip("no cgroup counts processes");
            return None;
        };
        let path = Path::new(root).join(format!("ringwise-{name}-{}", std::process::id()));
        let made = fs::create_dir(&path);
        let limited = made.and_then(|()| fs::write(path.join("pids.max"), threads.to_string()));
        if let Err(error) = limited {
            let _ = fs::remove_dir(&path);
            skip(&format!("{}: {error}", path.display()));
            return None;
        }
        Some(Group(path))
    }

    fn start(&self, directory: &Path, flags: &[&str]) -> Result<Daemon, String> {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec \"$@\"", procs.display());
        // As many as processors would be more on a larger machine.
        let own = ["--threads", "1", "--dir", directory.to_str().unwrap()];
        Daemon::start(command(&["sh", "-c", &script, "sh"], &[&own, flags].concat()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

const HAS_NO_THREAD: &str =
    "raise the limit of processes (ulimit -u, a cgroup's pids.max, TasksMax=)";

/// Threads of a daemon that has nothing but what it needs: the test program's, and its own three, which
/// are the first, the one that seals, and the one that stores.
const NEEDED: u32 = 4;

/// Those of the kernel, for `--sqpoll` and for writes and syncs, are more.
#[test]
fn where_a_cgroup_has_no_thread_for_the_kernel_the_daemon_stores_without() {
    for (engine, threads) in [("uring", NEEDED), ("auto", NEEDED), ("uring", 20)] {
        let Some(group) = Group::new("stores", threads) else { return };
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--engine", engine, "--sqpoll", "10ms"];
        let daemon = match group.start(directory.path(), &flags) {
            Ok(daemon) => daemon,
            Err(error) if error.contains("no io_uring") => return skip(&error),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(daemon.has_thread("iou-sqp-"), threads > NEEDED);
        daemon.store(1, 20);
        let output = daemon.end();
        let refused =
            "without SQPOLL: a submission thread was refused: io_uring_setup: Resource temporarily";
        assert_eq!(output.contains(refused), threads == NEEDED, "{output}");
        let made = "the kernel has no thread for its writes and syncs";
        assert_eq!(output.contains(made), threads == NEEDED, "{output}");
        assert!(!output.contains("is dead"), "{output}");
        assert_eq!(stored(directory.path()).len(), 20);
    }
}

#[test]
fn who_may_have_no_thread_is_told_in_one_line_which_and_what_to_do() {
    // All of them before the first request, which would take the last.
    for (threads, whose) in [
        (NEEDED - 2, "that keeps segments"),
        (NEEDED - 1, "that serves"),
        (NEEDED, "that watches the others"),
        (NEEDED + 1, "that takes requests"),
    ] {
        let Some(group) = Group::new("starts", threads) else { return };
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--engine", "epoll", "--http", "127.0.0.1:0"];
        let error = group.start(directory.path(), &flags).err().unwrap();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(whose) && error.contains(HAS_NO_THREAD), "{error}");
    }
}

/// Each request has a thread. Who asked whether the daemon lives was sent nothing where there was none
/// for it, and would have ended a daemon that stores as ever.
#[test]
fn without_a_thread_for_it_a_request_hears_that_the_daemon_lives() {
    // And the one that takes requests, and the one that watches the others.
    let Some(group) = Group::new("lives", NEEDED + 2) else { return };
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--engine", "epoll", "--http", "127.0.0.1:0"];
    let daemon = group.start(directory.path(), &flags).unwrap();
    for _ in 0..3 {
        assert_eq!(daemon.get("/livez"), (200, "ok\n".to_owned()));
        assert_eq!(daemon.get("/readyz"), (200, "ok\n".to_owned()));
        assert_eq!(daemon.get("/").0, 503, "what takes long is not for the thread that accepts");
    }
    daemon.store(1, 3);
    let output = daemon.end();
    assert!(output.contains("of a request") && output.contains(HAS_NO_THREAD), "{output}");
    assert_eq!(stored(directory.path()).len(), 3);
}

/// A daemon of a user who may lock so many bytes. Root may lock what it likes.
fn start_locking(directory: &Path, bytes: u32, flags: &[&str]) -> Result<Daemon, String> {
    let user = 1 << 30 | std::process::id();
    chown(directory, Some(user), Some(user)).map_err(|error| format!("not root: {error}"))?;
    let limit = format!("--memlock={bytes}:{bytes}");
    let own = ["--dir", directory.to_str().unwrap()];
    let mut command = command(&["prlimit", &limit], &[&own, flags].concat());
    command.uid(user).gid(user);
    Daemon::start(command)
}

/// A ring's memory counts as locked (Linux 6.14; before 5.12 too), so where none may be there is no ring:
/// `auto` serves without and says why, and `uring` ends with what to do.
#[test]
fn without_locked_memory_there_is_no_ring_and_that_is_told() {
    let reason = "io_uring_setup: Cannot allocate memory";
    let remedy = "raise the locked-memory limit (ulimit -l)";
    let place = || tempfile::tempdir().unwrap();
    let directory = place();
    let error = match start_locking(directory.path(), 0, &["--engine", "uring"]) {
        Ok(_) => return skip("a ring locks no memory here"),
        Err(error) if error.contains("not root") => return skip(&error),
        Err(error) => error,
    };
    if !error.contains(reason) {
        return skip(&error);
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("no io_uring") && error.contains(remedy), "{error}");
    for more in [&[][..], &["--sqpoll", "10ms"]] {
        let directory = place();
        let flags = [&["--engine", "auto"], more].concat();
        let daemon = start_locking(directory.path(), 0, &flags).unwrap();
        daemon.store(1, 5);
        let output = daemon.end();
        let told: Vec<&str> = output.lines().filter(|line| line.contains(reason)).collect();
        assert_eq!(told.len(), 1, "{output}");
        assert!(told[0].contains("on epoll") && told[0].contains(remedy), "{output}");
        assert!(!output.contains("SQPOLL"), "one reason: {output}");
    }
}
