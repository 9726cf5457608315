//! Measures what recording adds to a syscall: a child times a cheap one without and with it.
//!
//! The child reads a byte of `/dev/zero` in a loop. The result is the cost for a program, not the recorder's own CPU
//! time.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::sync_channel,
};

use super::{
    perf::{Perf, Start},
    tracee::{CALLS_TIMED, Stops},
    tracer::{self, Tracer},
};
use crate::call::Call;

/// Rings that hold all records of the child.
const RINGS_BYTES: usize = 16 << 20;

/// The time that recording adds to a syscall, in ns. A command has a filter, a running process has none. None: it could
/// not be measured.
pub(super) fn added_ns_per_syscall(
    helper: &[OsString],
    (stops, has_filter): (Stops, bool),
    is_wanted: impl Fn(Call) -> bool,
) -> Option<u64> {
    let mut command = helper_command(helper)?;
    command.args(["time", stops.word()]).args(has_filter.then_some("filter"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let found = time(&mut child, stops, is_wanted);
    // After a success it has ended.
    let _ = child.kill();
    let _ = child.wait();
    found
}

fn time(child: &mut Child, stops: Stops, is_wanted: impl Fn(Call) -> bool) -> Option<u64> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    let mut next = || lines.next()?.ok()?.parse::<u64>().ok();
    let without_ns = next()?;
    let with_ns = match stops {
        Stops::Few => {
            let perf = Perf::open(Start::Now(&[child.id()]), RINGS_BYTES, is_wanted).ok()?;
            child.stdin.take()?.write_all(b"\n").ok()?;
            let with_ns = next()?;
            drop(perf);
            with_ns
        }
        Stops::All => {
            tracer::wait_for_stop(child).ok()?;
            // Nobody takes the events.
            let (events, _) = sync_channel(1);
            Tracer::new(child, stops, events).run().ok()?;
            next()?
        }
    };
    Some(with_ns.saturating_sub(without_ns) / u64::from(CALLS_TIMED))
}

/// This program, with the words that make it the child of a recording.
pub(super) fn helper_command(helper: &[OsString]) -> Option<Command> {
    let (program, words) = helper.split_first()?;
    let mut command = Command::new(program);
    // Its own name must not turn it into another tool.
    command.arg0("ringwise").args(words);
    Some(command)
}
