//! A part of a segment's lines in memory. It is read with what follows if the caller reads forwards.
//!
//! A segment may have batches of one line. A syscall for each would cost more than the lines, and a new buffer for each
//! large batch would cost page faults. So a segment has one buffer, which holds several small batches or a large one.

use std::io;

/// Bytes that the first read ahead has, and the most that one has.
const AHEAD_MIN: u64 = 64 << 10;
const AHEAD_MAX: u64 = 256 << 10;
/// Bytes of one read. A length that the file does not have makes the buffer larger than the file by no more than this.
const PIECE_BYTES: usize = 256 << 10;

/// Where bytes come from.
pub(crate) trait ReadAt {
    /// Reads bytes at an offset. Returns how many; none at the end.
    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// The bytes that were read last.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    start: u64,
    len: usize,
    /// How much is read ahead.
    ahead: u64,
    /// Bytes that were read in all.
    pub(crate) read_bytes: u64,
}

impl Window {
    /// Returns `len` bytes at an offset, or nothing if the source ends before. `following` says how many bytes from the
    /// offset on the caller will want in a row, at most as many as it is given.
    pub(crate) fn read(
        &mut self,
        source: &mut impl ReadAt,
        (offset, len): (u64, usize),
        following: impl FnOnce(u64) -> u64,
    ) -> io::Result<Option<&[u8]>> {
        if self.place_of(offset, len).is_none() {
            let known = self.start..=self.start.saturating_add(self.len as u64);
            let is_next = self.len > 0 && known.contains(&offset);
            self.ahead = if is_next { (self.ahead * 2).clamp(AHEAD_MIN, AHEAD_MAX) } else { 0 };
            let goal = len.max(following(self.ahead).min(self.ahead) as usize);
            self.fill(source, offset, len, goal)?;
        }
        Ok(self.place_of(offset, len).map(|place| &self.bytes[place..place + len]))
    }

    /// Gives up what is here, so that it is read again.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
    }

    /// Finds bytes that are here.
    fn place_of(&self, offset: u64, len: usize) -> Option<usize> {
        let place = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        (place <= self.len && len <= self.len - place).then_some(place)
    }

    /// Reads up to `goal` bytes. An error matters only if there are fewer than `len`.
    fn fill(
        &mut self,
        source: &mut impl ReadAt,
        offset: u64,
        len: usize,
        goal: usize,
    ) -> io::Result<()> {
        (self.start, self.len) = (offset, 0);
        while self.len < goal {
            let end = goal.min(self.len + PIECE_BYTES);
            if self.bytes.len() < end {
                self.bytes.resize(end, 0);
            }
            let at = offset.saturating_add(self.len as u64);
            match source.read_at(&mut self.bytes[self.len..end], at) {
                Ok(0) => break,
                Ok(count) => {
                    self.len += count;
                    self.read_bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.len >= len => break,
                Err(error) => {
                    self.len = 0;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of bytes that each are their offset, with a place where it fails.
    struct Source {
        len: u64,
        fails_at: u64,
        reads: usize,
    }

    impl ReadAt for Source {
        fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
            self.reads += 1;
            if offset >= self.fails_at {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let wanted = offset.saturating_add(bytes.len() as u64);
            let end = self.len.min(self.fails_at).min(wanted);
            let count = end.saturating_sub(offset) as usize;
            bytes[..count].iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
            Ok(count)
        }
    }

    fn source(len: u64) -> Source {
        Source { len, fails_at: u64::MAX, reads: 0 }
    }

    #[test]
    fn small_pieces_in_a_row_take_few_reads_and_others_read_no_more_than_they_want() {
        let (mut window, mut file) = (Window::default(), source(1 << 20));
        for at in 0..10_000_u64 {
            let got = window.read(&mut file, (at * 100, 100), |most| most).unwrap().unwrap();
            assert!(got.iter().zip(at * 100..).all(|(byte, at)| *byte == at as u8), "{at}");
        }
        assert!(file.reads < 20, "{} reads", file.reads);
        let before = window.read_bytes;
        for at in [7_u64, 900_000, 70] {
            assert_eq!(window.read(&mut file, (at, 5), |most| most).unwrap().unwrap()[0], at as u8);
        }
        assert_eq!(window.read_bytes, before + 15);
    }

    #[test]
    fn what_is_not_there_is_nothing_and_takes_no_memory() {
        let (mut window, mut file) = (Window::default(), source(1000));
        assert_eq!(window.read(&mut file, (10, usize::MAX), |_| 0).unwrap(), None);
        assert_eq!(window.read(&mut file, (u64::MAX - 1, 2), |_| 0).unwrap(), None);
        assert_eq!(window.read(&mut file, (1000, 0), |_| 0).unwrap(), Some(&[][..]));
        assert!(window.bytes.len() <= 2 * PIECE_BYTES);
    }

    #[test]
    fn what_is_given_up_is_read_again() {
        let (mut window, mut file) = (Window::default(), source(1000));
        let mut read = |window: &mut Window| {
            window.read(&mut file, (0, 100), |_| 0).unwrap();
            file.reads
        };
        assert_eq!((read(&mut window), read(&mut window)), (1, 1));
        window.forget();
        assert_eq!(read(&mut window), 2);
    }

    #[test]
    fn a_failure_behind_what_is_wanted_is_none() {
        let (mut window, mut file) = (Window::default(), Source { fails_at: 300, ..source(1000) });
        assert!(window.read(&mut file, (0, 100), |most| most).unwrap().is_some());
        // It reads ahead from here.
        assert!(window.read(&mut file, (100, 100), |most| most).unwrap().is_some());
        assert!(window.read(&mut file, (200, 100), |most| most).unwrap().is_some());
        assert!(window.read(&mut file, (250, 100), |most| most).is_err());
        assert!(window.read(&mut file, (200, 100), |most| most).unwrap().is_some());
    }
}
