//! Trees as different machines have them, and this machine.

use std::fs;
use std::path::Path;

use super::*;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let sources = Sources::below(directory.path());
    (directory, sources)
}

#[test]
fn a_virtual_machine_with_a_container() {
    let (_directory, sources) = tree(&[
        ("proc/cpuinfo", "model name\t: AMD   EPYC\nflags\t\t: fpu hypervisor lm\n"),
        ("proc/meminfo", "MemTotal:  2048 kB\nMemAvailable: 1024 kB\n"),
        ("proc/1/cgroup", "0::/kubepods/pod1\n"),
        ("proc/thread-self/status", "Seccomp:\t2\nSeccomp_filters:\t1\n"),
        ("proc/sys/kernel/io_uring_disabled", "1\n"),
        ("proc/sys/kernel/io_uring_group", "-1\n"),
        ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("sys/class/dmi/id/product_name", "Standard PC\n"),
        ("sys/devices/system/cpu/online", "0-3,8\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2400000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3100000\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq", "800000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_min_freq", "900000\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3600000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "3500000\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "7\n"),
        ("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "2\n"),
    ]);
    let environment = Environment::read(&sources);
    assert_eq!(environment.cpu_model, Fact::Known("AMD EPYC".into()));
    assert_eq!(environment.memory_available_bytes, Fact::Known(1 << 20));
    assert_eq!(environment.cores_online, Fact::Known(5));
    assert_eq!(environment.governors, Fact::Known(vec!["performance".into(), "powersave".into()]));
    assert_eq!(environment.frequency.current_least_khz, Fact::Known(2_400_000));
    assert_eq!(environment.frequency.current_greatest_khz, Fact::Known(3_100_000));
    assert_eq!(environment.frequency.least_khz, Fact::Known(800_000));
    assert_eq!(environment.frequency.greatest_khz, Fact::Known(3_600_000));
    assert_eq!(environment.frequency.core_throttles, Fact::Known(9));
    assert_eq!(environment.seccomp_mode, Fact::Known(2));
    assert_eq!(environment.io_uring_disabled, Fact::Known(1));
    assert_eq!(environment.io_uring_group, Fact::Known(-1));
    assert!(environment.virtualisation.is_virtual_machine());
    assert_eq!(environment.virtualisation.product, Fact::Known("QEMU Standard PC".into()));
    let container = environment.virtualisation.container.unwrap();
    assert!(container.contains("/proc/1/cgroup") && container.contains("kubepods"), "{container}");
}

#[test]
fn marks_of_container_engines() {
    let (_directory, sources) = tree(&[("run/.containerenv", "")]);
    let container = Environment::read(&sources).virtualisation.container;
    assert_eq!(container.as_deref(), Some("/run/.containerenv exists"));
    let (_directory, sources) = tree(&[("proc/1/cgroup", "0::/init.scope\n")]);
    assert_eq!(Environment::read(&sources).virtualisation.container, None);
}

#[test]
fn garbage_and_nothing_are_reasons() {
    let garbage = "\u{0}\u{fffd}:: \n:\n";
    let (_directory, sources) = tree(&[
        ("proc/cpuinfo", garbage),
        ("proc/meminfo", "MemTotal: much\n"),
        ("proc/self/limits", garbage),
        ("proc/thread-self/status", garbage),
        ("proc/sys/kernel/io_uring_disabled", garbage),
        ("sys/devices/system/cpu/online", "3-1"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "<unknown>\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", garbage),
    ]);
    let empty = tempfile::tempdir().unwrap();
    for sources in [sources, Sources::below(empty.path())] {
        let environment = Environment::read(&sources);
        assert!(environment.cpu_model.reason().is_some());
        assert!(environment.memory_total_bytes.reason().is_some());
        assert!(environment.cores_online.reason().is_some());
        assert!(environment.governors.reason().is_some());
        let frequency = &environment.frequency;
        assert!(frequency.current_least_khz.reason().is_some());
        assert_eq!(
            frequency.greatest_khz.reason(),
            Some("no processor has cpufreq/cpuinfo_max_freq")
        );
        assert!(frequency.core_throttles.reason().is_some());
        assert!(environment.limits.open_files.reason().is_some());
        assert!(environment.io_uring_disabled.reason().is_some());
        assert!(environment.seccomp_mode.reason().is_some());
        assert!(environment.virtualisation.hypervisor.reason().is_some());
        assert!(serde_json::to_value(&environment).unwrap()["governors"]["unknown"].is_string());
    }
}

#[test]
fn lists_of_processors() {
    assert_eq!(count_list("0"), Some(1));
    assert_eq!(count_list("0-1,4-7"), Some(6));
    for text in ["", "a", "1-", "5-4", "0-18446744073709551615"] {
        assert_eq!(count_list(text), None, "{text}");
    }
}

#[test]
fn this_machine_answers() {
    let environment = Environment::read(&Sources::default());
    assert!(environment.kernel.known().is_some());
    assert!(environment.cores_allowed.known().is_some_and(|cores| *cores > 0));
    assert!(environment.limits.open_files.known().is_some());
    assert!(Path::new("/proc/self").exists());
}
