//! Reads a copy back and compares it with what was read from its source.
//!
//! While the source is read, a checksum is kept for each mebibyte; where the device took its pages
//! and nobody looked at them, it is read from memory then. Afterwards the copy is put on its device,
//! its pages are dropped from memory, and it is read again, past the page cache. What it does not show: a
//! source that was read wrongly.

use std::{cell::RefCell, os::fd::AsFd};

use ringwise::AlignedBuf;
use rustix::{
    fs,
    io::{Errno, pread},
};

use crate::{
    job::Job,
    messages::report::Line,
    names::place::{retry, set_direct},
    way::DIRECT_ALIGNMENT_BYTES,
};

/// Bytes under one checksum: four bytes of memory for each of these.
const UNIT_BYTES: u64 = 1 << 20;

thread_local! {
    static BUFFER: RefCell<AlignedBuf> =
        RefCell::new(AlignedBuf::zeroed(UNIT_BYTES as usize, DIRECT_ALIGNMENT_BYTES as usize));
}

/// The checksums of a source.
#[derive(Debug, Default)]
pub(crate) struct Checksums {
    done: Vec<u32>,
    current: crc32fast::Hasher,
    len: u64,
}

impl Checksums {
    /// The next bytes of the source.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = UNIT_BYTES - self.len % UNIT_BYTES;
            let count = bytes.len().min(room as usize);
            self.current.update(&bytes[..count]);
            self.len += count as u64;
            if self.len.is_multiple_of(UNIT_BYTES) {
                self.done.push(std::mem::take(&mut self.current).finalize());
            }
            bytes = &bytes[count..];
        }
    }

    /// A hole of the source.
    pub(crate) fn add_zeros(&mut self, mut count: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while count > 0 {
            let part = count.min(ZEROS.len() as u64);
            self.add(&ZEROS[..part as usize]);
            count -= part;
        }
    }

    fn finish(&self) -> (Vec<u32>, u64) {
        let mut sums = self.done.clone();
        if !self.len.is_multiple_of(UNIT_BYTES) {
            sums.push(self.current.clone().finalize());
        }
        (sums, self.len)
    }
}

/// Whether two files have the same content. What cannot be read is not the same.
pub(crate) fn is_same(one: impl AsFd, other: impl AsFd) -> bool {
    let mut pieces = (vec![0; UNIT_BYTES as usize], vec![0; UNIT_BYTES as usize]);
    let mut at = 0;
    loop {
        let Ok(count) = retry(|| pread(&one, &mut pieces.0[..], at)) else { return false };
        let mut read = 0;
        while read < count.max(1) {
            // One byte more at the end: it has to end there too.
            let rest = &mut pieces.1[read..count.max(1)];
            match retry(|| pread(&other, &mut rest[..], at + read as u64)) {
                Ok(0) if count == 0 => return true,
                Ok(0) | Err(_) => return false,
                Ok(_) if count == 0 => return false,
                Ok(more) => read += more,
            }
        }
        if pieces.0[..count] != pieces.1[..count] {
            return false;
        }
        at += count as u64;
    }
}

/// Reads the copy from its device and compares it.
pub(crate) fn compare(job: &Job, source: &Checksums) -> Result<(), Line> {
    if !fs::FileType::from_raw_mode(job.copy_stat.st_mode).is_file() {
        // Nothing that was written to a terminal or a pipe can be read back.
        return Ok(());
    }
    let failed = |errno| job.text("verifying %s", &[&job.copy_path], errno);
    retry(|| fs::fdatasync(&job.copy)).map_err(failed)?;
    retry(|| fs::fadvise(&job.copy, 0, None, fs::Advice::DontNeed)).map_err(failed)?;
    let copy = BUFFER.with_borrow_mut(|buffer| read_back(job, buffer)).map_err(failed)?;
    let ((wanted, wanted_len), (found, found_len)) = (source.finish(), copy.finish());
    let differs = match wanted.iter().zip(&found).position(|(wanted, found)| wanted != found) {
        Some(unit) => format!("between bytes {} and {}", unit as u64 * UNIT_BYTES, {
            (unit as u64 + 1) * UNIT_BYTES
        }),
        None if wanted_len != found_len => {
            format!("in length: {found_len} bytes instead of {wanted_len}")
        }
        None => return Ok(()),
    };
    let mut text = job.locale.shell(&job.copy_path);
    text.extend_from_slice(b" differs from what was read of ");
    text.extend(job.locale.shell(&job.source_path));
    text.extend_from_slice(format!(" {differs}; copy it again").as_bytes());
    Err(Line::Error(text))
}

/// Reads all of a copy, past the page cache where its file system has that: what comes is what the
/// device has then, and no page has to be found for it (docs/notes/cp/checking.md).
fn read_back(job: &Job, buffer: &mut AlignedBuf) -> Result<Checksums, Errno> {
    let mut is_direct = set_direct(&job.copy, true).is_ok();
    let mut copy = Checksums::default();
    loop {
        let count = match retry(|| pread(&job.copy, &mut buffer[..], copy.len)) {
            Err(Errno::INVAL) if is_direct => {
                set_direct(&job.copy, false)?;
                is_direct = false;
                continue;
            }
            count => count?,
        };
        copy.add(&buffer[..count]);
        // A part of a block is the end, and no place to go on from.
        if count == 0 || (is_direct && !(count as u64).is_multiple_of(DIRECT_ALIGNMENT_BYTES)) {
            return Ok(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_do_not_depend_on_how_bytes_come() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let (mut whole, mut parts) = (Checksums::default(), Checksums::default());
        whole.add(&bytes);
        bytes.chunks(7919).for_each(|part| parts.add(part));
        assert_eq!(whole.finish(), parts.finish());
        assert_eq!(whole.finish().0.len(), 3);
        let (mut hole, mut zeros) = (Checksums::default(), Checksums::default());
        hole.add_zeros(1_500_000);
        zeros.add(&vec![0; 1_500_000]);
        assert_eq!(hole.finish(), zeros.finish());
        zeros.add(&[1]);
        assert_ne!(hole.finish().0, zeros.finish().0);
    }
}
