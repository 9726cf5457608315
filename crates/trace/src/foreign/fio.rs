//! fio's iologs of version 2 and 3 as traces ("TRACE FILE FORMAT" in fio(1)).
//!
//! An iolog says what was asked for, not how long it took or what came of it. Each operation counts as complete, with a
//! duration of 0. Version 2 has times only as waits. The unit of version 3 is the microsecond: fio(1) does not name
//! it, fio 3.33 writes it so.

use std::{
    collections::{HashSet, VecDeque},
    ffi::OsString,
    io::BufRead,
    os::unix::ffi::OsStringExt,
};

use super::lines::{Lines, Parser};
use crate::{
    model::{
        End, FileKind, Header, Interface, Kind, Name, OpenFlags, Operation, Outcome, Record, Source,
    },
    registry::{Opened, Registry},
};

/// The version in the first line of an iolog.
pub(super) fn version(line: &[u8]) -> Option<u8> {
    match line.trim_ascii_end() {
        b"fio version 2 iolog" => Some(2),
        b"fio version 3 iolog" => Some(3),
        _ => None,
    }
}

pub(super) fn header(version: u8) -> Header {
    Header {
        recorder: format!("fio iolog, version {version}"),
        method: "fio".to_owned(),
        blind_spots: vec![
            "A fio iolog has no results and no durations: each operation counts as complete, with a duration of 0."
                .to_owned(),
            "A fio iolog does not say how files were opened, which thread made an operation, or how.".to_owned(),
        ],
        ..Header::default()
    }
}

/// Iterates over the records of an iolog, with its first line.
pub(super) fn records<R: BufRead>(input: R, version: u8) -> Lines<R, Log> {
    let log = Log {
        has_times: version == 3,
        is_begun: false,
        now_ns: 0,
        added: HashSet::new(),
        registry: Registry::default(),
        trims: 0,
    };
    Lines::new(input, log)
}

pub(super) struct Log {
    has_times: bool,
    is_begun: bool,
    now_ns: u64,
    /// The files that the iolog has added. Others are mistakes.
    added: HashSet<Vec<u8>>,
    registry: Registry,
    trims: u64,
}

impl Parser for Log {
    fn line(&mut self, line: &[u8], records: &mut VecDeque<Record>) -> Result<(), String> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        if self.has_times {
            let Some(time) = words.next() else { return Ok(()) };
            let time_us = number(Some(time), "a time")?;
            self.now_ns = time_us.checked_mul(1000).ok_or("the time is too large")?;
        }
        let Some(name) = words.next() else { return Ok(()) };
        match words.next() {
            Some(b"add") => {
                self.added.insert(name.to_vec());
                Ok(())
            }
            Some(b"open" | b"close") => Ok(()),
            Some(b"wait") => {
                let wait_us = number(words.next(), "a time to wait")?;
                let now_ns =
                    wait_us.checked_mul(1000).and_then(|wait| self.now_ns.checked_add(wait));
                self.now_ns = now_ns.ok_or("the time is too large")?;
                Ok(())
            }
            Some(b"trim") => {
                self.trims += 1;
                Ok(())
            }
            Some(b"read") => self.operation(Kind::Read, name, words, records),
            Some(b"write") => self.operation(Kind::Write, name, words, records),
            Some(b"sync") => self.operation(Kind::Sync, name, words, records),
            Some(b"datasync") => self.operation(Kind::DataSync, name, words, records),
            other => Err(format!(
                "unknown action '{}': expected add, open, close, read, write, sync, datasync, trim or wait",
                String::from_utf8_lossy(other.unwrap_or_default())
            )),
        }
    }

    fn end(&mut self, _: &mut VecDeque<Record>) -> End {
        End { elapsed_ns: self.now_ns, unseen_requests: self.trims, ..End::default() }
    }
}

impl Log {
    fn operation<'a>(
        &mut self,
        kind: Kind,
        name: &[u8],
        mut words: impl Iterator<Item = &'a [u8]>,
        records: &mut VecDeque<Record>,
    ) -> Result<(), String> {
        if !self.added.contains(name) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("the file '{name}' was not added before"));
        }
        let is_sync = matches!(kind, Kind::Sync | Kind::DataSync);
        let (offset, bytes) = match is_sync {
            true => (None, 0),
            false => (Some(number(words.next(), "an offset")?), number(words.next(), "a length")?),
        };
        if bytes > i64::MAX.cast_unsigned() {
            return Err("the length is too large".to_owned());
        }
        let name = Name::Path(OsString::from_vec(name.to_vec()));
        let opened = Opened::new(name, FileKind::Unknown, OpenFlags::default());
        let file = self.registry.file(opened, None, records);
        let thread = self.registry.thread(0, || (0, String::new()), records);
        records.push_back(Record::Operation(Operation {
            thread,
            file,
            target: None,
            kind,
            offset,
            asked_bytes: Some(bytes),
            outcome: Outcome::Done { bytes },
            begin_ns: self.now_ns,
            duration_ns: 0,
            is_direct: false,
            source: Source::Unknown,
            interface: Interface::Syscall,
            computed_ns: None,
        }));
        Ok(())
    }
}

fn number(word: Option<&[u8]>, what: &str) -> Result<u64, String> {
    let text = word.and_then(|word| str::from_utf8(word).ok()).unwrap_or_default();
    text.parse().map_err(|_| format!("expected {what}, found '{text}'"))
}
