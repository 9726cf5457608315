//! Input that no file can serve, and limits that are reached: an error that names the cause, the
//! buffer back, nothing lost, nothing hung.

use std::{
    fs::File as StdFile,
    os::fd::{AsFd, AsRawFd, FromRawFd},
};

use futures::executor::block_on;
use ringwise::{
    BackendChoice, BufResult, Descriptor, ErrorKind, Local, OpenOptions, Operation, Registration,
    Ring, fs, fs::File, sim::Simulation,
};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, capabilities, set_capabilities},
};

use super::{
    only_read,
    rings::{in_child, places, read_write, real_places, skip},
};

const BEYOND: [u64; 3] = [1 << 63, (1 << 63) + 4096, u64::MAX];
/// The most that the kernel moves at a time (`MAX_RW_COUNT` in include/linux/fs.h).
const CALL_BYTES_MAX: usize = 0x7fff_f000;

#[test]
fn an_offset_beyond_the_kernels_is_named() {
    for place in places() {
        place.write("file", &[5; 5000]);
        block_on(async {
            let cached = place.open("file", read_write()).await;
            let direct =
                File::open(&place.ring, place.path("file"), read_write().direct(true)).await;
            for file in [Some(cached), direct.ok()].into_iter().flatten() {
                for offset in BEYOND {
                    for len in [1_usize, 512, 4096] {
                        let buffer = || vec![7_u8; len];
                        let BufResult(read, first) = file.read_at(buffer(), offset).await;
                        let BufResult(exact, second) = file.read_exact_at(buffer(), offset).await;
                        let BufResult(write, third) = file.write_at(buffer(), offset).await;
                        let BufResult(all, fourth) = file.write_all_at(buffer(), offset).await;
                        let errors = [read.map(drop), exact, write.map(drop), all];
                        for (number, result) in errors.into_iter().enumerate() {
                            let error = result.unwrap_err();
                            let what = format!("{} #{number}, {len}: {error}", place.name);
                            assert_eq!(error.errno(), libc::EINVAL, "{what}");
                            assert_eq!(error.offset(), Some(offset), "{what}");
                            assert_eq!(error.descriptor(), Some(file.as_fd().as_raw_fd()));
                            assert!(error.to_string().contains("2^63"), "{what}");
                        }
                        assert_eq!([first, second, third, fourth], [(); 4].map(|()| buffer()));
                    }
                }
            }
        });
    }
}

/// The last offsets that there are.
#[test]
fn reads_at_the_largest_offset_end() {
    for place in places() {
        place.write("file", &[5; 5000]);
        block_on(async {
            let cached = place.open("file", only_read()).await;
            let direct =
                File::open(&place.ring, place.path("file"), only_read().direct(true)).await;
            for file in [Some(cached), direct.ok()].into_iter().flatten() {
                for back in [0, 1, 100, 4096] {
                    let BufResult(result, buffer) =
                        file.read_at(vec![7; 4096], i64::MAX as u64 - back).await;
                    // Past the end, or beyond what an offset can be: either is right.
                    match result {
                        Ok(count) => assert_eq!(count, 0),
                        Err(error) => {
                            assert_eq!(error.errno(), libc::EINVAL, "{error}");
                            assert!(back >= 4096 || error.to_string().contains("2^63"), "{error}");
                        }
                    }
                    assert_eq!(buffer, vec![7; 4096]);
                    let BufResult(result, buffer) =
                        file.read_exact_at(vec![7; 4096], i64::MAX as u64 - back).await;
                    assert!(result.is_err());
                    assert_eq!(buffer.len(), 4096);
                }
            }
        });
    }
}

/// A write that would end beyond them moves nothing there, and says why.
#[test]
fn a_write_beyond_the_largest_offset_is_an_error() {
    for place in places() {
        place.write("file", &[5; 5000]);
        block_on(async {
            let file = place.open("file", read_write()).await;
            let offset = i64::MAX as u64 - 100;
            let BufResult(result, buffer) = file.write_at(vec![7; 4096], offset).await;
            let error = result.unwrap_err();
            let known = [libc::EINVAL, libc::EFBIG].contains(&error.errno());
            assert!(known, "{}: {error}", place.name);
            assert!(error.to_string().contains("2^63"), "{}: {error}", place.name);
            assert_eq!((error.offset(), buffer), (Some(offset), vec![7; 4096]));
            assert_eq!(place.read("file"), [5; 5000]);
        });
    }
}

