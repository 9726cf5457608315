//! Direct files: what is not aligned is served all the same, correctly, at the file's end too.

use futures::executor::block_on;
use ringwise::{
    AlignedBuf, BufResult, Buffer, ErrorKind, Opcode, OpenOptions, Operation,
    fs::File,
    sim::{Fault, Simulation, When},
};

use super::{
    only_read,
    rings::{Place, places, real_places, simulated, skip},
};

/// Not a multiple of any block.
const LEN: usize = 100_003;

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// A direct file with that content; nothing where this file system has none.
async fn direct(place: &Place) -> Option<File> {
    place.write("file", &content());
    match File::open(&place.ring, place.path("file"), only_read().direct(true)).await {
        Ok(file) => Some(file),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

/// Reads random ranges, some aligned and most not, and compares them with the content.
async fn agrees_with_the_content(file: &File, rounds: usize) {
    let content = content();
    let mut random = Random(0x5EED);
    for round in 0..rounds {
        let (offset, len, skew) = match round % 4 {
            0 => (random.below(26) * 4096, random.below(8) * 4096, 0),
            1 => (LEN - random.below(6000), random.below(9000), random.below(64)),
            _ => (random.below(LEN + 9000), random.below(20_000), random.below(600)),
        };
        let buffer = Buffer::from(AlignedBuf::zeroed(len + skew, 4096)).slice(skew..);
        let BufResult(result, buffer) = file.read_at(buffer, offset as u64).await;
        let expected = &content[offset.min(LEN)..(offset + len).min(LEN)];
        let count = result.unwrap();
        assert_eq!(count, expected.len(), "{len} bytes at {offset}, skew {skew}");
        assert!(buffer.selected()[..count] == *expected, "{len} bytes at {offset}, skew {skew}");
        assert!(buffer.selected()[count..].iter().all(|byte| *byte == 0), "past the end");
    }
}

#[test]
fn unaligned_reads_agree_with_a_model() {
    for place in places() {
        block_on(async {
            let Some(file) = direct(&place).await else { return };
            println!("{}", place.name);
            let before = place.ring.stats().bounced_reads;
            agrees_with_the_content(&file, 400).await;
            let bounced = place.ring.stats().bounced_reads - before;
            assert!((1..=400).contains(&bounced), "{}: {bounced} of 400", place.name);
            assert!(file.read_to_end().await.unwrap() == content(), "{}", place.name);
            let BufResult(read, bytes) = file.read_exact_at(vec![0; LEN - 1], 1).await;
            read.unwrap();
            assert!(bytes == content()[1..]);
        });
    }
}

/// An error is of the read that was asked for, not of the blocks by which it is served.
#[test]
fn an_error_names_the_callers_offset() {
    let simulation = Simulation::new(1);
    let place = simulated(&simulation);
    block_on(async {
        let file = direct(&place).await.expect("a simulated machine has direct files");
        simulation.inject(Fault::Io, When::always().of(Opcode::Read));
        let BufResult(read, _) = file.read_at(vec![0; 100], 5001).await;
        let error = read.unwrap_err();
        assert_eq!((error.errno(), error.offset()), (libc::EIO, Some(5001)), "{error}");
    });
}

#[test]
fn a_direct_file_that_was_open_already() {
    use std::os::unix::fs::OpenOptionsExt;
    for place in real_places() {
        place.write("file", &content());
        let mut options = std::fs::File::options();
        let opened = options.read(true).custom_flags(libc::O_DIRECT).open(place.path("file"));
        match opened {
            Ok(opened) => {
                let file = File::from_std(&place.ring, opened);
                block_on(agrees_with_the_content(&file, 100));
            }
            Err(error) => skip(&error.to_string()),
        }
    }
}

#[test]
fn a_custom_flag_makes_a_file_direct_too() {
    for place in places() {
        place.write("file", &content());
        let options = only_read().custom_flags(libc::O_DIRECT);
        block_on(async {
            match File::open(&place.ring, place.path("file"), options).await {
                Ok(file) => agrees_with_the_content(&file, 50).await,
                Err(error) => skip(&error.to_string()),
            }
        });
    }
}

/// A short read of the blocks around a request is gone on with.
#[test]
fn a_short_read_is_not_the_end_of_a_direct_file() {
    for seed in 0..40 {
        let simulation = Simulation::new(seed);
        let place = simulated(&simulation);
        block_on(async {
            let file = direct(&place).await.expect("a simulated disk does direct I/O");
            simulation.inject(Fault::ShortRead, When::rate(0.5));
            let BufResult(read, bytes) = file.read_exact_at(vec![0; 3000], 4096 + 4000).await;
            assert!(read.is_ok(), "seed {seed}: {read:?}");
            assert!(bytes == content()[8096..11_096], "seed {seed}");
            assert!(file.read_to_end().await.unwrap() == content(), "seed {seed}");
        });
    }
}

/// Who wants no superset read asks for the operation itself.
#[test]
fn an_unaligned_direct_operation_is_a_clear_error() {
    for place in places() {
        block_on(async {
            let Some(file) = direct(&place).await else { return };
            let read = Operation::read_at(file.descriptor(), vec![7; 100], 10);
            let done = place.ring.submit(read).await;
            let error = done.result().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}: {error}", place.name);
            assert!(error.to_string().contains("aligned"), "{error}");
            assert_eq!(error.offset(), Some(10));
            assert_eq!(done.into_buffer().unwrap().as_slice(), [7; 100]);
        });
    }
}

/// Part of a block can only be written by reading the rest first, which is not ours to do.
#[test]
fn an_unaligned_direct_write_is_a_clear_error() {
    for place in places() {
        let options = OpenOptions::new().read(true).write(true).create(true).direct(true);
        block_on(async {
            let opened = File::open(&place.ring, place.path("new"), options).await;
            let Ok(file) = opened else { return skip("no direct I/O here") };
            let aligned = AlignedBuf::zeroed(4096, 4096);
            file.write_all_at(aligned, 0).await.0.unwrap();
            let BufResult(written, back) = file.write_all_at(vec![1; 100], 10).await;
            let error = written.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}: {error}", place.name);
            assert!(error.to_string().contains("aligned"), "{error}");
            assert_eq!(error.offset(), Some(10));
            assert_eq!(back, vec![1; 100]);
        });
    }
}

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}
