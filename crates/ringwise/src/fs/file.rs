//! An open file: reads and writes at offsets, from any task.

use std::{
    os::fd::{AsFd, AsRawFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use super::{
    abandoned::{Abandoned, EVERYWHERE},
    inline::{Caller, INLINE_BYTES_MAX, Inline},
    nature::{Nature, Way, has_positions},
    turn,
};
use crate::{
    buf::{AlignedBuf, BufResult, Buffer, OwnedBuffer, OwnedBufferMut, from_buffers},
    descriptor::Descriptor,
    error::{Errno, Error, OFFSET_MAX},
    flight::completion::Completion,
    op::{
        AllocateMode, Hint, Opcode, OpenOptions, Operation, Witness,
        metadata::{DirectAlignment, Metadata},
    },
    ring::{Ring, Timer},
    sys::cache::page_cache,
};

/// A thread makes longer reads, cached or not: parts of it would move between the runtime's threads
/// (docs/notes/library/reads.md).
const COPIED_BYTES_MAX: usize = 4 << 20;
/// How much is read at a time from a file of unknown length.
const CHUNK_BYTES: usize = 64 << 10;

/// An open file, shared by reference count: clones are the same open file.
///
/// Every operation takes an offset, so any number may be under way. A buffer comes back with the result,
/// on failure too.
///
/// # Cancel safety
///
/// If the future of a read is dropped, the read is cancelled. If the future of a write or a sync is
/// dropped, the operation goes on to its end once it has begun. Later overlapping writes, and all syncs,
/// chains and closes of the same open file, wait for such a write, so that it neither overwrites a newer
/// one nor lands after a sync (see [`settled`](Self::settled)). If
/// [`write_all_at`](Self::write_all_at) is dropped, the syscall under way ends and no other begins.
///
/// # Reads and writes without the ring
///
/// If the page cache serves a read of at most 4 MiB or takes a write of at most 1 MiB without waiting, the
/// polling thread makes it. After each mebibyte, or at most 256 calls, the future lets other tasks run.
/// Everything else goes to the ring, or to a thread if that is known to be cheaper.
///
/// # Examples
///
/// ```
/// use ringwise::{OpenOptions, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("log");
/// let options = OpenOptions::new().read(true).write(true).create(true);
/// let file = File::open(&ring, &path, options).await?;
/// file.write_all_at("one record", 0).await.into_result()?;
/// file.sync_data().await?;
/// let bytes = file.read_exact_at([0; 3], 4).await.into_buffer()?;
/// assert_eq!(&bytes, b"rec");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct File {
    pub(super) ring: Ring,
    pub(super) descriptor: Descriptor,
    pub(super) shared: Arc<Shared>,
    pub(super) deadline: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) nature: Nature,
    /// Whether a sync has failed, on this handle or on a clone of it.
    syncs: Arc<Witness>,
    /// Writes whose futures were dropped.
    pub(super) abandoned: Arc<Abandoned>,
}

