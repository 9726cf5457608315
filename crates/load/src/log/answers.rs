//! What a target sends back: lines of the daemon's protocol (`docs/reference/logd.md`), or RELP's frames.

use super::args::Protocol;
use crate::crew::Fault;

/// The longest answer. Longer is none.
const ANSWER_BYTES_MAX: usize = 4096;
/// What is shown of an answer that is none.
const SHOWN_BYTES: usize = 60;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// `H 1 GUARANTEE`: lines are taken.
    Hello(&'a str),
    /// `A N`: the lines up to the Nth are stored, or rejected.
    Acknowledged(u64),
    /// `N NUMBER REASON`: the line is rejected.
    Rejected(u64, &'a str),
    /// `E ...`: nothing is taken.
    Refused(&'a str),
    /// RELP: a transaction is answered, by this status.
    Transaction(u64, &'a str),
    /// RELP: the target closes.
    Closing,
}

/// The bytes of an answer that is not whole yet.
#[derive(Debug, Default)]
pub(super) struct Answers {
    rest: Vec<u8>,
}

impl Answers {
    /// Takes what came, and gives what is whole.
    pub(super) fn take(
        &mut self,
        protocol: Protocol,
        bytes: &[u8],
        each: &mut dyn FnMut(Answer<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.rest.extend_from_slice(bytes);
        let mut used = 0;
        while let Some((answer, length)) = parse(protocol, &self.rest[used..])? {
            each(answer)?;
            used += length;
        }
        self.rest.drain(..used);
        Ok(())
    }
}

/// Bytes that are no answer.
pub(super) fn strange(bytes: &[u8]) -> Fault {
    let text = String::from_utf8_lossy(bytes);
    let shown = text.lines().next().unwrap_or_default().escape_debug();
    Fault::Wrong(format!("the target answered what is no answer: \"{shown}\""))
}

/// The first answer and its length, if it is whole.
fn parse(protocol: Protocol, bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, Fault> {
    let strange = || strange(&bytes[..bytes.len().min(SHOWN_BYTES)]);
    let found = match protocol {
        Protocol::Relp => frame(bytes).map_err(|()| strange())?,
        Protocol::Lines | Protocol::OctetCounting => match bytes.iter().position(|&b| b == b'\n') {
            Some(end) => Some((line(&bytes[..end]).ok_or_else(strange)?, end + 1)),
            None => None,
        },
    };
    match found {
        None if bytes.len() > ANSWER_BYTES_MAX => Err(strange()),
        found => Ok(found),
    }
}

fn line(line: &[u8]) -> Option<Answer<'_>> {
    let text = std::str::from_utf8(line).ok()?;
    let (kind, rest) = text.split_once(' ')?;
    Some(match kind {
        "H" => Answer::Hello(rest.strip_prefix("1 ")?),
        "A" => Answer::Acknowledged(rest.parse().ok()?),
        "N" => {
            let (number, reason) = rest.split_once(' ')?;
            Answer::Rejected(number.parse().ok()?, reason)
        }
        "E" => Answer::Refused(rest),
        _ => return None,
    })
}

/// `TXNR SP COMMAND SP DATALEN [SP DATA] LF`
fn frame(bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, ()> {
    let head_end = |from: usize| {
        let at = bytes[from..].iter().position(|&b| b == b' ' || b == b'\n');
        at.map(|at| from + at)
    };
    let text = |from: usize, to: usize| std::str::from_utf8(&bytes[from..to]).map_err(|_| ());
    let Some(number_end) = head_end(0) else { return Ok(None) };
    let number: u64 = text(0, number_end)?.parse().map_err(|_| ())?;
    let Some(command_end) = head_end(number_end + 1) else { return Ok(None) };
    let command = text(number_end + 1, command_end)?;
    let Some(length_end) = head_end(command_end + 1) else { return Ok(None) };
    let length: usize = text(command_end + 1, length_end)?.parse().map_err(|_| ())?;
    if length > ANSWER_BYTES_MAX {
        return Err(());
    }
    let data_at = length_end + usize::from(length > 0);
    let end = data_at + length;
    match bytes.get(end) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(()),
    }
    let data = text(data_at, end)?;
    match command {
        "rsp" => {
            let status = data.lines().next().unwrap_or_default();
            Ok(Some((Answer::Transaction(number, status), end + 1)))
        }
        "serverclose" => Ok(Some((Answer::Closing, end + 1))),
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers in bytes that come in pieces of `size`.
    fn answers(protocol: Protocol, bytes: &[u8], size: usize) -> Result<Vec<String>, String> {
        let (mut answers, mut all) = (Answers::default(), Vec::new());
        for piece in bytes.chunks(size) {
            let mut each = |answer: Answer<'_>| {
                all.push(format!("{answer:?}"));
                Ok(())
            };
            answers.take(protocol, piece, &mut each).map_err(|fault| fault.to_string())?;
        }
        Ok(all)
    }

    #[test]
    fn answers_come_in_pieces() {
        let lines = b"H 1 durable\nN 3 utf8\nA 17\nE 1 weaker\n";
        let frames = b"1 rsp 29 200 OK\nrelp_version=0\nx=12345\n2 rsp 6 200 OK\n0 serverclose 0\n";
        for size in 1..40 {
            assert_eq!(
                answers(Protocol::Lines, lines, size).unwrap(),
                [
                    "Hello(\"durable\")",
                    "Rejected(3, \"utf8\")",
                    "Acknowledged(17)",
                    "Refused(\"1 weaker\")"
                ]
            );
            assert_eq!(
                answers(Protocol::Relp, frames, size).unwrap(),
                ["Transaction(1, \"200 OK\")", "Transaction(2, \"200 OK\")", "Closing"]
            );
        }
    }

    #[test]
    fn what_is_no_answer_is_shown() {
        for (protocol, bytes) in [
            (Protocol::Lines, &b"A x\n"[..]),
            (Protocol::Lines, b"HTTP/1.1 400 Bad Request\r\n"),
            (Protocol::Lines, b"A\n"),
            (Protocol::Lines, &[b'A'; ANSWER_BYTES_MAX + 1]),
            (Protocol::Relp, b"x rsp 0\n"),
            (Protocol::Relp, b"1 rsp 2 abc\n"),
            (Protocol::Relp, b"1 rsp 99999 abc\n"),
            (Protocol::Relp, b"1 what 0\n"),
        ] {
            let error = answers(protocol, bytes, 7000).unwrap_err();
            assert!(error.contains("answered"), "{error}");
        }
    }
}
