//! `ringwise logd query`: prints the stored lines that a user asks for, by time, sender and content.
//!
//! `lanes` reads segments on several threads and gives what they find in order. `selection` finds lines in a batch.

mod lanes;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    num::NonZero,
    ops::ControlFlow,
    path::PathBuf,
    thread::available_parallelism,
    time::Instant,
};

use crate::{
    disk::segment::reading::{
        cursor::Piece,
        source::{InDirectory, streams},
    },
    error::LogdError,
    tool::{
        follow::{Place, Printer, follow},
        merge::Wanted,
        problems::{tell_of_no_segments, told},
        selection::{Selection, Sought},
        shown::Shown,
    },
};
use lanes::{Counts, Scanned, scan};

/// The most threads that read segments. More than a few wait for the memory or for the disk.
const THREADS_MAX: i64 = 64;

/// What is asked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct QueryArgs {
    /// The directory of a daemon, which may run
    directory: PathBuf,
    #[command(flatten)]
    sought: Sought,
    #[command(flatten)]
    shown: Shown,
    /// Print the first N lines and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print only the number of lines
    #[arg(long, conflicts_with_all = ["follow", "with_origin"])]
    count: bool,
    /// Go on as lines are stored
    #[arg(long)]
    follow: bool,
    /// Say on standard error what was read and how long it took
    #[arg(long)]
    stats: bool,
    /// Threads that read segments [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: Option<u32>,
}

/// Runs a query as typed.
pub(super) fn run(args: &QueryArgs, out: &mut impl Write) -> Result<(), LogdError> {
    let begin = Instant::now();
    let directory = &*args.directory;
    let wanted = Wanted::selected(Selection::sought(&args.shown, &args.sought, args.count));
    let all = streams(directory)?;
    if all.is_empty() {
        tell_of_no_segments(directory);
    }
    let sources = wanted.among(all);
    let sources: Vec<InDirectory<'_>> =
        sources.map(|(stream, serials)| InDirectory::new(directory, stream, serials)).collect();
    let mut printer = Lines { args, out, left: args.limit.unwrap_or(u64::MAX), count: 0 };
    let Scanned { ends, problems, counts } =
        scan(&sources, &wanted.selection, threads(args), &mut printer)?;
    if args.count {
        let printed = writeln!(printer.out, "{}", printer.count);
        printed.map_err(|error| LogdError::output(&error))?;
    }
    printer.flush().map_err(|error| LogdError::output(&error))?;
    if args.stats {
        tell_counts(&counts, printer.count, begin);
    }
    if !args.follow || printer.left == 0 {
        return told(problems.iter());
    }
    // It goes on for ever, so problems are told now.
    for problem in problems {
        let _ = writeln!(io::stderr(), "ringwise: logd: {problem}");
    }
    let ends = sources.iter().zip(ends).filter_map(|(segments, end)| {
        let (place, next) = end?;
        Some((segments.stream(), Place { serial: segments.serial(place), next }))
    });
    follow(directory, &wanted, ends.collect::<BTreeMap<_, _>>(), 0, &mut printer)
}

fn threads(args: &QueryArgs) -> usize {
    let processors = || available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX as usize);
    args.threads.map_or_else(processors, |threads| threads as usize)
}

fn tell_counts(counts: &Counts, found: u64, begin: Instant) {
    let Counts { read_segments, passed_segments, read_bytes, looked_at } = counts;
    let seconds = begin.elapsed().as_secs_f64();
    let _ = writeln!(
        io::stderr(),
        "ringwise: logd: segments: {read_segments} read, {passed_segments} skipped; \
         bytes: {read_bytes}; lines: {looked_at} looked at, {found} found; {seconds:.3} s"
    );
}

/// Prints or counts lines up to the limit.
struct Lines<'a, W> {
    args: &'a QueryArgs,
    out: W,
    /// How many lines may still be printed.
    left: u64,
    count: u64,
}

impl<W: Write> Printer for Lines<'_, W> {
    fn print(&mut self, piece: &Piece<'_>) -> io::Result<ControlFlow<()>> {
        let count = match self.args.count {
            true => piece.line_count.min(self.left),
            false => self.args.shown.print(piece, self.left, &mut self.out)?,
        };
        self.count += count;
        self.left -= count;
        Ok(if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
