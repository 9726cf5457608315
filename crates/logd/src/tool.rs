//! `ringwise logd cat`, `tail` and `verify`: segments for people and scripts.

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
    error::LogdError,
    segment::{
        name::{Content, Stream},
        reader::{end_of, place_of, streams, verify, views, write_lines},
    },
};

/// How often `tail` looks.
const LOOK_TIME: Duration = Duration::from_millis(200);
/// Lines before the end at which `tail` begins.
const TAIL_LINES: u64 = 10;

/// Runs a tool as typed.
pub(crate) fn run(tool: &Tool, out: &mut impl Write) -> Result<(), LogdError> {
    match tool {
        Tool::Cat { directory, stream, from, dead } => {
            let wanted = Wanted::new(*stream, *dead);
            for (stream, serials) in wanted.among(streams(directory)?) {
                let views = views(directory, stream, &serials, 0)?;
                // What is missing is a problem that is told below, or was removed by retention.
                write_lines(&views, *from, |_| {}, out)?;
                let problems = verify(&views).problems;
                if let Some(problem) = problems.first() {
                    return Err(LogdError::Failed(format!("{problem}; the rest was printed")));
                }
            }
            out.flush().map_err(|error| LogdError::output(&error))
        }
        Tool::Tail { directory, stream, from, dead, once } => {
            tail(directory, &Wanted::new(*stream, *dead), *from, *once, out)
        }
        Tool::Verify { directory } => verify_all(directory, out),
    }
}

/// Which streams are meant.
struct Wanted {
    content: Content,
    number: Option<u32>,
}

impl Wanted {
    fn new(number: Option<u32>, dead: bool) -> Wanted {
        let content = if dead { Content::DeadLetters } else { Content::Lines };
        Wanted { content, number }
    }

    fn among(
        &self,
        all: BTreeMap<Stream, Vec<u64>>,
    ) -> impl Iterator<Item = (Stream, Vec<u64>)> + use<> {
        let Wanted { content, number } = *self;
        all.into_iter().filter(move |(stream, _)| {
            stream.content == content && number.is_none_or(|number| stream.number == number)
        })
    }
}

fn tail(
    directory: &Path,
    wanted: &Wanted,
    from: Option<u64>,
    once: bool,
    out: &mut impl Write,
) -> Result<(), LogdError> {
    let mut places: BTreeMap<Stream, Place> = BTreeMap::new();
    let mut is_first = true;
    loop {
        for (stream, mut serials) in wanted.among(streams(directory)?) {
            let next = match (places.get(&stream), from) {
                (Some(place), _) => {
                    serials.retain(|serial| *serial >= place.serial);
                    place.next
                }
                (None, Some(from)) => from,
                (None, None) if is_first => last_lines(directory, stream, &serials)?,
                (None, None) => 0,
            };
            places.insert(stream, follow(directory, stream, &serials, next, out)?);
        }
        out.flush().map_err(|error| LogdError::output(&error))?;
        if once {
            return Ok(());
        }
        is_first = false;
        if !has_reader_after(LOOK_TIME) {
            return Err(LogdError::BrokenPipe);
        }
    }
}

/// Waits, and says whether anybody still reads standard output. Where no line comes no write tells.
fn has_reader_after(time: Duration) -> bool {
    let stdout = io::stdout();
    // Of what it is not asked for the kernel tells that the other end of a pipe is closed (poll(2)).
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

/// How far a stream was printed.
struct Place {
    /// The segment that has the next line, or will be followed by it.
    serial: u64,
    next: u64,
}

/// Prints a stream's lines from `next` on, and says which are not there.
fn follow(
    directory: &Path,
    stream: Stream,
    serials: &[u64],
    next: u64,
    out: &mut impl Write,
) -> Result<Place, LogdError> {
    let first = place_of(directory, stream, serials, next)?;
    let views = views(directory, stream, &serials[first..], next)?;
    let skip = |lines: Range<u64>| {
        let (from, to) = (lines.start, lines.end - 1);
        let _ =
            writeln!(io::stderr(), "ringwise: logd: {stream}: lines {from} to {to} are not there");
    };
    let next = write_lines(&views, next, skip, out)?;
    Ok(Place { serial: serials.get(first).copied().unwrap_or(0), next })
}

/// Where the last lines of a stream begin.
fn last_lines(directory: &Path, stream: Stream, serials: &[u64]) -> Result<u64, LogdError> {
    for place in (0..serials.len()).rev() {
        // None of those behind it has a line that would bound it.
        if let Some(end) = end_of(&views(directory, stream, &serials[place..=place], 0)?) {
            return Ok(end.saturating_sub(TAIL_LINES));
        }
    }
    Ok(0)
}

fn verify_all(directory: &Path, out: &mut impl Write) -> Result<(), LogdError> {
    let mut problems = 0;
    let streams = streams(directory)?;
    if streams.is_empty() {
        // Whoever named another directory than was meant should not take it for a good one.
        let _ = writeln!(io::stderr(), "ringwise: logd: {}: no segments", directory.display());
    }
    for (stream, serials) in streams {
        let verdict = verify(&views(directory, stream, &serials, 0)?);
        for line in &verdict.lines {
            writeln!(out, "{line}").map_err(|error| LogdError::output(&error))?;
        }
        for problem in &verdict.problems {
            problems += 1;
            let _ = writeln!(io::stderr(), "ringwise: logd: {problem}");
        }
    }
    match problems {
        0 => Ok(()),
        _ => Err(LogdError::Failed(format!("{problems} problems in {}", directory.display()))),
    }
}
