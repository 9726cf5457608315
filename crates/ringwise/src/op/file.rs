//! Operations on an open file: read, write, sync, allocate, set the length, close.

use std::sync::Arc;

use crate::{
    buf::{Buffer, Mapping, OwnedBuffer, OwnedBufferMut},
    descriptor::{Descriptor, Target},
    op::{AllocateMode, Closing, Hint, Kind, Operation, Vectored, Witness},
    sys::vector::Vectors,
};

impl Operation {
    /// Reads at `offset` bytes into the selected part of `buffer`, as pread(2).
    ///
    /// The result is the number of bytes; less than asked at the end of the file and 0 past it.
    /// At most 0x7fff_f000 bytes are moved at a time. On a file that has no positions (a pipe, a
    /// terminal) the offset is ignored, on both backends. A cancelled read fails with
    /// [`Cancelled`](crate::ErrorKind::Cancelled) and gives the buffer back; it may hold bytes.
    ///
    /// Needs Linux 5.6 on the ring.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Local, Operation};
    ///
    /// let mut local = Local::new()?;
    /// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
    /// let done = local.run(Operation::read_at(&file, vec![0; 64], 0))?;
    /// let count = done.result()?;
    /// let bytes = done.into_buffer().unwrap().into_vec().unwrap();
    /// assert!(bytes[..count].ends_with(b"\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_at(
        target: impl Into<Target>,
        buffer: impl OwnedBufferMut,
        offset: u64,
    ) -> Operation {
        Operation::of(Kind::Read {
            target: target.into(),
            buffer: buffer.into_buffer_mut(),
            offset,
            hint: Hint::Nothing,
        })
    }

    /// The same, of which something is known already.
    pub(crate) fn read_with_hint(
        file: &Descriptor,
        buffer: Buffer,
        offset: u64,
        hint: Hint,
    ) -> Operation {
        Operation::of(Kind::Read { target: Target::from(file), buffer, offset, hint })
    }

    /// The same, of the eventfd that wakes the driver.
    pub(crate) fn read_bell(bell: &Descriptor) -> Operation {
        Operation::read_with_hint(bell, Buffer::from(vec![0; 8]), 0, Hint::Own)
    }

    /// Writes the selected part of `buffer` at `offset` bytes, as pwrite(2).
    ///
    /// The result is the number of bytes; less than asked when a limit or a full disk came in
    /// between. Written is not durable: see [`sync_data`](Self::sync_data). A write that was
    /// submitted goes on to its end when the loop is dropped. Needs Linux 5.6 on the ring.
    pub fn write_at(target: impl Into<Target>, buffer: impl OwnedBuffer, offset: u64) -> Operation {
        let (target, buffer) = (target.into(), buffer.into_buffer());
        Operation::of(Kind::Write { target, buffer, offset, hint: Hint::Nothing })
    }

    /// The same, of which something is known already.
    pub(crate) fn write_with_hint(
        file: &Descriptor,
        buffer: Buffer,
        offset: u64,
        hint: Hint,
    ) -> Operation {
        Operation::of(Kind::Write { target: Target::from(file), buffer, offset, hint })
    }

    /// Writes the bytes `range` of a mapping at `offset` bytes, as pwrite(2) from mapped memory:
    /// the kernel alone reads them.
    ///
    /// Where the mapped file was cut meanwhile, the write ends short before what is gone, or fails
    /// with `EFAULT`. Bytes that somebody changes meanwhile are written as they were at some
    /// moment. On a file opened with `O_DIRECT` range and offset have to be aligned as that file
    /// wants it. Simulated loops refuse it with `EOPNOTSUPP`.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the mapping.
    pub fn write_mapped_at(
        target: impl Into<Target>,
        mapping: &Mapping,
        range: std::ops::Range<u64>,
        offset: u64,
    ) -> Operation {
        let part = mapping.part(range);
        Operation::of(Kind::WriteMapped { target: target.into(), part, offset })
    }

    /// Reads at `offset` bytes into several buffers in turn, as preadv(2); at most 1024 buffers.
    pub fn read_vectored_at(
        target: impl Into<Target>,
        buffers: Vec<Buffer>,
        offset: u64,
    ) -> Operation {
        let buffers = buffers.into_iter().map(OwnedBufferMut::into_buffer_mut).collect();
        let vectored = Box::new(Vectored { buffers, vectors: Vectors::default() });
        Operation::of(Kind::ReadVectored { target: target.into(), vectored, offset })
    }

    /// Writes several buffers in turn at `offset` bytes, as pwritev(2); at most 1024 buffers.
    pub fn write_vectored_at(
        target: impl Into<Target>,
        buffers: Vec<Buffer>,
        offset: u64,
    ) -> Operation {
        let vectored = Box::new(Vectored { buffers, vectors: Vectors::default() });
        Operation::of(Kind::WriteVectored { target: target.into(), vectored, offset })
    }

    /// Puts a file's data and metadata on stable storage, as fsync(2).
    ///
    /// Only writes that have *completed* before this is submitted are covered. After a failure
    /// the file's unwritten data may be lost: the kernel reports the error once and a second sync
    /// can succeed without having written anything, so never retry it into success.
    pub fn sync_all(target: impl Into<Target>) -> Operation {
        sync(target.into(), false)
    }

    /// Puts a file's data, and the metadata needed to read it, on stable storage, as
    /// fdatasync(2). The warnings of [`sync_all`](Self::sync_all) hold.
    pub fn sync_data(target: impl Into<Target>) -> Operation {
        sync(target.into(), true)
    }

    /// Allocates, punches or zeroes `len` bytes at `offset`, as fallocate(2).
    pub fn allocate(
        target: impl Into<Target>,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Operation {
        Operation::of(Kind::Allocate { target: target.into(), mode: mode.flags(), offset, len })
    }

    /// Cuts or extends a file to `len` bytes, as ftruncate(2). Before Linux 6.9 the ring has no
    /// such operation and the call is made by a thread of the loop.
    pub fn set_len(target: impl Into<Target>, len: u64) -> Operation {
        Operation::of(Kind::SetLen { target: target.into(), len })
    }

    /// Closes a file and reports what close(2) reports.
    ///
    /// An ordinary descriptor has to be the last clone, with no operation in flight: otherwise the
    /// push is refused with [`Busy`](crate::ErrorKind::Busy) and the descriptor comes back. A
    /// registered file leaves the loop's table.
    pub fn close(target: impl Into<Target>) -> Operation {
        Operation::of(Kind::Close(match target.into() {
            Target::Descriptor(descriptor) => Closing::Descriptor(descriptor),
            Target::Registered(file) => Closing::Registered(file),
        }))
    }

    /// Takes back the descriptor of a close that was not pushed.
    pub fn into_descriptor(mut self) -> Option<Descriptor> {
        match *self.0.take()? {
            Kind::Close(Closing::Descriptor(descriptor)) => Some(descriptor),
            _ => None,
        }
    }
}

