//! `ringwise cp` as clap sees it, read from the help of `cp`.
//!
//! `cp` reads its command line as GNU cp does, which clap cannot. Man pages and completions need only the
//! names and what they do, and the help has those. This definition never parses anything.

use clap::{Arg, ArgAction, Command};

/// The column in which the help's descriptions begin.
const DESCRIPTION: usize = 32;

/// Returns `cp` with each option that the help names.
pub(super) fn definition() -> Command {
    let mut options: Vec<Described> = Vec::new();
    for line in ringwise_cp::HELP.lines() {
        if line.starts_with("  ") && line.trim_start().starts_with('-') {
            options.push(Described::read(line));
        } else if let (Some(last), true) =
            (options.last_mut(), line.starts_with(&" ".repeat(DESCRIPTION)))
        {
            last.text.push(' ');
            last.text.push_str(line.trim());
        } else if !line.is_empty()
            && !line.starts_with(' ')
            && !options.is_empty()
            && !line.ends_with(':')
        {
            break;
        }
    }
    let operands =
        Arg::new("SOURCE").num_args(1..).help("What to copy; the last one is the destination");
    Command::new("cp")
        .about("Copy files with GNU cp's options, many at a time")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(options.into_iter().map(Described::into_argument))
        .arg(operands)
}

/// An option as the help describes it.
#[derive(Default)]
struct Described {
    shorts: Vec<char>,
    long: Option<String>,
    value: Option<String>,
    value_may_be_missing: bool,
    text: String,
}

impl Described {
    /// Reads a line such as `  -S, --suffix=SUFFIX           the end of a backup's name`.
    fn read(line: &str) -> Described {
        let (names, text) = line.split_at(line.len().min(DESCRIPTION));
        let mut read = Described { text: text.trim().to_owned(), ..Described::default() };
        for name in names.split(',').map(str::trim) {
            match name.strip_prefix("--") {
                Some(long) => read.read_long(long),
                None => read.shorts.extend(name.chars().nth(1)),
            }
        }
        read
    }

    fn read_long(&mut self, long: &str) {
        let (name, value) =
            long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        self.value_may_be_missing = name.ends_with('[');
        self.long = Some(name.trim_end_matches('[').to_owned());
        self.value = value.map(|value| value.trim_end_matches(']').to_owned());
    }

    fn into_argument(self) -> Arg {
        let id = self.long.clone().unwrap_or_else(|| self.shorts.iter().collect());
        let mut argument = Arg::new(id).help(self.text);
        let mut shorts = self.shorts.into_iter();
        if let Some(short) = shorts.next() {
            argument = argument.short(short);
        }
        for short in shorts {
            argument = argument.visible_short_alias(short);
        }
        if let Some(long) = self.long {
            argument = argument.long(long);
        }
        match self.value {
            None => argument.action(ArgAction::SetTrue),
            Some(value) if self.value_may_be_missing => {
                argument.value_name(value).num_args(0..=1).require_equals(true)
            }
            Some(value) => argument.value_name(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_with_their_values_and_all_lines_of_their_text() {
        let command = definition();
        let find =
            |id: &str| command.get_arguments().find(|argument| argument.get_id() == id).expect(id);
        let recursive = find("recursive");
        assert_eq!(recursive.get_short(), Some('R'));
        assert_eq!(recursive.get_visible_short_aliases(), Some(vec!['r']));
        assert_eq!(find("suffix").get_short(), Some('S'));
        assert!(find("suffix").get_value_names().is_some());
        assert!(find("b").get_long().is_none());
        assert!(find("atomic").get_help().unwrap().to_string().ends_with("keep the old content"));
        command.clone().debug_assert();
    }
}
