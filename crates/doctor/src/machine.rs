//! The machine: processors, governor, virtualisation, and what can be counted.

use ringwise_measure::{
    Fact, Sources,
    counters::{self, Counters, Event, HardwareCounter},
    environment::Environment,
};

use crate::finding::Finding;

pub(crate) fn judge(sources: &Sources, environment: &Environment) -> Vec<Finding> {
    vec![
        Finding::of("machine.kernel", &environment.kernel, |release| {
            Finding::ok("machine.kernel", format!("/proc/sys/kernel/osrelease: {release}"))
        }),
        cores(environment),
        governor(environment),
        virtualisation(environment),
        tracepoints(sources),
        hardware_counters(&counters::hardware()),
    ]
}

fn cores(environment: &Environment) -> Finding {
    const NAME: &str = "machine.cores";
    Finding::of(NAME, &environment.cores_allowed, |allowed| {
        let online = environment.cores_online.known().map_or("?".into(), u64::to_string);
        let evidence = format!("{allowed} processors allowed of {online} online");
        if *allowed > 2 {
            return Finding::ok(NAME, evidence);
        }
        Finding::limited(
            NAME,
            format!("{evidence}: whatever polls or works in the background competes for them"),
        )
    })
}

fn governor(environment: &Environment) -> Finding {
    const NAME: &str = "machine.governor";
    Finding::of(NAME, &environment.governors, |governors| {
        let evidence = format!("cpufreq/scaling_governor: {}", governors.join(" "));
        match governors.as_slice() {
            [one] if one == "performance" => Finding::ok(NAME, evidence),
            _ => Finding::limited(NAME, evidence)
                .remedy("cpupower frequency-set -g performance, while measuring"),
        }
    })
}

fn virtualisation(environment: &Environment) -> Finding {
    const NAME: &str = "machine.virtualisation";
    let found = &environment.virtualisation;
    let container = found.container.as_ref().map(|mark| format!("a container ({mark})"));
    let product = found.product.known().map_or(String::new(), |name| format!(" by {name}"));
    let guest = match &found.hypervisor {
        Fact::Known(true) => {
            Some(format!("a virtual machine{product} (/proc/cpuinfo: hypervisor)"))
        }
        _ => None,
    };
    match (guest, container, &found.hypervisor) {
        (None, None, Fact::Unknown(reason)) => Finding::unknown(NAME, reason),
        (None, None, _) => {
            Finding::ok(NAME, "/proc/cpuinfo: no hypervisor; no mark of a container")
        }
        (guest, container, _) => {
            let both: Vec<String> = guest.into_iter().chain(container).collect();
            let evidence = format!("{}: neighbours share its devices and time", both.join(", "));
            Finding::limited(NAME, evidence)
        }
    }
}

fn tracepoints(sources: &Sources) -> Finding {
    const NAME: &str = "machine.tracepoints";
    let events = [Event::SystemCalls, Event::WorkerPunts];
    let mut counters = Counters::open(sources, &events);
    let refused = events.iter().find_map(|event| match counters.count(*event) {
        Fact::Known(_) => None,
        Fact::Unknown(reason) => Some(reason),
    });
    match refused {
        None => {
            let names = events.map(Event::name).join(" ");
            Finding::ok(NAME, format!("perf_event_open: {names}"))
        }
        Some(reason) => Finding::limited(NAME, reason).remedy(
            "mount -t tracefs nodev /sys/kernel/tracing, and run with CAP_PERFMON or \
             kernel.perf_event_paranoid=-1",
        ),
    }
}

fn hardware_counters(counters: &[HardwareCounter]) -> Finding {
    const NAME: &str = "machine.hardware_counters";
    let (known, missing): (Vec<_>, Vec<_>) =
        counters.iter().partition(|counter| counter.counted.known().is_some());
    let names = |counters: &[&HardwareCounter]| {
        counters.iter().map(|counter| counter.name).collect::<Vec<_>>().join(" ")
    };
    match missing.first() {
        None => Finding::ok(NAME, format!("perf_event_open: {}", names(&known))),
        Some(first) => Finding::limited(
            NAME,
            format!(
                "not measurable here: {} ({})",
                names(&missing),
                first.counted.reason().unwrap_or_default()
            ),
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

    #[test]
    fn a_guest_is_told_from_metal() {
        let guest = environment(&[("proc/cpuinfo", "flags\t: fpu hypervisor\n")]);
        assert_eq!(virtualisation(&guest).status, Status::Limited);
        let metal = environment(&[("proc/cpuinfo", "flags\t: fpu\n")]);
        assert_eq!(virtualisation(&metal).status, Status::Ok);
        let contained = environment(&[("proc/cpuinfo", "flags\t: fpu\n"), (".dockerenv", "")]);
        assert!(virtualisation(&contained).evidence.contains("container"));
        assert_eq!(virtualisation(&environment(&[])).status, Status::Unknown);
    }

    #[test]
    fn governors_are_judged() {
        let one = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        assert_eq!(governor(&environment(&[(one, "performance\n")])).status, Status::Ok);
        assert_eq!(governor(&environment(&[(one, "powersave\n")])).status, Status::Limited);
        assert_eq!(governor(&environment(&[])).status, Status::Unknown);
    }

    #[test]
    fn a_missing_counter_is_not_measurable_here() {
        let counter = |name, counted| HardwareCounter { name, counted };
        let all = [counter("cycles", Fact::Known(1))];
        assert_eq!(hardware_counters(&all).status, Status::Ok);
        let some = [
            counter("cycles", Fact::Known(1)),
            counter("instructions", Fact::Unknown("no PMU".into())),
        ];
        let finding = hardware_counters(&some);
        assert_eq!(finding.status, Status::Limited);
        assert_eq!(finding.evidence, "not measurable here: instructions (no PMU)");
    }
}
