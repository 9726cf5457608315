//! Where storage's operations go: the loop of a thread, or whatever else performs them.

use ringwise::{Local, Operation};

/// Takes operations, whose completions come back to storage with the same tags.
pub(crate) trait Submission {
    /// Takes an operation.
    ///
    /// # Errors
    ///
    /// The reason why it is not taken, in words.
    fn push(&mut self, operation: Operation, tag: u64) -> Result<(), String>;

    /// Takes operations of which each begins when the one before has completed in full.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    fn push_linked(&mut self, operations: Vec<(Operation, u64)>) -> Result<(), String>;
}

impl Submission for Local {
    fn push(&mut self, operation: Operation, tag: u64) -> Result<(), String> {
        Local::push(self, operation, tag).map(drop).map_err(|error| error.to_string())
    }

    fn push_linked(&mut self, operations: Vec<(Operation, u64)>) -> Result<(), String> {
        Local::push_linked(self, operations).map(drop).map_err(|error| error.to_string())
    }
}
