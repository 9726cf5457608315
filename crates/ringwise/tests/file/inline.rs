//! Reads and writes that the caller's thread makes by itself, and those that it must leave to the
//! ring, or to a thread.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use futures::executor::block_on;
use ringwise::{
    Backend, BufResult, Descriptor, OpenOptions, Ring, drop_page_cache, fs::File, page_cache,
};

use super::rings::{read_write, real_places, skip};

/// How many writes the caller's thread made, and how many orders the ring was given.
fn counts(ring: &Ring) -> (u64, u64) {
    let stats = ring.stats();
    (stats.inline_hits, stats.submitted)
}

/// What writing so many bytes added to the counts. The bytes are looked at.
async fn count_write(ring: &Ring, path: &Path, options: OpenOptions, len: usize) -> (u64, u64) {
    let file = File::open(ring, path, options.create(true)).await.unwrap();
    // What is there is replaced: a file system may have to wait for new blocks, and for what it writes
    // back. XFS writes back a file that was cut when it is closed (xfs_file_release, Linux 6.18).
    let mut there = std::fs::File::create(path).unwrap();
    there.write_all(&vec![1; len + 10]).unwrap();
    there.sync_all().unwrap();
    drop(there);
    let before = counts(ring);
    let BufResult(written, back) = file.write_at(vec![7; len], 3).await;
    let after = counts(ring);
    assert_eq!((written.unwrap(), back.len()), (len, len));
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes[..3].iter().chain(&bytes[len + 3..]).all(|byte| *byte == 1));
    assert!(bytes[3..len + 3].iter().all(|byte| *byte == 7));
    (after.0 - before.0, after.1 - before.1)
}

const BY_CALLER: (u64, u64) = (1, 0);
const BY_RING: (u64, u64) = (0, 1);

#[test]
fn small_writes_of_memory_files_are_the_callers() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return skip("no /dev/shm");
    };
    for place in real_places() {
        println!("{}", place.name);
        let path = directory.path().join(place.name);
        let count = |options, len| block_on(count_write(&place.ring, &path, options, len));
        assert_eq!(count(read_write(), 5), BY_CALLER);
        assert_eq!(count(read_write(), 1 << 20), BY_CALLER);
        assert_eq!(count(read_write(), (1 << 20) + 1), BY_RING, "long ones are not taken apart");
        // Such a write ends when it is durable; who knows how long that takes.
        assert_eq!(count(read_write().custom_flags(libc::O_DSYNC), 5), BY_RING);
        assert_eq!(count(read_write().custom_flags(libc::O_SYNC), 5), BY_RING);
    }
}

#[test]
fn metadata_of_local_files_is_read_by_the_caller() {
    for place in real_places() {
        println!("{}", place.name);
        let ring = &place.ring;
        let count = |path: &Path| {
            let file = block_on(File::open(ring, path, OpenOptions::new().read(true))).unwrap();
            let before = counts(ring);
            let about = block_on(file.metadata()).unwrap();
            let after = counts(ring);
            let expected = std::fs::metadata(path).unwrap();
            assert_eq!((about.len(), about.is_file()), (expected.len(), expected.is_file()));
            assert_eq!(Some(about.modified()), expected.modified().ok());
            (after.0 - before.0, after.1 - before.1)
        };
        let file = place.path("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(count(&file), BY_CALLER);
        // Nobody knows whom this file system asks.
        assert_eq!(count(Path::new("/proc/version")), BY_RING);
    }
}

/// How many reads of a file the caller's thread made, how many the ring was given, and how many of
/// those a thread made that stands beside it. The bytes are looked at.
async fn count_read(file: &File, content: &[u8], len: usize) -> (u64, u64, u64) {
    let stats = || {
        let stats = file.ring().stats();
        let is_beside = file.ring().setup().backend() == Backend::Uring;
        let beside = if is_beside { stats.local.fallback_operations } else { 0 };
        [stats.inline_hits, stats.submitted, beside]
    };
    let before = stats();
    let BufResult(read, bytes) = file.read_at(vec![0; len], 3).await;
    let after = stats();
    assert_eq!(read.unwrap(), len);
    assert!(bytes == content[3..len + 3]);
    (after[0] - before[0], after[1] - before[1], after[2] - before[2])
}

/// False, after a moment.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(1));
    false
}

