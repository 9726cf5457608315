//! A trace as `explain` and `replay` need it: read to its end, in memory, with what is missing in it.
//!
//! A trace that was cut or damaged is used up to there, and says so first. A trace that cannot be read at all, such as
//! one of a newer version, is refused. Nothing is guessed for what the trace does not say.

use std::{fs::File, io::BufReader, path::Path};

use ringwise_trace::{
    AnyReader, End, File as TracedFile, FileId, FileKind, Header, Interface, Kind, Operation,
    Record, Thread, ThreadId, TraceError,
};

use crate::error::LabError;

/// More operations than this are left out. An operation takes about 100 bytes of memory.
const OPERATIONS_MAX: usize = 10_000_000;

/// A whole trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traced {
    pub header: Header,
    pub files: Vec<TracedFile>,
    pub threads: Vec<Thread>,
    /// In the order of their begins.
    pub operations: Vec<Operation>,
    pub lost_events: u64,
    /// None: the trace has no end.
    pub end: Option<End>,
    /// Why it was not read to its end.
    pub cut: Option<String>,
}

impl Traced {
    /// Reads a trace of any format that `ringwise-trace` knows.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no trace, is of a newer version, or has no operation.
    pub fn read(path: &Path) -> Result<Traced, LabError> {
        let fail = |what: String| LabError::Failed(format!("{}: {what}", path.display()));
        let file = File::open(path).map_err(|error| LabError::on("reading", path, &error))?;
        let reader = AnyReader::new(BufReader::new(file)).map_err(|error| match error {
            TraceError::Io(error) => LabError::on("reading", path, &error),
            other => fail(other.to_string()),
        })?;
        let traced = Traced::of(reader.header().clone(), reader)
            .map_err(|error| LabError::on("reading", path, &error))?;
        if traced.operations.is_empty() {
            let why =
                traced.cut.as_deref().unwrap_or("the program made no I/O while it was recorded");
            return Err(fail(format!("has no operation: {why}")));
        }
        Ok(traced)
    }

    /// Gathers records. What is wrong with the trace ends it; a device that cannot be read is an error.
    pub fn of(
        header: Header,
        records: impl Iterator<Item = Result<Record, TraceError>>,
    ) -> std::io::Result<Traced> {
        let mut traced = Traced { header, ..Traced::default() };
        for record in records {
            match record {
                Ok(Record::File(file)) => traced.files.push(file),
                Ok(Record::Thread(thread)) => traced.threads.push(thread),
                Ok(Record::Operation(operation)) => traced.operations.push(operation),
                Ok(Record::Lost(lost)) => traced.lost_events += lost.events,
                Ok(Record::End(end)) => traced.end = Some(*end),
                Err(TraceError::Io(error)) => return Err(error),
                Err(error) => traced.cut = Some(error.to_string()),
            }
            if traced.operations.len() == OPERATIONS_MAX {
                traced.cut = Some(format!(
                    "only its first {OPERATIONS_MAX} operations are used: it has more"
                ));
                break;
            }
        }
        traced.operations.sort_by_key(|operation| operation.begin_ns);
        Ok(traced)
    }

    /// The file of an operation.
    pub fn file(&self, id: Option<FileId>) -> Option<&TracedFile> {
        self.files.get(id?.0.get() as usize - 1)
    }

    /// What kind of file an operation is on.
    pub fn file_kind(&self, operation: &Operation) -> FileKind {
        self.file(operation.file).map_or(FileKind::Unknown, |file| file.kind)
    }

    /// A thread.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(id.0.get() as usize - 1)
    }

    /// How long the recording took, or as much as is known of it.
    pub fn elapsed_ns(&self) -> u64 {
        let last = self.operations.iter().map(end_ns).max().unwrap_or(0);
        self.end.as_ref().map_or(last, |end| end.elapsed_ns.max(last))
    }

    /// What the trace is of: the command, or the process.
    pub fn program(&self) -> String {
        match (&self.header.command[..], self.header.pid) {
            ([], 0) => "a program that the trace does not name".to_owned(),
            ([], pid) => format!("process {pid}"),
            (words, _) => words.join(" "),
        }
    }

    /// What is lost or unknown, a sentence each.
    pub fn missing(&self) -> Vec<String> {
        let mut found: Vec<String> = self.cut.iter().cloned().collect();
        let end = self.end.clone().unwrap_or_default();
        let counted = [
            (self.lost_events.max(end.lost_events), "events are lost: an operation has up to two"),
            (end.dropped_records, "operations were dropped at the end: the disk was full"),
            (end.unseen_requests, "requests were not seen (io_uring, Linux AIO, discards)"),
            (self.without_file(), "operations have no known file"),
        ];
        let told = counted.into_iter().filter(|(count, _)| *count > 0);
        found.extend(told.map(|(count, words)| format!("{count} {words}")));
        if !end.detail.is_empty() {
            found.push(format!("the recording ended early: {}", end.detail));
        }
        if self.header.is_private {
            found.push("the names of files are hashes".to_owned());
        }
        found.extend(self.header.blind_spots.iter().cloned());
        found
    }

    fn without_file(&self) -> u64 {
        let none = |operation: &&Operation| operation.file.is_none();
        self.operations.iter().filter(none).count() as u64
    }
}

