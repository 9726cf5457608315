//! The files that are copied, where their copies go, and what the page cache holds of them.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use ringwise::Descriptor;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::plan::{CopyProgram, DataSet};
use crate::{error::LabError, sampling::job::Cache};

const PIECE_BYTES: usize = 1 << 20;

/// The directory of a scene, all of it the lab's. Removed when dropped.
#[derive(Debug)]
pub(super) struct Stage(PathBuf);

/// A data set on disk, and where its copies go.
#[derive(Debug)]
pub(super) struct Scene {
    root: PathBuf,
    pub(super) source: PathBuf,
    /// Of the copy that is there or is made next.
    number: AtomicU64,
    pub(super) is_tree: bool,
    /// Paths below the source, empty for a single file.
    files: Vec<PathBuf>,
    /// Whether each copy goes to where the last one was removed.
    is_again: bool,
}

impl Scene {
    /// Writes a data set into a new directory in the lab's, random and the same for each seed.
    pub(super) fn lay(
        lab: &Path,
        set: &DataSet,
        seed: u64,
        interrupt: &AtomicBool,
    ) -> Result<(Scene, Stage), LabError> {
        // The lab's directory is locked: what a killed run left there is nobody else's.
        let root = lab.join("copy");
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LabError::on("removing", &root, &error));
            }
            _ => {}
        }
        fs::create_dir(&root).map_err(|error| LabError::on("creating", &root, &error))?;
        let stage = Stage(root.clone());
        if !set.is_again {
            spread(&root);
        }
        let (source, number) = (root.join("source"), AtomicU64::new(0));
        let is_tree = set.directories > 0;
        let mut scene =
            Scene { root, source, number, is_tree, files: Vec::new(), is_again: set.is_again };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut piece = vec![0; PIECE_BYTES];
        let mut number = 0;
        if is_tree {
            make_directory(&scene.source)?;
        }
        for part in &set.parts {
            for _ in 0..part.files {
                if interrupt.load(Ordering::Relaxed) {
                    return Err(LabError::Interrupted);
                }
                let name = match is_tree {
                    false => PathBuf::new(),
                    true => PathBuf::from((number % set.directories).to_string())
                        .join(number.to_string()),
                };
                if is_tree && number < set.directories {
                    make_directory(&scene.source.join((number % set.directories).to_string()))?;
                }
                let path = scene.source_of(&name);
                write(&path, part.bytes, &mut random, &mut piece)
                    .map_err(|error| LabError::on("writing", &path, &error))?;
                scene.files.push(name);
                number += 1;
            }
        }
        if set.is_again {
            scene.copy_once()?;
        }
        scene.sync()?;
        Ok((scene, stage))
    }

    /// Makes a copy, so that the first that is measured also goes to where one was removed.
    fn copy_once(&self) -> Result<(), LabError> {
        for name in &self.files {
            let path = below(&self.copy(), name);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::copy(self.source_of(name), &path))
                .map_err(|error| LabError::on("copying to", &path, &error))?;
        }
        Ok(())
    }

    /// A path of the source; the source itself where it is a single file.
    fn source_of(&self, name: &Path) -> PathBuf {
        below(&self.source, name)
    }

    /// Where the copy is that was made last, or is made next.
    pub(super) fn copy(&self) -> PathBuf {
        self.root.join(format!("copy-{}", self.number.load(Ordering::Relaxed)))
    }

    /// Removes the copy, lets the device come to rest, and brings the page cache into a state.
    /// The next copy gets another name, unless it is to go to the same place.
    pub(super) fn prepare(&self, cache: Cache) -> Result<(), LabError> {
        let copy = self.copy();
        let removed = match fs::symlink_metadata(&copy) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(found) if found.is_dir() => fs::remove_dir_all(&copy),
            _ => fs::remove_file(&copy),
        };
        removed.map_err(|error| LabError::on("removing", &copy, &error))?;
        if !self.is_again {
            self.number.fetch_add(1, Ordering::Relaxed);
        }
        self.sync()?;
        let mut piece = vec![0; PIECE_BYTES];
        for name in &self.files {
            let path = self.source_of(name);
            let failed = |error| LabError::on("reading", &path, &error);
            let mut file = File::open(&path).map_err(failed)?;
            match cache {
                Cache::Cold => {
                    ringwise::drop_page_cache(&Descriptor::from(file), 0, 0).map_err(failed)?;
                }
                _ => while file.read(&mut piece).map_err(failed)? > 0 {},
            }
        }
        Ok(())
    }

    /// What of the source is cached, as a share of its pages. None where that cannot be told.
    pub(super) fn cached_share(&self) -> Option<f64> {
        let (mut cached, mut all) = (0, 0);
        for name in &self.files {
            let file = File::open(self.source_of(name)).ok()?;
            all += file.metadata().ok()?.size().div_ceil(4096);
            cached += ringwise::page_cache(&Descriptor::from(file), 0, 0).ok()?.cached_pages;
        }
        Some(cached as f64 / all.max(1) as f64)
    }

    /// Puts all of the file system on its device.
    pub(super) fn sync(&self) -> Result<(), LabError> {
        let synced = File::open(&self.root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        synced.map_err(|error| LabError::on("syncing", &self.root, &error))
    }

    /// Why the copy is not one, if so.
    pub(super) fn difference(&self) -> Option<String> {
        let mut pieces = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let copy = self.copy();
        let differs = |name: &PathBuf| {
            let (one, other) = (self.source_of(name), below(&copy, name));
            match is_same(&one, &other, &mut pieces) {
                Ok(true) => None,
                Ok(false) => Some(format!(
                    "{} differs from its source; look for device errors in the kernel's log, and leave the program out",
                    other.display()
                )),
                Err(error) => Some(format!("{}: {}", other.display(), crate::error::plain(&error))),
            }
        };
        self.files.iter().find_map(differs)
    }

    /// The command that copies it.
    pub(super) fn command(&self, program: &CopyProgram) -> Result<Command, String> {
        let mut command = program.command.map_or_else(own, |name| Ok(Command::new(name)))?;
        command.args(program.flag);
        if self.is_tree && program.has_r {
            command.arg("-r");
        }
        command.arg(&self.source).arg(self.copy()).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }

    /// The command of the study.
    pub(super) fn study_command(&self, block: usize, depth: usize) -> Result<Command, String> {
        let mut command = own()?;
        command.args(["--engine=uring", "--reflink=never"]);
        command.arg(format!("--block={block}")).arg(format!("--depth={depth}"));
        command.arg(&self.source).arg(self.copy()).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            crate::error::tell_left(&self.0, &error);
        }
    }
}

