//! `mmap`: the files mapped, and touched page by page, by a thread per unit of depth.
//!
//! What is timed is the touch, one byte of each page: that is where the kernel reads. There is no
//! copy, unlike in all other engines, and the verification that follows reads the mapping itself.
//! The work of a page fault is CPU time of the process like any other.
//!
//! A page that is no longer there, since a stranger cut the file short or the device failed, is
//! told by SIGBUS, which ends a process without a word. Looking at the length before each read
//! would leave a window between the look and the touch; so the signal is handled: a page of zeros
//! takes the place of the one that cannot be had, and the read that touched it fails with the
//! reason.
//!
//! # Safety
//!
//! A mapping is unsound while somebody else changes the file. The lab holds the lock of its own
//! directory, opens the files for reading only and checks their length before each sample.
//!
//! The handler is run by the thread that touched the page. It uses atomics, sigaction(2), raise(3)
//! and mmap(2), none of which takes a lock or allocates. It replaces pages only within ranges that
//! are in `WATCHED`, which hold read-only mappings of this file: each range is taken out of the
//! table before its mapping goes. Any other SIGBUS is left to whoever handled it before.
#![allow(unsafe_code)]

use std::{
    fs::File,
    hint::black_box,
    io, mem, ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use memmap2::{Advice, Mmap};

use super::{Engine, Named, Tally, threads::in_threads};
use crate::{
    error::plain,
    sampling::{
        job::{Failure, Job, Pattern, Request, Start, Timing},
        lane::Lane,
    },
};

/// The smallest page of any machine that Linux runs on.
const PAGE_BYTES: usize = 4096;
/// As many as a run may have files.
const WATCHED_MAX: usize = 1024;

/// The engine: a thread per unit of depth, since a thread that touches a page waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mapped;

impl Named for Mapped {
    const DEFAULT: Mapped = Mapped;

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(self)
    }
}

impl Engine for Mapped {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let files = job.open()?;
        let maps: Vec<FileMap> =
            files.into_iter().map(|file| FileMap::new(job, file)).collect::<Result<_, _>>()?;
        let touch_all = |(), lane: &mut Lane| touch_all(job, &maps, lane);
        let tally = in_threads(job, start, &|| (), &touch_all)?;
        Ok(Tally { system_calls: Some(0), ..tally })
    }
}

/// Touches one block after the other until the lane is over.
fn touch_all(job: &Job, maps: &[FileMap], lane: &mut Lane) -> Result<(), Failure> {
    while let Some(request) = lane.next_request() {
        let map = &maps[request.file];
        let at = request.offset as usize;
        let bytes = &map.bytes[at..at + job.block_bytes];
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        bytes.iter().step_by(PAGE_BYTES).for_each(|byte| {
            black_box(byte);
            black_box(*byte);
        });
        let ended_ns = lane.clock();
        let done = lane.complete(request, began_ns, ended_ns, bytes);
        if done.is_err() || map.watch.has_lost_a_page() {
            return Err(map.failure(job, request, done.err()));
        }
    }
    Ok(())
}

/// A mapped file. The watch ends before the mapping does: fields are dropped in this order.
struct FileMap {
    watch: Watch,
    bytes: Mmap,
    file: File,
}

impl FileMap {
    fn new(job: &Job, file: File) -> Result<FileMap, Failure> {
        let failed = |error: io::Error| Failure::Unavailable(format!("mmap: {}", plain(&error)));
        // SAFETY: nothing in the lab writes to a laid-out file while a sample runs; strangers are
        // kept out by the directory's mark and lock (see the contract above).
        let bytes = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let advice = match job.pattern {
            Pattern::Random => Advice::Random,
            Pattern::Sequential => Advice::Sequential,
        };
        bytes.advise(advice).map_err(failed)?;
        let watch = Watch::over(&bytes).map_err(failed)?;
        Ok(FileMap { watch, bytes, file })
    }

