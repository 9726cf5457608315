//! What a loop registers with its ring: files, memory, and whether the ring polls for them.
//!
//! Registering makes operations cheaper and changes nothing of what they mean: where the kernel
//! refuses, or there is no ring, the same names work. Which of a table's entries may be used again
//! is `registry.rs`'s to know.

use std::os::fd::AsRawFd;

use super::{Local, TABLE_IS_FULL, restricted::SEALED, streams::no_waker};
use crate::{
    buf::{AlignedBuf, BufferGroup, Pool, Token},
    descriptor::{Descriptor, RegisteredFile},
    error::{Errno, Error},
    op::{Opcode, Operation},
    registry::Release,
    setup::Effect,
};

impl BufferGroup {
    /// Makes a group of `count` buffers of `bytes_each`, `count` a power of two up to 32768, all
    /// of them together at most 1 GiB. Few and small is fast, since the same memory is used again
    /// while it is in the cache: 64 of 2 KiB serve many connections that ask and are answered.
    ///
    /// On a ring from Linux 5.19 on the kernel chooses; elsewhere the loop does, with the same
    /// meaning: [`is_registered`](Self::is_registered) tells. What is registered is given up when the
    /// last group, lease and operation of it have gone and the loop is next driven.
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that no group can have, `EMFILE` where no descriptor is to be had to
    /// wake the loop by.
    pub fn new(local: &mut Local, count: usize, bytes_each: usize) -> Result<BufferGroup, Error> {
        local.unregister_unused();
        let waker = local.driver.waker().map_err(no_waker)?;
        let Local { driver, registrations, number, setup, .. } = local;
        BufferGroup::build(count, bytes_each, *number, waker, |entries, memory| {
            if setup.is_sealed() {
                return Err(SEALED.into());
            }
            let group = driver.register_entries(entries)?;
            Ok((group, registrations.keep(Token::Group(group), memory)))
        })
    }
}

impl Local {
    /// Puts a file into the loop's table, for cheaper operations on it. The loop keeps the file
    /// open until it is taken out.
    ///
    /// # Errors
    ///
    /// `ENFILE` when the table is full (see
    /// [`Builder::registered_files`](crate::Builder::registered_files)), `EACCES` when the loop is sealed
    /// ([`Builder::seal`](crate::Builder::seal)), and what io_uring_register(2) reports.
    pub fn register_file(&mut self, file: &Descriptor) -> Result<RegisteredFile, Error> {
        self.check_open()?;
        let full = || Error::new(Opcode::Register, Errno(libc::ENFILE)).advise(TABLE_IS_FULL);
        let entry = self.registry.reserve().ok_or_else(full)?;
        if let Err(errno) = self.driver.set_file(entry, Some(file.as_raw_fd())) {
            self.registry.vacate(entry);
            return Err(Error::new(Opcode::Register, errno));
        }
        Ok(self.registry.opened(entry, Some(file.clone())))
    }

    /// Takes a file out of the loop's table, at once or when the last operation on it completes.
    ///
    /// # Errors
    ///
    /// `EBADF` when it is not in this loop's table, or no longer; `EACCES` when the loop is sealed.
    pub fn unregister_file(&mut self, file: RegisteredFile) -> Result<(), Error> {
        self.check_open()?;
        match self.registry.release(file) {
            Some(Release::Now(entry)) => {
                self.clear_entry(entry);
                Ok(())
            }
            Some(Release::Later) => Ok(()),
            None => Err(Error::new(Opcode::Register, Errno(libc::EBADF))
                .advise("it is not registered with this loop, or no longer")),
        }
    }

    pub(super) fn clear_entry(&mut self, entry: u32) {
        // Emptying an entry of a table that exists cannot fail for want of anything.
        let _ = self.driver.set_file(entry, None);
        self.registry.vacate(entry);
    }

    /// Makes a pool of `count` buffers of `buffer_bytes` each and registers it with the ring, so
    /// that operations on its buffers skip pinning their pages. At most 1 GiB, and 64 pools at a time:
    /// one is given up when its last handle, lease and operation have gone and the loop is next driven.
    ///
    /// Where the kernel refuses (a locked-memory limit, the classic backend) the pool is ordinary
    /// memory with the same meaning; [`Pool::registration`] says which and why.
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that no pool can have.
    pub fn register_pool(&mut self, count: usize, buffer_bytes: usize) -> Result<Pool, Error> {
        self.unregister_unused();
        let Local { driver, registrations, number, setup, .. } = self;
        Pool::build(count, buffer_bytes, |base, len, memory| {
            if setup.is_sealed() {
                return Err(SEALED.into());
            }
            let index = driver.register_region(base, len)?;
            Ok((*number, index, registrations.keep(Token::Pool(index), memory)))
        })
    }

    /// Takes out of the ring what nobody uses any more.
    #[cold]
    pub(super) fn unregister_unused(&mut self) {
        for token in self.registrations.take_unused() {
            // What the kernel keeps keeps its memory too.
            if self.driver.unregister(token).is_ok() {
                self.registrations.forget(token);
            }
        }
    }

    /// Reads 4 KiB of `file` through a ring that was asked to poll, and tells whether it does.
    ///
    /// Such a ring opens on any kernel; on a device without polling queues each read then fails
    /// (`EOPNOTSUPP` since Linux 6.10 or so), which only a read can show. The file has to be
    /// opened for direct reading. The answer is kept in [`Setup::iopoll`](crate::Setup::iopoll).
    ///
    /// # Errors
    ///
    /// Why the read failed, where that says nothing about polling: then nothing is known yet.
    pub fn probe_iopoll(&mut self, file: &Descriptor) -> Result<Effect, Error> {
        if self.setup.iopoll == Effect::Unknown {
            let buffer = AlignedBuf::zeroed(4096, 4096);
            let read = self.run(Operation::read_at(file, buffer, 0)).and_then(|done| done.result());
            self.setup.iopoll = match read {
                Ok(_) => Effect::Effective,
                Err(error) if error.errno() == libc::EOPNOTSUPP => Effect::Ineffective(
                    "a polled read returned EOPNOTSUPP: the device has no polling queues \
                     (its queue/io_poll is 0), or the file is not open for direct I/O"
                        .into(),
                ),
                Err(error) => return Err(error),
            };
        }
        Ok(self.setup.iopoll.clone())
    }
}
