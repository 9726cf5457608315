//! `ringwise logd query`: prints the stored lines that a user asks for, by time, sender and content. The status page
//! asks by the same options.
//!
//! `lanes` reads segments on several threads and gives what they find in order. `selection` finds lines in a batch.
//! `table` writes them to a Parquet file.

mod lanes;
#[cfg(feature = "parquet")]
mod table;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Write},
    num::NonZero,
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    thread::available_parallelism,
    time::{Duration, Instant},
};

use clap::FromArgMatches as _;

use crate::{
    args::mistake::in_a_line,
    disk::segment::{
        format::name::Stream,
        reading::{
            cursor::Piece,
            source::{InDirectory, streams},
        },
    },
    error::LogdError,
    tool::{
        follow::{Place, follow, live},
        merge::Wanted,
        printer::{Printer, has_output_after, tell_gap},
        problems::{tell_if_empty, told},
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
    /// Read this directory: the --dir of a daemon, which may be running
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
    /// Wait for new lines and print them too
    #[arg(long)]
    follow: bool,
    /// Print on standard error what was read and how long it took
    #[arg(long)]
    stats: bool,
    /// Write the lines to a Parquet file, with their numbers, times and senders
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"],
          conflicts_with_all = ["count", "follow", "with_origin"])]
    output: Option<Vec<OsString>>,
    /// Read segments with this many threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: Option<u32>,
}

