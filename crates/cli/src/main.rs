//! The `ringwise` command: finds the tool, runs it, and prints every error in one form.
//!
//! An error is one line on standard error: `ringwise: TOOL: what failed: why; what to do`. The exit
//! status is 0 on success, 1 if something failed, and 2 if the command was typed wrongly. A closed
//! pipe is not an error.

#![forbid(unsafe_code)]

mod generate;
mod misuse;

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

/// Begins a help with the three things that people do, before options that most of them never need.
macro_rules! begins_with {
    ($examples:literal) => {
        concat!("{about-with-newline}\n  ", $examples, "\n\n{usage-heading} {usage}\n\n{all-args}")
    };
}

/// Fast I/O on Linux: by io_uring where it is faster, by classic syscalls elsewhere
#[derive(Debug, Parser)]
#[command(name = "ringwise", version, propagate_version = true, max_term_width = 80)]
#[command(subcommand_help_heading = "Tools", subcommand_value_name = "TOOL")]
#[command(help_template = begins_with!("\
  ringwise lab                 measure where io_uring is faster on this machine
  ringwise cp -r SOURCE DEST   copy files, many at a time, with GNU cp's options
  ringwise logd --dir DIR      store lines of JSON from TCP and acknowledge them"))]
struct Command {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Show what this machine lets io_uring do, with evidence
    #[command(help_template = begins_with!("\
  ringwise doctor         examine the current directory's device
  ringwise doctor /data   examine the device of /data
  ringwise doctor --json  print the same for a program"))]
    Doctor(ringwise_doctor::Args),
    /// Measure engines side by side, and say which one is worth using
    #[command(help_template = begins_with!("\
  ringwise lab                       measure everything, for about two minutes
  ringwise lab read --dir /data      measure only reads, on the device of /data
  ringwise lab report RESULTS.json   draw saved results again"))]
    Lab(Box<ringwise_lab::Args>),
    /// Copy files with GNU cp's options, many at a time
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Cp {
        /// GNU cp's options and operands (see `ringwise cp --help`)
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Store lines of JSON from TCP, and acknowledge what is durable
    #[command(help_template = begins_with!("\
  ringwise logd --dir DIR    listen on port 9000 and store lines in DIR
  ringwise logd cat DIR      print the stored lines
  ringwise logd verify DIR   check every stored byte"))]
    Logd(Box<ringwise_logd::Args>),
    /// Echo what is received, on io_uring or on epoll
    #[command(help_template = begins_with!("\
  ringwise echo                             serve, by io_uring if it is there
  ringwise echo --engine epoll              serve by classic syscalls
  ringwise load echo -c 50 -l 512 -t 10     put load on it, on the same machine"))]
    Echo(ringwise_echo::Args),
    /// Put load on a server, and verify every answer
    #[command(help_template = begins_with!("\
  ringwise load echo --address HOST:PORT    on an echo server
  ringwise load log --target HOST:PORT      on a log daemon
  ringwise load log --rate 50000            at a fixed rate, for true latencies"))]
    Load(ringwise_load::Args),
    /// Write man pages and shell completions
    Generate {
        /// A directory with the layout of /usr/share: man, bash-completion, zsh, fish
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    if let Some((called, words)) = words_of_cp(std::env::args_os()) {
        return ringwise_cp::run(called, words);
    }
    match Command::try_parse() {
        Ok(command) => run(command.tool),
        Err(error) => misuse::report(&error),
    }
}

/// Returns how `cp` was called and its arguments, if it was: by `ringwise cp` or by a file named `cp`. `ringwise help
/// cp` asks for its help.
///
/// clap never sees them, since it would change the meaning of `--` and of what follows it.
fn words_of_cp(mut typed: impl Iterator<Item = OsString>) -> Option<(&'static str, Vec<OsString>)> {
    let name = typed.next()?;
    if Path::new(&name).file_name() == Some(OsStr::new("cp")) {
        return Some(("cp", typed.collect()));
    }
    let (tool, rest) = (typed.next()?, typed.collect::<Vec<_>>());
    match tool.to_str()? {
        "cp" => Some(("ringwise cp", rest)),
        "help" if rest == ["cp"] => Some(("ringwise cp", vec!["--help".into()])),
        _ => None,
    }
}

fn run(tool: Tool) -> ExitCode {
    let out = &mut io::stdout();
    match tool {
        Tool::Cp { words } => ringwise_cp::run("ringwise cp", words),
        Tool::Doctor(args) => {
            let color = ringwise_doctor::Color::auto(out);
            ringwise_doctor::run(&args, &mut out.lock(), color)
        }
        Tool::Echo(args) => match ringwise_echo::run(&args, out) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail("echo", &error, error.exit_status()),
        },
        Tool::Lab(args) => match ringwise_lab::run(*args, &mut out.lock()) {
            Ok(()) | Err(ringwise_lab::LabError::BrokenPipe) => ExitCode::SUCCESS,
            Err(ringwise_lab::LabError::Exited(status)) => ExitCode::from(status),
            Err(error) => fail("lab", &error, error.exit_status()),
        },
        Tool::Logd(args) => match ringwise_logd::run(&args, &mut out.lock()) {
            Ok(()) | Err(ringwise_logd::LogdError::BrokenPipe) => ExitCode::SUCCESS,
            Err(error) => fail("logd", &error, error.exit_status()),
        },
        Tool::Load(args) => match ringwise_load::run(args, &mut out.lock()) {
            Ok(()) | Err(ringwise_load::LoadError::BrokenPipe) => ExitCode::SUCCESS,
            Err(error) => fail("load", &error, error.exit_status()),
        },
        Tool::Generate { dir } => match generate::write(&dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail("generate", &error, 1),
        },
    }
}

fn fail(tool: &str, error: &dyn fmt::Display, status: u8) -> ExitCode {
    complain(format_args!("{tool}: {error}"));
    ExitCode::from(status)
}

/// Prints an error. If standard error is closed the exit status has to do; `eprintln!` would panic.
fn complain(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "ringwise: {text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Command::command().debug_assert();
    }

    #[test]
    fn cp_is_called_by_its_name_or_as_a_tool() {
        let words = |typed: &[&str]| words_of_cp(typed.iter().map(OsString::from));
        let strings = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for (typed, called, rest) in [
            (&["/bin/cp", "-a", "--", "x"][..], "cp", &["-a", "--", "x"][..]),
            (&["ringwise", "cp", "--"], "ringwise cp", &["--"]),
            (&["ringwise", "help", "cp"], "ringwise cp", &["--help"]),
        ] {
            assert_eq!(words(typed), Some((called, strings(rest))), "{typed:?}");
        }
        assert_eq!(words(&["ringwise", "lab", "cp"]), None);
        assert_eq!(words(&["ringwise"]), None);
    }
}
