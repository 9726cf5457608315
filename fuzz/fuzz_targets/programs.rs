//! Programs of file operations, made by a fuzzer: a ring, classic calls and the simulated disk have
//! the same results, step by step, errors included, and leave the same files.

#![no_main]

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use ringwise::{
    AllocateMode, BackendChoice, Buffer, Completion, Descriptor, Local, Opcode, OpenOptions,
    Operation, sim::Simulation,
};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "missing/a"];
/// Offsets and lengths stay where a disk of this size has something to say.
const OFFSET_MAX: u64 = 20_000;
const STEPS_MAX: usize = 64;

#[derive(Arbitrary, Debug)]
enum Step {
    Open {
        name: u8,
        options: u8,
    },
    Write {
        file: u8,
        at: u16,
        len: u16,
    },
    WriteVectored {
        file: u8,
        at: u16,
        lens: [u8; 3],
    },
    Read {
        file: u8,
        at: u16,
        len: u16,
        skip: u8,
    },
    ReadVectored {
        file: u8,
        at: u16,
        lens: [u8; 3],
    },
    /// Offsets that no file has, or none that the kernel takes.
    ReadFar {
        file: u8,
        at: u64,
    },
    SetLen {
        file: u8,
        len: u16,
    },
    Allocate {
        file: u8,
        mode: u8,
        at: u16,
        len: u16,
    },
    Sync {
        file: u8,
        data_only: bool,
    },
    Close {
        file: u8,
    },
    Statx {
        name: u8,
    },
    StatxFile {
        file: u8,
    },
    Unlink {
        name: u8,
    },
    CreateDir {
        name: u8,
    },
    RemoveDir {
        name: u8,
    },
    Rename {
        from: u8,
        to: u8,
    },
    Link {
        from: u8,
        to: u8,
    },
}

/// What a step came to: its result, its bytes, and of metadata what file systems agree on.
type Told = (i32, Vec<u8>, Option<(u32, u64)>);

struct Machine<'a> {
    local: &'a mut Local,
    base: PathBuf,
    files: Vec<Descriptor>,
}

