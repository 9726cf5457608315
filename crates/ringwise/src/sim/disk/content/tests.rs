//! Tests of what a crash may leave of a file, and what it may not.

use super::*;

const SEEDS: u64 = 400;

/// Returns the bytes that a crash leaves, for each of many seeds.
fn after_crashes(make: impl Fn() -> Content) -> Vec<Vec<u8>> {
    let crashed = |seed| {
        let mut content = make();
        content.crash(&mut Random::stream(seed, 0));
        content.read(0, u64::MAX)
    };
    (0..SEEDS).map(crashed).collect()
}

fn synced(bytes: &[u8]) -> Content {
    let mut content = Content::default();
    content.write(0, bytes);
    content.sync();
    content
}

#[test]
fn synced_bytes_are_always_kept() {
    let left = after_crashes(|| {
        let mut content = synced(&[1; 3000]);
        content.set_len(2000);
        content.write(1500, &[2; 1000]);
        content.sync();
        content
    });
    let expected = [vec![1; 1500], vec![2; 1000]].concat();
    assert!(left.iter().all(|bytes| *bytes == expected));
}

#[test]
fn a_write_is_torn_between_sectors_and_not_within() {
    let left = after_crashes(|| {
        let mut content = synced(&[1; 2048]);
        content.write(100, &[2; 1800]);
        content
    });
    let new = [vec![1; 100], vec![2; 1800], vec![1; 148]].concat();
    let mut torn = 0;
    for bytes in &left {
        let sectors = bytes.chunks(512).zip(new.chunks(512));
        let kept = sectors.filter(|(left, new)| left == new).count();
        let lost = bytes.chunks(512).filter(|left| *left == [1; 512]).count();
        assert_eq!(kept + lost, 4, "a sector is old or new");
        torn += usize::from(kept > 0 && lost > 0);
    }
    assert!(torn > 20, "{torn}");
    assert!(left.contains(&new) && left.contains(&vec![1; 2048]));
}

#[test]
fn a_sector_may_come_back_in_an_intermediate_version() {
    let left = after_crashes(|| {
        let mut content = synced(&[1; 512]);
        content.write(0, &[2; 512]);
        content.write(0, &[3; 512]);
        content
    });
    for version in 1..=3 {
        assert!(left.contains(&vec![version; 512]), "{version}");
    }
}

#[test]
fn a_file_that_grew_has_its_old_or_its_new_length() {
    let left = after_crashes(|| {
        let mut content = synced(b"");
        content.write(0, &[7; 700]);
        content
    });
    let lens: std::collections::BTreeSet<usize> = left.iter().map(Vec::len).collect();
    assert_eq!(lens.into_iter().collect::<Vec<_>>(), [0, 700]);
    // The length may be there without the data: then it reads as zeros.
    assert!(left.contains(&vec![0; 700]) && left.contains(&vec![7; 700]));
}

#[test]
fn truncated_bytes_do_not_come_back_when_the_file_grows() {
    let left = after_crashes(|| {
        let mut content = synced(&[1; 1024]);
        content.set_len(100);
        content.set_len(1024);
        content
    });
    for bytes in left {
        let (kept, rest) = bytes.split_at(100);
        assert_eq!(kept, [1; 100]);
        let old = rest == [1; 924];
        assert!(old || rest.is_empty() || rest == [0; 924], "{rest:?}");
    }
}

#[test]
fn data_written_after_a_lost_truncation_is_not_mixed_in() {
    // The file is truncated and written again. Its new bytes lie in new sectors, which the old
    // length does not reach.
    let left = after_crashes(|| {
        let mut content = synced(&[1; 1024]);
        content.set_len(0);
        content.write(0, &[2; 512]);
        content
    });
    for bytes in left {
        let whole = bytes == [1; 1024] || bytes == [2; 512] || bytes == [0; 512];
        assert!(whole || bytes.is_empty(), "{bytes:?}");
    }
}

#[test]
fn a_version_from_before_a_cut_does_not_survive_it() {
    let left = after_crashes(|| {
        let mut content = synced(&[1; 512]);
        content.write(0, &[2; 512]);
        content.set_len(100);
        content.set_len(400);
        content
    });
    assert!(left.iter().any(|bytes| bytes.len() == 400));
    for bytes in left.iter().filter(|bytes| bytes.len() == 400) {
        assert_eq!(bytes[100..], [0; 300], "cut off before the file grew again");
    }
}

#[test]
fn nothing_lies_beyond_a_files_end() {
    for seed in 0..SEEDS {
        let mut content = synced(&[1; 100]);
        content.write(100, &[2; 400]);
        content.crash(&mut Random::stream(seed, 0));
        let len = content.len() as usize;
        content.set_len(500);
        assert!(content.read(0, 500)[len..].iter().all(|byte| *byte == 0), "seed {seed}");
    }
}

