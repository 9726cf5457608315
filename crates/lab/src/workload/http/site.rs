//! The files of a section of `http`, in a directory of their own that is removed with the section. Their
//! content is that of the lab's blocks, so that the client can verify each byte.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    dataset::{
        DataFile,
        block::{BLOCK_BYTES, Stamp},
    },
    error::{LabError, tell_left},
};

/// How many files a server has: each connection begins with another one.
pub(super) const FILES: u64 = 16;

/// The directory, with its files.
#[derive(Debug)]
pub(super) struct Site {
    path: PathBuf,
    files: Arc<[DataFile]>,
}

impl Site {
    /// Writes and syncs all files in a new directory below `parent`.
    ///
    /// # Errors
    ///
    /// What a syscall reports, and an interrupt.
    pub(super) fn make(
        parent: &Path,
        seed: u64,
        file_bytes: usize,
        interrupt: &AtomicBool,
    ) -> Result<Site, LabError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringwise-lab-http-{}-{number}", std::process::id());
        let canonical = parent.canonicalize();
        let canonical = canonical.map_err(|error| LabError::on("--dir", parent, &error))?;
        let path = canonical.join(name);
        fs::create_dir(&path).map_err(|error| LabError::on("creating", &path, &error))?;
        let file = |number: u64| DataFile {
            path: path.join(number.to_string()),
            number,
            bytes: file_bytes as u64,
        };
        // From here on a drop removes what there is.
        let site = Site { files: (0..FILES).map(file).collect(), path };
        for file in &*site.files {
            if interrupt.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let written = write(file, seed);
            written.map_err(|error| LabError::on("writing", &file.path, &error))?;
        }
        Ok(site)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its files, each named by its number.
    pub(super) fn files(&self) -> &Arc<[DataFile]> {
        &self.files
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tell_left(&self.path, &error);
        }
    }
}

fn write(file: &DataFile, seed: u64) -> io::Result<()> {
    let mut opened = File::create_new(&file.path)?;
    let mut content = vec![0; (file.bytes as usize).next_multiple_of(BLOCK_BYTES)];
    for (index, block) in content.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        Stamp { seed, file: file.number, block: index as u64 }.fill(block);
    }
    opened.write_all(&content[..file.bytes as usize])?;
    // Write-back would otherwise run beside the samples.
    opened.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::block::verify;

    #[test]
    fn files_are_what_they_are_called_and_go_with_the_site() {
        let parent = tempfile::tempdir().unwrap();
        let site = Site::make(parent.path(), 7, 5000, &AtomicBool::new(false)).unwrap();
        assert_eq!(site.files().len() as u64, FILES);
        for file in &**site.files() {
            assert_eq!(file.path, site.path().join(file.number.to_string()));
            let content = fs::read(&file.path).unwrap();
            assert_eq!(content.len(), 5000);
            verify(7, file.number, 0, &content).unwrap();
        }
        drop(site);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_interrupt_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let error = Site::make(parent.path(), 7, 5000, &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(error, LabError::Interrupted), "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
