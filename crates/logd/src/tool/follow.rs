//! Prints lines as they are stored.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    ops::{ControlFlow, Range},
    path::Path,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    disk::segment::{
        format::name::Stream,
        reading::{
            cursor::Piece,
            reader::{end_of, place_of},
            source::{InDirectory, streams},
        },
    },
    error::LogdError,
    tool::merge::{Wanted, write_merged},
};

/// How often the directory is looked at.
const LOOK_TIME: Duration = Duration::from_millis(200);
/// Lines before the end at which `tail` begins.
const TAIL_LINES: u64 = 10;

/// How far a stream was printed.
pub(super) struct Place {
    /// The segment that has the next line, or the one before that.
    pub(super) serial: u64,
    pub(super) next: u64,
}

/// Where lines are printed, and how.
pub(super) trait Printer {
    /// Prints the lines of a piece, and says whether to go on.
    fn print(&mut self, piece: &Piece<'_>) -> io::Result<ControlFlow<()>>;

    fn flush(&mut self) -> io::Result<()>;
}

pub(super) fn tail(
    directory: &Path,
    wanted: &Wanted<'_>,
    from: Option<u64>,
    once: bool,
    out: &mut impl Write,
) -> Result<(), LogdError> {
    struct All<'a, W> {
        wanted: &'a Wanted<'a>,
        out: W,
    }

    impl<W: Write> Printer for All<'_, W> {
        fn print(&mut self, piece: &Piece<'_>) -> io::Result<ControlFlow<()>> {
            self.wanted.selection.shown.print(piece, u64::MAX, &mut self.out)?;
            Ok(ControlFlow::Continue(()))
        }

        fn flush(&mut self) -> io::Result<()> {
            self.out.flush()
        }
    }

    let mut printer = All { wanted, out };
    let mut places = BTreeMap::new();
    let first = |segments: &InDirectory<'_>| match from {
        Some(from) => Ok(from),
        None => Ok(end_of(segments)?.unwrap_or(0).saturating_sub(TAIL_LINES)),
    };
    let _ = print_new(directory, wanted, &mut places, &first, &mut printer)?;
    if once {
        return Ok(());
    }
    follow(directory, wanted, places, from.unwrap_or(0), &mut printer)
}

/// Prints what comes after the given places, until the printer or nobody wants more. A stream without a place begins
/// with the line `from`.
pub(super) fn follow(
    directory: &Path,
    wanted: &Wanted<'_>,
    mut places: BTreeMap<Stream, Place>,
    from: u64,
    printer: &mut dyn Printer,
) -> Result<(), LogdError> {
    loop {
        if print_new(directory, wanted, &mut places, &|_| Ok(from), printer)?.is_break() {
            return Ok(());
        }
        if !has_reader_after(LOOK_TIME) {
            return Err(LogdError::BrokenPipe);
        }
    }
}

/// Prints what comes after the given places, once. `first` decides where a stream without a place begins.
fn print_new(
    directory: &Path,
    wanted: &Wanted<'_>,
    places: &mut BTreeMap<Stream, Place>,
    first: &dyn Fn(&InDirectory<'_>) -> Result<u64, LogdError>,
    printer: &mut dyn Printer,
) -> Result<ControlFlow<()>, LogdError> {
    let skip = |stream: Stream, lines: &Range<u64>| {
        let (from, to) = (lines.start, lines.end - 1);
        let _ =
            writeln!(io::stderr(), "ringwise: logd: {stream}: lines {from} to {to} are not there");
    };
    let mut sources = Vec::new();
    for (stream, mut serials) in wanted.among(streams(directory)?) {
        let known = places.get(&stream);
        serials.retain(|serial| known.is_none_or(|place| *serial >= place.serial));
        let segments = InDirectory::new(directory, stream, serials);
        let next = known.map_or_else(|| first(&segments), |place| Ok(place.next))?;
        let place = place_of(&segments, next)?;
        places.insert(stream, Place { serial: segments.serial(place), next });
        sources.push(wanted.source(stream, segments, place, next)?);
    }
    let mut write = |piece: &Piece<'_>| printer.print(piece);
    let flow = write_merged(&mut sources, &wanted.selection, skip, &mut write)?;
    printer.flush().map_err(|error| LogdError::output(&error))?;
    for source in sources {
        if let Some(place) = places.get_mut(&source.stream) {
            place.next = source.reader.next_line();
        }
    }
    Ok(flow)
}

/// Waits, and says whether anybody still reads standard output. While no line comes, no write would fail.
fn has_reader_after(time: Duration) -> bool {
    let stdout = io::stdout();
    // The kernel always reports that the other end of a pipe is closed (poll(2)).
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let limit = Timespec::try_from(time).expect("less than a second");
    match poll(&mut watched, Some(&limit)) {
        Ok(0) => true,
        Ok(_) => !watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
        Err(_) => {
            std::thread::sleep(time);
            true
        }
    }
}
