//! The worked example keeps its word: the simulator finds each log that forgets a sync, and never
//! finds fault with the one that does not.

#[path = "../../examples/write_ahead_log.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod example;

use self::example::{Care, check};

#[test]
fn a_missing_sync_is_found_within_a_hundred_seeds() {
    for care in [Care::NoFileSync, Care::NoDirectorySync] {
        let found = (0..100).filter(|seed| check(*seed, care).is_err()).count();
        assert!(found > 0, "{care:?}");
        println!("{care:?}: found with {found} seeds of 100");
    }
}

#[test]
fn the_careful_log_loses_nothing_in_a_thousand_seeds() {
    for seed in 0..1000 {
        if let Err(broken) = check(seed, Care::Full) {
            panic!("{broken}\n{}", broken.trace);
        }
    }
}

#[test]
fn a_broken_promise_is_broken_again_with_its_seed() {
    let broken = |_| (0..100).find_map(|seed| check(seed, Care::NoFileSync).err()).unwrap();
    let [first, second] = [(), ()].map(broken);
    assert_eq!((first.seed, &first.trace), (second.seed, &second.trace));
    assert!(first.trace.contains("the power fails"), "{}", first.trace);
}
