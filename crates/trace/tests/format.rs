//! The format of traces: what is written is read again, and what was cut, spoilt or is from the future is told.

use std::{ffi::OsString, num::NonZeroU32, os::unix::ffi::OsStringExt};

use proptest::{collection::vec, option, prelude::*, sample::select};
use ringwise_trace::{
    End, File, FileId, FileKind, Header, Interface, Kind, Lost, Name, OpenFlags, Operation,
    Outcome, Reader, Reason, Record, Source, Thread, ThreadId, TraceError, Writer, format,
};

/// An operation's numbers, from which an operation of a trace with some files and threads is made.
type Numbers = (
    (u32, u32, u32),
    Kind,
    (Option<u64>, Option<u64>),
    Outcome,
    (u64, u64, Option<u64>),
    (bool, Source, Interface),
);

#[derive(Clone, Debug)]
enum Step {
    File(Name, FileKind, (Option<u64>, Option<u64>), OpenFlags),
    Thread(u32, u32, String),
    Operation(Numbers),
    Lost(Lost),
}

fn names() -> impl Strategy<Value = Name> {
    prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(|bytes| Name::Path(OsString::from_vec(bytes))),
        any::<u64>().prop_map(Name::Hash),
    ]
}

fn flags() -> impl Strategy<Value = OpenFlags> {
    any::<(bool, bool, bool, bool)>().prop_map(|(is_direct, is_append, is_sync, is_data_sync)| {
        OpenFlags { is_direct, is_append, is_sync, is_data_sync }
    })
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let outcomes = prop_oneof![
        (0..=i64::MAX.cast_unsigned()).prop_map(|bytes| Outcome::Done { bytes }),
        any::<u16>().prop_map(|errno| Outcome::Failed { errno }),
        Just(Outcome::Unfinished),
    ];
    (
        any::<(u32, u32, u32)>(),
        select(&Kind::ALL[..]),
        (option::of(any::<u64>()), option::of(any::<u64>())),
        outcomes,
        any::<(u64, u64, Option<u64>)>(),
        (
            any::<bool>(),
            select(vec![Source::Unknown, Source::Cache, Source::Device]),
            select(vec![
                Interface::Syscall,
                Interface::IoUring,
                Interface::LinuxAio,
                Interface::BlockLayer,
            ]),
        ),
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use FileKind::{Block, Other, Pipe, Regular, Socket, Unknown};
    let kinds = select(vec![Regular, Block, Socket, Pipe, Other, Unknown]);
    let step = prop_oneof![
        1 => (names(), kinds, (option::of(any::<u64>()), option::of(any::<u64>())), flags())
            .prop_map(|(name, kind, numbers, flags)| Step::File(name, kind, numbers, flags)),
        1 => any::<(u32, u32, String)>().prop_map(|(tid, pid, name)| Step::Thread(tid, pid, name)),
        6 => numbers().prop_map(Step::Operation),
        1 => any::<(u64, u64)>().prop_map(|(at_ns, events)| Step::Lost(Lost { at_ns, events })),
    ];
    vec(step, 0..60)
}

/// The records of the steps, each with a number that is free or known.
fn records(steps: &[Step]) -> Vec<Record> {
    let (mut files, mut threads) = (0, 0);
    let known = |number: u32, count: u32| NonZeroU32::new(number % (count + 1));
    let record = |step: &Step| match step.clone() {
        Step::File(name, kind, (size_bytes, made_ns), flags) => {
            files += 1;
            let id = FileId(NonZeroU32::new(files).unwrap());
            Some(Record::File(File { id, name, kind, size_bytes, flags, made_ns }))
        }
        Step::Thread(tid, pid, name) => {
            threads += 1;
            let id = ThreadId(NonZeroU32::new(threads).unwrap());
            Some(Record::Thread(Thread { id, tid, pid, name }))
        }
        Step::Operation((
            (thread, file, target),
            kind,
            (offset, asked_bytes),
            outcome,
            time,
            ways,
        )) => {
            let target = if kind == Kind::Copy { known(target, files).map(FileId) } else { None };
            Some(Record::Operation(Operation {
                thread: ThreadId(known(thread, threads)?),
                file: known(file, files).map(FileId),
                target,
                kind,
                offset,
                asked_bytes,
                outcome,
                begin_ns: time.0,
                duration_ns: time.1,
                is_direct: ways.0,
                source: ways.1,
                interface: ways.2,
                computed_ns: time.2,
            }))
        }
        Step::Lost(lost) => Some(Record::Lost(lost)),
    };
    steps.iter().filter_map(record).collect()
}

fn header() -> Header {
    Header {
        recorder: "ringwise 0.1.0".to_owned(),
        method: "perf".to_owned(),
        command: vec!["dd".to_owned(), "if=/dev/zero".to_owned()],
        ..Header::default()
    }
}

fn end() -> End {
    let reason = Reason::WriteFailed;
    End { reason, detail: "No space left on device".to_owned(), elapsed_ns: 7, ..End::default() }
}

/// A trace with a frame for each `frame_records` records, and the byte after each frame.
fn written(records: &[Record], frame_records: usize) -> (Vec<u8>, Vec<usize>) {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let mut ends = vec![writer.get_ref().len()];
    for frame in records.chunks(frame_records) {
        frame.iter().for_each(|record| writer.record(record).unwrap());
        writer.flush().unwrap();
        ends.push(writer.get_ref().len());
    }
    let bytes = writer.finish(&end()).unwrap();
    ends.push(bytes.len());
    (bytes, ends)
}

/// The records before the first error, and the error.
fn read(bytes: &[u8]) -> (Vec<Record>, Option<TraceError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    assert_eq!(*reader.header(), header());
    let mut records = Vec::new();
    for record in reader.by_ref() {
        match record {
            Ok(record) => records.push(record),
            Err(error) => {
                assert!(reader.next().is_none(), "nothing comes after an error");
                return (records, Some(error));
            }
        }
    }
    (records, None)
}

/// A trace with a record of each kind.
fn sample() -> Vec<Record> {
    let path = Name::Path("/data/a".into());
    let number = |number| NonZeroU32::new(number).unwrap();
    let operation = Operation {
        thread: ThreadId(number(1)),
        file: Some(FileId(number(1))),
        target: None,
        kind: Kind::Read,
        offset: Some(4096),
        asked_bytes: Some(512),
        outcome: Outcome::Done { bytes: 512 },
        begin_ns: 1000,
        duration_ns: 250,
        is_direct: true,
        source: Source::Device,
        interface: Interface::IoUring,
        computed_ns: None,
    };
    vec![
        Record::File(File {
            id: FileId(number(1)),
            name: path,
            kind: FileKind::Regular,
            size_bytes: Some(1 << 30),
            flags: OpenFlags { is_direct: true, ..OpenFlags::default() },
            made_ns: None,
        }),
        Record::Thread(Thread { id: ThreadId(number(1)), tid: 7, pid: 7, name: "dd".to_owned() }),
        Record::Operation(operation),
        Record::Operation(Operation { begin_ns: 900, outcome: Outcome::Unfinished, ..operation }),
        Record::Lost(Lost { at_ns: 2000, events: 3 }),
        Record::Operation(Operation {
            kind: Kind::Copy,
            target: Some(FileId(number(1))),
            outcome: Outcome::Failed { errno: 28 },
            ..operation
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(steps in steps(), frame_records in 1..20_usize) {
        let mut records = records(&steps);
        let (bytes, _) = written(&records, frame_records);
        records.push(Record::End(Box::new(end())));
        let (found, error) = read(&bytes);
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(found, records);
    }
}

proptest! {
    #[test]
    fn any_bytes_with_a_right_checksum_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        let payload = [&[1][..], &bytes].concat();
        let len = (payload.len() as u32).to_le_bytes();
        let sum = crc32fast::hash(&[&len[..], &payload].concat()).to_le_bytes();
        let start = Writer::new(Vec::new(), &header()).unwrap().into_inner();
        let (found, error) = read(&[&start[..], &len, &sum, &payload].concat());
        prop_assert!(error.is_some(), "there is no end record");
        let mut writer = Writer::new(Vec::new(), &header()).unwrap();
        for record in &found {
            writer.record(record).unwrap();
        }
        let (mut again, error) = read(&writer.finish(&end()).unwrap());
        prop_assert!(error.is_none());
        again.pop();
        prop_assert_eq!(again, found);
    }
}

#[test]
fn a_trace_cut_anywhere_yields_its_whole_frames() {
    let mut records = sample();
    let (bytes, ends) = written(&records, 2);
    records.push(Record::End(Box::new(end())));
    for len in 0..bytes.len() {
        let (found, error) = read(&bytes[..len]);
        let whole = ends.iter().filter(|end| **end <= len).count();
        assert_eq!(found, records[..2 * whole.saturating_sub(1)], "{len} bytes");
        let at = whole.checked_sub(1).map(|last| ends[last] as u64);
        match (len, error.unwrap()) {
            (0, TraceError::NotATrace) => {}
            // In its first bytes, or in the header.
            (1.., TraceError::Cut { at_byte: 0 | 10 }) if at.is_none() => {}
            (_, TraceError::Cut { at_byte }) => assert_eq!(Some(at_byte), at, "{len} bytes"),
            (_, other) => panic!("{len} bytes: {other}"),
        }
    }
    assert_eq!(read(&bytes).0, records);
}

#[test]
fn a_spoilt_byte_is_found_and_ends_the_trace() {
    let records = sample();
    let (bytes, ends) = written(&records, 2);
    for at in 0..bytes.len() {
        let mut spoilt = bytes.clone();
        spoilt[at] ^= 0x10;
        let (found, error) = read(&spoilt);
        let error = error.unwrap_or_else(|| panic!("nobody noticed byte {at}"));
        let whole = ends.iter().filter(|end| **end <= at).count();
        assert_eq!(found, records[..2 * whole.saturating_sub(1)], "byte {at}: {error}");
        match error {
            TraceError::NotATrace => assert!(at < 8),
            TraceError::Newer { .. } => assert!((8..10).contains(&at)),
            // A length that became longer than the file.
            TraceError::Cut { .. } | TraceError::Corrupt { .. } => assert!(at >= 10),
            other => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn a_newer_version_is_refused_in_plain_words() {
    let (mut bytes, _) = written(&sample(), 2);
    bytes[8..10].copy_from_slice(&(format::VERSION + 1).to_le_bytes());
    let (_, error) = read(&bytes);
    assert_eq!(
        error.unwrap().to_string(),
        "the trace has version 4 of the format, and this program reads versions up to 3: use a newer ringwise"
    );
}

#[test]
fn earlier_versions_differ_in_nothing_but_what_they_do_not_say() {
    for version in 1..format::VERSION {
        let (mut bytes, _) = written(&sample(), 2);
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        let (found, error) = read(&bytes);
        assert!(error.is_none() && found[..sample().len()] == sample(), "{version}: {error:?}");
    }
}

#[test]
fn what_is_no_trace_is_told() {
    for bytes in [&b""[..], b"\n", b"RWTRACK\n\x01\0", b"{\"json\": 1}", &[0; 100]] {
        assert!(matches!(read(bytes).1, Some(TraceError::NotATrace)));
    }
}

#[test]
fn a_writer_refuses_what_no_reader_would_take() {
    let [Record::File(file), Record::Thread(thread), Record::Operation(operation), ..] =
        &sample()[..]
    else {
        panic!("the sample begins with a file, a thread and an operation")
    };
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    assert!(writer.operation(operation).is_err(), "neither file nor thread");
    writer.file(file).unwrap();
    assert!(writer.file(file).is_err(), "the same number twice");
    assert!(writer.operation(operation).is_err(), "no thread");
    writer.thread(thread).unwrap();
    writer.operation(operation).unwrap();
    let long = Name::Path(OsString::from_vec(vec![b'x'; 1 << 20]));
    let second = File { id: FileId(NonZeroU32::new(2).unwrap()), name: long, ..file.clone() };
    assert!(writer.file(&second).is_err(), "a name of 1 MiB");
    let bytes = writer.finish(&end()).unwrap();
    assert_eq!(read(&bytes).0.len(), 4);
}

#[test]
fn the_example_in_the_documentation_is_these_bytes() {
    let text = include_str!("../../../docs/reference/trace.md");
    let (_, example) = text.split_once("```hex\n").expect("an example");
    let (example, _) = example.split_once("```").unwrap();
    let bytes: Vec<u8> = example
        .lines()
        .flat_map(|line| line.split("  ").next().unwrap().split(' '))
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let start = writer.get_ref().len();
    sample()[..3].iter().for_each(|record| writer.record(record).unwrap());
    writer.flush().unwrap();
    assert_eq!(writer.get_ref()[start..], bytes, "{:02x?}", &writer.get_ref()[start..]);
}
