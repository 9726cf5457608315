//! The flags that every generator has, and what they come to.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use ringwise_measure::quantity;

use crate::{error::LoadError, limits};

/// The longest default warm-up.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// The flags of every generator.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Send before measuring [default: a tenth of the duration, at most 1s]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    pub warm_up: Option<Duration>,

    /// Run this many threads and spread the connections over them
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: u64,

    /// Pin the threads to these processors, in turn
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// Report CPU time, context switches and memory of the server's process
    #[arg(long, value_name = "PID")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub server_pid: Option<u32>,

    /// Write the result as JSON to FILE; without FILE, to standard output
    /// instead of the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

impl Common {
    /// The warm-up before a measured time of `duration`, once both can be meant.
    pub(crate) fn checked_warm_up(&self, duration: Duration) -> Result<Duration, LoadError> {
        if duration.is_zero() {
            return Err(LoadError::Usage("--duration 0: expected more than nothing".into()));
        }
        limits::check_processors(&self.pin)?;
        Ok(self.warm_up.unwrap_or((duration / 10).min(WARM_UP_MAX)))
    }
}

/// A size from `least` to `most` bytes.
pub(crate) fn size(text: &str, least: u64, most: u64) -> Result<usize, String> {
    let bytes = quantity::parse_size(text).map_err(|error| error.to_string())?;
    let expected = || format!("expected {least} to {}", quantity::size_text(most));
    (least..=most).contains(&bytes).then_some(bytes as usize).ok_or_else(expected)
}

/// A value as it is typed.
pub(crate) fn typed(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned())
}
