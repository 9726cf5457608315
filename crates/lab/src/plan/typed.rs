//! Reads lists and numbers that were typed. An error names the flag, its value and what is accepted.

use std::{fmt, net::SocketAddr};

use ringwise_measure::{quantity::parse_size, words::nearest};

use super::scale::Scale;
use crate::{args::Args, error::LabError};

/// The most reads in flight, threads and files. Each thread takes a quarter of a mebibyte for its
/// latencies.
pub(crate) const COUNT_MAX: u64 = 1024;

/// What was typed, with what every workload reads of it.
#[derive(Debug)]
pub struct Typed<'a> {
    /// The flags.
    pub args: &'a Args,
    /// The value of `--depth`.
    pub depths: Option<Vec<usize>>,
    /// How large the run is.
    pub scale: Scale,
}

impl<'a> Typed<'a> {
    /// Reads the flags.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if `--depth` is not a list of numbers.
    pub fn of(args: &'a Args) -> Result<Typed<'a>, LabError> {
        let depths = args.depth.as_deref().map(|text| counts("--depth", text)).transpose()?;
        Ok(Typed { args, depths, scale: Scale::of(args) })
    }

    /// Whether the whole suite was asked for.
    pub fn is_suite(&self) -> bool {
        self.args.workload.is_none()
    }
}

/// Numbers of reads in flight, threads or files.
pub(crate) fn counts(flag: &str, text: &str) -> Result<Vec<usize>, LabError> {
    list(text, |item| Ok(number(flag, Some(item), 1, COUNT_MAX)?.unwrap_or(1) as usize))
}

/// The items of a list in the order typed, each once.
pub(crate) fn list<T: PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, LabError>,
) -> Result<Vec<T>, LabError> {
    let mut items = Vec::new();
    for item in text.split(',') {
        let item = parse(item.trim())?;
        if !items.contains(&item) {
            items.push(item);
        }
    }
    Ok(items)
}

/// Reads a whole number within limits. Without text there is none.
pub(crate) fn number(
    flag: &str,
    text: Option<&str>,
    least: u64,
    most: u64,
) -> Result<Option<u64>, LabError> {
    let Some(text) = text else { return Ok(None) };
    let accepted = if most == u64::MAX {
        format!("a whole number of at least {least}")
    } else {
        format!("{least} to {most}")
    };
    match text.trim().parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
        _ => Err(invalid(flag, text, format_args!("expected {accepted}"))),
    }
}

/// Says what is wrong about a flag, whatever its value.
pub(crate) fn usage(flag: &str, what: impl fmt::Display) -> LabError {
    LabError::Usage(format!("{flag} {what}"))
}

/// Says why a value of a flag is wrong, in the form that the whole command has for it.
pub(crate) fn invalid(flag: &str, value: &str, why: impl fmt::Display) -> LabError {
    LabError::Usage(format!("{flag}: invalid value '{value}': {why}"))
}

/// Says that a value is not one of those that are accepted, and which one could be meant. What is behind `;` in
/// `accepted` are no values.
pub(crate) fn unknown(flag: &str, value: &str, accepted: &str) -> LabError {
    let values = accepted.split(';').next().unwrap_or_default();
    let values = values.split(", ").flat_map(|value| value.split(" or "));
    match nearest(value, values) {
        Some(near) => invalid(flag, value, format_args!("did you mean '{near}'?")),
        None => invalid(flag, value, format_args!("expected {accepted}")),
    }
}

/// Adds the servers of `--target` to others. Each has a name of its own.
pub(crate) fn add_targets<T: fmt::Display>(
    servers: &mut Vec<T>,
    targets: &[String],
    make: impl Fn(String, SocketAddr) -> T,
) -> Result<(), LabError> {
    for text in targets {
        let (name, address) = text.split_once('=').unwrap_or((text, text));
        let Some(address) = address.parse().ok().filter(|_| !name.is_empty()) else {
            let expected = "expected IP:PORT or NAME=IP:PORT, such as rival=127.0.0.1:7000";
            return Err(invalid("--target", text, expected));
        };
        if servers.iter().any(|server| server.to_string() == name) {
            return Err(invalid("--target", text, "the name is taken; choose another"));
        }
        servers.push(make(name.to_owned(), address));
    }
    Ok(())
}

/// Reads numbers of connections.
pub(crate) fn connections(text: &str, most: u64) -> Result<Vec<usize>, LabError> {
    list(text, |item| Ok(number("--connections", Some(item), 1, most)?.unwrap_or(1) as usize))
}

/// The longest message, body or line.
const LENGTH_MAX: u64 = 16 << 20;

/// Reads the length of a message, a body or a line, in bytes.
pub(crate) fn length(text: &str, least: u64) -> Result<usize, LabError> {
    match parse_size(text) {
        Ok(bytes) if (least..=LENGTH_MAX).contains(&bytes) => Ok(bytes as usize),
        Ok(_) => Err(invalid("--length", text, format_args!("expected {least} to 16m"))),
        Err(error) => Err(invalid("--length", text, error)),
    }
}
