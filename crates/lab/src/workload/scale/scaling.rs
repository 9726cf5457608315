//! What more threads give: each row beside the one of the same engine with the fewest threads, and up to how many
//! threads more of them are faster.

use ringwise_measure::statistics::{Comparison, MINIMUM_DIFFERENCE, Ratio, compare};

use crate::results::{
    gain::Told,
    row::{Row, RowKind},
    verdict::{Noise, interval_text, throughput},
};

/// Throughput in units of that with the fewest threads.
pub(super) const SCALING: &str = "scaling";

/// The rows of the ring that count, in ascending order of threads.
fn rings(rows: &[Row]) -> Vec<&Row> {
    let is_own = |row: &&Row| row.kind == RowKind::Subject && row.is_valid();
    let mut own: Vec<&Row> = rows.iter().filter(is_own).collect();
    own.sort_by_key(|row| row.depth);
    own
}

/// Gives every sample its throughput in units of the row with the fewest threads.
pub(super) fn add_figures(rows: &mut [Row]) {
    let mut bases: Vec<(String, usize, f64)> = Vec::new();
    for row in rows.iter().filter(|row| row.is_valid() && row.kind != RowKind::Control) {
        let rate = row.measured.ops_per_s();
        match bases.iter_mut().find(|(engine, _, _)| *engine == row.engine) {
            Some((_, threads, base)) if row.depth < *threads => {
                (*threads, *base) = (row.depth, rate)
            }
            Some(_) => {}
            None => bases.push((row.engine.clone(), row.depth, rate)),
        }
    }
    for row in rows {
        let Some((_, _, base)) = bases.iter().find(|(engine, _, _)| *engine == row.engine) else {
            continue;
        };
        for sample in &mut row.measured.samples {
            sample.figures.insert(SCALING, sample.ops_per_s / base.max(1.0));
        }
    }
}

fn ratio(row: &Row, base: &Row, seed: u64) -> Option<Ratio> {
    row.measured.ratio(&base.measured, throughput, seed)
}

/// What a number of threads gives beside the fewest: "2 threads give 1.93 [1.90, 1.96] times 1 thread".
pub(super) fn clause(rows: &[Row], threads: usize, seed: u64) -> Option<String> {
    let rings = rings(rows);
    let (base, own) = (rings.first()?, rings.iter().find(|row| row.depth == threads)?);
    let ratio = ratio(own, base, seed).filter(|_| own.depth > base.depth)?;
    let times = interval_text(&ratio);
    Some(format!("{} give {times} times {}", count(own.depth), count(base.depth)))
}

/// Up to how many threads the ring scales: the fewest beyond which no measured number is faster.
pub(super) fn finding(rows: &[Row], seed: u64) -> Option<(Told, String)> {
    let rings = rings(rows);
    let (base, last) = (*rings.first()?, *rings.last()?);
    if base.depth == last.depth {
        return None;
    }
    let beside = |more: &Row, row: &Row| {
        let noise = Noise::at(rows, more.depth, seed).or(Noise::at(rows, row.depth, seed));
        ratio(more, row, seed).map(|ratio| (ratio, noise.throughput.unwrap_or(0.0)))
    };
    let more = |depth: usize| rings.iter().filter(move |more| more.depth > depth);
    let is_faster = |(ratio, noise): (Ratio, f64)| compare(&ratio, noise) == Comparison::Faster;
    let is_reach = |row: &&&Row| {
        more(row.depth).filter_map(|more| beside(more, row)).all(|pair| !is_faster(pair))
    };
    let reach = *rings.iter().find(is_reach)?;
    let gives = |row: &Row, base: &Row| {
        let times = ratio(row, base, seed).map_or("?".to_owned(), |ratio| interval_text(&ratio));
        format!("{} give {times} times {}", count(row.depth), count(base.depth))
    };
    let up_to = count(reach.depth);
    let is_base = reach.depth == base.depth;
    let gain = if is_base { String::new() } else { format!(": {}", gives(reach, base)) };
    let Some(next) = more(reach.depth).next() else {
        return Some((Told::Gain, format!("uring scales up to {up_to}, the most measured{gain}")));
    };
    // Faster in the middle, but not beyond the noise.
    let is_unclear = |(ratio, noise): (Ratio, f64)| ratio.mid > 1.0 + noise.max(MINIMUM_DIFFERENCE);
    let unclear = more(reach.depth).find(|row| beside(row, reach).is_some_and(is_unclear));
    Some(match (unclear, is_base) {
        (Some(row), true) => {
            let reason = gives(row, reach);
            (
                Told::Inconclusive,
                format!("whether uring scales beyond {up_to} is inconclusive: {reason}"),
            )
        }
        (Some(row), false) => {
            let reason = gives(row, reach);
            (
                Told::Gain,
                format!(
                    "uring scales up to {up_to} at least{gain}, {reason}, which is inconclusive"
                ),
            )
        }
        (None, true) => {
            let reason = gives(next, reach);
            (Told::NoDifference, format!("uring does not scale beyond {up_to}: {reason}"))
        }
        (None, false) => {
            (Told::Gain, format!("uring scales up to {up_to}{gain}, {}", gives(next, reach)))
        }
    })
}

