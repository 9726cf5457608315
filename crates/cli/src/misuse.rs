//! Mistyped commands: one line that names the tool, what is wrong and the nearest word.
//!
//! clap finds the mistake. Its own message takes a paragraph, so this file words the message anew. It prints help
//! and versions as clap words them, because somebody asked for those.

use std::{error::Error as _, io, process::ExitCode};

use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};

use ringwise_measure::{
    plain,
    words::{nearest, refusal, shown},
};

use crate::{Command, complain};

/// Prints what clap found, and returns the exit status: 0 for help and versions, 2 for a mistake.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Err(failed) if failed.kind() != io::ErrorKind::BrokenPipe => {
                complain(format_args!("standard output: {}", plain(&failed)));
                ExitCode::FAILURE
            }
            // A closed pipe is not an error.
            _ => ExitCode::SUCCESS,
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            let tool = Tool::typed(words);
            complain(format_args!("{}{}", tool.prefix(), message(error, &tool)));
            ExitCode::from(2)
        }
    }
}

/// The tool that was called, with its subcommand: `load log`.
struct Tool {
    names: Vec<String>,
    /// The names of its subcommands, or of the tools if none was called.
    children: Vec<String>,
    /// Whether it runs a command, which is typed after `--`.
    runs_command: bool,
    /// The words behind its names.
    rest: Vec<String>,
}

impl Tool {
    fn typed(words: impl Iterator<Item = String>) -> Tool {
        let mut command = Command::command();
        let mut names = Vec::new();
        // `ringwise help logd` is about logd.
        let mut words = words.skip(1).skip_while(|word| word == "help").peekable();
        while let Some(child) = words.peek().and_then(|word| command.find_subcommand(word)) {
            command = child.clone();
            names.extend(words.next());
        }
        Tool {
            names,
            children: command.get_subcommands().map(|child| child.get_name().to_owned()).collect(),
            runs_command: command.get_positionals().any(clap::Arg::is_last_set),
            rest: words.collect(),
        }
    }

    fn children(&self) -> impl Iterator<Item = &str> {
        self.children.iter().map(String::as_str)
    }

    fn prefix(&self) -> String {
        self.names.first().map_or(String::new(), |name| format!("{name}: "))
    }

    /// What was called.
    fn command(&self) -> String {
        let names: String = self.names.iter().map(|name| format!(" {name}")).collect();
        format!("ringwise{names}")
    }

    /// The command that prints the help.
    fn help(&self) -> String {
        format!("`{} --help`", self.command())
    }

    /// An unknown subcommand, and what could be meant.
    fn unknown_child(&self, typed: &str) -> String {
        let what = if self.names.is_empty() { "tool" } else { "subcommand" };
        let nearest = nearest(typed, self.children());
        let expected = || format!("expected {}", self.children.join(", "));
        let advice = nearest.map_or_else(expected, |near| format!("did you mean '{near}'?"));
        format!("unknown {what} '{typed}': {advice}")
    }
}

fn message(error: &clap::Error, tool: &Tool) -> String {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => unknown_argument(error, tool),
        ErrorKind::InvalidSubcommand => tool.unknown_child(&text(ContextKind::InvalidSubcommand)),
        ErrorKind::InvalidValue => invalid_value(error, tool),
        ErrorKind::ValueValidation => {
            let (option, value) =
                (option(&text(ContextKind::InvalidArg)), text(ContextKind::InvalidValue));
            format!("{option}: invalid value '{}': {}", shown(&value), refused(error, &value))
        }
        ErrorKind::MissingRequiredArgument => missing(error, tool),
        ErrorKind::MissingSubcommand => {
            format!("a subcommand is missing: expected {}", tool.children.join(", "))
        }
        ErrorKind::ArgumentConflict => conflict(error, tool),
        ErrorKind::TooManyValues => {
            format!("{} takes no value", option(&text(ContextKind::InvalidArg)))
        }
        ErrorKind::WrongNumberOfValues => {
            let (argument, expected) =
                (text(ContextKind::InvalidArg), text(ContextKind::ExpectedNumValues));
            format!("{argument} needs {expected} values: see {}", tool.help())
        }
        ErrorKind::InvalidUtf8 => {
            "an argument is not UTF-8: only names of files may have other bytes".to_owned()
        }
        _ => one_line(&error.to_string()),
    }
}

