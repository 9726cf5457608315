//! Traces of other programs: the kept outputs of strace, fio and the kernel's block layer say what the programs did, and so
//! do new ones.

use std::{
    fs,
    io::Cursor,
    path::Path,
    process::{Command, Stdio},
};

use ringwise_trace::{
    AnyReader, File, FileId, FileKind, Header, Kind, Name, Operation, Outcome, Record, Source,
    Summary, TraceError, Writer,
};

/// The records of a text, and its error.
fn read(text: &[u8]) -> (Vec<Record>, Option<TraceError>) {
    let mut reader = match AnyReader::new(Cursor::new(text.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut records = Vec::new();
    let error = reader.find_map(|record| record.map(|record| records.push(record)).err());
    (records, error)
}

#[track_caller]
fn whole(text: &[u8]) -> Vec<Record> {
    let (records, error) = read(text);
    assert!(error.is_none(), "{}", error.unwrap());
    assert!(matches!(records.last(), Some(Record::End(_))));
    records
}

fn files(records: &[Record]) -> Vec<&File> {
    records
        .iter()
        .filter_map(|record| if let Record::File(file) = record { Some(file) } else { None })
        .collect()
}

fn file(records: &[Record], id: Option<FileId>) -> &File {
    files(records).into_iter().find(|file| Some(file.id) == id).unwrap()
}

/// What matters of each operation: kind, path, offset, asked, result.
fn told(records: &[Record]) -> Vec<String> {
    let tell = |operation: &Operation| {
        let name = |id| match &file(records, id).name {
            Name::Path(path) => path.to_string_lossy().into_owned(),
            Name::Hash(_) => panic!("no hash was asked for"),
        };
        let number =
            |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
        let result = match operation.outcome {
            Outcome::Done { bytes } => bytes.to_string(),
            Outcome::Failed { errno } => format!("error {errno}"),
            Outcome::Unfinished => "unfinished".to_owned(),
        };
        let target =
            operation.target.map_or(String::new(), |target| format!(" to {}", name(Some(target))));
        format!(
            "{} {}{target} @{} {} = {result}",
            operation.kind.name(),
            operation.file.map_or("?".to_owned(), |id| name(Some(id))),
            number(operation.offset),
            number(operation.asked_bytes)
        )
    };
    let operation =
        |record: &_| if let Record::Operation(one) = record { Some(tell(one)) } else { None };
    records.iter().filter_map(operation).collect()
}

const STRACE_Y: &[u8] = include_bytes!("samples/strace-y.txt");
const STRACE_YY: &[u8] = include_bytes!("samples/strace-yy.txt");
const FIO_2: &[u8] = include_bytes!("samples/fio-2.log");
const FIO_3: &[u8] = include_bytes!("samples/fio-3.log");
const BLOCKS: &[u8] = include_bytes!("samples/blktrace.bin");

#[test]
fn strace_tells_offsets_lengths_and_results() {
    let told_of = told(&whole(STRACE_Y));
    let files: Vec<&str> =
        told_of.iter().filter(|told| !told.contains(":[")).map(|told| &**told).collect();
    let a = "/srv/data/a,b>c.dat";
    assert_eq!(
        files,
        [
            format!("write {a} @0 10000 = 10000"),
            format!("read {a} @100 50 = 50"),
            format!("read {a} @150 50 = 50"),
            format!("read {a} @5 20 = 20"),
            format!("sync {a} @? 0 = 0"),
            format!("data sync {a} @? 0 = 0"),
            "write /srv/data/app @? 1 = 1".to_owned(),
            // By a duplicate, which shares the position.
            format!("read {a} @200 7 = 7"),
            format!("read {a} @207 9 = 9"),
            format!("read {a} @1000 30 = 30"),
            format!("copy {a} to /srv/data/b @0 100 = 100"),
            format!("copy {a} to /srv/data/b @10 20 = 20"),
            "read /srv/data/app @? 5 = error 9".to_owned(),
            "read /srv/data/direct @4096 4096 = 4096".to_owned(),
            // By a child, which shares the position too.
            format!("read {a} @216 11 = 11"),
            format!("read {a} @227 13 = 13"),
        ]
    );
    let others: Vec<&str> = told_of
        .iter()
        .filter(|told| told.contains(":["))
        .map(|told| told.split(' ').next().unwrap())
        .collect();
    assert_eq!(others, ["write", "read", "send", "receive", "send", "receive"]);
}

#[test]
fn strace_tells_kinds_flags_threads_and_times() {
    let records = whole(STRACE_YY);
    let named = |name: &str| {
        files(&records)
            .into_iter()
            .find(|file| matches!(&file.name, Name::Path(path) if path.to_string_lossy().starts_with(name)))
            .unwrap_or_else(|| panic!("no {name}"))
    };
    assert_eq!(named("/srv/data/a").kind, FileKind::Regular);
    assert_eq!(named("pipe:[").kind, FileKind::Pipe);
    assert_eq!(named("UNIX-STREAM:[").kind, FileKind::Socket);
    assert_eq!(named("TCP:[127.0.0.1:").kind, FileKind::Socket);
    let app = named("/srv/data/app").flags;
    assert!(app.is_append && app.is_data_sync && !app.is_sync && !app.is_direct);
    assert!(named("/srv/data/direct").flags.is_direct);
    let operations: Vec<&Operation> = records
        .iter()
        .filter_map(|record| if let Record::Operation(one) = record { Some(one) } else { None })
        .collect();
    let direct: Vec<_> = operations.iter().filter(|operation| operation.is_direct).collect();
    assert_eq!((direct.len(), direct[0].source), (1, Source::Device));
    // A thread waits 50 ms in a pipe, while another one writes to it.
    let waited = operations.iter().max_by_key(|operation| operation.duration_ns).unwrap();
    assert_eq!((waited.kind, waited.duration_ns / 1_000_000), (Kind::Read, 50));
    let threads: Vec<_> = records
        .iter()
        .filter_map(|record| if let Record::Thread(one) = record { Some(one) } else { None })
        .collect();
    let [first, thread, child] = threads[..] else { panic!("{threads:?}") };
    assert_eq!((first.pid, thread.pid), (first.tid, first.tid));
    assert_eq!(child.pid, child.tid);
    assert!(
        operations
            .windows(2)
            .all(|pair| pair[0].begin_ns <= pair[1].begin_ns + pair[1].duration_ns)
    );
}

#[test]
fn fio_logs_tell_operations_in_both_versions() {
    let records = whole(FIO_2);
    let expected = [
        "write /srv/data/a @0 4096 = 4096",
        "sync /srv/data/a @? 0 = 0",
        "read /srv/data/b @8192 512 = 512",
        "data sync /srv/data/b @? 0 = 0",
    ];
    assert_eq!(told(&records), expected);
    let begins: Vec<u64> = records
        .iter()
        .filter_map(
            |record| if let Record::Operation(one) = record { Some(one.begin_ns) } else { None },
        )
        .collect();
    assert_eq!(begins, [0, 250_000, 250_000, 1_250_000]);
    let Some(Record::End(end)) = records.last() else { panic!("no end") };
    assert_eq!(end.unseen_requests, 1, "the trim");

    let records = whole(FIO_3);
    let mut summary = Summary::default();
    records.iter().for_each(|record| summary.add(record));
    assert_eq!((summary.of(Kind::Read).operations, summary.of(Kind::Write).operations), (10, 6));
    assert_eq!(summary.of(Kind::Read).bytes, 10 * 4096);
    assert!(told(&records).contains(&"read /srv/data/ff @45056 4096 = 4096".to_owned()));
}

/// Linux 6.18 wrote it while fio read and wrote a loop device (`--bs=4k,8k --direct=1 --iodepth=4 --fsync=8`), and fio
/// counted the same.
#[test]
fn what_the_block_layer_saw_is_what_fio_did() {
    let records = whole(BLOCKS);
    let mut summary = Summary::default();
    records.iter().for_each(|record| summary.add(record));
    let of = |kind| (summary.of(kind).operations, summary.of(kind).bytes);
    assert_eq!(
        [of(Kind::Read), of(Kind::Write), of(Kind::Sync)],
        [(19, 77_824), (11, 90_112), (2, 0)]
    );
    let mut operations = told(&records);
    operations.retain(|told| told.starts_with("read") && !told.ends_with(" 4096 = 4096"));
    assert!(operations.is_empty(), "{operations:?}");
    assert!(files(&records).iter().all(|file| file.kind == FileKind::Block));
}

/// An event of blktrace: its time, action, first sector, bytes and error.
fn block_event(time_ns: u64, action: u32, place: (u64, u32), error: u16) -> Vec<u8> {
    let mut bytes = b"\x07tae\0\0\0\0".to_vec();
    bytes.extend(time_ns.to_le_bytes());
    bytes.extend(place.0.to_le_bytes());
    [place.1, action, 41, 7 << 20 | 3, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(error.to_le_bytes());
    // What a driver says, which nobody needs.
    bytes.extend(2_u16.to_le_bytes());
    bytes.extend(b"xy");
    bytes
}

#[test]
fn a_block_trace_tells_requests_from_their_queueing_to_their_completion() {
    let (reads, write, flush, discard) = (1 << 16, 1 << 17, 1 << 18, 1 << 29);
    let (queue, complete, process) = (1, 8, 1 << 26);
    let events = [
        block_event(4000, process, (0, 0), 0),
        block_event(5000, queue | reads, (8, 4096), 0),
        block_event(5100, queue | write, (100, 1024), 0),
        block_event(5200, queue | write, (102, 512), 0),
        block_event(5300, queue | write | flush, (0, 0), 0),
        block_event(5400, queue | write | discard, (900, 512), 0),
        // Two writes were merged.
        block_event(6000, complete | write, (100, 1536), 0),
        block_event(6500, complete | write | flush, (0, 0), 0),
        block_event(7000, complete | reads, (8, 4096), 5),
        block_event(7100, complete | reads, (70_000, 512), 0),
        block_event(8000, queue | reads, (16, 512), 0),
    ];
    let bytes = events.concat();
    let records = whole(&bytes);
    let expected = [
        "write /dev/block/7:3 @51200 1024 = 1024",
        "write /dev/block/7:3 @52224 512 = 512",
        "sync /dev/block/7:3 @? 0 = 0",
        "read /dev/block/7:3 @4096 4096 = error 5",
        "read /dev/block/7:3 @8192 512 = unfinished",
    ];
    assert_eq!(told(&records), expected);
    let times = records.iter().filter_map(|record| match record {
        Record::Operation(one) => Some((one.begin_ns, one.duration_ns)),
        _ => None,
    });
    let times: Vec<_> = times.collect();
    assert_eq!(times, [(100, 900), (200, 800), (300, 1200), (0, 2000), (3000, 0)]);
    let Some(Record::End(end)) = records.last() else { panic!("no end") };
    assert_eq!((end.unseen_requests, end.elapsed_ns), (1, 3000), "the discard");
    // Cut anywhere: an end of an event is an end, and everything before is whole.
    for at in 4..bytes.len() {
        let (found, error) = read(&bytes[..at]);
        match error {
            None => assert_eq!(at % 50, 0),
            Some(TraceError::Cut { at_byte }) => assert_eq!(at_byte, at as u64 / 50 * 50),
            Some(other) => panic!("byte {at}: {other}"),
        }
        assert!(found.len() <= records.len() + 4);
    }
    let mut damaged = bytes.clone();
    damaged[50] = 8;
    let error = read(&damaged).1.unwrap().to_string();
    assert!(error.contains("corrupt at byte 50: expected an event of blktrace"), "{error}");
}

#[test]
fn a_text_cut_anywhere_yields_records_of_whole_lines() {
    for text in [STRACE_Y, STRACE_YY, FIO_2, FIO_3] {
        let all = told(&whole(text));
        // Every place in one format, and some in the longer ones.
        for len in (0..text.len()).step_by(1 + text.len() / 700) {
            let (records, error) = read(&text[..len]);
            let mut told = told(&records);
            // The text ends after a whole line, and an operation was not over.
            told.pop_if(|last| last.ends_with("unfinished"));
            assert_eq!(told[..], all[..told.len()], "{len} bytes");
            match error {
                None => assert_eq!(text[len - 1], b'\n'),
                Some(TraceError::Cut { at_byte }) => {
                    let line = text[..len].iter().rposition(|byte| *byte == b'\n');
                    assert_eq!(at_byte, line.map_or(0, |line| line as u64 + 1), "{len} bytes");
                }
                Some(TraceError::NotATrace) => assert!(len < 30 || text[0] != b'f'),
                Some(other) => panic!("{len} bytes: {other}"),
            }
        }
    }
}

#[test]
fn a_descriptor_that_changed_unseen_has_no_position() {
    let text = b"7 1.1 openat(AT_FDCWD</>, \"a\", O_RDWR) = 3</a> <0.1>\n\
        7 1.2 read(3</a>, \"\", 5) = 5 <0.1>\n\
        7 1.3 read(3</b>, \"\", 5) = 5 <0.1>\n\
        7 1.4 read(3</b>, \"\", 5) = 5 <0.1>\n";
    assert_eq!(told(&whole(text)), ["read /a @0 5 = 5", "read /b @? 5 = 5", "read /b @? 5 = 5"]);
}

#[test]
fn mistakes_name_their_line_and_the_remedy() {
    let told = |text: &str| read(text.as_bytes()).1.expect(text).to_string();
    let strace = "7 1.5 close(3) = 0 <0.000008>\n";
    assert_eq!(
        told(&format!("{strace}7 13:02:11 close(3) = 0\n")),
        "line 2: expected a thread, a time in seconds since 1970 and a call: run strace with -f -ttt -T -y"
    );
    assert_eq!(
        told(&format!("{strace}7 1.5 read(3</a>, \"\", 5) = 0\n")),
        "line 2: the call has no duration: run strace with -T"
    );
    assert_eq!(
        told(&format!("{strace}7 1.6 read(3</a>, \"\n")),
        "line 2: the call is not complete"
    );
    let fio = "fio version 2 iolog\n/a add\n";
    assert_eq!(told(&format!("{fio}/b read 0 1\n")), "line 3: the file '/b' was not added before");
    assert_eq!(told(&format!("{fio}/a read x 1\n")), "line 3: expected an offset, found 'x'");
    assert!(
        told(&format!("{fio}/a fly\n")).starts_with("line 3: unknown action 'fly': expected add")
    );
    for text in ["", "hello\n", "fio version 1 iolog\n", "fio version 4 iolog\n", "{}\n"] {
        assert!(matches!(read(text.as_bytes()).1, Some(TraceError::NotATrace)), "{text}");
    }
}

#[test]
fn a_trace_of_ringwise_is_told_apart_from_text() {
    let bytes = Writer::new(Vec::new(), &Header::default()).unwrap().finish(&Default::default());
    assert_eq!(whole(&bytes.unwrap()).len(), 1);
    assert!(matches!(read(b"RWTR").1, Some(TraceError::Cut { .. })));
}

/// Whether a program is installed. In CI it has to be.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: no {program} here");
        println!("skipped: no {program} here");
    }
    found
}

#[track_caller]
fn run(directory: &Path, line: &str) {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn strace_of_a_known_program_tells_what_it_did() {
    if !is_installed("strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    run(
        directory.path(),
        "strace -f -ttt -T -y -o trace dd if=/dev/zero of=copy bs=4k count=10 conv=fsync status=none",
    );
    let records = whole(&fs::read(directory.path().join("trace")).unwrap());
    let copy = directory.path().join("copy").into_os_string();
    let told: Vec<String> =
        told(&records).into_iter().filter(|told| told.contains(&*copy.to_string_lossy())).collect();
    let copy = copy.to_string_lossy();
    let mut expected: Vec<String> =
        (0..10).map(|block| format!("write {copy} @{} 4096 = 4096", block * 4096)).collect();
    expected.push(format!("sync {copy} @? 0 = 0"));
    assert_eq!(told, expected);
}

#[test]
fn fio_writes_logs_that_are_read() {
    if !is_installed("fio") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    run(
        directory.path(),
        "fio --name=a --filename=f --size=64k --bs=4k --rw=randrw --write_iolog=log --output=o",
    );
    let records = whole(&fs::read(directory.path().join("log")).unwrap());
    let mut summary = Summary::default();
    records.iter().for_each(|record| summary.add(record));
    assert_eq!(summary.operations(), 16);
    assert_eq!(summary.of(Kind::Read).bytes + summary.of(Kind::Write).bytes, 16 * 4096);
    assert_eq!(summary.files, 1);
}
