//! How many operations of a trace were in flight: over time, at the begins of operations, and at most.

use ringwise_trace::Operation;

use crate::program::traced::end_ns;

/// Equal parts of the recording for which the number is averaged.
pub(crate) const SLICES: usize = 60;

/// Operations in flight.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InFlight {
    /// The most at once.
    pub most: u64,
    /// The median over the begins of operations, each counting itself.
    pub median_at_begin: u64,
    /// The median over the time in which there was at least one.
    pub median_over_time: u64,
    /// The average in each slice.
    pub by_slice: Vec<f64>,
}

impl InFlight {
    pub fn of<'a>(operations: impl Iterator<Item = &'a Operation>, elapsed_ns: u64) -> InFlight {
        // At the same time the end comes first: what begins then may have waited for it. An operation without a
        // duration still begins before it ends.
        let mut events: Vec<(u64, bool)> = Vec::new();
        for operation in operations {
            events.push((operation.begin_ns, true));
            events.push((end_ns(operation).max(operation.begin_ns + 1), false));
        }
        events.sort_unstable();
        let mut begins: Vec<u64> = Vec::new();
        let mut times: Vec<u64> = Vec::new();
        let mut slices = vec![0.0; SLICES];
        let (mut now_ns, mut count) = (0, 0_u64);
        for (at_ns, is_begin) in events {
            if times.len() <= count as usize {
                times.resize(count as usize + 1, 0);
            }
            times[count as usize] += at_ns - now_ns;
            add_to_slices(&mut slices, (now_ns, at_ns), count as f64, elapsed_ns);
            now_ns = at_ns;
            if is_begin {
                count += 1;
                begins.push(count);
            } else {
                count -= 1;
            }
        }
        begins.sort_unstable();
        InFlight {
            most: begins.last().copied().unwrap_or(0),
            median_at_begin: begins.get(begins.len() / 2).copied().unwrap_or(0),
            median_over_time: middle(&times),
            by_slice: slices,
        }
    }
}

/// The number that was in flight in the middle of the time with any, from the time for each number.
fn middle(times: &[u64]) -> u64 {
    let busy: u64 = times.iter().skip(1).sum();
    let mut seen = 0;
    for (count, time) in times.iter().enumerate().skip(1) {
        seen += time;
        if seen * 2 >= busy && busy > 0 {
            return count as u64;
        }
    }
    0
}

fn add_to_slices(slices: &mut [f64], (from_ns, to_ns): (u64, u64), count: f64, elapsed_ns: u64) {
    if count == 0.0 || elapsed_ns == 0 {
        return;
    }
    let width = elapsed_ns as f64 / slices.len() as f64;
    let (from, to) = (from_ns as f64 / width, to_ns as f64 / width);
    let first = (from as usize).min(slices.len() - 1);
    for (index, slice) in slices.iter_mut().enumerate().skip(first) {
        if index as f64 >= to {
            break;
        }
        let part = to.min(index as f64 + 1.0) - from.max(index as f64);
        *slice += count * part.max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use ringwise_trace::Kind;

    use super::*;
    use crate::program::traced::tests::operation;

    #[test]
    fn the_number_in_flight_is_counted_over_time() {
        // One for 600 ns, two for 300 ns, none for 100 ns.
        let operations = [
            operation(1, Kind::Read, (0, 900)),
            operation(2, Kind::Read, (0, 100)),
            operation(2, Kind::Read, (100, 200)),
        ];
        let found = InFlight::of(operations.iter(), 1000);
        assert_eq!((found.most, found.median_at_begin, found.median_over_time), (2, 2, 1));
        let total: f64 = found.by_slice.iter().sum::<f64>() / SLICES as f64;
        assert!((total - 1.2).abs() < 1e-9, "the average over the whole recording: {total}");
        assert!((found.by_slice[0] - 2.0).abs() < 1e-9 && found.by_slice[59] == 0.0);
    }

    #[test]
    fn operations_one_after_another_are_one_at_a_time() {
        let operations = [operation(1, Kind::Read, (0, 100)), operation(1, Kind::Read, (100, 100))];
        let found = InFlight::of(operations.iter(), 200);
        assert_eq!((found.most, found.median_at_begin, found.median_over_time), (1, 1, 1));
        assert_eq!(InFlight::of([].iter(), 0).most, 0);
    }
}
