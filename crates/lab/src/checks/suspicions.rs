//! Suspicions: what makes figures mean something else than they seem to, though every operation was
//! made. They are said with a section or a row; those that exclude a row are in `gates`.

use std::{os::unix::fs::FileExt, time::Instant};

use ringwise::AlignedBuf;
use ringwise_measure::{
    device::{Device, DeviceKind},
    environment::Environment,
    quantity::{latency_text, size_text},
    statistics::median,
};

use crate::{
    error::LabError,
    sampling::job::{Failure, Job},
};

/// Blocks that are read twice to see whether a host has them in its memory.
const LOOKED_AT: u64 = 64;
/// By how much the second read of a block may be faster than the first.
const AGAIN_MIN: f64 = 0.6;
/// Faster than any device that a host reaches over its own queue.
const MEMORY_NS: f64 = 8_000.0;

/// Why direct reads may come from a host's memory and not from its device: in a virtual machine the
/// second read of a block is much faster than the first, or each is as fast as memory. `first` and
/// `again` are times of the same blocks.
pub fn host_cache(is_virtual: bool, first_ns: &[f64], again_ns: &[f64]) -> Option<String> {
    let (first, again) = (median(first_ns)?, median(again_ns)?);
    let seen = |what: String| {
        format!(
            "host cache suspected: {what}; below a hypervisor O_DIRECT ends at its page cache, so these \
             may be figures of memory: compare engines, not devices"
        )
    };
    match is_virtual {
        false => None,
        true if again < AGAIN_MIN * first => Some(seen(format!(
            "the second direct read of a block took {} where the first took {}",
            latency_text(again),
            latency_text(first)
        ))),
        true if again < MEMORY_NS => {
            Some(seen(format!("a direct read of a block took {}", latency_text(again))))
        }
        true => None,
    }
}

/// Whether a hypervisor has the device below it in its hands.
pub fn is_virtual(environment: &Environment, device: &Device) -> bool {
    environment.virtualisation.is_virtual_machine() || device.kind == DeviceKind::Virtual
}

/// How long direct reads of some blocks of a job's first file took, and the same again.
///
/// # Errors
///
/// What opening or reading reports.
pub fn read_twice(job: &Job) -> Result<[Vec<f64>; 2], LabError> {
    let failed = |failure: Failure| LabError::Failed(failure.to_string());
    let files = job.open().map_err(failed)?;
    let blocks = job.blocks_per_file();
    let count = LOOKED_AT.min(blocks);
    let mut buffer = AlignedBuf::zeroed(job.block_bytes, 4096);
    let mut pass = || -> Result<Vec<f64>, LabError> {
        let mut one = |index: u64| {
            let offset = index * (blocks / count.max(1)) * job.block_bytes as u64;
            let began = Instant::now();
            files[0]
                .read_exact_at(&mut buffer, offset)
                .map_err(|error| LabError::on("reading", &job.files[0].path, &error))?;
            Ok(began.elapsed().as_nanos() as f64)
        };
        (0..count).map(&mut one).collect()
    };
    Ok([pass()?, pass()?])
}

/// What the kernel makes of a direct read that is larger than the device takes at once.
pub fn split(block_bytes: usize, device: &Device) -> Option<String> {
    let most = device.queue.max_sectors_kb.known()?.checked_mul(1024).filter(|most| *most > 0)?;
    let parts = (block_bytes as u64).div_ceil(most);
    (parts > 1).then(|| {
        format!(
            "a direct read of {} is at least {parts} requests: {} takes {} at once \
             (queue/max_sectors_kb), and who submits may wait for the next",
            size_text(block_bytes as u64),
            device.name,
            size_text(most)
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringwise_measure::{Fact, Sources};

    use super::*;

    #[test]
    fn a_host_that_remembers_what_was_read_is_suspected() {
        let slow = [90_000.0, 100_000.0, 110_000.0];
        let fast = [30_000.0, 31_000.0, 29_000.0];
        let reason = host_cache(true, &slow, &fast).unwrap();
        assert!(
            reason.starts_with(
                "host cache suspected: the second direct read of a block took 30.0 µs where the first \
                 took 100 µs; "
            ),
            "{reason}"
        );
        assert_eq!(host_cache(false, &slow, &fast), None, "no hypervisor, no host");
        assert_eq!(host_cache(true, &slow, &slow), None);
        let memory = [5_000.0; 3];
        assert!(host_cache(true, &memory, &memory).unwrap().contains("took 5.00 µs"));
        assert_eq!(host_cache(true, &[], &[]), None);
    }

    #[test]
    fn blocks_are_read_twice() {
        let directory = crate::testing::directory();
        let path = directory.path().join("x");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = crate::dataset::DataFile { path, number: 0, bytes: 1 << 20 };
        let job = Job { files: [file].into(), ..crate::testing::job() };
        let [first, again] = read_twice(&job).unwrap();
        assert_eq!((first.len(), again.len()), (64, 64));
        assert!(first.iter().chain(&again).all(|&ns| ns > 0.0));
    }

    #[test]
    fn a_block_that_a_device_does_not_take_at_once_is_said() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        let queue = root.path().join("sys/dev/block/8:0/queue");
        fs::create_dir_all(&queue).unwrap();
        let device = |max_kb: &str| {
            fs::write(queue.join("max_sectors_kb"), max_kb).unwrap();
            match Device::numbered(&sources, "8:0") {
                Fact::Known(device) => device,
                Fact::Unknown(reason) => panic!("{reason}"),
            }
        };
        assert_eq!(split(1 << 20, &device("1280\n")), None);
        let told = split(4 << 20, &device("1280\n")).unwrap();
        assert!(told.starts_with("a direct read of 4m is at least 4 requests: "), "{told}");
        assert_eq!(split(4 << 20, &device("0\n")), None);
        assert_eq!(split(4 << 20, &device("x\n")), None);
    }
}
