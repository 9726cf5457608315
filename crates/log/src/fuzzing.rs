//! What the client makes of bytes, for fuzzers. Only they have it (`--cfg fuzzing`).

use crate::{error::Failure, session::protocol::Answers};

/// Whatever a daemon says, the client takes the same answers from it in whatever pieces it comes.
///
/// # Panics
///
/// It does not.
pub fn answers(bytes: &[u8], piece_bytes: usize) {
    let whole = told(bytes.chunks(bytes.len().max(1)));
    assert_eq!(whole, told(bytes.chunks(piece_bytes.max(1))));
}

/// The answers, and whether there was something that is none.
fn told<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
    let (mut answers, mut told) = (Answers::default(), Vec::new());
    for piece in pieces {
        let taken: Result<(), Failure> = answers.take(piece, |answer| {
            told.push(format!("{answer:?}"));
            Ok(())
        });
        if taken.is_err() {
            return (told, true);
        }
    }
    (told, false)
}
