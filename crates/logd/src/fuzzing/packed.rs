//! Packed segments: made as the daemon makes them, and read as its tools do.

use std::path::Path;

use crate::disk::segment::{
    format::name::{Content, Part, Stream},
    frame::{Checker, Packer},
    reading::{reader::read_all, source::InDirectory},
    scan::Scan,
};

const STREAM: Stream = Stream { content: Content::Lines, number: 0 };

/// The packed file of a segment's lines, if they are what its index says.
pub fn packed_of(index: &[u8], lines: &[u8]) -> Option<Vec<u8>> {
    let scan = Scan::promised(index);
    let mut packer = Packer::new(&scan, 1).ok()?;
    let mut frame = packer.take(lines).ok()?;
    frame.extend(packer.finish().ok()??);
    Some(frame)
}

/// Whether a file passes the check before the plain one is removed. It comes in pieces.
pub fn is_frame_of(index: &[u8], frame: &[u8], piece_bytes: usize) -> bool {
    let scan = Scan::promised(index);
    let Ok(mut checker) = Checker::new(&scan) else { return false };
    frame.chunks(piece_bytes.max(1)).for_each(|piece| checker.take(piece));
    checker.is_right()
}

/// The lines of whole batches that the tools find in an index and a packed file, which are written to `directory`.
pub fn packed_lines(directory: &Path, index: &[u8], frame: &[u8]) -> Vec<u8> {
    for (part, bytes) in [(Part::Index, index), (Part::Packed, frame)] {
        std::fs::write(directory.join(STREAM.file(0, part)), bytes).expect("room for a file");
    }
    let segments = InDirectory::new(directory, STREAM, vec![0]);
    read_all(segments).map_or(Vec::new(), |(lines, _)| lines)
}
