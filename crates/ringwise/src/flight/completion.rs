//! A completed operation: its result, and everything it owned.
//!
//! # Safety
//!
//! A completed open returns a bare number, and a close that never ran gives one back. Here, and
//! nowhere else, such a number becomes an owner again; each completion passes once.
#![allow(unsafe_code)]

use std::{
    num::NonZeroU64,
    os::fd::{FromRawFd, OwnedFd},
};

use crate::{
    buf::{Buffer, Received},
    descriptor::{Descriptor, RegisteredFile, closing},
    error::{Errno, Error},
    flight::slot::{MORE, Ticket},
    net::Address,
    op::{Closing, Kind, Opcode, Opened, Operation, metadata::Metadata},
};

/// A completed operation.
///
/// A completion owns what the operation owned. When it is dropped, it frees the buffer and closes the
/// descriptor that the operation opened.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Operation};
///
/// let mut local = Local::new()?;
/// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
/// local.push(Operation::read_at(&file, vec![0; 64], 0), 7)?;
/// local.submit_and_wait(1)?;
/// let done = local.next_completion().expect("one is ready");
/// assert_eq!(done.tag(), 7);
/// let count = done.result()?;
/// let bytes = done.into_buffer().expect("a read has a buffer").into_vec().expect("it was a Vec");
/// assert_eq!(bytes[count - 1], b'\n');
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the result of an operation may be an error"]
pub struct Completion {
    // The ticket's two parts, apart so that there is no room lost between the fields.
    number: NonZeroU64,
    table: u32,
    pub(crate) result: i32,
    tag: u64,
    pub(crate) operation: Operation,
}

impl Completion {
    /// Of an operation that no backend was given.
    pub(crate) fn refused(operation: Operation, errno: i32) -> Completion {
        Completion::new(Ticket::NONE, 0, -errno, operation)
    }

    #[inline]
    pub(crate) fn new(ticket: Ticket, tag: u64, result: i32, operation: Operation) -> Completion {
        let Ticket { number, table } = ticket;
        Completion { number, table, result, tag, operation }
    }

    /// Whether more completions of the same operation are to come. If so, the operation is still in
    /// flight under the same tag and ticket. The result does not tell this.
    pub fn has_more(&self) -> bool {
        self.number.get() & MORE != 0
    }

    /// The number that was given with the push.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The ticket that the push returned.
    pub fn ticket(&self) -> Ticket {
        let number = NonZeroU64::new(self.number.get() & !MORE);
        Ticket { number: number.unwrap_or(self.number), table: self.table }
    }

    /// Which operation it was.
    pub fn opcode(&self) -> Opcode {
        self.operation.opcode()
    }

    /// The bytes moved by a read, write, receive or send, which may be fewer than asked, or the bytes that
    /// `read_link` or `read_directory` gave; 0 for other operations.
    ///
    /// # Errors
    ///
    /// What the operation failed with.
    pub fn result(&self) -> Result<usize, Error> {
        Errno::decode(self.result).map_err(|errno| {
            let was_given = self.table != Ticket::NONE.table;
            if was_given {
                Error::of(&self.operation, errno)
            } else {
                Error::refused(&self.operation, errno)
            }
        })
    }

    /// The result as the kernel gave it: a count, or a negated error number.
    pub fn raw_result(&self) -> i32 {
        self.result
    }

    /// A sync did not succeed after all: another of its file failed beside it.
    pub(crate) fn fail_with_another(&mut self, errno: i32) {
        self.result = -errno;
        if let Some(Kind::Sync { failed_with_another, .. }) = self.operation.0.as_deref_mut() {
            *failed_with_another = true;
        }
    }