#[test]
fn a_hole_is_kept_or_lost_as_a_whole() {
    let left = after_crashes(|| {
        let mut content = synced(&[1; 2048]);
        content.punch(100..1100);
        content
    });
    let punched = [vec![1; 100], vec![0; 1000], vec![1; 948]].concat();
    assert!(left.iter().all(|bytes| *bytes == punched || *bytes == [1; 2048]));
    assert!(left.contains(&punched) && left.contains(&vec![1; 2048]));
}

#[test]
fn a_later_sync_does_not_repair_a_failed_one() {
    let lost = |seed: u64| {
        let mut random = Random::stream(seed, 0);
        let mut content = synced(&[1; 4096]);
        content.write(0, &[2; 4096]);
        content.lose(&mut random);
        assert_eq!(content.read(0, 4096), [2; 4096], "it still reads as written");
        content.sync();
        content.crash(&mut random);
        content.read(0, 4096).contains(&1)
    };
    assert!((0..SEEDS).filter(|seed| lost(*seed)).count() > SEEDS as usize / 4);
}

#[test]
fn bytes_written_after_a_failed_sync_are_durable_with_the_next() {
    for seed in 0..SEEDS {
        let mut random = Random::stream(seed, 0);
        let mut content = Content::default();
        content.write(0, &[2; 4096]);
        content.lose(&mut random);
        content.write(1024, &[3; 512]);
        content.sync();
        content.crash(&mut random);
        assert_eq!(content.read(1024, 512), [3; 512]);
    }
}

#[test]
fn versions_are_thinned_out_and_the_last_one_stays() {
    let mut content = synced(&[0; 8]);
    for round in 0..100_000_u64 {
        content.write(0, &round.to_le_bytes());
    }
    assert!(content.unsynced.len() <= 4 * EVENTS_KEPT, "{}", content.unsynced.len());
    content.sync();
    content.crash(&mut Random::stream(1, 1));
    assert_eq!(content.read(0, 8), 99_999_u64.to_le_bytes());
}

#[test]
fn thinning_out_keeps_the_version_before_a_truncation() {
    // The only version before the truncation is old enough to be thinned out, and so are many after
    // it.
    let lost = |seed: &u64| {
        let mut content = synced(&[1; 512]);
        content.write(0, &[2; 512]);
        content.set_len(0);
        for _ in 0..3 * EVENTS_KEPT {
            content.write(0, &[3; 512]);
        }
        assert!(content.unsynced.len() < 3 * EVENTS_KEPT, "thinned out");
        content.crash(&mut Random::stream(*seed, 0));
        content.read(0, 512) == [2; 512]
    };
    assert!((0..SEEDS).any(|seed| lost(&seed)), "a disk may have seen nothing after that write");
}

/// Random programs: after a crash each sector is a version that the file had since its last sync.
#[test]
fn every_sector_is_a_version_since_the_last_sync() {
    for seed in 0..SEEDS {
        let mut random = Random::stream(seed, 9);
        let mut content = Content::default();
        let mut since: Vec<Vec<u8>> = vec![Vec::new()];
        for step in 1..=30_u64 {
            let (at, len) = (random.below(4000), random.below(2500));
            match random.below(10) {
                0..6 => content.write(at, &vec![step as u8; len as usize]),
                6 => content.set_len(at),
                7 => content.punch(at..at + len),
                8 => {
                    content.sync();
                    since.clear();
                }
                _ => {}
            }
            since.push(content.read(0, u64::MAX));
        }
        content.crash(&mut random);
        let left = content.read(0, u64::MAX);
        for (number, sector) in left.chunks(512).enumerate() {
            let was = |image: &Vec<u8>| {
                let mut old = image.chunks(512).nth(number).unwrap_or_default().to_vec();
                old.resize(512, 0);
                // The length may cut a sector short. The zeros beyond the length are not visible.
                old[..sector.len()] == *sector
            };
            let zeros = sector.iter().all(|byte| *byte == 0);
            let cut = cut_versions(&since, number, sector);
            assert!(zeros || cut || since.iter().any(was), "seed {seed}, sector {number}");
        }
    }
}

/// Returns whether a sector is an old version with some bytes zeroed by a truncation or a hole.
fn cut_versions(images: &[Vec<u8>], number: usize, sector: &[u8]) -> bool {
    images.iter().any(|image| {
        let old = image.chunks(512).nth(number).unwrap_or_default();
        let byte = |at: usize| old.get(at).copied().unwrap_or(0);
        sector.iter().enumerate().all(|(at, new)| *new == 0 || *new == byte(at))
    })
}