    /// Why a block could not be read, or was not what was written.
    fn failure(&self, job: &Job, request: Request, found: Option<Failure>) -> Failure {
        let file = &job.files[request.file];
        // The rest of a file's last page reads as zeros without a signal.
        let is_short = self.file.metadata().is_ok_and(|now| now.len() < file.bytes);
        match found {
            _ if is_short => Failure::changed(file),
            Some(failure) if !self.watch.has_lost_a_page() => failure,
            _ => job.read_failed(request, &io::Error::other("the mapped page was lost (SIGBUS)")),
        }
    }
}

/// A range of addresses in which the signal is handled. Empty while `end` is 0.
struct Watched {
    is_taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    has_lost_a_page: AtomicBool,
}

static WATCHED: [Watched; WATCHED_MAX] = [const {
    Watched {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        has_lost_a_page: AtomicBool::new(false),
    }
}; WATCHED_MAX];

/// Who handled the signal before: the standard library, which knows its threads' guard pages.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static IS_HANDLED: OnceLock<Result<(), i32>> = OnceLock::new();
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);

/// A place in the table, as long as its mapping lives.
struct Watch(&'static Watched);

impl Watch {
    fn over(bytes: &[u8]) -> io::Result<Watch> {
        handle_signal()?;
        let free = |watched: &&Watched| !watched.is_taken.swap(true, Ordering::AcqRel);
        let watched = WATCHED.iter().find(free);
        let watched = watched.ok_or_else(|| io::Error::other("too many files mapped at once"))?;
        let start = bytes.as_ptr().addr();
        watched.has_lost_a_page.store(false, Ordering::Relaxed);
        watched.start.store(start, Ordering::Relaxed);
        watched.end.store(start + bytes.len(), Ordering::Release);
        Ok(Watch(watched))
    }

    fn has_lost_a_page(&self) -> bool {
        self.0.has_lost_a_page.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// Handles the signal from now on, once for the process.
fn handle_signal() -> io::Result<()> {
    let done = IS_HANDLED.get_or_init(|| {
        PAGE_SIZE.store(rustix::param::page_size(), Ordering::Relaxed);
        // SAFETY: a sigaction of zeros is a valid one: no flags, an empty mask, the default action.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        ours.sa_sigaction = on_lost_page as *const () as usize;
        // SAFETY: both live as long as the call, and the handler has the form that SA_SIGINFO says.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) } != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
        }
        // Nobody else sets it.
        let _ = BEFORE.set(before);
        Ok(())
    });
    done.map_err(io::Error::from_raw_os_error)
}

/// The handler: puts zeros where a page of a watched range was lost, and says so.
extern "C" fn on_lost_page(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel gives a valid one, and its address field for SIGBUS.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let page_bytes = PAGE_SIZE.load(Ordering::Relaxed);
    let is_within = |watched: &&Watched| {
        let end = watched.end.load(Ordering::Acquire);
        (watched.start.load(Ordering::Relaxed)..end).contains(&address)
    };
    if code == libc::BUS_ADRERR
        && let Some(watched) = WATCHED.iter().find(is_within)
    {
        watched.has_lost_a_page.store(true, Ordering::Relaxed);
        let page = ptr::without_provenance_mut(address & !(page_bytes - 1));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies within a mapping of this file that is for reading only, whose
        // watch has not ended (see the contract above).
        let zeros = unsafe { libc::mmap(page, page_bytes, libc::PROT_READ, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            return;
        }
    }
    let before: *const libc::sigaction = BEFORE.get().map_or(ptr::null(), |before| before);
    if before.is_null() {
        // SAFETY: SIG_DFL is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else {
        // SAFETY: it was in force before, and lies in a static.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
    if code <= 0 {
        // Sent by a process: no instruction will cause it again.
        // SAFETY: raise(3) may be called in a handler.
        unsafe { libc::raise(signal) };
    }
}
