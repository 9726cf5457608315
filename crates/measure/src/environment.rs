//! The machine of a measurement: kernel, processor, memory, limits, virtualisation. Every report contains it, and the
//! doctor judges it.
//!
//! It contains no name of the host, of its users or of its addresses.

mod frequency;
mod limits;
mod quota;
mod virtualisation;

pub use frequency::{Frequency, core_throttles};
pub use limits::{Limit, Limits};
pub use quota::Quota;
pub use virtualisation::Virtualisation;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cpu::allowed_cpus;
use crate::fact::{Fact, Sources, field, kibibytes_field, lowered, understood};

/// Facts about the machine and about the limits of this process on it.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The kernel's release, such as `6.12.0`.
    pub kernel: Fact<String>,
    /// The architecture that the program was compiled for.
    pub architecture: &'static str,
    /// The processor's model.
    pub cpu_model: Fact<String>,
    /// Processors online.
    pub cores_online: Fact<u64>,
    /// Processors that this process may run on.
    pub cores_allowed: Fact<u64>,
    /// The frequency governors in use.
    pub governors: Fact<Vec<String>>,
    /// The processors' frequencies, and how often they were throttled.
    pub frequency: Frequency,
    /// The clock source of the kernel.
    pub clock_source: Fact<String>,
    /// Memory of the machine.
    pub memory_total_bytes: Fact<u64>,
    /// Memory that is available without swapping.
    pub memory_available_bytes: Fact<u64>,
    /// Hypervisor and container.
    pub virtualisation: Virtualisation,
    /// Resource limits of this process.
    pub limits: Limits,
    /// The limits that cgroups put on this process.
    pub quota: Quota,
    /// `kernel.io_uring_disabled`: 0 allows all processes, 1 only a group, 2 none. The setting exists since Linux 6.6;
    /// kernels without it allow all processes.
    pub io_uring_disabled: Fact<u64>,
    /// `kernel.io_uring_group`: the group that is allowed if `io_uring_disabled` is 1; -1 is no group.
    pub io_uring_group: Fact<i64>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Fact<i64>,
    /// The seccomp mode of this process: 0 none, 1 strict, 2 filter.
    pub seccomp_mode: Fact<u64>,
}

impl Environment {
    /// Reads all sources.
    pub fn read(sources: &Sources) -> Self {
        let memory = sources.proc_text("meminfo");
        Environment {
            kernel: sources.proc_text("sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH,
            cpu_model: cpu_model(sources),
            cores_online: cores_online(sources),
            cores_allowed: match allowed_cpus() {
                Ok(allowed) => Fact::Known(allowed.len() as u64),
                Err(error) => Fact::Unknown(format!("sched_getaffinity: {}", lowered(&error))),
            },
            governors: governors(sources),
            frequency: Frequency::read(sources),
            clock_source: sources
                .sys_text("devices/system/clocksource/clocksource0/current_clocksource"),
            memory_total_bytes: memory_bytes(&memory, "MemTotal"),
            memory_available_bytes: memory_bytes(&memory, "MemAvailable"),
            virtualisation: Virtualisation::read(sources),
            limits: Limits::read(sources),
            quota: Quota::read(sources),
            io_uring_disabled: sysctl(sources, "io_uring_disabled"),
            io_uring_group: sysctl(sources, "io_uring_group"),
            perf_event_paranoid: sysctl(sources, "perf_event_paranoid"),
            seccomp_mode: seccomp_mode(sources),
        }
    }
}

fn sysctl<T: std::str::FromStr>(sources: &Sources, name: &str) -> Fact<T> {
    crate::fact::value(&sources.proc.join("sys/kernel").join(name))
}

fn seccomp_mode(sources: &Sources) -> Fact<u64> {
    sources.proc_text("thread-self/status").and_then(|text| {
        let mode = field(&text, "Seccomp").and_then(|mode| mode.parse().ok());
        Fact::of(mode, || "/proc/thread-self/status: no Seccomp there".to_owned())
    })
}

/// On x86 the field is `model name`. Other processors have other fields.
fn cpu_model(sources: &Sources) -> Fact<String> {
    sources.proc_text("cpuinfo").and_then(|text| {
        let names = ["model name", "Processor", "cpu model", "uarch", "CPU part", "cpu"];
        let model = names.iter().find_map(|name| field(&text, name));
        let model = model.map(|model| model.split_whitespace().collect::<Vec<_>>().join(" "));
        Fact::of(model, || "/proc/cpuinfo: names no model".to_owned())
    })
}

fn cores_online(sources: &Sources) -> Fact<u64> {
    let list = sources.sys_text("devices/system/cpu/online");
    list.and_then(|text| understood(count_list(&text), "/sys/devices/system/cpu/online", &text))
}

/// Counts the numbers in a list such as `0-3,8`.
fn count_list(text: &str) -> Option<u64> {
    text.split(',').try_fold(0u64, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn governors(sources: &Sources) -> Fact<Vec<String>> {
    let directory = sources.sys.join("devices/system/cpu");
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let governors: BTreeSet<String> = entries
        .filter_map(|entry| {
            let path = entry.path().join("cpufreq/scaling_governor");
            crate::fact::text(&path).known().cloned()
        })
        .collect();
    if governors.is_empty() {
        let reason =
            "no processor has cpufreq/scaling_governor (the hypervisor or firmware decides)";
        return Fact::Unknown(reason.to_owned());
    }
    Fact::Known(governors.into_iter().collect())
}

fn memory_bytes(meminfo: &Fact<String>, name: &str) -> Fact<u64> {
    meminfo.clone().and_then(|text| {
        Fact::of(kibibytes_field(&text, name), || format!("/proc/meminfo: no {name} there"))
    })
}

#[cfg(test)]
mod tests;
