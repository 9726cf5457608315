//! Rings of every kind, each with a disk beside it: what holds for the shared handle holds for all.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::{Path, PathBuf};

use ringwise::{BackendChoice, Local, OpenOptions, Ring, fs::File, sim::Simulation};

/// A ring, and a directory that its files can lie in.
pub struct Place {
    pub name: &'static str,
    pub ring: Ring,
    disk: Disk,
}

enum Disk {
    Real(tempfile::TempDir),
    Simulated(Simulation),
}

impl Place {
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.disk {
            Disk::Real(directory) => directory.path().join(name),
            Disk::Simulated(_) => Path::new("/").join(name),
        }
    }

    /// Makes a file outside of the ring.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        match &self.disk {
            Disk::Real(_) => std::fs::write(path, bytes).unwrap(),
            Disk::Simulated(simulation) => simulation.write(path, bytes).unwrap(),
        }
    }

    /// Looks at a file outside of the ring.
    pub fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        match &self.disk {
            Disk::Real(_) => std::fs::read(path).unwrap(),
            Disk::Simulated(simulation) => simulation.read(path).unwrap(),
        }
    }

    pub fn is_simulated(&self) -> bool {
        matches!(self.disk, Disk::Simulated(_))
    }

    pub async fn open(&self, name: &str, options: OpenOptions) -> File {
        File::open(&self.ring, self.path(name), options).await.unwrap()
    }

    /// A new file to be read and written.
    pub async fn create(&self, name: &str) -> File {
        self.open(name, read_write().create(true)).await
    }
}

pub fn read_write() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

/// A ring with a driver thread; nothing, and said so, where there is none of this kind.
pub fn threaded(choice: BackendChoice) -> Option<Ring> {
    let builder = Local::builder().entries(8).backend(choice).driver_thread(true);
    builder.build_ring().map_err(|error| skip(&error.to_string())).ok()
}

/// A ring on a simulated machine.
pub fn simulated(simulation: &Simulation) -> Place {
    let builder = Local::builder().entries(8).simulation(simulation);
    let ring = builder.build_ring().unwrap();
    Place { name: "simulated", ring, disk: Disk::Simulated(simulation.clone()) }
}

/// A ring that somebody else has built, on the machine that it was built for.
pub fn place_of(name: &'static str, ring: Ring, simulation: Option<&Simulation>) -> Place {
    let disk = match simulation {
        Some(simulation) => Disk::Simulated(simulation.clone()),
        None => Disk::Real(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()),
    };
    Place { name, ring, disk }
}

/// Places on the kernel's own files.
pub fn real_places() -> Vec<Place> {
    let threads = [("uring", BackendChoice::Uring), ("classic", BackendChoice::Classic)];
    let rings = threads.map(|(name, choice)| (name, threaded(choice)));
    #[cfg(feature = "tokio")]
    let driven =
        [("uring in tokio", BackendChoice::Uring), ("classic in tokio", BackendChoice::Classic)]
            .map(|(name, choice)| {
                (name, runtime_driven(Local::builder().entries(8).backend(choice)))
            });
    #[cfg(not(feature = "tokio"))]
    let driven: [(&str, Option<Ring>); 0] = [];
    rings
        .into_iter()
        .chain(driven)
        .filter_map(|(name, ring)| {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            Some(Place { name, ring: ring?, disk: Disk::Real(directory) })
        })
        .collect()
}

/// All places: those on the kernel's files, and a simulated one.
pub fn places() -> Vec<Place> {
    let mut places = real_places();
    places.push(simulated(&Simulation::new(1)));
    places
}

/// A ring that a tokio runtime drives, which runs as long as the tests do.
#[cfg(feature = "tokio")]
fn runtime_driven(builder: ringwise::Builder) -> Option<Ring> {
    use std::sync::OnceLock;
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut settings = tokio::runtime::Builder::new_multi_thread();
        settings.worker_threads(2).enable_all().build().unwrap()
    });
    let _context = runtime.enter();
    builder.build_ring().map_err(|error| skip(&error.to_string())).ok()
}

/// Makes this thread a user's of whom nobody else is, and who may have so many threads in all. False,
/// and said so, where that cannot be.
pub fn may_have_threads(count: u64) -> bool {
    use rustix::{
        process::{Resource, Rlimit, Uid, setrlimit},
        thread::set_thread_res_uid,
    };
    setrlimit(Resource::Nproc, Rlimit { current: Some(count), maximum: Some(count) }).unwrap();
    let user = Uid::from_raw(1 << 30 | std::process::id());
    let became = set_thread_res_uid(user, user, user);
    if let Err(error) = &became {
        skip(&format!("not root: {error}"));
    }
    became.is_ok()
}

/// Runs `body` in a process of its own, which is this test called again by its name; it may spoil
/// limits and descriptors. Killed, and a failure, when it takes longer than a minute.
pub fn in_child(test: &str, body: fn()) {
    use std::{
        process::{Command, Stdio},
        time::{Duration, Instant},
    };
    const MARK: &str = "RINGWISE_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let mut output = tempfile::tempfile().unwrap();
    let both = || Stdio::from(output.try_clone().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .stdout(both())
        .stderr(both())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > Duration::from_secs(60) => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut text = String::new();
    std::io::Seek::rewind(&mut output).unwrap();
    std::io::Read::read_to_string(&mut output, &mut text).unwrap();
    let success = status.is_some_and(|status| status.success());
    assert!(success && text.contains("1 passed"), "{status:?}\n{text}");
}
