//! [`ringwise::fs`]: every function, on every kind of ring, with what can go wrong with it.

mod buffers;
mod cursor;
mod deadlines;
mod direct;
mod durability;
mod durable;
mod inline;
mod limits;
mod names;
#[path = "../shared/rings.rs"]
mod rings;

use futures::executor::block_on;
use rings::{places, read_write, real_places, simulated};
use ringwise::{
    AllocateMode, Backend, BufResult, ErrorKind, OpenOptions, Operation, fs,
    fs::File,
    sim::{Fault, Simulation, When},
};

fn only_read() -> OpenOptions {
    OpenOptions::new().read(true)
}

#[test]
fn every_function_does_what_it_says() {
    for place in places() {
        println!("{}", place.name);
        block_on(async {
            let file = place.create("file").await;
            assert_eq!(file.write_at(b"hello world".to_vec(), 0).await.0.unwrap(), 11);
            let BufResult(written, back) = file.write_all_at(b"W".to_vec(), 6).await;
            written.unwrap();
            assert_eq!(back, b"W");
            let BufResult(count, bytes) = file.read_at(vec![9; 5], 6).await;
            assert_eq!((count.unwrap(), &*bytes), (5, &b"World"[..]));
            let BufResult(read, bytes) = file.read_exact_at(vec![9; 4], 1).await;
            read.unwrap();
            assert_eq!(bytes, b"ello");
            assert_eq!(file.read_to_end().await.unwrap(), b"hello World");
            file.sync_data().await.unwrap();
            file.sync_all().await.unwrap();
            assert_eq!(file.metadata().await.unwrap().len(), 11);
            file.set_len(5).await.unwrap();
            assert_eq!(place.read("file"), b"hello");
            file.allocate(AllocateMode::Extend, 0, 100).await.unwrap();
            assert_eq!(file.metadata().await.unwrap().len(), 100);
            file.allocate(AllocateMode::PunchHole, 0, 3).await.unwrap();
            file.set_len(6).await.unwrap();
            assert_eq!(place.read("file"), b"\0\0\0lo\0");
            let operation = Operation::read_at(file.descriptor(), vec![9; 2], 3);
            let done = file.ring().submit(operation).await;
            assert_eq!(done.result().unwrap(), 2);
            assert_eq!(done.into_buffer().unwrap().as_slice(), b"lo");
            file.close().await.unwrap();
        });
    }
}

#[test]
fn whole_files_and_names() {
    for place in places() {
        println!("{}", place.name);
        let ring = &place.ring;
        block_on(async {
            let path = place.path("file");
            let BufResult(written, _) = fs::write(ring, &path, b"a longer text".to_vec()).await;
            written.unwrap();
            let BufResult(written, back) = fs::write(ring, &path, b"shorter".to_vec()).await;
            written.unwrap();
            assert_eq!(back, b"shorter");
            assert_eq!(fs::read(ring, &path).await.unwrap(), b"shorter");
            assert_eq!(fs::metadata(ring, &path).await.unwrap().len(), 7);
            fs::create_dir(ring, place.path("dir")).await.unwrap();
            fs::hard_link(ring, &path, place.path("dir/second")).await.unwrap();
            fs::rename(ring, &path, place.path("moved")).await.unwrap();
            assert_eq!(fs::read(ring, place.path("dir/second")).await.unwrap(), b"shorter");
            let error = fs::remove_dir(ring, place.path("dir")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "it is not empty: {error}");
            fs::remove_file(ring, place.path("dir/second")).await.unwrap();
            fs::remove_dir(ring, place.path("dir")).await.unwrap();
            let error = fs::read(ring, &path).await.unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*path)));
            let BufResult(result, back) =
                fs::write(ring, place.path("dir/x"), b"comes back".to_vec()).await;
            assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(back, b"comes back");
        });
    }
}

#[test]
fn a_directory_is_opened_to_be_synced() {
    for place in places() {
        block_on(async {
            place.create("file").await;
            let directory = place.open("", only_read()).await;
            directory.sync_all().await.unwrap();
            let BufResult(result, back) = directory.read_at(vec![7; 8], 0).await;
            assert_eq!(result.unwrap_err().errno(), libc::EISDIR, "{}", place.name);
            assert_eq!(back, [7; 8]);
        });
    }
}

#[test]
fn only_a_regular_file_is_opened_as_such() {
    for place in places() {
        block_on(async {
            place.create("file").await.write_all_at("some", 0).await.into_result().unwrap();
            let open = |name: &str| File::open_regular(&place.ring, place.path(name), only_read());
            let error = open("").await.unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL, "{}: {error}", place.name);
            assert!(error.to_string().contains("it is not a regular file"), "{error}");
            let file = open("file").await.unwrap();
            let flags = rustix::fs::fcntl_getfl(&file).unwrap();
            assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{}", place.name);
            assert_eq!(file.read_exact_at([0; 4], 0).await.into_buffer().unwrap(), *b"some");
        });
    }
}

