//! The temporary file that operations are tried on.
//!
//! It is made under a name that did not exist, opened twice (buffered and
//! direct), and loses its name at once, so that nothing of it can be left behind,
//! whatever ends the program.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringwise::Descriptor;
use ringwise_measure::plain;

/// Bytes of the file: 32 operations a readahead window (128 KiB) apart.
pub(crate) const FILE_BYTES: usize = 4 << 20;

/// A file without a name, filled with written blocks. What could not be done
/// keeps its reason.
pub(crate) struct ProbeFile {
    /// Opened for buffered I/O.
    pub(crate) buffered: Result<Descriptor, String>,
    /// Opened with O_DIRECT.
    pub(crate) direct: Result<Descriptor, String>,
}

impl ProbeFile {
    pub(crate) fn create(directory: &Path) -> Self {
        match Self::try_create(directory) {
            Ok(file) => file,
            Err(reason) => ProbeFile { buffered: Err(reason.clone()), direct: Err(reason) },
        }
    }

    fn try_create(directory: &Path) -> Result<Self, String> {
        let (mut file, path) = create_new(directory).map_err(|error| {
            format!("creating a temporary file in {}: {}", directory.display(), plain(&error))
        })?;
        let direct = open_direct(&path);
        fs::remove_file(&path)
            .map_err(|error| format!("removing {}: {}", path.display(), plain(&error)))?;
        fill(&mut file).map_err(|error| {
            format!("filling a temporary file in {}: {}", directory.display(), plain(&error))
        })?;
        Ok(ProbeFile {
            buffered: Ok(Descriptor::from(file)),
            direct: direct.map(Descriptor::from).map_err(|error| {
                format!("open with O_DIRECT in {}: {}", directory.display(), plain(&error))
            }),
        })
    }
}

fn create_new(directory: &Path) -> io::Result<(File, PathBuf)> {
    const ATTEMPTS: u32 = 16;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for attempt in 0.. {
        let (process, moment) = (std::process::id(), since_epoch.as_nanos());
        let path = directory.join(format!(".ringwise-doctor-{process}-{moment:x}-{attempt}"));
        match File::options().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("the last attempt returns")
}

fn open_direct(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// Real blocks on the device: reads of holes and of unwritten extents touch none.
fn fill(file: &mut File) -> io::Result<()> {
    let block: Vec<u8> =
        (0..64 << 10).map(|index: u32| (index.wrapping_mul(31) >> 3) as u8).collect();
    for _ in 0..FILE_BYTES / block.len() {
        file.write_all(&block)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_no_name_behind() {
        let directory = tempfile::tempdir().unwrap();
        let file = ProbeFile::create(directory.path());
        let buffered = file.buffered.unwrap().into_file().unwrap();
        assert_eq!(buffered.metadata().unwrap().len(), FILE_BYTES as u64);
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_takes_no_file_is_a_reason() {
        let file = ProbeFile::create(Path::new("/proc"));
        let reason = file.buffered.unwrap_err();
        assert!(reason.starts_with("creating a temporary file in /proc: "), "{reason}");
        assert!(file.direct.is_err());
    }
}
