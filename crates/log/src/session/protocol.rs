//! The daemon's answers as values, from bytes that come in pieces (`docs/reference/logd.md`).

use crate::error::{Failure, Refusal};

/// The longest answer. More without a line end is no answer.
const ANSWER_BYTES_MAX: usize = 4096;
/// How much is shown of what is no answer.
const SHOWN_BYTES: usize = 60;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// `H 1 GUARANTEE [STORED [DIRECTORY]]`: lines are taken.
    Hello { stored: Option<u64>, directory: String },
    /// `A N`: the lines up to this one are stored.
    Acknowledged(u64),
    /// `N LINE REASON`: the line was rejected.
    Rejected(u64, String),
    /// `E 1 WORD`: nothing is taken.
    Refused(Refusal),
}

/// The bytes of an answer that is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    rest: Vec<u8>,
}

impl Answers {
    /// Takes what came, and gives each answer that is whole.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Answer) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut bytes = bytes;
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, after) = (&bytes[..end], &bytes[end + 1..]);
            if self.rest.is_empty() {
                each(read(line)?)?;
            } else {
                self.rest.extend_from_slice(line);
                let whole = std::mem::take(&mut self.rest);
                each(read(&whole)?)?;
            }
            bytes = after;
        }
        self.rest.extend_from_slice(bytes);
        if self.rest.len() > ANSWER_BYTES_MAX { Err(strange(&self.rest)) } else { Ok(()) }
    }
}

/// What came is no answer.
pub(super) fn strange(bytes: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]);
    Failure::Protocol(format!("\"{}\"", text.trim_end().escape_debug()))
}

fn read(line: &[u8]) -> Result<Answer, Failure> {
    parse(line).ok_or_else(|| strange(line))
}

fn parse(line: &[u8]) -> Option<Answer> {
    if line.len() > ANSWER_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(line).ok()?;
    let (kind, rest) = text.split_once(' ')?;
    Some(match kind {
        "H" => {
            let mut words = rest.strip_prefix("1 ")?.split(' ');
            words.next().filter(|guarantee| !guarantee.is_empty())?;
            let stored = words.next().map(number).transpose().ok()?;
            // A later version may add words.
            let directory = words.next().unwrap_or_default().to_owned();
            Answer::Hello { stored, directory }
        }
        "A" => Answer::Acknowledged(number(rest).ok()?),
        "N" => {
            let (line, reason) = rest.split_once(' ')?;
            Answer::Rejected(number(line).ok()?, reason.to_owned())
        }
        "E" => Answer::Refused(Refusal::read(rest.strip_prefix("1 ")?)),
        _ => return None,
    })
}

/// Digits only: `parse` alone takes a sign.
fn number(text: &str) -> Result<u64, ()> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| ()),
        false => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(bytes: &[u8], size: usize) -> Result<Vec<Answer>, Failure> {
        let (mut answers, mut all) = (Answers::default(), Vec::new());
        for piece in bytes.chunks(size) {
            answers.take(piece, |answer| {
                all.push(answer);
                Ok(())
            })?;
        }
        Ok(all)
    }

    #[test]
    fn answers_come_in_pieces() {
        let bytes =
            b"H 1 durable\nH 1 written 17\nH 1 replicated 17 ab01\nH 1 durable 17 ab01 new\nN 3 utf8\nA 17\nE 1 weaker none\n\
            E 1 new word\n";
        for size in 1..100 {
            let expected = [
                Answer::Hello { stored: None, directory: String::new() },
                Answer::Hello { stored: Some(17), directory: String::new() },
                Answer::Hello { stored: Some(17), directory: "ab01".to_owned() },
                Answer::Hello { stored: Some(17), directory: "ab01".to_owned() },
                Answer::Rejected(3, "utf8".to_owned()),
                Answer::Acknowledged(17),
                Answer::Refused(Refusal::Weaker("none".to_owned())),
                Answer::Refused(Refusal::Other("new word".to_owned())),
            ];
            assert_eq!(answers(bytes, size).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error_and_takes_little_memory() {
        for bytes in [
            &b"A x\n"[..],
            b"A +1\n",
            b"A 99999999999999999999\n",
            b"A\n",
            b"\n",
            b"H 2 durable\n",
            b"H 1 \n",
            b"H 1 durable ab01\n",
            b"N 1\n",
            b"E 2 x\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\xff\xfe \n",
            &[b'A'; ANSWER_BYTES_MAX + 1],
        ] {
            for size in [1, 1 << 20] {
                let failure = answers(bytes, size).unwrap_err();
                assert!(matches!(&failure, Failure::Protocol(shown) if shown.len() < 400));
            }
        }
    }
}
