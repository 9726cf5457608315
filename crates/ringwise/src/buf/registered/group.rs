//! Buffers that are chosen when there is something to be received, by the kernel or by the loop.
//!
//! A silent socket keeps no buffer: of a thousand connections only those that have something to
//! say take one, and it goes back when its lease is dropped. Where a ring has the group, free
//! buffers lie in a queue that the kernel reads (`IORING_REGISTER_PBUF_RING`) and takes from in
//! turn; elsewhere the loop takes the one that came back last, which the cache still has.
//!
//! # Safety
//!
//! Each buffer has one owner at a time: the kernel's queue, the list of the free, or a lease. It
//! changes hands when a result names it, which each does once, and when its lease is dropped, under
//! the lock. The memory, the kernel's queue included, is counted by groups, leases, operations and
//! the loop that registered it (invariant 13).
#![allow(unsafe_code)]

use std::{
    fmt,
    ops::{Deref, DerefMut},
    slice,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU16, Ordering},
    },
    task::Waker,
};

use crate::{
    buf::{AlignedBuf, Memory, Registered, registered::region::Region},
    error::{Errno, Error},
    op::Opcode,
    sync::lock,
};

/// The kernel's limit for one queue of buffers (io_uring/kbuf.c).
const COUNT_MAX: usize = 32_768;
const GROUP_BYTES_MAX: usize = 1 << 30;
const PAGE_BYTES: usize = 4096;
/// Buffers begin at a cache line.
const LINE_BYTES: usize = 64;

/// A group of equal buffers for [`Operation::recv_multi`](crate::Operation::recv_multi). Clones
/// share it; it belongs to the loop that it was made with.
///
/// # Examples
///
/// ```
/// use ringwise::{BufferGroup, Local};
///
/// let mut local = Local::new()?;
/// let group = BufferGroup::new(&mut local, 64, 2048)?;
/// assert_eq!(group.available(), 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BufferGroup(Arc<Group>);

/// A group's memory and who has what of it.
pub(crate) struct Group {
    region: Arc<Region>,
    count: usize,
    buffer_bytes: usize,
    stride_bytes: usize,
    /// The loop that it belongs to.
    table: u32,
    /// The kernel's queue and its number there.
    queue: Option<(Arc<Entries>, u16)>,
    /// Tells the loop when nobody uses the group any more.
    _use: Option<Registered>,
    /// Why the kernel has no queue of it.
    refusal: Option<String>,
    free: Mutex<Free>,
    waker: Waker,
}

/// The buffers that nobody has.
struct Free {
    /// Without the kernel's queue: the one that came back last is on top.
    stack: Vec<u16>,
    /// With it: how many were ever put in.
    tail: u16,
    leased: usize,
    /// Buffers that ever came back.
    returns: u64,
    /// How many had come back when one was last missing.
    dry_at: u64,
    /// An operation of the loop waits for one to come back.
    is_awaited: bool,
}

/// The kernel's queue of buffers: an array of `struct io_uring_buf`, the tail in a spare field of
/// the first (include/uapi/linux/io_uring.h).
pub(crate) struct Entries {
    region: Region,
    count: u16,
}

const ENTRY_BYTES: usize = 16;
const ENTRY_LEN_AT: usize = 8;
const ENTRY_NUMBER_AT: usize = 12;
const TAIL_AT: usize = 14;

