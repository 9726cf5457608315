//! Real operations on this machine, and each outcome judged.

use super::*;

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

fn trial(punts: Fact<u64>, threads: u64) -> Trial {
    Trial { punts, workers: Fact::Known(Workers { threads, cpu_ns: 5_000 }) }
}

#[test]
fn each_count_has_its_status_and_source() {
    let kind = kind("workers.buffered_write");
    let judged = |tried| judge(kind, tried);
    let ok = judged(Ok(trial(Fact::Known(0), 9)));
    assert_eq!((ok.status, ok.remedy), (Status::Ok, None));
    let limited = judged(Ok(trial(Fact::Known(32), 0)));
    assert_eq!(limited.status, Status::Limited);
    assert!(limited.evidence.starts_with("32 buffered writes: 32 handed"), "{}", limited.evidence);
    assert!(limited.remedy.is_some());

    let no_tracefs = || Fact::Unknown("not mounted".to_owned());
    let by_threads = judged(Ok(trial(no_tracefs(), 2)));
    assert_eq!(by_threads.status, Status::Limited);
    assert!(by_threads.evidence.contains("2 worker threads appeared, 5 us"));
    assert!(by_threads.evidence.contains("no tracepoint: not mounted"));
    assert_eq!(judged(Ok(trial(no_tracefs(), 0))).status, Status::Ok);
    let neither = Trial { punts: no_tracefs(), workers: Fact::Unknown("no proc".into()) };
    assert_eq!(judged(Ok(neither)).status, Status::Unknown);

    assert_eq!(judged(Err(Failure::NotTried("no ring".into()))).status, Status::Unknown);
    assert_eq!(judged(Err(Failure::Failed("EIO".into()))).status, Status::Blocked);
}

/// Every kernel punts syncs and none punts cached reads, whatever the file system
/// under the temporary directory: both ways of counting must see that.
#[test]
fn both_ways_of_counting_agree() {
    if Local::builder().backend(BackendChoice::Uring).build().is_err() {
        eprintln!("skipped: no ring here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = ProbeFile::create(directory.path());
    let empty = tempfile::tempdir().unwrap();
    let without_tracefs = Sources { sys: empty.path().into(), ..Sources::default() };
    for sources in [Sources::default(), without_tracefs] {
        let judged = |name| judge(kind(name), try_again(&sources, kind(name), &file));
        let sync = judged("workers.sync");
        assert_eq!(sync.status, Status::Limited, "{sync:?}");
        // Opened behind the same file: the cache is warm from being written.
        let read = judged("workers.buffered_read");
        assert_eq!(read.status, Status::Ok, "{read:?}");
    }
}

#[test]
fn a_failing_operation_is_blocked() {
    if Local::builder().backend(BackendChoice::Uring).build().is_err() {
        eprintln!("skipped: no ring here");
        return;
    }
    // Write-only: reads fail with EBADF.
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("file")).unwrap();
    let file = ProbeFile { buffered: Ok(file.into()), direct: Err("no O_DIRECT".into()) };
    let found = examine(&Sources::default(), &file);
    let find = |name: &str| found.iter().find(|finding| finding.name == name).unwrap();
    assert_eq!(find("workers.buffered_read").status, Status::Blocked);
    assert!(find("workers.buffered_read").evidence.contains("read"));
    assert_eq!(find("workers.direct_read").status, Status::Blocked);
    assert!(find("workers.direct_read").evidence.contains("no O_DIRECT"));
    assert_ne!(find("workers.buffered_write").status, Status::Blocked);
}
