//! Whether fio says the same of the same file: operations per second and percentiles, side by side.
//!
//! The lab's clock, its histogram and its way to keep a queue full are its own. Where fio's io_uring
//! engine is among the rows (`--engines uring,fio`), each depth is checked: the ring that leaves out
//! what fio leaves out (it looks at nothing that it reads) beside fio, paired by block. It judges
//! the instrument and no engine; fio with registered buffers is another engine, and is left out.

use ringwise_measure::statistics::Ratio;

use crate::{
    row::{Row, RowKind, SampleFigures},
    verdict::UNVERIFIED,
};

/// By how much two programs may differ that measure the same.
const TOLERANCE: f64 = 0.03;
/// The width of fio's bins: 64 for each doubling (FIO_IO_U_PLAT_BITS in fio's stat.h). The lab's own
/// are 0.1 % wide.
const BIN_WIDTH: f64 = 1.0 / 64.0;

/// A figure that both have.
type Figure = (&'static str, f64, fn(&SampleFigures) -> f64);

/// What is compared, and by how much it may differ. Beyond the 99th percentile a few seconds on any
/// machine differ from the next few.
const FIGURES: [Figure; 4] = [
    ("operations per second", TOLERANCE, |sample| sample.ops_per_s),
    ("p50", TOLERANCE + BIN_WIDTH, |sample| sample.latency_ns.p50 as f64),
    ("p90", TOLERANCE + BIN_WIDTH, |sample| sample.latency_ns.p90 as f64),
    ("p99", TOLERANCE + BIN_WIDTH, |sample| sample.latency_ns.p99 as f64),
];

/// What is said of each depth at which fio ran too.
pub fn notes(rows: &[Row], seed: u64) -> Vec<String> {
    let fio = |row: &&Row| row.kind == RowKind::Program && row.engine == "fio" && row.is_valid();
    rows.iter().filter(fio).filter_map(|fio| note(rows, fio, seed)).collect()
}

fn note(rows: &[Row], fio: &Row, seed: u64) -> Option<String> {
    let own = rows
        .iter()
        .find(|row| row.engine == UNVERIFIED && row.depth == fio.depth && row.is_valid())?;
    let mut outside = Vec::new();
    let mut parts = Vec::new();
    for (name, tolerance, figure) in FIGURES {
        let ratio = own.measured.ratio(&fio.measured, figure, seed)?;
        let Ratio { low, mid, high } = ratio;
        parts.push(format!("{name} {mid:.3} [{low:.3}, {high:.3}]"));
        if !is_within(&ratio, tolerance) {
            outside.push(format!("{name} by more than {:.1} %", tolerance * 100.0));
        }
    }
    let found = match outside.is_empty() {
        true => {
            format!("agrees with fio within {:.0} % and the width of its bins", TOLERANCE * 100.0)
        }
        false => format!("differs from fio: {}", outside.join(", ")),
    };
    Some(format!("depth {}: {} {found}: {} times fio's", fio.depth, own.engine, parts.join(", ")))
}

/// Whether the figure itself is within the tolerance: an interval that is wide excuses nothing.
fn is_within(ratio: &Ratio, tolerance: f64) -> bool {
    (1.0 / (1.0 + tolerance)..=1.0 + tolerance).contains(&ratio.mid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    fn notes_of(fio: Figures) -> Vec<String> {
        let own = row(UNVERIFIED, RowKind::Variant, 32, Figures::DIRECT);
        let rows = [own, row("fio", RowKind::Program, 32, fio)];
        notes(&rows, 1)
    }

    #[test]
    fn the_same_agrees_and_what_is_off_is_named() {
        let said = notes_of(Figures::DIRECT);
        assert!(said[0].starts_with("depth 32: uring+unverified agrees with fio"), "{said:?}");
        let slower = Figures { ops_per_s: Figures::DIRECT.ops_per_s / 1.05, ..Figures::DIRECT };
        let said = notes_of(slower);
        assert!(said[0].contains("differs from fio: operations per second by more"), "{said:?}");
        assert!(!said[0].contains("p99 by more"), "{said:?}");
        // Within 3 % and a bin: four are, five are not.
        let at = |share: f64| {
            let latency_ns = (Figures::DIRECT.latency_ns as f64 * share) as u64;
            notes_of(Figures { latency_ns, ..Figures::DIRECT })
        };
        assert!(at(1.04)[0].contains("agrees"), "{:?}", at(1.04));
        assert!(at(1.06)[0].contains("p50 by more than 4.6 %"), "{:?}", at(1.06));
    }

    #[test]
    fn nothing_is_said_where_one_is_missing() {
        let own = row(UNVERIFIED, RowKind::Variant, 32, Figures::DIRECT);
        let fio = row("fio", RowKind::Program, 1, Figures::DIRECT);
        assert_eq!(notes(&[own, fio], 1), Vec::<String>::new());
    }
}