impl Entries {
    pub(crate) fn new(count: u16) -> Entries {
        Entries {
            region: Region::new(AlignedBuf::zeroed(usize::from(count) * ENTRY_BYTES, PAGE_BYTES)),
            count,
        }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.region.base()
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Puts a buffer where the kernel finds it, as the `tail`th ever. One thread at a time.
    fn put(&self, tail: u16, buffer: *mut u8, len: u32, number: u16) {
        let at = usize::from(tail & (self.count - 1)) * ENTRY_BYTES;
        // SAFETY: the entry lies within the array, whose entries the kernel reads only up to the
        // tail; the caller holds the lock. The fields are aligned as in the structure, and the
        // tail, which is a field of the first entry, is not among them.
        unsafe {
            let entry = self.base().add(at);
            entry.cast::<u64>().write(buffer.expose_provenance() as u64);
            entry.add(ENTRY_LEN_AT).cast::<u32>().write(len);
            entry.add(ENTRY_NUMBER_AT).cast::<u16>().write(number);
        }
    }

    /// Shows the kernel all that was put in.
    fn publish(&self, tail: u16) {
        // SAFETY: the field lies within the array, is aligned, and is only ever used atomically.
        let shared = unsafe { AtomicU16::from_ptr(self.base().add(TAIL_AT).cast()) };
        shared.store(tail, Ordering::Release);
    }
}

impl BufferGroup {
    /// Lays out a group of the loop `table`, and lets `register` try to give its queue to a ring.
    pub(crate) fn build(
        count: usize,
        bytes_each: usize,
        table: u32,
        waker: Waker,
        register: impl FnOnce(&Entries, Memory) -> Result<(u16, Registered), String>,
    ) -> Result<BufferGroup, Error> {
        let refuse = |advice| Error::new(Opcode::Register, Errno(libc::EINVAL)).advise(advice);
        if !count.is_power_of_two() || count > COUNT_MAX {
            return Err(refuse("a group has a power of two of buffers, at most 32768"));
        }
        if bytes_each == 0 {
            return Err(refuse("a buffer has at least one byte"));
        }
        let stride_bytes = bytes_each.checked_next_multiple_of(LINE_BYTES);
        let total = stride_bytes.and_then(|stride| stride.checked_mul(count));
        let Some(total) = total.filter(|total| *total <= GROUP_BYTES_MAX) else {
            return Err(refuse("a group holds at most 1 GiB"));
        };
        let entries = Arc::new(Entries::new(count as u16));
        let region = Arc::new(Region::new(AlignedBuf::zeroed(total, PAGE_BYTES)));
        let memory = Arc::new((entries.clone(), region.clone()));
        let (queue, used, refusal) = match register(&entries, memory) {
            Ok((number, used)) => (Some((entries, number)), Some(used), None),
            Err(reason) => (None, None, Some(reason)),
        };
        let stack = Vec::with_capacity(count);
        let free = Free { stack, tail: 0, leased: count, returns: 0, dry_at: 0, is_awaited: false };
        let group = Group {
            region,
            count,
            buffer_bytes: bytes_each,
            stride_bytes: total / count,
            table,
            queue,
            _use: used,
            refusal,
            free: Mutex::new(free),
            waker,
        };
        // So that the first is on top.
        (0..count as u16).rev().for_each(|index| group.give_back(index));
        Ok(BufferGroup(Arc::new(group)))
    }

    /// The size of each buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.0.buffer_bytes
    }

    /// How many buffers the group has.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Buffers that nobody has leased. Of these the kernel may have filled some, whose completions
    /// were not taken yet.
    pub fn available(&self) -> usize {
        self.0.count - self.0.lock().leased
    }

    /// Whether the kernel chooses the buffers.
    pub fn is_registered(&self) -> bool {
        self.0.queue.is_some()
    }

    /// Why the kernel does not choose the buffers, where it does not.
    pub fn refusal(&self) -> Option<&str> {
        self.0.refusal.as_deref()
    }

    pub(crate) fn belongs_to(&self, table: u32) -> bool {
        self.0.table == table
    }

    /// As a call names it. Valid while an operation has the group.
    pub(crate) fn lower(&self) -> (*const Group, Option<u16>) {
        (Arc::as_ptr(&self.0), self.0.queue.as_ref().map(|(_, number)| *number))
    }

    /// Takes the buffer that a result names. Each result passes once.
    pub(crate) fn lease(&self, index: u16, len: usize) -> Received {
        assert!(usize::from(index) < self.0.count, "a buffer that the group does not have");
        if self.0.queue.is_some() {
            self.0.lock().leased += 1;
        }
        let len = len.min(self.0.buffer_bytes);
        Received { group: Arc::clone(&self.0), index, len }
    }

    /// A receive that was handed over when `returns` buffers had come back found none.
    pub(crate) fn run_dry(&self, returns: u64) {
        let mut free = self.0.lock();
        free.dry_at = free.dry_at.max(returns);
    }

    /// How many came back since one was last missing: so many receives may go on at a time. Some
    /// of them may find nothing to receive and leave their buffer to others, so more may go on as
    /// long as none is missing again.
    pub(crate) fn returned(&self) -> u64 {
        let free = self.0.lock();
        free.returns.saturating_sub(free.dry_at)
    }

    /// How many buffers ever came back.
    pub(crate) fn returns(&self) -> u64 {
        self.0.lock().returns
    }

    /// Asks for a nudge when the next buffer comes back. What came before has to be looked for
    /// after this.
    pub(crate) fn await_return(&self) {
        self.0.lock().is_awaited = true;
    }
}

