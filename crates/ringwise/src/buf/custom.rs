//! The buffer type by which types of others go into an operation and come back.

use std::any::TypeId;

use super::{
    Buffer, OwnedBuffer, OwnedBufferMut, StableBytes, StableBytesMut,
    buffer::Storage,
    stable::{CustomBytes, Growth, Held},
};

/// A buffer of a type that the library does not know: what is [`StableBytes`] can be written, what is
/// [`StableBytesMut`] read into too.
///
/// # Examples
///
/// ```
/// use ringwise::{Custom, OwnedBuffer, StableBytes, StableBytesMut};
///
/// struct Page(Box<[u8; 4096]>);
///
/// // SAFETY: a box stays where it is when it is moved.
/// unsafe impl StableBytes for Page {
///     fn bytes(&self) -> &[u8] {
///         &self.0[..]
///     }
/// }
///
/// // SAFETY: the same, and nobody else has it.
/// unsafe impl StableBytesMut for Page {
///     fn bytes_mut(&mut self) -> &mut [u8] {
///         &mut self.0[..]
///     }
/// }
///
/// let buffer = Custom(Page(Box::new([0; 4096]))).into_buffer();
/// let Custom(page) = Custom::<Page>::from_buffer(buffer);
/// assert_eq!(page.0.len(), 4096);
/// ```
#[derive(Clone, Debug)]
pub struct Custom<T>(pub T);

impl<T: StableBytes> AsRef<[u8]> for Custom<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl<T: StableBytes> OwnedBuffer for Custom<T> {
    fn into_buffer(self) -> Buffer {
        Buffer::whole(Storage::Custom(CustomBytes::hold(self.0, None)))
    }

    fn try_from_buffer(buffer: Buffer) -> Result<Custom<T>, Buffer> {
        match buffer.storage {
            Storage::Custom(CustomBytes(owner)) if owner.holds(TypeId::of::<T>()) => {
                let held = owner.into_any().downcast::<Held<T>>().expect("asked just now");
                Ok(Custom(held.value))
            }
            storage => Err(Buffer { storage, ..buffer }),
        }
    }
}

impl<T: StableBytesMut> OwnedBufferMut for Custom<T> {
    fn into_buffer_mut(self) -> Buffer {
        let growth = Growth { memory: T::memory, set_init: T::set_init };
        Buffer::whole(Storage::Custom(CustomBytes::hold(self.0, Some(growth)))).opened()
    }
}