impl Machine<'_> {
    fn path(&self, name: u8) -> PathBuf {
        self.base.join(NAMES[usize::from(name) % NAMES.len()])
    }

    fn file(&self, number: u8) -> Option<&Descriptor> {
        self.files.get(usize::from(number).checked_rem(self.files.len())?)
    }

    fn operation(&mut self, step: &Step) -> Option<Operation> {
        let offset = |at: u16| u64::from(at) % OFFSET_MAX;
        let parts = |lens: &[u8; 3], byte: u8| {
            lens.iter().map(|len| Buffer::from(vec![byte; usize::from(*len)])).collect()
        };
        Some(match *step {
            Step::Open { name, options } => Operation::open(self.path(name), open_options(options)),
            Step::Write { file, at, len } => {
                let bytes = vec![at as u8 | 1; usize::from(len) % 9000];
                Operation::write_at(self.file(file)?, bytes, offset(at))
            }
            Step::WriteVectored { file, at, ref lens } => {
                let bytes = parts(lens, at as u8 | 2);
                Operation::write_vectored_at(self.file(file)?, bytes, offset(at))
            }
            Step::Read { file, at, len, skip } => {
                let (skip, len) = (usize::from(skip), usize::from(len) % 9000);
                let buffer = Buffer::from(vec![0; skip + len]).slice(skip..);
                Operation::read_at(self.file(file)?, buffer, offset(at))
            }
            Step::ReadVectored { file, at, ref lens } => {
                Operation::read_vectored_at(self.file(file)?, parts(lens, 0), offset(at))
            }
            Step::ReadFar { file, at } => Operation::read_at(self.file(file)?, vec![0; 8], at),
            Step::SetLen { file, len } => Operation::set_len(self.file(file)?, offset(len)),
            Step::Allocate { file, mode, at, len } => {
                let modes = [AllocateMode::Extend, AllocateMode::KeepSize, AllocateMode::PunchHole];
                let mode = modes[usize::from(mode) % modes.len()];
                Operation::allocate(self.file(file)?, mode, offset(at), offset(len))
            }
            Step::Sync { file, data_only: true } => Operation::sync_data(self.file(file)?),
            Step::Sync { file, data_only: false } => Operation::sync_all(self.file(file)?),
            Step::Close { file } => {
                let at = usize::from(file).checked_rem(self.files.len())?;
                Operation::close(self.files.swap_remove(at))
            }
            Step::Statx { name } => Operation::statx(self.path(name)),
            Step::StatxFile { file } => Operation::statx_descriptor(self.file(file)?),
            Step::Unlink { name } => Operation::unlink(self.path(name)),
            Step::CreateDir { name } => Operation::create_dir(self.path(name), 0o755),
            Step::RemoveDir { name } => Operation::remove_dir(self.path(name)),
            Step::Rename { from, to } => Operation::rename(self.path(from), self.path(to)),
            Step::Link { from, to } => Operation::link(self.path(from), self.path(to)),
        })
    }

    fn step(&mut self, step: &Step) -> Option<Told> {
        let operation = self.operation(step)?;
        // What is refused before it is handed over is refused by all alike.
        Some(match self.local.run(operation) {
            Ok(done) => self.told(done),
            Err(error) => (-error.errno(), Vec::new(), None),
        })
    }

    fn told(&mut self, done: Completion) -> Told {
        let result = done.raw_result();
        let moved = usize::try_from(result).unwrap_or(0);
        match done.opcode() {
            Opcode::Open if result >= 0 => {
                self.files.push(done.into_descriptor().expect("it was opened"));
                (0, Vec::new(), None)
            }
            Opcode::Read => {
                let buffer = done.into_buffer().expect("a read has a buffer");
                (result, buffer.selected()[..moved].to_vec(), None)
            }
            Opcode::ReadVectored => {
                let buffers = done.into_buffers();
                let bytes = buffers.iter().flat_map(|buffer| buffer.selected());
                (result, bytes.take(moved).copied().collect(), None)
            }
            _ => {
                let metadata = done.metadata().ok();
                // How long a directory is, is each file system's own.
                let len = |about: &ringwise::Metadata| if about.is_dir() { 0 } else { about.len() };
                (result, Vec::new(), metadata.map(|about| (about.mode(), len(&about))))
            }
        }
    }

    /// What is in each file, by its name.
    fn left(&mut self) -> Vec<Told> {
        let names = 0..NAMES.len() as u8;
        names
            .filter_map(|name| {
                let open = OpenOptions::new().read(true);
                let done = self.local.run(Operation::open(self.path(name), open)).ok()?;
                let file = done.into_descriptor().ok()?;
                let read = Operation::read_at(&file, vec![0; 1 << 16], 0);
                self.local.run(read).ok().map(|done| self.told(done))
            })
            .collect()
    }
}

fn open_options(bits: u8) -> OpenOptions {
    let has = |bit: u8| bits & (1 << bit) != 0;
    OpenOptions::new()
        .read(has(0) || !has(1))
        .write(has(1))
        .create(has(2) && has(1))
        .create_new(has(3) && has(4) && has(1))
        .truncate(has(5) && has(6) && has(1))
        .append(has(7) && has(6) && has(1))
}

struct Real(Local);

thread_local! {
    /// Made once: a ring's setup takes longer than a program.
    static REAL: RefCell<Vec<Real>> = RefCell::new(
        [BackendChoice::Uring, BackendChoice::Classic]
            .into_iter()
            .filter_map(|choice| Local::builder().backend(choice).build().ok().map(Real))
            .collect(),
    );
}

fn run(program: &[Step], real: &mut [Real]) {
    let directories: Vec<_> =
        real.iter().map(|_| tempfile::tempdir().expect("a temporary directory")).collect();
    let simulation = Simulation::new(0);
    let mut simulated = Local::builder().simulation(&simulation).build().expect("needs nothing");
    let mut model =
        Machine { local: &mut simulated, base: Path::new("/").into(), files: Vec::new() };
    let mut machines: Vec<_> = real
        .iter_mut()
        .zip(&directories)
        .map(|(Real(local), directory)| Machine {
            local,
            base: directory.path().into(),
            files: Vec::new(),
        })
        .collect();
    for (number, step) in program.iter().enumerate() {
        let expected = model.step(step);
        for machine in &mut machines {
            let backend = machine.local.setup().backend();
            assert_eq!(machine.step(step), expected, "step {number}, {step:?}, on {backend}");
        }
    }
    let expected = model.left();
    for machine in &mut machines {
        assert_eq!(machine.left(), expected, "what is left on {}", machine.local.setup().backend());
    }
}

fuzz_target!(|program: Vec<Step>| {
    REAL.with_borrow_mut(|real| run(&program[..program.len().min(STEPS_MAX)], real));
});
