//! A file's pages as the source of writes, without a copy in memory.
//!
//! A write from a mapping reads the page cache itself: with `O_DIRECT` on the other side the device
//! takes the bytes from there. Nobody else reads them here. The file may be cut by anybody at any
//! time, and a load from a page that is gone is SIGBUS (mmap(2)), and bytes that others change are
//! no Rust reference's: so there is no way to look into a mapping, and only the kernel follows its
//! address. It answers `EFAULT` where a page is gone, or ends the write short before it.
//!
//! # Safety
//!
//! The region is mapped once, never dereferenced, and unmapped when the last owner goes: mappings
//! and operations (invariants 1 and 13).
#![allow(unsafe_code)]

use std::{
    cell::OnceCell,
    ffi::c_void,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
};

use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    pipe::{PipeFlags, pipe_with},
};

use super::{MOVED_BYTES_MAX, RawBuffer};
use crate::descriptor::Descriptor;

/// What one touch brings into the page table, aligned to it (mm/memory.c, fault_around_bytes: its
/// value since Linux 3.15 where nobody changed it).
const FAULT_AROUND_BYTES: usize = 64 << 10;

/// Touches by one call: what writev(2) takes (UIO_MAXIOV), and far less than a pipe holds.
const TOUCHES_MAX: usize = 1024;

thread_local! {
    /// What bytes that are touched go into and are thrown away from. None: there is no pipe to be had.
    static PIPE: OnceCell<Option<Pipe>> = const { OnceCell::new() };
}

/// A file's first bytes, mapped to be written elsewhere by
/// [`Operation::write_mapped_at`](crate::Operation::write_mapped_at).
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Mapping, Operation};
///
/// let mut local = Local::new()?;
/// let source = Descriptor::from(std::fs::File::open(std::env::current_exe()?)?);
/// let mapping = Mapping::of(&source, 4096)?;
/// let path = std::env::temp_dir().join(format!("ringwise-mapped-{}", std::process::id()));
/// let copy = std::fs::File::options().create_new(true).write(true).open(&path)?;
/// let copy = Descriptor::from(copy);
/// let written = local.run(Operation::write_mapped_at(&copy, &mapping, 0..4096, 0))?.result()?;
/// assert_eq!(written, 4096);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mapping(Arc<Region>);

#[derive(Debug)]
struct Region {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: the address is followed by the kernel alone, and unmapped by the last owner.
unsafe impl Send for Region {}
// SAFETY: as above; nothing here changes.
unsafe impl Sync for Region {}

impl Mapping {
    /// Maps `len` bytes from the file's start, in whole pages: what is behind the file's end in
    /// its last page is written as zeros.
    ///
    /// # Errors
    ///
    /// What mmap(2) reports: `EINVAL` for no bytes, `ENODEV` for a file that cannot be mapped,
    /// `EACCES` for one that is not open for reading, `ENOMEM`.
    pub fn of(file: &Descriptor, len: u64) -> io::Result<Mapping> {
        let len = usize::try_from(len)
            .ok()
            .and_then(|len| len.checked_next_multiple_of(rustix::param::page_size()))
            .ok_or(rustix::io::Errno::NOMEM)?;
        // SAFETY: a new mapping at an address that the kernel chooses takes nobody's memory.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0)
        }?;
        let start = NonNull::new(start).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Mapping(Arc::new(Region { start, len })))
    }

    /// How many bytes are mapped: a multiple of the page size.
    pub fn mapped_bytes(&self) -> u64 {
        self.0.len as u64
    }

    /// Enters the pages of a range that are in memory into the page table, before an operation on them.
    ///
    /// An operation pins the pages that it reads, and needs a fault for each page that is not in the page
    /// table. This function enters them 64 KiB at a time (mm/memory.c, do_fault_around). For direct writes of
    /// 4 MiB from a cached file it saved over a third of the CPU time.
    ///
    /// It is advice, and tells nothing: where the file was cut, or there is no pipe to be had, the
    /// operation itself says what is wrong, or does the work. Pages that are not in memory are read,
    /// and waited for.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the mapping.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Mapping};
    ///
    /// let file = Descriptor::from(std::fs::File::open(std::env::current_exe()?)?);
    /// let mapping = Mapping::of(&file, 128 << 10)?;
    /// mapping.fault_in(4096..mapping.mapped_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fault_in(&self, range: std::ops::Range<u64>) {
        let part = self.part(range);
        let start = part.region.start.as_ptr().cast::<u8>().wrapping_add(part.start);
        let mut at = 0;
        // The last byte of each: a mapping that begins within one gets as much from its beginning on
        // (do_fault_around), and with it the first bytes of the next, which then is no fault.
        let mut touches = std::iter::from_fn(|| {
            let is_within = at < part.len;
            let next = at + FAULT_AROUND_BYTES - start.wrapping_add(at).addr() % FAULT_AROUND_BYTES;
            at = next.min(part.len);
            let touch = start.wrapping_add(at.saturating_sub(1));
            is_within.then_some(libc::iovec { iov_base: touch.cast(), iov_len: 1 })
        });
        PIPE.with(|pipe| {
            let Some(pipe) = pipe.get_or_init(Pipe::open) else { return };
            loop {
                let batch: Vec<libc::iovec> = touches.by_ref().take(TOUCHES_MAX).collect();
                if batch.is_empty() {
                    return;
                }
                pipe.touch(&batch);
            }
        });
    }

    pub(crate) fn part(&self, range: std::ops::Range<u64>) -> MappedPart {
        let (start, end) = (range.start, range.end);
        let total = self.mapped_bytes();
        assert!(start <= end && end <= total, "range {start}..{end} of a mapping of {total} bytes");
        MappedPart { region: self.0.clone(), start: start as usize, len: (end - start) as usize }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `Mapping::of` with this length, unmapped once, and no operation is
        // left that has its address: each has an owner's count.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// A pipe that never makes anybody wait, empty but for the time of a call.
#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn open() -> Option<Pipe> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        Some(Pipe { reader, writer })
    }

    fn touch(&self, bytes: &[libc::iovec]) {
        let count = bytes.len().min(TOUCHES_MAX) as libc::c_int;
        // SAFETY: the addresses lie in a mapping that the caller holds (invariant 13), and the kernel
        // alone follows them: what is gone from under it is EFAULT, and nothing is written there.
        let touched = unsafe { libc::writev(self.writer.as_raw_fd(), bytes.as_ptr(), count) };
        if touched > 0 {
            let _ = rustix::io::read(&self.reader, &mut [0; TOUCHES_MAX]);
        }
    }
}

