//! The output of `strace -f -ttt -T -y` (or `-yy`) as a trace.
//!
//! `-y` names the file of each descriptor, so only flags and positions are followed from call to call. Lines that are no
//! I/O are skipped. What strace does not print, such as kernel-side requests of io_uring, is counted as unseen.

mod syntax;

use std::{
    collections::{HashMap, VecDeque},
    io::BufRead,
};

use nix::errno::Errno;

use self::syntax::{Annotation, Completed, Event};
use super::lines::{Lines, Parser};
use crate::{
    call::{self, Call, Io, Length, Offset},
    descriptor::{Descriptors, OpenFile},
    model::{
        End, FileId, FileKind, Header, Interface, Kind, Name, OpenFlags, Operation, Outcome,
        Record, Source,
    },
    registry::{Opened, Registry},
};

/// Whether strace writes such lines with `-ttt`.
pub(super) fn is_meant(line: &[u8]) -> bool {
    str::from_utf8(line).ok().and_then(syntax::line).is_some()
}

pub(super) fn header() -> Header {
    Header {
        recorder: "strace".to_owned(),
        method: "strace".to_owned(),
        blind_spots: vec![
            "strace does not see the requests that a program makes by io_uring or Linux AIO."
                .to_owned(),
            "strace does not tell the page cache from the device.".to_owned(),
            "strace shows flags and positions only of files that were opened while it ran."
                .to_owned(),
        ],
        ..Header::default()
    }
}

/// Iterates over the records of strace's output.
pub(super) fn records<R: BufRead>(input: R) -> Lines<R, Output> {
    Lines::new(input, Output::default())
}

#[derive(Default)]
pub(super) struct Output {
    /// The time of the first line, and of the last one after it.
    first_ns: Option<u64>,
    last_ns: u64,
    /// The call that each thread is in, with its begin and its arguments so far.
    unfinished: HashMap<u32, (String, u64, String)>,
    /// The process of each thread.
    processes: HashMap<u32, u32>,
    descriptors: Descriptors,
    registry: Registry,
    unknown_files: u64,
    unseen_requests: u64,
}

/// A call that is complete.
struct Returned<'a> {
    tid: u32,
    pid: u32,
    begin_ns: u64,
    duration_ns: u64,
    arguments: Vec<&'a str>,
    result: &'a str,
}

impl Returned<'_> {
    fn argument(&self, place: usize) -> &str {
        self.arguments.get(place).copied().unwrap_or_default()
    }

    fn number(&self, place: usize) -> Option<u64> {
        self.argument(place).parse().ok()
    }

    /// The result, if the call succeeded.
    fn value(&self) -> Option<u64> {
        let len = self.result.bytes().take_while(u8::is_ascii_digit).count();
        self.result[..len].parse().ok()
    }
}

impl Parser for Output {
    fn line(&mut self, line: &[u8], records: &mut VecDeque<Record>) -> Result<(), String> {
        let text = str::from_utf8(line).map_err(|_| "it is not ASCII".to_owned())?;
        if text.trim().is_empty() || text.starts_with("strace: ") {
            return Ok(());
        }
        let line = syntax::line(text).ok_or(
            "expected a thread, a time in seconds since 1970 and a call: run strace with -f -ttt -T -y",
        )?;
        let first_ns = *self.first_ns.get_or_insert(line.time_ns);
        let now_ns = line.time_ns.saturating_sub(first_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let tid = line.tid;
        self.meet(tid);
        match line.event {
            Event::Other => Ok(()),
            Event::Ended => {
                self.thread_ended(tid);
                Ok(())
            }
            Event::Unfinished { name, begun } => {
                let entry = (name.to_owned(), now_ns, begun.to_owned());
                self.unfinished.insert(tid, entry);
                Ok(())
            }
            Event::Resumed { name, rest } => match self.unfinished.remove(&tid) {
                Some((begun_name, begin_ns, begun)) if begun_name == name => {
                    self.call(name, (tid, begin_ns), &format!("{begun}{rest}"), records)
                }
                // It began before strace attached.
                _ => Ok(()),
            },
            Event::Call { name, rest } => self.call(name, (tid, now_ns), rest, records),
        }
    }

    fn end(&mut self, records: &mut VecDeque<Record>) -> End {
        let mut unfinished: Vec<_> = std::mem::take(&mut self.unfinished).into_iter().collect();
        unfinished.sort_by_key(|(tid, (_, begin_ns, _))| (*begin_ns, *tid));
        for (tid, (name, begin_ns, begun)) in unfinished {
            let Some(Call::Io(io)) = call::by_name(&name) else { continue };
            let arguments = begun.split(", ").map(str::trim).collect();
            let pid = self.process(tid);
            let duration_ns = self.last_ns.saturating_sub(begin_ns);
            let returned = Returned { tid, pid, begin_ns, duration_ns, arguments, result: "?" };
            self.operation(io, &returned, records);
        }
        End {
            elapsed_ns: self.last_ns,
            unknown_files: self.unknown_files,
            unseen_requests: self.unseen_requests,
            ..End::default()
        }
    }
}

impl Output {
    fn process(&self, tid: u32) -> u32 {
        self.processes.get(&tid).copied().unwrap_or(tid)
    }

