//! `aio`: Linux AIO, the older queue: io_submit(2) and io_getevents(2). Asynchronous for direct
//! reads only; a buffered read is made within io_submit.
//!
//! # Safety
//!
//! The kernel writes into the slots' buffers while their reads are in flight. The buffers belong
//! to `Context`, which hands out a slot's bytes only after its completion, and destroys the
//! kernel's context, waiting for all in flight, before the buffers are freed.
#![allow(unsafe_code)]

use std::{fs::File, io, os::fd::AsRawFd, ptr, sync::Arc};

use ringwise::AlignedBuf;

use super::{Engine, Named, Tally, buffer, rolling};
use crate::{
    error::plain,
    sampling::{
        job::{Failure, Job, Request, Start, Timing},
        lane::Lane,
    },
};

/// `struct iocb` of include/uapi/linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
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
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<Event>() == 32);

const IOCB_CMD_PREAD: u16 = 0;

/// The engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aio;

impl Named for Aio {
    const DEFAULT: Aio = Aio;

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(self)
    }
}

impl Engine for Aio {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut context = Context::new(job)?;
        let window = start.ready()?;
        let lane = Lane::new(job, window, 0, 1);
        let tally = rolling::drive(&mut context, &window, lane, job)?;
        Ok(Tally {
            submitted: Some(context.submitted),
            system_calls: Some(context.system_calls),
            ..tally
        })
    }
}

struct Context {
    id: libc::c_ulong,
    job: Arc<Job>,
    files: Vec<File>,
    buffers: Vec<AlignedBuf>,
    requests: Vec<Request>,
    prepared: Vec<ControlBlock>,
    events: Vec<Event>,
    /// Events that the last call found, and how many of them were taken.
    found: usize,
    taken: usize,
    submitted: u64,
    system_calls: u64,
}

impl Context {
    fn new(job: &Arc<Job>) -> Result<Context, Failure> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number to a live variable.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, job.depth, &raw mut id) };
        if result == -1 {
            let error = io::Error::last_os_error();
            return Err(Failure::Unavailable(format!("io_setup: {}", plain(&error))));
        }
        Ok(Context {
            id,
            job: job.clone(),
            files: job.open()?,
            buffers: (0..job.depth).map(|_| buffer(job)).collect(),
            requests: vec![Request::default(); job.depth],
            prepared: Vec::with_capacity(job.depth),
            events: vec![Event::default(); job.depth],
            found: 0,
            taken: 0,
            submitted: 0,
            system_calls: 0,
        })
    }

    fn hand_over(&mut self) -> Result<(), Failure> {
        let mut pointers: Vec<*mut ControlBlock> =
            self.prepared.iter_mut().map(ptr::from_mut).collect();
        while !pointers.is_empty() {
            self.system_calls += 1;
            // SAFETY: the pointers are to live control blocks, which the kernel copies during the
            // call; the buffers that they name stay until this context is destroyed.
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
}

fn failed(call: &str) -> Failure {
    Failure::Io(format!("{call}: {}", plain(&io::Error::last_os_error())))
}

impl rolling::Queue for Context {
    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure> {
        let bytes = &mut self.buffers[slot];
        self.requests[slot] = request;
        self.prepared.push(ControlBlock {
            data: slot as u64,
            opcode: IOCB_CMD_PREAD,
            descriptor: self.files[request.file].as_raw_fd() as u32,
            buffer: bytes.as_mut_ptr() as u64,
            bytes: bytes.len() as u64,
            offset: request.offset as i64,
            ..ControlBlock::default()
        });
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Failure> {
        self.hand_over()
    }

    fn submit_and_wait(&mut self, want: usize) -> Result<(), Failure> {
        self.hand_over()?;
        loop {
            self.system_calls += 1;
            // SAFETY: the array of events is live and has room for as many as are told.
            let found = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.id,
                    want,
                    self.events.len(),
                    self.events.as_mut_ptr(),
                    ptr::null_mut::<libc::timespec>(),
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

    fn reap(&mut self, take: &mut rolling::Take<'_>) -> Result<(), Failure> {
        let Some(event) = self.events[..self.found].get(self.taken) else { return Ok(()) };
        self.taken += 1;
        let slot = event.data as usize;
        let read = usize::try_from(event.result).map_err(|_| {
            let error = io::Error::from_raw_os_error(-event.result as i32);
            self.job.read_failed(self.requests[slot], &error)
        })?;
        take(slot, &self.buffers[slot][..read])
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is this one's own. The call waits for what is in flight, so that the
        // buffers, dropped after this, are the kernel's no more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}
