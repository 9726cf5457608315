//! Remarks: what is to be known of a result that counts all the same.

use ringwise_measure::cpu::allowed_cpus;

use super::group::Group;
use crate::{
    checks::gates,
    engine::{name::EngineName, uring::Switch},
    results::row::{Row, RowKind},
    workload::form,
};

/// Below this share of the depth in flight, the lab's own time left out, a row is marked.
const FULL_SHARE_MIN: f64 = 0.85;
/// Processors up to which SQPOLL takes a core that the rest needs.
const SQPOLL_PROCESSORS: usize = 2;

/// Says of each valid row what is to be known.
pub fn remark(group: &Group, rows: &mut [Row]) {
    let processors = allowed_cpus().map_or(1, |cpus| cpus.len());
    for row in rows.iter_mut().filter(|row| row.is_valid()) {
        let lanes = match row.engine.as_str() {
            "threads" | "tokio" | "mmap" | "ringwise" => row.depth.min(processors),
            _ => 1,
        };
        let measured = &mut row.measured;
        if let Some(harness_ns) = measured.harness_ns {
            let share = (harness_ns * measured.ops_per_s() / 1e9 / lanes as f64).min(1.0);
            measured.harness_share = Some(share);
            if share > gates::HARNESS_SHARE_MAX {
                measured.remarks.push(format!("lab's own time {:.0} %", share * 100.0));
            }
        }
        let busy_share = 1.0 - measured.harness_share.unwrap_or(0.0);
        let in_flight = measured.median(|sample| Some(sample.in_flight)).unwrap_or(0.0);
        let is_queued = row.depth > 1 && row.kind != RowKind::Program;
        if is_queued && in_flight < FULL_SHARE_MIN * busy_share * row.depth as f64 {
            measured.remarks.push(format!("kept {in_flight:.1} of {} in flight", row.depth));
        }
        form::remark(row);
    }
    let with = |switch| move |name: &EngineName| name.has(switch);
    mark(group, rows, with(Switch::Unverified), "not verified, as fio");
    let loses =
        |name: &EngineName| matches!(name, EngineName::Uring(own) if own.loses_defer_taskrun());
    mark(group, rows, loses, "SQPOLL, which excludes DEFER_TASKRUN");
    if processors <= SQPOLL_PROCESSORS {
        mark(group, rows, with(Switch::Sqpoll), &format!("SQPOLL on {processors} processors"));
    }
}

/// Remarks on the engines that something holds of.
fn mark(group: &Group, rows: &mut [Row], of: impl Fn(&EngineName) -> bool, remark: &str) {
    for row in rows.iter_mut().filter(|row| row.is_valid()) {
        let is_named = |name: &&EngineName| name.to_string() == row.engine;
        if group.engines.iter().find(is_named).is_some_and(&of) {
            row.measured.remarks.push(remark.to_owned());
        }
    }
}