    /// A thread can write its first line before the line of the call that made it. If only one call can have made it,
    /// that one did.
    fn meet(&mut self, tid: u32) {
        if self.processes.contains_key(&tid) {
            return;
        }
        let mut spawns = self
            .unfinished
            .iter()
            .filter(|(_, (name, _, _))| call::by_name(name) == Some(Call::Spawn));
        let only = match (spawns.next(), spawns.next()) {
            (Some((parent, (_, _, begun))), None) => {
                Some((*parent, begun.contains("CLONE_THREAD")))
            }
            _ => None,
        };
        match only {
            Some((parent, is_thread)) => self.spawn(parent, tid, is_thread),
            None => drop(self.processes.insert(tid, tid)),
        }
    }

    fn spawn(&mut self, parent: u32, child: u32, is_thread: bool) {
        let parent = self.process(parent);
        if is_thread {
            self.processes.insert(child, parent);
        } else {
            self.processes.insert(child, child);
            self.descriptors.fork(parent, child);
        }
    }

    fn thread_ended(&mut self, tid: u32) {
        self.unfinished.remove(&tid);
        self.registry.forget_thread(tid);
        if self.processes.remove(&tid) == Some(tid) {
            self.descriptors.forget(tid);
        }
    }

    fn call(
        &mut self,
        name: &str,
        (tid, begin_ns): (u32, u64),
        rest: &str,
        records: &mut VecDeque<Record>,
    ) -> Result<(), String> {
        let Some(call) = call::by_name(name) else { return Ok(()) };
        let Completed { arguments, result, duration_ns } =
            syntax::completed(rest).ok_or("the call is not complete")?;
        if duration_ns.is_none() && result != "?" && matches!(call, Call::Io(_)) {
            return Err("the call has no duration: run strace with -T".to_owned());
        }
        let (pid, duration_ns) = (self.process(tid), duration_ns.unwrap_or(0));
        let returned = Returned { tid, pid, begin_ns, duration_ns, arguments, result };
        match call {
            Call::Io(io) => self.operation(io, &returned, records),
            Call::AioSubmit | Call::RingEnter => {
                self.unseen_requests += returned.value().unwrap_or(0)
            }
            _ => self.descriptor_call(call, &returned),
        }
        Ok(())
    }

