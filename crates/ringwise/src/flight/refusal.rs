//! What comes back when a loop does not take an operation. It knows no error number: `advice.rs` makes errors of it.

use std::fmt;

use crate::{error::Error, op::Operation};

/// Why a loop did not take an operation. The operation comes back unharmed.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise::{Local, Operation};
///
/// let mut local = Local::builder().entries(2).build()?;
/// let mut taken = 0;
/// let refused = loop {
///     match local.push(Operation::nop(), taken) {
///         Ok(_) => taken += 1,
///         Err(refused) => break refused,
///     }
/// };
/// assert!(refused.is_full());
/// local.submit_and_wait(1)?;
/// while local.next_completion().is_some() {}
/// local.push(refused.operation, taken)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct PushError {
    /// The operation with everything it owns.
    pub operation: Operation,
    /// What stood in the way.
    pub reason: PushRefusal,
}

/// What stood in the way of a push.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Operation, PushRefusal};
///
/// let (mut local, mut other) = (Local::new()?, Local::new()?);
/// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
/// let of_other = other.register_file(&file)?;
/// let refused = local.push(Operation::read_at(of_other, vec![0; 64], 0), 0).unwrap_err();
/// match refused.reason {
///     PushRefusal::Full => println!("take completions, and push again"),
///     PushRefusal::Rejected(error) => assert_eq!(error.errno(), libc::EBADF),
///     reason => println!("submit later: {reason:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum PushRefusal {
    /// As many operations are in flight as the completion queue can hold: take completions first.
    Full,
    /// The operation cannot be handed over as it is (a registered file of another loop, a
    /// descriptor that is still shared, an opcode that needs what the file does not have).
    Rejected(Error),
    /// The queue was full and the kernel did not take its entries: submit again later.
    Submit(Error),
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            PushRefusal::Full => write!(
                f,
                "{}: as many operations are in flight as the loop holds; take completions first",
                self.operation.opcode()
            ),
            PushRefusal::Rejected(error) | PushRefusal::Submit(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PushError {}

/// Why a loop did not take a chain. Its operations come back unharmed.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, OpenOptions, Operation};
///
/// let open = Operation::open_registered("/dev/null", OpenOptions::new().read(true));
/// let chain = vec![(Operation::nop(), 1), (open, 2)];
/// let refused = Local::new()?.push_linked(chain).unwrap_err();
/// assert_eq!((refused.place, refused.operations.len()), (1, 2));
/// assert!(!refused.is_full());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct LinkError {
    /// The operations with everything they own, and their tags.
    pub operations: Vec<(Operation, u64)>,
    /// Which of them cannot be handed over, where it is one that was rejected.
    pub place: usize,
    /// What stood in the way.
    pub reason: PushRefusal,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            PushRefusal::Full => write!(
                f,
                "too many operations are in flight for a chain of {}; take completions first",
                self.operations.len()
            ),
            PushRefusal::Rejected(error) | PushRefusal::Submit(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LinkError {}

impl LinkError {
    /// Whether taking completions makes room for this chain.
    pub fn is_full(&self) -> bool {
        matches!(self.reason, PushRefusal::Full)
    }
}

impl PushError {
    /// Whether taking completions makes room for this operation.
    pub fn is_full(&self) -> bool {
        matches!(self.reason, PushRefusal::Full)
    }
}
