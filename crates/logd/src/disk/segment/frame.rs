//! The zstd frame of a packed segment, made and checked piece by piece.
//!
//! Both directions compare the lines with the checksums of the segment's index. This file does no I/O: `pack` makes
//! files of frames, `upload` makes objects, and both check what they read back.

use std::io;

use zstd::stream::{raw, raw::Operation as _, write::Encoder};

use super::scan::Scan;
use crate::disk::segment::format::entry::Entry;

/// Bytes that are unpacked at a time.
const OUT_BYTES: usize = 128 << 10;

/// Packs the lines of a sealed segment.
pub(crate) struct Packer<'a> {
    encoder: Encoder<'static, Vec<u8>>,
    sums: Sums<'a>,
}

impl<'a> Packer<'a> {
    /// Begins a frame for the lines that an index describes.
    ///
    /// # Errors
    ///
    /// zstd has no memory, or does not know the level.
    pub(crate) fn new(scan: &'a Scan, level: i32) -> io::Result<Packer<'a>> {
        let mut encoder = Encoder::new(Vec::new(), level).map_err(failed)?;
        encoder.include_checksum(true).map_err(failed)?;
        encoder.set_pledged_src_size(Some(scan.end())).map_err(failed)?;
        Ok(Packer { encoder, sums: Sums::new(&scan.batches) })
    }

    /// Takes the next lines. Returns the bytes of the frame that are ready.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.sums.take(bytes);
        io::Write::write_all(&mut self.encoder, bytes).map_err(failed)?;
        Ok(std::mem::take(self.encoder.get_mut()))
    }

    /// Ends the frame. Returns its last bytes, or nothing if the lines do not match the index.
    pub(crate) fn finish(self) -> io::Result<Option<Vec<u8>>> {
        if !self.sums.are_right() {
            return Ok(None);
        }
        self.encoder.finish().map(Some).map_err(failed)
    }
}

fn failed(error: io::Error) -> io::Error {
    io::Error::other(format!("zstd: {error}"))
}

/// Checks a frame.
pub(crate) struct Checker<'a> {
    decoder: raw::Decoder<'static>,
    out: Vec<u8>,
    sums: Sums<'a>,
    /// Whether the bytes so far end with the frame.
    is_whole: bool,
    is_damaged: bool,
}

impl<'a> Checker<'a> {
    /// Begins to check a frame against the index of its segment.
    ///
    /// # Errors
    ///
    /// zstd has no memory.
    pub(crate) fn new(scan: &'a Scan) -> io::Result<Checker<'a>> {
        let decoder = raw::Decoder::new().map_err(failed)?;
        let (out, sums) = (vec![0; OUT_BYTES], Sums::new(&scan.batches));
        Ok(Checker { decoder, out, sums, is_whole: false, is_damaged: false })
    }

    /// Takes the next bytes of the frame.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        let mut is_full = false;
        while !self.is_damaged && (is_full || !bytes.is_empty()) {
            let Ok(status) = self.decoder.run_on_buffers(bytes, &mut self.out) else {
                self.is_damaged = true;
                return;
            };
            self.sums.take(&self.out[..status.bytes_written]);
            bytes = &bytes[status.bytes_read..];
            self.is_whole = status.remaining == 0;
            // zstd may have more to write then, even without more input.
            is_full = status.bytes_written == self.out.len() && !self.is_whole;
        }
    }

    /// Whether these bytes were the whole frame, and its lines match the index.
    pub(crate) fn is_right(&self) -> bool {
        self.is_whole && !self.is_damaged && self.sums.are_right()
    }
}

/// Compares the checksums of batches with bytes that come in order, in pieces of any size.
struct Sums<'a> {
    batches: &'a [Entry],
    /// Bytes of the current batch so far.
    done: u64,
    sum: crc32fast::Hasher,
    is_wrong: bool,
}

impl<'a> Sums<'a> {
    fn new(batches: &'a [Entry]) -> Sums<'a> {
        Sums { batches, done: 0, sum: crc32fast::Hasher::new(), is_wrong: false }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some((batch, others)) = self.batches.split_first() else {
                // There are more bytes than the batches have.
                self.is_wrong = true;
                return;
            };
            let left = usize::try_from(batch.bytes - self.done).unwrap_or(usize::MAX);
            let (own, after) = bytes.split_at(left.min(bytes.len()));
            self.sum.update(own);
            self.done += own.len() as u64;
            bytes = after;
            if self.done == batch.bytes {
                let sum = std::mem::take(&mut self.sum).finalize();
                self.is_wrong |= sum != batch.checksum;
                (self.batches, self.done) = (others, 0);
            }
        }
    }

    /// Whether all batches were complete and had the right checksum.
    fn are_right(&self) -> bool {
        self.batches.is_empty() && !self.is_wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segment::tests::index_of_one;

    /// A frame without its last bytes unpacks to all lines. It is not whole: zstd's own checksum is missing.
    #[test]
    fn a_frame_is_right_only_as_a_whole() {
        let scan = Scan::promised(&index_of_one(7, 0));
        let pack = |lines: &[u8]| {
            let mut packer = Packer::new(&scan, 3).unwrap();
            let mut frame = packer.take(lines).unwrap();
            packer.finish().unwrap().map(|rest| {
                frame.extend(rest);
                frame
            })
        };
        let frame = pack(b"7\n").unwrap();
        for other in [&b"8\n"[..], b"7"] {
            assert!(pack(other).is_none(), "{other:?} is not what the index has");
        }
        let is_right = |bytes: &[u8]| {
            let mut checker = Checker::new(&scan).unwrap();
            // In two pieces.
            let (first, second) = bytes.split_at(bytes.len() / 2);
            checker.take(first);
            checker.take(second);
            checker.is_right()
        };
        assert!(is_right(&frame));
        for end in 0..frame.len() {
            assert!(!is_right(&frame[..end]), "cut at {end}");
            let mut spoilt = frame.clone();
            spoilt[end] ^= 1;
            assert!(!is_right(&spoilt), "flipped at {end}");
        }
        assert!(!is_right(&[&frame[..], b"x"].concat()) && !is_right(&frame.repeat(2)));
    }
}
