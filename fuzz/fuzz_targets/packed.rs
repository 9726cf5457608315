//! What the tools of the log daemon find in a packed segment that was cut and spoilt: whole batches, each as it was
//! written, in order. A file that passes the check before the plain one is removed has all of them.

#![no_main]

#[path = "story/damage.rs"]
mod damage;

use arbitrary::Arbitrary;
use damage::{Damage, are_whole, batches};
use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing::{index_of, is_frame_of, packed_lines, packed_of};

/// A packed segment, and what became of it.
#[derive(Arbitrary, Debug)]
struct Story {
    /// How long the lines of each batch are.
    batches: Vec<Vec<u8>>,
    packed_damage: Vec<Damage>,
    index_damage: Vec<Damage>,
    piece_bytes: u8,
}

fuzz_target!(|story: Story| {
    let batches = batches(&story.batches);
    let (index, lines) = (index_of(&batches, true, true), batches.concat());
    let packed = packed_of(&index, &lines).expect("the lines are those of the index");
    let (mut spoilt_index, mut spoilt) = (index.clone(), packed.clone());
    story.packed_damage.iter().for_each(|damage| damage.inflict(&mut spoilt));
    story.index_damage.iter().for_each(|damage| damage.inflict(&mut spoilt_index));
    let directory = tempfile::tempdir_in("/dev/shm").expect("room in memory");
    are_whole(&packed_lines(directory.path(), &spoilt_index, &spoilt), &batches);
    if is_frame_of(&index, &spoilt, story.piece_bytes.into()) {
        assert_eq!(packed_lines(directory.path(), &index, &spoilt), lines);
    } else {
        assert_ne!(spoilt, packed, "what was packed passes");
    }
});