impl File {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Why it could not be opened.
    pub async fn open(
        ring: &Ring,
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Result<File, Error> {
        let opened = ring.submit(Operation::open(path, options)).await;
        let descriptor = opened.into_descriptor()?;
        let mut alignment = 1;
        if options.is_direct() {
            let about = ring.submit(Operation::statx_descriptor(&descriptor)).await.metadata()?;
            let asked = about.direct_alignment().unwrap_or_default();
            alignment = asked.offset.max(asked.memory) as usize;
        }
        Ok(File::with_alignment(ring, descriptor, alignment))
    }

    /// Takes over a file that is open already.
    pub fn from_std(ring: &Ring, file: std::fs::File) -> File {
        let direct = rustix::fs::fcntl_getfl(&file)
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::DIRECT));
        let asked = DirectAlignment::default();
        let alignment = if direct { asked.offset.max(asked.memory) as usize } else { 1 };
        File::with_alignment(ring, Descriptor::from(file), alignment)
    }

    pub(super) fn with_alignment(ring: &Ring, descriptor: Descriptor, alignment: usize) -> File {
        let nature = Nature::of(&descriptor, alignment);
        let shared = Shared { nature, syncs: Arc::default(), abandoned: Arc::default() };
        File { ring: ring.clone(), descriptor, shared: Arc::new(shared), deadline: None }
    }

    /// Gives a handle to the same open file whose functions have a deadline. The time counts from when a
    /// function first has to wait, for all its parts together. Then the function fails with
    /// [`TimedOut`](crate::ErrorKind::TimedOut), and the buffer comes back.
    ///
    /// A write or a sync that the device has, or an operation that a thread makes, cannot be stopped. The
    /// future then waits for its end and gives its result. [`close`](Self::close) has no deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{os::fd::OwnedFd, time::Duration};
    /// use ringwise::{BufResult, ErrorKind, Ring, fs::File};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let (reader, _writer) = std::io::pipe()?;
    /// let pipe = File::from_std(&ring, OwnedFd::from(reader).into());
    /// let BufResult(read, buffer) =
    ///     pipe.with_deadline(Duration::from_millis(10)).read_at(vec![0; 64], 0).await;
    /// assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);
    /// assert_eq!(buffer.len(), 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn with_deadline(&self, after: Duration) -> File {
        File { deadline: Some(after), ..self.clone() }
    }

    fn caller(&self) -> Caller<'_> {
        Caller { ring: &self.ring, descriptor: &self.descriptor, nature: &self.shared.nature }
    }

    pub(super) fn timer(&self) -> Timer {
        Timer::new(&self.ring, self.deadline)
    }

    async fn make(&self, operation: Operation) -> Completion {
        self.timer().make(&self.ring, operation).await
    }

    /// Gives the file back for use with the standard library.
    ///
    /// # Errors
    ///
    /// The file itself, when a clone or an operation in flight still holds it.
    pub fn into_std(self) -> Result<std::fs::File, File> {
        let File { ring, descriptor, shared, deadline } = self;
        descriptor.into_file().map_err(|descriptor| File { ring, descriptor, shared, deadline })
    }

    /// The descriptor, for operations that this type has no function for.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The ring that its operations go through.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Reads at `offset` bytes, and gives the number of bytes.
    ///
    /// It is 0 at and past the end of the file. It can be smaller than the buffer before the end too: on a
    /// pipe or socket, for more than 0x7fff_f000 bytes, or if an error or the deadline came after a part (the
    /// next read reports the error). [`read_exact_at`](Self::read_exact_at) reads on.
    ///
    /// If the file is direct and the offset, the length or the buffer is not aligned, the function reads
    /// all blocks that the range touches, and copies. To get an error instead, submit
    /// [`Operation::read_at`] on the [`descriptor`](Self::descriptor).
    ///
    /// # Errors
    ///
    /// What the read failed with.
    pub async fn read_at<B: OwnedBufferMut>(&self, buffer: B, offset: u64) -> BufResult<usize, B> {
        let buffer = buffer.into_buffer_mut();
        self.read_buffer(buffer, offset, &mut self.timer()).await.map_buffer(B::from_buffer)
    }

    /// Reads until the buffer is full.
    ///
    /// # Errors
    ///
    /// What a read failed with; [`UnexpectedEof`](crate::ErrorKind::UnexpectedEof) when the file ends
    /// before the buffer is full.
    pub async fn read_exact_at<B: OwnedBufferMut>(
        &self,
        buffer: B,
        offset: u64,
    ) -> BufResult<(), B> {
        self.move_all(Opcode::Read, buffer.into_buffer_mut(), offset)
            .await
            .map_buffer(B::from_buffer)
    }

    /// Reads or writes on, until all of the buffer was moved.
    async fn move_all(
        &self,
        opcode: Opcode,
        mut buffer: Buffer,
        offset: u64,
    ) -> BufResult<(), Buffer> {
        let whole = buffer.range();
        let mut timer = self.timer();
        let mut done = 0;
        let result = loop {
            if done == whole.len() {
                break Ok(());
            }
            let rest = buffer.selecting(whole.start + done..whole.end);
            // A socket refuses all offsets but 0.
            let is_at = done == 0 || self.has_positions();
            let at = if is_at { offset.saturating_add(done as u64) } else { offset };
            let result;
            BufResult(result, buffer) = match opcode {
                Opcode::Read => self.read_buffer(rest, at, &mut timer).await,
                _ => self.write_buffer(rest, at, &mut timer).await,
            };
            match result {
                Ok(0) if opcode == Opcode::Read => {
                    let error = self.error(opcode, libc::ENODATA).at_offset(at);
                    break Err(error.advise("the file ends before the buffer is full"));
                }
                // The write moved nothing and reported no error. Another one could do so for ever.
                Ok(0) => break Err(self.error(opcode, libc::EIO).at_offset(at)),
                Ok(count) => done += count,
                Err(error) => break Err(error),
            }
        };
        BufResult(result, buffer.selecting(whole))
    }

    /// Reads the whole file.
    ///
    /// # Errors
    ///
    /// What a read failed with.
    pub async fn read_to_end(&self) -> Result<Vec<u8>, Error> {
        let mut timer = self.timer();
        let about = Operation::statx_descriptor(&self.descriptor);
        let len = timer.make(&self.ring, about).await.metadata()?.len();
        let mut bytes = Vec::new();
        // Files without a length (in /proc) are read in steps; others in one, and a look whether
        // they have grown.
        let mut step = usize::try_from(len).unwrap_or(usize::MAX).max(CHUNK_BYTES);
        loop {
            let start = bytes.len();
            if bytes.try_reserve(step).is_err() {
                let error = self.error(Opcode::Read, libc::ENOMEM);
                return Err(error.advise("the file is longer than memory: read parts of it"));
            }
            let rest = bytes.spare().into_buffer_mut();
            let BufResult(result, buffer) = self.read_buffer(rest, start as u64, &mut timer).await;
            bytes = Vec::from_buffer(buffer);
            if result? == 0 {
                return Ok(bytes);
            }
            step = CHUNK_BYTES;
        }
    }

    /// Reads at `offset` bytes into several buffers in turn; at most 1024 buffers. What is not aligned
    /// on a direct file is served as by [`read_at`](Self::read_at).
    ///
    /// # Errors
    ///
    /// What the read failed with.
    pub async fn read_vectored_at<B: OwnedBufferMut>(
        &self,
        buffers: Vec<B>,
        offset: u64,
    ) -> BufResult<usize, Vec<B>> {
        let mut buffers: Vec<Buffer> =
            buffers.into_iter().map(OwnedBufferMut::into_buffer_mut).collect();
        if let Inline::Some(count) | Inline::End(count) =
            self.caller().read_vectored(&mut buffers, offset)
        {
            self.ring.count_inline_hit();
            turn::copied(count).await;
            return BufResult(Ok(count), from_buffers(buffers));
        }
        let is_aligned = buffers.iter().all(|buffer| self.is_aligned(buffer, offset));
        // The loop refuses what is wrong.
        let is_refused = offset > OFFSET_MAX || !buffers.iter().all(Buffer::is_writable);
        if !is_aligned && !is_refused {
            return self.scatter(buffers, offset).await.map_buffer(from_buffers);
        }
        let operation = Operation::read_vectored_at(&self.descriptor, buffers, offset);
        vectored(self.make(operation).await)
    }

    /// Writes at `offset`, and gives the number of bytes written, which may be smaller than the buffer.
    ///
    /// # Errors
    ///
    /// What the write failed with, or why an earlier sync failed (see [`sync_data`](Self::sync_data)).
    pub async fn write_at<B: OwnedBuffer>(&self, buffer: B, offset: u64) -> BufResult<usize, B> {
        let buffer = buffer.into_buffer();
        self.write_buffer(buffer, offset, &mut self.timer()).await.map_buffer(B::from_buffer)
    }

    /// Writes all of the buffer.
    ///
    /// # Errors
    ///
    /// As for [`write_at`](Self::write_at); part of it may have been written.
    pub async fn write_all_at<B: OwnedBuffer>(&self, buffer: B, offset: u64) -> BufResult<(), B> {
        self.move_all(Opcode::Write, buffer.into_buffer(), offset).await.map_buffer(B::from_buffer)
    }

    /// Writes several buffers in turn at `offset` bytes; at most 1024 buffers.
    ///
    /// # Errors
    ///
    /// As for [`write_at`](Self::write_at).
    pub async fn write_vectored_at<B: OwnedBuffer>(
        &self,
        buffers: Vec<B>,
        offset: u64,
    ) -> BufResult<usize, Vec<B>> {
        if let Err(error) = self.check_sync(Opcode::WriteVectored) {
            return BufResult(Err(error), buffers);
        }
        let buffers = buffers.into_iter().map(OwnedBuffer::into_buffer).collect();
        let operation = Operation::write_vectored_at(&self.descriptor, buffers, offset);
        let range = offset..operation.end_offset().unwrap_or(u64::MAX);
        vectored(self.change(range, operation, &mut self.timer()).await)
    }

    /// Makes the written data durable, with the metadata that is needed to read it back. The name of a new
    /// file is durable once its directory is synced too.
    ///
    /// # Errors
    ///
    /// The failure of a write whose future was dropped ([`settled`](Self::settled)), or
    /// [`TimedOut`](crate::ErrorKind::TimedOut) while the function waits for such a write: no sync was made
    /// then, so call it again. Otherwise, the error of the sync. Data that was written since the last
    /// successful sync may then be lost, and the kernel may not report it again. So every later write and
    /// sync of the file fails with the same error.
    pub async fn sync_data(&self) -> Result<(), Error> {
        self.sync(Operation::sync_data(&self.descriptor)).await
    }

    /// As [`sync_data`](Self::sync_data), with all metadata.
    ///
    /// # Errors
    ///
    /// As for [`sync_data`](Self::sync_data).
    pub async fn sync_all(&self) -> Result<(), Error> {
        self.sync(Operation::sync_all(&self.descriptor)).await
    }

    async fn sync(&self, operation: Operation) -> Result<(), Error> {
        self.check_sync(Opcode::Sync)?;
        let mut timer = self.timer();
        self.settle_all(&mut timer).await?;
        let operation = operation.witnessed_by(&self.shared.syncs);
        let done = timer.make(&self.ring, operation).await;
        self.step_result(&done).map(drop)
    }

    /// The result of an operation. A sync also fails if another sync failed that covered its writes.
    pub(super) fn step_result(&self, done: &Completion) -> Result<usize, Error> {
        if done.operation.failed_with_another() {
            self.check_sync(Opcode::Sync)?;
        }
        done.result()
    }

    /// The record of how its syncs ended.
    pub(super) fn syncs(&self) -> &Arc<Witness> {
        &self.shared.syncs
    }

    /// Refuses an operation if an earlier sync failed.
    pub(super) fn check_sync(&self, opcode: Opcode) -> Result<(), Error> {
        match self.shared.syncs.failure() {
            None => Ok(()),
            Some(errno) => Err(self.error(opcode, errno).advise(
                "an earlier sync of this file failed: what was written before it may be lost; \
                 write the file anew",
            )),
        }
    }

    /// The file's metadata. The polling thread reads it if the file system is local
    /// ([`is_local`](super::is_local)), because it is in memory then.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub async fn metadata(&self) -> Result<Metadata, Error> {
        if let Some(metadata) = self.caller().metadata() {
            self.ring.count_inline_hit();
            return Ok(metadata);
        }
        self.make(Operation::statx_descriptor(&self.descriptor)).await.metadata()
    }

    /// Sets the file's permission bits. A thread makes the syscall.
    ///
    /// # Errors
    ///
    /// Why they could not be set.
    pub async fn set_permissions(&self, permissions: std::fs::Permissions) -> Result<(), Error> {
        use std::os::unix::fs::PermissionsExt;
        let operation = Operation::set_mode_descriptor(&self.descriptor, permissions.mode());
        self.make(operation).await.result().map(drop)
    }

    /// Allocates or frees space, as fallocate(2).
    ///
    /// # Errors
    ///
    /// Why it could not be done.
    pub async fn allocate(&self, mode: AllocateMode, offset: u64, len: u64) -> Result<(), Error> {
        let operation = Operation::allocate(&self.descriptor, mode, offset, len);
        self.change(EVERYWHERE, operation, &mut self.timer()).await.result().map(drop)
    }

    /// Cuts the file, or lengthens it by a hole.
    ///
    /// # Errors
    ///
    /// Why it could not be done.
    pub async fn set_len(&self, len: u64) -> Result<(), Error> {
        let operation = Operation::set_len(&self.descriptor, len);
        self.change(EVERYWHERE, operation, &mut self.timer()).await.result().map(drop)
    }

    /// Closes the file, and reports an error that a drop would not (NFS, FUSE).
    ///
    /// # Errors
    ///
    /// The failure of a write whose future was dropped; what the close failed with, after which the file
    /// is closed all the same; `EBUSY` if a clone or an operation in flight still holds the file, which
    /// then stays open.
    pub async fn close(self) -> Result<(), Error> {
        let settled = self.settle_all(&mut Timer::Endless).await;
        let File { ring, descriptor, .. } = self;
        let closed = ring.submit(Operation::close(descriptor)).await.result();
        settled.and(closed.map(drop))
    }

    pub(super) async fn read_buffer(
        &self,
        mut buffer: Buffer,
        offset: u64,
        timer: &mut Timer,
    ) -> BufResult<usize, Buffer> {
        let whole = buffer.range();
        if !buffer.is_writable() {
            // The loop refuses it, and says why.
            let operation = Operation::read_at(&self.descriptor, buffer, offset);
            return single(timer.make(&self.ring, operation).await);
        }
        if whole.len() > INLINE_BYTES_MAX && self.is_left_to_a_thread(offset, whole.len()) {
            return self.read_through(buffer, offset, Hint::ByThread, timer).await;
        }
        let mut done = 0;
        loop {
            let read = self.caller().read(&mut buffer, done, offset.saturating_add(done as u64));
            let (count, is_end) = match read {
                Inline::Some(count) => (count, done + count == whole.len()),
                Inline::End(count) => (count, true),
                Inline::Missed if done == 0 => {
                    let hint = self.shared.nature.read_hint();
                    return self.read_through(buffer, offset, hint, timer).await;
                }
                Inline::Missed => break,
            };
            done += count;
            if is_end {
                self.ring.count_inline_hit();
            }
            turn::copied(count).await;
            if is_end {
                return BufResult(Ok(done), buffer);
            }
        }
        let rest = buffer.selecting(whole.start + done..whole.end);
        let BufResult(result, buffer) = self
            .read_through(rest, offset + done as u64, self.shared.nature.read_hint(), timer)
            .await;
        // What was read was read; the next read meets the error again.
        BufResult(Ok(done + result.unwrap_or(0)), buffer.selecting(whole))
    }

    /// Whether a long read through the page cache is better made by a thread: one of which the cache
    /// has not all, since an attempt at its first part would have the kernel read ahead for that part
    /// only (mm/filemap.c, `filemap_get_pages`), and one that is long to copy.
    fn is_left_to_a_thread(&self, offset: u64, len: usize) -> bool {
        let is_long = len > COPIED_BYTES_MAX && self.shared.nature.read_way() != Way::Ring;
        is_long || self.is_partly_cold(offset, len)
    }

    /// Whether the page cache is known not to have all of a read.
    fn is_partly_cold(&self, offset: u64, len: usize) -> bool {
        let page = rustix::param::page_size() as u64;
        let Some(end) = offset.checked_add(len as u64) else { return false };
        self.shared.nature.read_way() == Way::Cache
            && page_cache(&self.descriptor, offset, len as u64)
                .is_ok_and(|state| state.cached_pages < end.div_ceil(page) - offset / page)
    }

    /// Reads through the ring, or by a thread of its loop.
    async fn read_through(
        &self,
        buffer: Buffer,
        offset: u64,
        hint: Hint,
        timer: &mut Timer,
    ) -> BufResult<usize, Buffer> {
        // The loop refuses an offset beyond every file.
        if offset <= OFFSET_MAX && !self.is_aligned(&buffer, offset) {
            return self.read_superset(buffer, offset, timer).await;
        }
        let operation = Operation::read_with_hint(&self.descriptor, buffer, offset, hint);
        single(timer.make(&self.ring, operation).await)
    }

    /// Whether it is no pipe, terminal or socket.
    pub(super) fn has_positions(&self) -> bool {
        // A descriptor that stands for a simulated file is a socket.
        let simulation = self.ring.simulation();
        simulation.is_some_and(|machine| machine.has_file(&self.descriptor))
            || has_positions(&self.descriptor)
    }

    pub(super) fn alignment(&self) -> usize {
        self.shared.nature.alignment
    }

    pub(super) fn is_aligned(&self, buffer: &Buffer, offset: u64) -> bool {
        let alignment = self.shared.nature.alignment;
        alignment == 1 || (offset.is_multiple_of(alignment as u64) && buffer.is_aligned(alignment))
    }

    /// Reads the blocks that a request touches, and copies what was asked for out of them.
    async fn read_superset(
        &self,
        mut buffer: Buffer,
        offset: u64,
        timer: &mut Timer,
    ) -> BufResult<usize, Buffer> {
        let alignment = self.shared.nature.alignment as u64;
        let wanted = buffer.len();
        let start = offset - offset % alignment;
        let skipped = (offset - start) as usize;
        let Some(end) =
            offset.checked_add(wanted as u64).map(|end| end.next_multiple_of(alignment))
        else {
            let error = self.error(Opcode::Read, libc::EINVAL).at_offset(offset);
            return BufResult(Err(error), buffer);
        };
        let superset = AlignedBuf::zeroed((end - start) as usize, alignment as usize);
        let operation = Operation::read_at(&self.descriptor, superset, start);
        self.ring.count_bounced_read();
        let BufResult(result, superset) = single(timer.make(&self.ring, operation).await);
        let result = result.map_err(|error| error.at_offset(offset));
        let result = result.map(|read| {
            let count = read.saturating_sub(skipped).min(wanted);
            buffer.put(0, &superset.as_slice()[skipped..skipped + count]);
            count
        });
        BufResult(result, buffer)
    }

    /// Reads the blocks that several buffers touch together, and hands out what was read.
    async fn scatter(
        &self,
        mut buffers: Vec<Buffer>,
        offset: u64,
    ) -> BufResult<usize, Vec<Buffer>> {
        let total = buffers.iter().map(Buffer::len).sum();
        let whole = Buffer::from(vec![0; total]);
        let BufResult(result, whole) = self.read_superset(whole, offset, &mut self.timer()).await;
        let mut rest = &whole.as_slice()[..*result.as_ref().unwrap_or(&0)];
        for buffer in &mut buffers {
            let (part, behind) = rest.split_at(rest.len().min(buffer.len()));
            buffer.put(0, part);
            rest = behind;
        }
        BufResult(result, buffers)
    }

    async fn write_buffer(
        &self,
        buffer: Buffer,
        offset: u64,
        timer: &mut Timer,
    ) -> BufResult<usize, Buffer> {
        if let Err(error) = self.check_sync(Opcode::Write) {
            return BufResult(Err(error), buffer);
        }
        let whole = buffer.range();
        let range = offset..offset.saturating_add(whole.len() as u64);
        if let Err(error) = self.settle(range, timer).await {
            return BufResult(Err(error), buffer);
        }
        let done = self.caller().write(buffer.selected(), offset);
        if done == 0 {
            return self.write_through(buffer, offset, timer).await;
        }
        if done == whole.len() {
            self.ring.count_inline_hit();
            turn::copied(done).await;
            return BufResult(Ok(done), buffer);
        }
        let rest = buffer.selecting(whole.start + done..whole.end);
        let BufResult(result, buffer) = self.write_through(rest, offset + done as u64, timer).await;
        // What was written was written; the next write meets the error again.
        BufResult(Ok(done + result.unwrap_or(0)), buffer.selecting(whole))
    }

    /// Writes through the ring.
    async fn write_through(
        &self,
        buffer: Buffer,
        offset: u64,
        timer: &mut Timer,
    ) -> BufResult<usize, Buffer> {
        let hint = self.shared.nature.write_hint(buffer.selected().len());
        let range = offset..offset.saturating_add(buffer.selected().len() as u64);
        let operation = Operation::write_with_hint(&self.descriptor, buffer, offset, hint);
        single(self.change(range, operation, timer).await)
    }

    pub(super) fn error(&self, opcode: Opcode, errno: i32) -> Error {
        Error::new(opcode, Errno(errno)).on_descriptor(self.descriptor.as_raw_fd())
    }
}

impl AsFd for File {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn single(completion: Completion) -> BufResult<usize, Buffer> {
    let result = completion.result();
    BufResult(result, completion.take_buffer().expect("reads and writes give their buffer back"))
}

fn vectored<B: OwnedBuffer>(completion: Completion) -> BufResult<usize, Vec<B>> {
    let result = completion.result();
    BufResult(result, from_buffers(completion.take_buffers()))
}
