//! What recovery and the tools of the log daemon believe of a segment that was cut and spoilt: whole
//! batches, each as it was written, in order, and nothing else.

#![no_main]

#[path = "story/damage.rs"]
mod damage;

use arbitrary::Arbitrary;
use damage::{Damage, are_whole, batches};
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

fuzz_target!(|story: Story| {
    let batches = batches(&story.batches);
    let (mut index, mut data) =
        (index_of(&batches, story.is_synced, story.is_sealed), batches.concat());
    story.data_damage.iter().for_each(|damage| damage.inflict(&mut data));
    story.index_damage.iter().for_each(|damage| damage.inflict(&mut index));
    let found = whole_lines(&index, &data);
    are_whole(&found, &batches);
    if story.data_damage.is_empty() && story.index_damage.is_empty() {
        assert_eq!(found, batches.concat());
    }
});
