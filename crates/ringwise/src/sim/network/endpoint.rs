//! One end of a simulated connection: its received bytes, its errors, and its room to send.
//!
//! It answers each call as a TCP or Unix socket would. It knows the other end only by its number.

use std::{collections::VecDeque, time::Duration};

use crate::{
    net::{Address, KeepAlive},
    sim::network::{Answer, EndpointId, Stop},
};

/// The default room for bytes sent, and for bytes received and not taken.
const ROOM_BYTES: usize = 128 << 10;
/// The least room that Linux gives (socket(7)).
const ROOM_BYTES_MIN: usize = 2304;
/// The time after which data without an acknowledgement ends a connection (`net.ipv4.tcp_retries2`,
/// tcp(7)).
const UNANSWERED_NS: u64 = 924_600_000_000;

/// One end of a connection, or a socket that is not yet connected.
#[derive(Debug)]
pub(crate) struct Stream {
    is_unix: bool,
    name: Address,
    /// The address that it is, or was, connected to.
    remote: Option<Address>,
    /// None before it is connected, and after the other end is gone.
    other: Option<EndpointId>,
    incoming: VecDeque<u8>,
    /// An error to report once.
    error: Option<i32>,
    /// The other end sends no more.
    has_ended: bool,
    reads_no_more: bool,
    sends_no_more: bool,
    resets: bool,
    /// The number of bytes sent since the connection was cut, if it was.
    lost: Option<usize>,
    send_room: usize,
    receive_room: usize,
    user_timeout_ns: u64,
    keepalive_ns: Option<u64>,
}

impl Stream {
    pub(crate) fn new(is_unix: bool) -> Stream {
        let any = || Address::Ip(([0, 0, 0, 0], 0).into());
        Stream {
            is_unix,
            name: if is_unix { Address::UnixUnnamed } else { any() },
            remote: None,
            other: None,
            incoming: VecDeque::new(),
            error: None,
            has_ended: false,
            reads_no_more: false,
            sends_no_more: false,
            resets: false,
            lost: None,
            send_room: ROOM_BYTES,
            receive_room: ROOM_BYTES,
            user_timeout_ns: 0,
            keepalive_ns: None,
        }
    }

    pub(crate) fn connect(&mut self, other: (EndpointId, Address), name: Address) {
        self.other = Some(other.0);
        self.remote = Some(other.1);
        self.name = name;
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.is_unix
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.remote.is_some()
    }

    pub(crate) fn name(&self) -> Address {
        self.name.clone()
    }

    pub(crate) fn remote(&self) -> Option<Address> {
        self.remote
            .clone()
            .filter(|_| self.other.is_some() || self.has_ended || self.lost.is_some())
    }

    /// Returns the other end while it exists.
    pub(crate) fn other(&self) -> Option<EndpointId> {
        self.other
    }

    pub(crate) fn incoming(&self) -> usize {
        self.incoming.len()
    }

