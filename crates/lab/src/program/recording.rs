//! `record`: which I/O a command or a running process makes, written as a trace, and shows in a table.
//!
//! The crate `ringwise-trace` records. This file reads the options, connects signals, and prints. It prints on standard
//! error, because standard output belongs to the command.

use std::{
    fmt::Write as _,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ringwise_measure::quantity::{bytes_text, latency_text, parse_duration, parse_size};
use ringwise_trace::{
    Kind, Reason,
    recorder::{self, Method, Options, RecordError, Report, Target},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    args::{RecordArgs, RecordMethod, TraceeArgs},
    error::{LabError, plain},
    plan::typed::invalid,
    results::report::json,
    workload::form::columns::counted,
};

/// The memory for perf's events unless other is typed.
const MEMORY: &str = "64m";
/// Less memory than this holds no second of a busy program.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Records as typed, and prints what was recorded.
///
/// # Errors
///
/// [`LabError`]: the recording could not begin, the trace could not be written to its end, or
/// [`LabError::Exited`] with the exit status of the command.
pub(crate) fn run(args: RecordArgs) -> Result<(), LabError> {
    let options = options(args)?;
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGTERM] {
        let value = number.unsigned_abs() as usize;
        signal_hook::flag::register_usize(number, signal.clone(), value)
            .map_err(|error| failed(format!("signals: {}", plain(&error))))?;
    }
    let report = recorder::record(&options, &signal).map_err(|error| match error {
        RecordError::NotStarted { status } => LabError::Exited(status),
        other => failed(other.to_string()),
    })?;
    // If standard error is closed, the trace and the exit status have to do.
    let _ = io::stderr().write_all(text(&report, &options).as_bytes());
    let out = options.out.display();
    if report.end.reason == Reason::WriteFailed {
        let end = match report.has_end {
            true => "it is whole up to there and says so",
            false => "it has no end record, and what is before is whole",
        };
        return Err(failed(format!("writing {out}: {}; {end}", report.end.detail)));
    }
    match report.status {
        Some(status @ 1..) => Err(LabError::Exited(status)),
        _ => Ok(()),
    }
}

/// Becomes the command of a recording. Returns only if that fails, or to end a calibration.
pub(crate) fn become_tracee(args: &TraceeArgs) -> Result<(), LabError> {
    match recorder::run_tracee(&args.words) {
        (_, 0) => Ok(()),
        (message, status) => {
            let _ = writeln!(io::stderr(), "ringwise: lab: record: {message}");
            Err(LabError::Exited(status))
        }
    }
}

fn failed(message: String) -> LabError {
    LabError::Failed(format!("record: {message}"))
}

fn options(args: RecordArgs) -> Result<Options, LabError> {
    let duration = args.duration.as_deref().map(|text| {
        parse_duration(text).map_err(|error| invalid("record: --duration", text, error))
    });
    let duration: Option<Duration> = duration.transpose()?;
    if args.memory.is_some() && args.method == RecordMethod::Ptrace {
        let text = "record: --memory does not go with --method ptrace: leave it out";
        return Err(LabError::Usage(text.to_owned()));
    }
    let memory = args.memory.as_deref().unwrap_or(MEMORY);
    let memory_bytes =
        parse_size(memory).map_err(|error| invalid("record: --memory", memory, error))?;
    if memory_bytes < MEMORY_BYTES_MIN {
        return Err(invalid("record: --memory", memory, "expected at least 1m"));
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let out = args.out.unwrap_or_else(|| {
        PathBuf::from(format!(
            "ringwise-record-{}.trace",
            json::date_and_time(since_1970.as_secs())
        ))
    });
    Ok(Options {
        target: match args.pid {
            Some(pid) => Target::Process(pid),
            None => Target::Command(args.command),
        },
        method: match args.method {
            RecordMethod::Auto => Method::Auto,
            RecordMethod::Perf => Method::Perf,
            RecordMethod::Ptrace => Method::Ptrace,
        },
        duration,
        out,
        is_private: args.private,
        memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
        recorder: concat!("ringwise ", env!("CARGO_PKG_VERSION")).to_owned(),
        helper: ["/proc/self/exe", "lab", "record-tracee"].map(Into::into).into(),
    })
}

/// The table, and what it cost.
fn text(report: &Report, options: &Options) -> String {
    let Report { summary, end, header, .. } = report;
    let mut text = format!(
        "recorded {}, {} and {} in {} by {}: {}\n",
        counted(summary.operations(), "operation"),
        counted(summary.files, "file"),
        counted(summary.threads, "thread"),
        latency_text(end.elapsed_ns as f64),
        header.method,
        options.out.display(),
    );
    let kinds = Kind::ALL.map(|kind| (kind, summary.of(kind)));
    for (kind, count) in kinds.iter().filter(|(_, count)| count.operations > 0) {
        let _ = write!(
            text,
            "  {:<9} {:>12}  {:>10}",
            kind.name(),
            count.operations,
            bytes_text(count.bytes)
        );
        if count.failed > 0 {
            let _ = write!(text, "  {} failed", count.failed);
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "in flight at once: {} at most, {} at the median",
        end.in_flight_max, end.in_flight_median
    );
    let added = match end.added_ns_per_syscall {
        Some(added) => {
            format!("{} more for a syscall that does not wait", latency_text(added as f64))
        }
        None => "the time added to a syscall could not be measured".to_owned(),
    };
    let _ = writeln!(
        text,
        "cost: {added}, {} of CPU time of the recorder, {} events lost",
        latency_text(end.recorder_cpu_ns as f64),
        end.lost_events
    );
    for remark in remarks(report) {
        let _ = writeln!(text, "note: {remark}");
    }
    text
}

/// What limits the trace.
fn remarks(report: &Report) -> Vec<String> {
    let mut found = Vec::new();
    let end = &report.end;
    if let Some(reason) = &report.fallback {
        // The status is a command's.
        let stops = match report.status {
            Some(_) => "the command at each syscall of I/O",
            None => "the program at each syscall",
        };
        found.push(format!("{reason}; until then ptrace stops {stops}, which is slower"));
    }
    if end.lost_events > 0 {
        found.push("the recorder fell behind: --memory gives it more room".to_owned());
    }
    if end.unknown_files > 0 {
        found.push(format!(
            "{} without a file, because a descriptor was not known yet",
            counted(end.unknown_files, "operation")
        ));
    }
    if end.unseen_requests > 0 {
        found.push(format!(
            "not seen: {} of io_uring or Linux AIO",
            counted(end.unseen_requests, "request")
        ));
    }
    match end.reason {
        Reason::Signal => found.push("a signal ended the recording".to_owned()),
        Reason::Duration | Reason::Exited | Reason::WriteFailed => {}
    }
    found
}
