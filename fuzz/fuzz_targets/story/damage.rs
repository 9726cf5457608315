//! Segments that were written, cut and spoilt: their batches, what became of files, and what may be found in them.

use arbitrary::Arbitrary;

#[derive(Arbitrary, Debug)]
pub enum Damage {
    Cut(u16),
    Spoil(u16, u8),
    Append(Vec<u8>),
    /// The bytes of one place at another.
    Copy {
        from: u16,
        to: u16,
        len: u8,
    },
}

impl Damage {
    pub fn inflict(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let place = |at: &u16| usize::from(*at) % bytes.len();
        match self {
            Damage::Cut(at) => bytes.truncate(place(at)),
            Damage::Spoil(at, with) => {
                let at = place(at);
                bytes[at] ^= with;
            }
            Damage::Append(more) => bytes.extend_from_slice(more),
            Damage::Copy { from, to, len } => {
                let (from, to) = (place(from), place(to));
                let len = usize::from(*len).min(bytes.len() - from.max(to));
                bytes.copy_within(from..from + len, to);
            }
        }
    }
}

/// Batches of numbered lines of these lengths.
pub fn batches(lengths: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut number = 0;
    let mut line = |len: &u8| {
        number += 1;
        format!("{number}:{}\n", "x".repeat(usize::from(*len))).into_bytes()
    };
    lengths
        .iter()
        .map(|lens| lens.iter().flat_map(&mut line).collect())
        .filter(|batch: &Vec<u8>| !batch.is_empty())
        .collect()
}

/// Whether all that was found are whole batches, in order.
pub fn are_whole(found: &[u8], batches: &[Vec<u8>]) {
    let mut rest = found;
    for batch in batches {
        rest = rest.strip_prefix(&batch[..]).unwrap_or(rest);
    }
    assert!(rest.is_empty(), "{:?} was never written", String::from_utf8_lossy(rest));
}
