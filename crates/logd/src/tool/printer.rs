//! Where selected lines go: to standard output, or to a client of the status page. It selects nothing.

use std::{
    io::{self, Write},
    ops::{ControlFlow, Range},
    os::fd::AsFd,
    thread,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    disk::segment::{format::name::Stream, reading::cursor::Piece},
    tool::shown::Shown,
};

/// Takes lines, and says for how long they are wanted.
pub(crate) trait Printer {
    /// Prints the lines of a piece of a stream, and says whether to go on.
    fn print(&mut self, stream: Stream, piece: &Piece<'_>) -> io::Result<ControlFlow<()>>;

    /// Takes note of lines that are not printed, because they are not there or because there are too many.
    fn skip(&mut self, stream: Stream, lines: &Range<u64>);

    fn flush(&mut self) -> io::Result<()>;

    /// Waits for so long at most, and says whether anybody still wants lines.
    fn wait(&mut self, time: Duration) -> bool;
}

/// Prints all lines to standard output.
pub(super) struct Plain<'a, W> {
    pub(super) shown: &'a Shown,
    pub(super) out: W,
    /// Whether missing lines are reported as they are passed.
    pub(super) are_gaps_told: bool,
}

impl<W: Write> Printer for Plain<'_, W> {
    fn print(&mut self, _stream: Stream, piece: &Piece<'_>) -> io::Result<ControlFlow<()>> {
        self.shown.print(piece, u64::MAX, &mut self.out)?;
        Ok(ControlFlow::Continue(()))
    }

    fn skip(&mut self, stream: Stream, lines: &Range<u64>) {
        if self.are_gaps_told {
            tell_gap(stream, lines);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn wait(&mut self, time: Duration) -> bool {
        has_output_after(time)
    }
}

/// Reports missing lines on standard error.
pub(super) fn tell_gap(stream: Stream, lines: &Range<u64>) {
    let (from, to) = (lines.start, lines.end - 1);
    let _ = writeln!(io::stderr(), "ringwise: logd: {stream}: lines {from} to {to} are missing");
}

/// Waits, and says whether anybody still reads standard output. While no line comes, no write would fail.
pub(super) fn has_output_after(time: Duration) -> bool {
    // The kernel always reports that the other end of a pipe is closed (poll(2)).
    is_open_after(time, io::stdout(), PollFlags::empty())
}

/// Waits for so long, or until the other end of a descriptor is closed. Says whether it is open. `more` are the events
/// that also mean that it is closed.
pub(crate) fn is_open_after(time: Duration, descriptor: impl AsFd, more: PollFlags) -> bool {
    let mut watched = [PollFd::new(&descriptor, more)];
    let limit = Timespec::try_from(time).expect("the callers wait for seconds at most");
    match poll(&mut watched, Some(&limit)) {
        Ok(0) => true,
        Ok(_) => !watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | more),
        Err(_) => {
            thread::sleep(time);
            true
        }
    }
}