/// The kernel moves less at a time.
#[test]
fn more_than_two_gigabytes_are_split() {
    const LEN: usize = CALL_BYTES_MAX + 4096;
    if available_memory() < Some(3 * LEN as u64 / 2) {
        return skip("this needs 3 GiB of free memory");
    }
    // A hole takes no memory there.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut buffer = vec![1; LEN];
    // Two on classic calls would take the time and tell the same.
    for place in real_places().into_iter().filter(|place| place.name != "classic in tokio") {
        let path = directory.path().join(place.name);
        buffer.fill(1);
        buffer = block_on(async {
            let options = read_write().create(true);
            let file = File::open(&place.ring, &path, options).await.unwrap();
            file.set_len(1 << 33).await.unwrap();
            file.write_all_at(b"end".to_vec(), 3 + LEN as u64 - 3).await.0.unwrap();
            let BufResult(read, bytes) = file.read_exact_at(buffer, 3).await;
            read.unwrap();
            let hole = vec![0; 1 << 20];
            let mut chunks = bytes[..LEN - 3].chunks(hole.len());
            assert!(chunks.all(|chunk| chunk == &hole[..chunk.len()]), "{}", place.name);
            assert_eq!(bytes[LEN - 3..], *b"end");
            let null = StdFile::options().write(true).open("/dev/null").unwrap();
            let BufResult(written, bytes) =
                File::from_std(&place.ring, null).write_all_at(bytes, 0).await;
            written.unwrap();
            bytes
        });
    }
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// A length that no memory holds ended the process.
#[test]
fn a_file_longer_than_memory_is_an_error() {
    in_child("limits::a_file_longer_than_memory_is_an_error", || {
        // A simulated disk takes no such length, as few file systems do.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for place in real_places() {
            let path = directory.path().join(place.name);
            block_on(async {
                let options = read_write().create(true);
                let file = File::open(&place.ring, &path, options).await.unwrap();
                for len in [1_u64 << 62, i64::MAX as u64] {
                    if file.set_len(len).await.is_err() {
                        skip("no file is that long here");
                        continue;
                    }
                    let error = file.read_to_end().await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{}: {error}", place.name);
                    let error = fs::read(&place.ring, &path).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{}: {error}", place.name);
                }
            });
        }
    });
}

#[test]
fn a_descriptor_that_somebody_closed() {
    in_child("limits::a_descriptor_that_somebody_closed", || {
        for place in real_places() {
            place.write("file", b"content");
            block_on(async {
                let file = place.open("file", read_write()).await;
                // What the ring and its threads open when they are first needed is open then.
                file.read_at(vec![0; 1], 0).await.0.unwrap();
                file.sync_all().await.unwrap();
                let number = file.descriptor().as_raw_fd();
                // SAFETY: what this process must not do, done to see what it leads to; the process
                // opens nothing until the file, whose number this was, is forgotten.
                drop(unsafe { StdFile::from_raw_fd(number) });
                let BufResult(read, buffer) = file.read_at(vec![7; 8], 0).await;
                assert_eq!(buffer, [7; 8]);
                let BufResult(written, buffer) = file.write_all_at(vec![8; 8], 0).await;
                assert_eq!(buffer, [8; 8]);
                let results = [read.map(drop), written, file.set_len(3).await];
                for result in results {
                    let error = result.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::BadDescriptor, "{}", place.name);
                }
                std::mem::forget(file);
            });
        }
    });
}

#[test]
fn a_file_of_another_machine_or_ring() {
    let simulation = Simulation::new(1);
    simulation.write("/file", "content").unwrap();
    let elsewhere = simulation.open("/file", read_write()).unwrap();
    for place in real_places() {
        block_on(async {
            // To this ring it is a socket without a peer.
            let read = place.ring.submit(Operation::read_at(&elsewhere, vec![7; 8], 0)).await;
            assert!(read.result().is_err(), "{}", place.name);
            assert_eq!(read.into_buffer().unwrap().as_slice(), [7; 8]);
            // An entry of another ring's table names nothing here.
            let other = Local::builder().driver_thread(true).build_ring().unwrap();
            let zero = Descriptor::from(StdFile::open("/dev/zero").unwrap());
            let entry = other.register_file(&zero).await.unwrap();
            let read = place.ring.submit(Operation::read_at(entry, vec![7; 8], 0)).await;
            let error = read.result().unwrap_err();
            assert_eq!(error.errno(), libc::EBADF);
            assert!(error.to_string().contains("not registered"), "{error}");
            assert_eq!(read.into_buffer().unwrap().as_slice(), [7; 8]);
        });
    }
}

/// Leaves room for this many more descriptors.
fn limit_descriptors(more: u64) {
    let next = StdFile::open("/dev/null").unwrap();
    let number = next.as_raw_fd() as u64;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(number + more), maximum }).unwrap();
}

