//! Where threads, devices and interrupts are, on a machine with more than one NUMA node: a thread that reads a device
//! of another node pays for the way.

use ringwise_measure::{
    Fact, Sources,
    cpu::Nodes,
    device::{Device, Placement},
};

/// What is to be known. None on a machine with one node, or with none that is known.
pub fn note(sources: &Sources, devices: &[Device], processors: &[usize]) -> Option<String> {
    let nodes = Nodes::read(sources).known().filter(|nodes| nodes.count() > 1)?.clone();
    let thread = |processor: &usize| match nodes.of_cpu(*processor) {
        Some(node) => format!("{processor} (node {node})"),
        None => format!("{processor} (node unknown)"),
    };
    let threads: Vec<String> = processors.iter().map(thread).collect();
    let mut parts = vec![format!("threads in turn on processors {}", threads.join(", "))];
    for device in devices {
        let Placement { node, interrupt_cpus } = Placement::of(sources, &device.number);
        let interrupts = interrupt_cpus.map(|cpus| {
            let cpus: Vec<String> = cpus.iter().map(thread).collect();
            format!("on processors {}", cpus.join(", "))
        });
        let shown = |fact: &Fact<String>| match fact {
            Fact::Known(text) => text.clone(),
            Fact::Unknown(reason) => format!("unknown ({reason})"),
        };
        let node = node.map(|node| node.to_string());
        parts.push(format!("{} on node {}", device.name, shown(&node)));
        parts.push(format!("interrupts of {} {}", device.name, shown(&interrupts)));
    }
    Some(format!("{} NUMA nodes: {}", nodes.count(), parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn tree(nodes: &str) -> (tempfile::TempDir, Sources) {
        let directory = tempfile::tempdir().unwrap();
        let sources = Sources::below(directory.path());
        let bus = "sys/devices/pci0000:00/0000:00:04.0";
        for (path, text) in [
            ("sys/devices/system/node/online", nodes),
            ("sys/devices/system/node/node0/cpulist", "0-1"),
            ("sys/devices/system/node/node1/cpulist", "2-3"),
            (&format!("{bus}/numa_node"), "1"),
            (&format!("{bus}/msi_irqs/30"), "msix"),
            (&format!("{bus}/virtio2/block/vdb/dev"), "254:16"),
            ("sys/dev/block/.keep", ""),
            ("proc/interrupts", "     CPU0  CPU1  CPU2  CPU3\n 30:  0  0  9  0  virtio2-req.0\n"),
        ] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let disk = directory.path().join(bus).join("virtio2/block/vdb");
        symlink(disk, sources.sys.join("dev/block/254:16")).unwrap();
        (directory, sources)
    }

    #[test]
    fn two_nodes_are_told_and_one_is_not() {
        let (_directory, sources) = tree("0-1");
        let device = Device::numbered(&sources, "254:16").known().unwrap().clone();
        let told = note(&sources, std::slice::from_ref(&device), &[0, 2]).unwrap();
        assert_eq!(
            told,
            "2 NUMA nodes: threads in turn on processors 0 (node 0), 2 (node 1); vdb on node 1; \
             interrupts of vdb on processors 2 (node 1)"
        );
        fs::remove_file(sources.sys.join("devices/pci0000:00/0000:00:04.0/numa_node")).unwrap();
        let told = note(&sources, std::slice::from_ref(&device), &[0]).unwrap();
        assert!(told.contains("vdb on node unknown (vdb: no device "), "{told}");
        let (_directory, sources) = tree("0");
        assert_eq!(note(&sources, &[device], &[0, 2]), None);
        assert_eq!(note(&Sources::below("/nonexistent"), &[], &[0]), None);
    }
}
