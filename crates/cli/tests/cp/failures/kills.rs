//! Copies that are killed: what such a copy left is shorter than its source, or is the source.
//!
//! `RINGWISE_KILLS` makes that many rounds of it. What is wrong is told by its blocks, and once more
//! as the device has it: whether the copy wrote something else, or somebody lost it.

use std::{fs, ops::Range, path::Path};

use crate::data::cold::forget;

const BLOCK_BYTES: usize = 4096;

/// No block of it is like its neighbours, and none has a zero.
pub fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

pub fn rounds(few: usize) -> usize {
    std::env::var("RINGWISE_KILLS").map_or(few, |count| count.parse().unwrap())
}

/// The length of what a copy left. None: there is no copy.
pub fn left(round: usize, source: &Path, copy: &Path, content: &[u8]) -> Option<usize> {
    let copied = fs::read(copy).ok()?;
    if copied.len() == content.len() && copied != content {
        let told = tell(source, copy, content, &copied);
        panic!("round {round}: it only looks whole\n{told}");
    }
    Some(copied.len())
}

fn tell(source: &Path, copy: &Path, content: &[u8], copied: &[u8]) -> String {
    let read_again = |path: &Path| {
        rustix::fs::syncfs(fs::File::open(path).unwrap()).unwrap();
        let from = if forget(path) { "the device" } else { "memory" };
        (from, fs::read(path).unwrap())
    };
    let mut told = format!("the copy: {}\n", differences(copied, content));
    for (name, path) in [("the copy", copy), ("its source", source)] {
        let (from, read) = read_again(path);
        told += &format!("{name}, once more, from {from}: {}\n", differences(&read, content));
    }
    told
}

/// The blocks in which they differ, and what is in the first of them.
fn differences(found: &[u8], content: &[u8]) -> String {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (number, (block, expected)) in
        found.chunks(BLOCK_BYTES).zip(content.chunks(BLOCK_BYTES)).enumerate()
    {
        let start = number * BLOCK_BYTES;
        match ranges.last_mut() {
            _ if block == expected => {}
            Some(last) if last.end == start => last.end = start + BLOCK_BYTES,
            _ => ranges.push(start..start + BLOCK_BYTES),
        }
    }
    let Some(first) = ranges.first() else { return "as it should be".into() };
    let bytes = &found[first.start..found.len().min(first.end)];
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    let some = &bytes[..bytes.len().min(16)];
    format!("{ranges:x?} differ; the first has {zeros} zeros and begins with {some:?}")
}

#[test]
fn what_differs_is_told_by_its_blocks() {
    let content = content(10 * BLOCK_BYTES);
    let mut found = content.clone();
    assert_eq!(differences(&found, &content), "as it should be");
    found[BLOCK_BYTES..3 * BLOCK_BYTES].fill(0);
    found[9 * BLOCK_BYTES + 5] = 0;
    let told = differences(&found, &content);
    assert!(
        told.starts_with("[1000..3000, 9000..a000] differ; the first has 8192 zeros"),
        "{told}"
    );
}
