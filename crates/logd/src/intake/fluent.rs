//! Fluent Forward, the protocol of Fluentd, Fluent Bit and the `fluent-logger` of many languages.
//!
//! Each event becomes a line with its tag, time and record. A message with many events is checked as a whole before any
//! of them is stored. It is acknowledged when all of them are, if its client asked for that. There is no handshake with
//! a shared key: TLS has certificates.

mod event;
mod item;
mod json;

use std::sync::Arc;

use memchr::memmem;

use super::{
    listener::{Readable, Speaker},
    recent::{Key, Lately},
    shared::{Client, Shared},
    stream::{self, Next, Protocol, Seen, Taken, Wrong},
};
use crate::lines::framing::Framing;
use event::Message;
use item::Scan;

/// Lines are stored when there are so many bytes of them.
const PIECE_BYTES: usize = 256 << 10;
/// A heartbeat: the value nil alone.
const NIL: u8 = 0xc0;
/// The option of a message whose events are packed.
const PACKED: &[u8] = b"compressed";
/// `{"ack": ...}` up to its value.
const ACK: &[u8] = b"\x81\xa3ack";

/// The protocol.
#[derive(Clone, Copy)]
pub(super) struct Fluent;

impl Speaker for Fluent {
    async fn converse<S: Readable>(&self, stream: S, client: Client, shared: &Arc<Shared>) {
        stream::converse::<Session>(stream, client, shared).await;
    }
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// How far the end of the first message was looked for.
    scan: Scan,
    /// The message of which lines are stored. Its bytes are the first ones.
    current: Option<Message>,
    /// By what it is recognised.
    key: Option<Key>,
    /// The most bytes of a message.
    most: usize,
}

impl Protocol for Session {
    const NAME: &'static str = "Fluent Forward";
    const FRAMING: Framing = Framing::Lines;
    const FAREWELL: &'static [u8] = b"";

    fn look(&mut self, bytes: &[u8], most: usize) -> Result<Seen, Wrong> {
        self.most = most;
        match bytes.first() {
            None => return Ok(Seen::Part { least: 1, memory: 0 }),
            Some(&NIL) => return Ok(Seen::Whole { memory: lines_max(bytes.len(), most) }),
            Some(&first) if !item::begins_array(first) => {
                return Err(wrong("a message is no array"));
            }
            Some(_) => {}
        }
        let least = self.scan.advance(bytes).map_err(wrong)?;
        // However much of it has come.
        if least > most {
            return Err(wrong("a message is too long (--connection-budget, --budget)"));
        }
        Ok(match bytes.get(..least) {
            // Received, unpacked, and as lines.
            None => Seen::Part { least, memory: 2 * most + lines_max(most, most) },
            Some(message) if memmem::find(message, PACKED).is_some() => {
                Seen::Whole { memory: most + lines_max(most, most) }
            }
            Some(_) => Seen::Whole { memory: lines_max(bytes.len(), most) },
        })
    }

    fn take(&mut self, bytes: &[u8], line_max: usize, lately: Lately<'_>) -> Result<Taken, Wrong> {
        let mut taken = Taken::default();
        while taken.body.len() < PIECE_BYTES {
            let rest = &bytes[taken.used..];
            let is_begun = self.current.is_some();
            let Some(mut message) = self.next(rest, taken.used == 0)? else { break };
            let chunk = message.chunk(rest);
            if !is_begun {
                // A client may repeat a chunk's name. It is the same chunk if it has the same events.
                self.key = chunk.map(|_| lately.key(b"fluent", &rest[..message.bytes()]));
                if self.key.is_some_and(|key| taken.keys.contains(&key) || lately.has(key)) {
                    message.skip();
                    self.key = None;
                    taken.repeated += 1;
                }
            }
            while taken.body.len() < PIECE_BYTES
                && message.write_line(rest, line_max, &mut taken.body)
            {}
            if !message.is_done() {
                self.current = Some(message);
                (taken.part, taken.next) = (self.key, Next::Rest);
                return Ok(taken);
            }
            if let Some(chunk) = chunk {
                taken.answers.extend_from_slice(ACK);
                taken.answers.extend_from_slice(chunk);
            }
            taken.keys.extend(self.key.take());
            taken.used += message.bytes();
            self.scan = Scan::default();
        }
        Ok(taken)
    }
}

impl Session {
    /// The message that bytes begin with, or the rest of it; none, if it is not whole. A message that is packed, or
    /// wrong, is looked at when those before it are stored.
    fn next(&mut self, bytes: &[u8], is_first: bool) -> Result<Option<Message>, Wrong> {
        if let Some(message) = self.current.take() {
            return Ok(Some(message));
        }
        if bytes.first() == Some(&NIL) {
            return Ok(Some(Message::heartbeat()));
        }
        let is_array = bytes.first().is_some_and(|first| item::begins_array(*first));
        let most = bytes.len().min(self.most);
        let end = self.scan.advance(bytes).ok().filter(|end| is_array && *end <= most);
        let Some(end) = end else { return Ok(None) };
        match Message::read(&bytes[..end], if is_first { self.most } else { 0 }) {
            Ok(message) => Ok(Some(message)),
            Err(why) if is_first => Err(wrong(why)),
            Err(_) => Ok(None),
        }
    }
}

/// The most bytes of lines that are stored at once, of so many bytes of messages: those before the last line, and that
/// one. A byte of a message is at most eight of JSON (in extensions of one byte), and a line is never longer than a
/// message may be.
fn lines_max(bytes: usize, most: usize) -> usize {
    PIECE_BYTES + most.min(8 * bytes + 100)
}

/// The protocol has no word for errors.
fn wrong(why: &'static str) -> Wrong {
    Wrong { why, answer: Vec::new() }
}

#[cfg(test)]
mod tests;