    fn descriptor_call(&mut self, call: Call, returned: &Returned<'_>) {
        let pid = returned.pid;
        let Some(value) = returned.value() else { return };
        let number = i32::try_from(value).unwrap_or(-1);
        let is_close_on_exec = returned
            .arguments
            .iter()
            .any(|argument| !argument.starts_with('"') && argument.contains("CLOEXEC"));
        let first = syntax::descriptor(returned.argument(0)).map(|(number, _)| number);
        match call {
            Call::Open | Call::Socket => {
                let flags = open_flags(&returned.arguments);
                let position = (call == Call::Open).then_some(0);
                let open = OpenFile { flags, position, ..OpenFile::default() };
                self.descriptors.open(pid, number, open, is_close_on_exec);
            }
            Call::Close => first.into_iter().for_each(|first| self.descriptors.close(pid, first)),
            Call::CloseRange => {
                let bound =
                    |place| returned.number(place).and_then(|bound| u32::try_from(bound).ok());
                let is_meant = !returned.argument(2).contains("CLOEXEC");
                if let (Some(first), true) = (bound(0), is_meant) {
                    self.descriptors.close_range(pid, first, bound(1).unwrap_or(u32::MAX));
                }
            }
            Call::Control if !returned.argument(1).starts_with("F_DUPFD") => {}
            Call::Duplicate | Call::Control => {
                let from = first.unwrap_or(-1);
                self.descriptors.duplicate(pid, from, number, is_close_on_exec);
            }
            Call::Seek => {
                let open = first.and_then(|first| self.descriptors.get(pid, first));
                if let Some(open) = open {
                    open.set(OpenFile { position: Some(value), ..open.get() });
                }
            }
            Call::Spawn => {
                let child = u32::try_from(value).unwrap_or(0);
                let is_thread = returned.arguments.iter().any(|text| text.contains("CLONE_THREAD"));
                // In the child the call returns 0.
                if child != 0 && self.processes.get(&child).is_none_or(|pid| *pid == child) {
                    self.spawn(returned.tid, child, is_thread);
                }
            }
            Call::Execute => self.descriptors.execute(pid),
            Call::Pair | Call::Io(_) | Call::AioSubmit | Call::AioReap | Call::RingEnter => {}
        }
    }

    fn operation(&mut self, io: Io, returned: &Returned<'_>, records: &mut VecDeque<Record>) {
        let outcome = outcome(io, returned);
        let moved = match outcome {
            Outcome::Done { bytes } => Some(bytes),
            Outcome::Failed { .. } => Some(0),
            Outcome::Unfinished => None,
        };
        let (file, flags, offset) = match io.descriptor {
            Some(place) => self.side(returned, (place, io.offset), (moved, io.kind), records),
            None => (None, OpenFlags::default(), None),
        };
        let target = io.target.and_then(|(place, offset)| {
            self.side(returned, (place, offset), (moved, Kind::Write), records).0
        });
        let asked_bytes = match io.length {
            Length::None => Some(0),
            Length::Argument(place) => returned.number(place),
            Length::Vector(place) | Length::Message(place) => {
                syntax::vector_bytes(returned.argument(place))
            }
            Length::Messages => None,
        };
        let pid = returned.pid;
        let thread = self.registry.thread(returned.tid, || (pid, String::new()), records);
        self.unknown_files += u64::from(file.is_none());
        let source = match outcome {
            Outcome::Done { bytes: 1.. } if flags.is_direct => Source::Device,
            _ => Source::Unknown,
        };
        records.push_back(Record::Operation(Operation {
            thread,
            file,
            target,
            kind: io.kind,
            offset,
            asked_bytes: if io.kind == Kind::DataSync { Some(0) } else { asked_bytes },
            outcome,
            begin_ns: returned.begin_ns,
            duration_ns: returned.duration_ns,
            is_direct: flags.is_direct,
            source,
            interface: Interface::Syscall,
            computed_ns: None,
        }));
    }

