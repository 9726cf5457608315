//! Gates: each looks for one way in which a result can be wrong, and excludes such a result with the reason.
//!
//! A reason says what failed, and after a semicolon what to do.
//!
//! An excluded result keeps its figures in the results file, is shown with its reason, and takes part in no verdict. A
//! remark does not exclude a result.

use ringwise_measure::{device::Storage, quantity::bytes_text, statistics};

use crate::{
    results::row::Measured,
    sampling::{
        job::{Cache, Failure, Profile},
        sample::Sample,
    },
};

/// How far operations in flight may be from throughput times latency.
pub const LITTLES_LAW_TOLERANCE: f64 = 0.05;
/// How far the bytes from the device may be from the bytes read in a direct or cold run. Both are
/// counted exactly; what differs is read-ahead, and what the lab itself reads meanwhile.
pub const DEVICE_TOLERANCE: f64 = 0.02;
/// What share of the bytes may come from the device in a warm run.
pub const WARM_DEVICE_SHARE_MAX: f64 = 0.01;
/// What a file system may read of its own in a sample, its journal and maps: it shows where a
/// sample is a few hundred operations.
pub const FILESYSTEM_READS_MAX_BYTES: f64 = 64.0 * 1024.0;
/// What share of the pages may miss in a warm cache, or be there in a cold one.
pub const CACHE_TOLERANCE: f64 = 0.01;
/// What share of the time per operation may be the lab's own without a remark.
pub const HARNESS_SHARE_MAX: f64 = 0.10;
/// How much a figure may move over the measured time without a remark.
pub const DRIFT_MAX: f64 = 0.10;

/// Direct reads of files that are in memory measure memory, and on an overlay something else than
/// they seem to: both are refused before anything is measured.
pub fn storage(profile: Profile, storage: &Storage) -> Option<String> {
    let found = storage.filesystem.known()?;
    let is_refused = found.is_memory_backed() || found.is_overlay();
    (profile == Profile::Direct && is_refused).then(|| {
        let kind = if found.is_overlay() { "is a layer over another" } else { "is memory" };
        format!(
            "O_DIRECT on {} refused: it {kind}; point --dir to a file system on a disk, such as \
             ext4 or xfs",
            found.name
        )
    })
}

/// Every block must hold what was written.
pub fn verification(failure: &Failure) -> Option<String> {
    matches!(failure, Failure::Mismatch(_)).then(|| {
        format!("{failure}; remove kept test files, and look for device errors in the kernel's log")
    })
}

/// What to do if an engine contradicts itself.
const REPORT: &str = "run again, and report a bug of the engine if it repeats";

/// What was submitted must have completed, by the lane's count and by the engine's own.
pub fn completeness(sample: &Sample) -> Option<String> {
    let counts = &sample.tally.counts;
    if counts.issued != counts.completed {
        return Some(format!(
            "{} operations issued, {} completed; {REPORT}",
            counts.issued, counts.completed
        ));
    }
    let submitted = sample.tally.submitted?;
    (submitted != counts.completed).then(|| {
        format!(
            "{submitted} operations submitted by the engine, {} completed; {REPORT}",
            counts.completed
        )
    })
}

/// The engine must have been what its name says: what it was asked to switch on was on, and what it
/// was to do it did by itself.
pub fn identity(sample: &Sample) -> Option<String> {
    let lacks = sample.tally.lacks.as_ref()?;
    Some(format!("not what its name says: {lacks}; run `ringwise doctor`, or leave the engine out"))
}

/// Something must have been measured.
pub fn presence(sample: &Sample) -> Option<String> {
    (sample.tally.counts.operations == 0)
        .then(|| "no operation completed in the measured time; use a longer --duration".into())
}

