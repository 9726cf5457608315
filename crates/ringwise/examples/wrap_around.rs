//! More than 2^32 no-ops through one ring, so that the indices of its queues, which are 32 bits
//! wide, begin again at 0. Takes some minutes; a smaller number of operations can be given.
//!
//! `cargo run --release -p ringwise --example wrap_around`

use std::time::Instant;

use ringwise::{BackendChoice, Local, Operation};

/// A little beyond where the indices begin again.
const ENOUGH: u64 = (1 << 32) + 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked = std::env::args().nth(1).map(|text| text.parse::<u64>()).transpose()?;
    let count = asked.unwrap_or(ENOUGH);
    let mut local = Local::builder().entries(256).backend(BackendChoice::Uring).build()?;
    let start = Instant::now();
    let mut pushed = 0;
    let mut told = 0;
    while pushed < count {
        let batch = (local.capacity() as u64).min(count - pushed);
        for tag in pushed..pushed + batch {
            local.push(Operation::nop(), tag)?;
        }
        local.submit_and_wait(batch as usize)?;
        let mut seen = 0;
        while let Some(done) = local.next_completion() {
            done.result()?;
            let is_new = (pushed..pushed + batch).contains(&done.tag());
            assert!(is_new, "{} came again, or too early", done.tag());
            // The tags of a batch are all different if their sum is right and so is their number.
            seen += done.tag() - pushed + 1;
        }
        assert_eq!(seen, batch * (batch + 1) / 2, "one of {batch} from {pushed} on is missing");
        assert_eq!(local.in_flight(), 0);
        pushed += batch;
        if pushed >> 28 != told {
            told = pushed >> 28;
            println!("{pushed} of {count} after {:?}", start.elapsed());
        }
    }
    let stats = local.stats();
    assert_eq!((stats.submitted, stats.completed), (count, count));
    assert_eq!((stats.overflows, stats.stale_completions), (0, 0));
    println!("{count} no-ops, each came back once, in {:?}", start.elapsed());
    Ok(())
}
