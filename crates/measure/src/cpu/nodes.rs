//! NUMA nodes: which processors belong to which.
//!
//! A processor reads the memory and the devices of its own node faster than those of others. This module reads what
//! the kernel says of the nodes; it places nothing.

use crate::fact::{Fact, Sources, understood};

/// A NUMA node with its processors.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    number: usize,
    cpus: Vec<usize>,
}

/// The NUMA nodes of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    /// Reads the nodes from `/sys/devices/system/node`. A kernel without NUMA has no such directory, and the fact is
    /// unknown.
    pub fn read(sources: &Sources) -> Fact<Nodes> {
        const DIRECTORY: &str = "devices/system/node";
        sources.sys_text(format!("{DIRECTORY}/online")).and_then(|online| {
            let numbers = understood(numbers(&online), "/sys/devices/system/node/online", &online);
            let node = |number| {
                let path = format!("{DIRECTORY}/node{number}/cpulist");
                // A node of memory alone has an empty list.
                let cpus = sources.sys_text(&path).known().and_then(|text| self::numbers(text));
                Node { number, cpus: cpus.unwrap_or_default() }
            };
            numbers.map(|numbers| Nodes(numbers.into_iter().map(node).collect()))
        })
    }

    /// Returns how many nodes there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the node of a processor.
    pub fn of_cpu(&self, cpu: usize) -> Option<usize> {
        self.0.iter().find(|node| node.cpus.contains(&cpu)).map(|node| node.number)
    }
}

/// The most numbers of a list: more than a kernel has processors.
const NUMBERS_MAX: usize = 1 << 16;

/// Reads a list of the kernel, such as `0-3,8`. An empty text is an empty list.
fn numbers(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for range in text.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last - first >= NUMBERS_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
        let directory = tempfile::tempdir().unwrap();
        let sources = Sources::below(directory.path());
        for (name, text) in files {
            let path = sources.sys.join("devices/system/node").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (directory, sources)
    }

    #[test]
    fn processors_lead_to_their_nodes() {
        let (_directory, sources) = tree(&[
            ("online", "0-1,4\n"),
            ("node0/cpulist", "0-3,8\n"),
            ("node1/cpulist", "4-7\n"),
            ("node4/cpulist", "\n"),
        ]);
        let nodes = Nodes::read(&sources).known().unwrap().clone();
        assert_eq!(nodes.count(), 3);
        let found = [0, 8, 7, 9].map(|cpu| nodes.of_cpu(cpu));
        assert_eq!(found, [Some(0), Some(0), Some(1), None]);
    }

    #[test]
    fn nothing_and_garbage_are_reasons() {
        let (_directory, sources) = tree(&[]);
        assert!(Nodes::read(&sources).reason().unwrap().contains("node/online"));
        for garbage in ["x", "3-1", "0-", "0-99999999999"] {
            let (_directory, sources) = tree(&[("online", garbage)]);
            let nodes = Nodes::read(&sources);
            assert!(nodes.reason().unwrap().contains("not understood"), "{garbage}: {nodes:?}");
        }
    }
}
