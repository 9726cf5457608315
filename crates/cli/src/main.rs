//! The `ringwise` command: finds the tool that is meant, and gives its errors one form.
//!
//! Every error is one line on standard error that begins with the command. The exit status is 0
//! when all is done, 1 when something failed, 2 when the command was used wrongly. A reader that
//! goes away is no error.

#![forbid(unsafe_code)]

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};

/// io_uring where it pays, and proof of where it does not.
#[derive(Debug, Parser)]
#[command(name = "ringwise", version, propagate_version = true)]
struct Command {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Tell what this kernel, container, file system and device let io_uring do, with evidence
    Doctor(ringwise_doctor::Args),
    Lab(Box<ringwise_lab::Args>),
    /// Echo what is received, on io_uring or on epoll by the same rules
    Echo(ringwise_echo::Args),
    /// Put load on a server, and check every byte that comes back
    Load(ringwise_load::Args),
    /// Copy files with GNU cp's flags, many in flight (see `ringwise cp --help`)
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Cp {
        /// GNU cp's flags and operands, and ringwise's own
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    Logd(Box<ringwise_logd::Args>),
}

fn main() -> ExitCode {
    if let Some(words) = words_of_cp(std::env::args_os()) {
        return ringwise_cp::run(words);
    }
    match Command::try_parse() {
        Ok(command) => run(command.tool),
        Err(error) => misused(&error),
    }
}

/// The words of `cp`, when it is asked for: its flags are GNU's and not read here, or `--` and what
/// follows it would change their meaning. Called by the name `cp`, the command is that.
fn words_of_cp(mut typed: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let name = typed.next()?;
    if Path::new(&name).file_name() == Some(OsStr::new("cp")) {
        return Some(typed.collect());
    }
    (typed.next()? == "cp").then(|| typed.collect())
}

fn run(tool: Tool) -> ExitCode {
    match tool {
        Tool::Cp { words } => ringwise_cp::run(words),
        Tool::Doctor(args) => {
            let out = io::stdout();
            let color = ringwise_doctor::Color::auto(&out);
            ringwise_doctor::run(&args, &mut out.lock(), color)
        }
        Tool::Echo(args) => match ringwise_echo::run(&args, &mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(format_args!("echo: {error}"));
                ExitCode::from(error.exit_status())
            }
        },
        Tool::Lab(args) => match ringwise_lab::run(*args, &mut io::stdout().lock()) {
            Ok(()) | Err(ringwise_lab::LabError::BrokenPipe) => ExitCode::SUCCESS,
            Err(error) => {
                complain(format_args!("lab: {error}"));
                ExitCode::from(error.exit_status())
            }
        },
        Tool::Logd(args) => match ringwise_logd::run(&args, &mut io::stdout().lock()) {
            Ok(()) | Err(ringwise_logd::LogdError::BrokenPipe) => ExitCode::SUCCESS,
            Err(error) => {
                complain(format_args!("logd: {error}"));
                ExitCode::from(error.exit_status())
            }
        },
        Tool::Load(args) => match ringwise_load::run(args, &mut io::stdout().lock()) {
            Ok(()) | Err(ringwise_load::LoadError::BrokenPipe) => ExitCode::SUCCESS,
            Err(error) => {
                complain(format_args!("load: {error}"));
                ExitCode::from(error.exit_status())
            }
        },
    }
}

/// Says what failed. Where nobody reads, the exit status does; `eprintln!` would panic.
fn complain(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "ringwise: {text}");
}

/// Help and version are what was asked for; all else is one line instead of clap's paragraphs.
fn misused(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody is left to be told that nobody reads.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            complain(format_args!("{}", message(error)));
            ExitCode::from(2)
        }
    }
}

/// What was wrong and what is accepted, in one line.
fn message(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = one_line(&text);
    if error.kind() == ErrorKind::UnknownArgument && !line.contains("tip:") {
        return format!("{line}: `{} --help` has those that there are", used(&text));
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return line;
    }
    let command = Command::command();
    let tools: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    format!("{line}: expected {}", tools.join(", "))
}

/// The command whose usage is told, such as `ringwise logd`.
fn used(text: &str) -> String {
    let usage = text.split("Usage: ").nth(1).unwrap_or("ringwise").split_whitespace();
    let is_name = |word: &&str| word.starts_with(|first: char| first.is_ascii_lowercase());
    usage.take_while(is_name).collect::<Vec<_>>().join(" ")
}

/// The message and its hints, without the usage and the pointer to the help.
fn one_line(text: &str) -> String {
    let words = text.strip_prefix("error: ").unwrap_or(text);
    let message = words.split("\n\nUsage:").next().unwrap_or(words);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Command::command().debug_assert();
    }

    #[test]
    fn errors_are_one_line() {
        for (typed, part) in [
            (&["ringwise", "lba"][..], "lab"),
            (&["ringwise", "doctor", "--jsno"], "--json"),
            (&["ringwise", "lab", "--depht", "3"], "--depth"),
            (&["ringwise", "lab", "--quick", "--full"], "--full"),
            (&["ringwise", "lab", "--depth"], "--depth"),
            (&["ringwise", "logd", "--zzz"], "'--zzz' found: `ringwise logd --help` has those"),
            (&["ringwise", "lab", "read", "nop"], "nop"),
        ] {
            let line = message(&Command::try_parse_from(typed).unwrap_err());
            assert!(line.contains(part) && !line.contains('\n'), "{line}");
            assert!(!line.starts_with("error") && !line.contains("For more"), "{line}");
        }
    }
}