/// A FIFO has no writer here, and an open would wait for one.
#[test]
fn a_fifo_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    for place in real_places() {
        mknodat(CWD, place.path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let opened = File::open_regular(&place.ring, place.path("fifo"), only_read());
        assert_eq!(block_on(opened).unwrap_err().errno(), libc::EINVAL, "{}", place.name);
    }
}

#[test]
fn a_read_at_the_end_is_short_and_past_it_empty() {
    for place in places() {
        place.write("file", &[5; 5000]);
        block_on(async {
            let file = place.open("file", only_read()).await;
            for (offset, count) in [(4990, 10), (4096, 904), (5000, 0), (5001, 0), (1 << 40, 0)] {
                let BufResult(result, bytes) = file.read_at(vec![9; 1000], offset).await;
                assert_eq!(result.unwrap(), count, "{} at {offset}", place.name);
                assert!(bytes[..count].iter().all(|byte| *byte == 5));
                assert!(bytes[count..].iter().all(|byte| *byte == 9), "nothing else is touched");
            }
            let BufResult(result, _) = file.read_at(Vec::new(), 0).await;
            assert_eq!(result.unwrap(), 0);
        });
    }
}

#[test]
fn a_file_that_ends_before_the_buffer_is_full() {
    for place in places() {
        place.write("file", &[5; 5000]);
        block_on(async {
            let file = place.open("file", only_read()).await;
            file.read_exact_at(vec![0; 1000], 4000).await.0.unwrap();
            for offset in [4001, 5000, 9000] {
                let BufResult(result, bytes) = file.read_exact_at(vec![0; 1000], offset).await;
                let error = result.unwrap_err();
                assert_eq!(error.errno(), libc::ENODATA, "{}", place.name);
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{}", place.name);
                assert!(error.to_string().contains("the file ends"), "{error}");
                assert_eq!(bytes.len(), 1000);
            }
            file.read_exact_at(Vec::new(), 9000).await.0.unwrap();
        });
    }
}

#[test]
fn files_of_every_length_are_read_to_their_end() {
    for place in places() {
        block_on(async {
            for len in [0, 1, 65_535, 65_536, 65_537, 300_000, 5_000_000] {
                let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                place.write("file", &bytes);
                let read = fs::read(&place.ring, place.path("file")).await.unwrap();
                assert!(read == bytes, "{} of {len}", place.name);
            }
        });
    }
}

/// Files without a length, some longer than what is read at a time.
#[test]
fn files_of_proc_are_read_to_their_end() {
    for place in real_places() {
        block_on(async {
            for path in ["/proc/self/cmdline", "/proc/self/status", "/proc/kallsyms"] {
                let Ok(expected) = std::fs::read(path) else { continue };
                let read = fs::read(&place.ring, path).await.unwrap();
                // Some numbers change between two looks.
                let is_steady = path != "/proc/self/status";
                assert!(!is_steady || read == expected, "{} of {path}", place.name);
                assert!(!read.is_empty());
            }
        });
    }
}

/// On ext4 a ring hands it to a kernel's worker, which a thread of the loop is faster than.
#[test]
fn a_large_write_takes_the_way_that_is_faster() {
    const EXT4: u64 = 0xef53;
    for place in real_places() {
        let is_ring = place.ring.setup().backend() == Backend::Uring;
        block_on(async {
            let bytes: Vec<u8> = (0..8 << 20_u32).map(|at| (at % 251) as u8).collect();
            let file = place.create("file").await;
            let beside = || place.ring.stats().local.fallback_operations;
            let before = beside();
            let BufResult(small, _) = file.write_all_at(vec![1; 64 << 10], 0).await;
            small.unwrap();
            assert!(!is_ring || beside() == before, "{}: a small one is the ring's", place.name);
            let BufResult(large, bytes) = file.write_all_at(bytes, 1).await;
            large.unwrap();
            assert!(place.read("file")[1..] == bytes, "{}", place.name);
            let kind = rustix::fs::fstatfs(&file).unwrap().f_type as u64;
            if is_ring && kind == EXT4 {
                assert_eq!(beside() - before, 1, "{}", place.name);
            } else if is_ring {
                assert_eq!(beside(), before, "{}", place.name);
            }
        });
    }
}

