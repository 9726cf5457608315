//! What a connection is in the middle of, and what it asks for.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    Awaited,
    Silent,
    Wanted,
    /// It asked for what is not to be had.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    Armed,
    /// Armed, and to end.
    Stopping,
    Stopped,
    /// Nothing will ever come.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// Nothing more is taken from it; what was is committed and acknowledged.
    Draining,
    /// All is acknowledged and the end of writing sent; what comes is read and dropped, since to
    /// close over unread bytes would take back what was sent last.
    Parting,
    /// An error ended it, or the time for its parting.
    Broken,
    Closed,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send all of this, and tell when it is done.
    Send(Vec<u8>),
    Receive,
    StopReceiving,
    /// The other end is to learn that nothing more comes.
    EndWriting,
    /// Nothing is in flight: close.
    Close,
}