/// Operations in flight must be throughput times latency.
pub fn littles_law(sample: &Sample) -> Option<String> {
    // Another program's queue cannot be looked into.
    if sample.tally.foreign_cpu_ns.is_some() {
        return None;
    }
    let law = statistics::LittlesLaw::check(
        sample.operations_per_second(),
        sample.latency().mean_ns(),
        sample.tally.counted_in_flight_mean(),
        LITTLES_LAW_TOLERANCE,
    );
    (!law.holds).then(|| {
        format!(
            "Little's law: throughput times latency says {:.2} in flight, counted were {:.2}; use a \
             longer --duration, and end other programs",
            law.implied_in_flight, law.in_flight
        )
    })
}

/// What to do if the page cache does not hold the files.
const ROOM: &str = "use a smaller --size, or free memory";

/// Bytes must have come from where the run says: all from the device in a direct or cold one,
/// none in a warm one.
pub fn device(cache: Cache, sample: &Sample) -> Option<String> {
    let share = sample.device_share?;
    let percent = share * 100.0;
    match cache {
        Cache::Warm => {
            let read_bytes = share * sample.tally.counts.bytes as f64;
            (share > WARM_DEVICE_SHARE_MAX && read_bytes > FILESYSTEM_READS_MAX_BYTES).then(|| {
                format!("warm cache expected: {percent:.1} % came from the device; {ROOM}")
            })
        }
        // How much has to come from there is for the bound to say.
        Cache::Bounded => None,
        Cache::Cold | Cache::Bypassed => ((share - 1.0).abs() > DEVICE_TOLERANCE).then(|| {
            // More is of others. Less was in a cache, or was compressed.
            let remedy = match share > 1.0 {
                true => "end other programs that use the device",
                false => {
                    "end programs that read these files, and use no file system that compresses"
                }
            };
            format!("{percent:.1} % of the bytes came from the device, expected 100 %; {remedy}")
        }),
    }
}

/// What to do if others fill the page cache.
const OTHERS: &str = "end programs that use these files";

/// The page cache must hold the files before a warm sample, and nothing of them before a cold one.
/// `cached_share` is of the files' pages; none where the kernel cannot tell.
pub fn page_cache(cache: Cache, cached_share: Option<f64>) -> Option<String> {
    let share = cached_share?;
    let percent = share * 100.0;
    match cache {
        Cache::Warm if share < 1.0 - CACHE_TOLERANCE => Some(format!(
            "warm cache expected and not found: {percent:.1} % of the files cached; {ROOM}"
        )),
        Cache::Cold if share > CACHE_TOLERANCE => Some(format!(
            "cold cache expected and not found: {percent:.1} % of the files cached; {OTHERS}, and \
             point --dir to a file system on a disk"
        )),
        _ => None,
    }
}

/// A bound of the page cache, and what is read through it.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// What the run may use.
    pub bytes: u64,
    /// What the files have together.
    pub files_bytes: u64,
}

impl Bound {
    /// The share of random reads that cannot come from a cache of this size.
    pub fn device_share_min(&self) -> f64 {
        1.0 - self.bytes as f64 / self.files_bytes.max(1) as f64
    }
}

/// A bound must have had an effect: not more in the cache than it lets, and at least as much from
/// the device as it forces. `cached_bytes` is of the files after the sample; none where the kernel
/// cannot tell.
pub fn bound(bound: &Bound, cached_bytes: Option<u64>, sample: &Sample) -> Option<String> {
    let cached = cached_bytes.unwrap_or(0);
    if cached as f64 > bound.bytes as f64 * (1.0 + CACHE_TOLERANCE) {
        return Some(format!(
            "bounded cache expected: {} of the files cached, bounded to {}; {OTHERS}",
            bytes_text(cached),
            bytes_text(bound.bytes)
        ));
    }
    let (share, least) = (sample.device_share?, bound.device_share_min());
    // Few reads may hit or miss by chance: three standard deviations.
    let reads = sample.tally.counts.completed.max(1) as f64;
    let chance = 3.0 * (least * (1.0 - least) / reads).sqrt();
    (share < least - DEVICE_TOLERANCE - chance).then(|| {
        format!(
            "bounded cache expected: {:.1} % of the bytes came from the device, at least {:.1} % \
             have to; {OTHERS}, or use a larger --size",
            share * 100.0,
            least * 100.0
        )
    })
}

