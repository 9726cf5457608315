//! `ringwise logd cat`, `tail` and `verify`: segments for people and scripts.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use crate::{
    args::Tool,
    error::LogdError,
    segment::{
        name::{Content, Stream},
        reader::{end_of, streams, verify, views, write_lines},
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
                let views = views(directory, stream, &serials)?;
                write_lines(&views, *from, out)?;
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
    let mut next: BTreeMap<Stream, u64> = BTreeMap::new();
    let mut is_first = true;
    loop {
        for (stream, mut serials) in wanted.among(streams(directory)?) {
            // What was sealed before the last look has nothing new; two, for the change between.
            if !is_first {
                serials.drain(..serials.len().saturating_sub(2));
            }
            let views = views(directory, stream, &serials)?;
            let start = match (next.get(&stream), from) {
                (Some(next), _) => *next,
                (None, Some(from)) => from,
                (None, None) if is_first => end_of(&views).saturating_sub(TAIL_LINES),
                (None, None) => 0,
            };
            next.insert(stream, write_lines(&views, start, out)?);
        }
        out.flush().map_err(|error| LogdError::output(&error))?;
        if once {
            return Ok(());
        }
        is_first = false;
        std::thread::sleep(LOOK_TIME);
    }
}

fn verify_all(directory: &Path, out: &mut impl Write) -> Result<(), LogdError> {
    let mut problems = 0;
    for (stream, serials) in streams(directory)? {
        let verdict = verify(&views(directory, stream, &serials)?);
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
