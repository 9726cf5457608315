//! The tracepoints that a recording needs, and where their fields are.
//!
//! The places of fields differ between kernels, so they come from the format file of each tracepoint. A tracepoint that
//! the kernel does not have leaves something unseen; only those of syscalls are necessary.

use std::{fs, io, path::Path};

use crate::{descriptor::device_numbers, recorder::event::Event};

/// Where tracefs can be mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// What a tracepoint means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Enter,
    Exit,
    RingSubmit,
    RingFile,
    RingComplete,
    PagesAdded,
    PagesWanted,
    DirectBegin,
}

/// Each tracepoint with the names that it has had, newest first, and its fields in the order in which they are used.
const WANTED: [(Meaning, &[&str], &[&str]); 8] = [
    (Meaning::Enter, &["raw_syscalls/sys_enter"], &["id", "args"]),
    (Meaning::Exit, &["raw_syscalls/sys_exit"], &["id", "ret"]),
    (
        Meaning::RingSubmit,
        // The name changed in Linux 6.0.
        &["io_uring/io_uring_submit_req", "io_uring/io_uring_submit_sqe"],
        &["req", "opcode"],
    ),
    (Meaning::RingFile, &["io_uring/io_uring_file_get"], &["req", "fd"]),
    (Meaning::RingComplete, &["io_uring/io_uring_complete"], &["req", "res", "cflags"]),
    (
        Meaning::PagesAdded,
        &["filemap/mm_filemap_add_to_page_cache"],
        &["s_dev", "i_ino", "index", "order"],
    ),
    (
        Meaning::PagesWanted,
        &["filemap/mm_filemap_get_pages"],
        &["s_dev", "i_ino", "index", "last_index"],
    ),
    (Meaning::DirectBegin, &["iomap/iomap_dio_rw_begin"], &["dev", "ino", "pos", "count"]),
];

/// The bytes of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

/// A tracepoint of this kernel.
#[derive(Debug)]
pub(super) struct Tracepoint {
    pub(super) meaning: Meaning,
    pub(super) id: u16,
    fields: Vec<Field>,
}

impl Tracepoint {
    /// The tracepoints of this kernel, and the meanings that it does not have.
    ///
    /// # Errors
    ///
    /// tracefs is not mounted or may not be read, or the tracepoints of syscalls are missing.
    pub(super) fn all() -> io::Result<(Vec<Tracepoint>, Vec<Meaning>)> {
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for place in PLACES {
            match fs::read_dir(place) {
                Ok(_) => return Tracepoint::below(Path::new(place)),
                Err(other) if other.kind() == io::ErrorKind::PermissionDenied => error = other,
                Err(_) => {}
            }
        }
        Err(error)
    }

