//! The flags that every generator has, and what they come to.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use ringwise_measure::quantity;

use crate::{document, error::LoadError, limits};

/// The longest default warm-up.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// The flags of every generator.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Send for this long before measuring [default: a tenth of the duration, at
    /// most 1s]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    pub warm_up: Option<Duration>,

    /// Spread the connections over this many threads
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: u64,

    /// Pin the threads to these processors, in turn
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// Also report CPU time, context switches and memory of this server process
    #[arg(long, value_name = "PID")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub server_pid: Option<u32>,

    /// Write the result as JSON to FILE; without FILE, print JSON instead of text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

impl Common {
    /// The warm-up before a measured time of `duration`, once the flags of every generator are checked.
    pub(crate) fn checked_warm_up(&self, duration: Duration) -> Result<Duration, LoadError> {
        if duration.is_zero() {
            let text = "--duration: invalid value '0': expected more than 0";
            return Err(LoadError::Usage(text.into()));
        }
        document::check(self.json.as_deref())?;
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
