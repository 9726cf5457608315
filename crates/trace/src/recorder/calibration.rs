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

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use super::{
    event::{Event, Stamped},
    perf::{Perf, Start},
    tracee::{Stops, calls_timed},
    tracer::{self, Entry, Tracer},
};
use crate::call::Call;

/// Rings of this size hold all records of the child.
const RINGS_BYTES_MAX: usize = 16 << 20;

/// What recording adds to a syscall, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// In all.
    pub(super) per_syscall_ns: u64,
    /// The part that is in the recorded duration. None: it could not be measured.
    pub(super) in_duration_ns: Option<u64>,
}

/// Measures what recording adds, with rings of at most so many bytes. A command has a filter, a running process has
/// none. None: it could not be measured.
pub(super) fn added(
    (helper, rings_bytes): (&[OsString], usize),
    (stops, has_filter): (Stops, bool),
    is_wanted: impl Fn(Call) -> bool,
) -> Option<Added> {
    let mut command = helper_command(helper)?;
    command.args(["time", stops.word()]).args(has_filter.then_some("filter"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let entry = if has_filter { Entry::Filter } else { Entry::Every };
    let rings_bytes = rings_bytes.min(RINGS_BYTES_MAX);
    let found = time(&mut child, (stops, entry), (rings_bytes, is_wanted));
    // After a success it has ended.
    let _ = child.kill();
    let _ = child.wait();
    found
}

fn time(
    child: &mut Child,
    (stops, entry): (Stops, Entry),
    (rings_bytes, is_wanted): (usize, impl Fn(Call) -> bool),
) -> Option<Added> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    let mut next = || {
        let ns = lines.next()?.ok()?.parse::<u64>().ok()?;
        Some(ns / u64::from(calls_timed(stops)))
    };
    let without_ns = next()?;
    let (with_ns, duration_ns) = match stops {
        Stops::Few => {
            let mut perf = Perf::open(Start::Now(&[child.id()]), rings_bytes, is_wanted).ok()?;
            child.stdin.take()?.write_all(b"\n").ok()?;
            let with_ns = next()?;
            perf.stop();
            let mut events = Vec::new();
            perf.drain(&mut events, usize::MAX);
            (with_ns, median_duration_ns(&events))
        }
        Stops::All => {
            tracer::wait_for_stop(child).ok()?;
            let (events, taken) = sync_channel(calls_timed(stops) as usize * 4);
            let own = apart(child);
            let ended = Tracer::new((stops, entry), events).run(child);
            own.map(|own| sched_setaffinity(None, &own)).transpose().ok()?;
            ended.ok()?;
            drop(taken);
            (next()?, None)
        }
    };
    Some(Added {
        per_syscall_ns: with_ns.saturating_sub(without_ns),
        in_duration_ns: duration_ns.map(|duration_ns| duration_ns.saturating_sub(without_ns)),
    })
}

/// Puts this thread and the child on two processors, as the tracer of a busy program mostly is: on one, a stop takes a
/// fraction of the time. Returns where this thread could run before.
fn apart(child: &Child) -> Option<CpuSet> {
    let own = sched_getaffinity(None).ok()?;
    let mut each = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).map(|cpu| {
        let mut only = CpuSet::new();
        only.set(cpu);
        only
    });
    let (here, there) = (each.next()?, each.next()?);
    sched_setaffinity(Pid::from_raw(child.id().cast_signed()), &there).ok()?;
    sched_setaffinity(None, &here).ok()?;
    Some(own)
}

/// The median of the durations that a trace of these events would have. The child has one thread.
fn median_duration_ns(events: &[Stamped]) -> Option<u64> {
    let mut durations_ns = Vec::with_capacity(events.len() / 2);
    let mut begin_ns = None;
    for event in events {
        match event.event {
            Event::Enter { .. } => begin_ns = Some(event.time_ns),
            Event::Exit { .. } => {
                let begin_ns = begin_ns.take();
                durations_ns
                    .extend(begin_ns.and_then(|begin_ns| event.time_ns.checked_sub(begin_ns)));
            }
            _ => {}
        }
    }
    durations_ns.sort_unstable();
    durations_ns.get(durations_ns.len() / 2).copied()
}

/// This program, with the words that make it the child of a recording.
pub(super) fn helper_command(helper: &[OsString]) -> Option<Command> {
    let (program, words) = helper.split_first()?;
    let mut command = Command::new(program);
    // Its own name must not turn it into another tool.
    command.arg0("ringwise").args(words);
    Some(command)
}
