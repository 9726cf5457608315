//! RELP, by which rsyslog sends messages that it keeps until they are acknowledged.
//!
//! All messages that have come are stored at once, and each is answered by its number when the commit is done. A client
//! that got no answer sends the message again, and it may then be stored twice.

mod frame;

use std::{io::Write as _, sync::Arc};

use super::{
    listener::{Readable, Speaker},
    recent::Lately,
    shared::{Client, Shared},
    stream::{self, FREE_BYTES, Next, Protocol, Seen, Taken, Wrong},
};
use crate::lines::framing::Framing;
use frame::{Frame, Parsed, parse};

/// Ends a session (RELP, "serverclose").
const SERVERCLOSE: &[u8] = b"0 serverclose 0\n";
/// What is offered: the protocol's only version, and its only command for messages.
const OFFERS: &str = "200 OK\nrelp_version=0\nrelp_software=ringwise-logd\ncommands=syslog";
/// A command that every client has to offer.
const SYSLOG: &[u8] = b"syslog";

/// The protocol.
#[derive(Clone, Copy)]
pub(super) struct Relp;

impl Speaker for Relp {
    async fn converse<S: Readable>(&self, stream: S, client: Client, shared: &Arc<Shared>) {
        stream::converse::<Session>(stream, client, shared).await;
    }
}

/// A session, from its `open` to its `close`.
#[derive(Debug, Default)]
pub(super) struct Session {
    is_open: bool,
    /// The most bytes of a frame.
    most: usize,
}

impl Protocol for Session {
    const NAME: &'static str = "RELP";
    const FRAMING: Framing = Framing::OctetCounting;
    const FAREWELL: &'static [u8] = SERVERCLOSE;

    fn look(&mut self, bytes: &[u8], most: usize) -> Result<Seen, Wrong> {
        self.most = most;
        match parse(bytes, most) {
            Ok(Parsed::Whole(..)) => Ok(Seen::Whole { memory: bytes.len() }),
            Ok(Parsed::Part { txnr, bytes }) if bytes > most => {
                Err(refusal(txnr, "a message is too long (--connection-budget, --budget)"))
            }
            // Whoever has not begun a session gets no memory.
            Ok(Parsed::Part { txnr, bytes }) if bytes > FREE_BYTES && !self.is_open => {
                Err(refusal(txnr, "a message came before open"))
            }
            // What it is received into, and what is stored of it.
            Ok(Parsed::Part { bytes, .. }) => Ok(Seen::Part { least: bytes, memory: 2 * bytes }),
            Err(why) => Err(Wrong { why, answer: SERVERCLOSE.to_vec() }),
        }
    }

    fn take(&mut self, bytes: &[u8], _: usize, _: Lately<'_>) -> Result<Taken, Wrong> {
        let mut taken = Taken::default();
        // What cannot be parsed is looked at when everything before it is stored.
        while let Ok(Parsed::Whole(frame, used)) = parse(&bytes[taken.used..], self.most) {
            if frame.command == SYSLOG && self.is_open {
                if !frame.data.is_empty() {
                    counted(frame.data, &mut taken.body);
                }
                respond(frame.txnr, "200 OK", &mut taken.answers);
            } else if taken.used == 0 {
                taken.used = used;
                return self.control(&frame, taken);
            } else {
                break;
            }
            taken.used += used;
        }
        Ok(taken)
    }
}

impl Session {
    /// Does what no message is.
    fn control(&mut self, frame: &Frame<'_>, mut taken: Taken) -> Result<Taken, Wrong> {
        match frame.command {
            b"open" if !self.is_open => {
                if !offers_syslog(frame.data) {
                    return Err(refusal(
                        frame.txnr,
                        "the client does not offer the command syslog",
                    ));
                }
                self.is_open = true;
                respond(frame.txnr, OFFERS, &mut taken.answers);
            }
            b"close" => {
                respond(frame.txnr, "", &mut taken.answers);
                taken.answers.extend_from_slice(SERVERCLOSE);
                taken.next = Next::End;
            }
            b"open" => return Err(refusal(frame.txnr, "the session is open already")),
            SYSLOG => return Err(refusal(frame.txnr, "a message came before open")),
            _ => return Err(refusal(frame.txnr, "the command is not known")),
        }
        Ok(taken)
    }
}

/// Whether `commands` in the offers of a client names it.
fn offers_syslog(offers: &[u8]) -> bool {
    let mut lines = offers.split(|byte| *byte == b'\n');
    let commands = lines.find_map(|line| line.strip_prefix(b"commands="));
    commands.is_some_and(|names| names.split(|byte| *byte == b',').any(|name| name == SYSLOG))
}

/// Appends a message as [`Framing::OctetCounting`] has it. So line ends in it are judged where those of others are.
fn counted(message: &[u8], body: &mut Vec<u8>) {
    // Writing to memory does not fail, here and below.
    let _ = write!(body, "{} ", message.len());
    body.extend_from_slice(message);
}

fn respond(txnr: u32, text: &str, answers: &mut Vec<u8>) {
    let _ = match text.len() {
        0 => writeln!(answers, "{txnr} rsp 0"),
        length => writeln!(answers, "{txnr} rsp {length} {text}"),
    };
}

/// Answers a frame with an error, and ends the session.
fn refusal(txnr: u32, why: &'static str) -> Wrong {
    let mut answer = Vec::new();
    respond(txnr, &format!("500 {why}"), &mut answer);
    answer.extend_from_slice(SERVERCLOSE);
    Wrong { why, answer }
}

#[cfg(test)]
mod tests;