fn count(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    fn at(rates: &[(usize, f64)]) -> Vec<Row> {
        let of_rate = |&(threads, ops_per_s): &(usize, f64)| {
            let figures = Figures { ops_per_s, ..Figures::DIRECT };
            let own = |engine, kind| row(engine, kind, threads, figures);
            [
                own("sync", RowKind::Rival),
                own("uring", RowKind::Subject),
                own("uring", RowKind::Control),
            ]
        };
        rates.iter().flat_map(of_rate).collect()
    }

    fn told(rates: &[(usize, f64)]) -> String {
        finding(&at(rates), 1).unwrap().1
    }

    #[test]
    fn it_scales_up_to_where_more_threads_give_nothing() {
        assert_eq!(
            told(&[(1, 100_000.0), (2, 190_000.0), (4, 191_000.0), (8, 180_000.0)]),
            "uring scales up to 2 threads: 2 threads give 1.90 [1.90, 1.90] times 1 thread, 4 threads \
             give 1.01 [1.01, 1.01] times 2 threads"
        );
        assert_eq!(
            told(&[(1, 100_000.0), (2, 99_000.0)]),
            "uring does not scale beyond 1 thread: 2 threads give 0.99 [0.99, 0.99] times 1 thread"
        );
        assert_eq!(
            told(&[(2, 100_000.0), (4, 150_000.0)]),
            "uring scales up to 4 threads, the most measured: 4 threads give 1.50 [1.50, 1.50] times 2 \
             threads"
        );
        // A dip on the way is no end.
        assert!(
            told(&[(1, 1e5), (2, 0.9e5), (4, 2e5)]).starts_with("uring scales up to 4 threads, ")
        );
        assert_eq!(finding(&at(&[(1, 1e5)]), 1), None, "nothing to compare");
    }

    #[test]
    fn what_is_within_the_noise_is_not_faster() {
        let mut rows = at(&[(1, 100_000.0), (2, 104_000.0)]);
        // The control at 2 threads is a tenth off.
        rows[5] =
            row("uring", RowKind::Control, 2, Figures { ops_per_s: 94_000.0, ..Figures::DIRECT });
        let (found, text) = finding(&rows, 1).unwrap();
        assert_eq!(found, Told::NoDifference, "{text}");
        // Twice as fast, and so is the control half of the time.
        let noisy = Figures { ops_per_s: 250_000.0, wobble: 0.9, ..Figures::DIRECT };
        rows[4] = row("uring", RowKind::Subject, 2, noisy);
        rows[5] = row("uring", RowKind::Control, 2, noisy);
        let (found, text) = finding(&rows, 1).unwrap();
        assert_eq!(found, Told::Inconclusive, "{text}");
        assert!(
            text.starts_with("whether uring scales beyond 1 thread is inconclusive: 2 "),
            "{text}"
        );
    }

    #[test]
    fn every_row_has_its_scaling() {
        let mut rows = at(&[(1, 50_000.0), (4, 150_000.0)]);
        rows[3] =
            row("sync", RowKind::Rival, 4, Figures { ops_per_s: 100_000.0, ..Figures::DIRECT });
        add_figures(&mut rows);
        let scaling: Vec<f64> = rows.iter().map(|row| row.measured.figures()[SCALING]).collect();
        assert_eq!(scaling, [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!(clause(&rows, 1, 1), None);
        assert_eq!(clause(&rows, 4, 1).unwrap(), "4 threads give 3.00 [3.00, 3.00] times 1 thread");
    }
}
