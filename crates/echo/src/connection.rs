//! The rules of an echo connection, without any I/O: what happened goes in, what to do comes out.
//!
//! One send is in flight at a time, since two may overtake each other. What a turn received is sent
//! straight from where it lies, all of it by one send. Where the socket does not take it at once
//! the rest is copied, so that a reader that is slow keeps none of the buffers that all share, and
//! from [`HIGH_BYTES`] on nothing more is received from whoever does not read. The end of input
//! closes the connection after all is sent; an error closes it at once.

use std::ops::Deref;

/// Bytes held for one connection from which on nothing more is received.
pub(crate) const HIGH_BYTES: usize = 256 << 10;
/// Bytes held below which receiving goes on.
pub(crate) const LOW_BYTES: usize = 64 << 10;

/// What is known of a connection. `B` is a buffer as it was received.
#[derive(Debug)]
pub(crate) struct Connection<B> {
    /// Received, and not yet copied: there is no send to wait for. In place, since a turn mostly
    /// brings one, and a vector's memory is one line more of the cache for each connection.
    fresh: Option<B>,
    /// Received after that.
    more: Vec<B>,
    /// Received while a send was on its way, or left of one.
    pending: Vec<u8>,
    sending: Sending,
    receiving: Receiving,
    is_broken: bool,
    is_draining: bool,
    is_write_closed: bool,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Nothing,
    /// Handed over; unless something is heard at once, all was taken.
    Quiet,
    /// Its end is told. So many bytes are held for it.
    Told(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Armed,
    /// Armed, and to end since too much is held.
    Stopping,
    /// As it was told to; it goes on when less is held.
    Stopped,
    /// Armed, and to end to go on in another way.
    Turning,
    /// It ended without too much being held, and is to go on.
    Unarmed,
    /// Nothing will ever come.
    Ended,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<B> {
    /// Send this buffer; tell only if not all of it is taken at once.
    SendFresh(B),
    /// Likewise, of several in turn.
    SendJoined(Vec<u8>),
    /// Send all of this, and tell when it is done.
    SendAll(Vec<u8>),
    Receive,
    StopReceiving,
    /// The other end is to learn that nothing more comes.
    EndWriting,
    /// Nothing is in flight: close.
    Close,
}

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// A connection that receives.
    pub(crate) fn new() -> Connection<B> {
        Connection {
            fresh: None,
            more: Vec::new(),
            pending: Vec::new(),
            sending: Sending::Nothing,
            receiving: Receiving::Armed,
            is_broken: false,
            is_draining: false,
            is_write_closed: false,
            is_closed: false,
        }
    }

    /// Bytes came.
    pub(crate) fn received(&mut self, bytes: B) {
        if self.is_broken || self.is_draining {
            return;
        }
        if matches!(self.sending, Sending::Told(_)) || !self.pending.is_empty() {
            self.pending.extend_from_slice(&bytes);
        } else if self.fresh.is_none() {
            self.fresh = Some(bytes);
        } else {
            self.more.push(bytes);
        }
    }

    /// The other end sends no more.
    pub(crate) fn input_ended(&mut self) {
        self.receiving = Receiving::Ended;
    }

    /// Whether what receives is to be told to stop, to go on in another way.
    pub(crate) fn stop_receiving(&mut self) -> bool {
        let stops = self.receiving == Receiving::Armed && !self.is_broken;
        if stops {
            self.receiving = Receiving::Turning;
        }
        stops
    }

    /// Receiving has stopped, as it was told to or by itself, and can go on.
    pub(crate) fn receiving_stopped(&mut self) {
        self.receiving = match self.receiving {
            Receiving::Stopping => Receiving::Stopped,
            _ => Receiving::Unarmed,
        };
    }

    /// Receiving failed: there is nobody any more to send to.
    pub(crate) fn receiving_failed(&mut self) {
        self.receiving = Receiving::Ended;
        self.is_broken = true;
    }

    /// The turn is over in which a quiet send would have been heard of.
    pub(crate) fn silence(&mut self) {
        if self.sending == Sending::Quiet {
            self.sending = Sending::Nothing;
        }
    }

    /// A send has ended and left this much, which is to go first.
    pub(crate) fn sent(&mut self, rest: &[u8]) {
        self.sending = Sending::Nothing;
        if !rest.is_empty() {
            let mut pending = rest.to_vec();
            pending.append(&mut self.pending);
            self.pending = pending;
            self.copy_fresh();
        }
    }

    /// A send failed.
    pub(crate) fn sending_failed(&mut self) {
        self.sending = Sending::Nothing;
        self.is_broken = true;
    }

    /// Nothing more is to be taken; what is there is still sent back.
    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Whether an error ended it.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether it goes on as soon as nothing was heard of its send, and nothing else may come.
    pub(crate) fn is_waiting_for_silence(&self) -> bool {
        self.sending == Sending::Quiet
            && (self.is_draining || self.is_broken || self.receiving == Receiving::Ended)
    }

    /// What to do next, if anything. To be asked until there is nothing.
    pub(crate) fn step(&mut self) -> Option<Step<B>> {
        if self.is_closed {
            return None;
        }
        if self.is_broken {
            return self.step_to_the_end();
        }
        if self.sending == Sending::Nothing {
            if let Some(send) = self.next_send() {
                return Some(send);
            }
            if self.receiving == Receiving::Ended {
                return Some(self.close());
            }
            if self.is_draining && !self.is_write_closed {
                self.is_write_closed = true;
                return Some(Step::EndWriting);
            }
        }
        let held = self.held_bytes();
        match self.receiving {
            Receiving::Armed if held > HIGH_BYTES => {
                self.receiving = Receiving::Stopping;
                Some(Step::StopReceiving)
            }
            Receiving::Unarmed => {
                self.receiving = Receiving::Armed;
                Some(Step::Receive)
            }
            Receiving::Stopped if held < LOW_BYTES => {
                self.receiving = Receiving::Armed;
                Some(Step::Receive)
            }
            _ => None,
        }
    }

    /// Nothing more is sent; what is in flight is waited for.
    fn step_to_the_end(&mut self) -> Option<Step<B>> {
        (self.fresh, self.more) = (None, Vec::new());
        self.pending = Vec::new();
        match (self.receiving, self.sending) {
            (Receiving::Armed, _) => {
                self.receiving = Receiving::Stopping;
                Some(Step::StopReceiving)
            }
            (Receiving::Stopped | Receiving::Unarmed | Receiving::Ended, Sending::Nothing) => {
                Some(self.close())
            }
            _ => None,
        }
    }

    fn close(&mut self) -> Step<B> {
        self.is_closed = true;
        Step::Close
    }

    fn next_send(&mut self) -> Option<Step<B>> {
        if !self.pending.is_empty() {
            self.copy_fresh();
            let pending = std::mem::take(&mut self.pending);
            self.sending = Sending::Told(pending.len());
            return Some(Step::SendAll(pending));
        }
        let fresh = self.fresh.take()?;
        let send = if self.more.is_empty() {
            Step::SendFresh(fresh)
        } else {
            let mut joined = fresh.to_vec();
            self.more.drain(..).for_each(|bytes| joined.extend_from_slice(&bytes));
            Step::SendJoined(joined)
        };
        self.sending = Sending::Quiet;
        Some(send)
    }

    /// Has what was received wait without its buffers.
    fn copy_fresh(&mut self) {
        for bytes in self.fresh.take().into_iter().chain(self.more.drain(..)) {
            self.pending.extend_from_slice(&bytes);
        }
    }

    fn held_bytes(&self) -> usize {
        let sending = match self.sending {
            Sending::Told(bytes) => bytes,
            Sending::Nothing | Sending::Quiet => 0,
        };
        self.pending.len() + sending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Echo = Connection<Vec<u8>>;

    fn steps(connection: &mut Echo) -> Vec<Step<Vec<u8>>> {
        std::iter::from_fn(|| connection.step()).collect()
    }

    #[test]
    fn one_buffer_is_sent_as_it_is_and_several_as_one() {
        let mut connection = Echo::new();
        connection.received(b"one".to_vec());
        assert_eq!(steps(&mut connection), [Step::SendFresh(b"one".to_vec())]);
        connection.received(b"two".to_vec());
        connection.received(b"three".to_vec());
        assert_eq!(steps(&mut connection), [], "one send at a time");
        connection.silence();
        assert_eq!(steps(&mut connection), [Step::SendJoined(b"twothree".to_vec())]);
    }

    #[test]
    fn what_a_send_left_goes_before_what_came_meanwhile() {
        let mut connection = Echo::new();
        connection.received(b"abcdef".to_vec());
        let _ = steps(&mut connection);
        connection.received(b"ghi".to_vec());
        connection.sent(b"def");
        connection.silence();
        assert_eq!(steps(&mut connection), [Step::SendAll(b"defghi".to_vec())]);
        connection.received(b"jkl".to_vec());
        connection.sent(b"hi");
        assert_eq!(steps(&mut connection), [Step::SendAll(b"hijkl".to_vec())]);
    }

    #[test]
    fn who_does_not_read_is_not_received_from() {
        let mut connection = Echo::new();
        connection.received(vec![1; HIGH_BYTES]);
        let _ = steps(&mut connection);
        connection.sent(&vec![1; HIGH_BYTES]);
        connection.received(vec![2; 1]);
        let steps_taken = steps(&mut connection);
        assert!(matches!(steps_taken[..], [Step::SendAll(_), Step::StopReceiving]));
        connection.received(vec![3; 1]);
        connection.receiving_stopped();
        assert_eq!(steps(&mut connection), []);
        connection.sent(&[]);
        assert_eq!(steps(&mut connection), [Step::SendAll(vec![3]), Step::Receive]);
    }

    /// Between the two limits a receive that ended by itself, or to go on in another way, goes on.
    #[test]
    fn what_ended_without_too_much_being_held_goes_on() {
        for is_asked in [false, true] {
            let mut connection = Echo::new();
            connection.received(vec![1; LOW_BYTES + 1]);
            let _ = steps(&mut connection);
            connection.sent(&vec![1; LOW_BYTES + 1]);
            assert!(matches!(steps(&mut connection)[..], [Step::SendAll(_)]));
            assert!(!is_asked || connection.stop_receiving());
            connection.receiving_stopped();
            assert_eq!(steps(&mut connection), [Step::Receive]);
            connection.received(vec![2; HIGH_BYTES]);
            assert_eq!(steps(&mut connection), [Step::StopReceiving]);
        }
    }

    #[test]
    fn the_end_of_input_closes_after_all_is_sent() {
        let mut connection = Echo::new();
        connection.received(b"last".to_vec());
        connection.input_ended();
        assert_eq!(steps(&mut connection), [Step::SendFresh(b"last".to_vec())]);
        connection.silence();
        assert_eq!(steps(&mut connection), [Step::Close]);
    }

    #[test]
    fn an_error_sends_nothing_more_and_closes_when_nothing_is_in_flight() {
        let mut connection = Echo::new();
        connection.received(b"one".to_vec());
        let _ = steps(&mut connection);
        connection.sent(b"e");
        let _ = steps(&mut connection);
        connection.received(b"two".to_vec());
        connection.sending_failed();
        assert_eq!(steps(&mut connection), [Step::StopReceiving]);
        connection.received(b"three".to_vec());
        connection.receiving_stopped();
        assert_eq!(steps(&mut connection), [Step::Close]);
    }

    #[test]
    fn a_failed_receive_waits_for_the_send() {
        let mut connection = Echo::new();
        connection.received(b"one".to_vec());
        let _ = steps(&mut connection);
        connection.sent(b"ne");
        let _ = steps(&mut connection);
        connection.receiving_failed();
        assert_eq!(steps(&mut connection), []);
        connection.sent(b"e");
        assert_eq!(steps(&mut connection), [Step::Close]);
    }

    #[test]
    fn draining_sends_back_what_came_before_and_waits_for_the_end_of_input() {
        let mut connection = Echo::new();
        connection.received(b"before".to_vec());
        connection.drain();
        connection.received(b"after".to_vec());
        assert_eq!(steps(&mut connection), [Step::SendFresh(b"before".to_vec())]);
        connection.silence();
        assert_eq!(steps(&mut connection), [Step::EndWriting]);
        assert_eq!(steps(&mut connection), []);
        connection.input_ended();
        assert_eq!(steps(&mut connection), [Step::Close]);
    }

    /// Whatever happens in whatever order, what is sent is what was received, in order.
    #[test]
    fn nothing_is_lost_or_swapped() {
        for seed in 0..200 {
            let mut random = Random(seed + 1);
            let mut connection = Echo::new();
            let (mut input, mut output) = (Vec::new(), Vec::new());
            let (mut quiet, mut told) = (None::<Vec<u8>>, None::<Vec<u8>>);
            for _ in 0..300 {
                if random.below(2) == 0 {
                    let bytes: Vec<u8> =
                        (0..=random.below(9)).map(|_| random.below(256) as u8).collect();
                    input.extend_from_slice(&bytes);
                    connection.received(bytes);
                }
                // A turn ends: the quiet send was taken whole, or left some.
                if let Some(bytes) = quiet.take() {
                    take_some(
                        &mut connection,
                        &mut output,
                        &bytes,
                        random.below(3) == 0,
                        &mut random,
                    );
                }
                if random.below(3) == 0
                    && let Some(bytes) = told.take()
                {
                    take_some(&mut connection, &mut output, &bytes, true, &mut random);
                }
                connection.silence();
                for step in steps(&mut connection) {
                    match step {
                        Step::SendFresh(bytes) | Step::SendJoined(bytes) => quiet = Some(bytes),
                        Step::SendAll(bytes) => told = Some(bytes),
                        other => panic!("{other:?} of a connection that is well"),
                    }
                    assert!(quiet.is_none() || told.is_none(), "two sends at a time");
                }
            }
            let sent = output.len();
            assert_eq!(output, input[..sent]);
            assert!(sent > 300, "only {sent} bytes got through");
        }
    }

    fn take_some(
        connection: &mut Echo,
        output: &mut Vec<u8>,
        bytes: &[u8],
        is_told: bool,
        random: &mut Random,
    ) {
        let taken = if is_told { random.below(bytes.len() + 1) } else { bytes.len() };
        output.extend_from_slice(&bytes[..taken]);
        if is_told {
            connection.sent(&bytes[taken..]);
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            // xorshift64
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % end as u64) as usize
        }
    }
}
