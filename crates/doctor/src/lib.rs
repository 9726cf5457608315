//! What this kernel, container, file system and device let io_uring do.
//!
//! `ringwise doctor` tries things instead of guessing from versions: it opens
//! rings, runs operations on a temporary file and counts how many the kernel
//! handed to worker threads. Each [`Finding`] carries its evidence, and a remedy
//! where there is one. It changes nothing on the machine.
//!
//! Invariant: one source that cannot be read makes one finding `unknown`; it never
//! ends the examination.
//!
//! Reading order: [`finding`](Finding), `examination` (the order of the checks),
//! `ring`, `storage`, `workers`, `machine` (the checks), `report` (how they are
//! printed), `seccomp` (the profile that a container needs).

#![forbid(unsafe_code)]

mod examination;
mod finding;
mod limits;
mod machine;
mod probe_file;
mod report;
mod ring;
mod seccomp;
mod storage;
mod workers;

pub use examination::{DoctorError, examine};
pub use finding::{Finding, Status};
pub use report::{Color, Report, SCHEMA};
pub use ringwise_measure::Sources;
use ringwise_measure::plain;
pub use seccomp::Program;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments of `ringwise doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Examine the file system and device of this file or directory; doctor
    /// writes a temporary file of 4 MiB there and removes it
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,

    /// Print the findings and the environment as JSON
    #[arg(long)]
    pub json: bool,

    /// Examine nothing; print as JSON the rules that a container's seccomp
    /// profile needs for io_uring [default without a value: any]
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["json", "path"])]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "any")]
    pub seccomp_profile: Option<Program>,
}

/// Examines this machine and writes the report to `out`, or writes the seccomp
/// rules. An error is one line on standard error.
///
/// The exit status is 0 whenever there is a report, whatever it says (a reader
/// that closed the pipe included), and 1 where the path cannot be examined or the
/// report not be written.
pub fn run(args: &Args, out: &mut impl Write, color: Color) -> ExitCode {
    if let Some(program) = args.seccomp_profile {
        return finish(seccomp::write_profile(program, out), out);
    }
    let report = match examine(&args.path, &Sources::default()) {
        Ok(report) => report,
        Err(error) => {
            let _ = writeln!(io::stderr(), "ringwise: doctor: {error}");
            return ExitCode::from(1);
        }
    };
    let written = if args.json { report.write_json(out) } else { report.write_text(out, color) };
    finish(written, out)
}

fn finish(written: io::Result<()>, out: &mut impl Write) -> ExitCode {
    match written.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ =
                writeln!(io::stderr(), "ringwise: doctor: writing the report: {}", plain(&error));
            ExitCode::from(1)
        }
    }
}
