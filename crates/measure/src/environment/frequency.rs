//! The processors' frequencies, and how often they were throttled because they were too hot.

use serde::Serialize;

use crate::fact::{self, Fact, Sources};

/// Frequencies in kHz over all processors (cpufreq), and thermal throttling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frequency {
    /// The current frequency of the slowest processor.
    pub current_least_khz: Fact<u64>,
    /// The current frequency of the fastest processor.
    pub current_greatest_khz: Fact<u64>,
    /// The least frequency that a processor can have.
    pub least_khz: Fact<u64>,
    /// The greatest frequency that a processor can have.
    pub greatest_khz: Fact<u64>,
    /// How often processors were throttled since boot, summed over all processors. Threads of one core each count what
    /// their core counts. x86 only.
    pub core_throttles: Fact<u64>,
}

impl Frequency {
    pub(super) fn read(sources: &Sources) -> Frequency {
        let current = each(sources, "cpufreq/scaling_cur_freq");
        Frequency {
            current_least_khz: extreme(&current, |all| all.min()),
            current_greatest_khz: extreme(&current, |all| all.max()),
            least_khz: extreme(&each(sources, "cpufreq/cpuinfo_min_freq"), |all| all.min()),
            greatest_khz: extreme(&each(sources, "cpufreq/cpuinfo_max_freq"), |all| all.max()),
            core_throttles: core_throttles(sources),
        }
    }
}

/// Reads how often processors were throttled since boot, as in [`Frequency::core_throttles`].
pub fn core_throttles(sources: &Sources) -> Fact<u64> {
    let counts = each(sources, "thermal_throttle/core_throttle_count");
    counts.map(|counts| counts.into_iter().fold(0, u64::saturating_add))
}

/// Reads one file of every processor that has it.
fn each(sources: &Sources, file: &str) -> Fact<Vec<u64>> {
    let directory = sources.sys.join("devices/system/cpu");
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let is_there = |path: &std::path::PathBuf| path.exists();
    let paths: Vec<_> = entries.map(|entry| entry.path().join(file)).filter(is_there).collect();
    if paths.is_empty() {
        return Fact::Unknown(format!("no processor has {file}"));
    }
    let mut values = Vec::with_capacity(paths.len());
    for path in paths {
        match fact::value(&path) {
            Fact::Known(value) => values.push(value),
            Fact::Unknown(reason) => return Fact::Unknown(reason),
        }
    }
    Fact::Known(values)
}

fn extreme(
    values: &Fact<Vec<u64>>,
    choose: fn(std::iter::Copied<std::slice::Iter<'_, u64>>) -> Option<u64>,
) -> Fact<u64> {
    values.clone().and_then(|values| {
        Fact::of(choose(values.iter().copied()), || "no processor has it".to_owned())
    })
}
