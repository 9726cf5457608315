//! Prints lines as they are stored.

use std::{
    collections::BTreeMap,
    io::Write,
    ops::{ControlFlow, Range},
    path::Path,
    time::Duration,
};

use crate::{
    disk::segment::{
        format::name::Stream,
        reading::{
            newest::{Most, begin_of_newest},
            reader::{end_of, place_of},
            source::{InDirectory, streams},
        },
    },
    error::LogdError,
    tool::{
        merge::{Wanted, write_merged},
        printer::{Plain, Printer},
        problems::tell_if_empty,
    },
};

/// How often the directory is looked at.
pub(super) const LOOK_TIME: Duration = Duration::from_millis(200);
/// Lines before the end at which `tail` begins.
const TAIL_LINES: u64 = 10;
/// Lines before the end at which a live view begins.
const LIVE_LINES: u64 = 50;
/// The most bytes of a stream that a live view reads when it looks, but for a batch that has more.
const LIVE_BYTES: u64 = 4 << 20;

/// How far a stream was printed.
pub(super) struct Place {
    /// The segment that has the next line, or the one before that.
    pub(super) serial: u64,
    pub(super) next: u64,
}

/// Decides where a stream goes on. It gets the next line, if some were printed. Returns the lines that are left out
/// before the first one to print.
type Start<'a> = dyn Fn(&InDirectory<'_>, Option<u64>) -> Result<Range<u64>, LogdError> + 'a;

pub(super) fn tail(
    directory: &Path,
    wanted: &Wanted<'_>,
    from: Option<u64>,
    once: bool,
    out: &mut impl Write,
) -> Result<(), LogdError> {
    tell_if_empty(directory, &streams(directory)?);
    let mut printer = Plain { shown: wanted.selection.shown, out, are_gaps_told: true };
    let mut places = BTreeMap::new();
    let first = |segments: &InDirectory<'_>, _| {
        let end = || end_of(segments).map(|end| end.unwrap_or(0).saturating_sub(TAIL_LINES));
        let first = from.map_or_else(end, Ok)?;
        Ok(first..first)
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
    places: BTreeMap<Stream, Place>,
    from: u64,
    printer: &mut dyn Printer,
) -> Result<(), LogdError> {
    let start = |_: &InDirectory<'_>, next: Option<u64>| {
        let next = next.unwrap_or(from);
        Ok(next..next)
    };
    go_on(directory, wanted, places, &start, printer)
}

/// Prints the last lines of each stream, and then what comes after them, until nobody wants more. Of what a stream got
/// since the last look, it reads only the batches with the last `lines_max` lines, and no more than [`LIVE_BYTES`].
pub(super) fn live(
    directory: &Path,
    wanted: &Wanted<'_>,
    lines_max: u64,
    printer: &mut dyn Printer,
) -> Result<(), LogdError> {
    let last = |segments: &InDirectory<'_>, _| {
        let most = Most { lines: LIVE_LINES, is_before_newest: false, bytes: LIVE_BYTES };
        let first = begin_of_newest(segments, 0, most)?;
        Ok(first..first)
    };
    let newest = |segments: &InDirectory<'_>, next: Option<u64>| {
        let next = next.unwrap_or(0);
        let most = Most { lines: lines_max, is_before_newest: true, bytes: LIVE_BYTES };
        Ok(next..begin_of_newest(segments, next, most)?)
    };
    let mut places = BTreeMap::new();
    let _ = print_new(directory, wanted, &mut places, &last, printer)?;
    go_on(directory, wanted, places, &newest, printer)
}

/// Prints what is new, again and again.
fn go_on(
    directory: &Path,
    wanted: &Wanted<'_>,
    mut places: BTreeMap<Stream, Place>,
    start: &Start<'_>,
    printer: &mut dyn Printer,
) -> Result<(), LogdError> {
    loop {
        if print_new(directory, wanted, &mut places, start, printer)?.is_break() {
            return Ok(());
        }
        if !printer.wait(LOOK_TIME) {
            return Err(LogdError::BrokenPipe);
        }
    }
}

/// Prints what comes after the given places, once.
fn print_new(
    directory: &Path,
    wanted: &Wanted<'_>,
    places: &mut BTreeMap<Stream, Place>,
    start: &Start<'_>,
    printer: &mut dyn Printer,
) -> Result<ControlFlow<()>, LogdError> {
    let mut sources = Vec::new();
    for (stream, mut serials) in wanted.among(streams(directory)?) {
        let known = places.get(&stream);
        serials.retain(|serial| known.is_none_or(|place| *serial >= place.serial));
        let segments = InDirectory::new(directory, stream, serials);
        let left_out = start(&segments, known.map(|place| place.next))?;
        if !left_out.is_empty() {
            printer.skip(stream, &left_out);
        }
        let next = left_out.end;
        let place = place_of(&segments, next)?;
        places.insert(stream, Place { serial: segments.serial(place), next });
        sources.push(wanted.source(stream, segments, place, next)?);
    }
    let flow = write_merged(&mut sources, &wanted.selection, printer)?;
    printer.flush().map_err(|error| LogdError::output(&error))?;
    for source in sources {
        if let Some(place) = places.get_mut(&source.stream) {
            place.next = source.reader.next_line();
        }
    }
    Ok(flow)
}