    fn below(place: &Path) -> io::Result<(Vec<Tracepoint>, Vec<Meaning>)> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (meaning, names, fields) in WANTED {
            let read = |name: &&str| Tracepoint::read(&place.join(name), meaning, fields).ok();
            match names.iter().find_map(read) {
                Some(tracepoint) => found.push(tracepoint),
                None if matches!(meaning, Meaning::Enter | Meaning::Exit) => {
                    let what = format!("{}: missing in this kernel", names[0]);
                    return Err(io::Error::new(io::ErrorKind::Unsupported, what));
                }
                None => missing.push(meaning),
            }
        }
        Ok((found, missing))
    }

    fn read(directory: &Path, meaning: Meaning, names: &[&str]) -> io::Result<Tracepoint> {
        let format = fs::read_to_string(directory.join("format"))?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let id = format.lines().find_map(|line| line.strip_prefix("ID:")).ok_or_else(invalid)?;
        let id = id.trim().parse().map_err(|_| invalid())?;
        let field = |name: &&str| field(&format, name).ok_or_else(invalid);
        Ok(Tracepoint { meaning, id, fields: names.iter().map(field).collect::<Result<_, _>>()? })
    }

    /// The event in a record. None: a syscall that does not matter, or a record that is too short.
    pub(super) fn event(&self, raw: &[u8], calls: &[u16]) -> Option<Event> {
        let number = |place: usize| self.number(raw, place);
        let identity = || {
            let (major, minor) = device_numbers(number(0)?);
            Some((libc::makedev(major, minor), number(1)?))
        };
        Some(match self.meaning {
            Meaning::Enter => {
                let call = *calls.get(usize::try_from(number(0)?).ok()?)?;
                if call == u16::MAX {
                    return None;
                }
                let bytes = raw.get(self.fields[1].offset..)?.get(..48)?;
                let mut arguments = [0; 6];
                for (argument, bytes) in arguments.iter_mut().zip(bytes.chunks_exact(8)) {
                    *argument = u64::from_ne_bytes(bytes.try_into().ok()?);
                }
                Event::Enter { call, arguments }
            }
            Meaning::Exit => {
                let call = *calls.get(usize::try_from(number(0)?).ok()?)?;
                if call == u16::MAX {
                    return None;
                }
                Event::Exit { result: number(1)?.cast_signed() }
            }
            Meaning::RingSubmit => {
                Event::RingSubmit { request: number(0)?, opcode: number(1)? as u8 }
            }
            Meaning::RingFile => {
                Event::RingFile { request: number(0)?, descriptor: number(1)? as i32 }
            }
            Meaning::RingComplete => Event::RingComplete {
                request: number(0)?,
                result: number(1)? as i32,
                flags: number(2)? as u32,
            },
            Meaning::PagesAdded => {
                let (first, order) = (number(2)?, number(3)?);
                Event::PagesAdded { identity: identity()?, first, count: 1 << order.min(32) }
            }
            Meaning::PagesWanted => {
                Event::PagesWanted { identity: identity()?, first: number(2)?, last: number(3)? }
            }
            Meaning::DirectBegin => {
                Event::DirectBegin { identity: identity()?, offset: number(2)?, bytes: number(3)? }
            }
        })
    }

    fn number(&self, raw: &[u8], place: usize) -> Option<u64> {
        let field = self.fields.get(place)?;
        let bytes = raw.get(field.offset..)?.get(..field.size)?;
        Some(match field.size {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }
}

/// Finds a field by its name, whatever its type.
fn field(format: &str, name: &str) -> Option<Field> {
    let line =
        format.lines().filter_map(|line| line.trim().strip_prefix("field:")).find(|line| {
            let declaration = line.split(';').next().unwrap_or_default();
            let declared = declaration.split('[').next().unwrap_or_default();
            declared.rsplit([' ', '*']).next() == Some(name)
        })?;
    let part = |key: &str| {
        let part = line.split(';').find_map(|part| part.trim().strip_prefix(key));
        part?.parse().ok()
    };
    Some(Field { offset: part("offset:")?, size: part("size:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTER: &str = "name: sys_enter\nID: 443\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\
        \tfield:void * ctx;\toffset:64;\tsize:8;\tsigned:0;\n";

    #[test]
    fn fields_are_found_by_name_whatever_their_type() {
        assert_eq!(field(ENTER, "id"), Some(Field { offset: 8, size: 8 }));
        assert_eq!(field(ENTER, "args"), Some(Field { offset: 16, size: 48 }));
        assert_eq!(field(ENTER, "ctx"), Some(Field { offset: 64, size: 8 }));
        assert_eq!(field(ENTER, "type"), None, "only whole names");
    }

    #[test]
    fn a_record_that_is_too_short_is_no_event() {
        let fields = vec![Field { offset: 8, size: 8 }, Field { offset: 16, size: 48 }];
        let tracepoint = Tracepoint { meaning: Meaning::Enter, id: 443, fields };
        let mut raw = [0; 64];
        raw[16] = 7;
        let calls = [3];
        match tracepoint.event(&raw, &calls) {
            Some(Event::Enter { call: 3, arguments }) => assert_eq!(arguments[0], 7),
            other => panic!("{other:?}"),
        }
        (0..64).for_each(|len| assert!(tracepoint.event(&raw[..len], &calls).is_none()));
    }
}