/// A part of a mapping, as an operation owns it.
#[derive(Debug)]
pub(crate) struct MappedPart {
    region: Arc<Region>,
    start: usize,
    len: usize,
}

impl MappedPart {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the kernel reads. Nobody else may follow it.
    pub(crate) fn raw(&self) -> RawBuffer {
        let pointer = self.region.start.as_ptr().cast::<u8>().wrapping_add(self.start);
        RawBuffer { pointer, len: self.len.min(MOVED_BYTES_MAX) as u32, registered: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping() -> Mapping {
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        Mapping::of(&Descriptor::from(file), 5000).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn whole_pages_are_mapped_and_a_part_is_where_it_should_be() {
        let mapping = mapping();
        assert_eq!(mapping.mapped_bytes() % rustix::param::page_size() as u64, 0);
        let part = mapping.part(4096..5000);
        assert_eq!(part.raw().pointer.addr(), mapping.0.start.as_ptr().addr() + 4096);
        assert_eq!(part.raw().len, 904);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    #[should_panic(expected = "of a mapping of")]
    fn a_part_outside_is_refused() {
        let mapping = mapping();
        mapping.part(0..mapping.mapped_bytes() + 1);
    }

    /// A file in memory, and its mapping.
    fn filled(len: u64) -> (std::fs::File, Mapping) {
        // No device writes it back meanwhile, which holds a page for a moment: it is passed over then.
        let file = rustix::fs::memfd_create("filled", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(file);
        io::Write::write_all(&mut file, &vec![1; len as usize]).unwrap();
        let mapping = Mapping::of(&Descriptor::from(file.try_clone().unwrap()), len).unwrap();
        (file, mapping)
    }

    /// Bytes of it that are in the page table (proc(5), smaps).
    fn resident_bytes(mapping: &Mapping) -> u64 {
        let start = format!("{:x}-", mapping.0.start.as_ptr().addr());
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let found = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        found.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn what_is_faulted_in_is_in_the_page_table() {
        let (_file, mapping) = filled(80 << 20);
        assert_eq!(resident_bytes(&mapping), 0);
        mapping.fault_in(4096..(70 << 20) + 5000);
        assert!(resident_bytes(&mapping) >= 70 << 20, "{}", resident_bytes(&mapping));
        mapping.fault_in(80 << 20..80 << 20);
        mapping.fault_in((80 << 20) - 1..80 << 20);
        assert!(resident_bytes(&mapping) < 80 << 20, "no more than was asked for");
        // Wherever they begin.
        let mappings: Vec<_> = (0..8).map(|pages| filled((256 << 10) + 4096 * pages).1).collect();
        for mapping in &mappings {
            mapping.fault_in(0..mapping.mapped_bytes());
            assert_eq!(resident_bytes(mapping), mapping.mapped_bytes());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn a_pipe_that_is_full_would_touch_nothing() {
        let (_file, mapping) = filled(1 << 20);
        for _ in 0..80 {
            // Each byte of it is one touch: no more are in the pipe than one call brings.
            (0..1024).for_each(|_| mapping.fault_in(0..1));
        }
        mapping.fault_in(512 << 10..1 << 20);
        assert!(resident_bytes(&mapping) >= 512 << 10, "{}", resident_bytes(&mapping));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn a_file_that_was_cut_is_nobodys_death() {
        let (file, mapping) = filled(1 << 20);
        file.set_len(5000).unwrap();
        mapping.fault_in(0..1 << 20);
        assert!(resident_bytes(&mapping) <= 8192, "more than what is left of it");
        file.set_len(0).unwrap();
        mapping.fault_in(0..1 << 20);
        let (_other, mapping) = filled(1 << 20);
        mapping.fault_in(0..1 << 20);
        assert_eq!(resident_bytes(&mapping), 1 << 20, "it still works");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn no_bytes_and_what_cannot_be_mapped_are_errors() {
        let file = Descriptor::from(std::fs::File::open(std::env::current_exe().unwrap()).unwrap());
        assert_eq!(Mapping::of(&file, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(Mapping::of(&file, u64::MAX).is_err());
        let pipe = Descriptor::from(OwnedFd::from(io::pipe().unwrap().0));
        assert_eq!(Mapping::of(&pipe, 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
