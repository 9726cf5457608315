//! The files of a replay: laid out like those of the trace, and brought into the same state before each sample.
//!
//! They are in the lab's own directory. Nothing of the recorded files is read or written: their names are only in the
//! trace, and they may be gone.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use ringwise::Descriptor;
use ringwise_measure::{filesystem::Filesystem, quantity::bytes_text};
use rustix::{
    fs::Advice,
    process::{Resource, getrlimit, setrlimit},
};

use super::{
    lives::Made,
    script::{Body, Handle, Script, Step},
};
use crate::{
    dataset::{DataFile, Directory},
    error::{LabError, plain, tell_left},
    sampling::job::Failure,
};

const CHUNK_BYTES: usize = 1 << 20;
/// What stays free on the file system: a twentieth of what is free.
const RESERVE_PARTS: u64 = 20;
/// Descriptors beside those of files: standard streams, rings, the lab's own.
const OTHER_DESCRIPTORS: u64 = 64;

/// Laid-out files. They are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// Within the lab's directory, and of this process.
    root: PathBuf,
    bodies: Vec<Body>,
    handles: Vec<Handle>,
    files: Vec<Descriptor>,
    /// Dropped after the files are removed.
    _directory: Directory,
}

impl Place {
    /// Lays the files out below `parent`.
    ///
    /// # Errors
    ///
    /// They take more than `bytes_max` or than there is room for; a failed write.
    pub fn lay(script: &Script, parent: &Path, bytes_max: u64) -> Result<Place, LabError> {
        let needed = script.space_bytes();
        if needed > bytes_max {
            return Err(LabError::Failed(format!(
                "replay: the files of the trace take {}, more than --size-max {}: raise it, or record less",
                bytes_text(needed),
                bytes_text(bytes_max)
            )));
        }
        let free = Filesystem::of(parent).known().map_or(u64::MAX, |found| found.free_bytes);
        if needed > free - free / RESERVE_PARTS {
            return Err(LabError::Failed(format!(
                "replay: the files of the trace take {}, and {} are free: name a larger file system with --dir",
                bytes_text(needed),
                bytes_text(free)
            )));
        }
        allow_descriptors(script.handles.len() as u64)?;
        let directory = Directory::open(parent, false)?;
        let root = directory.path().join(format!("replay-{}", std::process::id()));
        fs::create_dir(&root).map_err(|error| LabError::on("making", &root, &error))?;
        let (bodies, handles) = (script.bodies.clone(), script.handles.clone());
        let files = Vec::new();
        let mut place = Place { root, bodies, handles, files, _directory: directory };
        for index in 0..place.bodies.len() {
            let path = place.path(index);
            place.fill(index, &path).map_err(|error| LabError::on("writing", &path, &error))?;
        }
        // Once for all of them: an fsync(2) of each waits for the device each time.
        let sync = File::open(&place.root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        sync.map_err(|error| LabError::on("writing", &place.root, &error))?;
        let files = place.open().map_err(|error| LabError::on("opening", &place.root, &error))?;
        place.files = files.into_iter().map(Descriptor::from).collect();
        Ok(place)
    }

    /// Where the files are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, body: usize) -> PathBuf {
        self.root.join(format!("{body:05}.data"))
    }

    /// The name that a body has while the file is there. All of them have another one, by which they are opened.
    fn name(&self, body: usize) -> PathBuf {
        self.root.join(format!("{body:05}.name"))
    }

    /// Makes a file with data where the trace reads or overwrites, and holes elsewhere.
    fn fill(&self, index: usize, path: &Path) -> io::Result<()> {
        let body = &self.bodies[index];
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.set_len(body.bytes)?;
        let mut random = fastrand::Rng::with_seed(index as u64);
        let mut chunk = vec![0; CHUNK_BYTES];
        random.fill(&mut chunk);
        for (from, to) in body.filled.iter() {
            for at in (from..to).step_by(CHUNK_BYTES) {
                let length = (to - at).min(CHUNK_BYTES as u64) as usize;
                file.write_all_at(&chunk[..length], at)?;
            }
        }
        Ok(())
    }

