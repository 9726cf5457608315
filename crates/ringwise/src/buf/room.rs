//! Where an operation moves bytes in a buffer, and how far a read has filled it.
//!
//! Spare capacity is memory that nobody has written yet: it is handed to the kernel by its address, and
//! becomes part of the bytes by what a result says was written there.
//!
//! # Safety
//!
//! No buffer's length grows by more than what an operation said it has read, or what is copied here
//! (invariant 21); addresses follow the buffer's own memory (invariant 1).
#![allow(unsafe_code)]

use super::{Buffer, MOVED_BYTES_MAX, buffer::Storage};

/// Where the kernel reads or writes. Valid as long as the [`Buffer`] it came from stays in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawBuffer {
    pub(crate) pointer: *mut u8,
    pub(crate) len: u32,
    pub(crate) registered: Option<u16>,
}

impl Storage {
    /// All memory that a read may fill, the bytes first: address and length. None of what is only
    /// written.
    #[inline]
    fn room(&mut self) -> Option<(*mut u8, usize)> {
        let bytes: &mut [u8] = match self {
            Storage::Vec(bytes) => return Some((bytes.as_mut_ptr(), bytes.capacity())),
            Storage::Custom(bytes) => return bytes.room(),
            Storage::Boxed(bytes) => bytes,
            Storage::Aligned(bytes) => bytes,
            Storage::Pooled(bytes) => bytes,
            Storage::Received(bytes) => bytes,
            Storage::Static(_) | Storage::Shared(_) => return None,
            #[cfg(feature = "bytes")]
            Storage::Bytes(_) => return None,
        };
        Some((bytes.as_mut_ptr(), bytes.len()))
    }

    /// # Safety
    ///
    /// So many bytes of the room have been written.
    unsafe fn grow(&mut self, len: usize) {
        if len <= self.as_slice().len() {
            return;
        }
        match self {
            // SAFETY: the caller's promise; the range was selected within the capacity.
            Storage::Vec(bytes) => unsafe { bytes.set_len(len) },
            // SAFETY: the same.
            Storage::Custom(bytes) => unsafe { bytes.set_init(len) },
            // They have no more room than bytes.
            Storage::Boxed(_)
            | Storage::Aligned(_)
            | Storage::Pooled(_)
            | Storage::Received(_)
            | Storage::Static(_)
            | Storage::Shared(_) => {}
            #[cfg(feature = "bytes")]
            Storage::Bytes(_) => {}
        }
    }
}

impl Buffer {
    /// As a read is given it: what is empty has its capacity.
    #[inline]
    pub(crate) fn opened(self) -> Buffer {
        if self.as_slice().is_empty() && !self.is_spare { self.open_spare() } else { self }
    }

    /// With the capacity behind its bytes selected.
    pub(super) fn open_spare(mut self) -> Buffer {
        let start = self.as_slice().len();
        let room = self.storage.room().map_or(start, |(_, len)| len);
        Buffer { storage: self.storage, start, len: room - start, is_spare: room > start }
    }

    /// After a read of so many bytes into it.
    #[inline]
    pub(crate) fn filled(mut self, count: usize) -> Buffer {
        self.fill(count);
        self
    }

    /// The same, where the buffer is.
    #[inline]
    pub(crate) fn fill(&mut self, count: usize) {
        let count = count.min(self.len);
        if self.is_spare {
            assert!(self.start <= self.as_slice().len(), "capacity is filled from its start on");
            // SAFETY: an operation on the selected part, which lies within the room, or a copy has moved
            // so many bytes there, and all before it was initialised.
            unsafe { self.storage.grow(self.start + count) };
        }
    }

    /// After a read of so many bytes into several in turn.
    pub(crate) fn fill_all(buffers: &mut [Buffer], count: usize) {
        let mut left = count;
        for buffer in buffers {
            let part = left.min(buffer.len);
            left -= part;
            buffer.fill(part);
        }
    }

    /// All bytes, whatever part was selected; none of what is only written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.as_slice().len();
        match self.storage.room() {
            // SAFETY: the room begins with the bytes, which are initialised; the borrow is exclusive.
            Some((pointer, _)) => unsafe { std::slice::from_raw_parts_mut(pointer, len) },
            None => &mut [],
        }
    }

    /// Copies `bytes` to `at` in the selected part, as a read of them would.
    ///
    /// # Panics
    ///
    /// When they do not fit.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= self.len);
        let room = self.storage.room().filter(|_| fits);
        let (pointer, _) = room.expect("bytes are put where they fit");
        let to = pointer.wrapping_add(self.start + at);
        // SAFETY: the selected part lies within the room, and they fit into it; a borrow of this buffer's
        // own bytes cannot be had meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        assert!(!self.is_spare || self.start + at <= self.as_slice().len(), "nothing is left out");
        self.fill(at + bytes.len());
    }

    /// Whether an operation may read into it.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        match &self.storage {
            Storage::Vec(_)
            | Storage::Boxed(_)
            | Storage::Aligned(_)
            | Storage::Pooled(_)
            | Storage::Received(_) => true,
            Storage::Static(_) | Storage::Shared(_) => false,
            #[cfg(feature = "bytes")]
            Storage::Bytes(_) => false,
            Storage::Custom(bytes) => bytes.is_writable(),
        }
    }

    /// Whether the selected part begins at, and is so many bytes or a multiple of them.
    pub(crate) fn is_aligned(&self, alignment: usize) -> bool {
        let start = self.storage.as_slice().as_ptr().addr() + self.start;
        start.is_multiple_of(alignment) && self.len.is_multiple_of(alignment)
    }

    /// Where the kernel reads or writes: the selected part, and its registered region if any.
    /// Lengths are cut at what the kernel moves at a time: asked for more than a result can tell,
    /// a ring refuses a send (io_uring/net.c).
    #[inline]
    pub(crate) fn raw(&mut self, ring: u32) -> RawBuffer {
        let registered = match &self.storage {
            Storage::Pooled(lease) => lease.registered_with(ring),
            _ => None,
        };
        let len = self.len.min(MOVED_BYTES_MAX) as u32;
        // The loop refuses to read into what has no room; a write only looks at it.
        let bytes = self.storage.as_slice();
        let bytes = (bytes.as_ptr().cast_mut(), bytes.len());
        let (pointer, room_bytes) = self.storage.room().unwrap_or(bytes);
        assert!(self.start + self.len <= room_bytes, "a part lies within its buffer");
        RawBuffer { pointer: pointer.wrapping_add(self.start), len, registered }
    }
}
