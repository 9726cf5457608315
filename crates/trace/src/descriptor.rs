//! Which open file a descriptor of a process is, and at what position.
//!
//! The tables follow what was observed: opens, closes, duplicates, seeks, forks. What was not observed stays unknown.
//! Duplicates share a position, as they do in the kernel. This file reads nothing from the kernel.

use std::{cell::Cell, collections::HashMap, rc::Rc};

use crate::model::{FileId, OpenFlags};

/// An open file: what several descriptors can share ("open file description" in open(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub(crate) file: Option<FileId>,
    pub(crate) flags: OpenFlags,
    /// Where the next read or write begins. None: unknown, or a file without positions.
    pub(crate) position: Option<u64>,
    /// Whether its data can be in the page cache: a regular file or a block device.
    pub(crate) has_cache: bool,
    /// The file's device and number, if they are known.
    pub(crate) identity: Option<Identity>,
    /// Since when this is known. The position of an operation that began earlier is unknown.
    pub(crate) since_ns: u64,
}

/// The device and the number of a file (`st_dev`, `st_ino`).
pub(crate) type Identity = (u64, u64);

/// The major and minor number of the kernel's dev_t, which has 20 bits of minor number (MINORBITS in
/// include/linux/kdev_t.h).
pub(crate) fn device_numbers(device: u64) -> (u32, u32) {
    ((device >> 20) as u32, (device & 0xf_ffff) as u32)
}

#[derive(Clone, Debug)]
struct Descriptor {
    open: Rc<Cell<OpenFile>>,
    is_close_on_exec: bool,
}

type Table = HashMap<i32, Descriptor>;

/// The descriptors of all processes.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    processes: HashMap<u32, Table>,
}

impl Descriptors {
    /// The open file behind a descriptor.
    pub(crate) fn get(&self, pid: u32, descriptor: i32) -> Option<&Cell<OpenFile>> {
        self.processes.get(&pid)?.get(&descriptor).map(|descriptor| &*descriptor.open)
    }

    pub(crate) fn open(
        &mut self,
        pid: u32,
        descriptor: i32,
        open: OpenFile,
        is_close_on_exec: bool,
    ) {
        let open = Rc::new(Cell::new(open));
        let table = self.processes.entry(pid).or_default();
        table.insert(descriptor, Descriptor { open, is_close_on_exec });
    }

    pub(crate) fn close(&mut self, pid: u32, descriptor: i32) {
        self.processes.get_mut(&pid).map(|table| table.remove(&descriptor));
    }

    pub(crate) fn close_range(&mut self, pid: u32, first: u32, last: u32) {
        if let Some(table) = self.processes.get_mut(&pid) {
            table.retain(|descriptor, _| !(first..=last).contains(&descriptor.cast_unsigned()));
        }
    }

    /// Makes `to` the same open file as `from`, or unknown if that is.
    pub(crate) fn duplicate(&mut self, pid: u32, from: i32, to: i32, is_close_on_exec: bool) {
        if from == to {
            return;
        }
        let table = self.processes.entry(pid).or_default();
        match table.get(&from).map(|known| known.open.clone()) {
            Some(open) => drop(table.insert(to, Descriptor { open, is_close_on_exec })),
            None => drop(table.remove(&to)),
        }
    }

    /// A new process begins with the same open files, and shares their positions.
    pub(crate) fn fork(&mut self, parent: u32, child: u32) {
        if let Some(table) = self.processes.get(&parent).cloned() {
            self.processes.insert(child, table);
        }
    }

    pub(crate) fn execute(&mut self, pid: u32) {
        if let Some(table) = self.processes.get_mut(&pid) {
            table.retain(|_, descriptor| !descriptor.is_close_on_exec);
        }
    }

    /// Events were lost: every position can be another one by now.
    pub(crate) fn forget_positions(&mut self) {
        for descriptor in self.processes.values().flat_map(HashMap::values) {
            descriptor.open.set(OpenFile { position: None, ..descriptor.open.get() });
        }
    }

    /// The processes that have descriptors.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// A process ended, or its descriptors are all read anew.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(descriptors: &Descriptors, pid: u32, descriptor: i32) -> Option<u64> {
        descriptors.get(pid, descriptor)?.get().position
    }

    fn open_at(position: u64) -> OpenFile {
        OpenFile { position: Some(position), ..OpenFile::default() }
    }

    fn seek(descriptors: &Descriptors, pid: u32, descriptor: i32, position: u64) {
        descriptors.get(pid, descriptor).unwrap().set(open_at(position));
    }

    #[test]
    fn duplicates_and_children_share_a_position() {
        let mut descriptors = Descriptors::default();
        descriptors.open(1, 3, open_at(0), false);
        descriptors.duplicate(1, 3, 4, false);
        descriptors.fork(1, 2);
        seek(&descriptors, 2, 4, 7);
        assert_eq!((at(&descriptors, 1, 3), at(&descriptors, 2, 3)), (Some(7), Some(7)));
        descriptors.close(1, 3);
        assert_eq!((at(&descriptors, 1, 3), at(&descriptors, 2, 3)), (None, Some(7)));
        descriptors.open(1, 3, open_at(1), false);
        assert_eq!((at(&descriptors, 1, 3), at(&descriptors, 1, 4)), (Some(1), Some(7)));
    }

    #[test]
    fn what_is_duplicated_from_an_unknown_one_is_unknown() {
        let mut descriptors = Descriptors::default();
        descriptors.open(1, 4, open_at(0), false);
        descriptors.duplicate(1, 3, 4, false);
        assert_eq!(at(&descriptors, 1, 4), None);
    }

    #[test]
    fn exec_and_close_range_close() {
        let mut descriptors = Descriptors::default();
        for (descriptor, is_close_on_exec) in [(3, true), (4, false), (5, false), (6, false)] {
            descriptors.open(1, descriptor, open_at(0), is_close_on_exec);
        }
        descriptors.execute(1);
        descriptors.close_range(1, 5, u32::MAX);
        let known: Vec<i32> =
            (0..10).filter(|descriptor| descriptors.get(1, *descriptor).is_some()).collect();
        assert_eq!(known, [4]);
    }
}