    /// Brings all files into the state that they have when the replay begins.
    ///
    /// # Errors
    ///
    /// A failed call on one of the files.
    pub fn prepare(&self) -> Result<(), LabError> {
        // Before the syncs, so that none of the replay's has to write this.
        self.name_all().map_err(|error| LabError::on("preparing", &self.root, &error))?;
        for index in 0..self.bodies.len() {
            let path = self.path(index);
            self.reset(index, &path).map_err(|error| LabError::on("preparing", &path, &error))?;
        }
        Ok(())
    }

    /// Names the files that are there when the replay begins, of those whose names come or go in it.
    fn name_all(&self) -> io::Result<()> {
        let made = |body: &Body| body.made;
        for (index, body) in self.bodies.iter().enumerate() {
            let Some(own) = made(body) else { continue };
            self.forget(index)?;
            if let Some(before) = own.before.filter(|&before| made(&self.bodies[before]).is_none())
            {
                self.forget(before)?;
                self.give_name(before)?;
            }
        }
        Ok(())
    }

    /// Does what the program did with a file before a step: it opened it, and perhaps made it in place of the one that
    /// had its name.
    ///
    /// # Errors
    ///
    /// What link(2), unlink(2) or ftruncate(2) report.
    pub fn ready_for(&self, step: &Step) -> Result<(), Failure> {
        if step.is_first {
            // After an open(2), what the kernel knows of the file is in the processor's caches.
            let _ = rustix::fs::fstat(&self.files[step.handle]);
        }
        let Some(body) = step.makes else { return Ok(()) };
        self.make(body).map_err(|error| {
            Failure::Io(format!("replay: making {}: {}", self.name(body).display(), plain(&error)))
        })
    }

    fn make(&self, body: usize) -> io::Result<()> {
        if let Some(Made { before: Some(before), frees }) = self.bodies[body].made {
            self.forget(before)?;
            if frees {
                OpenOptions::new().write(true).open(self.path(before))?.set_len(0)?;
            }
        }
        self.give_name(body)
    }

    fn give_name(&self, body: usize) -> io::Result<()> {
        match fs::hard_link(self.path(body), self.name(body)) {
            // A file system without links.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => {
                Ok(())
            }
            linked => linked,
        }
    }

    fn forget(&self, body: usize) -> io::Result<()> {
        match fs::remove_file(self.name(body)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn reset(&self, index: usize, path: &Path) -> io::Result<()> {
        let body = &self.bodies[index];
        let file = OpenOptions::new().read(true).write(body.is_written).open(path)?;
        // A sync of a clean file would still flush the device (ext4_sync_file in fs/ext4/fsync.c, Linux 6.18).
        if body.is_written {
            file.set_len(body.bytes)?;
            file.sync_all()?;
        }
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        // Nothing beside these ranges is to come into the cache.
        rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
        let longest = body.cached.iter().map(|(from, to)| to - from).max().unwrap_or(0);
        let mut chunk = vec![0; longest.min(CHUNK_BYTES as u64) as usize];
        for (from, to) in body.cached.iter() {
            for at in (from..to).step_by(CHUNK_BYTES) {
                let length = (to - at).min(CHUNK_BYTES as u64) as usize;
                file.read_exact_at(&mut chunk[..length], at)?;
            }
        }
        Ok(())
    }

    /// The open files, one for each handle. They are the same in all samples: a recorder beside the replay looks up
    /// each descriptor that it does not know, which takes the processor from the device's kernel threads.
    pub fn files(&self) -> &[Descriptor] {
        &self.files
    }

    /// Opens all files as the trace says, one for each handle.
    ///
    /// # Errors
    ///
    /// What open(2) reports.
    pub fn open(&self) -> io::Result<Vec<File>> {
        let open = |handle: &Handle| {
            let flags = handle.flags;
            let bits = [
                (flags.is_direct, libc::O_DIRECT),
                (flags.is_append, libc::O_APPEND),
                (flags.is_sync, libc::O_SYNC),
                (flags.is_data_sync, libc::O_DSYNC),
            ];
            let custom = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit);
            OpenOptions::new()
                .read(true)
                .write(self.bodies[handle.body].is_written)
                .custom_flags(custom.fold(0, |all, bit| all | bit))
                .open(self.path(handle.body))
        };
        self.handles.iter().map(open).collect()
    }

    /// The files, for a job.
    pub fn data_files(&self) -> Vec<DataFile> {
        let file = |(index, body): (usize, &Body)| DataFile {
            path: self.path(index),
            number: index as u64,
            bytes: body.bytes,
        };
        self.bodies.iter().enumerate().map(file).collect()
    }
}

