//! The child that becomes the recorded command: it lets itself be traced, installs a filter, and runs the command.
//!
//! It is the same program, started again, because only that needs no code between fork and exec. The filter stops the
//! command at some syscalls and costs the others nothing. It stays with all children of the command; without the
//! tracer, the syscalls that it stops at would fail, so the kernel kills the command if the recorder dies.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufRead, Read, Write},
    os::unix::process::CommandExt,
    process::Command,
};

use nix::sys::{ptrace, signal};
use seccompiler::{BpfProgram, sock_filter};

use super::{
    clock,
    error::{self, plain},
    process,
};
use crate::call::{CALLS, Call};

/// The word that makes the child wait until its standard input ends.
pub(super) const WAIT: &str = "wait";

/// How many syscalls a calibration times. A stop for a tracer can take 100 us.
pub(super) fn calls_timed(stops: Stops) -> u32 {
    match stops {
        Stops::Few => 20_000,
        Stops::All => 2_000,
    }
}

/// At which syscalls a command is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stops {
    /// Those whose effect no tracepoint tells: opens, pipes, Linux AIO.
    Few,
    /// All that matter, because there are no tracepoints.
    All,
}

impl Stops {
    pub(super) fn word(self) -> &'static str {
        match self {
            Stops::Few => "few",
            Stops::All => "all",
        }
    }

    /// Whether a command is stopped at this syscall.
    pub(super) fn includes(self, call: Call) -> bool {
        match call {
            Call::Open | Call::Pair | Call::AioSubmit | Call::AioReap => true,
            // The tracer is told of these in another way.
            Call::Spawn | Call::Execute => false,
            _ => self == Stops::All,
        }
    }
}

/// Runs the words of the hidden command: `few COMMAND` or `all COMMAND`, `time few` or `time all`, with `filter` or not,
/// or `wait`.
///
/// It does not return from a command that runs. It returns the message for standard error, and the exit status.
pub fn run_tracee(words: &[OsString]) -> (String, u8) {
    let word = |place: usize| words.get(place).and_then(|word| word.to_str());
    let stops = |word| match word {
        Some("few") => Some(Stops::Few),
        Some("all") => Some(Stops::All),
        _ => None,
    };
    if word(0) == Some(WAIT) {
        // An error ends the wait too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        return (String::new(), 0);
    }
    if word(0) == Some("time") {
        let Some(stops) = stops(word(1)) else { return (unexpected(), 2) };
        return match time_calls(stops, word(2) == Some("filter")) {
            Ok(()) => (String::new(), 0),
            Err(error) => (plain(&error), 1),
        };
    }
    match (stops(word(0)), words.get(1..)) {
        (Some(stops), Some([command, arguments @ ..])) => {
            if let Err(message) = be_traced(Some(stops)) {
                return (message, 126);
            }
            let error = Command::new(command).args(arguments).exec();
            failed_to_run(command, &error)
        }
        _ => (unexpected(), 2),
    }
}

fn unexpected() -> String {
    "this subcommand is for `ringwise lab record`; use that".to_owned()
}

fn failed_to_run(command: &OsStr, error: &io::Error) -> (String, u8) {
    let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    (format!("running {}: {}", command.display(), plain(error)), status)
}

/// Stops until the tracer is ready, and installs the filter if there is one.
fn be_traced(filtered: Option<Stops>) -> Result<(), String> {
    if let Some(tracer) = process::tracer(std::process::id()) {
        return Err(format!(
            "ptrace: the command is traced already by process {tracer}; end that tracer"
        ));
    }
    ptrace::traceme().map_err(|error| error::ptrace(error).to_string())?;
    let stopped = signal::raise(signal::Signal::SIGSTOP);
    stopped.map_err(|error| format!("raise: {}", plain(&error.into())))?;
    let Some(stops) = filtered else { return Ok(()) };
    seccompiler::apply_filter(&filter(stops)).map_err(|error| {
        format!("seccomp: {error}; let the container allow seccomp(2), or record a running process with --pid")
    })
}

/// A filter that stops at the syscalls of `stops`. A process of another architecture is not stopped.
fn filter(stops: Stops) -> BpfProgram {
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |k: u32, jt: u8, jf: u8| {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        sock_filter { code, jt, jf, k }
    };
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let give = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    // AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 of linux/audit.h.
    let architecture = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    // `nr` and `arch` of struct seccomp_data are its first two words.
    let mut program =
        vec![load(4), jump(architecture, 1, 0), give(libc::SECCOMP_RET_ALLOW), load(0)];
    for (_, number, _) in CALLS.iter().filter(|(_, _, call)| stops.includes(*call)) {
        program.push(jump(*number as u32, 0, 1));
        program.push(give(libc::SECCOMP_RET_TRACE));
    }
    program.push(give(libc::SECCOMP_RET_ALLOW));
    program
}

/// Times a cheap syscall twice, and lets the recorder begin in between. It says each result in ns.
fn time_calls(stops: Stops, has_filter: bool) -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut zero = File::open("/dev/zero")?;
    let mut say = |ns: u64| {
        writeln!(output, "{ns}")?;
        output.flush()
    };
    time_reads(&mut zero, stops)?;
    say(time_reads(&mut zero, stops)?)?;
    match stops {
        Stops::Few => {
            input.read_line(&mut String::new())?;
            if has_filter {
                // It opens nothing after this, so it needs no tracer.
                seccompiler::apply_filter(&filter(stops)).map_err(io::Error::other)?;
            }
        }
        Stops::All => be_traced(has_filter.then_some(stops)).map_err(io::Error::other)?,
    }
    say(time_reads(&mut zero, stops)?)
}

fn time_reads(zero: &mut File, stops: Stops) -> io::Result<u64> {
    // CPU time, because other programs use the processors too. Stops for a tracer are not in it.
    let now_ns = |stops| match stops {
        Stops::Few => clock::cpu_ns(),
        Stops::All => clock::now_ns(),
    };
    let begin_ns = now_ns(stops);
    let mut byte = [0];
    for _ in 0..calls_timed(stops) {
        zero.read_exact(&mut byte)?;
    }
    Ok(now_ns(stops).saturating_sub(begin_ns))
}
