//! A pool of equal buffers in one region, which a ring may have registered.
//!
//! Registration lets the kernel skip pinning and mapping the pages for each operation. The whole
//! pool is one registered region (at most 1 GiB, the kernel's limit for one buffer), so a lease
//! carries no table entry of its own.
//!
//! # Safety
//!
//! The region is shared by the leases, each of which owns a part of it that no other overlaps:
//! an index leaves the free list with a lease and comes back when the lease is dropped. The region
//! lives as long as any lease, pool or registration (invariant 13), so a lease that outlives its
//! ring is still valid memory; a leaked lease leaks its part and nothing worse.
#![allow(unsafe_code)]

use std::{
    fmt,
    ops::{Deref, DerefMut},
    slice,
    sync::{Arc, Mutex},
};

use crate::{
    buf::{AlignedBuf, Memory, Registered, registered::region::Region},
    error::{Errno, Error},
    op::Opcode,
    sync::lock,
};

/// The most that one registered region may hold: `io_buffer_validate` in the kernel's
/// io_uring/rsrc.c refuses more.
const REGION_BYTES_MAX: usize = 1 << 30;
const PAGE_BYTES: usize = 4096;

/// A pool of equal, page-aligned buffers, made by
/// [`Local::register_pool`](crate::Local::register_pool). Clones share it.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Operation};
///
/// let mut local = Local::new()?;
/// let pool = local.register_pool(8, 4096)?;
/// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
/// let buffer = pool.take().expect("all eight are free");
/// let read = local.run(Operation::read_at(&file, buffer, 0))?;
/// assert!(read.result()? > 0);
/// drop(read);
/// assert_eq!(pool.available(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

/// Whether the kernel holds a pool's pages registered.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Registration};
///
/// let pool = Local::new()?.register_pool(8, 4096)?;
/// match pool.registration() {
///     Registration::Unregistered(reason) => println!("ordinary memory: {reason}"),
///     _ => assert!(pool.is_registered()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Registration {
    /// Registered: operations on its buffers skip pinning the pages.
    Registered,
    /// Ordinary memory with the same meaning; the reason says why.
    Unregistered(String),
}

struct Shared {
    region: Arc<Region>,
    buffer_bytes: usize,
    stride_bytes: usize,
    free: Mutex<Vec<u32>>,
    /// The ring and the table index under which the region is registered.
    registered: Result<(u32, u16), String>,
    /// Tells the loop when nobody uses the pool any more.
    _use: Option<Registered>,
}

impl Pool {
    /// Lays out `count` buffers of `buffer_bytes` each, and lets `register` try to register them: it
    /// gives the ring's number and the entry of its table.
    pub(crate) fn build(
        count: usize,
        buffer_bytes: usize,
        register: impl FnOnce(*mut u8, usize, Memory) -> Result<(u32, u16, Registered), String>,
    ) -> Result<Pool, Error> {
        let refuse = |advice| Error::new(Opcode::Register, Errno(libc::EINVAL)).advise(advice);
        if count == 0 || buffer_bytes == 0 {
            return Err(refuse("a pool needs at least one buffer of at least one byte"));
        }
        let stride_bytes = buffer_bytes
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or_else(|| refuse("a pool holds at most 1 GiB"))?;
        let total = stride_bytes.checked_mul(count).filter(|&total| total <= REGION_BYTES_MAX);
        let Some(total) = total else { return Err(refuse("a pool holds at most 1 GiB")) };

        let region = Arc::new(Region::new(AlignedBuf::zeroed(total, PAGE_BYTES)));
        let (registered, used) = match register(region.base(), total, region.clone()) {
            Ok((ring, index, used)) => (Ok((ring, index)), Some(used)),
            Err(reason) => (Err(reason), None),
        };
        Ok(Pool(Arc::new(Shared {
            region,
            buffer_bytes,
            stride_bytes,
            free: Mutex::new((0..count as u32).rev().collect()),
            registered,
            _use: used,
        })))
    }

    /// A free buffer, or nothing when all are out.
    pub fn take(&self) -> Option<PoolBuf> {
        let index = lock(&self.0.free).pop()?;
        Some(PoolBuf { shared: Arc::clone(&self.0), index })
    }

    /// Buffers free now.
    pub fn available(&self) -> usize {
        lock(&self.0.free).len()
    }

    /// The size of each buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.0.buffer_bytes
    }

    /// Whether a ring holds the pages registered.
    pub fn is_registered(&self) -> bool {
        self.0.registered.is_ok()
    }

    /// Whether a ring holds the pages registered, and if not, why not.
    pub fn registration(&self) -> Registration {
        match &self.0.registered {
            Ok(_) => Registration::Registered,
            Err(reason) => Registration::Unregistered(reason.clone()),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffer_bytes", &self.buffer_bytes)
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

/// A buffer leased from a [`Pool`]; it goes back when dropped.
///
/// It holds the pool's memory alive, so it is valid even after the loop that registered it is
/// gone. Its content is whatever the last user left.
///
/// # Examples
///
/// ```
/// use ringwise::Local;
///
/// let mut local = Local::new()?;
/// let pool = local.register_pool(1, 4096)?;
/// let mut buffer = pool.take().expect("it is free");
/// buffer[..5].copy_from_slice(b"hello");
/// assert!(pool.take().is_none());
/// drop(buffer);
/// assert!(pool.take().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PoolBuf {
    shared: Arc<Shared>,
    index: u32,
}

impl PoolBuf {
    /// The registered region's table index, if it is `ring` that registered it.
    pub(crate) fn registered_with(&self, ring: u32) -> Option<u16> {
        match self.shared.registered {
            Ok((owner, index)) if owner == ring => Some(index),
            _ => None,
        }
    }

    fn pointer(&self) -> *mut u8 {
        // SAFETY: index < count, so the offset lies within the region's one allocation.
        unsafe { self.shared.region.base().add(self.index as usize * self.shared.stride_bytes) }
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        lock(&self.shared.free).push(self.index);
    }
}

impl Deref for PoolBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the part belongs to this lease alone (see the header) and is initialised.
        unsafe { slice::from_raw_parts(self.pointer(), self.shared.buffer_bytes) }
    }
}

impl DerefMut for PoolBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow of the lease is exclusive.
        unsafe { slice::from_raw_parts_mut(self.pointer(), self.shared.buffer_bytes) }
    }
}

impl fmt::Debug for PoolBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolBuf(#{} of {} bytes)", self.index, self.shared.buffer_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unregistered(count: usize, bytes: usize) -> Pool {
        Pool::build(count, bytes, |_, _, _| Err("not asked".into())).unwrap()
    }

    #[test]
    fn leases_do_not_overlap_and_come_back() {
        let pool = unregistered(3, 100);
        let mut leases: Vec<PoolBuf> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(leases.len(), 3);
        for (value, lease) in leases.iter_mut().enumerate() {
            lease.fill(value as u8);
        }
        for (value, lease) in leases.iter().enumerate() {
            assert!(lease.iter().all(|&byte| byte == value as u8));
        }
        assert!(pool.take().is_none());
        drop(leases);
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn a_lease_outlives_its_pool() {
        let pool = unregistered(1, 4096);
        let mut lease = pool.take().unwrap();
        drop(pool);
        lease.fill(7);
        assert!(lease.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (count, bytes) in [(0, 4096), (1, 0), (usize::MAX, 4096), (1, usize::MAX), (2, 1 << 30)]
        {
            let error = Pool::build(count, bytes, |_, _, _| Err(String::new())).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL);
        }
    }
}
