//! Mistyped commands: one line that names the tool, what is wrong and the nearest word.
//!
//! clap finds the mistake and the nearest word. Its own message takes a paragraph, so this file words the
//! message anew. It prints help and versions as clap words them, because somebody asked for those.

use std::process::ExitCode;

use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{Command, complain};

/// Prints what clap found, and returns the exit status: 0 for help and versions, 2 for a mistake.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe is not an error.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let tool = Tool::typed(std::env::args());
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
}

impl Tool {
    fn typed(words: impl Iterator<Item = String>) -> Tool {
        let mut command = Command::command();
        let mut names = Vec::new();
        for word in words.skip(1) {
            let Some(child) = command.find_subcommand(&word) else { break };
            names.push(word);
            command = child.clone();
        }
        let children = command.get_subcommands().map(|child| child.get_name().to_owned()).collect();
        Tool { names, children }
    }

    fn prefix(&self) -> String {
        self.names.first().map_or(String::new(), |name| format!("{name}: "))
    }

    /// The command that prints the help.
    fn help(&self) -> String {
        let names: String = self.names.iter().map(|name| format!(" {name}")).collect();
        format!("`ringwise{names} --help`")
    }
}

fn message(error: &clap::Error, tool: &Tool) -> String {
    let text = |kind| error.get(kind).map(words);
    let nearest = |kind| text(kind).map(|word| format!("did you mean '{word}'?"));
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let typed = text(ContextKind::InvalidArg).unwrap_or_default();
            let what = if typed.starts_with('-') { "unknown option" } else { "unexpected word" };
            let advice = nearest(ContextKind::SuggestedArg)
                .unwrap_or_else(|| format!("{} lists the options", tool.help()));
            format!("{what} '{typed}': {advice}")
        }
        ErrorKind::InvalidSubcommand => {
            let typed = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let what = if tool.names.is_empty() { "tool" } else { "subcommand" };
            let expected = format!("expected {}", tool.children.join(", "));
            let advice = nearest(ContextKind::SuggestedSubcommand).unwrap_or(expected);
            format!("unknown {what} '{typed}': {advice}")
        }
        ErrorKind::InvalidValue => {
            let option = text(ContextKind::InvalidArg).unwrap_or_default();
            // clap writes `--option <VALUE>`, or `--option[=<VALUE>]` if the value may be left out.
            let option = option.split([' ', '=']).next().unwrap_or_default().trim_end_matches('[');
            let accepted = text(ContextKind::ValidValue).unwrap_or_default();
            match text(ContextKind::InvalidValue).filter(|value| !value.is_empty()) {
                Some(value) => {
                    let advice = nearest(ContextKind::SuggestedValue)
                        .unwrap_or_else(|| format!("expected {accepted}"));
                    format!("{option}: invalid value '{value}': {advice}")
                }
                None if accepted.is_empty() => {
                    format!("{option} needs a value: see {}", tool.help())
                }
                None => format!("{option} needs a value: expected {accepted}"),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = text(ContextKind::InvalidArg).unwrap_or_default();
            format!("{missing} is missing: {} shows the usage", tool.help())
        }
        ErrorKind::MissingSubcommand => {
            format!("a subcommand is missing: expected {}", tool.children.join(", "))
        }
        _ => one_line(&error.to_string()),
    }
}

fn words(value: &ContextValue) -> String {
    match value {
        ContextValue::String(word) => word.clone(),
        ContextValue::Strings(words) => words.join(", "),
        other => other.to_string(),
    }
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
