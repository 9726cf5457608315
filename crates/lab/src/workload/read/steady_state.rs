//! Preconditioning: brings a flash device into its steady state before it is read, by the rule of SNIA's Solid State
//! Storage Performance Test Specification, as far as test files can.
//!
//! The files are overwritten twice in order. Rounds of random writes follow until the speed of writing is steady. All
//! writes give each block the content that it has, so that reads verify it as before. Nothing but the test files is
//! written: unlike the specification asks, the rest of the device stays as it is, and the note of the section says so.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use ringwise::AlignedBuf;
use ringwise_measure::{
    Fact,
    device::{Device, DeviceKind},
    environment::Environment,
    quantity::{bytes_text, size_text},
    statistics::{STEADY_STATE_ROUNDS_MAX, SteadyWindow},
};

use crate::{
    checks::suspicions,
    dataset::{
        DataFile,
        block::{BLOCK_BYTES, Stamp},
    },
    error::LabError,
    workload::form::columns::grouped,
};

/// Bytes of a write in order, and how often the files are overwritten so: twice, as the specification does.
const IN_ORDER_BYTES: usize = 128 << 10;
const IN_ORDER_PASSES: usize = 2;
/// A round lasts a minute as in the specification, or until as much is written as the files hold: 27 times the files
/// is the most that a run wears the device.
pub const ROUND_TIME: Duration = Duration::from_secs(60);
/// Writes in flight, a thread each.
const THREADS: usize = 32;

/// Why a device has no steady state that overwriting files would bring about, or none that can be known of.
pub fn unsuited(environment: &Environment, device: &Fact<Device>) -> Option<String> {
    let device = match device {
        Fact::Known(device) => device,
        Fact::Unknown(reason) => return Some(format!("not measurable here: {reason}")),
    };
    let name = &device.name;
    if suspicions::is_virtual(environment, device) {
        return Some(format!(
            "not measurable here: {name} belongs to a virtual machine, and the state of the drive below \
             it is not known"
        ));
    }
    let is_drive = matches!(
        device.kind,
        DeviceKind::Nvme
            | DeviceKind::Scsi
            | DeviceKind::Card
            | DeviceKind::DeviceMapper
            | DeviceKind::Raid
    );
    match (is_drive, &device.queue.rotational) {
        (false, _) => Some(format!("not measurable here: {name} is no drive")),
        (true, Fact::Known(0)) => None,
        (true, Fact::Known(_)) => {
            Some(format!("{name} rotates: what was written does not slow it"))
        }
        (true, Fact::Unknown(reason)) => {
            Some(format!("not known whether {name} rotates: {reason}"))
        }
    }
}

/// Writes test files over with the content that they have.
pub struct Writer<'a> {
    /// All of one length.
    pub files: &'a [DataFile],
    /// The seed of their content.
    pub seed: u64,
    /// Set by a signal.
    pub interrupt: &'a AtomicBool,
}

