//! `ringwise logd cat`, `tail` and `verify`.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    ops::Range,
    path::Path,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    args::Tool,
    disk::segment::{
        format::name::{Content, Stream},
        reading::{
            reader::{Piece, Reader, end_of, place_of, verify},
            source::{InDirectory, streams},
        },
    },
    error::LogdError,
};

mod shown;

pub(crate) use shown::Shown;

/// How often `tail` looks for new lines.
const LOOK_TIME: Duration = Duration::from_millis(200);
/// Lines before the end at which `tail` begins.
const TAIL_LINES: u64 = 10;

/// Runs a tool as typed.
pub(crate) fn run(tool: &Tool, out: &mut impl Write) -> Result<(), LogdError> {
    match tool {
        Tool::Cat { directory, stream, from, dead, shown } => {
            cat(directory, &Wanted::new(*stream, *dead, shown), *from, out)
        }
        Tool::Tail { directory, stream, from, dead, once, shown } => {
            tail(directory, &Wanted::new(*stream, *dead, shown), *from, *once, out)
        }
        Tool::Verify { directory } => verify_all(directory, out),
    }
}

/// The streams and lines that the user asked for.
struct Wanted<'a> {
    content: Content,
    number: Option<u32>,
    shown: &'a Shown,
}

impl<'a> Wanted<'a> {
    fn new(number: Option<u32>, dead: bool, shown: &'a Shown) -> Wanted<'a> {
        let content = if dead { Content::DeadLetters } else { Content::Lines };
        Wanted { content, number, shown }
    }

    /// Begins to read a stream.
    fn source<'b>(
        &self,
        stream: Stream,
        segments: InDirectory<'b>,
        place: usize,
        from: u64,
    ) -> Result<Source<'b>, LogdError> {
        let mut reader =
            Reader::new(segments, place, from).with_origins(self.shown.needs_origins());
        let piece = reader.next()?;
        Ok(Source { stream, reader, piece })
    }

    fn among(
        &self,
        all: BTreeMap<Stream, Vec<u64>>,
    ) -> impl Iterator<Item = (Stream, Vec<u64>)> + use<> {
        let Wanted { content, number, .. } = *self;
        all.into_iter().filter(move |(stream, _)| {
            stream.content == content && number.is_none_or(|number| stream.number == number)
        })
    }
}

/// A stream that is read.
struct Source<'a> {
    stream: Stream,
    reader: Reader<InDirectory<'a>>,
    /// The next piece of this stream; nothing at its end.
    piece: Option<Piece>,
}

/// Writes the lines of several streams, batch by batch in the order of their times. `skip` gets the lines
/// that are missing.
fn write_merged(
    sources: &mut [Source<'_>],
    shown: &Shown,
    out: &mut impl Write,
    skip: impl Fn(Stream, &Range<u64>),
) -> Result<(), LogdError> {
    loop {
        let oldest = sources.iter_mut().filter(|source| source.piece.is_some());
        let oldest = oldest.min_by_key(|source| source.piece.as_ref().map(|it| it.time_ms));
        let Some(source) = oldest else {
            return out.flush().map_err(|error| LogdError::output(&error));
        };
        let Some(piece) = source.piece.take() else { continue };
        if !piece.missing.is_empty() {
            skip(source.stream, &piece.missing);
        }
        shown.write(&piece, out).map_err(|error| LogdError::output(&error))?;
        source.piece = source.reader.next()?;
    }
}

fn cat(
    directory: &Path,
    wanted: &Wanted<'_>,
    from: u64,
    out: &mut impl Write,
) -> Result<(), LogdError> {
    let streams = wanted.among(streams(directory)?);
    let sources = streams.map(|(stream, serials)| {
        wanted.source(stream, InDirectory::new(directory, stream, serials), 0, from)
    });
    let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
    // Missing lines are reported below, or retention removed them.
    write_merged(&mut sources, wanted.shown, out, |_, _| {})?;
    let mut problems = sources.iter().flat_map(|source| source.reader.problems());
    match problems.next() {
        Some(problem) => Err(LogdError::Failed(format!("{problem}; the rest was printed"))),
        None => Ok(()),
    }
}

/// How far a stream was printed.
struct Place {
    /// The segment that has the next line, or the one before that.
    serial: u64,
    next: u64,
}

fn tail(
    directory: &Path,
    wanted: &Wanted<'_>,
    from: Option<u64>,
    once: bool,
    out: &mut impl Write,
) -> Result<(), LogdError> {
    let mut places: BTreeMap<Stream, Place> = BTreeMap::new();
    let mut is_first = true;
    let skip = |stream: Stream, lines: &Range<u64>| {
        let (from, to) = (lines.start, lines.end - 1);
        let _ =
            writeln!(io::stderr(), "ringwise: logd: {stream}: lines {from} to {to} are not there");
    };
    loop {
        let mut sources = Vec::new();
        for (stream, mut serials) in wanted.among(streams(directory)?) {
            let known = places.get(&stream);
            serials.retain(|serial| known.is_none_or(|place| *serial >= place.serial));
            let segments = InDirectory::new(directory, stream, serials);
            let next = match (known, from) {
                (Some(place), _) => place.next,
                (None, Some(from)) => from,
                (None, None) if is_first => {
                    end_of(&segments)?.unwrap_or(0).saturating_sub(TAIL_LINES)
                }
                (None, None) => 0,
            };
            let place = place_of(&segments, next)?;
            places.insert(stream, Place { serial: segments.serial(place), next });
            sources.push(wanted.source(stream, segments, place, next)?);
        }
        write_merged(&mut sources, wanted.shown, out, skip)?;
        for Source { stream, reader, .. } in sources {
            if let Some(place) = places.get_mut(&stream) {
                place.next = reader.next_line();
            }
        }
        if once {
            return Ok(());
        }
        is_first = false;
        if !has_reader_after(LOOK_TIME) {
            return Err(LogdError::BrokenPipe);
        }
    }
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

fn verify_all(directory: &Path, out: &mut impl Write) -> Result<(), LogdError> {
    let mut problems = 0;
    let streams = streams(directory)?;
    if streams.is_empty() {
        // A mistyped directory should not pass for a good one.
        let _ = writeln!(io::stderr(), "ringwise: logd: {}: no segments", directory.display());
    }
    for (stream, serials) in streams {
        let segments = InDirectory::new(directory, stream, serials);
        let found = verify(&segments, |line| {
            writeln!(out, "{line}").map_err(|error| LogdError::output(&error))
        })?;
        for problem in found {
            problems += 1;
            let _ = writeln!(io::stderr(), "ringwise: logd: {problem}");
        }
    }
    match problems {
        0 => Ok(()),
        _ => Err(LogdError::Failed(format!("{problems} problems in {}", directory.display()))),
    }
}
