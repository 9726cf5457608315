//! The directory of a journal: which segments it has, and how one is made or removed.
//!
//! A segment is named for the number of its first record. It gets its name when its heading is durable, so
//! every named segment has a heading. A lock on the directory keeps other journals out. Operations in flight
//! have the directory's descriptor, so the lock lasts as long as any of them, and a removal keeps the lock until
//! it has ended. It does not look into frames.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};

use super::frame::Heading;
use crate::{
    descriptor::Descriptor,
    error::{Errno, Error, ErrorKind},
    fs::{File, read_dir},
    op::{Opcode, OpenOptions, Operation},
    ring::{Pending, Ring, oversee},
    sync::lock,
};

/// What the name of a segment ends in.
const ENDING: &str = ".segment";
/// The digits before that: those of the largest number.
const DIGITS: usize = 20;
/// The name of a segment whose heading may not be durable.
const UNFINISHED: &str = "unfinished.segment";
/// How long an opening waits for the lock. A journal that was dropped keeps it while it still writes, as does a
/// process that is about to end.
const LOCK_TIME: Duration = Duration::from_secs(1);
/// The first pause between two attempts to lock, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

pub(super) struct Catalog {
    ring: Ring,
    directory: File,
    path: PathBuf,
    /// The number of the first record of each segment, the oldest first.
    firsts: Mutex<VecDeque<u64>>,
    /// None after the journal was closed.
    hold: Mutex<Option<Arc<Hold>>>,
}

/// The lock on the directory, for those that change it.
struct Hold {
    ring: Ring,
    directory: Descriptor,
    /// Otherwise the lock ends with the directory's descriptor.
    is_closed: AtomicBool,
}

impl Hold {
    fn try_lock(&self) -> Result<(), Errno> {
        match self.ring.simulation() {
            Some(machine) => machine.lock_file(&self.directory).map_err(Errno),
            None => flock(&self.directory, FlockOperation::NonBlockingLockExclusive)
                .map_err(|errno| Errno(errno.raw_os_error())),
        }
    }

    /// Locks the directory, and waits for that within limits.
    async fn lock(&self) -> Result<(), Errno> {
        let (mut waited, mut pause) = (Duration::ZERO, PAUSE_MIN);
        loop {
            let Err(errno) = self.try_lock() else { return Ok(()) };
            let may_wait = errno.0 == libc::EWOULDBLOCK && waited < LOCK_TIME;
            // A ring that may not make timeouts, or that is closing, does not wait.
            if !may_wait || self.ring.submit(Operation::timeout(pause)).await.result().is_err() {
                return Err(errno);
            }
            waited += pause;
            pause = PAUSE_MAX.min(2 * pause);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_closed.load(Ordering::Acquire) {
            return;
        }
        // A lock that cannot be given back ends with the descriptor.
        match self.ring.simulation() {
            Some(machine) => drop(machine.unlock_file(&self.directory)),
            None => drop(flock(&self.directory, FlockOperation::Unlock)),
        }
    }
}

/// A removal of a name. Where its future is dropped, it keeps the lock until its end.
struct Removal {
    operation: Option<Pending>,
    hold: Arc<Hold>,
}

impl Drop for Removal {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take().and_then(Pending::set_aside) {
            oversee(operation, None, Arc::clone(&self.hold));
        }
    }
}

