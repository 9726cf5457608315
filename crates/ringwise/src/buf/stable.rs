//! Buffers of types that the library does not know, and of those that it keeps as it keeps them.
//!
//! # Safety
//!
//! [`StableBytes`] is unsafe to implement: its bytes are reached by their address, which was asked for
//! once, as long as their owner is in a buffer (invariant 1).
#![allow(unsafe_code)]

use std::{
    any::{Any, TypeId},
    fmt,
    ptr::NonNull,
    slice,
};

/// Bytes that stay where they are while their owner moves.
///
/// # Safety
///
/// `bytes` gives the same bytes every time, initialised, at an address (not within the value itself) and
/// of a length that do not change while the value is moved and nobody uses it. The kernel reads them meanwhile.
///
/// # Examples
///
/// ```
/// use ringwise::{Custom, Descriptor, Local, Operation, StableBytes};
///
/// struct Line(String);
///
/// // SAFETY: the bytes of a string are on the heap, and nothing changes this one.
/// unsafe impl StableBytes for Line {
///     fn bytes(&self) -> &[u8] {
///         self.0.as_bytes()
///     }
/// }
///
/// let file = Descriptor::from(std::fs::File::create("/dev/null")?);
/// let write = Operation::write_at(&file, Custom(Line("text".to_owned())), 0);
/// assert_eq!(Local::new()?.run(write)?.result()?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe trait StableBytes: Send + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// [`StableBytes`] that can be read into.
///
/// # Safety
///
/// As for [`StableBytes`], of [`memory`](Self::memory) too, which begins with the bytes and is this
/// value's alone to write. The kernel writes it meanwhile.
///
/// # Examples
///
/// ```
/// use ringwise::{Custom, Descriptor, Local, Operation, OwnedBuffer, StableBytes, StableBytesMut};
///
/// struct Page(Vec<u8>);
///
/// // SAFETY: the bytes of a vector are on the heap, and nothing changes this one.
/// unsafe impl StableBytes for Page {
///     fn bytes(&self) -> &[u8] {
///         &self.0
///     }
/// }
///
/// // SAFETY: the same, and the page alone owns them.
/// unsafe impl StableBytesMut for Page {
///     fn bytes_mut(&mut self) -> &mut [u8] {
///         &mut self.0
///     }
/// }
///
/// let file = Descriptor::from(std::fs::File::open("/dev/zero")?);
/// let done = Local::new()?.run(Operation::read_at(&file, Custom(Page(vec![1; 4096])), 0))?;
/// let Custom(page) = Custom::<Page>::from_buffer(done.into_buffer().unwrap());
/// assert_eq!(page.0, [0; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe trait StableBytesMut: StableBytes {
    /// The same bytes.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Address and length of all memory that a read may fill: more than the bytes where there is spare
    /// capacity behind them, which need not be initialised.
    fn memory(&mut self) -> (*mut u8, usize) {
        let bytes = self.bytes_mut();
        (bytes.as_mut_ptr(), bytes.len())
    }

    /// Makes the first `len` bytes of the memory the bytes. Called where they have become more.
    ///
    /// # Safety
    ///
    /// They are initialised, and no more than the memory.
    unsafe fn set_init(&mut self, _len: usize) {}
}

// SAFETY: what it refers to is there for ever.
unsafe impl StableBytes for &'static str {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

// SAFETY: the same.
unsafe impl<const N: usize> StableBytes for &'static [u8; N] {
    fn bytes(&self) -> &[u8] {
        *self
    }
}

// SAFETY: its bytes are on the heap.
unsafe impl StableBytes for String {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(feature = "bytes")]
// SAFETY: its bytes are on the heap, and moved by none of the calls that only look at them.
unsafe impl StableBytes for bytes::BytesMut {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[cfg(feature = "bytes")]
// SAFETY: the same; the capacity is its own until it grows.
unsafe impl StableBytesMut for bytes::BytesMut {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn memory(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.capacity())
    }

    unsafe fn set_init(&mut self, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.set_len(len) };
    }
}

/// A value in its box, where its bytes are, and how a read fills it, if one may.
pub(super) struct Held<T> {
    memory: Memory,
    growth: Option<Growth<T>>,
    pub(super) value: T,
}

pub(super) struct Growth<T> {
    pub(super) memory: fn(&mut T) -> (*mut u8, usize),
    pub(super) set_init: unsafe fn(&mut T, usize),
}

#[derive(Clone, Copy)]
pub(super) struct Memory {
    pointer: NonNull<u8>,
    /// How many of them are bytes.
    len: usize,
    /// How much a read may fill, if one may.
    room_bytes: Option<usize>,
}

/// A buffer of a user's type. Where its bytes are is asked once, on the thread that makes the buffer: a
/// loop's driver, which works for others too, calls nothing of the user's.
pub(super) struct CustomBytes(pub(super) Box<dyn AnyBytes>);

// SAFETY: the bytes are the owner's, which is `Send`, and are reached through this only.
unsafe impl Send for CustomBytes {}
// SAFETY: a shared borrow only reads the bytes, and calls nothing of the owner's.
unsafe impl Sync for CustomBytes {}

impl CustomBytes {
    pub(super) fn hold<T: StableBytes>(value: T, growth: Option<Growth<T>>) -> CustomBytes {
        let memory = Memory { pointer: NonNull::dangling(), len: 0, room_bytes: None };
        let mut held = Box::new(Held { memory, growth, value });
        let len = held.value.bytes().len();
        let (pointer, room_bytes) = match &held.growth {
            Some(growth) => {
                let (pointer, room_bytes) = (growth.memory)(&mut held.value);
                (pointer, Some(room_bytes))
            }
            None => (held.value.bytes().as_ptr().cast_mut(), None),
        };
        let pointer = NonNull::new(pointer).unwrap_or(NonNull::dangling());
        held.memory = Memory { pointer, len, room_bytes };
        CustomBytes(held)
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        let Memory { pointer, len, .. } = self.0.memory();
        // SAFETY: the bytes stay where they are and initialised as long as their owner is here
        // (`StableBytes`), and nobody else uses that.
        unsafe { slice::from_raw_parts(pointer.as_ptr(), len) }
    }

    pub(super) fn is_writable(&self) -> bool {
        self.0.memory().room_bytes.is_some()
    }

    pub(super) fn room(&self) -> Option<(*mut u8, usize)> {
        let Memory { pointer, room_bytes, .. } = self.0.memory();
        room_bytes.map(|len| (pointer.as_ptr(), len))
    }

    /// # Safety
    ///
    /// So many bytes of the room are initialised.
    pub(super) unsafe fn set_init(&mut self, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.set_init(len) };
    }
}

impl fmt::Debug for CustomBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of a custom type", self.0.memory().len)
    }
}

/// [`Held`] of a type that is not known any more.
pub(super) trait AnyBytes {
    /// Where its bytes are, without a call of its value's.
    fn memory(&self) -> Memory;
    /// # Safety
    ///
    /// As for [`StableBytesMut::set_init`].
    unsafe fn set_init(&mut self, len: usize);
    /// Whether the value is of this type.
    fn holds(&self, of: TypeId) -> bool;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: StableBytes> AnyBytes for Held<T> {
    fn memory(&self) -> Memory {
        self.memory
    }

    unsafe fn set_init(&mut self, len: usize) {
        if let Some(growth) = &self.growth {
            // SAFETY: the caller's promise.
            unsafe { (growth.set_init)(&mut self.value, len) };
        }
        self.memory.len = len;
    }

    fn holds(&self, of: TypeId) -> bool {
        of == TypeId::of::<T>()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