fn unknown_argument(error: &clap::Error, tool: &Tool) -> String {
    let typed = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if let Some(behind) = typed.strip_prefix('-')
        && behind.starts_with(|first: char| first.is_ascii_digit())
    {
        return format!("unexpected value '{typed}': no option takes a negative one");
    }
    if !typed.starts_with('-') && tool.runs_command {
        let (command, rest) = (tool.command(), tool.rest.join(" "));
        return format!(
            "unexpected word '{typed}': put '--' before the command: {command} -- {rest}"
        );
    }
    let what = if typed.starts_with('-') { "unknown option" } else { "unexpected word" };
    let advice = error.get(ContextKind::SuggestedArg).map_or_else(
        || format!("{} lists the options", tool.help()),
        |near| format!("did you mean '{}'?", near),
    );
    format!("{what} '{typed}': {advice}")
}

fn invalid_value(error: &clap::Error, tool: &Tool) -> String {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (option, accepted) =
        (option(&text(ContextKind::InvalidArg)), text(ContextKind::ValidValue));
    let value = shown(&text(ContextKind::InvalidValue));
    match error.get(ContextKind::SuggestedValue) {
        _ if value.is_empty() && accepted.is_empty() => {
            format!("{option} needs a value: see {}", tool.help())
        }
        _ if value.is_empty() => format!("{option} needs a value: expected {accepted}"),
        Some(near) => format!("{option}: invalid value '{value}': did you mean '{}'?", near),
        None => format!("{option}: invalid value '{value}': expected {accepted}"),
    }
}

fn missing(error: &clap::Error, tool: &Tool) -> String {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.clone(),
        other => other.map(ToString::to_string).into_iter().collect(),
    };
    let be = if missing.len() == 1 { "is" } else { "are" };
    let missing = missing.join(" and ");
    if tool.runs_command {
        return format!(
            "{missing} {be} missing: put it behind '--': {} -- COMMAND",
            tool.command()
        );
    }
    format!("{missing} {be} missing: {} shows the usage", tool.help())
}

/// Options that exclude each other, an option that is given twice, or words beside a subcommand.
fn conflict(error: &clap::Error, tool: &Tool) -> String {
    let text = |kind| error.get(kind).map(ToString::to_string);
    if let Some(typed) = text(ContextKind::InvalidSubcommand) {
        if tool.children.contains(&typed) {
            let command = tool.command();
            return format!("'{typed}' does not go with what is before it: {command} {typed} ...");
        }
        let is_near = |word: &&String| nearest(word, tool.children()).is_some();
        let first = tool.rest.first().filter(is_near);
        return first.map_or_else(
            || format!("unexpected word '{typed}': {} shows the usage", tool.help()),
            |first| tool.unknown_child(first),
        );
    }
    let given = option(&text(ContextKind::InvalidArg).unwrap_or_default());
    match text(ContextKind::PriorArg) {
        Some(prior) if option(&prior) == given => format!("{given} is given twice: give it once"),
        Some(prior) => format!("{given} does not go with {}: leave one out", option(&prior)),
        None => format!("{given} does not go with other options: leave them out"),
    }
}

/// The option of clap's `--option <VALUE>`, or of `--option[=<VALUE>]` if the value may be left out.
fn option(argument: &str) -> String {
    argument.split([' ', '=']).next().unwrap_or_default().trim_end_matches('[').to_owned()
}

/// Why the parser of a value refused it.
fn refused(error: &clap::Error, value: &str) -> String {
    error.source().map_or_else(|| "see --help".to_owned(), |why| refusal(why, value))
}

