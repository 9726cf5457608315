//! Checks whether this machine can measure energy, hardware counters, NVMe passthrough and polled completions. Each is
//! tried. If one is unavailable, the result has the reason.

use std::path::Path;

use serde::Serialize;

use crate::{
    counters,
    device::{Device, DeviceKind},
    fact::{Fact, Sources, lowered},
};

/// The optional measurements, each with the evidence that it works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Measurable {
    /// Energy, from RAPL.
    pub energy: Fact<String>,
    /// NVMe passthrough (IORING_OP_URING_CMD), through the generic device of a namespace.
    pub nvme_passthrough: Fact<String>,
    /// Polled completions (IOPOLL) on the device under the test files.
    pub iopoll: Fact<String>,
    /// Cycles, instructions and cache misses, from the processor's counters.
    pub hardware_counters: Fact<String>,
}

impl Measurable {
    /// Tries each. `device` is the one under the test files.
    pub fn probe(sources: &Sources, device: &Fact<Device>) -> Measurable {
        Measurable {
            energy: energy(sources),
            nvme_passthrough: nvme_passthrough(sources, device),
            iopoll: iopoll(device),
            hardware_counters: hardware_counters(&counters::hardware()),
        }
    }

    /// Lists all of them by name.
    pub fn all(&self) -> [(&'static str, &Fact<String>); 4] {
        [
            ("energy", &self.energy),
            ("NVMe passthrough", &self.nvme_passthrough),
            ("IOPOLL", &self.iopoll),
            ("hardware counters", &self.hardware_counters),
        ]
    }

    /// Describes each unavailable one in a line: `IOPOLL: not measurable here: REASON`.
    pub fn missing(&self) -> Vec<String> {
        let line = |(name, fact): (&str, &Fact<String>)| {
            Some(format!("{name}: {}", not_here(fact.reason()?)))
        };
        self.all().into_iter().filter_map(line).collect()
    }
}

/// Formats the reason why something cannot be measured here.
pub fn not_here(reason: &str) -> String {
    format!("not measurable here: {reason}")
}

/// Finds a RAPL zone with a readable counter. Since Linux 5.10 only root may read it (CVE-2020-8694).
pub fn energy(sources: &Sources) -> Fact<String> {
    let directory = sources.sys.join("class/powercap");
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut zones: Vec<_> = entries.map(|entry| entry.path().join("energy_uj")).collect();
    zones.sort_unstable();
    let counters = || zones.iter().map(|zone| (zone, crate::fact::value::<u64>(zone)));
    match counters().find(|(zone, count)| count.known().is_some() && zone.exists()) {
        Some((zone, _)) => Fact::Known(zone.display().to_string()),
        None => Fact::Unknown(match counters().find(|(zone, _)| zone.exists()) {
            Some((_, count)) => count.reason().unwrap_or_default().to_owned(),
            None => format!("no RAPL zone in {}", directory.display()),
        }),
    }
}

/// Finds the generic device of the namespace under a file, if it can be opened.
pub fn nvme_passthrough(sources: &Sources, device: &Fact<Device>) -> Fact<String> {
    let device = match device {
        Fact::Known(device) if device.kind == DeviceKind::Nvme => device,
        Fact::Known(device) => {
            return Fact::Unknown(format!("{} is no NVMe device", device.name));
        }
        Fact::Unknown(reason) => return Fact::Unknown(reason.clone()),
    };
    // The generic character device of nvme0n1 is ng0n1 (drivers/nvme/host/core.c, Linux 5.13).
    let path = sources.root.join("dev").join(device.name.replacen("nvme", "ng", 1));
    can_be_opened(&path)
}

fn can_be_opened(path: &Path) -> Fact<String> {
    match std::fs::File::open(path) {
        Ok(_) => Fact::Known(path.display().to_string()),
        Err(error) => Fact::Unknown(format!("{}: {}", path.display(), lowered(&error))),
    }
}

fn iopoll(device: &Fact<Device>) -> Fact<String> {
    device.clone().and_then(|device| {
        let name = &device.name;
        match device.queue.io_poll {
            Fact::Known(0) => {
                Fact::Unknown(format!("{name} has no polling queues (queue/io_poll is 0)"))
            }
            Fact::Known(_) => Fact::Known(format!("queue/io_poll of {name} is 1")),
            Fact::Unknown(reason) => Fact::Unknown(reason),
        }
    })
}

fn hardware_counters(tried: &[counters::HardwareCounter]) -> Fact<String> {
    let missing = tried.iter().find_map(|own| Some((own.name, own.counted.reason()?)));
    match missing {
        Some((name, reason)) => Fact::Unknown(format!("{name}: {reason}")),
        None => Fact::Known(tried.iter().map(|own| own.name).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn device(sources: &Sources, name: &str, io_poll: &str) -> Fact<Device> {
        let directory = sources.sys.join("devices").join(name);
        fs::create_dir_all(directory.join("queue")).unwrap();
        fs::write(directory.join("queue/io_poll"), io_poll).unwrap();
        fs::create_dir_all(sources.sys.join("dev/block")).unwrap();
        let link = sources.sys.join("dev/block/259:0");
        std::os::unix::fs::symlink(&directory, link).unwrap();
        Device::numbered(sources, "259:0")
    }

    #[test]
    fn an_available_measurement_names_its_source() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        let zone = sources.sys.join("class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("energy_uj"), "123456\n").unwrap();
        fs::create_dir_all(sources.root.join("dev")).unwrap();
        fs::write(sources.root.join("dev/ng0n1"), "").unwrap();
        let device = device(&sources, "nvme0n1", "1\n");
        let found = Measurable::probe(&sources, &device);
        assert!(found.energy.known().unwrap().ends_with("intel-rapl:0/energy_uj"), "{found:?}");
        assert!(found.nvme_passthrough.known().unwrap().ends_with("dev/ng0n1"), "{found:?}");
        assert_eq!(found.iopoll, Fact::Known("queue/io_poll of nvme0n1 is 1".to_owned()));
    }

    #[test]
    fn an_unavailable_measurement_has_its_reason() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        let device = device(&sources, "vda", "0\n");
        let mut found = Measurable::probe(&sources, &device);
        let refused = counters::HardwareCounter {
            name: "cycles",
            counted: Fact::Unknown("perf_event_open: no such device".to_owned()),
        };
        found.hardware_counters = hardware_counters(&[refused]);
        let lines = found.missing();
        for (line, part) in lines.iter().zip([
            "energy: not measurable here: no RAPL zone in ",
            "NVMe passthrough: not measurable here: vda is no NVMe device",
            "IOPOLL: not measurable here: vda has no polling queues (queue/io_poll is 0)",
            "hardware counters: not measurable here: cycles: perf_event_open: no such device",
        ]) {
            assert!(line.starts_with(part), "{line}");
        }
        assert_eq!(lines.len(), 4);
        let none = Fact::Unknown("tmpfs has no block device".to_owned());
        let found = Measurable::probe(&sources, &none);
        assert_eq!(found.iopoll.reason(), Some("tmpfs has no block device"));
        assert_eq!(found.nvme_passthrough.reason(), Some("tmpfs has no block device"));
    }
}