#[test]
fn reads_that_are_long_to_copy_or_not_in_the_cache_are_a_threads() {
    let content: Vec<u8> = (0..5 << 20_u32).map(|at| (at % 251) as u8).collect();
    for place in real_places() {
        println!("{}", place.name);
        let by_thread = (0, 1, u64::from(place.ring.setup().backend() == Backend::Uring));
        place.write("file", &content);
        block_on(async {
            let file = place.open("file", read_write()).await;
            assert_eq!(count_read(&file, &content, 1 << 20).await, (1, 0, 0));
            assert_eq!(count_read(&file, &content, 4 << 20).await, (1, 0, 0));
            assert_eq!(count_read(&file, &content, (4 << 20) + 1).await, by_thread);
            // What is being read ahead stays until it is there.
            let is_forgotten = || {
                drop_page_cache(file.descriptor(), 0, 0).unwrap();
                page_cache(file.descriptor(), 0, 0).is_ok_and(|state| state.cached_pages == 0)
            };
            let forget = || (0..1000).any(|_| is_forgotten() || pause());
            if !forget() {
                return skip("the file stays in memory");
            }
            assert_eq!(count_read(&file, &content, (1 << 20) + 1).await, by_thread);
            // The look at the cache starts the read from the device: what is there before the look
            // ends was no wait (mm/filemap.c, filemap_get_pages, Linux 6.18).
            let mut is_submitted = false;
            for _ in 0..100 {
                assert!(forget(), "it was forgotten before");
                match count_read(&file, &content, 100).await {
                    (0, 1, 0) => is_submitted = true,
                    other => assert_eq!(other, (1, 0, 0), "a short one"),
                }
            }
            assert!(is_submitted, "a short one waits for the device");
        });
    }
}

#[test]
fn cached_reads_into_several_buffers_are_the_callers() {
    let content: Vec<u8> = (0..3000_u32).map(|at| (at % 251) as u8).collect();
    for place in real_places() {
        println!("{}", place.name);
        place.write("file", &content);
        block_on(async {
            let file = place.open("file", read_write()).await;
            let before = counts(&place.ring);
            let buffers = vec![vec![0; 1000], vec![0; 500], vec![0; 1]];
            let BufResult(read, buffers) = file.read_vectored_at(buffers, 7).await;
            assert_eq!((read.unwrap(), counts(&place.ring)), (1501, (before.0 + 1, before.1)));
            assert!(buffers.concat() == content[7..1508]);
            // What ends before the buffers do is the ring's to tell.
            let buffers = vec![vec![0; 1000], vec![9; 1000]];
            let BufResult(read, buffers) = file.read_vectored_at(buffers, 1500).await;
            assert_eq!((read.unwrap(), counts(&place.ring)), (1500, (before.0 + 1, before.1 + 1)));
            assert!(buffers.concat()[..1500] == content[1500..]);
            assert!(buffers[1][500..] == [9; 500]);
            let long = vec![vec![0; 1 << 20], vec![0; 1]];
            let BufResult(read, _) = file.read_vectored_at(long, 0).await;
            assert_eq!((read.unwrap(), counts(&place.ring)), (3000, (before.0 + 1, before.1 + 2)));
        });
    }
}

/// XFS takes writes that must not wait, ext4 knows none (fs/ext4/file.c, Linux 6.18).
#[test]
fn writes_that_need_no_waiting_are_the_callers_where_the_file_system_knows_them() {
    let Some(disk) = Disk::mount("mkfs.xfs", &["-q", "-f"], 320) else { return };
    let Some(other) = Disk::mount("mkfs.ext4", &["-q", "-F"], 16) else { return };
    for place in real_places() {
        println!("{}", place.name);
        let count = |disk: &Disk, options, len| {
            block_on(count_write(&place.ring, &disk.path().join("file"), options, len))
        };
        // XFS refuses one that would wait for what is being written back, of another file too.
        let is_by_caller = (0..20).any(|_| count(&disk, read_write(), 4096) == BY_CALLER);
        assert!(is_by_caller, "the ring made all of them");
        assert_eq!(count(&disk, read_write().custom_flags(libc::O_DSYNC), 4096), BY_RING);
        assert_eq!(count(&other, read_write(), 4096), BY_RING);
    }
}

