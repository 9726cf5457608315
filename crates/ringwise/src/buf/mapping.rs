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

use std::{ffi::c_void, io, os::fd::AsFd, ptr::NonNull, sync::Arc};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{MOVED_BYTES_MAX, RawBuffer};
use crate::descriptor::Descriptor;

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

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn no_bytes_and_what_cannot_be_mapped_are_errors() {
        let file = Descriptor::from(std::fs::File::open(std::env::current_exe().unwrap()).unwrap());
        assert_eq!(Mapping::of(&file, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(Mapping::of(&file, u64::MAX).is_err());
        let pipe = Descriptor::from(std::os::fd::OwnedFd::from(io::pipe().unwrap().0));
        assert_eq!(Mapping::of(&pipe, 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