/// When an operation ended, in ns since the trace began.
pub(crate) fn end_ns(operation: &Operation) -> u64 {
    operation.begin_ns.saturating_add(operation.duration_ns)
}

/// Whether an operation waits until data are on the device.
pub(crate) fn is_sync(kind: Kind) -> bool {
    matches!(kind, Kind::Sync | Kind::DataSync)
}

/// Whether an operation goes through a ring or Linux AIO, so that its thread need not wait for it.
pub(crate) fn is_asynchronous(operation: &Operation) -> bool {
    operation.interface != Interface::Syscall
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZeroU32;

    use ringwise_trace::{Name, OpenFlags, Outcome, Source};

    use super::*;

    /// A number of a file or thread.
    pub fn number(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    /// A regular file of this size.
    pub fn file(id: u32, size_bytes: u64) -> TracedFile {
        TracedFile {
            id: FileId(number(id)),
            name: Name::Path(format!("/data/{id}").into()),
            kind: FileKind::Regular,
            size_bytes: Some(size_bytes),
            flags: OpenFlags::default(),
            made_ns: None,
        }
    }

    /// A thread of process 7.
    pub fn thread(id: u32) -> Thread {
        Thread { id: ThreadId(number(id)), tid: id + 100, pid: 7, name: format!("t{id}") }
    }

    /// A syscall of a thread on file 1.
    pub fn operation(thread: u32, kind: Kind, (begin_ns, duration_ns): (u64, u64)) -> Operation {
        Operation {
            thread: ThreadId(number(thread)),
            file: Some(FileId(number(1))),
            target: None,
            kind,
            offset: Some(0),
            asked_bytes: Some(4096),
            outcome: Outcome::Done { bytes: if is_sync(kind) { 0 } else { 4096 } },
            begin_ns,
            duration_ns,
            is_direct: false,
            source: Source::Unknown,
            interface: Interface::Syscall,
            computed_ns: None,
        }
    }

    /// A trace of these operations by two threads on file 1.
    pub fn traced(operations: Vec<Operation>) -> Traced {
        let mut records: Vec<Result<Record, TraceError>> =
            vec![Ok(Record::File(file(1, 1 << 20))), Ok(Record::Thread(thread(1)))];
        records.push(Ok(Record::Thread(thread(2))));
        records.extend(operations.into_iter().map(|own| Ok(Record::Operation(own))));
        let elapsed_ns = 1_000_000;
        records.push(Ok(Record::End(Box::new(End { elapsed_ns, ..End::default() }))));
        Traced::of(Header::default(), records.into_iter()).unwrap()
    }

    #[test]
    fn what_is_missing_is_said_and_the_cut_first() {
        let mut records = vec![
            Ok(Record::Thread(thread(1))),
            Ok(Record::Operation(Operation { file: None, ..operation(1, Kind::Read, (5, 5)) })),
            Ok(Record::Lost(ringwise_trace::Lost { at_ns: 20, events: 3 })),
        ];
        records.push(Err(TraceError::Cut { at_byte: 77 }));
        let header = Header { is_private: true, ..Header::default() };
        let traced = Traced::of(header, records.into_iter()).unwrap();
        let missing = traced.missing();
        assert!(missing[0].starts_with("the trace is cut after byte 77"), "{missing:?}");
        assert!(missing[1].starts_with("3 events are lost"), "{missing:?}");
        assert_eq!(
            missing[2..],
            ["1 operations have no known file", "the names of files are hashes"]
        );
        assert_eq!(traced.elapsed_ns(), 10);
    }
}
