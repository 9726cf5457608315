//! Whether fio says the same of the same file: operations per second and percentiles, side by side.
//!
//! The lab's clock, its histogram and its way to keep a queue full are its own. Where fio's io_uring
//! engine is among the rows (`--engines uring,fio`), each depth is checked: the ring that leaves out
//! what fio leaves out (it looks at nothing that it reads) beside fio, paired by block, and beside fio
//! with the lab's batches (`fio+batches`). It judges the instrument and no engine; fio with registered
//! buffers is another engine, and is left out.

use ringwise_measure::statistics::Ratio;

use crate::results::{
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
    let is_fio = |row: &Row| matches!(&row.engine[..], "fio" | "fio+batches");
    let fio = |row: &&Row| row.kind == RowKind::Program && is_fio(row) && row.is_valid();
    rows.iter().filter(fio).filter_map(|fio| note(rows, fio, seed)).collect()
}

fn note(rows: &[Row], fio: &Row, seed: u64) -> Option<String> {
    let own = rows
        .iter()
        .find(|row| row.engine == UNVERIFIED && row.depth == fio.depth && row.is_valid())?;
    let (mut apart, mut unclear, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for (name, tolerance, figure) in FIGURES {
        let ratio = own.measured.ratio(&fio.measured, figure, seed)?;
        let Ratio { low, mid, high } = ratio;
        parts.push(format!("{name} {mid:.3} [{low:.3}, {high:.3}]"));
        match Agreement::of(&ratio, tolerance) {
            Agreement::Within => {}
            Agreement::Apart => {
                apart.push(format!("{name} by more than {:.1} %", tolerance * 100.0))
            }
            Agreement::Unclear => unclear.push(name),
        }
    }
    let found = match (apart.is_empty(), unclear.is_empty()) {
        (false, _) => format!("differs from {}: {}", fio.engine, apart.join(", ")),
        (true, false) => {
            let engine = &fio.engine;
            format!("whether it agrees with {engine} is inconclusive of {}", unclear.join(", "))
        }
        (true, true) => {
            let (engine, percent) = (&fio.engine, TOLERANCE * 100.0);
            format!("agrees with {engine} within {percent:.0} % and the width of its bins")
        }
    };
    let parts = parts.join(", ");
    Some(format!("depth {}: {} {found}: {parts} times {}'s", fio.depth, own.engine, fio.engine))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    /// The figure itself is within the tolerance.
    Within,
    /// The whole interval is beyond it.
    Apart,
    /// The figure is beyond it and its interval reaches in: more repeats may tell.
    Unclear,
}

impl Agreement {
    fn of(ratio: &Ratio, tolerance: f64) -> Agreement {
        let (least, most) = (1.0 / (1.0 + tolerance), 1.0 + tolerance);
        match (least..=most).contains(&ratio.mid) {
            true => Agreement::Within,
            false if ratio.high < least || ratio.low > most => Agreement::Apart,
            false => Agreement::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    fn notes_of(fio: Figures) -> Vec<String> {
        notes_of_engine("fio", fio)
    }

    fn notes_of_engine(name: &str, fio: Figures) -> Vec<String> {
        let own = row(UNVERIFIED, RowKind::Variant, 32, Figures::DIRECT);
        notes(&[own, row(name, RowKind::Program, 32, fio)], 1)
    }

    #[test]
    fn the_same_agrees_and_what_is_off_is_named() {
        let said = notes_of(Figures::DIRECT);
        assert!(said[0].starts_with("depth 32: uring+unverified agrees with fio"), "{said:?}");
        let said = notes_of_engine("fio+batches", Figures::DIRECT);
        assert!(said[0].contains(" agrees with fio+batches within 3 %"), "{said:?}");
        assert!(said[0].ends_with(" times fio+batches's"), "{said:?}");
        assert!(notes_of_engine("fio+fixed", Figures::DIRECT).is_empty());
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
    fn an_interval_that_reaches_in_tells_nothing() {
        let of = |low, mid, high| Agreement::of(&Ratio { low, mid, high }, 0.03);
        for (low, mid, high, found) in [
            (0.9, 1.02, 1.2, Agreement::Within),
            (0.9, 0.95, 0.96, Agreement::Apart),
            (1.04, 1.05, 1.06, Agreement::Apart),
            (0.9, 0.95, 0.98, Agreement::Unclear),
            (1.02, 1.05, 1.2, Agreement::Unclear),
        ] {
            assert_eq!(of(low, mid, high), found, "{mid} [{low}, {high}]");
        }
        let wobbling =
            Figures { ops_per_s: Figures::DIRECT.ops_per_s / 1.05, wobble: 0.2, ..Figures::DIRECT };
        let said = notes_of(wobbling);
        assert!(said[0].contains("inconclusive of operations per second"), "{said:?}");
    }

    #[test]
    fn nothing_is_said_where_one_is_missing() {
        let own = row(UNVERIFIED, RowKind::Variant, 32, Figures::DIRECT);
        let fio = row("fio", RowKind::Program, 1, Figures::DIRECT);
        assert_eq!(notes(&[own, fio], 1), Vec::<String>::new());
    }
}
