//! A directory for one run of a daemon: its configuration, its certificate, what it stores. It goes
//! with the run.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use crate::error::plain;

/// What the certificate is for.
pub(super) const HOST: &str = "localhost";

/// The directory.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one in `parent`, by a name that nothing has.
    pub(super) fn make(parent: &Path) -> Result<Scratch, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringwise-lab-log-{}-{number}", std::process::id());
        let failed =
            |path: &Path, error: &io::Error| format!("making {}: {}", path.display(), plain(error));
        let parent = parent.canonicalize().map_err(|error| failed(parent, &error))?;
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|error| failed(&path, &error))?;
        let scratch = Scratch { path };
        let stored = scratch.stored();
        fs::create_dir(&stored).map_err(|error| failed(&stored, &error))?;
        Ok(scratch)
    }

    /// Where lines are stored.
    pub(super) fn stored(&self) -> PathBuf {
        self.path.join("stored")
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.path.join("certificate.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.path.join("key.pem")
    }

    /// A file for something else.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file.
    pub(super) fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        fs::write(path, text)
            .map_err(|error| format!("writing {}: {}", path.display(), plain(&error)))
    }

    /// Makes a certificate for [`HOST`] that is its own authority.
    pub(super) fn certify(&self) -> Result<(), String> {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()])
            .map_err(|error| format!("making a certificate: {error}"))?;
        self.write(&self.certificate(), &made.cert.pem())?;
        self.write(&self.key(), &made.signing_key.serialize_pem())
    }

    /// When what is stored was last written to, to a tick of the kernel.
    pub(super) fn last_change(&self) -> Option<SystemTime> {
        let entries = fs::read_dir(self.stored()).ok()?;
        let changed =
            |entry: io::Result<fs::DirEntry>| entry.ok()?.metadata().ok()?.modified().ok();
        entries.filter_map(changed).max()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(directory.path()).unwrap();
        scratch.certify().unwrap();
        assert!(scratch.last_change().is_none());
        fs::write(scratch.stored().join("lines"), "x").unwrap();
        assert!(scratch.last_change().is_some());
        assert!(fs::read_to_string(scratch.key()).unwrap().contains("PRIVATE KEY"));
        let other = Scratch::make(directory.path()).unwrap();
        drop((scratch, other));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let error = Scratch::make(&directory.path().join("missing")).unwrap_err();
        assert!(error.starts_with("making ") && error.ends_with("No such file or directory"));
    }
}
