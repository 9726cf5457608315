//! Finds out whether this process runs under a hypervisor or in a container.

use serde::Serialize;

use crate::fact::{self, Fact, Sources, excerpt};

/// Hypervisor and container, with the evidence for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Virtualisation {
    /// Whether the processor reports a hypervisor. x86 has a flag for this; other processors have none.
    pub hypervisor: Fact<bool>,
    /// Vendor and product as the firmware reports them (DMI).
    pub product: Fact<String>,
    /// The evidence that this is a container, if there is any. A container can hide all of it.
    pub container: Option<String>,
}

impl Virtualisation {
    pub(super) fn read(sources: &Sources) -> Virtualisation {
        Virtualisation {
            hypervisor: hypervisor(sources),
            product: product(sources),
            container: container(sources),
        }
    }

    /// Whether a hypervisor is known to be there.
    pub fn is_virtual_machine(&self) -> bool {
        self.hypervisor == Fact::Known(true)
    }
}

fn hypervisor(sources: &Sources) -> Fact<bool> {
    sources.proc_text("cpuinfo").and_then(|text| {
        let flags = fact::field(&text, "flags");
        let is_there = flags.map(|flags| flags.split_whitespace().any(|one| one == "hypervisor"));
        Fact::of(is_there, || "/proc/cpuinfo: no flags there".to_owned())
    })
}

fn product(sources: &Sources) -> Fact<String> {
    let vendor = sources.sys_text("class/dmi/id/sys_vendor");
    let name = sources.sys_text("class/dmi/id/product_name");
    match (vendor, name) {
        (Fact::Known(vendor), Fact::Known(name)) => Fact::Known(format!("{vendor} {name}")),
        (Fact::Known(one), Fact::Unknown(_)) | (Fact::Unknown(_), Fact::Known(one)) => {
            Fact::Known(one)
        }
        (Fact::Unknown(reason), Fact::Unknown(_)) => Fact::Unknown(reason),
    }
}

fn container(sources: &Sources) -> Option<String> {
    let marks = [".dockerenv", "run/.containerenv", "run/systemd/container"];
    let mark = marks.iter().find(|mark| sources.root.join(mark).exists());
    mark.map(|mark| format!("/{mark} exists")).or_else(|| container_by_cgroup(sources))
}

/// The path of the first process's control group names the engine, unless a
/// namespace hides it.
fn container_by_cgroup(sources: &Sources) -> Option<String> {
    const ENGINES: [&str; 6] = ["docker", "kubepods", "containerd", "libpod", "lxc", "garden"];
    ["1/cgroup", "self/cgroup"].iter().find_map(|file| {
        let text = sources.proc_text(file);
        let line =
            text.known()?.lines().find(|line| ENGINES.iter().any(|name| line.contains(name)));
        line.map(|line| format!("/proc/{file} says {}", excerpt(line)))
    })
}