    /// The file behind an argument, how it was opened, and where the operation began in it. Moves its position.
    fn side(
        &mut self,
        returned: &Returned<'_>,
        (place, offset): (usize, Offset),
        (moved, kind): (Option<u64>, Kind),
        records: &mut VecDeque<Record>,
    ) -> (Option<FileId>, OpenFlags, Option<u64>) {
        let Some((number, annotation)) = syntax::descriptor(returned.argument(place)) else {
            return (None, OpenFlags::default(), None);
        };
        let open = self.descriptors.get(returned.pid, number);
        let state = open.map(std::cell::Cell::get).unwrap_or_default();
        let file = annotation.and_then(|annotation| {
            let name = Name::Path(annotation.name.clone());
            let opened = Opened::new(name, kind_of(&annotation), state.flags);
            self.registry.file(opened, None, records)
        });
        // If another file has the number by now, a call was missed, and its flags and position are unknown.
        let is_same = open.is_some() && (state.file.is_none() || state.file == file);
        let explicit = match offset {
            Offset::None => return (file, state.flags, None),
            Offset::Argument(place) => Some(returned.number(place)),
            Offset::ArgumentOrPosition(place) if returned.argument(place) != "-1" => {
                Some(returned.number(place))
            }
            Offset::Pointer(place) if returned.argument(place) != "NULL" => {
                let text = returned.argument(place).strip_prefix('[');
                Some(text.and_then(|text| text.split_once(']')?.0.parse().ok()))
            }
            Offset::ArgumentOrPosition(_) | Offset::Pointer(_) | Offset::Position => None,
        };
        if let Some(offset) = explicit {
            let offset = if kind == Kind::Write && state.flags.is_append { None } else { offset };
            return (file, state.flags, offset);
        }
        let begin = match is_same && !(kind == Kind::Write && state.flags.is_append) {
            true => state.position,
            false => None,
        };
        if let Some(open) = self.descriptors.get(returned.pid, number) {
            let position = begin.zip(moved).and_then(|(begin, moved)| begin.checked_add(moved));
            open.set(OpenFile { file, position, ..state });
        }
        (file, state.flags, begin)
    }
}

/// What a call returned.
fn outcome(io: Io, returned: &Returned<'_>) -> Outcome {
    let counts_bytes =
        !matches!(io.length, Length::Messages) && !matches!(io.kind, Kind::Sync | Kind::DataSync);
    if let Some(value) = returned.value() {
        let bytes = if counts_bytes { value.min(i64::MAX.cast_unsigned()) } else { 0 };
        return Outcome::Done { bytes };
    }
    match returned.result.strip_prefix("-1 ").or(returned.result.strip_prefix("? ")) {
        Some(error) => {
            let name = error.split(' ').next().unwrap_or_default();
            // A call that the kernel restarts is another call; this one was interrupted.
            let name = if name.starts_with("ERESTART") { "EINTR" } else { name };
            let known = (1..134).find(|number| format!("{:?}", Errno::from_raw(*number)) == name);
            Outcome::Failed { errno: known.map_or(0, |number| number as u16) }
        }
        None => Outcome::Unfinished,
    }
}

fn open_flags(arguments: &[&str]) -> OpenFlags {
    let mut flags = OpenFlags::default();
    let words = arguments
        .iter()
        .filter(|argument| !argument.starts_with('"'))
        .flat_map(|argument| argument.split(|c: char| !c.is_ascii_uppercase() && c != '_'));
    for word in words {
        match word {
            "O_DIRECT" => flags.is_direct = true,
            "O_APPEND" => flags.is_append = true,
            "O_SYNC" => (flags.is_sync, flags.is_data_sync) = (true, true),
            "O_DSYNC" => flags.is_data_sync = true,
            _ => {}
        }
    }
    flags
}

/// With `-y` a device looks like a file, so what is below `/dev` is unknown. A FIFO with a name looks like a regular
/// file.
fn kind_of(annotation: &Annotation) -> FileKind {
    let name = annotation.name.as_encoded_bytes();
    match annotation.device.as_deref() {
        Some(device) if device.starts_with("block") => return FileKind::Block,
        Some(device) if device.starts_with("char") => return FileKind::Other,
        _ => {}
    }
    if name.starts_with(b"/dev/") && !name.starts_with(b"/dev/shm/") {
        FileKind::Unknown
    } else if name.starts_with(b"/") {
        FileKind::Regular
    } else if name.starts_with(b"pipe:") {
        FileKind::Pipe
    } else if name.starts_with(b"anon_inode:") {
        FileKind::Other
    } else {
        FileKind::Socket
    }
}
