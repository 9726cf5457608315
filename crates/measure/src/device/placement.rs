//! Where a device is in the machine: its NUMA node, and the processors that take its interrupts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::directory::{disk_of, names_in};
use crate::fact::{self, Fact, Sources, lowered};

/// The place of a device in the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The NUMA node that it is attached to.
    pub node: Fact<usize>,
    /// The processors that have taken its interrupts since the machine started, in order.
    pub interrupt_cpus: Fact<Vec<usize>>,
}

impl Placement {
    /// Finds the place of the device with a number `MAJOR:MINOR`: that of the bus device which it belongs to.
    pub fn of(sources: &Sources, number: &str) -> Placement {
        let link = sources.sys.join("dev/block").join(number);
        match fs::canonicalize(&link) {
            Ok(directory) => Placement::below(sources, &disk_of(directory)),
            Err(error) => {
                let reason = format!("{}: {}", link.display(), lowered(&error));
                Placement {
                    node: Fact::Unknown(reason.clone()),
                    interrupt_cpus: Fact::Unknown(reason),
                }
            }
        }
    }

    fn below(sources: &Sources, directory: &Path) -> Placement {
        Placement {
            node: node(sources, directory),
            interrupt_cpus: interrupts(sources, directory)
                .and_then(|numbers| cpus_of(sources, &numbers)),
        }
    }
}

/// Finds the first directory from a device upwards that has an entry. Bus devices are above the disk:
/// `devices/pci0000:00/0000:00:03.0/nvme/nvme0/nvme0n1`.
fn above(sources: &Sources, directory: &Path, entry: &str) -> Fact<PathBuf> {
    let root = fs::canonicalize(&sources.sys).unwrap_or_else(|_| sources.sys.clone());
    let inside = directory.ancestors().take_while(|above| **above != root);
    let found = inside.map(|above| above.join(entry)).find(|path| path.exists());
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Fact::of(found, || format!("{name}: no device that it belongs to has {entry}"))
}

fn node(sources: &Sources, directory: &Path) -> Fact<usize> {
    let number = above(sources, directory, "numa_node").and_then(|path| fact::value::<i64>(&path));
    number.and_then(|number| {
        // The firmware need not say it; the kernel then has -1.
        Fact::of(usize::try_from(number).ok(), || "the firmware names no node".to_owned())
    })
}

/// Lists the numbers of a device's interrupts (`msi_irqs`, sysfs-bus-pci in the kernel's ABI documents).
fn interrupts(sources: &Sources, directory: &Path) -> Fact<Vec<String>> {
    above(sources, directory, "msi_irqs").map(|path| names_in(&path))
}

/// Lists the processors for which `/proc/interrupts` counts any of these interrupts.
fn cpus_of(sources: &Sources, numbers: &[String]) -> Fact<Vec<usize>> {
    sources.proc_text("interrupts").map(|text| {
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default().split_whitespace();
        let columns: Vec<Option<usize>> =
            header.map(|name| name.strip_prefix("CPU").and_then(|cpu| cpu.parse().ok())).collect();
        let mut cpus: Vec<usize> = lines
            .filter_map(|line| line.split_once(':'))
            .filter(|(number, _)| numbers.iter().any(|own| own == number.trim()))
            .flat_map(|(_, counts)| columns.iter().zip(counts.split_whitespace()))
            .filter(|(_, count)| count.parse::<u64>().is_ok_and(|count| count > 0))
            .filter_map(|(cpu, _)| *cpu)
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    })
}