#[test]
fn a_ring_at_its_limit_of_descriptors() {
    in_child("limits::a_ring_at_its_limit_of_descriptors", || {
        let places = real_places();
        let files: Vec<_> = places
            .iter()
            .map(|place| {
                place.write("file", b"content");
                block_on(place.open("file", only_read()))
            })
            .collect();
        limit_descriptors(0);
        for (place, file) in places.iter().zip(&files) {
            block_on(async {
                let opened = File::open(&place.ring, place.path("file"), only_read()).await;
                let error = opened.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TooManyDescriptors, "{}", place.name);
                assert!(error.to_string().contains("ulimit -n"), "{error}");
                assert_eq!(error.path(), Some(&*place.path("file")));
                // What is open goes on.
                assert_eq!(file.read_to_end().await.unwrap(), b"content", "{}", place.name);
            });
        }
        let refused = Ring::new().map(drop).unwrap_err().to_string();
        assert!(refused.contains("ulimit -n"), "{refused}");
        let demanded = Local::builder().backend(BackendChoice::Uring).driver_thread(true);
        let refused = demanded.build_ring().map(drop).unwrap_err().to_string();
        assert!(refused.contains("ulimit -n"), "{refused}");
    });
}

/// Memory that may not be locked serves all the same, and says what would let it be registered.
#[test]
fn a_pool_beyond_the_limit_of_locked_memory() {
    in_child("limits::a_pool_beyond_the_limit_of_locked_memory", || {
        // What may lock without limit is not counted (io_uring_create in io_uring/io_uring.c).
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, sets).unwrap();
        let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
        setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), maximum }).unwrap();
        let mut local = match Local::builder().backend(BackendChoice::Uring).build() {
            Ok(local) => local,
            Err(error) => return skip(&error.to_string()),
        };
        let pool = local.register_pool(64, 64 << 10).unwrap();
        let Registration::Unregistered(reason) = pool.registration() else {
            panic!("4 MiB are more than 64 KiB")
        };
        assert!(reason.contains("ulimit -l"), "{reason}");
        let zero = Descriptor::from(StdFile::open("/dev/zero").unwrap());
        let mut lease = pool.take().unwrap();
        lease.fill(1);
        local.push(Operation::read_at(&zero, lease, 0), 1).unwrap();
        local.submit_and_wait(1).unwrap();
        let read = local.next_completion().unwrap();
        // Less than all where another wants the processor (drivers/char/mem.c, read_iter_zero).
        let count = read.result().unwrap();
        let bytes = read.into_buffer().unwrap();
        assert!(count > 0 && bytes.as_slice()[..count].iter().all(|byte| *byte == 0));
        assert!(bytes.as_slice()[count..].iter().all(|byte| *byte == 1));
        // What is within the limit is registered.
        let small = local.register_pool(1, 4096).unwrap();
        assert!(small.is_registered(), "{:?}", small.registration());
    });
}

#[test]
fn options_that_contradict_each_other() {
    for place in places() {
        block_on(async {
            // Made anew, of what exists.
            place.write("file", b"content");
            let options = OpenOptions::new().write(true).create_new(true);
            let error = File::open(&place.ring, place.path("file"), options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}", place.name);
            let error = File::open(&place.ring, "/a\0b", only_read()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(place.read("file"), b"content");
        });
    }
}

/// The kernel cuts a write at the limit of a file's size and calls that success; only the write of the
/// rest fails. The sync behind it is not told as one of the whole.
#[test]
fn a_write_cut_by_a_limit_is_not_durable() {
    in_child("limits::a_write_cut_by_a_limit_is_not_durable", || {
        const LIMIT: usize = 4096;
        // SAFETY: to ignore a signal runs no code.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let maximum = getrlimit(Resource::Fsize).maximum;
        let places = real_places();
        let files: Vec<_> = places.iter().map(|place| block_on(place.create("file"))).collect();
        setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT as u64), maximum }).unwrap();
        let mut outcomes = Vec::new();
        for file in &files {
            let chain = file.chain().write_at(vec![1; 100], 0).write_at(vec![2; LIMIT], 100);
            let chain = chain.sync_data().read_at(vec![0; 8], 0);
            outcomes.push(block_on(chain.run()));
        }
        setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
        for (steps, place) in outcomes.into_iter().zip(&places) {
            let errnos: Vec<_> = steps
                .iter()
                .map(|step| step.result.as_ref().err().map(ringwise::Error::errno))
                .collect();
            let cancelled = Some(libc::ECANCELED);
            let expected = [None, Some(libc::EFBIG), cancelled, cancelled];
            assert_eq!(errnos, expected, "{}", place.name);
            let buffers: Vec<_> = steps.into_iter().filter_map(|step| step.buffer).collect();
            let selected = |at: usize| buffers[at].selected().len();
            assert_eq!([0, 1, 2].map(selected), [100, LIMIT, 8], "{}", place.name);
            assert_eq!(place.read("file").len(), LIMIT, "its first part was written");
        }
    });
}