impl Writer<'_> {
    /// Preconditions the files with writes of a block, and says how steady their device became. A round takes at most
    /// `time`.
    ///
    /// # Errors
    ///
    /// A file cannot be opened or written past the page cache, or an interrupt.
    pub fn precondition(&self, block_bytes: usize, time: Duration) -> Result<String, LabError> {
        // Whole blocks have a stamp and a checksum.
        let block_bytes = block_bytes.next_multiple_of(BLOCK_BYTES);
        let opened = self.files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for _ in 0..IN_ORDER_PASSES {
            self.write_in_order(&opened)?;
        }
        let mut order_seed = self.seed;
        let rounds = rounds(&mut || {
            order_seed = order_seed.wrapping_add(1);
            self.write_round(&opened, block_bytes, time, order_seed)
        })?;
        for (file, opened) in self.files.iter().zip(&opened) {
            opened.sync_data().map_err(|error| LabError::on("syncing", &file.path, &error))?;
        }
        Ok(told(&rounds, block_bytes, self.files))
    }

    fn write_in_order(&self, opened: &[File]) -> Result<(), LabError> {
        let mut buffer = AlignedBuf::zeroed(IN_ORDER_BYTES, BLOCK_BYTES);
        for (file, opened) in self.files.iter().zip(opened) {
            let mut at = 0;
            while at < file.bytes {
                let part = (file.bytes - at).min(IN_ORDER_BYTES as u64) as usize;
                self.write(file, opened, at, &mut buffer[..part])?;
                at += part as u64;
            }
        }
        Ok(())
    }

    /// Writes random blocks, and returns how many a second it were.
    fn write_round(
        &self,
        opened: &[File],
        block_bytes: usize,
        time: Duration,
        order_seed: u64,
    ) -> Result<f64, LabError> {
        let per_file = self.files[0].bytes / block_bytes as u64;
        let most = per_file * self.files.len() as u64;
        let (begun, began) = (AtomicU64::new(0), Instant::now());
        let lane = |lane: u64| -> Result<u64, LabError> {
            let mut random = fastrand::Rng::with_seed(order_seed.rotate_left(32) ^ lane);
            let mut buffer = AlignedBuf::zeroed(block_bytes, BLOCK_BYTES);
            let mut written = 0;
            while began.elapsed() < time && begun.fetch_add(1, Ordering::Relaxed) < most {
                let index = random.usize(..self.files.len());
                let at = random.u64(..per_file) * block_bytes as u64;
                self.write(&self.files[index], &opened[index], at, &mut buffer)?;
                written += 1;
            }
            Ok(written)
        };
        let written = thread::scope(|scope| {
            let lanes: Vec<_> =
                (0..THREADS as u64).map(|number| scope.spawn(move || lane(number))).collect();
            let written = lanes.into_iter().map(|lane| lane.join().expect("a lane does not panic"));
            written.sum::<Result<u64, LabError>>()
        })?;
        Ok(written as f64 / began.elapsed().as_secs_f64().max(1e-9))
    }

    /// Writes whole blocks at an offset with the content that they have.
    fn write(
        &self,
        file: &DataFile,
        opened: &File,
        at: u64,
        bytes: &mut [u8],
    ) -> Result<(), LabError> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        for (index, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let number = at / BLOCK_BYTES as u64 + index as u64;
            Stamp { seed: self.seed, file: file.number, block: number }.fill(block);
        }
        let written = opened.write_all_at(bytes, at);
        written.map_err(|error| LabError::on("preconditioning", &file.path, &error))
    }
}

fn open(file: &DataFile) -> Result<File, LabError> {
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW)
        .open(&file.path)
        .map_err(|error| LabError::on("opening", &file.path, &error))
}

/// Takes rounds until the last of them are steady, or there were too many. Returns their figures.
fn rounds(round: &mut dyn FnMut() -> Result<f64, LabError>) -> Result<Vec<f64>, LabError> {
    let mut figures = Vec::with_capacity(STEADY_STATE_ROUNDS_MAX);
    while figures.len() < STEADY_STATE_ROUNDS_MAX
        && !SteadyWindow::last(&figures).is_some_and(|window| window.is_steady())
    {
        figures.push(round()?);
    }
    Ok(figures)
}