    /// Receives bytes. Bytes that have arrived come before an error.
    pub(crate) fn receive(&mut self, len: usize) -> Answer<Vec<u8>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        if !self.incoming.is_empty() {
            let len = len.min(self.incoming.len());
            return Ok(self.incoming.drain(..len).collect());
        }
        if let Some(errno) = self.error.take() {
            return Err(Stop::Failed(errno));
        }
        if !self.is_connected() {
            return Err(Stop::Failed(libc::ENOTCONN));
        }
        let is_over = self.has_ended || self.reads_no_more;
        if is_over { Ok(Vec::new()) } else { Err(Stop::NotReady) }
    }

    /// Returns the room on this side for bytes to send.
    pub(crate) fn room_to_send(&mut self) -> Answer<usize> {
        if let Some(errno) = self.error.take() {
            return Err(Stop::Failed(errno));
        }
        if self.sends_no_more {
            return Err(Stop::Failed(libc::EPIPE));
        }
        if !self.is_connected() {
            return Err(Stop::Failed(libc::ENOTCONN));
        }
        Ok(self.send_room)
    }

    /// Returns the room for bytes to receive, including the room at the sender.
    pub(crate) fn room_to_receive(&self, sender: usize) -> usize {
        (self.receive_room + sender).saturating_sub(self.incoming.len())
    }

    pub(crate) fn take_in(&mut self, bytes: &[u8]) {
        // Bytes that nobody will read are thrown away.
        if !self.reads_no_more {
            self.incoming.extend(bytes);
        }
    }

    /// Sends to the other end when it is gone. Over TCP the first send succeeds, and a reset
    /// answers it (RFC 9293, 3.10.7.1).
    pub(crate) fn send_to_nobody(&mut self, len: usize) -> Answer<usize> {
        if let Some(lost) = &mut self.lost {
            let len = len.min(self.send_room.saturating_sub(*lost));
            *lost += len;
            return if len == 0 { Err(Stop::NotReady) } else { Ok(len) };
        }
        if self.is_unix {
            return Err(Stop::Failed(libc::EPIPE));
        }
        self.lose_other(true);
        Ok(len)
    }

    pub(crate) fn shut(&mut self, reads: bool, writes: bool) -> Result<(), i32> {
        if !self.is_connected() {
            return Err(libc::ENOTCONN);
        }
        self.reads_no_more |= reads;
        self.sends_no_more |= writes;
        Ok(())
    }

    /// Notes that the other end sends no more.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Notes that the other end is gone; `hard` means by a reset.
    pub(crate) fn lose_other(&mut self, hard: bool) {
        self.other = None;
        self.has_ended = true;
        if hard {
            self.error = Some(if self.is_unix { libc::EPIPE } else { libc::ECONNRESET });
            self.sends_no_more = true;
        }
    }

    pub(crate) fn reset_on_close(&mut self) {
        self.resets = true;
    }

    /// Returns whether closing it resets the connection. Received bytes that were not read cause a
    /// reset too (RFC 2525, 2.17).
    pub(crate) fn closes_hard(&self) -> bool {
        self.resets || !self.incoming.is_empty()
    }

    /// Cuts the connection: nothing passes any more, and this end is not told.
    pub(crate) fn cut(&mut self) {
        self.lost.get_or_insert(0);
        self.other = None;
    }

    /// Sets the room to send. The kernel doubles the requested size (socket(7)).
    pub(crate) fn set_send_room(&mut self, bytes: usize) {
        self.send_room = bytes.saturating_mul(2).max(ROOM_BYTES_MIN);
    }

    pub(crate) fn set_receive_room(&mut self, bytes: usize) {
        self.receive_room = bytes.saturating_mul(2).max(ROOM_BYTES_MIN);
    }

    pub(crate) fn set_user_timeout(&mut self, timeout: Duration) {
        self.user_timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    }

    pub(crate) fn set_keepalive(&mut self, keepalive: Option<KeepAlive>) {
        self.keepalive_ns = keepalive.map(|KeepAlive { idle, interval, count }| {
            let total = idle.saturating_add(interval.saturating_mul(count));
            u64::try_from(total.as_nanos()).unwrap_or(u64::MAX)
        });
    }

    /// Returns how long from now silence becomes an error, or nothing if it never does.
    pub(crate) fn patience_ns(&self) -> Option<u64> {
        let unanswered = match self.user_timeout_ns {
            0 => UNANSWERED_NS,
            timeout => timeout,
        };
        match self.lost? {
            0 => self.keepalive_ns,
            _ => Some(self.keepalive_ns.map_or(unanswered, |idle| idle.min(unanswered))),
        }
    }

    /// Turns silence into an error, if the connection was cut.
    pub(crate) fn give_up(&mut self) {
        if self.lost.is_some() && !self.sends_no_more {
            self.error = Some(libc::ETIMEDOUT);
            self.sends_no_more = true;
            self.has_ended = true;
        }
    }
}
