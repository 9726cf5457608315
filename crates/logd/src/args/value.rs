//! Values of options as they are typed: addresses, sizes, times, levels.
//!
//! Each function returns what it expects if a value is wrong. They know no option.

use std::{net::SocketAddr, time::Duration};

use clap::ValueEnum;
use ringwise_measure::quantity;

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, such as 127.0.0.1:9000 or [::1]:9000".to_owned())
}

pub(super) fn line_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the number of a line, from 0".to_owned())
}

pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    match quantity::parse_duration(text).map_err(|error| error.to_string())? {
        Duration::ZERO => Err("expected more than 0, such as 10s".to_owned()),
        time => Ok(time),
    }
}

pub(super) fn some_size(text: &str) -> Result<u64, String> {
    match quantity::parse_size(text).map_err(|error| error.to_string())? {
        0 => Err("expected more than 0, such as 64m".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(super) fn some_memory(text: &str) -> Result<usize, String> {
    some_size(text).and_then(in_memory)
}

/// What zero gets as a limit of retention, where many mean "no limit" by it.
const NOTHING_KEPT: &str = "expected more than 0; leave the option out to keep segments";

pub(crate) fn kept_time(text: &str) -> Result<Duration, String> {
    match quantity::parse_duration(text).map_err(|error| error.to_string())? {
        Duration::ZERO => Err(NOTHING_KEPT.to_owned()),
        time => Ok(time),
    }
}

pub(crate) fn kept_size(text: &str) -> Result<u64, String> {
    match quantity::parse_size(text).map_err(|error| error.to_string())? {
        0 => Err(NOTHING_KEPT.to_owned()),
        bytes => Ok(bytes),
    }
}

pub(super) fn line_size(text: &str) -> Result<usize, String> {
    const MOST: u64 = 1 << 30;
    match quantity::parse_size(text).map_err(|error| error.to_string())? {
        bytes @ 1..=MOST => Ok(bytes as usize),
        _ => Err(format!("expected 1 to {}", quantity::size_text(MOST))),
    }
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WriteChoice {
    /// With O_DIRECT, in whole blocks; through the page cache if the file system refuses O_DIRECT
    Direct,
    /// Through the page cache, so that other tools than "logd tail" can follow an open segment
    Buffered,
}

/// A level of zstd, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing(pub(super) Option<i32>);

pub(super) fn pack_level(text: &str) -> Result<Packing, String> {
    let levels = 1..=19;
    match text {
        "none" => Ok(Packing(None)),
        _ => match text.parse() {
            Ok(level) if levels.contains(&level) => Ok(Packing(Some(level))),
            _ => Err("expected a level from 1 to 19, or none".to_owned()),
        },
    }
}

pub(super) fn memory_size(text: &str) -> Result<usize, String> {
    in_memory(quantity::parse_size(text).map_err(|error| error.to_string())?)
}

fn in_memory(bytes: u64) -> Result<usize, String> {
    usize::try_from(bytes).map_err(|_| "too large".to_owned())
}
