//! Threads that write pieces of files through the page cache, for an engine whose own thread waits
//! in a ring.
//!
//! All pieces of a file go to one of them: the kernel lets one at a time write to a file in any
//! case. Whoever waits in the ring is woken by a byte in a pipe, which it has the ring read. They end
//! when this is dropped, after the pieces that they have.

use std::{
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use ringwise::{Buffer, Descriptor};
use rustix::{
    io::{self, Errno},
    pipe::{PipeFlags, pipe_with},
};

use crate::place::retry;

/// A part of a file, in memory.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) file: u64,
    pub(super) buffer: Buffer,
    pub(super) len: usize,
    pub(super) offset: u64,
}

/// The threads.
#[derive(Debug)]
pub(super) struct Writers {
    lanes: Vec<Sender<(Descriptor, Piece)>>,
    threads: Vec<JoinHandle<()>>,
    /// Pieces that they have.
    pub(super) pieces: usize,
    done: Receiver<Written>,
    /// What has a byte for whatever is done.
    pub(super) bell: Descriptor,
}

/// A piece and what came of it, or the panic that it ended in.
type Written = thread::Result<(Piece, Result<(), Errno>)>;

impl Writers {
    /// None: there are no threads or descriptors to be had.
    pub(super) fn open(count: usize) -> Option<Writers> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let writer = Arc::new(writer);
        let (sender, done) = mpsc::channel();
        let (mut lanes, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (lane, pieces) = mpsc::channel();
            let (sender, writer) = (sender.clone(), writer.clone());
            let body = move || write_all(&pieces, &sender, &writer);
            let Ok(thread) = thread::Builder::new().name("cp-write".into()).spawn(body) else {
                break;
            };
            lanes.push(lane);
            threads.push(thread);
        }
        let bell = Descriptor::from(reader);
        (!lanes.is_empty()).then_some(Writers { lanes, threads, pieces: 0, done, bell })
    }

    pub(super) fn count(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn write(&mut self, copy: Descriptor, piece: Piece) {
        self.pieces += 1;
        let lane = piece.file as usize % self.lanes.len();
        self.lanes[lane].send((copy, piece)).expect("they end when their lanes do");
    }

    /// A piece that was written meanwhile.
    pub(super) fn take(&mut self) -> Option<(Piece, Result<(), Errno>)> {
        let written = self.done.try_recv().ok()?;
        self.pieces -= 1;
        Some(written.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// The next that is written, where one is to come.
    pub(super) fn wait(&mut self) -> Option<(Piece, Result<(), Errno>)> {
        if self.pieces == 0 {
            return None;
        }
        let written = self.done.recv().expect("what they have comes back");
        self.pieces -= 1;
        Some(written.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.lanes.clear();
        for thread in self.threads.drain(..) {
            // A panic in it was told with its piece.
            let _ = thread.join();
        }
    }
}

fn write_all(pieces: &Receiver<(Descriptor, Piece)>, done: &Sender<Written>, bell: &OwnedFd) {
    while let Ok((copy, piece)) = pieces.recv() {
        let written = catch_unwind(AssertUnwindSafe(|| {
            let result = write(&copy, &piece);
            // Whoever ends the file wants its descriptor alone.
            drop(copy);
            (piece, result)
        }));
        if done.send(written).is_err() {
            return;
        }
        // A pipe that is full rings already.
        let _ = retry(|| io::write(bell, &[0]));
    }
}

fn write(copy: &Descriptor, piece: &Piece) -> Result<(), Errno> {
    let bytes = &piece.buffer.as_slice()[..piece.len];
    let mut done = 0;
    while done < bytes.len() {
        match retry(|| io::pwrite(copy, &bytes[done..], piece.offset + done as u64))? {
            0 => return Err(Errno::NOSPC),
            count => done += count,
        }
    }
    Ok(())
}
