//! What the rest of the lab knows of `scale`: the words and columns of its tables. A row's depth is its number of
//! threads, or the load that is offered to it.

use ringwise_measure::quantity::latency_text;

use super::scaling::SCALING;
use crate::results::section::{OFFERED, SAMPLE_P99};
use crate::workload::form::{
    columns::{self, Column},
    facts::{Facts, Question, Target, start},
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "scale", depth_is: "threads", columns: COLUMNS, question: &QUESTION };

/// What programs that read in several threads do today.
static QUESTION: Question = Question {
    operations: "reads",
    alone: "one thread",
    in_flight: "threads",
    starts: &[
        start("sync", "make blocking calls", "blocking calls", ""),
        start("threads", "start a thread for each read in flight", "a thread for each read", ""),
    ],
    targets: &[Target {
        engine: "uring",
        name: "a ring in each thread",
        remedy: "Use ringwise::Local in each thread.",
    }],
};

/// The columns of reads by threads.
const COLUMNS: &[Column] = &[
    columns::RATE,
    Column::Of("scaling", |row| {
        row.measured.figures().get(SCALING).map(|times| format!("{times:.2}"))
    }),
    columns::MIB_RATE,
    Column::Latencies,
    columns::CPU,
    columns::CPU_KINDS,
    columns::OTHER_CPU,
    columns::CALLS,
    columns::QUEUE,
    columns::DEVICE,
];

/// The share of what was due that had a slot before the time was over.
pub(super) const KEPT: &str = "kept_share";

/// The same workload, with another meaning of a row's depth.
pub(super) static OFFERED_FACTS: Facts = Facts {
    name: FACTS.name,
    depth_is: OFFERED,
    columns: OFFERED_COLUMNS,
    question: &OFFERED_QUESTION,
};

static OFFERED_QUESTION: Question = Question {
    in_flight: "reads offered a second",
    alone: "one read offered a second",
    ..QUESTION
};

const OFFERED_COLUMNS: &[Column] = &[
    columns::RATE,
    Column::Of("kept", |row| {
        row.measured.figures().get(KEPT).map(|share| format!("{:.1} %", share * 100.0))
    }),
    Column::Of("sample p99", |row| {
        row.measured.figures().get(SAMPLE_P99).map(|&ns| latency_text(ns))
    }),
    Column::Latencies,
    columns::CPU,
    columns::CPU_KINDS,
    columns::OTHER_CPU,
    columns::QUEUE,
];