    /// The buffer of a read or write, whether it succeeded or not.
    ///
    /// If the buffer was empty with spare capacity, its length is now what was read.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.take_buffer().map(Buffer::given_back)
    }

    /// The buffers of a vectored read or write, whether it succeeded or not.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.take_buffers().into_iter().map(Buffer::given_back).collect()
    }

    /// The buffer as the operation had it, with what was read.
    pub(crate) fn take_buffer(self) -> Option<Buffer> {
        let count = usize::try_from(self.result).unwrap_or(0);
        self.operation.take_buffer().map(|buffer| buffer.filled(count))
    }

    /// The buffers as the operation had them, with what was read.
    pub(crate) fn take_buffers(self) -> Vec<Buffer> {
        let count = usize::try_from(self.result).unwrap_or(0);
        let mut buffers = self.operation.take_buffers();
        Buffer::fill_all(&mut buffers, count);
        buffers
    }

    /// The file that [`Operation::open`] opened, or the connection that
    /// [`Operation::accept`] or [`Operation::accept_multi`] accepted.
    ///
    /// # Errors
    ///
    /// What the operation failed with; `EINVAL` when the operation opened no ordinary descriptor.
    pub fn into_descriptor(mut self) -> Result<Descriptor, Error> {
        self.result()?;
        match self.opened() {
            Some(Opened::Descriptor(descriptor)) => return Ok(descriptor),
            Some(Opened::Registered(_)) => {}
            None => {
                if let Some(Kind::Accept { outcome, .. } | Kind::Accepted(outcome)) =
                    self.operation.0.as_deref_mut()
                    && let Some(descriptor) = outcome.take()
                {
                    return Ok(descriptor);
                }
            }
        }
        Err(self.misused("it opened no ordinary descriptor"))
    }

    /// What a completion of [`Operation::recv_multi`] brought; nothing where it is an error or the
    /// end of what the other end sends.
    pub fn into_received(mut self) -> Option<Received> {
        match *self.operation.0.take()? {
            Kind::Received(received) => Some(received),
            _ => None,
        }
    }

    /// Returns whether it has a buffer of a group.
    pub(crate) fn has_lease(&self) -> bool {
        matches!(self.operation.0.as_deref(), Some(Kind::Received(_)))
    }

    /// Copies what was received out of its lease, which goes back to its group.
    pub(crate) fn give_lease_back(&mut self) {
        if let Some(kind) = self.operation.0.as_deref_mut()
            && let Kind::Received(received) = kind
        {
            *kind = Kind::ReceivedCopy(received.to_vec());
        }
    }

    /// Whence the message of [`Operation::recv_from`] came.
    pub fn address(&self) -> Option<Address> {
        match self.operation.0.as_deref() {
            Some(Kind::ReceiveMessage { message, .. }) if self.result >= 0 => message.sender(),
            _ => None,
        }
    }

    /// Whether a part of the message of [`Operation::recv_from`] did not fit and is lost.
    pub fn is_truncated(&self) -> bool {
        match self.operation.0.as_deref() {
            Some(Kind::ReceiveMessage { message, .. }) => {
                self.result >= 0 && message.is_truncated()
            }
            _ => false,
        }
    }

    /// The file that [`Operation::open_registered`] opened.
    ///
    /// # Errors
    ///
    /// What the open failed with; `EINVAL` when the operation opened no registered file.
    pub fn into_registered(mut self) -> Result<RegisteredFile, Error> {
        self.result()?;
        match self.opened() {
            Some(Opened::Registered(file)) => Ok(file),
            _ => Err(self.misused("it opened no registered file")),
        }
    }

    /// What [`Operation::statx`] and its kin found.
    ///
    /// # Errors
    ///
    /// What the call failed with; `EINVAL` when it was another operation.
    pub fn metadata(&self) -> Result<Metadata, Error> {
        self.result()?;
        match self.operation.0.as_deref() {
            Some(Kind::Statx(statx)) => Ok(Metadata(statx.out.clone())),
            _ => Err(self.misused("it read no metadata")),
        }
    }

    fn opened(&mut self) -> Option<Opened> {
        match self.operation.0.as_deref_mut() {
            Some(Kind::Open(open)) => open.outcome.take(),
            _ => None,
        }
    }

    fn misused(&self, advice: &'static str) -> Error {
        Error::of(&self.operation, Errno(libc::EINVAL)).advise(advice)
    }
}

/// Settles what a result means beyond a number, and gives what it comes down to. `never_ran`: it
/// was cancelled before anybody made the call.
pub(crate) fn settle(operation: &mut Operation, result: i32, never_ran: bool) -> i32 {
    match operation.0.as_deref_mut() {
        Some(Kind::LinkedNop) => {
            operation.0 = None;
            result
        }
        // A timeout that came is no failure.
        Some(Kind::Timeout(_)) if result == -libc::ETIME => 0,
        Some(Kind::Close(_)) if result == 0 => {
            closing::tell();
            0
        }
        Some(Kind::Open(open)) if result >= 0 => {
            open.outcome = Some(Opened::Descriptor(adopt_opened(result)));
            0
        }
        // The number is still open and still this operation's. Where that is not certain (a ring
        // that cancelled, a file system whose flush was cancelled) it counts as closed: closed
        // twice, it might be another file's.
        Some(Kind::Close(closing)) if never_ran => {
            let Closing::Released(fd) = *closing else { return result };
            // SAFETY: the close that owned the number did not take place.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            *closing = Closing::Descriptor(Descriptor::from(fd));
            result
        }
        _ => result,
    }
}

/// As [`settle`], of an operation on a file that was open already.
pub(crate) fn settle_on_file(operation: &mut Operation, result: i32) -> i32 {
    match operation.0.as_deref_mut() {
        Some(Kind::Accept { outcome, .. }) if result >= 0 => {
            *outcome = Some(adopt_accepted(result));
            0
        }
        _ => result,
    }
}

/// Takes the descriptor that the kernel opened, whose number is an open's result.
pub(crate) fn adopt_opened(result: i32) -> Descriptor {
    assert!(result >= 0, "nothing was opened");
    // SAFETY: the kernel opened it for this operation, and the loop settles each completion once,
    // so nobody else owns the number.
    Descriptor::from(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Takes the connection that the kernel accepted, whose number is an accept's result.
pub(crate) fn adopt_accepted(result: i32) -> Descriptor {
    assert!(result >= 0, "nothing was accepted");
    // SAFETY: as in `adopt_opened`.
    Descriptor::of_socket(unsafe { OwnedFd::from_raw_fd(result) })
}
