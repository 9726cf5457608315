//! Many operations handed in at once: one lock, one wake, and one enter for all that fits.

use super::{Pending, Ring};
use crate::op::Operation;

/// Operations to be submitted together. Made by [`Ring::batch`].
#[derive(Debug)]
#[must_use = "a batch does nothing until it is submitted"]
pub struct Batch {
    ring: Ring,
    operations: Vec<Operation>,
}

impl Ring {
    /// A batch of operations, empty at first: they are handed to the kernel together.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Operation, Ring};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let file = Descriptor::from(std::fs::File::open("/dev/zero")?);
    /// let reads = (0..8).map(|block| Operation::read_at(&file, vec![1; 512], block * 512));
    /// for read in ring.batch().extend(reads).submit() {
    ///     assert_eq!(read.await.result()?, 512);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn batch(&self) -> Batch {
        Batch { ring: self.clone(), operations: Vec::new() }
    }
}

impl Batch {
    /// Adds an operation.
    pub fn push(mut self, operation: Operation) -> Batch {
        self.operations.push(operation);
        self
    }

    /// Adds operations.
    pub fn extend(mut self, operations: impl IntoIterator<Item = Operation>) -> Batch {
        self.operations.extend(operations);
        self
    }

    /// Submits all, before any future is polled; gives a future for each, in their order. A future
    /// that is dropped does what a dropped [`Pending`] does.
    pub fn submit(self) -> Vec<Pending> {
        Pending::submit_all(&self.ring, self.operations, false)
    }

    /// Submits all as a chain, in which each starts when the one before it has completed in full;
    /// see [`Local::push_linked`](crate::Local::push_linked). A future that is dropped while its
    /// operation waits for its turn cancels it when the turn comes, if it cancels at all.
    ///
    /// A chain longer than [`Setup::submission_entries`](crate::Setup::submission_entries), or with
    /// an operation that cannot be in one, fails whole: each future gives the same error.
    pub fn submit_linked(self) -> Vec<Pending> {
        Pending::submit_all(&self.ring, self.operations, true)
    }
}