/// The page cache ends where the file does not.
#[test]
fn a_read_that_is_cached_in_part_is_whole() {
    const LEN: usize = 64 << 10;
    for place in real_places() {
        let path = place.path("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let opened = std::fs::File::open(&path).unwrap();
        opened.sync_all().unwrap();
        // No reading ahead, so that one page comes alone.
        rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::Random).unwrap();
        let descriptor = Descriptor::from(opened);
        drop_page_cache(&descriptor, 0, 0).unwrap();
        let file = File::from_std(&place.ring, descriptor.into_file().unwrap());
        block_on(file.read_exact_at(vec![0; 4096], 0)).0.unwrap();
        match page_cache(file.descriptor(), 0, LEN as u64) {
            Ok(state) if state.cached_pages < 16 => assert!(state.cached_pages > 0),
            other => return skip(&format!("the file is not partly cached: {other:?}")),
        }
        let BufResult(count, bytes) = block_on(file.read_at(vec![0; LEN], 0));
        assert_eq!(count.unwrap(), LEN, "{}", place.name);
        assert!(bytes.iter().all(|byte| *byte == 7), "{}", place.name);
    }
}

#[test]
fn a_memory_file_system_that_is_full_says_so() {
    let Some(disk) = Disk::memory(64 << 10) else { return };
    for place in real_places() {
        let path = disk.path().join("file");
        block_on(async {
            let file = File::open(&place.ring, &path, read_write().create(true)).await.unwrap();
            let BufResult(written, _) = file.write_at(vec![7; 100 << 10], 0).await;
            assert_eq!(written.unwrap(), 64 << 10, "{}: as much as fits", place.name);
            let BufResult(written, back) = file.write_all_at(vec![8; 5], 64 << 10).await;
            assert_eq!(written.unwrap_err().errno(), libc::ENOSPC, "{}", place.name);
            assert_eq!(back, [8; 5]);
        });
        std::fs::remove_file(&path).unwrap();
    }
}

/// A file system that is mounted for a test, by root.
struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    fn mount(make: &str, options: &[&str], mebibytes: u64) -> Option<Disk> {
        let disk = Disk::unmounted();
        let image = disk.directory.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        let made = run(Command::new(make).args(options).arg(&image));
        let mounted = made.and_then(|()| {
            run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()))
        });
        disk.if_done(mounted)
    }

    fn memory(bytes: u64) -> Option<Disk> {
        let disk = Disk::unmounted();
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        let mounted =
            run(mount.args(["-t", "tmpfs", "-o", &size, "ringwise-test"]).arg(disk.path()));
        disk.if_done(mounted)
    }

    fn unmounted() -> Disk {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(directory.path().join("mounted")).unwrap();
        Disk { directory }
    }

    fn if_done(self, mounted: Result<(), String>) -> Option<Disk> {
        if let Err(error) = mounted {
            skip(&error);
            return None;
        }
        Some(self)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(self.path()));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("{command:?}: {text}")) }
}

/// What the caller's thread could serve is refused as all else is.
#[test]
fn a_ring_that_was_shut_down_takes_no_cached_reads_and_writes() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return skip("no /dev/shm");
    };
    for place in real_places() {
        block_on(async {
            let path = directory.path().join(place.name);
            let file = File::open(&place.ring, &path, read_write().create(true)).await.unwrap();
            file.write_at(vec![1; 8], 0).await.0.unwrap();
            assert_eq!(place.ring.stats().inline_hits, 1, "{}", place.name);
            place.ring.shutdown(Duration::from_secs(5)).await.unwrap();
            let BufResult(written, back) = file.write_at(vec![2; 8], 0).await;
            assert_eq!((written.unwrap_err().errno(), back), (libc::ESHUTDOWN, vec![2; 8]));
            let BufResult(read, back) = file.read_at(vec![3; 8], 0).await;
            assert_eq!((read.unwrap_err().errno(), back), (libc::ESHUTDOWN, vec![3; 8]));
            let BufResult(read, _) = file.read_vectored_at(vec![vec![3; 4], vec![3; 4]], 0).await;
            assert_eq!(read.unwrap_err().errno(), libc::ESHUTDOWN);
            assert_eq!(std::fs::read(&path).unwrap(), [1; 8]);
        });
    }
}
