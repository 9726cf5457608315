//! Where each option was given: as a flag or in the configuration file.
//!
//! An error is reported in the words of the place where the user has to change something. Errors name options as
//! flags; if one of them stands in the file, the error names the file and its keys. It reads no option itself.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::error::LogdError;

/// Which options were given where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    file: Option<PathBuf>,
    flags: BTreeSet<String>,
    /// Keys of the file that no flag overrides.
    keys: BTreeSet<String>,
}

impl Sources {
    pub(super) fn new(file: Option<&Path>) -> Sources {
        Sources { file: file.map(Path::to_owned), ..Sources::default() }
    }

    /// The flag's value, or else the file's, of the option in this field.
    pub(super) fn pick<T>(&mut self, field: &str, flag: Option<T>, file: Option<T>) -> Option<T> {
        let option = field.replace('_', "-");
        if flag.is_some() {
            self.flags.insert(option);
        } else if file.is_some() {
            self.keys.insert(option);
        }
        flag.or(file)
    }

    /// Rewrites an error that names options of the file, so that it names the file and its keys. Other errors
    /// stay as they are.
    pub(crate) fn blame(&self, error: LogdError) -> LogdError {
        match error {
            LogdError::Usage(text) => LogdError::Usage(self.rewrite(text)),
            LogdError::Failed(text) => LogdError::Failed(self.rewrite(text)),
            LogdError::BrokenPipe => LogdError::BrokenPipe,
        }
    }

    fn rewrite(&self, text: String) -> String {
        let Some(file) = &self.file else { return text };
        let mut is_of_file = false;
        let words = text.split(' ').map(|word| {
            let (before, option) = match word.strip_prefix('(') {
                Some(option) => ("(", option),
                None => ("", word),
            };
            let Some(rest) = option.strip_prefix("--") else { return word.to_owned() };
            let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            let key = &rest[..rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len())];
            is_of_file |= self.keys.contains(key);
            match self.flags.contains(key) {
                true => word.to_owned(),
                false => format!("{before}{rest}"),
            }
        });
        let words = words.collect::<Vec<_>>().join(" ");
        if is_of_file { format!("--config {}: {words}", file.display()) } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_the_words_of_where_its_option_stands() {
        let mut sources = Sources::new(Some(Path::new("logd.toml")));
        assert_eq!(sources.pick("tls_cert", None, Some(1)), Some(1));
        assert_eq!(sources.pick("engine", Some(2), Some(1)), Some(2));
        assert_eq!(sources.pick("budget", None::<u8>, None), None);
        for (text, told) in [
            ("--tls-cert a: why", "--config logd.toml: tls-cert a: why"),
            (
                "lines (--tls-cert) and --engine",
                "--config logd.toml: lines (tls-cert) and --engine",
            ),
            ("--tls-cert needs a --budget", "--config logd.toml: tls-cert needs a budget"),
            ("--engine: why", "--engine: why"),
            ("--budget: why", "--budget: why"),
            ("/a/--tls-cert: why", "/a/--tls-cert: why"),
            ("why", "why"),
        ] {
            assert_eq!(sources.blame(LogdError::Failed(text.to_owned())).to_string(), told);
        }
        let without_file = Sources::default();
        assert_eq!(without_file.blame(LogdError::failed("--budget")).to_string(), "--budget");
    }
}