/// Every page that was to be durable must have come to the device. None where the device is not
/// known. (What other programs write hides a loss; nothing feigns one.)
pub fn durable(page_bytes: usize, sample: &Sample) -> Option<String> {
    let written = sample.device_written_bytes_per_op?;
    (written < page_bytes as f64 * (1.0 - DEVICE_TOLERANCE)).then(|| {
        format!(
            "syncs are lost: the device wrote {written:.0} bytes for each page of {page_bytes}; look for a \
             mount option or a layer below that drops them"
        )
    })
}

/// A device that loses its cache with its power must have been told to write it out: without a flush
/// nothing was durable, however often a sync came back. None where the device says that its cache is
/// none, or is not asked.
pub fn flushed(has_volatile_cache: Option<bool>, sample: &Sample) -> Option<String> {
    let is_lost = has_volatile_cache == Some(true)
        && sample.device_flushes == Some(0)
        && sample.tally.counts.completed > 0;
    is_lost.then(|| {
        "syncs are lost: the device has a volatile write cache (queue/write_cache), and it was flushed 0 \
         times; mount the file system with barriers"
            .to_owned()
    })
}

/// By how much throughput may move over the measured time.
pub const UNSTEADY_MIN: f64 = 0.50;
/// What was measured for less, over all samples, says nothing of steadiness.
const STEADY_TIME_NS_MIN: u64 = 500_000_000;

/// Throughput must not have been on its way somewhere else: a median of that is chance. Less than
/// that is a remark.
pub fn steadiness(measured: &Measured) -> Option<String> {
    let drift = measured.drift().filter(|_| measured.elapsed_ns >= STEADY_TIME_NS_MIN)?;
    (drift.change.abs() > UNSTEADY_MIN).then(|| {
        format!(
            "not steady: throughput moved by {:+.0} % of its median over the measured time; use a \
             longer --duration",
            drift.change * 100.0
        )
    })
}

