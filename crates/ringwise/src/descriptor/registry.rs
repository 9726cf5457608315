//! The loop's table of registered files: which entry holds what, and when it may be used again.
//!
//! The kernel resolves an entry when it issues the call, which can be later than the push (a
//! linked call, an entry not yet submitted). So an entry is only given to another file once no
//! call on it is in flight: until then its release waits (invariant 14). The table itself makes no
//! system calls; the loop mirrors it into the ring.

use std::os::fd::AsRawFd;

use crate::{
    descriptor::{Descriptor, RegisteredFile},
    flight::call::File,
};

/// The table of one loop.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Tells this loop's names from another's.
    table: u32,
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    in_flight: u32,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Vacant,
    /// Kept for a file that is being opened into it or closed.
    Reserved,
    /// In use; the descriptor is there unless the kernel alone has the file.
    Held(Option<Descriptor>),
    /// Released by its user, with calls still in flight.
    Retiring(Option<Descriptor>),
}

/// What the loop has to do after an entry was let go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Take it out of the ring's table now.
    Now(u32),
    /// Wait: calls on it are in flight.
    Later,
}

impl Registry {
    pub(crate) fn new(table: u32, entries: u32) -> Registry {
        Registry {
            table,
            entries: std::iter::repeat_with(Entry::default).take(entries as usize).collect(),
            free: (0..entries).rev().collect(),
        }
    }

    /// Keeps an entry for a file that is about to be opened into it.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        let index = self.free.pop()?;
        self.entries[index as usize].state = State::Reserved;
        Some(index)
    }

    /// Settles what was reserved: the file is open, with a descriptor beside the ring's own
    /// reference or without.
    pub(crate) fn opened(&mut self, index: u32, descriptor: Option<Descriptor>) -> RegisteredFile {
        self.entries[index as usize].state = State::Held(descriptor);
        self.name(index)
    }

    /// Takes in files that the ring has in its first entries, in this order.
    pub(crate) fn fill(&mut self, files: Vec<Descriptor>) -> Vec<RegisteredFile> {
        let mut names = Vec::with_capacity(files.len());
        for (at, file) in files.into_iter().enumerate() {
            let entry = self.reserve().expect("the table has at least as many entries");
            assert_eq!(entry as usize, at, "a new table is filled from its beginning");
            names.push(self.opened(entry, Some(file)));
        }
        names
    }

    /// Gives back an entry that was reserved, or whose removal from the ring is done.
    pub(crate) fn vacate(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.state = State::Vacant;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Lets go of a file. Nothing where the name is stale.
    pub(crate) fn release(&mut self, file: RegisteredFile) -> Option<Release> {
        let entry = self.entry_mut(file)?;
        let State::Held(descriptor) = &mut entry.state else { return None };
        if entry.in_flight == 0 {
            return Some(Release::Now(file.index));
        }
        entry.state = State::Retiring(descriptor.take());
        Some(Release::Later)
    }

    /// Whether the name is one that an operation may use.
    pub(crate) fn contains(&self, file: RegisteredFile) -> bool {
        self.entry(file).is_some_and(|entry| matches!(entry.state, State::Held(_)))
    }

    /// The ordinary descriptor of a file, where there is one.
    pub(crate) fn descriptor(&self, file: RegisteredFile) -> Option<&Descriptor> {
        match &self.entry(file)?.state {
            State::Held(descriptor) => descriptor.as_ref(),
            _ => None,
        }
    }

    /// As [`descriptor`](Self::descriptor), of a file too that has only its operations left.
    pub(crate) fn descriptor_in_flight(&self, file: RegisteredFile) -> Option<&Descriptor> {
        match &self.entry(file)?.state {
            State::Held(descriptor) | State::Retiring(descriptor) => descriptor.as_ref(),
            _ => None,
        }
    }

    /// Whether a call on the file is in flight.
    pub(crate) fn is_busy(&self, file: RegisteredFile) -> bool {
        self.entry(file).is_some_and(|entry| entry.in_flight > 0)
    }

    /// Takes the descriptor out of an entry that is about to be vacated.
    pub(crate) fn take(&mut self, file: RegisteredFile) -> Option<Descriptor> {
        match &mut self.entry_mut(file)?.state {
            State::Held(descriptor) => descriptor.take(),
            _ => None,
        }
    }

    /// The ring is asked to close the file: no new call may use it.
    pub(crate) fn begin_close(&mut self, file: RegisteredFile) {
        self.entries[file.index as usize].state = State::Reserved;
    }

    /// The ring did not close the file.
    pub(crate) fn abort_close(&mut self, file: RegisteredFile) {
        self.entries[file.index as usize].state = State::Held(None);
    }

    /// How a call names the file: by the ring's table, or by its descriptor for a thread.
    pub(crate) fn resolve(&self, file: RegisteredFile, by_ring: bool) -> Option<File> {
        if by_ring {
            return self.contains(file).then_some(File::Fixed(file.index));
        }
        self.descriptor(file).map(|descriptor| File::Fd(descriptor.as_raw_fd()))
    }

    /// A call on the file is under way.
    #[inline]
    pub(crate) fn begin(&mut self, file: RegisteredFile) {
        self.entries[file.index as usize].in_flight += 1;
    }

    /// A call on the file has completed. Some: it was the last on a file already let go.
    #[inline]
    pub(crate) fn end(&mut self, file: RegisteredFile) -> Option<u32> {
        let entry = &mut self.entries[file.index as usize];
        entry.in_flight -= 1;
        let last = entry.in_flight == 0 && matches!(entry.state, State::Retiring(_));
        last.then_some(file.index)
    }

    fn name(&self, index: u32) -> RegisteredFile {
        let generation = self.entries[index as usize].generation;
        RegisteredFile { table: self.table, index, generation }
    }

    fn entry(&self, file: RegisteredFile) -> Option<&Entry> {
        if file.table != self.table {
            return None;
        }
        self.entries.get(file.index as usize).filter(|entry| entry.generation == file.generation)
    }

    fn entry_mut(&mut self, file: RegisteredFile) -> Option<&mut Entry> {
        self.entry(file)?;
        self.entries.get_mut(file.index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(registry: &mut Registry) -> Option<RegisteredFile> {
        let descriptor = Descriptor::from(std::fs::File::open("/dev/null").unwrap());
        let entry = registry.reserve()?;
        Some(registry.opened(entry, Some(descriptor)))
    }

    #[test]
    fn an_entry_is_not_used_again_while_a_call_is_in_flight() {
        let mut registry = Registry::new(1, 1);
        let first = insert(&mut registry).unwrap();
        registry.begin(first);
        assert_eq!(registry.release(first), Some(Release::Later));
        assert!(insert(&mut registry).is_none(), "the entry is still in use");
        assert!(!registry.contains(first), "released, so no new call may use it");
        assert_eq!(registry.end(first), Some(0));
        registry.vacate(0);
        let second = insert(&mut registry).unwrap();
        assert_ne!(first, second);
        assert!(registry.release(first).is_none(), "a stale name reaches no other file");
    }

    #[test]
    fn another_loops_name_is_refused() {
        let mut registry = Registry::new(1, 1);
        let file = insert(&mut registry).unwrap();
        let other = Registry::new(2, 1);
        assert!(!other.contains(file));
        assert!(registry.contains(file));
    }
}