/// `cp` of this very program.
fn own() -> Result<Command, String> {
    let path = std::env::current_exe()
        .map_err(|error| format!("this program: {}", crate::error::plain(&error)))?;
    let mut command = Command::new(path);
    command.arg("cp");
    Ok(command)
}

fn below(root: &Path, name: &Path) -> PathBuf {
    if name.as_os_str().is_empty() { root.to_owned() } else { root.join(name) }
}

/// Has copies laid out far from each other where the file system does that: ext4 without a journal
/// gives no inode away again within minutes after it was freed (fs/ext4/ialloc.c, recently_deleted), so
/// what goes where a copy was removed spends its time in looking for others.
fn spread(root: &Path) {
    let set = |root: File| ioctl_setflags(&root, ioctl_getflags(&root)? | IFlags::TOPDIR);
    // Others have no such flag, and do not look.
    let _ = File::open(root).map(set);
}

fn make_directory(path: &Path) -> Result<(), LabError> {
    fs::create_dir(path).map_err(|error| LabError::on("creating", path, &error))
}

fn write(path: &Path, bytes: u64, random: &mut fastrand::Rng, piece: &mut [u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let mut left = bytes;
    while left > 0 {
        let count = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        random.fill(&mut piece[..count]);
        file.write_all(&piece[..count])?;
        left -= count as u64;
    }
    Ok(())
}

fn is_same(one: &Path, other: &Path, pieces: &mut (Vec<u8>, Vec<u8>)) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    loop {
        let count = one.read(&mut pieces.0)?;
        if count == 0 {
            return Ok(other.read(&mut pieces.1)? == 0);
        }
        match other.read_exact(&mut pieces.1[..count]) {
            Ok(()) if pieces.0[..count] == pieces.1[..count] => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing, workload::copy::plan::Part};

    fn scene(directory: &Path, directories: usize) -> (Scene, Stage) {
        lay(directory, directories, false)
    }

    fn lay(directory: &Path, directories: usize, is_again: bool) -> (Scene, Stage) {
        let parts = vec![Part { files: 3, bytes: 5000 }];
        let set = DataSet { name: "test".to_owned(), directories, parts, is_again };
        Scene::lay(directory, &set, 1, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn a_copy_that_is_none_is_seen() {
        let directory = testing::directory();
        let (scene, _stage) = scene(directory.path(), 2);
        scene.prepare(Cache::Warm).unwrap();
        assert!(scene.difference().unwrap().contains("No such file"));
        let copied = Command::new("cp").arg("-r").arg(&scene.source).arg(scene.copy()).status();
        assert!(copied.unwrap().success());
        assert_eq!(scene.difference(), None);
        let path = scene.copy().join("1/1");
        let mut bytes = fs::read(&path).unwrap();
        bytes[4999] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(scene.difference().unwrap().contains("1/1 differs"));
        fs::write(&path, &bytes[..4999]).unwrap();
        assert!(scene.difference().is_some(), "shorter");
        bytes[4999] ^= 1;
        bytes.push(0);
        fs::write(&path, &bytes).unwrap();
        assert!(scene.difference().is_some(), "longer");
    }

    /// Where the last one was, ext4 would look for inodes that it may use again.
    #[test]
    fn each_copy_goes_elsewhere() {
        let directory = testing::directory();
        let (scene, _stage) = scene(directory.path(), 1);
        scene.prepare(Cache::Warm).unwrap();
        let first = scene.copy();
        fs::create_dir(&first).unwrap();
        scene.prepare(Cache::Warm).unwrap();
        assert!(!first.exists() && scene.copy() != first);
    }

    /// What a user does who copies again: no other set has it.
    #[test]
    fn a_copy_again_goes_to_where_one_was_removed() {
        let directory = testing::directory();
        let (scene, _stage) = lay(directory.path(), 2, true);
        let first = scene.copy();
        assert_eq!(scene.difference(), None, "one is there before the first is measured");
        scene.prepare(Cache::Warm).unwrap();
        assert!(!first.exists() && scene.copy() == first);
    }

    #[test]
    fn the_cache_is_as_it_is_wanted_and_nothing_is_left() {
        let directory = testing::directory();
        let (scene, stage) = scene(directory.path(), 1);
        scene.prepare(Cache::Cold).unwrap();
        let cold = scene.cached_share();
        scene.prepare(Cache::Warm).unwrap();
        let warm = scene.cached_share();
        if let (Some(cold), Some(warm)) = (cold, warm) {
            assert_eq!((cold, warm), (0.0, 1.0));
        }
        drop(stage);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
