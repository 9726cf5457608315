//! What recovery and the tools of the log daemon believe of a segment that was cut and spoilt: whole
//! batches, each as it was written, in order, and nothing else.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing::{index_of, whole_lines};

/// A segment, and what became of it.
#[derive(Arbitrary, Debug)]
struct Story {
    /// How long the lines of each batch are.
    batches: Vec<Vec<u8>>,
    is_synced: bool,
    is_sealed: bool,
    data_damage: Vec<Damage>,
    index_damage: Vec<Damage>,
}

#[derive(Arbitrary, Debug)]
enum Damage {
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
    fn inflict(&self, bytes: &mut Vec<u8>) {
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

fuzz_target!(|story: Story| {
    let mut number = 0;
    let mut line = |len: &u8| {
        number += 1;
        format!("{number}:{}\n", "x".repeat(usize::from(*len))).into_bytes()
    };
    let batches: Vec<Vec<u8>> = story
        .batches
        .iter()
        .map(|lens| lens.iter().flat_map(&mut line).collect())
        .filter(|batch: &Vec<u8>| !batch.is_empty())
        .collect();
    let (mut index, mut data) =
        (index_of(&batches, story.is_synced, story.is_sealed), batches.concat());
    story.data_damage.iter().for_each(|damage| damage.inflict(&mut data));
    story.index_damage.iter().for_each(|damage| damage.inflict(&mut index));
    let found = whole_lines(&index, &data);
    let mut rest = &found[..];
    for batch in &batches {
        rest = rest.strip_prefix(&batch[..]).unwrap_or(rest);
    }
    assert!(rest.is_empty(), "{:?} was never written", String::from_utf8_lossy(rest));
    if story.data_damage.is_empty() && story.index_damage.is_empty() {
        assert_eq!(found, batches.concat());
    }
});