/// What a file's syncs tell it.
impl Operation {
    /// A sync that `of` is to know the end of.
    pub(crate) fn witnessed_by(mut self, of: &Arc<Witness>) -> Operation {
        if let Some(Kind::Sync { witness, .. }) = self.0.as_deref_mut() {
            *witness = Some(of.clone());
        }
        self
    }

    /// Whether the failure of a sync is not its own.
    pub(crate) fn failed_with_another(&self) -> bool {
        matches!(self.0.as_deref(), Some(Kind::Sync { failed_with_another: true, .. }))
    }

    /// Who is to know how it ends.
    pub(crate) fn witness(&self) -> Option<&Arc<Witness>> {
        match self.0.as_deref()? {
            Kind::Sync { witness, .. } => witness.as_ref(),
            _ => None,
        }
    }
}

fn sync(target: Target, data_only: bool) -> Operation {
    Operation::of(Kind::Sync { target, data_only, witness: None, failed_with_another: false })
}

#[cfg(all(not(ringwise_loom), test))]
mod tests {
    use super::*;
    use crate::{local::Local, settings::setup::BackendChoice};

    /// How many reads this thread has made.
    fn reads_of_this_thread() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
        line.unwrap().parse().unwrap()
    }

    /// How many reads the loop's thread makes for one of a cached file that is not alone, and to be
    /// told of that.
    fn reads_for(local: &mut Local, file: &Descriptor, hint: Hint) -> u64 {
        let before = reads_of_this_thread();
        local.push(Operation::nop(), 0).unwrap();
        let read = Operation::read_with_hint(file, Buffer::from(vec![0; 100]), 0, hint);
        local.push(read, 1).unwrap();
        for _ in 0..2 {
            while local.next_completion().is_none() {
                local.submit_and_wait(1).unwrap();
            }
        }
        reads_of_this_thread() - before
    }

    #[test]
    fn a_read_that_missed_the_cache_is_not_looked_for_in_it_again() {
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[7; 100]).unwrap();
        let file = Descriptor::from(file);
        let looked = reads_for(&mut local, &file, Hint::Nothing);
        // A thread's result may take a read of the eventfd that told of it, and does as long as the
        // thread is the slower.
        let is_fewer = (0..20_000).any(|_| reads_for(&mut local, &file, Hint::Missed) < looked);
        assert!(is_fewer, "never less than {looked}");
    }
}
