//! The simulated disk answers as the real one: random programs on names and files, made by classic
//! calls in a directory and by the simulation, have the same results, errors included, and leave
//! the same.

use std::path::{Path, PathBuf};

use proptest::{prelude::*, test_runner::TestRunner};
use ringwise::{
    AllocateMode, BackendChoice, Completion, Descriptor, Local, OpenOptions, Operation,
    sim::Simulation,
};

/// Names that programs use: files, directories, what is missing, and ways around.
const PATHS: [&str; 20] = [
    "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a", "a/", "d/", "d/.", "d/..",
    "d/../a", "d/e/../b", "link", "link/a", "loop", "dangling",
];

#[derive(Clone, Debug)]
enum Step {
    Open { path: usize, options: u16 },
    Write { file: usize, at: u64, len: usize },
    Read { file: usize, at: u64, len: usize },
    SetLen { file: usize, len: u64 },
    Allocate { file: usize, mode: usize, at: u64, len: u64 },
    Sync { file: usize },
    Close { file: usize },
    Statx { path: usize, follow: bool },
    StatxFile { file: usize },
    Unlink { path: usize },
    RemoveDir { path: usize },
    CreateDir { path: usize },
    Rename { from: usize, to: usize },
    RenameAt { from: usize, to: usize, replace: bool },
    Link { from: usize, to: usize },
}

const MODES: [AllocateMode; 3] =
    [AllocateMode::Extend, AllocateMode::KeepSize, AllocateMode::PunchHole];
const LEN_MAX: u64 = 10_000;

fn step() -> impl Strategy<Value = Step> {
    let path = || 0..PATHS.len();
    let file = || 0..6_usize;
    let (at, len) = (|| 0..LEN_MAX, || 0..5000_usize);
    prop_oneof![
        6 => (path(), any::<u16>()).prop_map(|(path, options)| Step::Open { path, options }),
        4 => (file(), at(), len()).prop_map(|(file, at, len)| Step::Write { file, at, len }),
        3 => (file(), at(), len()).prop_map(|(file, at, len)| Step::Read { file, at, len }),
        2 => (file(), at()).prop_map(|(file, len)| Step::SetLen { file, len }),
        2 => (file(), 0..MODES.len(), at(), at())
            .prop_map(|(file, mode, at, len)| Step::Allocate { file, mode, at, len }),
        1 => file().prop_map(|file| Step::Sync { file }),
        1 => file().prop_map(|file| Step::Close { file }),
        3 => (path(), any::<bool>()).prop_map(|(path, follow)| Step::Statx { path, follow }),
        2 => file().prop_map(|file| Step::StatxFile { file }),
        3 => path().prop_map(|path| Step::Unlink { path }),
        2 => path().prop_map(|path| Step::RemoveDir { path }),
        4 => path().prop_map(|path| Step::CreateDir { path }),
        4 => (path(), path()).prop_map(|(from, to)| Step::Rename { from, to }),
        3 => (path(), path(), any::<bool>())
            .prop_map(|(from, to, replace)| Step::RenameAt { from, to, replace }),
        3 => (path(), path()).prop_map(|(from, to)| Step::Link { from, to }),
    ]
}

/// One of the two machines.
struct Machine {
    local: Local,
    base: PathBuf,
    directory: Descriptor,
    files: Vec<Descriptor>,
}

/// What a step came to: its result, and what it told.
type Told = (i32, Vec<u8>, Option<(u32, u64, u32)>);

impl Machine {
    fn new(mut local: Local, base: &Path) -> Machine {
        let open = Operation::open(base, OpenOptions::new().read(true));
        let directory = local.run(open).unwrap().into_descriptor().unwrap();
        Machine { local, base: base.into(), directory, files: Vec::new() }
    }

    fn path(&self, number: usize) -> PathBuf {
        // As text: joining would take a slash at the end away.
        PathBuf::from(format!("{}/{}", self.base.display(), PATHS[number]))
    }