/// Raises the soft limit of open files to the hard one, if it is too low for files that tasks open again.
fn allow_descriptors(handles: u64) -> Result<(), LabError> {
    let needed = handles + OTHER_DESCRIPTORS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed + handles) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|&hard| hard < needed) {
        return Err(LabError::Failed(format!(
            "replay: the trace needs {needed} open files, and the hard limit is {hard}: raise it (ulimit -Hn {needed})"
        )));
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| {
        LabError::Failed(format!("replay: raising the limit of open files: {error}"))
    })
}

impl Drop for Place {
    fn drop(&mut self) {
        // NFS keeps removed files that are open.
        self.files.clear();
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tell_left(&self.root, &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use ringwise_trace::Kind;

    use super::*;
    use crate::program::{
        replay::script::CacheChoice,
        traced::tests::{operation, traced},
    };

    fn script() -> Script {
        let write = ringwise_trace::Operation {
            offset: Some(1 << 20),
            ..operation(1, Kind::Write, (10, 1))
        };
        let trace = traced(vec![operation(1, Kind::Read, (0, 1)), write]);
        Script::of(&trace, CacheChoice::Recorded, false)
    }

    #[test]
    fn files_are_sparse_are_reset_and_are_gone_at_the_end() {
        use std::os::unix::fs::MetadataExt;
        let parent = crate::testing::directory();
        let place = Place::lay(&script(), parent.path(), 1 << 30).unwrap();
        let path = place.path(0);
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.len(), 1 << 20);
        assert!(found.blocks() * 512 < 1 << 19, "mostly a hole: {} blocks", found.blocks());
        let file = &place.open().unwrap()[0];
        rustix::io::pwrite(file, &[1; 4096], 1 << 20).unwrap();
        place.prepare().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20, "what it grew by is cut off");
        drop(place);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_are_as_they_were_before_each_sample() {
        use std::os::unix::fs::MetadataExt;
        let parent = crate::testing::directory();
        let mut script = script();
        // A second file that takes the name of the first, which was there before.
        script
            .bodies
            .push(Body { made: Some(Made { before: Some(0), frees: false }), ..Body::default() });
        let place = Place::lay(&script, parent.path(), 1 << 30).unwrap();
        let links = || [0, 1].map(|body| fs::metadata(place.path(body)).unwrap().nlink());
        let step = Step { makes: Some(1), ..script.threads[0][0] };
        for _ in 0..2 {
            place.prepare().unwrap();
            assert_eq!(links(), [2, 1]);
            place.ready_for(&script.threads[0][0]).unwrap();
            assert_eq!(links(), [2, 1], "nothing is made before this one");
            place.ready_for(&step).unwrap();
            assert_eq!(links(), [1, 2]);
        }
    }

    #[test]
    fn what_has_no_room_is_refused_before_anything_is_made() {
        let parent = crate::testing::directory();
        let error = Place::lay(&script(), parent.path(), 8191).unwrap_err().to_string();
        assert!(error.contains("take 8.0 KiB, more than --size-max 8.0 KiB"), "{error}");
        let mut huge = script();
        huge.bodies[0].bytes_max = 1 << 60;
        let error = Place::lay(&huge, parent.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("are free: name a larger file system"), "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