impl QueryArgs {
    /// Reads options as if they had been typed, each a name, and a value if it has one.
    ///
    /// # Errors
    ///
    /// The message of the command.
    pub(crate) fn typed(
        directory: &Path,
        options: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Result<QueryArgs, String> {
        let command = <QueryArgs as clap::Args>::augment_args(clap::Command::new("query"));
        let mut words: Vec<OsString> = vec!["query".into()];
        words.extend(options.into_iter().map(|(name, value)| match value {
            Some(value) => format!("--{name}={value}").into(),
            None => format!("--{name}").into(),
        }));
        words.extend(["--".into(), directory.into()]);
        let matches = command.try_get_matches_from(words).map_err(|error| in_a_line(&error))?;
        QueryArgs::from_arg_matches(&matches).map_err(|error| in_a_line(&error))
    }

    /// Returns how many lines are wanted, if there is a limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Prints lines of a piece, at most so many. Returns how many.
    pub(crate) fn print(
        &self,
        piece: &Piece<'_>,
        most: u64,
        out: &mut impl Write,
    ) -> io::Result<u64> {
        self.shown.print(piece, most, out)
    }

    /// Prints the last lines of a piece, at most so many. Returns how many were left out before them.
    pub(crate) fn print_last(
        &self,
        piece: &Piece<'_>,
        most: u64,
        out: &mut impl Write,
    ) -> io::Result<u64> {
        self.shown.print_last(piece, most, out)
    }

    /// Gives the stored lines to a printer, from so many threads. Returns the problems of the segments, a line each.
    pub(crate) fn search(
        &self,
        threads: usize,
        printer: &mut dyn Printer,
    ) -> Result<Vec<String>, LogdError> {
        let sources = self.sources(&self.wanted())?;
        Ok(scan(&sources, &self.wanted().selection, threads, printer)?.problems)
    }

    /// Gives the last lines to a printer and then those that are stored, until it wants no more. If there are too many,
    /// older ones are left out. Without conditions, all but about the last `shown_max` are too many.
    pub(crate) fn live(&self, shown_max: u64, printer: &mut dyn Printer) -> Result<(), LogdError> {
        let wanted = self.wanted();
        // Of lines with conditions, nobody knows which are the last.
        let lines_max = if wanted.selection.is_everything() { shown_max } else { u64::MAX };
        live(&self.directory, &wanted, lines_max, printer)
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted::selected(Selection::sought(&self.shown, &self.sought, self.count))
    }

    fn sources(&self, wanted: &Wanted<'_>) -> Result<Vec<InDirectory<'_>>, LogdError> {
        let directory = &*self.directory;
        let new = |(stream, serials)| InDirectory::new(directory, stream, serials);
        Ok(wanted.among(streams(directory)?).map(new).collect())
    }
}

/// Runs a query as typed.
pub(super) fn run(args: &QueryArgs, out: &mut impl Write) -> Result<(), LogdError> {
    match args.output.as_deref() {
        Some([format, path]) if format == "parquet" => write_table(args, Path::new(path)),
        Some([format, _]) => {
            let format = format.to_string_lossy();
            Err(LogdError::Usage(format!("--output {format}: expected parquet and a file")))
        }
        _ => print(args, out),
    }
}

/// Writes the lines to a file with columns.
#[cfg(feature = "parquet")]
fn write_table(args: &QueryArgs, path: &Path) -> Result<(), LogdError> {
    let begin = Instant::now();
    let shown = args.shown.clone().with_origins();
    let args = &QueryArgs { shown, ..args.clone() };
    let mut wanted = args.wanted();
    wanted.selection.has_numbers = true;
    let sources = args.sources(&wanted)?;
    tell_if_empty(&args.directory, &streams(&args.directory)?);
    let mut table = table::Table::new(path, args.limit.unwrap_or(u64::MAX))?;
    let Scanned { problems, counts, .. } =
        scan(&sources, &wanted.selection, threads(args), &mut table)?;
    let count = table.count;
    table.finish()?;
    if args.stats {
        tell_counts(&counts, count, begin);
    }
    told(problems.iter())
}

#[cfg(not(feature = "parquet"))]
fn write_table(_: &QueryArgs, _: &Path) -> Result<(), LogdError> {
    let text =
        "--output parquet: this build cannot write Parquet files; build it with --features parquet";
    Err(LogdError::Usage(text.to_owned()))
}

/// Prints the lines.
fn print(args: &QueryArgs, out: &mut impl Write) -> Result<(), LogdError> {
    let begin = Instant::now();
    let directory = &*args.directory;
    let wanted = args.wanted();
    let sources = args.sources(&wanted)?;
    tell_if_empty(directory, &streams(directory)?);
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
    fn print(&mut self, _stream: Stream, piece: &Piece<'_>) -> io::Result<ControlFlow<()>> {
        let count = match self.args.count {
            true => piece.line_count.min(self.left),
            false => self.args.shown.print(piece, self.left, &mut self.out)?,
        };
        self.count += count;
        self.left -= count;
        Ok(if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn skip(&mut self, stream: Stream, lines: &Range<u64>) {
        tell_gap(stream, lines);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn wait(&mut self, time: Duration) -> bool {
        has_output_after(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        disk::segment::format::name::{Content, Part},
        fuzzing::index_of,
    };

    /// Wants nothing any more.
    struct Nobody;

    impl Printer for Nobody {
        fn print(&mut self, _: Stream, _: &Piece<'_>) -> io::Result<ControlFlow<()>> {
            panic!("no line is selected");
        }

        fn skip(&mut self, _: Stream, _: &Range<u64>) {}

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self, _: Duration) -> bool {
            false
        }
    }

    #[test]
    fn a_query_that_finds_nothing_ends_when_nobody_wants_it() {
        const SEGMENTS: u64 = 3000;
        let directory = tempfile::tempdir().unwrap();
        let stream = Stream { content: Content::Lines, number: 0 };
        let batch = vec![b"1\n".to_vec()];
        for serial in 0..SEGMENTS {
            let path = |part| directory.path().join(stream.file(serial, part));
            std::fs::write(path(Part::Index), index_of(&batch, true, true)).unwrap();
            std::fs::write(path(Part::Data), batch.concat()).unwrap();
        }
        let text = [("match".to_owned(), Some("nothing".to_owned()))];
        let args = QueryArgs::typed(directory.path(), text).unwrap();
        let wanted = args.wanted();
        let sources = args.sources(&wanted).unwrap();
        let counts = scan(&sources, &wanted.selection, 1, &mut Nobody).unwrap().counts;
        let ended = counts.read_segments + counts.passed_segments;
        assert!(ended < SEGMENTS, "all {ended} segments were read");
    }
}
