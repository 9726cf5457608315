//! The configuration file: each key is a flag, and what is wrong is said in the file's words.

use std::path::Path;

use clap::FromArgMatches as _;

use super::{ServeArgs, mistake::in_a_line};
use crate::error::LogdError;

/// Reads a file's options.
pub(super) fn read(path: &Path) -> Result<ServeArgs, LogdError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| LogdError::on(path, &error).of("--config"))?;
    parse(&text).map_err(|error| LogdError::Usage(format!("--config {}: {error}", path.display())))
}

/// Reads a file's options as if they had been typed.
pub(crate) fn parse(text: &str) -> Result<ServeArgs, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        let line = 1 + before.matches('\n').count();
        format!("line {line}: {}", error.message())
    })?;
    let command = <ServeArgs as clap::Args>::augment_args(clap::Command::new("logd"));
    let mut flags = vec!["logd".to_owned()];
    for (name, value) in table {
        if matches!(&*name, "config" | "check" | "help") {
            return Err(format!("{name}: no key; use --{name} on the command line"));
        }
        let values = match value {
            toml::Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            let value = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                other => {
                    let kind = other.type_str();
                    return Err(format!(
                        "{name}: expected a string or a whole number, not a {kind}"
                    ));
                }
            };
            let flag = format!("--{name}={value}");
            let alone = ["logd", &flag];
            let tried = command.clone().try_get_matches_from(alone);
            tried.map_err(|error| in_a_line(&error))?;
            flags.push(flag);
        }
    }
    let matches = command.try_get_matches_from(flags).map_err(|error| in_a_line(&error))?;
    ServeArgs::from_arg_matches(&matches).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::guarantee::Guarantee;

    #[test]
    fn a_file_says_what_flags_say() {
        let text = "listen = \"127.0.0.1:5\"\nthreads = 2\nmax-line = \"4k\"\n\
                    require = [\"ts:string\", \"n\"]\nack = \"written\"\ndrain = \"1s\"";
        let file = parse(text).unwrap();
        assert_eq!(file.listen, Some("127.0.0.1:5".parse().unwrap()));
        assert_eq!((file.threads, file.max_line), (Some(2), Some(4096)));
        assert_eq!((file.require.len(), file.ack), (2, Some(Guarantee::Written)));
        assert_eq!(file.drain, Some(Duration::from_secs(1)));
    }

    #[test]
    fn what_a_file_says_wrong_is_told() {
        for (text, word) in [
            ("threads = 0", "threads: invalid value '0': expected 1 to 256"),
            ("threads = \"x\"", "threads: invalid value 'x': expected a whole number"),
            ("threads = [1, 2]", "threads is given twice: give it once"),
            ("batch = 0", "batch: invalid value '0': expected at least 1"),
            ("thraeds = 1", "unknown key 'thraeds': did you mean 'threads'?"),
            ("zzz = 1", "unknown key 'zzz': `ringwise logd --help` lists the options"),
            ("threads = true", "threads: expected a string or a whole number, not a boolean"),
            ("ack = \"maybe\"", "ack: invalid value 'maybe': expected none, written, durable"),
            ("ack = \"drable\"", "ack: invalid value 'drable': did you mean 'durable'?"),
            ("retain-age = 0", "retain-age: invalid value '0': expected more than 0; leave"),
            ("retain-size = 0", "retain-size: invalid value '0': expected more than 0; leave"),
            ("retain-dead = 0", "retain-dead: invalid value '0': expected more than 0, such as"),
            ("segment-size = 0", "segment-size: invalid value '0': expected more than 0"),
            ("segment-age = 0", "segment-age: invalid value '0': expected more than 0"),
            ("commit-size = 0", "commit-size: invalid value '0': expected more than 0"),
            ("tls-handshake = 0", "tls-handshake: invalid value '0': expected more than 0"),
            ("tenant = \"a,retain-age=0\"", "retain-age: expected more than 0; leave"),
            ("a = ", "line 1"),
            ("drain = 1\ndrain = 2", "line 2: duplicate key"),
            ("config = \"x\"", "command line"),
            ("check = true", "command line"),
            ("max-line = 1.5", "whole number"),
            ("listen = \"here\"", "127.0.0.1:9000"),
            ("require = [\"a:text\"]", "a:text"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
