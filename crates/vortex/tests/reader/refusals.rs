//! What is refused, beside what Vortex's own reader refuses.

use std::{io::ErrorKind, path::Path, time::Duration};

use ringwise_vortex::FileSource;
use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, mkfifoat};
use vortex_buffer::Alignment;
use vortex_error::{VortexError, VortexResult};
use vortex_io::{VortexReadAt, runtime::tokio::TokioRuntime, std_file::FileReadAt};

use crate::{BACKENDS, place, ring};

const LEN: u64 = 10_000;

/// The kind of error, or none.
#[track_caller]
fn kind<T>(result: VortexResult<T>) -> Option<ErrorKind> {
    match result {
        Ok(_) => None,
        Err(VortexError::Io(error, _)) => Some(error.kind()),
        Err(error) => panic!("an error of another type: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_the_file_does_not_have_fail_as_with_the_own_reader() {
    let (_directory, path) = place();
    std::fs::write(&path, vec![7; LEN as usize]).unwrap();
    let own = FileReadAt::open(&path, TokioRuntime::current()).unwrap();
    let cases = [
        (LEN - 1, 1, None),
        (LEN, 0, None),
        (2 * LEN, 0, None),
        (LEN, 1, Some(ErrorKind::UnexpectedEof)),
        (LEN - 1, 2, Some(ErrorKind::UnexpectedEof)),
        (2 * LEN, 5, Some(ErrorKind::UnexpectedEof)),
        (0, 3 << 20, Some(ErrorKind::UnexpectedEof)),
        (i64::MAX as u64 + 1, 1, Some(ErrorKind::InvalidInput)),
        (u64::MAX, 1, Some(ErrorKind::InvalidInput)),
        (u64::MAX, 3 << 20, Some(ErrorKind::InvalidInput)),
    ];
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        for (offset, length, expected) in cases {
            let results = [
                kind(own.read_at(offset, length, Alignment::new(64)).await),
                kind(source.read_at(offset, length, Alignment::new(64)).await),
            ];
            assert_eq!(results, [expected; 2], "{length} bytes at {offset}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_beyond_all_memory_is_an_error() {
    let (_directory, path) = place();
    std::fs::write(&path, vec![7; LEN as usize]).unwrap();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        for length in [isize::MAX as usize, usize::MAX] {
            let result = source.read_at(8, length, Alignment::new(4096)).await;
            assert_eq!(kind(result), Some(ErrorKind::UnexpectedEof));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_file_is_told_with_its_name_and_the_range() {
    let (_directory, path) = place();
    std::fs::write(&path, "four").unwrap();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        let error = source.read_at(2, 7, Alignment::none()).await.unwrap_err().to_string();
        let expected = "table.vortex: bytes 2..9: the file ends before them";
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_regular_file_are_refused_at_once() {
    let (directory, path) = place();
    mkfifoat(CWD, &path, Mode::RWXU).unwrap();
    for choice in BACKENDS {
        let ring = ring(choice);
        for path in [directory.path(), &path, Path::new("/dev/null")] {
            let open = tokio::time::timeout(Duration::from_secs(20), FileSource::open(&ring, path));
            let error = open.await.expect("a FIFO waits for a writer").unwrap_err();
            let text = error.to_string();
            assert!(text.contains("it is not a regular file"), "{text}");
            assert!(text.contains(path.to_str().unwrap()), "{text}");
            assert_eq!(kind(Err::<(), _>(error)), Some(ErrorKind::InvalidInput));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_open_file_is_one_whose_reads_may_wait() {
    let (_directory, path) = place();
    std::fs::write(&path, "four").unwrap();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        assert!(!fcntl_getfl(source.file()).unwrap().contains(OFlags::NONBLOCK));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_there_is_not_found() {
    let (_directory, path) = place();
    for choice in BACKENDS {
        let opened = FileSource::open(&ring(choice), &path).await;
        assert_eq!(kind(opened), Some(ErrorKind::NotFound));
    }
}