/// What was done, and whether it was enough.
fn told(rounds: &[f64], block_bytes: usize, files: &[DataFile]) -> String {
    let total = files.iter().map(|file| file.bytes).sum();
    let window = SteadyWindow::last(rounds);
    let state = match &window {
        Some(window) if window.is_steady() => "steady by SNIA's rule",
        _ => "NOT steady by SNIA's rule, so these figures may still change",
    };
    let figures = window.map_or_else(String::new, |window| {
        format!(
            " (last five rounds: {}/s on average, range {:.0} %, slope {:+.0} %)",
            grouped(window.mean),
            window.range * 100.0,
            window.excursion * 100.0
        )
    });
    format!(
        "preconditioned: the test files ({}) were overwritten {IN_ORDER_PASSES} times in order, then by \
         {} rounds of random writes of {}; {state}{figures}; the rest of the device was not written",
        bytes_text(total),
        rounds.len(),
        size_text(block_bytes as u64)
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringwise_measure::Sources;

    use super::*;
    use crate::dataset::{Directory, Layout, Size, block::verify};

    #[test]
    fn rounds_end_when_they_are_steady_or_too_many() {
        let taken = |figure: &dyn Fn(usize) -> f64| {
            let mut count = 0;
            let mut round = || {
                count += 1;
                Ok(figure(count))
            };
            rounds(&mut round).unwrap()
        };
        // As a device that loses speed for six rounds: the window from the sixth on is flat.
        let falling = taken(&|round| 100_000.0 - 15_000.0 * round.min(6) as f64);
        assert_eq!(falling.len(), 10, "{falling:?}");
        let files = [DataFile { path: "/x".into(), number: 0, bytes: 10 << 30 }];
        let text = told(&falling, 4096, &files);
        assert!(text.contains("10 rounds of random writes of 4k; steady by SNIA's rule"), "{text}");
        let wild = taken(&|round| if round % 2 == 0 { 11_000.0 } else { 20_000.0 });
        assert_eq!(wild.len(), STEADY_STATE_ROUNDS_MAX);
        let text = told(&wild, 4096, &files);
        assert!(text.contains("25 rounds") && text.contains("NOT steady"), "{text}");
        assert!(text.contains("range 55 %"), "{text}");
    }

    /// On the file system of the build, whatever its device is.
    #[test]
    fn files_keep_their_content_and_an_interrupt_ends_it() {
        let parent = crate::testing::directory();
        let directory = Directory::open(parent.path(), false).unwrap();
        let layout = Layout { set: "t", files: 2, size: Size::exactly(1 << 20), seed: 5 };
        let files = layout.lay(&directory, &mut |_| true).unwrap();
        // Content that preconditioning would not write is gone after it.
        let damaged = OpenOptions::new().write(true).open(&files[1].path).unwrap();
        damaged.write_all_at(&[1; 100], 300_000).unwrap();
        damaged.sync_all().unwrap();
        let interrupt = AtomicBool::new(false);
        let writer = Writer { files: &files, seed: 5, interrupt: &interrupt };
        match writer.precondition(512, Duration::from_millis(20)) {
            Ok(text) => assert!(text.contains("random writes of 4k"), "{text}"),
            Err(error) => return println!("skipped: no O_DIRECT: {error}"),
        }
        for file in &files {
            let bytes = fs::read(&file.path).unwrap();
            assert_eq!(bytes.len() as u64, file.bytes);
            assert_eq!(verify(5, file.number, 0, &bytes), Ok(()));
        }
        interrupt.store(true, Ordering::Relaxed);
        let ended = writer.precondition(4096, Duration::from_millis(20));
        assert!(matches!(ended, Err(LabError::Interrupted)), "{ended:?}");
    }

    #[test]
    fn only_a_drive_of_flash_is_preconditioned() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", "flags : fpu tsc\n");
        for (number, name) in [("259:0", "nvme0n1"), ("254:0", "vda"), ("7:0", "loop0")] {
            write(&format!("sys/devices/{name}/queue/rotational"), "0\n");
            fs::create_dir_all(sources.sys.join("dev/block")).unwrap();
            let link = sources.sys.join("dev/block").join(number);
            std::os::unix::fs::symlink(format!("../../devices/{name}"), link).unwrap();
        }
        let reason = |number: &str| {
            let device = Device::numbered(&sources, number);
            unsuited(&Environment::read(&sources), &device)
        };
        assert_eq!(reason("259:0"), None);
        assert!(reason("254:0").unwrap().contains("vda belongs to a virtual machine"));
        assert_eq!(reason("7:0").unwrap(), "not measurable here: loop0 is no drive");
        assert!(reason("8:0").unwrap().starts_with("not measurable here: "), "no such device");
        write("sys/devices/nvme0n1/queue/rotational", "1\n");
        assert!(reason("259:0").unwrap().starts_with("nvme0n1 rotates"));
        write("sys/devices/nvme0n1/queue/rotational", "x\n");
        assert!(reason("259:0").unwrap().starts_with("not known whether nvme0n1 rotates"));
        write("proc/cpuinfo", "flags : fpu hypervisor\n");
        assert!(reason("259:0").unwrap().contains("virtual machine"));
    }
}