/// What a disk gives little by little is still all written and read.
#[test]
fn short_writes_and_reads_are_gone_on_with() {
    for seed in 0..20 {
        let simulation = Simulation::builder(seed)
            .fault(Fault::ShortWrite, When::rate(0.7))
            .fault(Fault::ShortRead, When::rate(0.7))
            .build();
        let place = simulated(&simulation);
        block_on(async {
            let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
            let file = place.create("file").await;
            let BufResult(written, back) = file.write_all_at(bytes.clone(), 3).await;
            written.unwrap();
            assert!(back == bytes, "the whole buffer comes back");
            let BufResult(read, again) = file.read_exact_at(vec![0; 10_000], 3).await;
            read.unwrap();
            assert!(again == bytes, "seed {seed}");
            assert_eq!(file.read_to_end().await.unwrap()[3..], bytes, "seed {seed}");
        });
    }
}

/// A part was written; the rest fails, and the caller has all of it.
#[test]
fn a_write_that_fails_half_way_gives_all_back() {
    let simulation = Simulation::builder(3)
        .fault(Fault::ShortWrite, When::nth(1))
        .fault(Fault::NoSpace, When::nth(2).of(ringwise::Opcode::Write))
        .build();
    let place = simulated(&simulation);
    block_on(async {
        let file = place.create("file").await;
        let BufResult(result, back) = file.write_all_at(vec![7; 1000], 0).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(back, vec![7; 1000]);
        let kept = place.read("file").len();
        assert!((1..1000).contains(&kept), "{kept}");
    });
}

#[test]
fn vectors_are_read_and_written_in_order() {
    for place in places() {
        block_on(async {
            let file = place.create("file").await;
            let parts = vec![b"one ".to_vec(), Vec::new(), b"two ".to_vec(), b"three".to_vec()];
            let BufResult(written, back) = file.write_vectored_at(parts.clone(), 2).await;
            assert_eq!(written.unwrap(), 13);
            assert_eq!(back, parts);
            let BufResult(read, parts) =
                file.read_vectored_at(vec![vec![9; 6], vec![9; 20]], 2).await;
            assert_eq!(read.unwrap(), 13, "{}", place.name);
            assert_eq!(parts[0], b"one tw");
            assert_eq!(parts[1], b"o three\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09");
            // More than the kernel takes.
            let many = vec![vec![1_u8]; 1025];
            let BufResult(result, back) = file.write_vectored_at(many.clone(), 0).await;
            assert_eq!(result.unwrap_err().errno(), libc::EINVAL, "{}", place.name);
            assert_eq!(back, many);
        });
    }
}

#[test]
fn a_file_of_the_standard_library_goes_in_and_out() {
    for place in real_places() {
        place.write("file", b"content");
        block_on(async {
            let opened = std::fs::File::open(place.path("file")).unwrap();
            let file = File::from_std(&place.ring, opened);
            let BufResult(read, bytes) = file.read_exact_at(vec![0; 7], 0).await;
            read.unwrap();
            assert_eq!(bytes, b"content");
            let clone = file.clone();
            let file = file.into_std().expect_err("a clone holds it");
            assert_eq!(clone.read_to_end().await.unwrap(), b"content");
            drop(clone);
            let mut back = file.into_std().unwrap();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut back, &mut text).unwrap();
            assert_eq!(text, "content", "its own position was not moved");
        });
    }
}

#[test]
fn a_file_that_is_shared_is_not_closed() {
    for place in places() {
        place.write("file", b"content");
        block_on(async {
            let file = place.open("file", only_read()).await;
            let clone = file.clone();
            let error = file.close().await.unwrap_err();
            assert_eq!(error.errno(), libc::EBUSY, "{}", place.name);
            assert!(error.to_string().contains("clone"), "{error}");
            assert_eq!(clone.read_to_end().await.unwrap(), b"content", "it is still open");
            clone.close().await.unwrap();
        });
    }
}

#[test]
fn appended_bytes_go_to_the_end() {
    for place in places() {
        place.write("log", b"first");
        block_on(async {
            let file = place.open("log", OpenOptions::new().append(true)).await;
            file.write_all_at(b" second".to_vec(), 0).await.0.unwrap();
            assert_eq!(place.read("log"), b"first second", "{}", place.name);
            let BufResult(result, _) = file.read_at(vec![0; 4], 0).await;
            assert_eq!(result.unwrap_err().kind(), ErrorKind::BadDescriptor);
        });
    }
}

/// One future in flight per task, dropped or not, on clones of one file.
#[test]
fn clones_of_a_file_work_side_by_side() {
    for place in places() {
        block_on(async {
            let file = place.open("file", read_write().create(true)).await;
            let writes = (0..64_u64).map(|at| {
                let file = file.clone();
                async move { file.write_all_at(vec![at as u8; 512], at * 512).await.0 }
            });
            for written in futures::future::join_all(writes).await {
                written.unwrap();
            }
            for (at, block) in place.read("file").chunks(512).enumerate() {
                assert!(block.iter().all(|byte| *byte == at as u8), "{}", place.name);
            }
        });
    }
}
