//! Gives files and threads their numbers, and says which ones are new to the trace.
//!
//! Its memory is bounded: when it knows too many names it forgets them. A file that comes again after that gets another
//! number, which is correct and only longer.

use std::{collections::HashMap, num::NonZeroU32};

use crate::model::{File, FileId, FileKind, Name, OpenFlags, Record, Thread, ThreadId};

/// The most bytes of names that are kept.
const NAME_BYTES_MAX: usize = 16 << 20;

/// The most threads that are kept.
const THREADS_MAX: usize = 1 << 16;

/// What makes a file another one for the trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opened {
    pub(crate) name: Name,
    pub(crate) kind: FileKind,
    pub(crate) flags: OpenFlags,
    pub(crate) made_ns: Option<u64>,
}

impl Opened {
    /// A file of which nobody knows when it was made.
    pub(crate) fn new(name: Name, kind: FileKind, flags: OpenFlags) -> Opened {
        Opened { name, kind, flags, made_ns: None }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    files: HashMap<Opened, FileId>,
    name_bytes: usize,
    files_count: u32,
    threads: HashMap<u32, ThreadId>,
    threads_count: u32,
}

impl Registry {
    /// The number of a file. If it is new, its record goes to `new`. None: there are 2^32 files.
    pub(crate) fn file(
        &mut self,
        opened: Opened,
        size_bytes: Option<u64>,
        new: &mut impl Extend<Record>,
    ) -> Option<FileId> {
        if let Some(id) = self.files.get(&opened) {
            return Some(*id);
        }
        self.files_count = self.files_count.checked_add(1)?;
        let id = FileId(NonZeroU32::new(self.files_count)?);
        let Opened { name, kind, flags, made_ns } = opened.clone();
        new.extend([Record::File(File { id, name, kind, size_bytes, flags, made_ns })]);
        let name_bytes = match &opened.name {
            Name::Path(path) => path.len(),
            Name::Hash(_) => 0,
        } + size_of_val(&opened);
        if self.name_bytes + name_bytes > NAME_BYTES_MAX {
            self.files.clear();
            self.name_bytes = 0;
        }
        self.name_bytes += name_bytes;
        self.files.insert(opened, id);
        Some(id)
    }

    /// The number of a thread. If it is new, `describe` says its process and name, and its record goes to `new`.
    pub(crate) fn thread(
        &mut self,
        tid: u32,
        describe: impl FnOnce() -> (u32, String),
        new: &mut impl Extend<Record>,
    ) -> ThreadId {
        if let Some(id) = self.threads.get(&tid) {
            return *id;
        }
        if self.threads.len() == THREADS_MAX {
            self.threads.clear();
        }
        // After 2^32 threads the last number stands for all.
        self.threads_count = self.threads_count.saturating_add(1);
        let id = ThreadId(NonZeroU32::new(self.threads_count).unwrap_or(NonZeroU32::MAX));
        let (pid, name) = describe();
        new.extend([Record::Thread(Thread { id, tid, pid, name })]);
        self.threads.insert(tid, id);
        id
    }

    /// A thread ended. The kernel may give its id to another one.
    pub(crate) fn forget_thread(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(name: &str, flags: OpenFlags, made_ns: Option<u64>) -> Opened {
        Opened { made_ns, ..Opened::new(Name::Path(name.into()), FileKind::Regular, flags) }
    }

    #[test]
    fn a_file_has_a_number_for_each_set_of_flags() {
        let (mut registry, mut new) = (Registry::default(), Vec::new());
        let direct = OpenFlags { is_direct: true, ..OpenFlags::default() };
        let mut number = |name: &str, flags| {
            registry.file(opened(name, flags, None), Some(1), &mut new).unwrap().0.get()
        };
        let numbers = [number("/a", direct), number("/b", direct), number("/a", direct)];
        assert_eq!(numbers, [1, 2, 1]);
        assert_eq!(number("/a", OpenFlags::default()), 3);
        assert_eq!(new.len(), 3);
    }

    #[test]
    fn a_file_that_is_made_again_has_another_number() {
        let (mut registry, mut new) = (Registry::default(), Vec::new());
        let mut number = |made_ns| {
            let opened = opened("/a", OpenFlags::default(), made_ns);
            registry.file(opened, Some(1), &mut new).unwrap().0.get()
        };
        let numbers = [number(None), number(Some(7)), number(Some(9)), number(Some(7))];
        assert_eq!(numbers, [1, 2, 3, 2]);
    }

    #[test]
    fn many_names_are_forgotten_and_numbers_go_on() {
        let (mut registry, mut new) = (Registry::default(), Vec::new());
        let name = "x".repeat(1 << 20);
        for number in 0..40 {
            let opened = opened(&format!("{name}{number}"), OpenFlags::default(), None);
            assert_eq!(registry.file(opened, None, &mut new).unwrap().0.get(), number + 1);
            assert!(registry.name_bytes <= NAME_BYTES_MAX);
            new.clear();
        }
    }
}
