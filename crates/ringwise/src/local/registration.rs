//! Registers files and memory with a loop's ring, and finds out whether the ring polls.
//!
//! Registering makes operations cheaper and does not change their meaning. If the kernel refuses or
//! there is no ring, the same names still work. `descriptor/registry.rs` knows which
//! entries of the table may be used again.

use std::os::fd::AsRawFd;

use super::{Local, TABLE_IS_FULL, restricted::SEALED, streams::no_waker};
use crate::{
    buf::{AlignedBuf, BufferGroup, Pool, Token},
    descriptor::{Descriptor, RegisteredFile, registry::Release},
    error::{Errno, Error},
    op::{Opcode, Operation},
    settings::setup::Effect,
};

impl BufferGroup {
    /// Makes a group of `count` buffers of `bytes_each` bytes. `count` is a power of two up to
    /// 32768, and all buffers together have at most 1 GiB. A few small buffers are fast, since
    /// their memory is used again while it is in the cache: 64 buffers of 2 KiB serve many
    /// connections with requests and answers.
    ///
    /// On a ring the kernel chooses the buffers (Linux 5.19); elsewhere the loop does, with the
    /// same meaning. [`is_registered`](Self::is_registered) tells which. A registration ends when
    /// the last handle, lease and operation of the group have gone and the loop is next driven.
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that no group can have, `EMFILE` if there is no descriptor left to wake
    /// the loop with.
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
    /// ([`Builder::seal`](crate::Builder::seal)), and the errors of io_uring_register(2).
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
    /// `EBADF` when the file is not, or no longer, in this loop's table; `EACCES` when the loop is
    /// sealed.
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
        // Emptying an entry of an existing table needs no resource, so it cannot fail.
        let _ = self.driver.set_file(entry, None);
        self.registry.vacate(entry);
    }

    /// Makes a pool of `count` buffers of `buffer_bytes` each and registers it with the ring, so
    /// that operations on its buffers skip pinning their pages. A pool has at most 1 GiB, and a
    /// loop at most 64 pools at a time. A registration ends when the pool's last handle, lease and
    /// operation have gone and the loop is next driven.
    ///
    /// If the pool cannot be registered (a locked-memory limit, the classic backend), it is
    /// ordinary memory with the same meaning. [`Pool::registration`] says which it is and why.
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

    /// Unregisters memory that nobody uses any more.
    #[cold]
    pub(super) fn unregister_unused(&mut self) {
        for token in self.registrations.take_unused() {
            // While the kernel keeps a registration, its memory is kept too.
            if self.driver.unregister(token).is_ok() {
                self.registrations.forget(token);
            }
        }
    }

    /// Reads 4 KiB of `file` through a ring that was asked to poll, and returns whether it polls.
    ///
    /// Such a ring opens on any kernel, but on a device without polling queues each read fails
    /// (`EOPNOTSUPP` since Linux 6.10 or so). Only a read can show this. The file has to be opened
    /// for direct reading. The answer is kept in [`Setup::iopoll`](crate::Setup::iopoll).
    ///
    /// # Errors
    ///
    /// The error of the read, if it says nothing about polling. Then nothing is known yet.
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
