//! Values of options as they are typed: addresses, sizes, times, levels.
//!
//! Each function says what it expects where a value is none. They know no option.

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
        Duration::ZERO => Err("expected more than nothing".to_owned()),
        time => Ok(time),
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
    /// O_DIRECT, in whole blocks; through the page cache where that is refused
    Direct,
    /// Through the page cache
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
    let bytes = quantity::parse_size(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| "more than there can be".to_owned())
}