    fn step(&mut self, step: &Step) -> Option<Told> {
        let file = |file: usize| self.files.get(file);
        let operation = match *step {
            Step::Open { path, options } => Operation::open(self.path(path), open_options(options)),
            Step::Write { file: on, at, len } => {
                Operation::write_at(file(on)?, vec![at as u8 | 1; len], at)
            }
            Step::Read { file: on, at, len } => Operation::read_at(file(on)?, vec![0; len], at),
            Step::SetLen { file: on, len } => Operation::set_len(file(on)?, len),
            Step::Allocate { file: on, mode, at, len } => {
                Operation::allocate(file(on)?, MODES[mode], at, len)
            }
            Step::Sync { file: on } => Operation::sync_all(file(on)?),
            Step::Close { file: on } => {
                file(on)?;
                Operation::close(self.files.swap_remove(on))
            }
            Step::Statx { path, follow: true } => Operation::statx(self.path(path)),
            Step::Statx { path, follow: false } => Operation::statx_link(self.path(path)),
            Step::StatxFile { file: on } => Operation::statx_descriptor(file(on)?),
            Step::Unlink { path } => Operation::unlink(self.path(path)),
            Step::RemoveDir { path } => Operation::remove_dir(self.path(path)),
            Step::CreateDir { path } => Operation::create_dir(self.path(path), 0o755),
            Step::Rename { from, to } => Operation::rename(self.path(from), self.path(to)),
            Step::RenameAt { from, to, replace } => {
                let (from, to) = (PATHS[from], PATHS[to]);
                Operation::rename_at((&self.directory, from), (&self.directory, to), replace)
            }
            Step::Link { from, to } => Operation::link(self.path(from), self.path(to)),
        };
        let done = self.local.run(operation).unwrap();
        Some(self.told(done))
    }

    fn told(&mut self, done: Completion) -> Told {
        let result = done.raw_result();
        let metadata = done.metadata().ok();
        let told = metadata.map(|metadata| {
            // How long a directory is, and how many names it has, is each file system's own.
            let of_file = !metadata.is_dir();
            let len = if of_file { metadata.len() } else { 0 };
            (metadata.mode(), len, if of_file { metadata.links() } else { 0 })
        });
        match done.opcode() {
            ringwise::Opcode::Open if result >= 0 => {
                self.files.push(done.into_descriptor().unwrap());
                (0, Vec::new(), None)
            }
            ringwise::Opcode::Read if result >= 0 => {
                let buffer = done.into_buffer().unwrap();
                (result, buffer.as_slice()[..result as usize].to_vec(), None)
            }
            _ => (result, Vec::new(), told),
        }
    }
}

fn open_options(bits: u16) -> OpenOptions {
    let has = |bit: u16| bits & (1 << bit) != 0;
    let mut flags = 0;
    for (bit, flag) in [(12, libc::O_NOFOLLOW), (13, libc::O_DIRECTORY)] {
        if has(bit) && has(bit - 4) {
            flags |= flag;
        }
    }
    let creates = flags & libc::O_DIRECTORY == 0 && (has(2) || has(3));
    OpenOptions::new()
        .read(has(0))
        .write(has(1))
        .create(creates)
        .create_new(creates && has(4) && has(5))
        .truncate(has(6) && has(7) && has(1))
        .append(has(10) && has(11) && has(15))
        .custom_flags(flags)
}

#[test]
fn random_programs_have_the_results_of_a_real_disk() {
    let cases = if std::env::var_os("CI").is_some() { 5000 } else { 400 };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| compare_random_programs(cases / 2));
        }
    });
}

fn compare_random_programs(cases: u32) {
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    let programs = proptest::collection::vec(step(), 1..60);
    let result = runner.run(&programs, |program| {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = directory.path();
        let simulation = Simulation::new(0);
        simulation.create_dir_all(base).unwrap();
        for (target, link) in [("d", "link"), ("loop", "loop"), ("nowhere", "dangling")] {
            std::os::unix::fs::symlink(target, base.join(link)).unwrap();
            simulation.symlink(target, base.join(link)).unwrap();
        }
        let classic = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let mut real = Machine::new(classic, base);
        let simulated = Local::builder().simulation(&simulation).build().unwrap();
        let mut simulated = Machine::new(simulated, base);
        for step in &program {
            let named = |number: usize| PATHS[number];
            let names = match *step {
                Step::Rename { from, to }
                | Step::RenameAt { from, to, .. }
                | Step::Link { from, to } => vec![named(from), named(to)],
                Step::Open { path, .. } | Step::Statx { path, .. } => vec![named(path)],
                Step::Unlink { path } | Step::RemoveDir { path } | Step::CreateDir { path } => {
                    vec![named(path)]
                }
                _ => Vec::new(),
            };
            let (expected, got) = (real.step(step), simulated.step(step));
            prop_assert_eq!(expected, got, "{:?} {:?}", step, names);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