/// clap's own message, without the usage and the pointer to the help.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let text = text.split("\n\nUsage:").next().unwrap_or(text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn told(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Command::try_parse_from(&words).expect_err(line);
        let tool = Tool::typed(words.into_iter());
        format!("{}{}", tool.prefix(), message(&error, &tool))
    }

    #[test]
    fn a_mistake_is_told_with_the_nearest_word() {
        assert_eq!(told("ringwise labb"), "unknown tool 'labb': did you mean 'lab'?");
        assert_eq!(
            told("ringwise doctor --jsno"),
            "doctor: unknown option '--jsno': did you mean '--json'?"
        );
        assert_eq!(
            told("ringwise load lag"),
            "load: unknown subcommand 'lag': did you mean 'log'?"
        );
        assert_eq!(
            told("ringwise lab --only ring"),
            "lab: unknown option '--only': `ringwise lab --help` lists the options"
        );
    }

    #[test]
    fn a_mistake_that_resembles_nothing_is_told_with_what_is_accepted() {
        let tools = "doctor, lab, cp, logd, echo, load, generate";
        assert_eq!(told("ringwise xyzzy"), format!("unknown tool 'xyzzy': expected {tools}"));
        assert_eq!(
            told("ringwise load xyzzy"),
            "load: unknown subcommand 'xyzzy': expected echo, log"
        );
        assert_eq!(
            told("ringwise doctor a b"),
            "doctor: unexpected word 'b': `ringwise doctor --help` lists the options"
        );
    }

    #[test]
    fn a_short_word_has_a_nearest_one() {
        assert_eq!(told("ringwise lb"), "unknown tool 'lb': did you mean 'lab'?");
        assert_eq!(told("ringwise log"), "unknown tool 'log': did you mean 'logd'?");
        assert_eq!(
            told("ringwise load lgo"),
            "load: unknown subcommand 'lgo': did you mean 'log'?"
        );
        assert_eq!(
            told("ringwise help logd queyr"),
            "logd: unknown subcommand 'queyr': did you mean 'query'?"
        );
        assert_eq!(
            told("ringwise lab compar x"),
            "lab: unknown subcommand 'compar': did you mean 'compare'?"
        );
        assert_eq!(
            told("ringwise lab read latency"),
            "lab: unexpected word 'latency': `ringwise lab --help` shows the usage"
        );
    }

    #[test]
    fn a_word_that_is_no_text_is_told() {
        use std::os::unix::ffi::OsStrExt as _;
        let words = [b"ringwise", &b"logd"[..], b"--listen", b"\xff"];
        let words = words.map(std::ffi::OsStr::from_bytes);
        let error = Command::try_parse_from(words).unwrap_err();
        let tool = Tool::typed(words.iter().map(|word| word.to_string_lossy().into_owned()));
        assert_eq!(
            message(&error, &tool),
            "an argument is not UTF-8: only names of files may have other bytes"
        );
    }

    #[test]
    fn a_number_that_cannot_be_is_told_with_those_that_can() {
        for (typed, wanted) in [
            ("logd --threads 0", "logd: --threads: invalid value '0': expected 1 to 256"),
            ("logd --threads x", "logd: --threads: invalid value 'x': expected a whole number"),
            ("logd --threads=", "logd: --threads: invalid value '': expected a whole number"),
            ("logd query d --limit 0", "logd: --limit: invalid value '0': expected at least 1"),
            ("logd --batch 0", "logd: --batch: invalid value '0': expected at least 1"),
            ("logd --threads -1", "logd: unexpected value '-1': no option takes a negative one"),
            (
                "load echo -t 9999999999999999d",
                "load: --duration: invalid value '9999999999999999d': too large: \
                 expected at most 213503982d",
            ),
            ("doctor --json=1", "doctor: --json takes no value"),
            ("echo --threads 1 --threads 2", "echo: --threads is given twice: give it once"),
        ] {
            assert_eq!(told(&format!("ringwise {typed}")), wanted);
        }
    }

    #[test]
    fn what_excludes_each_other_is_told() {
        assert_eq!(
            told("ringwise lab --duration 1s --reads 5"),
            "lab: --duration does not go with --reads: leave one out"
        );
        assert_eq!(
            told("ringwise logd --dir d cat d"),
            "logd: 'cat' does not go with what is before it: ringwise logd cat ..."
        );
        assert_eq!(
            told("ringwise lab compare"),
            "lab: <OLD> and <NEW> are missing: `ringwise lab compare --help` shows the usage"
        );
    }

    #[test]
    fn a_command_to_record_stands_behind_two_dashes() {
        assert_eq!(
            told("ringwise lab record true extra"),
            "lab: unexpected word 'true': put '--' before the command: \
             ringwise lab record -- true extra"
        );
    }

    #[test]
    fn a_wrong_or_missing_value_is_told_with_its_option() {
        assert!(
            told("ringwise logd --engine ringg")
                .starts_with("logd: --engine: invalid value 'ringg': ")
        );
        assert_eq!(
            told("ringwise generate"),
            "generate: <DIR> is missing: `ringwise generate --help` shows the usage"
        );
    }
}
