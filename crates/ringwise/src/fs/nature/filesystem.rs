//! Which file systems refuse reads or writes that must not wait (`RWF_NOWAIT`). The first file of each
//! finds out for all others.
//!
//! Only such a syscall shows it, and there is no write that changes nothing (XFS, btrfs and tmpfs take a
//! byte even at the last offset; Linux 6.18). So the first read or write that a program makes is the
//! measurement.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::sync::lock;

/// The most file systems that are remembered. Files on others find out for themselves.
const REMEMBERED_MAX: usize = 64;

/// By device number and kind, since numbers are used again.
type Identity = (u64, u64);

/// What is known of each.
struct Remembered(Vec<(Identity, Arc<Filesystem>)>);

static REMEMBERED: Mutex<Remembered> = Mutex::new(Remembered(Vec::new()));

#[derive(Debug, Default)]
pub(crate) struct Filesystem {
    reads_wait: AtomicBool,
    writes_wait: AtomicBool,
}

impl Remembered {
    fn of(&mut self, identity: Identity) -> Arc<Filesystem> {
        if let Some((_, known)) = self.0.iter().find(|(of, _)| *of == identity) {
            return Arc::clone(known);
        }
        let unknown = Arc::new(Filesystem::default());
        if self.0.len() < REMEMBERED_MAX {
            self.0.push((identity, Arc::clone(&unknown)));
        }
        unknown
    }
}

impl Filesystem {
    /// What is known of the file system with this device number and this magic number.
    pub(crate) fn of(device: u64, magic: u64) -> Arc<Filesystem> {
        lock(&REMEMBERED).of((device, magic))
    }

    /// Whether each read waits: it knows none that must not.
    pub(crate) fn reads_wait(&self) -> bool {
        self.reads_wait.load(Ordering::Relaxed)
    }

    /// Whether each write waits. A ring hands such a write to a worker of the kernel.
    pub(crate) fn writes_wait(&self) -> bool {
        self.writes_wait.load(Ordering::Relaxed)
    }

    /// A read that must not wait was refused as such.
    pub(crate) fn learn_that_reads_wait(&self) {
        self.reads_wait.store(true, Ordering::Relaxed);
    }

    /// A write that must not wait was refused as such.
    pub(crate) fn learn_that_writes_wait(&self) {
        self.writes_wait.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_file_learned_all_of_its_file_system_know() {
        let mut remembered = Remembered(Vec::new());
        let [first, again, other] = [(1, 1), (1, 1), (2, 1)].map(|of| remembered.of(of));
        first.learn_that_reads_wait();
        assert!(again.reads_wait() && !again.writes_wait() && !other.reads_wait());
        again.learn_that_writes_wait();
        assert!(remembered.of((1, 1)).writes_wait() && !other.writes_wait());
        assert!(!remembered.of((1, 2)).reads_wait(), "another kind has the number now");
    }

    #[test]
    fn no_more_are_remembered_than_a_table_holds() {
        let mut remembered = Remembered(Vec::new());
        for device in 0..2 * REMEMBERED_MAX as u64 {
            remembered.of((device, 1)).learn_that_reads_wait();
        }
        assert!(remembered.of((REMEMBERED_MAX as u64 - 1, 1)).reads_wait());
        assert!(!remembered.of((REMEMBERED_MAX as u64, 1)).reads_wait());
        assert_eq!(remembered.0.len(), REMEMBERED_MAX);
    }
}
