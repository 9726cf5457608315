//! The columns of a table: a heading, and the text of a row's cell.
//!
//! The columns that several workloads have are here. A column that only one has is in its file.

use ringwise_measure::quantity::latency_text;

use crate::results::row::Row;

/// A column. If no row has a cell, the column is left out.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// The percentiles that the user chose, and the longest latency.
    Latencies,
    /// A heading, and the text of a cell.
    Of(&'static str, fn(&Row) -> Option<String>),
}

/// Operations per second.
pub const RATE: Column = Column::Of("ops/s", |row| Some(grouped(row.measured.ops_per_s())));
/// Mebibytes per second.
pub const MIB_RATE: Column =
    Column::Of("MiB/s", |row| Some(format!("{:.0}", row.measured.mib_per_s())));
/// CPU time per operation.
pub const CPU: Column =
    Column::Of("CPU/op", |row| Some(latency_text(row.measured.cpu_ns_per_op())));
/// Shares of the CPU time: user, system, workers.
pub const CPU_KINDS: Column =
    Column::Of("CPU by kind, %", |row| row.measured.cpu().map(|cpu| cpu.text()));
/// CPU time of the rest of the machine per operation.
pub const OTHER_CPU: Column = Column::Of("other CPU/op", |row| {
    let other = row.measured.median(|sample| sample.system_other_cpu_ns_per_op);
    other.filter(|&ns| ns >= 1.0).map(latency_text)
});
/// System calls per operation; with a star if the engine counted them itself.
pub const CALLS: Column = Column::Of("calls/op", |row| {
    let (calls, is_traced) = row.measured.system_calls_per_op()?;
    Some(format!("{calls:.2}{}", if is_traced { "" } else { "*" }))
});
/// Requests in the device's queue.
pub const QUEUE: Column =
    Column::Of("queue", |row| row.measured.device_queue_depth().map(|queue| format!("{queue:.1}")));
/// The share of the bytes that came from the device.
pub const DEVICE: Column = Column::Of("device", |row| {
    row.measured.device_share().map(|share| format!("{:.0} %", share * 100.0))
});

/// Columns of operations that move no bytes of files.
pub const CALLS_ONLY: &[Column] = &[RATE, Column::Latencies, CPU, CPU_KINDS, CALLS];
/// Columns of operations that move bytes between memory and a device.
pub const FILES: &[Column] =
    &[RATE, MIB_RATE, Column::Latencies, CPU, CPU_KINDS, OTHER_CPU, CALLS, QUEUE, DEVICE];

/// A whole number with spaces between thousands.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 thread`, `2 threads`.
pub fn counted(count: u64, word: &str) -> String {
    format!("{} {word}{}", grouped(count as f64), if count == 1 { "" } else { "s" })
}

/// Operations per second; slow ones have places after the point.
pub fn rate(per_s: f64) -> String {
    if per_s < 100.0 { format!("{per_s:.2}") } else { grouped(per_s) }
}