/// What the simulated machine has of a group.
#[cfg(feature = "sim")]
impl BufferGroup {
    /// The group that a call names, to be kept beyond the call.
    ///
    /// # Safety
    ///
    /// The name is that of [`lower`](Self::lower), and the operation has the group.
    pub(crate) unsafe fn named(group: *const Group) -> BufferGroup {
        // SAFETY: the name came from such a reference, which the operation keeps.
        unsafe {
            Arc::increment_strong_count(group);
            BufferGroup(Arc::from_raw(group))
        }
    }

    /// As [`Group::take`].
    pub(crate) fn take(&self) -> Option<u16> {
        self.0.take()
    }

    /// As [`Group::put_back`].
    pub(crate) fn put_back(&self, index: u16) {
        self.0.put_back(index);
    }

    /// As [`Group::memory`].
    pub(crate) fn memory(&self, index: u16) -> (*mut u8, usize) {
        self.0.memory(index)
    }
}

impl Group {
    /// Takes a free buffer, for whoever receives without the kernel's queue. It comes back by
    /// [`put_back`](Self::put_back), or as the lease of the result that names it.
    pub(crate) fn take(&self) -> Option<u16> {
        let mut free = self.lock();
        let index = free.stack.pop()?;
        free.leased += 1;
        Some(index)
    }

    /// Gives a buffer back that nothing was received into.
    pub(crate) fn put_back(&self, index: u16) {
        let mut free = self.lock();
        free.stack.push(index);
        free.leased -= 1;
    }

    /// Where a buffer lies that was taken.
    pub(crate) fn memory(&self, index: u16) -> (*mut u8, usize) {
        (self.pointer(index), self.buffer_bytes)
    }

    fn pointer(&self, index: u16) -> *mut u8 {
        // SAFETY: index < count, so the offset lies within the region's one allocation.
        unsafe { self.region.base().add(usize::from(index) * self.stride_bytes) }
    }

    /// A lease ends.
    fn give_back(&self, index: u16) {
        let mut free = self.lock();
        free.leased -= 1;
        match &self.queue {
            Some((entries, _)) => {
                let tail = free.tail;
                entries.put(tail, self.pointer(index), self.buffer_bytes as u32, index);
                free.tail = tail.wrapping_add(1);
                entries.publish(free.tail);
            }
            None => free.stack.push(index),
        }
        free.returns += 1;
        let is_awaited = std::mem::take(&mut free.is_awaited);
        drop(free);
        if is_awaited {
            self.waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        lock(&self.free)
    }
}

impl fmt::Debug for BufferGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferGroup")
            .field("count", &self.0.count)
            .field("buffer_bytes", &self.0.buffer_bytes)
            .field("is_registered", &self.is_registered())
            .finish_non_exhaustive()
    }
}

/// What was received, in a buffer of a [`BufferGroup`] to which it goes back when dropped.
///
/// Its length is the number of bytes received. The lease keeps its memory valid even if the group and the
/// loop are gone. It is an [`OwnedBuffer`](crate::OwnedBuffer), so it can be sent as it is.
///
/// # Examples
///
/// ```
/// use std::{io::Write, os::fd::OwnedFd, os::unix::net::UnixStream};
/// use ringwise::{BufferGroup, Descriptor, Local, Operation};
///
/// let mut local = Local::new()?;
/// let group = BufferGroup::new(&mut local, 4, 64)?;
/// let (ours, mut theirs) = UnixStream::pair()?;
/// let ours = Descriptor::from(OwnedFd::from(ours));
/// local.push(Operation::recv_multi(&ours, &group), 1)?;
/// theirs.write_all(b"hello")?;
/// local.submit_and_wait(1)?;
/// let received = local.next_completion().and_then(|done| done.into_received()).expect("bytes came");
/// assert_eq!(&*received, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Received {
    group: Arc<Group>,
    index: u16,
    len: usize,
}

impl Drop for Received {
    fn drop(&mut self) {
        self.group.give_back(self.index);
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer belongs to this lease alone (see the header), is initialised, and the
        // length is within it.
        unsafe { slice::from_raw_parts(self.group.pointer(self.index), self.len) }
    }
}

impl DerefMut for Received {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow of the lease is exclusive.
        unsafe { slice::from_raw_parts_mut(self.group.pointer(self.index), self.len) }
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Received(#{}, {} bytes)", self.index, self.len)
    }
}
