//! Processors, virtualisation, clock, and what can be counted here.

use ringwise_measure::counters::{self, Counters, Event, HardwareCounter};
use ringwise_measure::device::Storage;
use ringwise_measure::environment::Environment;
use ringwise_measure::{Fact, Sources, measurable};

use crate::finding::Finding;

pub(crate) fn judge(
    sources: &Sources,
    environment: &Environment,
    storage: &Storage,
) -> Vec<Finding> {
    vec![
        cores(environment),
        governor(environment),
        frequency(environment),
        virtualisation(environment),
        container(environment),
        clock(environment),
        tracepoints(sources, environment),
        hardware(&counters::hardware()),
        energy(&measurable::energy(sources)),
        nvme_passthrough(&measurable::nvme_passthrough(sources, &storage.device)),
    ]
}

fn cores(environment: &Environment) -> Finding {
    const NAME: &str = "machine.cores";
    let (allowed, online) = match environment.cores_allowed.zip(&environment.cores_online) {
        Fact::Known((allowed, online)) => (*allowed, *online),
        Fact::Unknown(reason) => return Finding::unknown(NAME, reason),
    };
    let evidence = format!("sched_getaffinity(2): {allowed} of {online} cores online");
    if allowed > 2 {
        return Finding::ok(NAME, evidence);
    }
    Finding::limited(
        NAME,
        format!("{evidence}; pollers and load generators take a share of the result"),
    )
    .remedy("allow at least 4 cores for figures of SQPOLL, IOPOLL or network load")
}

fn governor(environment: &Environment) -> Finding {
    const NAME: &str = "machine.governor";
    Finding::of(NAME, &environment.governors, |governors| {
        let evidence = format!("cpufreq/scaling_governor: {}", governors.join(" "));
        if governors.iter().all(|governor| governor == "performance") {
            return Finding::ok(NAME, evidence);
        }
        Finding::limited(NAME, format!("{evidence}; the clock rate follows the load"))
            .remedy("cpupower frequency-set -g performance, while measuring")
    })
}

/// Frequencies are told if they are known. What was throttled since boot may be throttled again.
fn frequency(environment: &Environment) -> Finding {
    const NAME: &str = "machine.frequency";
    let frequency = &environment.frequency;
    let mhz = |khz: &Fact<u64>| khz.known().map(|khz| khz / 1000);
    let current = mhz(&frequency.current_least_khz).zip(mhz(&frequency.current_greatest_khz));
    let range = mhz(&frequency.least_khz).zip(mhz(&frequency.greatest_khz));
    let mut told = Vec::new();
    if let Some((least, greatest)) = current {
        told.push(format!("cpufreq/scaling_cur_freq: {least} to {greatest} MHz"));
    }
    if let Some((least, greatest)) = range {
        told.push(format!("cpuinfo_min_freq {least} MHz, cpuinfo_max_freq {greatest} MHz"));
    }
    match &frequency.core_throttles {
        Fact::Known(0) => told.push("never throttled since boot".to_owned()),
        Fact::Known(count) => {
            told.push(format!("thermal_throttle/core_throttle_count: {count} since boot"));
            return Finding::limited(
                NAME,
                format!("{}; the processors were too hot", told.join("; ")),
            )
            .remedy("cool the machine, and look whether the count grows while measuring");
        }
        Fact::Unknown(reason) if told.is_empty() => {
            return Finding::unknown(NAME, reason);
        }
        Fact::Unknown(reason) => told.push(reason.clone()),
    }
    Finding::ok(NAME, told.join("; "))
}

fn virtualisation(environment: &Environment) -> Finding {
    const NAME: &str = "machine.virtualisation";
    let virtualisation = &environment.virtualisation;
    let product = match virtualisation.product.known() {
        Some(product) => format!("; DMI: {product}"),
        None => String::new(),
    };
    Finding::of(NAME, &virtualisation.hypervisor, |hypervisor| match hypervisor {
        false => Finding::ok(NAME, format!("/proc/cpuinfo: no hypervisor flag{product}")),
        true => Finding::limited(
            NAME,
            format!(
                "/proc/cpuinfo: hypervisor flag{product}; others share the processors and disks"
            ),
        )
        .remedy("compare engines within one run only"),
    })
}

