//! Lays test files out: real written extents, synced, or those of an earlier run.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

use ringwise_measure::{filesystem::Filesystem, quantity::bytes_text};
use rustix::fs::{AtFlags, CWD, linkat};

use super::{
    DataFile, Directory,
    block::{BLOCK_BYTES, Stamp},
    open_own, stamp_at,
};
use crate::error::{LabError, plain};

const CHUNK_BYTES: u64 = 1 << 20;
/// How much is written and synced to see how fast the device takes it.
const TRIAL_BYTES: u64 = 32 << 20;
/// What stays free on the file system whatever is asked for: a twentieth of it, and on a large one
/// no more than this, which is what its owner would miss.
const RESERVE_MOST_BYTES: u64 = 1 << 30;

/// How large the files are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// As many bytes as wanted.
    pub most: u64,
    /// The fewest that will do, where free space or time are short; the same as `most` where
    /// the size was demanded.
    pub least: u64,
    /// How long writing may take before fewer bytes are wanted.
    pub time: Duration,
}

impl Size {
    /// A size that was demanded.
    pub fn exactly(bytes: u64) -> Size {
        Size { most: bytes, least: bytes, time: Duration::MAX }
    }

    /// The size, or if room is short the least that will do.
    pub fn of(&self, least: bool) -> u64 {
        if least { self.least } else { self.most }
    }
}

/// Which files are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The name of the set, with which the names of its files begin.
    pub set: &'a str,
    /// How many files, at least 1.
    pub files: u64,
    /// How large they are together.
    pub size: Size,
    /// The seed of their content.
    pub seed: u64,
}

