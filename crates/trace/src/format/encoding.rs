//! How one record becomes bytes, and bytes become a record again.
//!
//! The encoding of a record depends only on the records before it in the same frame: the begin of an operation is the
//! difference to the one before. This file knows no frames and no files.

use std::{
    ffi::OsString,
    num::NonZeroU32,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use crate::model::{
    File, FileId, FileKind, Interface, Kind, Lost, Name, OpenFlags, Operation, Outcome, Source,
    Thread, ThreadId,
};

const FILE: u8 = 1;
const THREAD: u8 = 2;
const OPERATION: u8 = 3;
const LOST: u8 = 4;

/// Bits of an operation's flags.
mod bit {
    pub(super) const OFFSET: u8 = 1;
    pub(super) const ASKED: u8 = 2;
    pub(super) const DIRECT: u8 = 4;
    pub(super) const SOURCE_SHIFT: u8 = 3;
    pub(super) const INTERFACE_SHIFT: u8 = 5;
    pub(super) const UNFINISHED: u8 = 128;
    /// In the byte of the kind.
    pub(super) const COMPUTED: u8 = 128;
}

/// A record that stands in a frame of records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    File(File),
    Thread(Thread),
    Operation(Operation),
    Lost(Lost),
}

/// What of a frame the next record depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    /// When the operation before began.
    begin_ns: u64,
}

impl Context {
    pub(crate) fn file(&mut self, file: &File, out: &mut Vec<u8>) {
        out.push(FILE);
        put(out, u64::from(file.id.0.get()));
        out.push(match file.kind {
            FileKind::Unknown => 0,
            FileKind::Regular => 1,
            FileKind::Block => 2,
            FileKind::Socket => 3,
            FileKind::Pipe => 4,
            FileKind::Other => 5,
        });
        let OpenFlags { is_direct, is_append, is_sync, is_data_sync } = file.flags;
        let optional = [file.size_bytes.is_some(), file.made_ns.is_some()];
        let flags = [is_direct, is_append, is_sync, is_data_sync, optional[0], optional[1]];
        out.push(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
        for number in [file.size_bytes, file.made_ns].into_iter().flatten() {
            put(out, number);
        }
        match &file.name {
            Name::Path(path) => {
                out.push(0);
                put_bytes(out, path.as_bytes());
            }
            Name::Hash(hash) => {
                out.push(1);
                out.extend_from_slice(&hash.to_le_bytes());
            }
        }
    }

    pub(crate) fn thread(&mut self, thread: &Thread, out: &mut Vec<u8>) {
        out.push(THREAD);
        put(out, u64::from(thread.id.0.get()));
        put(out, u64::from(thread.tid));
        put(out, u64::from(thread.pid));
        put_bytes(out, thread.name.as_bytes());
    }

    pub(crate) fn operation(&mut self, operation: &Operation, out: &mut Vec<u8>) {
        out.push(OPERATION);
        put(out, u64::from(operation.thread.0.get()));
        put(out, file_number(operation.file));
        let computed = if operation.computed_ns.is_some() { bit::COMPUTED } else { 0 };
        out.push(
            computed
                | match operation.kind {
                    Kind::Read => 0,
                    Kind::Write => 1,
                    Kind::Sync => 2,
                    Kind::DataSync => 3,
                    Kind::Send => 4,
                    Kind::Receive => 5,
                    Kind::Copy => 6,
                },
        );
        out.push(operation_flags(operation));
        let step = operation.begin_ns.wrapping_sub(self.begin_ns).cast_signed();
        self.begin_ns = operation.begin_ns;
        put_signed(out, step);
        put(out, operation.duration_ns);
        if let Some(offset) = operation.offset {
            put(out, offset);
        }
        if let Some(asked) = operation.asked_bytes {
            put(out, asked);
        }
        match operation.outcome {
            Outcome::Done { bytes } => put(out, bytes << 1),
            Outcome::Failed { errno } => put(out, u64::from(errno) << 1 | 1),
            Outcome::Unfinished => {}
        }
        if operation.kind == Kind::Copy {
            put(out, file_number(operation.target));
        }
        if let Some(computed_ns) = operation.computed_ns {
            put(out, computed_ns);
        }
    }

    pub(crate) fn lost(&mut self, lost: &Lost, out: &mut Vec<u8>) {
        out.push(LOST);
        put(out, lost.at_ns);
        put(out, lost.events);
    }

    /// Takes the next record from the bytes. None: they are no record.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Option<Body> {
        match take_byte(bytes)? {
            FILE => take_file(bytes).map(Body::File),
            THREAD => take_thread(bytes).map(Body::Thread),
            OPERATION => self.take_operation(bytes).map(Body::Operation),
            LOST => Some(Body::Lost(Lost { at_ns: take(bytes)?, events: take(bytes)? })),
            _ => None,
        }
    }

