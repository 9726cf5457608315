//! Aligned memory for direct I/O.
//!
//! # Safety
//!
//! This file allocates and frees by hand because `Vec` cannot promise an alignment. The pointer,
//! the length, the layout and the mapping are set once and belong to one owner.
#![allow(unsafe_code)]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ffi::c_void,
    fmt,
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    slice,
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A buffer whose address is a multiple of a chosen power of two, for files opened with
/// `O_DIRECT`.
///
/// What a file needs is told by
/// [`Metadata::direct_alignment`](crate::Metadata::direct_alignment); 4096 suits nearly all.
///
/// # Examples
///
/// ```
/// use ringwise::AlignedBuf;
///
/// let buffer = AlignedBuf::zeroed(8192, 4096);
/// assert_eq!(buffer.as_ptr() as usize % 4096, 0);
/// assert!(buffer.iter().all(|&byte| byte == 0));
/// ```
pub struct AlignedBuf {
    pointer: NonNull<u8>,
    layout: Layout,
    /// What it lies in, where that is a mapping of its own.
    mapping: Option<(NonNull<c_void>, usize)>,
}

impl AlignedBuf {
    /// Zeroed memory of `len` bytes at a multiple of `alignment` bytes.
    ///
    /// A buffer of at least 2 MiB begins at a huge page and asks the kernel for huge pages (madvise(2),
    /// MADV_HUGEPAGE). A device then fills it in fewer segments, and the processor has fewer page faults.
    ///
    /// # Panics
    ///
    /// When `alignment` is not a power of two, or `len` rounded up to it exceeds `isize::MAX`.
    pub fn zeroed(len: usize, alignment: usize) -> AlignedBuf {
        if len >= HUGE_PAGE_BYTES && !cfg!(miri) {
            return AlignedBuf::mapped(len, alignment);
        }
        let layout = Layout::from_size_align(len, alignment)
            .expect("alignment is a power of two and the length fits the address space");
        if len == 0 {
            // A well-aligned address that is never read: `alloc` takes no empty layout.
            let pointer = NonNull::new(ptr::without_provenance_mut(alignment))
                .expect("a power of two is not zero");
            return AlignedBuf { pointer, layout, mapping: None };
        }
        // SAFETY: the layout has a size greater than zero, checked above.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        AlignedBuf { pointer, layout, mapping: None }
    }

    /// Memory of huge pages, in a mapping of its own.
    fn mapped(len: usize, alignment: usize) -> AlignedBuf {
        let layout = Layout::from_size_align(len, alignment.max(HUGE_PAGE_BYTES))
            .expect("alignment is a power of two and the length fits the address space");
        // A mapping of its own is zeros already: to write them again costs as much as the kernel's.
        let mapped_bytes = layout.size().saturating_add(layout.align());
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses takes nobody's memory.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, access, MapFlags::PRIVATE) };
        let Some(start) = start.ok().and_then(NonNull::new) else { handle_alloc_error(layout) };
        let skipped_bytes = start.as_ptr().cast::<u8>().align_offset(layout.align());
        // SAFETY: less than the alignment is skipped, and the mapping is that much longer.
        let pointer = unsafe { start.cast::<u8>().add(skipped_bytes) };
        // The advice has to come before the first touch. It is advice: failure changes nothing.
        // SAFETY: the range is within this mapping, at a multiple of the page size; the advice does
        // not change its content.
        let _ = unsafe { madvise(pointer.as_ptr().cast(), len, Advice::LinuxHugepage) };
        AlignedBuf { pointer, layout, mapping: Some((start, mapped_bytes)) }
    }

    /// The alignment in bytes, at least what was asked for.
    pub fn alignment(&self) -> usize {
        self.layout.align()
    }
}

/// Asks for huge pages where memory spans some, at least from its first byte. This has an effect only before the memory
/// is touched.
#[cfg(feature = "bytes")]
pub(crate) fn ask_for_huge_pages(memory: &mut [std::mem::MaybeUninit<u8>]) {
    let len = memory.len() - memory.len() % HUGE_PAGE_BYTES;
    // Miri takes no advice about memory.
    if len == 0 || cfg!(miri) || !memory.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES) {
        return;
    }
    // SAFETY: the range is borrowed here, at a multiple of the page size; the advice does not change its content.
    let _ = unsafe { madvise(memory.as_mut_ptr().cast(), len, Advice::LinuxHugepage) };
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match self.mapping {
            Some((start, mapped_bytes)) => {
                // SAFETY: mapped in `mapped` with this length, unmapped once; whoever has a part
                // of it for longer keeps this owner.
                let unmapped = unsafe { munmap(start.as_ptr(), mapped_bytes) };
                debug_assert!(unmapped.is_ok(), "{unmapped:?}");
            }
            // SAFETY: allocated in `zeroed` with this very layout, and freed once.
            None if self.layout.size() != 0 => unsafe {
                dealloc(self.pointer.as_ptr(), self.layout);
            },
            None => {}
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialised, `size` bytes long and borrowed with `self`.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.layout.size()) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes at {})", self.layout.size(), self.layout.align())
    }
}

// SAFETY: the buffer owns its memory alone, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared borrow only reads.
unsafe impl Sync for AlignedBuf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_is_aligned_and_frees_nothing() {
        let buffer = AlignedBuf::zeroed(0, 4096);
        assert!(buffer.is_empty());
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no huge pages")]
    fn a_large_one_is_zeros_at_a_huge_page_and_keeps_its_bytes() {
        for len in [HUGE_PAGE_BYTES, 5 * HUGE_PAGE_BYTES + 4096] {
            let mut buffer = AlignedBuf::zeroed(len, 4096);
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % HUGE_PAGE_BYTES), (len, 0));
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn bytes_are_kept() {
        let mut buffer = AlignedBuf::zeroed(512, 512);
        buffer[511] = 9;
        assert_eq!((buffer[0], buffer[511]), (0, 9));
    }
}
