//! A spool that is closed, killed, torn, full and damaged.

use super::*;

fn open(directory: &Path, limit: u64) -> Result<Files, SetupError> {
    Files::open(&Spool::new(directory).limit(limit), "web")
}

fn push(files: &mut Files, lines: std::ops::RangeInclusive<u64>) {
    for line in lines {
        files.push(line.to_string().as_bytes()).unwrap();
    }
}

/// What is left to be sent, in pieces.
fn rest(files: &mut Files) -> Vec<u64> {
    let mut out = Vec::new();
    loop {
        let before = out.len();
        files.read(&mut out, 100).unwrap();
        if out.len() == before {
            break;
        }
    }
    let text = String::from_utf8(out).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Ends as a killed program does: nothing is written any more.
fn kill(files: Files) {
    let Files { _lock: lock, .. } = &files;
    let lock = lock.0.try_clone().unwrap();
    std::mem::forget(files);
    #[cfg(unix)]
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
    drop(lock);
}

#[test]
fn what_is_not_acknowledged_is_there_for_the_next_program() {
    for is_killed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut files = open(directory.path(), 1 << 20).unwrap();
        push(&mut files, 1..=10);
        assert_eq!(rest(&mut files), (1..=10).collect::<Vec<_>>());
        files.acknowledge(4).unwrap();
        let numbering = Numbering { offset: -7, directory: "ab01".to_owned() };
        files.keep_numbering(&numbering).unwrap();
        if is_killed {
            kill(files)
        } else {
            drop(files)
        }
        let mut files = open(directory.path(), 1 << 20).unwrap();
        assert_eq!(files.numbering(), Some(numbering));
        // The state has it from when the numbering was kept.
        assert_eq!(files.places().acknowledged, 4);
        push(&mut files, 11..=12);
        assert_eq!(rest(&mut files), (5..=12).collect::<Vec<_>>());
        files.acknowledge(12).unwrap();
        drop(files);
        let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["lock", "state"]);
        // The numbers go on.
        let mut files = open(directory.path(), 1 << 20).unwrap();
        push(&mut files, 13..=13);
        assert_eq!(files.places(), Places { last: 13, sent: 12, acknowledged: 12 });
        assert_eq!(rest(&mut files), [13]);
    }
}

#[test]
fn a_directory_has_one_client() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(directory.path(), 1 << 20).unwrap();
    let error = open(directory.path(), 1 << 20).unwrap_err();
    assert!(matches!(error, SetupError::SpoolInUse(_)), "{error}");
    drop(files);
    open(directory.path(), 1 << 20).unwrap();
}

#[cfg(unix)]
#[test]
fn a_child_that_was_just_forked_keeps_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(directory.path(), 1 << 20).unwrap();
    // What fork(2) leaves in the child until it calls execve(2).
    let descriptor_of_child = files._lock.0.try_clone().unwrap();
    drop(files);
    open(directory.path(), 1 << 20).unwrap();
    drop(descriptor_of_child);
}

#[test]
fn the_limit_holds_and_files_that_are_acknowledged_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let limit = LIMIT_MIN;
    let mut files = open(directory.path(), limit).unwrap();
    let line = [b'x'; 1000];
    let fill = |files: &mut Files| {
        let mut count = 0;
        while files.push(&line).is_ok() {
            count += 1;
        }
        let on_disk: u64 = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name().to_str().unwrap().ends_with(".spool"))
            .map(|entry| entry.metadata().unwrap().len())
            .sum();
        assert_eq!(on_disk, files.bytes());
        assert!(on_disk <= limit && on_disk + 2000 > limit, "{on_disk}");
        count
    };
    let all = fill(&mut files);
    assert!(files.segments.len() > 4);
    let mut out = Vec::new();
    files.read(&mut out, usize::MAX).unwrap();
    assert_eq!(out.len(), 1001 * all);
    files.acknowledge(all as u64 / 2).unwrap();
    let half = fill(&mut files);
    assert!(half > all / 3, "{half} of {all}");
    files.acknowledge(u64::MAX).unwrap();
    assert_eq!(files.places().waiting(), 0);
    // The last file was short, and stays.
    let again = fill(&mut files);
    assert!(again > all * 4 / 5, "{again} of {all}");
}

#[test]
fn a_torn_end_is_cut_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = open(directory.path(), 1 << 20).unwrap();
    push(&mut files, 1..=3);
    let path = files.path(1);
    kill(files);
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut files = open(directory.path(), 1 << 20).unwrap();
        let kept = cut.saturating_sub(MAGIC.len()) / (HEAD_BYTES + 1);
        let bytes = if kept == 0 && cut <= 8 { cut % 8 } else { (cut - 8) % (HEAD_BYTES + 1) };
        assert_eq!(files.cut_bytes(), bytes as u64, "cut at {cut}");
        assert_eq!(rest(&mut files).len(), kept);
        push(&mut files, 7..=7);
        assert_eq!(rest(&mut files), [7]);
        kill(files);
        let _ = fs::remove_file(directory.path().join("state"));
    }
    // A bit that flipped.
    fs::write(&path, &whole).unwrap();
    for byte in MAGIC.len()..whole.len() {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let mut files = open(directory.path(), 1 << 20).unwrap();
        let kept = (byte - MAGIC.len()) / (HEAD_BYTES + 1);
        assert_eq!(rest(&mut files).len(), kept, "byte {byte}");
        assert!(files.cut_bytes() > 0);
        kill(files);
    }
}

#[test]
fn damage_before_the_end_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = open(directory.path(), LIMIT_MIN).unwrap();
    while files.segments.len() < 3 {
        files.push(&[b'x'; 1000]).unwrap();
    }
    let (path, second) = (files.path(1), files.path(files.segments[1].first));
    kill(files);
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[1500] ^= 1;
    fs::write(&path, flipped).unwrap();
    let error = open(directory.path(), LIMIT_MIN).unwrap_err();
    assert!(matches!(error, SetupError::SpoolDamaged(..)), "{error}");
    assert!(error.to_string().contains("at byte 1016"), "{error}");
    fs::write(&path, whole).unwrap();
    fs::remove_file(second).unwrap();
    let error = open(directory.path(), LIMIT_MIN).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

/// A write that fails leaves nothing behind, and the next one goes on.
#[test]
fn a_failed_write_is_cut_before_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = open(directory.path(), 1 << 20).unwrap();
    push(&mut files, 1..=1);
    let path = files.path(1);
    // As a disk that was full leaves it, half of a record; and a whole one, whose sync failed. The reader reads ahead.
    let mut whole = 1_u32.to_le_bytes().to_vec();
    whole.extend_from_slice(&checksum(3, b"9").to_le_bytes());
    whole.push(b'9');
    for (number, torn) in [(2, &b"half"[..]), (3, &whole)] {
        files.writer.as_mut().unwrap().write_all(torn).unwrap();
        files.is_torn = true;
        files.rewind();
        assert_eq!(rest(&mut files), (1..number).collect::<Vec<_>>());
        push(&mut files, number..=number);
        assert_eq!(rest(&mut files), [number]);
    }
    // A file that cannot be written at all.
    files.writer = Some(File::open(&path).unwrap());
    let error = files.push(b"4").unwrap_err();
    assert!(matches!(error, PushError::Spool(_)), "{error:?}");
    assert_eq!(files.places().last, 3);
}
