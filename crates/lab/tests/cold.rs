//! A cold run is excluded if its files are in memory after all. The test has a process of its own, because it
//! reads how much this process got from the device.

use std::{sync::Arc, time::Duration};

use ringwise_lab::{
    dataset::{DataFile, Directory, Layout, Size},
    engine::sync::Sync,
    results::row::{Row, RowKind},
    sampling::{
        job::{Cache, Extent, Job, Pattern, Timing},
        lane::Record,
        sample::Instruments,
        schedule::{Schedule, Spare},
    },
    workload::read::page_cache,
};
use ringwise_measure::{Fact, Sources, process::ProcessIo};

#[test]
fn a_warm_cache_in_a_cold_run_is_void() {
    let sources = Sources::default();
    if let Fact::Unknown(reason) = ProcessIo::read(&sources) {
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        return println!("skipped: {reason}");
    }
    let parent = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = Directory::open(parent.path(), false).unwrap();
    let layout = Layout { set: "cold", files: 1, size: Size::exactly(1 << 20), seed: 3 };
    let files: Arc<[DataFile]> = layout.lay(&directory, &mut |_| true).unwrap().into();
    let job = |cache, order_seed| Job {
        files: files.clone(),
        seed: 3,
        block_bytes: 4096,
        depth: 1,
        pattern: Pattern::Sequential,
        cache,
        order_seed,
        heatmap: false,
        interrupt: Arc::default(),
        failed: false.into(),
        latency: Record::default(),
    };
    let mut rows = vec![Row::new("sync".to_owned(), RowKind::Rival, 1, Box::new(Sync))];
    let instruments = Instruments { sources, device_number: None, idle: None };
    let schedule = Schedule {
        blocks: 1,
        seed: 1,
        timing: Timing {
            warm_up: Duration::ZERO,
            extent: Extent::Time(Duration::from_millis(200)),
        },
        instruments: &instruments,
        job: &|_, order_seed| job(Cache::Cold, order_seed),
        // What should make the cache cold makes it warm.
        prepare: &|_| page_cache::prepare(&job(Cache::Warm, 0)),
        inspect: &|_, _| Ok(None),
        spare: &Spare::default(),
    };
    schedule.run(&mut rows, &mut |_| {}).unwrap();
    let reason = rows[0].measured.void.as_deref().unwrap();
    assert!(reason.contains("% of the bytes came from the device, expected 100 %; "), "{reason}");
}