fn container(environment: &Environment) -> Finding {
    const NAME: &str = "machine.container";
    match &environment.virtualisation.container {
        None => Finding::ok(NAME, "no mark of a container engine"),
        Some(mark) => {
            Finding::ok(NAME, format!("{mark}; its filter is judged by io_uring.seccomp"))
        }
    }
}

fn clock(environment: &Environment) -> Finding {
    const NAME: &str = "machine.clock";
    Finding::of(NAME, &environment.clock_source, |source| {
        let evidence = format!("current_clocksource: {source}");
        if matches!(source.as_str(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies") {
            let evidence = format!("{evidence}; each time stamp is a slow system call");
            return Finding::limited(NAME, evidence)
                .remedy("look in dmesg for why the tsc was given up");
        }
        Finding::ok(NAME, evidence)
    })
}

fn tracepoints(sources: &Sources, environment: &Environment) -> Finding {
    const NAME: &str = "counters.tracepoints";
    let event = Event::WorkerPunts;
    match Counters::open(sources, &[event]).count(event) {
        Fact::Known(_) => {
            Finding::ok(NAME, format!("perf_event_open(2): {} can be counted", event.name()))
        }
        Fact::Unknown(reason) => {
            let paranoid = &environment.perf_event_paranoid;
            let evidence = format!("{reason}; kernel.perf_event_paranoid {paranoid}");
            Finding::limited(NAME, evidence).remedy(
                "mount -t tracefs nodev /sys/kernel/tracing, and run with CAP_PERFMON and \
                 access to it (root has both)",
            )
        }
    }
}

fn hardware(counters: &[HardwareCounter]) -> Finding {
    const NAME: &str = "counters.hardware";
    let names = |known: bool| {
        let of_kind = counters.iter().filter(|counter| counter.counted.known().is_some() == known);
        of_kind.map(|counter| counter.name).collect::<Vec<_>>().join(" ")
    };
    let missing = counters.iter().find_map(|counter| counter.counted.reason());
    match missing {
        None => Finding::ok(NAME, format!("perf_event_open(2): {}", names(true))),
        Some(reason) => {
            let there = Some(names(true)).filter(|names| !names.is_empty());
            let evidence = format!(
                "perf_event_open(2): {}; not {} ({reason})",
                there.as_deref().unwrap_or("none"),
                names(false)
            );
            Finding::limited(NAME, evidence).remedy(
                "virtual machines: have the hypervisor pass the performance monitoring unit \
                 through; otherwise lower kernel.perf_event_paranoid",
            )
        }
    }
}

fn energy(zone: &Fact<String>) -> Finding {
    const NAME: &str = "counters.energy";
    match zone {
        Fact::Known(zone) => Finding::ok(NAME, format!("RAPL: {zone} can be read")),
        Fact::Unknown(reason) => Finding::limited(NAME, measurable::not_here(reason)).remedy(
            "needs a processor with RAPL that is not a virtual machine's (modprobe intel_rapl_common), \
             and root",
        ),
    }
}

fn nvme_passthrough(path: &Fact<String>) -> Finding {
    const NAME: &str = "io_uring.nvme_passthrough";
    match path {
        Fact::Known(path) => {
            Finding::ok(NAME, format!("IORING_OP_URING_CMD: {path} can be opened"))
        }
        Fact::Unknown(reason) => Finding::limited(NAME, measurable::not_here(reason)).remedy(
            "needs a PATH on an NVMe device, and leave to open its /dev/ngXnY (root has it)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::finding::Status;

    fn environment(files: &[(&str, &str)]) -> Environment {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Environment::read(&Sources::below(directory.path()))
    }

    const GOVERNOR: &str = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    const CLOCK: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";

    #[test]
    fn a_machine_to_measure_on() {
        let mut environment = environment(&[
            (GOVERNOR, "performance"),
            (CLOCK, "tsc"),
            ("proc/cpuinfo", "flags : fpu tsc"),
            ("sys/devices/system/cpu/online", "0-15"),
        ]);
        environment.cores_allowed = Fact::Known(16);
        for judge in [cores, governor, virtualisation, container, clock] {
            let finding = judge(&environment);
            assert_eq!(finding.status, Status::Ok, "{finding:?}");
        }
    }

    #[test]
    fn frequencies_and_throttling_are_told() {
        const CURRENT: &str = "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq";
        const COUNT: &str = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count";
        let cool = frequency(&environment(&[(CURRENT, "2400000"), (COUNT, "0")]));
        let told = "cpufreq/scaling_cur_freq: 2400 to 2400 MHz; never throttled since boot";
        assert_eq!((cool.status, cool.evidence.as_str()), (Status::Ok, told));
        let hot = frequency(&environment(&[(COUNT, "5")]));
        assert_eq!((hot.status, hot.remedy.is_some()), (Status::Limited, true));
        assert!(hot.evidence.contains("core_throttle_count: 5 since boot"), "{hot:?}");
    }

    #[test]
    fn a_machine_that_disturbs() {
        let mut environment = environment(&[
            (GOVERNOR, "schedutil"),
            (CLOCK, "hpet"),
            ("proc/cpuinfo", "flags : fpu hypervisor"),
            ("sys/devices/system/cpu/online", "0-1"),
            (".dockerenv", ""),
        ]);
        environment.cores_allowed = Fact::Known(2);
        for judge in [cores, governor, virtualisation, clock] {
            let finding = judge(&environment);
            assert_eq!(finding.status, Status::Limited, "{finding:?}");
            assert!(finding.remedy.is_some());
        }
        assert!(container(&environment).evidence.contains("/.dockerenv"));
    }

    #[test]
    fn unreadable_sources_are_unknown() {
        let environment = environment(&[]);
        for judge in [cores, governor, frequency, virtualisation, clock] {
            assert_eq!(judge(&environment).status, Status::Unknown);
        }
        let empty = tempfile::tempdir().unwrap();
        let finding = tracepoints(&Sources::below(empty.path()), &environment);
        assert_eq!(finding.status, Status::Limited);
        assert!(finding.evidence.contains("no such file") && finding.remedy.is_some());
    }

    /// What the lab says of its runs, by the same probes.
    #[test]
    fn what_is_not_measurable_has_its_reason() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        let missing = energy(&measurable::energy(&sources));
        assert_eq!((missing.status, missing.name), (Status::Limited, "counters.energy"));
        let reason = "not measurable here: no RAPL zone in ";
        assert!(missing.evidence.starts_with(reason) && missing.remedy.is_some(), "{missing:?}");
        let zone = sources.sys.join("class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("energy_uj"), "123456\n").unwrap();
        assert_eq!(energy(&measurable::energy(&sources)).status, Status::Ok);
        let none = Fact::Unknown("tmpfs has no block device".to_owned());
        let missing = nvme_passthrough(&measurable::nvme_passthrough(&sources, &none));
        assert_eq!(missing.evidence, "not measurable here: tmpfs has no block device");
        assert_eq!((missing.status, missing.remedy.is_some()), (Status::Limited, true));
        let there = nvme_passthrough(&Fact::Known("/dev/ng0n1".to_owned()));
        assert_eq!(there.status, Status::Ok, "{there:?}");
    }

    #[test]
    fn hardware_counters_by_name() {
        let counter = |name, counted| HardwareCounter { name, counted };
        let some = [
            counter("cycles", Fact::Known(5)),
            counter("cache_misses", Fact::Unknown("perf_event_open: no such device".into())),
        ];
        let finding = hardware(&some);
        assert_eq!(finding.status, Status::Limited);
        assert!(finding.evidence.contains("cycles; not cache_misses"), "{}", finding.evidence);
        assert_eq!(hardware(&some[..1]).status, Status::Ok);
        assert!(hardware(&some[1..]).evidence.contains("none; not cache_misses"));
    }
}
