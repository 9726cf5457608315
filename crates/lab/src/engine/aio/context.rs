//! A queue of Linux AIO: io_submit(2) and io_getevents(2), and the buffers of what is in flight.
//!
//! # Safety
//!
//! The kernel reads and writes buffers while their operations are in flight. A buffer belongs to [`Context`] from
//! [`Context::push`] on. It comes back from [`Context::next`] only after its completion. Dropping the context waits for
//! all that is in flight before the buffers are freed.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    ptr,
    time::Duration,
};

use ringwise::AlignedBuf;

use crate::{error::plain, sampling::job::Failure};

/// `struct iocb` of include/uapi/linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ControlBlock {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_descriptor: u32,
}

/// `struct io_event` of the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<Event>() == 32);

/// What an operation does: `IOCB_CMD_PREAD`, `PWRITE`, `FSYNC`, `FDSYNC` of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Sync = 2,
    DataSync = 3,
}

/// An operation that has ended.
#[derive(Debug)]
pub(crate) struct Completion {
    pub tag: usize,
    pub result: io::Result<usize>,
    pub buffer: Option<AlignedBuf>,
}

/// A queue of the kernel.
#[derive(Debug)]
pub(crate) struct Context {
    id: libc::c_ulong,
    /// By the tag of the operation: whether it was pushed and has not come back, and its buffer.
    slots: Vec<Option<Option<AlignedBuf>>>,
    prepared: Vec<ControlBlock>,
    events: Vec<Event>,
    /// Events that the last call found, and how many of them were taken.
    found: usize,
    taken: usize,
    pub submitted: u64,
    pub system_calls: u64,
}

impl Context {
    /// A queue for so many operations at once. Their tags are below that number.
    pub fn new(depth: usize) -> Result<Context, Failure> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number to a live variable.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut id) };
        if result == -1 {
            let error = io::Error::last_os_error();
            let remedy = match error.raw_os_error() {
                Some(libc::EAGAIN) => "; raise fs.aio-max-nr (sysctl)",
                Some(libc::ENOSYS) => "; use a kernel with CONFIG_AIO",
                _ => "",
            };
            return Err(Failure::Unavailable(format!("io_setup: {}{remedy}", plain(&error))));
        }
        Ok(Context {
            id,
            slots: (0..depth).map(|_| None).collect(),
            prepared: Vec::with_capacity(depth),
            events: vec![Event::default(); depth],
            found: 0,
            taken: 0,
            submitted: 0,
            system_calls: 0,
        })
    }

    /// Prepares an operation on the whole buffer. It is handed over by the next call that submits.
    ///
    /// # Panics
    ///
    /// An operation with this tag has not come back.
    pub fn push(
        &mut self,
        (tag, command): (usize, Command),
        file: &impl AsFd,
        (offset, mut buffer): (u64, Option<AlignedBuf>),
    ) {
        assert!(self.slots[tag].is_none(), "the operation {tag} is in flight");
        let (address, bytes) = match &mut buffer {
            Some(buffer) => (buffer.as_mut_ptr() as u64, buffer.len() as u64),
            None => (0, 0),
        };
        self.slots[tag] = Some(buffer);
        self.prepared.push(ControlBlock {
            data: tag as u64,
            opcode: command as u16,
            descriptor: file.as_fd().as_raw_fd() as u32,
            buffer: address,
            bytes,
            offset: offset as i64,
            ..ControlBlock::default()
        });
    }

    /// Hands over all that was prepared.
    pub fn submit(&mut self) -> Result<(), Failure> {
        let mut pointers: Vec<*mut ControlBlock> =
            self.prepared.iter_mut().map(ptr::from_mut).collect();
        while !pointers.is_empty() {
            self.system_calls += 1;
            // SAFETY: the pointers are to live control blocks, which the kernel copies during the call; the buffers that
            // they name stay in their slots until the operation has ended.
            let taken = unsafe {
                libc::syscall(libc::SYS_io_submit, self.id, pointers.len(), pointers.as_mut_ptr())
            };
            // At least one is taken, or it is an error; the context holds as many as there are slots.
            let taken = usize::try_from(taken).map_err(|_| failed("io_submit"))?;
            self.submitted += taken as u64;
            pointers.drain(..taken);
        }
        self.prepared.clear();
        Ok(())
    }

    /// Hands over all that was prepared, and waits for `want` completions, not longer than a timeout if there is one. All
    /// that were there before have to be taken.
    pub fn submit_and_wait(
        &mut self,
        want: usize,
        timeout: Option<Duration>,
    ) -> Result<(), Failure> {
        self.submit()?;
        debug_assert_eq!(self.taken, self.found, "completions were not taken");
        let mut time = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        loop {
            self.system_calls += 1;
            // SAFETY: the array of events is live and has room for as many as are told; the time is live or null.
            let found = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.id,
                    want,
                    self.events.len(),
                    self.events.as_mut_ptr(),
                    time.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
                )
            };
            match usize::try_from(found) {
                Ok(found) => {
                    (self.found, self.taken) = (found, 0);
                    return Ok(());
                }
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(failed("io_getevents")),
            }
        }
    }

    /// A completion that is there, with its buffer.
    pub fn next(&mut self) -> Option<Completion> {
        let event = *self.events[..self.found].get(self.taken)?;
        self.taken += 1;
        let tag = event.data as usize;
        let result = usize::try_from(event.result)
            .map_err(|_| io::Error::from_raw_os_error(-event.result as i32));
        Some(Completion { tag, result, buffer: self.slots[tag].take().flatten() })
    }
}

fn failed(call: &str) -> Failure {
    Failure::Io(format!("{call}: {}", plain(&io::Error::last_os_error())))
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is this one's own. The call waits for what is in flight, so that the buffers, dropped after
        // this, are the kernel's no more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}