/// The first gate that a sample does not pass.
pub fn sample(cache: Cache, sample: &Sample) -> Option<String> {
    presence(sample)
        .or_else(|| identity(sample))
        .or_else(|| completeness(sample))
        .or_else(|| littles_law(sample))
        .or_else(|| device(cache, sample))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ringwise_measure::{Fact, Latency, Sources, filesystem::Filesystem};

    use super::*;
    use crate::{
        dataset::block::{Mismatch, Stamp},
        engine::Tally,
        sampling::lane::Counts,
    };

    /// 100 reads of 1 ms in 0.1 s: one in flight.
    fn good() -> Sample {
        let mut latency = Latency::new();
        latency.record_many_ns(1_000_000, 100);
        let counts = Counts {
            operations: 100,
            bytes: 409_600,
            issued: 110,
            completed: 110,
            in_flight_ns: 100_000_000,
            ..Counts::default()
        };
        Sample {
            tally: Tally {
                counts,
                latency,
                elapsed_ns: 100_000_000,
                submitted: Some(110),
                ..Tally::default()
            },
            cpu_ns_per_operation: 1.0,
            split: None,
            other_cpu_ns_per_operation: None,
            device_share: Some(1.0),
            device_queue_depth: None,
            device_written_bytes_per_op: None,
            device_flushes: None,
            kswapd_pages: None,
        }
    }

    /// What failed, and what to do.
    #[track_caller]
    fn told(reason: &str) -> (&str, &str) {
        reason.split_once("; ").unwrap_or_else(|| panic!("no remedy: {reason}"))
    }

    fn of_filesystem(name: &str, magic: u64) -> Storage {
        let (free_bytes, total_bytes) = (1, 1);
        let filesystem = Filesystem { name: name.into(), magic, free_bytes, total_bytes };
        Storage {
            path: PathBuf::from("/x"),
            mount: Fact::Unknown(String::new()),
            filesystem: Fact::Known(filesystem),
            device: Fact::Unknown(String::new()),
        }
    }

    fn changed(change: impl Fn(&mut Sample)) -> Sample {
        let mut sample = good();
        change(&mut sample);
        sample
    }

    /// A reason of each gate, and of each of its causes.
    fn reasons() -> Vec<Option<String>> {
        let stamp = Stamp { seed: 1, file: 2, block: 3 };
        let share = |share| changed(|own| own.device_share = Some(share));
        let limit = Bound { bytes: 1 << 20, files_bytes: 4 << 20 };
        let mut moving = Measured::default();
        let falling = (0..10).map(|at| 100 - 9 * at).collect::<Vec<u64>>();
        let slow = changed(|own| {
            own.tally.counts.slices.clone_from(&falling);
            own.tally.elapsed_ns = 1_000_000_000;
        });
        moving.add(0, &slow, None);
        vec![
            storage(Profile::Direct, &of_filesystem("tmpfs", 0x0102_1994)),
            storage(Profile::Direct, &of_filesystem("overlay", 0x794c_7630)),
            verification(&Failure::Mismatch(Mismatch { expected: stamp, found: None })),
            completeness(&changed(|own| own.tally.counts.completed = 109)),
            completeness(&changed(|own| own.tally.submitted = Some(109))),
            identity(&changed(|own| own.tally.lacks = Some("SQPOLL was not granted".to_owned()))),
            presence(&changed(|own| own.tally.counts.operations = 0)),
            littles_law(&changed(|own| own.tally.counts.in_flight_ns *= 8)),
            device(Cache::Warm, &changed(|own| own.tally.counts.bytes = 100 << 20)),
            device(Cache::Cold, &share(0.5)),
            device(Cache::Bypassed, &share(1.5)),
            page_cache(Cache::Warm, Some(0.5)),
            page_cache(Cache::Cold, Some(0.5)),
            bound(&limit, Some(3 << 20), &good()),
            bound(&limit, Some(0), &share(0.0)),
            durable(4096, &changed(|own| own.device_written_bytes_per_op = Some(0.0))),
            flushed(Some(true), &changed(|own| own.device_flushes = Some(0))),
            steadiness(&moving),
        ]
    }

    #[test]
    fn every_reason_of_a_gate_says_what_to_do() {
        for (at, reason) in reasons().into_iter().enumerate() {
            let reason = reason.unwrap_or_else(|| panic!("gate {at} of the list passes"));
            let (what, remedy) = told(&reason);
            let verb = remedy.split(' ').next().unwrap();
            let verbs = ["end", "look", "mount", "point", "remove", "run", "use"];
            assert!(verbs.contains(&verb), "{what}: {remedy}");
            // A line of the first screen has room for it, twice.
            assert!(reason.chars().count() <= 160, "{reason}");
        }
    }

    #[test]
    fn a_good_sample_passes() {
        assert_eq!(sample(Cache::Bypassed, &good()), None);
    }

    #[test]
    fn an_engine_that_does_less_than_it_was_given_is_void() {
        let mut bad = good();
        bad.tally.submitted = Some(109);
        let reason = sample(Cache::Bypassed, &bad).unwrap();
        let (what, _) = told(&reason);
        assert_eq!(what, "109 operations submitted by the engine, 110 completed");
        bad.tally.counts.completed = 109;
        let reason = sample(Cache::Bypassed, &bad).unwrap();
        assert_eq!(told(&reason).0, "110 operations issued, 109 completed");
    }

    #[test]
    fn an_engine_that_is_not_what_it_is_called_is_void() {
        let mut bad = good();
        bad.tally.lacks = Some("COOP_TASKRUN was not granted".to_owned());
        let reason = sample(Cache::Bypassed, &bad).unwrap();
        assert_eq!(told(&reason).0, "not what its name says: COOP_TASKRUN was not granted");
    }

    #[test]
    fn latencies_stamped_in_the_wrong_place_are_void() {
        let mut bad = good();
        bad.tally.latency = Latency::new();
        bad.tally.latency.record_many_ns(900_000, 100);
        let reason = sample(Cache::Bypassed, &bad).unwrap();
        assert_eq!(
            told(&reason).0,
            "Little's law: throughput times latency says 0.90 in flight, counted were 1.00"
        );
    }

    #[test]
    fn nothing_measured_is_void() {
        let mut bad = good();
        bad.tally.counts = Counts::default();
        bad.tally.submitted = Some(0);
        assert!(sample(Cache::Bypassed, &bad).unwrap().contains("no operation completed"));
    }

    #[test]
    fn bytes_must_come_from_where_the_run_says() {
        let with = |share| Sample { device_share: share, ..good() };
        for (cache, share, is_void) in [
            (Cache::Bypassed, Some(1.0), false),
            (Cache::Bypassed, Some(0.0), true),
            (Cache::Bypassed, Some(0.9), true),
            (Cache::Bypassed, Some(1.2), true),
            (Cache::Bypassed, None, false),
            (Cache::Cold, Some(0.3), true),
            (Cache::Warm, Some(0.0), false),
            // 8 KiB of 400, which may be the file system's own.
            (Cache::Warm, Some(0.02), false),
            (Cache::Warm, Some(0.5), true),
        ] {
            assert_eq!(device(cache, &with(share)).is_some(), is_void, "{cache:?} {share:?}");
        }
        let mut large = with(Some(0.02));
        large.tally.counts.bytes = 100 << 20;
        assert!(device(Cache::Warm, &large).is_some());
        let reason = device(Cache::Bypassed, &with(Some(0.0))).unwrap();
        assert_eq!(told(&reason).0, "0.0 % of the bytes came from the device, expected 100 %");
    }

    #[test]
    fn a_bound_must_have_an_effect() {
        let limit = Bound { bytes: 256 << 20, files_bytes: 1 << 30 };
        assert_eq!(limit.device_share_min(), 0.75);
        let with = |share, completed| {
            let mut sample = Sample { device_share: share, ..good() };
            sample.tally.counts.completed = completed;
            sample
        };
        for (cached, share, reads, is_void) in [
            (Some(255 << 20), Some(0.76), 100_000, false),
            (Some(255 << 20), Some(0.72), 100_000, true),
            // Sixteen reads say little.
            (Some(255 << 20), Some(0.5), 16, false),
            (Some(0), Some(0.0), 100_000, true),
            (Some(300 << 20), Some(1.0), 100_000, true),
            (None, Some(0.76), 100_000, false),
            (None, None, 100_000, false),
        ] {
            let found = bound(&limit, cached, &with(share, reads));
            assert_eq!(found.is_some(), is_void, "{cached:?} {share:?}: {found:?}");
        }
        let reason = bound(&limit, Some(300 << 20), &good()).unwrap();
        assert_eq!(
            told(&reason).0,
            "bounded cache expected: 300.0 MiB of the files cached, bounded to 256.0 MiB"
        );
        assert_eq!(device(Cache::Bounded, &with(Some(0.3), 1000)), None);
    }

    #[test]
    fn what_is_still_on_its_way_is_void_and_what_wanders_a_little_is_not() {
        let measured = |slices: [u64; 10], elapsed_ns| {
            let mut sample = good();
            sample.tally.counts.slices = slices.to_vec();
            sample.tally.elapsed_ns = elapsed_ns;
            let mut measured = Measured::default();
            measured.add(0, &sample, None);
            measured
        };
        let falling = [100, 91, 82, 75, 66, 58, 49, 42, 35, 28];
        let reason = steadiness(&measured(falling, 1_000_000_000)).unwrap();
        assert!(reason.starts_with("not steady: throughput moved by -11"), "{reason}");
        assert_eq!(steadiness(&measured(falling, 100_000_000)), None, "too short to tell");
        let wandering = [100, 99, 97, 96, 95, 93, 91, 90, 88, 85];
        assert_eq!(steadiness(&measured(wandering, 1_000_000_000)), None);
        assert_eq!(steadiness(&measured([100; 10], 1_000_000_000)), None);
        // Those of a sample began together, and end late in it.
        let mut long = measured([0, 0, 1, 2, 3, 4, 5, 6, 7, 8], 1_000_000_000);
        assert!(steadiness(&long).is_some());
        (0..100_000).for_each(|_| long.latency.record_ns(500_000_000));
        assert_eq!(steadiness(&long), None);
    }

    #[test]
    fn a_sync_that_wrote_nothing_is_void() {
        let with = |written| Sample { device_written_bytes_per_op: written, ..good() };
        for (written, is_void) in
            [(Some(4096.0), false), (Some(9000.0), false), (None, false), (Some(3000.0), true)]
        {
            assert_eq!(durable(4096, &with(written)).is_some(), is_void, "{written:?}");
        }
        assert_eq!(
            told(&durable(4096, &with(Some(0.0))).unwrap()).0,
            "syncs are lost: the device wrote 0 bytes for each page of 4096"
        );
    }

    #[test]
    fn a_volatile_cache_that_was_never_flushed_is_void() {
        let with = |flushes| Sample { device_flushes: flushes, ..good() };
        for (is_volatile, flushes, is_void) in [
            (Some(true), Some(0), true),
            // Pages that wait together share one.
            (Some(true), Some(1), false),
            (Some(false), Some(0), false),
            (None, Some(0), false),
            (Some(true), None, false),
        ] {
            let found = flushed(is_volatile, &with(flushes));
            assert_eq!(found.is_some(), is_void, "{is_volatile:?} {flushes:?}");
        }
        let reason = flushed(Some(true), &with(Some(0))).unwrap();
        assert!(told(&reason).0.ends_with("flushed 0 times"), "{reason}");
    }

    #[test]
    fn the_cache_must_be_as_the_run_says() {
        for (cache, share, is_void) in [
            (Cache::Warm, Some(1.0), false),
            (Cache::Warm, Some(0.5), true),
            (Cache::Cold, Some(0.0), false),
            (Cache::Cold, Some(0.5), true),
            (Cache::Warm, None, false),
            (Cache::Bypassed, Some(0.5), false),
        ] {
            assert_eq!(page_cache(cache, share).is_some(), is_void, "{cache:?} {share:?}");
        }
    }

    #[test]
    fn damaged_data_is_void_and_other_failures_are_not_a_result() {
        let expected = Stamp { seed: 1, file: 2, block: 3 };
        let failure = Failure::Mismatch(Mismatch { expected, found: None });
        let reason = verification(&failure).unwrap();
        assert_eq!(told(&reason).0, "verification failed: block 3 of file 2 holds damaged data");
        assert_eq!(verification(&Failure::Io("gone".into())), None);
    }

    #[test]
    fn direct_reads_of_memory_and_overlays_are_refused() {
        for (name, magic, is_refused) in
            [("ext4", 0xef53, false), ("tmpfs", 0x0102_1994, true), ("overlay", 0x794c_7630, true)]
        {
            let found = of_filesystem(name, magic);
            assert_eq!(storage(Profile::Direct, &found).is_some(), is_refused, "{name}");
            assert_eq!(storage(Profile::Buffered, &found), None, "{name}");
        }
    }

    #[test]
    fn shared_memory_is_refused_for_real() {
        let found = Storage::of(&Sources::default(), std::path::Path::new("/dev/shm"));
        match storage(Profile::Direct, &found) {
            Some(reason) => {
                assert!(reason.contains("tmpfs") && reason.contains("--dir"), "{reason}")
            }
            None => eprintln!("skipped: /dev/shm is {:?}", found.filesystem),
        }
    }
}