    fn take_operation(&mut self, bytes: &mut &[u8]) -> Option<Operation> {
        let thread = ThreadId(take_number(bytes)?);
        let file = take_file_number(bytes)?;
        let kind = take_byte(bytes)?;
        let has_computed = kind & bit::COMPUTED != 0;
        let kind = match kind & !bit::COMPUTED {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Sync,
            3 => Kind::DataSync,
            4 => Kind::Send,
            5 => Kind::Receive,
            6 => Kind::Copy,
            _ => return None,
        };
        let flags = take_byte(bytes)?;
        let begin_ns = self.begin_ns.wrapping_add(take_signed(bytes)?.cast_unsigned());
        self.begin_ns = begin_ns;
        let duration_ns = take(bytes)?;
        let mut optional = |bit: u8| match flags & bit {
            0 => Some(None),
            _ => take(bytes).map(Some),
        };
        let (offset, asked_bytes) = (optional(bit::OFFSET)?, optional(bit::ASKED)?);
        let outcome = match flags & bit::UNFINISHED {
            0 => match take(bytes)? {
                even if even & 1 == 0 => Outcome::Done { bytes: even >> 1 },
                odd => Outcome::Failed { errno: u16::try_from(odd >> 1).ok()? },
            },
            _ => Outcome::Unfinished,
        };
        let target = if kind == Kind::Copy { take_file_number(bytes)? } else { None };
        let computed_ns = if has_computed { Some(take(bytes)?) } else { None };
        let source = match flags >> bit::SOURCE_SHIFT & 3 {
            0 => Source::Unknown,
            1 => Source::Cache,
            2 => Source::Device,
            _ => return None,
        };
        let interface = match flags >> bit::INTERFACE_SHIFT & 3 {
            0 => Interface::Syscall,
            1 => Interface::IoUring,
            2 => Interface::LinuxAio,
            _ => Interface::BlockLayer,
        };
        let is_direct = flags & bit::DIRECT != 0;
        Some(Operation {
            thread,
            file,
            target,
            kind,
            offset,
            asked_bytes,
            outcome,
            begin_ns,
            duration_ns,
            is_direct,
            source,
            interface,
            computed_ns,
        })
    }
}

fn operation_flags(operation: &Operation) -> u8 {
    let source = match operation.source {
        Source::Unknown => 0,
        Source::Cache => 1,
        Source::Device => 2,
    };
    let interface = match operation.interface {
        Interface::Syscall => 0,
        Interface::IoUring => 1,
        Interface::LinuxAio => 2,
        Interface::BlockLayer => 3,
    };
    let mut flags = source << bit::SOURCE_SHIFT | interface << bit::INTERFACE_SHIFT;
    for (is_set, bit) in [
        (operation.offset.is_some(), bit::OFFSET),
        (operation.asked_bytes.is_some(), bit::ASKED),
        (operation.is_direct, bit::DIRECT),
        (operation.outcome == Outcome::Unfinished, bit::UNFINISHED),
    ] {
        if is_set {
            flags |= bit;
        }
    }
    flags
}

fn take_file(bytes: &mut &[u8]) -> Option<File> {
    let id = FileId(take_number(bytes)?);
    let kind = match take_byte(bytes)? {
        0 => FileKind::Unknown,
        1 => FileKind::Regular,
        2 => FileKind::Block,
        3 => FileKind::Socket,
        4 => FileKind::Pipe,
        5 => FileKind::Other,
        _ => return None,
    };
    let bits = take_byte(bytes)?;
    let flags = OpenFlags {
        is_direct: bits & 1 != 0,
        is_append: bits & 2 != 0,
        is_sync: bits & 4 != 0,
        is_data_sync: bits & 8 != 0,
    };
    if bits >= 64 {
        return None;
    }
    let mut optional = |bit: u8| match bits & bit {
        0 => Some(None),
        _ => take(bytes).map(Some),
    };
    let (size_bytes, made_ns) = (optional(16)?, optional(32)?);
    let name = match take_byte(bytes)? {
        0 => Name::Path(OsString::from_vec(take_bytes(bytes)?.to_vec())),
        1 => {
            let (hash, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Name::Hash(u64::from_le_bytes(*hash))
        }
        _ => return None,
    };
    Some(File { id, name, kind, size_bytes, flags, made_ns })
}

fn take_thread(bytes: &mut &[u8]) -> Option<Thread> {
    let id = ThreadId(take_number(bytes)?);
    let tid = u32::try_from(take(bytes)?).ok()?;
    let pid = u32::try_from(take(bytes)?).ok()?;
    let name = String::from_utf8(take_bytes(bytes)?.to_vec()).ok()?;
    Some(Thread { id, tid, pid, name })
}

fn file_number(file: Option<FileId>) -> u64 {
    file.map_or(0, |file| u64::from(file.0.get()))
}

fn take_file_number(bytes: &mut &[u8]) -> Option<Option<FileId>> {
    let number = u32::try_from(take(bytes)?).ok()?;
    Some(NonZeroU32::new(number).map(FileId))
}

fn take_number(bytes: &mut &[u8]) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(take(bytes)?).ok()?)
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Zigzag: small numbers stay short whatever their sign.
fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, (number << 1 ^ number >> 63).cast_unsigned());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(bytes)?;
        let bits = u64::from(byte & 127);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let number = take(bytes)?;
    Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_leb128() {
        for (number, encoded) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[128, 1]),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut out = Vec::new();
            put(&mut out, number);
            assert_eq!(out, encoded);
            assert_eq!(take(&mut &out[..]), Some(number));
        }
        assert_eq!(take(&mut &[255; 9][..]), None, "cut");
        assert_eq!(take(&mut &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2][..]), None);
    }

    #[test]
    fn signed_numbers_are_zigzag() {
        for (number, encoded) in [(0, 0), (-1, 1), (1, 2), (i64::MIN, u64::MAX)] {
            let mut out = Vec::new();
            put_signed(&mut out, number);
            assert_eq!(take(&mut &out[..]), Some(encoded));
            assert_eq!(take_signed(&mut &out[..]), Some(number));
        }
    }
}
