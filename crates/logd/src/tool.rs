//! `ringwise logd cat`, `tail`, `query`, `verify` and `fetch`.

mod follow;
mod merge;
pub(crate) mod printer;
mod problems;
pub(crate) mod query;
mod selection;
pub(crate) mod shown;

use std::{
    io::{self, BufWriter, Write},
    path::Path,
};

use crate::{
    args::Tool,
    disk::segment::reading::{
        reader::verify,
        source::{InDirectory, streams},
    },
    error::LogdError,
    upload::fetch::fetch,
};
use follow::tail;
use merge::{Wanted, write_merged};
use printer::{Plain, Printer};
use problems::{no_segments, tell_if_empty, told};

/// Bytes of output that are gathered before they are written.
const OUT_BYTES: usize = 64 << 10;

/// Runs a tool as typed.
pub(crate) fn run(tool: &Tool, out: &mut impl Write) -> Result<(), LogdError> {
    let out = &mut BufWriter::with_capacity(OUT_BYTES, out);
    match tool {
        Tool::Cat { directory, stream, from, dead, shown } => {
            cat(directory, &Wanted::new(*stream, *dead, shown), *from, out)
        }
        Tool::Tail { directory, stream, from, dead, once, shown } => {
            tail(directory, &Wanted::new(*stream, *dead, shown), *from, *once, out)
        }
        Tool::Query(args) => query::run(args, out),
        Tool::Verify { directory } => verify_all(directory, out),
        Tool::Fetch { place, directory } => fetch(place, directory, out),
    }
}

fn cat(
    directory: &Path,
    wanted: &Wanted<'_>,
    from: u64,
    out: &mut impl Write,
) -> Result<(), LogdError> {
    let streams = streams(directory)?;
    tell_if_empty(directory, &streams);
    let streams = wanted.among(streams);
    let sources = streams.map(|(stream, serials)| {
        wanted.source(stream, InDirectory::new(directory, stream, serials), 0, from)
    });
    let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
    // Missing lines are reported below, or retention removed them.
    let mut printer = Plain { shown: wanted.selection.shown, out, are_gaps_told: false };
    let _ = write_merged(&mut sources, &wanted.selection, &mut printer)?;
    printer.flush().map_err(|error| LogdError::output(&error))?;
    told(sources.iter().flat_map(|source| source.reader.problems()))
}

fn verify_all(directory: &Path, out: &mut impl Write) -> Result<(), LogdError> {
    let mut problems = 0;
    let streams = streams(directory)?;
    if streams.is_empty() {
        return Err(LogdError::Failed(no_segments(directory)));
    }
    for (stream, serials) in streams {
        let segments = InDirectory::new(directory, stream, serials);
        let found = verify(&segments, |line| {
            // A large segment takes long, so each line is shown when it is known.
            let written = writeln!(out, "{line}").and_then(|()| out.flush());
            written.map_err(|error| LogdError::output(&error))
        })?;
        for problem in found {
            problems += 1;
            let _ = writeln!(io::stderr(), "ringwise: logd: {problem}");
        }
    }
    match problems {
        0 => Ok(()),
        1 => Err(LogdError::Failed(format!("1 problem in {}", directory.display()))),
        _ => Err(LogdError::Failed(format!("{problems} problems in {}", directory.display()))),
    }
}