impl Catalog {
    /// Opens and locks the directory, and finds its segments.
    pub(super) async fn open(ring: &Ring, path: &Path) -> Result<Catalog, Error> {
        let options = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY);
        let directory = File::open(ring, path, options).await?;
        let hold = Hold {
            ring: ring.clone(),
            directory: directory.descriptor().clone(),
            is_closed: AtomicBool::new(false),
        };
        hold.lock().await.map_err(|errno| {
            let error = Error::new(Opcode::Open, errno).on_path(path);
            error.advise("its lock cannot be had: another journal may have the directory open")
        })?;
        let mut names = read_dir(ring, path).await?;
        let (mut firsts, mut has_unfinished) = (Vec::new(), false);
        while let Some(entry) = names.next_entry().await? {
            firsts.extend(entry.file_name().to_str().and_then(parse));
            has_unfinished |= entry.file_name() == UNFINISHED;
        }
        firsts.sort_unstable();
        let catalog = Catalog {
            ring: ring.clone(),
            directory,
            path: path.to_owned(),
            firsts: Mutex::new(VecDeque::from(firsts)),
            hold: Mutex::new(Some(Arc::new(hold))),
        };
        if has_unfinished {
            catalog.unlink(UNFINISHED).await?;
        }
        Ok(catalog)
    }

    /// Lets other journals have the directory, when the last removal has ended. No segment may be in the making.
    pub(super) fn close(&self) {
        let hold = lock(&self.hold).take();
        if let Some(hold) = hold {
            hold.is_closed.store(true, Ordering::Release);
        }
    }

    /// The lock, for one who changes the directory.
    fn hold(&self) -> Result<Arc<Hold>, Error> {
        lock(&self.hold).clone().ok_or_else(|| {
            let error = Error::new(Opcode::Unlink, Errno(libc::ESHUTDOWN)).on_path(&self.path);
            error.advise("the journal was closed")
        })
    }

    /// The first segment and the last, by their first records.
    pub(super) fn ends(&self) -> Option<(u64, u64)> {
        let firsts = lock(&self.firsts);
        firsts.front().copied().zip(firsts.back().copied())
    }

    /// The segment that has this record, or the first if the record is gone, and all after it.
    pub(super) fn segments_from(&self, number: u64) -> VecDeque<u64> {
        let firsts = lock(&self.firsts);
        let older = firsts.partition_point(|first| *first <= number).saturating_sub(1);
        firsts.range(older..).copied().collect()
    }

    pub(super) fn path_of(&self, first: u64) -> PathBuf {
        self.path.join(name_of(first))
    }

    /// Opens a segment.
    pub(super) async fn open_segment(
        &self,
        first: u64,
        options: OpenOptions,
    ) -> Result<File, Error> {
        self.open_file(&name_of(first), options).await
    }

    /// Makes a segment. Its heading and its name are durable then.
    pub(super) async fn create(&self, heading: Heading) -> Result<File, Error> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = self.open_file(UNFINISHED, options).await?;
        let written = file.write_durable_at(heading.to_bytes(), 0).await.into_buffer();
        written.map_err(|error| error.on_path(&self.path.join(UNFINISHED)))?;
        // The name is taken if the last segment has no record. Nothing is lost with that segment.
        let name = name_of(heading.first);
        let (from, to) = ((self.directory.descriptor(), UNFINISHED), &*name);
        let rename = Operation::rename_at(from, (self.directory.descriptor(), to), true);
        let renamed = self.ring.submit(rename).await.result();
        renamed.map_err(|error| error.on_path(&self.path.join(&name)))?;
        self.sync().await?;
        let mut firsts = lock(&self.firsts);
        if firsts.back() != Some(&heading.first) {
            firsts.push_back(heading.first);
        }
        Ok(file)
    }

    /// Removes the segments that have no record from this number on, but not the last. Each removal is
    /// durable before the next, so that those that are left follow each other.
    pub(super) async fn remove_before(&self, number: u64) -> Result<(), Error> {
        loop {
            // Others may have the directory by now.
            self.hold()?;
            let oldest = {
                let firsts = lock(&self.firsts);
                firsts.front().copied().zip(firsts.get(1).copied())
            };
            let Some((first, _)) = oldest.filter(|(_, second)| *second <= number) else {
                return Ok(());
            };
            self.unlink(&name_of(first)).await?;
            self.sync().await?;
            let mut firsts = lock(&self.firsts);
            if firsts.front() == Some(&first) {
                firsts.pop_front();
            }
        }
    }

    async fn open_file(&self, name: &str, options: OpenOptions) -> Result<File, Error> {
        let open = Operation::open_at(self.directory.descriptor(), name, options);
        let opened = self.ring.submit(open).await.into_descriptor();
        let descriptor = opened.map_err(|error| error.on_path(&self.path.join(name)))?;
        Ok(File::with_alignment(&self.ring, descriptor, 1))
    }

    /// Removes a name, which may be gone already: the future of a removal may have been dropped.
    async fn unlink(&self, name: &str) -> Result<(), Error> {
        let unlink = Operation::unlink_at(self.directory.descriptor(), name);
        let mut removal = Removal { hold: self.hold()?, operation: Some(self.ring.submit(unlink)) };
        let done = poll_fn(|context| {
            let operation = removal.operation.as_mut().expect("it is polled to its end only");
            Pin::new(operation).poll(context)
        })
        .await;
        removal.operation = None;
        match done.result() {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error.on_path(&self.path.join(name)))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn sync(&self) -> Result<(), Error> {
        self.directory.sync_all().await.map_err(|error| error.on_path(&self.path))
    }
}

fn name_of(first: u64) -> String {
    format!("{first:0DIGITS$}{ENDING}")
}

/// The number of a segment's first record, by its name.
fn parse(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING)?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers_and_sorted_as_such() {
        for first in [0, 1, 99, u64::MAX] {
            assert_eq!(parse(&name_of(first)), Some(first));
        }
        assert!(name_of(9) < name_of(10));
        for name in [UNFINISHED, "1.segment", "+0000000000000000001.segment", "x"] {
            assert_eq!(parse(name), None, "{name}");
        }
        assert_eq!(parse(&format!("{}{ENDING}", "9".repeat(DIGITS))), None);
    }
}
