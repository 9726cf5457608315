//! Latencies on their way into the record of a sample.
//!
//! A record takes a quarter of a mebibyte. With one for each of hundreds of lanes, every operation
//! would write to memory that no cache holds, and pay for it what a tenth of a read costs. So there
//! is one for all, which lanes write to a few dozen operations at a time.

use std::sync::{Mutex, PoisonError};

use ringwise_measure::Latency;

/// How many a lane keeps: few enough for a cache to hold those of hundreds of lanes.
const KEPT: usize = 32;

/// What all lanes of a sample recorded.
#[derive(Debug, Default)]
pub struct Record(Mutex<Latency>);

impl Record {
    /// Takes out what was recorded.
    pub fn take(&self) -> Latency {
        self.with(std::mem::take)
    }

    /// Records the same latency `count` times.
    pub fn record_many_ns(&self, latency_ns: u64, count: u64) {
        self.with(|latency| latency.record_many_ns(latency_ns, count));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Latency) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a lane has not written there yet.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    latencies_ns: [u64; KEPT],
    count: usize,
}

impl Recent {
    #[inline]
    pub(crate) fn record_ns(&mut self, latency_ns: u64, into: &Record) {
        self.latencies_ns[self.count] = latency_ns;
        self.count += 1;
        if self.count == KEPT {
            self.flush(into);
        }
    }

    pub(crate) fn flush(&mut self, into: &Record) {
        let latencies_ns = &self.latencies_ns[..self.count];
        into.with(|record| latencies_ns.iter().for_each(|&ns| record.record_ns(ns)));
        self.count = 0;
    }
}