impl Layout<'_> {
    /// Takes over the files of an earlier run where they are what is wanted, and writes the
    /// others. `progress` is told how many bytes were written; where it answers `false`, the
    /// layout ends with [`LabError::Interrupted`].
    ///
    /// # Errors
    ///
    /// A file of the same name that is not the lab's; too little space; a failed write.
    pub fn lay(
        &self,
        directory: &Directory,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<DataFile>, LabError> {
        let mut files: Vec<DataFile> = (0..self.files)
            .map(|number| DataFile {
                path: directory.file_path(self.set, number),
                number,
                bytes: 0,
            })
            .collect();
        for file in &files {
            refuse_foreign(&file.path)?;
        }
        if let Some(bytes) = self.reusable(&files) {
            files.iter_mut().for_each(|file| file.bytes = bytes);
            return Ok(files);
        }
        let wanted = self.within_space(directory.path())? / self.files;
        let mut bytes = whole_blocks(wanted);
        for index in 0..files.len() {
            if index == 0 && bytes > self.least_per_file() {
                bytes = self.within_time(&files[0].path, bytes)?;
            }
            files[index].bytes = bytes;
            self.write(&files[index], progress)?;
        }
        Ok(files)
    }

    fn least_per_file(&self) -> u64 {
        whole_blocks(self.size.least / self.files)
    }

    /// The length of the files there, if they all have the same, a wanted one, and the content.
    fn reusable(&self, files: &[DataFile]) -> Option<u64> {
        let bytes = std::fs::metadata(&files[0].path).ok()?.len();
        let most = whole_blocks(self.size.most / self.files);
        let good = (self.least_per_file()..=most).contains(&bytes)
            && files.iter().all(|file| self.is_laid(file, bytes));
        good.then_some(bytes)
    }

    fn is_laid(&self, file: &DataFile, bytes: u64) -> bool {
        let Ok(opened) = open_own(&file.path) else { return false };
        let is_long = opened.metadata().is_ok_and(|found| found.len() == bytes);
        let last = (bytes / BLOCK_BYTES as u64).saturating_sub(1);
        let holds = |block| {
            stamp_at(&opened, block) == Some(Stamp { seed: self.seed, file: file.number, block })
        };
        is_long && holds(0) && holds(last) && unwritten(opened, bytes).is_none()
    }

    fn within_space(&self, directory: &Path) -> Result<u64, LabError> {
        let Some(found) = Filesystem::of(directory).known().cloned() else {
            return Ok(self.size.most);
        };
        let reserve = reserve_bytes(&found);
        let usable = found.free_bytes.saturating_sub(reserve);
        // Where the size is free, leave most of the space to others.
        let fair = if self.size.least < self.size.most { usable / 2 } else { usable };
        let bytes = self.size.most.min(fair);
        if bytes < self.size.least {
            return Err(LabError::Failed(format!(
                "{}: {} free, {} needed for test files and {} to be left free: free some, lower \
                 --size or choose another --dir",
                directory.display(),
                bytes_text(found.free_bytes),
                bytes_text(self.size.least),
                bytes_text(reserve),
            )));
        }
        Ok(bytes)
    }

    /// Fewer bytes per file if the device is too slow for all of them.
    fn within_time(&self, path: &Path, bytes: u64) -> Result<u64, LabError> {
        let trial = bytes.min(TRIAL_BYTES);
        let start = Instant::now();
        self.written(path, 0, trial, &mut |_| true)?;
        let rate = trial as f64 / start.elapsed().as_secs_f64().max(1e-6);
        let affordable = rate * self.size.time.as_secs_f64() / self.files as f64;
        let affordable = (affordable.min(bytes as f64) as u64) / CHUNK_BYTES * CHUNK_BYTES;
        Ok(affordable.max(self.least_per_file()).min(bytes))
    }

    fn write(
        &self,
        file: &DataFile,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), LabError> {
        let opened = self.written(&file.path, file.number, file.bytes, progress)?;
        match unwritten(opened, file.bytes) {
            Some(what) => Err(LabError::Failed(format!("{}: {what}", file.path.display()))),
            None => Ok(()),
        }
    }

    /// Writes and syncs a file; one that did not get so far is removed. Where the file system can,
    /// it has no name until it is whole: a run that is killed leaves nothing that a later one could
    /// not know for the lab's.
    fn written(
        &self,
        path: &Path,
        number: u64,
        bytes: u64,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<File, LabError> {
        let failed = |error: &io::Error| match error.kind() {
            io::ErrorKind::Interrupted => LabError::Interrupted,
            _ => LabError::Failed(format!(
                "laying out {} ({}): {}",
                path.display(),
                bytes_text(bytes),
                plain(error)
            )),
        };
        if let Ok(mut file) = nameless(path) {
            let written = self.write_blocks(&mut file, number, bytes, progress);
            written.and_then(|()| file.sync_all()).map_err(|error| failed(&error))?;
            if name(&file, path).is_ok() {
                return Ok(file);
            }
        }
        let mut file = create(path).map_err(|error| failed(&error))?;
        let written = self.write_blocks(&mut file, number, bytes, progress);
        written.and_then(|()| file.sync_all()).map_err(|error| {
            // It may be too short to be known as the lab's later. A second error tells nothing new.
            let _ = std::fs::remove_file(path);
            failed(&error)
        })?;
        Ok(file)
    }

    fn write_blocks(
        &self,
        file: &mut File,
        number: u64,
        bytes: u64,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES as usize];
        let mut at = 0;
        while at < bytes {
            let part = &mut chunk[..CHUNK_BYTES.min(bytes - at) as usize];
            for (index, block) in part.chunks_exact_mut(BLOCK_BYTES).enumerate() {
                let block_number = at / BLOCK_BYTES as u64 + index as u64;
                Stamp { seed: self.seed, file: number, block: block_number }.fill(block);
            }
            file.write_all(part)?;
            at += part.len() as u64;
            if !progress(part.len() as u64) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }
}

/// A file without a name in the directory of `path`, where there is no file any more (open(2),
/// O_TMPFILE). What was there is the lab's.
fn nameless(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(directory)
}

/// Gives such a file its name (the way of open(2) that needs no privilege).
fn name(file: &File, path: &Path) -> io::Result<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

fn whole_blocks(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64
}

fn reserve_bytes(filesystem: &Filesystem) -> u64 {
    (filesystem.total_bytes / 20).min(RESERVE_MOST_BYTES)
}

/// Opens a file for writing from its beginning. Only called for names that are free or the lab's.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

fn refuse_foreign(path: &Path) -> Result<(), LabError> {
    if std::fs::symlink_metadata(path).is_err() || super::is_own(path) {
        return Ok(());
    }
    let text = format!(
        "{} exists and is not the lab's: move it away or choose another --dir",
        path.display()
    );
    Err(LabError::Failed(text))
}

/// What of the first `bytes` of a file is not written to the device: holes and unwritten extents
/// read as zeros without touching it. None where all is written, or the file system cannot tell
/// (then the content still does: zeros are no intact block).
pub fn unwritten(file: File, bytes: u64) -> Option<String> {
    let extents = ringwise::extents(&ringwise::Descriptor::from(file)).ok()?;
    let mut covered = 0;
    for extent in &extents {
        if extent.logical > covered {
            break;
        }
        if extent.unwritten && extent.logical < bytes {
            return Some(format!("unwritten extent at {}", extent.logical));
        }
        covered = covered.max(extent.logical + extent.length);
    }
    (covered < bytes).then(|| format!("hole at {covered}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::FileExt};

    use ringwise::Descriptor;

    use super::*;
    use crate::dataset::block::verify;

    const LAYOUT: Layout<'_> = Layout {
        set: "t",
        files: 2,
        size: Size { most: 4 << 20, least: 4 << 20, time: Duration::MAX },
        seed: 9,
    };

    fn directory() -> (tempfile::TempDir, Directory) {
        let parent = crate::testing::directory();
        let directory = Directory::open(parent.path(), true).unwrap();
        (parent, directory)
    }

    #[test]
    fn a_large_disk_is_not_full_before_its_last_gigabyte() {
        let of = |total_bytes| {
            reserve_bytes(&Filesystem { name: "ext4".into(), magic: 0, free_bytes: 0, total_bytes })
        };
        assert_eq!(of(256 << 30), 1 << 30);
        assert_eq!(of(200 << 20), 10 << 20);
    }

    #[test]
    fn laid_files_verify_and_are_reused() {
        let (_parent, directory) = directory();
        let mut written = 0;
        let files = LAYOUT
            .lay(&directory, &mut |bytes| {
                written += bytes;
                true
            })
            .unwrap();
        assert_eq!((written, files.len()), (4 << 20, 2));
        for file in &files {
            let content = fs::read(&file.path).unwrap();
            assert_eq!(content.len() as u64, file.bytes);
            verify(9, file.number, 0, &content).unwrap();
        }
        let again = LAYOUT.lay(&directory, &mut |_| panic!("nothing to write")).unwrap();
        assert_eq!(again, files);
    }

    #[test]
    fn another_seed_or_size_is_written_anew() {
        let (_parent, directory) = directory();
        LAYOUT.lay(&directory, &mut |_| true).unwrap();
        for other in
            [Layout { seed: 10, ..LAYOUT }, Layout { size: Size::exactly(2 << 20), ..LAYOUT }]
        {
            let mut written = 0;
            other
                .lay(&directory, &mut |bytes| {
                    written += bytes;
                    true
                })
                .unwrap();
            assert_eq!(written, other.size.most);
        }
    }

    #[test]
    fn a_file_with_a_hole_is_written_anew() {
        let (_parent, directory) = directory();
        let files = LAYOUT.lay(&directory, &mut |_| true).unwrap();
        let opened = OpenOptions::new().read(true).write(true).open(&files[0].path).unwrap();
        let mut last = vec![0; BLOCK_BYTES];
        opened.read_exact_at(&mut last, files[0].bytes - BLOCK_BYTES as u64).unwrap();
        opened.set_len(BLOCK_BYTES as u64).unwrap();
        opened.write_all_at(&last, files[0].bytes - BLOCK_BYTES as u64).unwrap();
        opened.sync_all().unwrap();
        if let Err(error) = ringwise::extents(&Descriptor::from(opened.try_clone().unwrap())) {
            return println!("skipped: extents: {error}");
        }
        assert_eq!(unwritten(opened, files[0].bytes).as_deref(), Some("hole at 4096"));
        let mut written = 0;
        LAYOUT
            .lay(&directory, &mut |bytes| {
                written += bytes;
                true
            })
            .unwrap();
        assert_eq!(written, 4 << 20);
    }

    #[test]
    fn a_file_of_the_user_is_never_overwritten() {
        let (_parent, directory) = directory();
        let path = directory.file_path("t", 1);
        for content in [&b""[..], b"precious", &[0; 8192]] {
            fs::write(&path, content).unwrap();
            let error = LAYOUT.lay(&directory, &mut |_| true).unwrap_err().to_string();
            assert!(error.contains("is not the lab's"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
            assert!(!directory.file_path("t", 0).exists());
        }
    }

    #[test]
    fn a_file_has_no_name_until_it_is_whole() {
        let (_parent, directory) = directory();
        let first = directory.file_path("t", 0);
        if let Err(error) = nameless(&first) {
            return println!("skipped: O_TMPFILE: {error}");
        }
        let mut seen = Vec::new();
        LAYOUT
            .lay(&directory, &mut |_| {
                seen.push(first.exists());
                true
            })
            .unwrap();
        assert_eq!(seen.first(), Some(&false));
        assert!(first.exists());
    }

    #[test]
    fn more_than_fits_is_refused_before_it_is_written() {
        let (_parent, directory) = directory();
        let layout = Layout { size: Size::exactly(1 << 60), ..LAYOUT };
        let error = layout.lay(&directory, &mut |_| true).unwrap_err().to_string();
        assert!(error.contains("1.0 EiB needed") && error.contains("--size"), "{error}");
        assert!(!directory.file_path("t", 0).exists());
    }

    #[test]
    fn a_slow_device_gets_smaller_files() {
        let (_parent, directory) = directory();
        let size = Size { most: 64 << 20, least: 1 << 20, time: Duration::ZERO };
        let files = Layout { size, files: 1, ..LAYOUT }.lay(&directory, &mut |_| true).unwrap();
        assert_eq!(files[0].bytes, 1 << 20);
    }

    #[test]
    fn an_interrupt_ends_it() {
        let (_parent, directory) = directory();
        let error = LAYOUT.lay(&directory, &mut |_| false).unwrap_err();
        assert!(matches!(error, LabError::Interrupted));
        assert!(!directory.file_path("t", 0).exists(), "half a file is no file");
    }
}
