//! Heat: a processor or a device that becomes too hot slows itself down, and the figures with it.
//!
//! It reads what the machine tells before the run and after each section. What is not known is not said.

use ringwise_measure::{Fact, Sources, device::Device, environment::core_throttles};

/// How much warmer a device becomes before it is said.
const WARMER_MIN_MILLIDEGREES: i64 = 10_000;

/// What the machine tells of its heat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Warmth {
    /// The device's temperature in thousandths of a degree Celsius.
    pub device_millidegrees: Option<i64>,
    /// How often processors were throttled since boot.
    pub core_throttles: Option<u64>,
}

impl Warmth {
    /// Reads it. The device has the number `MAJOR:MINOR`.
    pub fn read(sources: &Sources, device_number: Option<&str>) -> Warmth {
        let device = device_number.map(|number| Device::numbered(sources, number));
        let known = device.as_ref().and_then(Fact::known);
        Warmth {
            device_millidegrees: known
                .and_then(|device| device.temperature_millidegrees.known().copied()),
            core_throttles: core_throttles(sources).known().copied(),
        }
    }

    /// What became too hot since the run began, a sentence each.
    pub fn notes(&self, now: &Warmth) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some((before, now)) = self.core_throttles.zip(now.core_throttles)
            && now > before
        {
            notes.push(format!(
                "the processors were too hot: thermal_throttle/core_throttle_count grew by {} since the \
                 run began",
                now - before
            ));
        }
        if let Some((before, now)) = self.device_millidegrees.zip(now.device_millidegrees)
            && now.saturating_sub(before) >= WARMER_MIN_MILLIDEGREES
        {
            notes.push(format!(
                "the device became warmer: {} degrees Celsius when the run began, {} now",
                before / 1000,
                now / 1000
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn write(path: impl AsRef<Path>, text: &str) {
        fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_that_becomes_too_hot_is_told() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        let nothing = Warmth::read(&sources, Some("259:0"));
        assert_eq!(nothing, Warmth::default());
        let count =
            sources.sys.join("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count");
        let input = sources.sys.join("dev/block/259:0/device/hwmon1/temp1_input");
        let read = |throttles: &str, millidegrees: &str| {
            write(&count, throttles);
            write(&input, millidegrees);
            Warmth::read(&sources, Some("259:0"))
        };
        let before = read("7", "38900");
        assert_eq!(before.notes(&read("7", "48899")), Vec::<String>::new());
        let told = before.notes(&read("9", "48900"));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("core_throttle_count grew by 2 since"), "{told:?}");
        assert!(told[1].ends_with("38 degrees Celsius when the run began, 48 now"), "{told:?}");
        assert_eq!(nothing.notes(&read("9", "60000")), Vec::<String>::new(), "not known before");
    }
}
