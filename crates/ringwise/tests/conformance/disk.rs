//! A directory to test in: on the machine's own disk, or on a simulated one.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use ringwise::{Descriptor, Local, OpenOptions, Operation, sim::Simulation};
use tempfile::TempDir;

use crate::loops::counted;

/// A directory of a test's own, with what is done to it from outside of a loop.
pub enum Disk {
    Real(TempDir),
    Simulated(Simulation, PathBuf),
}

/// What a file's metadata has to say.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub len: u64,
    pub blocks: u64,
    pub mode: u32,
    pub inode: u64,
    pub owner: (u32, u32),
    pub modified_ns: i128,
}

impl From<&ringwise::Metadata> for Told {
    fn from(metadata: &ringwise::Metadata) -> Told {
        Told {
            len: metadata.len(),
            blocks: metadata.blocks(),
            mode: metadata.mode(),
            inode: metadata.inode(),
            owner: (metadata.uid(), metadata.gid()),
            modified_ns: metadata.modified_ns(),
        }
    }
}

impl From<&std::fs::Metadata> for Told {
    fn from(metadata: &std::fs::Metadata) -> Told {
        let seconds = i128::from(metadata.mtime());
        Told {
            len: metadata.len(),
            blocks: metadata.blocks(),
            mode: metadata.mode(),
            inode: metadata.ino(),
            owner: (metadata.uid(), metadata.gid()),
            modified_ns: seconds * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        }
    }
}

impl Disk {
    /// On the file system that the build uses, which takes direct I/O more often than the one for
    /// temporary files.
    pub fn real() -> Disk {
        Disk::Real(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub fn simulated(simulation: Simulation) -> Disk {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = PathBuf::from(format!("/test/{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        simulation.create_dir_all(&path).unwrap();
        Disk::Simulated(simulation, path)
    }

    pub fn path(&self) -> &Path {
        match self {
            Disk::Real(directory) => directory.path(),
            Disk::Simulated(_, path) => path,
        }
    }

    /// A file of `len` bytes that count up.
    pub fn counted_file(&self, len: usize) -> PathBuf {
        let path = self.path().join("counted");
        self.write(&path, counted(len));
        path
    }

    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        match self {
            Disk::Real(_) => std::fs::write(path, bytes).unwrap(),
            Disk::Simulated(simulation, _) => simulation.write(path, bytes).unwrap(),
        }
    }

    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        match self {
            Disk::Real(_) => std::fs::read(path),
            Disk::Simulated(simulation, _) => simulation.read(path),
        }
    }

    pub fn exists(&self, path: &Path) -> bool {
        match self {
            Disk::Real(_) => path.exists(),
            Disk::Simulated(simulation, _) => simulation.exists(path),
        }
    }

    pub fn symlink(&self, target: &Path, path: &Path) {
        match self {
            Disk::Real(_) => std::os::unix::fs::symlink(target, path).unwrap(),
            Disk::Simulated(simulation, _) => simulation.symlink(target, path).unwrap(),
        }
    }

    pub fn metadata(&self, path: &Path) -> Told {
        match self {
            Disk::Real(_) => Told::from(&std::fs::metadata(path).unwrap()),
            Disk::Simulated(simulation, _) => Told::from(&simulation.metadata(path).unwrap()),
        }
    }

    /// Opens for reading, without the loop that is tested.
    pub fn open(&self, path: impl AsRef<Path>) -> Descriptor {
        self.open_with(path, OpenOptions::new().read(true))
    }

    pub fn open_with(&self, path: impl AsRef<Path>, options: OpenOptions) -> Descriptor {
        match self {
            Disk::Real(_) => {
                let builder = Local::builder().backend(ringwise::BackendChoice::Classic);
                let open = Operation::open(path, options);
                builder.build().unwrap().run(open).unwrap().into_descriptor().unwrap()
            }
            Disk::Simulated(simulation, _) => simulation.open(path, options).unwrap(),
        }
    }

    /// Descriptors that lead to this file. Counting all would count those of tests beside this one.
    pub fn descriptors_of(&self, path: &Path) -> usize {
        let leads_there =
            |entry: &std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path);
        match self {
            Disk::Real(_) => {
                let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
                entries.filter(leads_there).count()
            }
            Disk::Simulated(simulation, _) => simulation.open_files(path).unwrap(),
        }
    }
}
