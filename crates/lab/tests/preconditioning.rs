//! `--full` preconditions the device, or says why not; smaller runs do neither.

use ringwise_lab::Args;
use serde_json::Value;

/// The notes of the sections of direct reads, in order.
fn notes(full: bool) -> Option<Vec<String>> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = directory.path().join("results.json");
    let text = |value: &str| Some(value.to_owned());
    let args = Args {
        workload: text("read"),
        full,
        profile: text("direct"),
        engines: text("sync"),
        depth: text("1"),
        block: text("4k,8k"),
        size: text("4m"),
        reads: text("50"),
        repeats: text("1"),
        dir: Some(directory.path().to_owned()),
        json: Some(json.clone()),
        ..Args::default()
    };
    if let Err(error) = ringwise_lab::run(args, &mut Vec::new()) {
        let reason = error.to_string();
        assert!(reason.starts_with("nothing could be measured: "), "{reason}");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        println!("skipped: {reason}");
        return None;
    }
    let results: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let sections = results["sections"].as_array().unwrap();
    Some(sections.iter().map(|section| section["notes"].to_string()).collect())
}

#[test]
fn the_first_direct_section_of_a_full_run_tells_of_preconditioning() {
    let Some(full) = notes(true) else { return };
    let told: Vec<usize> =
        full.iter().map(|notes| notes.matches("preconditioned: ").count()).collect();
    assert_eq!(told, [1, 0], "{full:?}");
    let small = notes(false).unwrap();
    assert!(small.iter().all(|notes| !notes.contains("preconditioned")), "{small:?}");
}
