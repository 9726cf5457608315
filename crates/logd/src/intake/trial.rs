//! What a protocol over a stream makes of bytes, without any I/O: for tests and fuzzers.

use super::{
    recent::{Lately, Recent},
    stream::{Next, Protocol, Seen, Wrong},
};

/// What became of the bytes of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trial {
    /// What was stored.
    pub(crate) stored: Vec<u8>,
    /// What was said.
    pub(crate) said: Vec<u8>,
    /// Why nothing more was taken, if that is so.
    pub(crate) end: Option<&'static str>,
}

/// Gives bytes in pieces to a connection.
pub(super) fn talk<'a, P: Protocol>(
    pieces: impl Iterator<Item = &'a [u8]>,
    most: usize,
    line_max: usize,
) -> Trial {
    let (mut protocol, mut trial, mut buffer) = (P::default(), Trial::default(), Vec::new());
    let recent = Recent::default();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        match take_all(&mut protocol, &mut buffer, (most, line_max, &recent), &mut trial) {
            Ok(Next::End) => trial.end = Some("closed"),
            Ok(_) => continue,
            Err(wrong) => {
                trial.said.extend(wrong.answer);
                trial.end = Some(wrong.why);
            }
        }
        break;
    }
    trial
}

/// Takes all messages that are whole.
fn take_all<P: Protocol>(
    protocol: &mut P,
    buffer: &mut Vec<u8>,
    (most, line_max, recent): (usize, usize, &Recent),
    trial: &mut Trial,
) -> Result<Next, Wrong> {
    while !buffer.is_empty() {
        match protocol.look(buffer, most)? {
            Seen::Part { least, .. } => {
                // Or more would be waited for that has come.
                assert!((buffer.len() + 1..=most).contains(&least));
                break;
            }
            Seen::Whole { memory } => loop {
                let taken = protocol.take(buffer, line_max, Lately { recent, tenant: None })?;
                assert!(taken.body.len() <= memory, "{} of {memory}", taken.body.len());
                assert!(taken.used > 0 || taken.next == Next::Rest);
                assert!(taken.next != Next::Rest || !taken.body.is_empty());
                buffer.drain(..taken.used);
                trial.stored.extend(taken.body);
                trial.said.extend(taken.answers);
                recent.remember(taken.keys.into_iter());
                match taken.next {
                    Next::Rest => {}
                    Next::Messages => break,
                    Next::End => return Ok(Next::End),
                }
            },
        }
    }
    Ok(Next::Messages)
}
