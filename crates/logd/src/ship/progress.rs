//! How far each stream is stored and shipped: numbers that threads share.
//!
//! A thread that stores says which lines are durable, and nothing more. The shipper never sends a line that is not
//! durable, because a power cut could take it, and its number would be given to another line.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::Thread,
};

use super::destination::Troubles;

/// How far a stream is. All lines are numbers of the line after the last one that it is about.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    durable: AtomicU64,
    /// What was durable at the start.
    opened: AtomicU64,
    /// Bytes of lines that became durable since the start.
    durable_bytes: AtomicU64,
    /// Bytes of lines that waited at the start.
    backlog_bytes: AtomicU64,
    acknowledged: AtomicU64,
    acknowledged_bytes: AtomicU64,
    /// As the cursor has it on stable storage.
    kept: AtomicU64,
    pub(crate) shipped_lines: AtomicU64,
    pub(crate) lost_lines: AtomicU64,
    pub(crate) troubles: Troubles,
    /// The thread that ships.
    shipper: OnceLock<Thread>,
}

impl Progress {
    /// Lines before this one are on stable storage.
    pub(crate) fn opened(&self, next_line: u64) {
        self.opened.store(next_line, Ordering::Relaxed);
        self.durable.store(next_line, Ordering::Release);
    }

    /// A batch of so many bytes is on stable storage; `next_line` is the line after it.
    pub(crate) fn committed(&self, next_line: u64, bytes: u64) {
        self.durable_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.durable.store(next_line, Ordering::Release);
    }

    /// Says that the calling thread ships.
    pub(crate) fn attend(&self) {
        self.shipper.get_or_init(std::thread::current);
    }

    /// Wakes the thread that ships, because somebody waits for it.
    pub(crate) fn wake(&self) {
        if let Some(shipper) = self.shipper.get() {
            shipper.unpark();
        }
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Sets the line from which on nothing is acknowledged.
    pub(crate) fn begin(&self, line: u64) {
        self.acknowledged.store(line, Ordering::Relaxed);
        self.kept.store(line, Ordering::Release);
    }

    /// Sets the bytes that wait. `durable_bytes` is what [`durable_bytes`](Self::durable_bytes) returned when they were
    /// counted.
    pub(crate) fn set_backlog(&self, bytes: u64, durable_bytes: u64) {
        let acknowledged = self.acknowledged_bytes.load(Ordering::Relaxed);
        let backlog = (bytes + acknowledged).wrapping_sub(durable_bytes);
        self.backlog_bytes.store(backlog, Ordering::Relaxed);
    }

    pub(crate) fn durable_bytes(&self) -> u64 {
        self.durable_bytes.load(Ordering::Relaxed)
    }

    /// The destination has all lines before this one.
    pub(crate) fn acknowledge(&self, next_line: u64, lines: u64, bytes: u64) {
        self.shipped_lines.fetch_add(lines, Ordering::Relaxed);
        self.acknowledged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.acknowledged.store(next_line, Ordering::Release);
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// The cursor has this line on stable storage.
    pub(crate) fn keep(&self, line: u64) {
        self.kept.store(line, Ordering::Release);
    }

    /// The line from which on a restart would ship. Earlier ones are not needed any more.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    /// Lines that are durable and not acknowledged.
    pub(crate) fn lag_lines(&self) -> u64 {
        self.durable().saturating_sub(self.acknowledged())
    }

    /// Bytes of these.
    pub(crate) fn lag_bytes(&self) -> u64 {
        if self.lag_lines() == 0 {
            return 0;
        }
        let all = self.backlog_bytes.load(Ordering::Relaxed).wrapping_add(self.durable_bytes());
        let left = all.wrapping_sub(self.acknowledged_bytes.load(Ordering::Relaxed)) as i64;
        left.max(0) as u64
    }
}

/// The progress of all streams of lines, by number.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<BTreeMap<u32, Arc<Progress>>>);

impl Streams {
    /// Returns the progress of a stream, which is new if nobody asked for it before.
    pub(crate) fn of(&self, number: u32) -> Arc<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default().clone()
    }

    /// Whether everything is shipped that was durable at the start.
    pub(crate) fn have_shipped_start(&self) -> bool {
        let is_shipped = |progress: &Progress| {
            progress.acknowledged() >= progress.opened.load(Ordering::Relaxed)
        };
        self.all().iter().all(|(_, progress)| is_shipped(progress))
    }

    /// Whether a destination does not take lines.
    pub(crate) fn is_away(&self) -> bool {
        self.all().iter().any(|(_, progress)| progress.troubles.is_away())
    }

    /// Returns all of them.
    pub(crate) fn all(&self) -> Vec<(u32, Arc<Progress>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(number, progress)| (*number, progress.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_counts_what_waited_at_the_start_too() {
        let progress = Progress::default();
        progress.opened(10);
        progress.begin(4);
        // A batch is committed while the backlog is counted.
        let before = progress.durable_bytes();
        progress.committed(12, 200);
        progress.set_backlog(600, before);
        assert_eq!((progress.lag_lines(), progress.lag_bytes()), (8, 800));
        progress.acknowledge(11, 7, 700);
        assert_eq!((progress.lag_lines(), progress.lag_bytes()), (1, 100));
        progress.acknowledge(12, 1, 100);
        progress.committed(13, 50);
        assert_eq!((progress.lag_lines(), progress.lag_bytes()), (1, 50));
        // Retention removed a part, and the backlog is counted again.
        progress.set_backlog(20, progress.durable_bytes());
        assert_eq!(progress.lag_bytes(), 20);
    }
}
