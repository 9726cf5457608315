//! A batch written at once and in several writes: the number of writes differs, and nothing else.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ringwise::{Local, sim::Simulation};

use super::{
    appender::{Appender, Given, Limits, Plan},
    call::open_directory,
    crashes::commit,
    name::{Content, Part, Stream},
};
use crate::{guarantee::Guarantee, names::Names};

const STREAM: Stream = Stream { content: Content::Lines, number: 0 };

/// The file that batches of lines of this length make, and how many writes it took.
fn write(is_direct: bool, line_bytes: usize, has_cuts: bool) -> (Vec<u8>, u64) {
    let simulation = Simulation::new(1);
    simulation.create_dir_all("/log").unwrap();
    let mut local = Local::builder().simulation(&simulation).build().unwrap();
    let handle = open_directory(&mut local, "/log".as_ref()).unwrap();
    let aside = Local::builder().simulation(&simulation).build().unwrap();
    let plan = Plan {
        directory: PathBuf::from("/log"),
        stream: STREAM,
        guarantee: Guarantee::Durable,
        limits: Limits { bytes: u64::MAX, age: Duration::MAX, min_free: 0, is_direct },
        next_serial: 0,
        next_line: 0,
        names: Arc::new(Names::default()),
        is_direct,
        tag: 0x100,
    };
    let mut appender = Appender::new(plan, handle, aside);
    for batch in 0..3 {
        let line = |place| format!("[{batch},{place:0>width$}]\n", width = line_bytes - 5);
        let data: Vec<u8> = (0..10).flat_map(|place: u32| line(place).into_bytes()).collect();
        let ends = (1..=10).map(|count| count * line_bytes);
        let cuts = if has_cuts { ends.collect() } else { Vec::new() };
        assert_eq!(data.len(), 10 * line_bytes);
        let given = Given { data, lines: 10, names: Vec::new(), cuts };
        assert!(commit(&mut local, &mut appender, given));
    }
    let name = PathBuf::from("/log").join(STREAM.file(0, Part::Data));
    assert_eq!(appender.syncs, 4, "one a batch, and one of names");
    (simulation.read(name).unwrap(), appender.writes)
}

#[test]
fn cuts_make_writes_and_change_no_byte() {
    for is_direct in [false, true] {
        for line_bytes in [100, 4096, 5000] {
            let (whole, one_each) = write(is_direct, line_bytes, false);
            let (pieces, several) = write(is_direct, line_bytes, true);
            assert!(whole == pieces, "{is_direct} {line_bytes}");
            assert_eq!(one_each, 3);
            // What ends in the same block is one write where writes are whole blocks.
            let expected = if is_direct && line_bytes < 4096 { 3 } else { 30 };
            assert_eq!(several, expected, "{is_direct} {line_bytes}");
        }
    }
}
