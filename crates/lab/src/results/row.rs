//! A row of the table: one engine at one depth, with all that its samples showed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use ringwise_measure::{
    Fact, Latency, Percentiles,
    statistics::{Ratio, Trend, median, paired_log_ratios, trend},
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    checks::gates,
    engine::{Engine, ProgramTimes},
    sampling::{
        heat::Heat,
        job::Cache,
        sample::{Counted, KernelShares, Sample},
    },
};

/// The standard deviation of a normal distribution, in medians of absolute distances.
const NORMAL_DEVIATIONS: f64 = 1.4826;
/// How many of them make an outlier, and how far it has to be in any case.
const OUTLIER_DEVIATIONS: f64 = 5.0;
const OUTLIER_SHARE_MIN: f64 = 0.10;

/// One engine at one depth.
pub struct Row {
    /// What it is called, the control's addition left out.
    pub engine: String,
    /// What it is.
    pub kind: RowKind,
    /// Reads in flight, or the batch.
    pub depth: usize,
    /// The engine that does the work.
    pub runner: Arc<dyn Engine>,
    /// The state of the page cache, if it is another than that of the other rows.
    pub cache: Option<Cache>,
    /// What was measured.
    pub measured: Measured,
}

/// What a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// The library, as it comes.
    Subject,
    /// The library with other switches.
    Variant,
    /// What it is compared with.
    Rival,
    /// A program of its own, compared with and not ranked.
    Program,
    /// The same engine as another row: what differs is noise.
    Control,
}

/// What was measured of a row.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Each sample, in the order taken.
    pub samples: Vec<SampleFigures>,
    /// The latencies of all samples together.
    pub latency: Latency,
    /// The measured time of all samples.
    pub elapsed_ns: u64,
    /// Operations by slice of the measured time, all samples together.
    pub slices: Vec<u64>,
    /// Which latencies came when, a record for each sample, where that was asked for.
    pub heats: Vec<Heat>,
    /// Kernel events counted in a pass of their own.
    pub counted: Option<Counted>,
    /// Why the result is excluded, if it is.
    pub void: Option<String>,
    /// What is to be known of a result that counts.
    pub remarks: Vec<String>,
    /// What the engine said of itself.
    pub detail: Option<String>,
    /// The lab's own time per operation, as calibrated.
    pub harness_ns: Option<f64>,
    /// The lab's own time as a share of the time per operation.
    pub harness_share: Option<f64>,
}

/// CPU time per operation by whose it is.
///
/// Means over the samples, since the clock of user and system time goes in ticks. What workers,
/// pollers and the kernel's own threads take is seen in a pass of its own; where there is
/// none (a cold cache), theirs is in the system time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuKinds {
    /// The program in user mode.
    pub user_ns: f64,
    /// The program in the kernel.
    pub system_ns: f64,
    /// The kernel's workers for the program's ring.
    #[serde(skip_serializing_if = "is_nothing")]
    pub io_worker_ns: f64,
    /// The kernel's submission pollers for the program's ring.
    #[serde(skip_serializing_if = "is_nothing")]
    pub sqpoll_ns: f64,
    /// Interrupts of the whole machine; nothing where its kernel counts them as what was
    /// interrupted.
    #[serde(skip_serializing_if = "is_nothing")]
    pub interrupt_ns: f64,
    /// The kernel's own threads: write-back, the journal.
    #[serde(skip_serializing_if = "is_nothing")]
    pub write_back_ns: f64,
}

/// A column of nothing in every report says nothing.
fn is_nothing(ns: &f64) -> bool {
    *ns == 0.0
}

impl CpuKinds {
    /// Each kind that has a hundredth of all or more, in words.
    pub fn text(&self) -> String {
        let kinds = [
            ("user", self.user_ns),
            ("system", self.system_ns),
            ("io-wq", self.io_worker_ns),
            ("SQPOLL", self.sqpoll_ns),
            ("interrupts", self.interrupt_ns),
            ("write-back", self.write_back_ns),
        ];
        let all: f64 = kinds.iter().map(|(_, ns)| ns).sum();
        let shares = kinds.iter().map(|(name, ns)| (name, (ns / all * 100.0).round()));
        let shown = shares.filter(|(_, percent)| *percent >= 1.0);
        shown.map(|(name, percent)| format!("{name} {percent:.0}")).collect::<Vec<_>>().join(" ")
    }
}

/// One sample's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleFigures {
    /// The interleaved block that it was taken in, from 0.
    pub block: usize,
    /// Operations in the measured time.
    pub operations: u64,
    /// How long that was.
    pub elapsed_ns: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Mebibytes per second.
    pub mib_per_s: f64,
    /// CPU time per operation.
    #[serde(deserialize_with = "not_a_number_if_null")]
    pub cpu_ns_per_op: f64,
    /// Of that in user mode.
    #[serde(default)]
    pub user_ns_per_op: Option<f64>,
    /// Of that in the kernel, its workers and pollers included.
    #[serde(default)]
    pub system_ns_per_op: Option<f64>,
    /// Interrupts of the whole machine per operation.
    #[serde(default)]
    pub interrupt_ns_per_op: Option<f64>,
    /// CPU time of the rest of the machine per operation.
    pub system_other_cpu_ns_per_op: Option<f64>,
    /// Operations in flight on average.
    pub in_flight: f64,
    /// System calls per operation, by the engine's own count.
    pub own_syscalls_per_op: Option<f64>,
    /// The share of the bytes that came from the device.
    pub device_share: Option<f64>,
    /// Requests in the device's queue on average.
    pub device_queue_depth: Option<f64>,
    /// Latencies.
    pub latency_ns: Percentiles,
    /// Pages that kswapd looked through meanwhile.
    #[serde(default)]
    pub kswapd_pages: Option<u64>,
    /// Whether the generator of the load was at its limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client_bound: bool,
    /// What the workload counts of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(default, deserialize_with = "named_figures")]
    pub figures: BTreeMap<&'static str, f64>,
    /// The times of a program that was run to its end.
    #[serde(rename = "copy")]
    pub program: Option<ProgramTimes>,
}

/// JSON has no other way to write what is not a number.
fn not_a_number_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// The names are those of a few figures, read once for a run: they stay as long as the program.
fn named_figures<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<&'static str, f64>, D::Error> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let figures = BTreeMap::<String, f64>::deserialize(deserializer)?;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut kept = |name: String| match names.get(name.as_str()) {
        Some(known) => *known,
        None => {
            let name: &'static str = Box::leak(name.into_boxed_str());
            names.insert(name);
            name
        }
    };
    Ok(figures.into_iter().map(|(name, figure)| (kept(name), figure)).collect())
}

impl Row {
    /// A row with nothing measured.
    pub fn new(engine: String, kind: RowKind, depth: usize, runner: Box<dyn Engine>) -> Row {
        Row {
            engine,
            kind,
            depth,
            runner: runner.into(),
            cache: None,
            measured: Measured::default(),
        }
    }

    /// What the table calls it.
    pub fn label(&self) -> String {
        match self.kind {
            RowKind::Control => format!("{} (again)", self.engine),
            _ => self.engine.clone(),
        }
    }

    /// Whether it has a result that counts.
    pub fn is_valid(&self) -> bool {
        self.measured.void.is_none() && !self.measured.samples.is_empty()
    }
}

impl Measured {
    /// Adds a sample. `void` is the reason of a gate, if one excludes the row.
    pub fn add(&mut self, block: usize, sample: &Sample, void: Option<String>) {
        let counts = &sample.tally.counts;
        let completed = counts.completed.max(1) as f64;
        self.samples.push(SampleFigures {
            block,
            operations: counts.operations,
            elapsed_ns: sample.tally.elapsed_ns,
            ops_per_s: sample.operations_per_second(),
            mib_per_s: counts.bytes as f64 * 1e9
                / sample.tally.elapsed_ns.max(1) as f64
                / (1 << 20) as f64,
            cpu_ns_per_op: sample.cpu_ns_per_operation,
            user_ns_per_op: sample.split.map(|split| split.user_ns),
            system_ns_per_op: sample.split.map(|split| split.system_ns),
            interrupt_ns_per_op: sample.split.map(|split| split.interrupt_ns),
            system_other_cpu_ns_per_op: sample.other_cpu_ns_per_operation,
            in_flight: sample.tally.in_flight_mean(),
            own_syscalls_per_op: sample.tally.system_calls.map(|calls| calls as f64 / completed),
            device_share: sample.device_share,
            device_queue_depth: sample.device_queue_depth,
            latency_ns: sample.latency().percentiles(),
            kswapd_pages: sample.kswapd_pages,
            client_bound: sample.tally.client_bound,
            figures: sample.tally.figures.clone(),
            program: sample.tally.program,
        });
        self.latency.merge(sample.latency());
        self.elapsed_ns += sample.tally.elapsed_ns;
        if counts.exhausted {
            // Nothing was left to read in the later slices.
        } else if self.slices.len() == counts.slices.len() {
            self.slices.iter_mut().zip(&counts.slices).for_each(|(sum, more)| *sum += more);
        } else {
            self.slices.clone_from(&counts.slices);
        }
        self.heats.extend(counts.heat.clone());
        if self.detail.is_none() {
            self.detail.clone_from(&sample.tally.detail);
        }
        if self.void.is_none() {
            self.void = void;
        }
    }

    /// The median of a figure over the samples.
    pub fn median(&self, figure: impl Fn(&SampleFigures) -> Option<f64>) -> Option<f64> {
        median(&self.samples.iter().filter_map(figure).collect::<Vec<f64>>())
    }

    /// Operations per second: the median of the samples.
    pub fn ops_per_s(&self) -> f64 {
        self.median(|sample| Some(sample.ops_per_s)).unwrap_or(0.0)
    }

    /// Mebibytes per second: the median of the samples.
    pub fn mib_per_s(&self) -> f64 {
        self.median(|sample| Some(sample.mib_per_s)).unwrap_or(0.0)
    }

    /// CPU time per operation: the median of the samples in which it was seen, not a number where
    /// it was in none.
    pub fn cpu_ns_per_op(&self) -> f64 {
        let seen =
            |sample: &SampleFigures| Some(sample.cpu_ns_per_op).filter(|cpu_ns| !cpu_ns.is_nan());
        self.median(seen).unwrap_or(f64::NAN)
    }

    /// CPU time per operation by whose it is: the shares that all samples together showed, of
    /// [`Measured::cpu_ns_per_op`]. One sample's kinds are a few ticks, so that the shares are those
    /// of all; a sample that was held up must not make the kinds more than the figure beside them.
    /// None where another process worked, or nothing was seen.
    pub fn cpu(&self) -> Option<CpuKinds> {
        let sum = |figure: fn(&SampleFigures) -> Option<f64>| {
            let of = |sample: &SampleFigures| Some(figure(sample)? * sample.operations as f64);
            self.samples.iter().filter_map(of).sum::<f64>()
        };
        let user_ns = sum(|sample| sample.user_ns_per_op);
        let system_ns = sum(|sample| sample.system_ns_per_op);
        let scale =
            Some(self.cpu_ns_per_op() / (user_ns + system_ns)).filter(|it| it.is_finite())?;
        let interrupt_ns = sum(|sample| sample.interrupt_ns_per_op) * scale;
        let (user_ns, system_ns) = (user_ns * scale, system_ns * scale);
        let shares = self.counted.as_ref().and_then(|counted| counted.shares);
        let of_all = |share: fn(&KernelShares) -> f64| {
            shares.as_ref().map_or(0.0, |shares| share(shares) * (user_ns + system_ns))
        };
        // Both are time in the kernel; shares are of another pass and may be a little more.
        let io_worker_ns = of_all(|shares| shares.io_workers).min(system_ns);
        let sqpoll_ns = of_all(|shares| shares.sqpoll).min(system_ns - io_worker_ns);
        Some(CpuKinds {
            user_ns,
            system_ns: system_ns - io_worker_ns - sqpoll_ns,
            io_worker_ns,
            sqpoll_ns,
            interrupt_ns,
            write_back_ns: of_all(|shares| shares.write_back),
        })
    }

    /// The times of a program: the medians of the samples.
    pub fn program(&self) -> Option<ProgramTimes> {
        let figure = |pick: fn(&ProgramTimes) -> u64| {
            self.median(|sample| sample.program.as_ref().map(|times| pick(times) as f64))
                .map(|ns| ns as u64)
        };
        Some(ProgramTimes {
            durable_ns: figure(|times| times.durable_ns)?,
            user_ns: figure(|times| times.user_ns)?,
            system_ns: figure(|times| times.system_ns)?,
            write_back_ns: figure(|times| times.write_back_ns)?,
        })
    }

    /// What the workload counts of its own: the medians of the samples.
    pub fn figures(&self) -> BTreeMap<&'static str, f64> {
        let names: BTreeSet<&str> =
            self.samples.iter().flat_map(|sample| sample.figures.keys().copied()).collect();
        let median = |name| self.median(|sample| sample.figures.get(name).copied());
        names.into_iter().filter_map(|name| Some((name, median(name)?))).collect()
    }

    /// The share of the bytes that came from the device: the median of the samples.
    pub fn device_share(&self) -> Option<f64> {
        self.median(|sample| sample.device_share)
    }

    /// Operations per second that the device served: the median of the samples.
    pub fn device_ops_per_s(&self) -> Option<f64> {
        self.median(|sample| sample.device_share.map(|share| share * sample.ops_per_s))
    }

    /// Requests in the device's queue: the median of the samples.
    pub fn device_queue_depth(&self) -> Option<f64> {
        self.median(|sample| sample.device_queue_depth)
    }

    /// System calls per operation, and whether the kernel's tracepoint says so rather than the
    /// engine itself.
    pub fn system_calls_per_op(&self) -> Option<(f64, bool)> {
        let traced =
            self.counted.as_ref().and_then(|counted| counted.system_calls.known().copied());
        let own = || self.median(|sample| sample.own_syscalls_per_op).map(|calls| (calls, false));
        traced.map(|calls| (calls, true)).or_else(own)
    }

    /// Operations that a kernel worker had to do, per operation; none where that cannot be
    /// counted.
    pub fn worker_punts_per_op(&self) -> Option<f64> {
        self.counted.as_ref().and_then(|counted| match counted.worker_punts {
            Fact::Known(punts) => Some(punts),
            Fact::Unknown(_) => None,
        })
    }

    /// Samples in which the generator of the load was at its limit.
    pub fn client_bound(&self) -> usize {
        self.samples.iter().filter(|sample| sample.client_bound).count()
    }

    /// Samples whose throughput is far from the others'. They are kept: what a machine does at times
    /// is part of what it does.
    pub fn outliers(&self) -> usize {
        let rates: Vec<f64> = self.samples.iter().map(|sample| sample.ops_per_s).collect();
        let middle = median(&rates).unwrap_or(0.0);
        let distances: Vec<f64> = rates.iter().map(|rate| (rate - middle).abs()).collect();
        let usual = median(&distances).unwrap_or(0.0) * NORMAL_DEVIATIONS;
        let far = (OUTLIER_DEVIATIONS * usual).max(OUTLIER_SHARE_MIN * middle);
        distances.iter().filter(|&&distance| distance > far).count()
    }

    /// How throughput moved over the measured time. Nothing is told of operations that take longer than a slice: those
    /// that began together end together, in the same slices of every sample.
    pub fn drift(&self) -> Option<Trend> {
        let slices = (self.samples.len() * self.slices.len()).max(1) as u64;
        if self.latency.quantile_ns(0.5) > self.elapsed_ns / slices {
            return None;
        }
        trend(&self.slices.iter().map(|&count| count as f64).collect::<Vec<f64>>())
            .filter(|drift| !drift.is_steady(gates::DRIFT_MAX))
    }

    /// A figure by block: the mean of the block's samples. Only blocks with all their samples.
    fn by_block(&self, figure: fn(&SampleFigures) -> f64) -> Vec<(usize, f64)> {
        const SAMPLES_PER_BLOCK: usize = 2;
        let blocks = self.samples.iter().map(|sample| sample.block + 1).max().unwrap_or(0);
        let of = |block: usize| {
            let samples = self.samples.iter().filter(|sample| sample.block == block);
            let figures: Vec<f64> = samples.map(figure).collect();
            let is_whole = figures.len() == SAMPLES_PER_BLOCK;
            is_whole.then(|| (block, figures.iter().sum::<f64>() / figures.len() as f64))
        };
        (0..blocks).filter_map(of).collect()
    }

    /// This row's figure divided by another's, paired by block. None where fewer than two blocks
    /// are whole in both.
    pub fn ratio(
        &self,
        baseline: &Measured,
        figure: fn(&SampleFigures) -> f64,
        seed: u64,
    ) -> Option<Ratio> {
        let baseline = baseline.by_block(figure);
        let pairs: Vec<(f64, f64)> = self
            .by_block(figure)
            .into_iter()
            .filter_map(|(block, own)| {
                let other = baseline.iter().find(|(other, _)| *other == block)?;
                Some((own, other.1))
            })
            .collect();
        let (own, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        Ratio::bootstrap(&paired_log_ratios(&own, &other)?, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    #[test]
    fn a_sample_far_off_is_counted_and_kept() {
        let wobbling = Figures { wobble: 0.03, ..Figures::DIRECT };
        let mut row = row("uring", RowKind::Subject, 8, wobbling);
        assert_eq!(row.measured.outliers(), 0);
        row.measured.samples[2].ops_per_s *= 0.3;
        assert_eq!(row.measured.outliers(), 1);
        assert_eq!(row.measured.samples.len(), 6);
    }

    #[test]
    fn cpu_time_is_told_apart_and_adds_up() {
        let mut row = row("uring", RowKind::Subject, 8, Figures::DIRECT);
        assert_eq!(row.measured.cpu(), None, "another process");
        for sample in &mut row.measured.samples {
            sample.cpu_ns_per_op = 4000.0;
            (sample.user_ns_per_op, sample.system_ns_per_op) = (Some(1000.0), Some(3000.0));
            sample.interrupt_ns_per_op = Some(0.0);
        }
        // Held up: ten times the time for a tenth of the operations.
        let slow = &mut row.measured.samples[4];
        (slow.operations, slow.cpu_ns_per_op) = (slow.operations / 10, 40_000.0);
        (slow.user_ns_per_op, slow.system_ns_per_op) = (Some(10_000.0), Some(30_000.0));
        assert_eq!(row.measured.cpu().unwrap().text(), "user 25 system 75", "not counted");
        let shares = KernelShares { io_workers: 0.5, sqpoll: 0.0, write_back: 0.25 };
        row.measured.counted = Some(Counted {
            shares: Some(shares),
            system_calls: Fact::Known(1.0),
            worker_punts: Fact::Known(1.0),
        });
        let cpu = row.measured.cpu().unwrap();
        let whole = cpu.user_ns + cpu.system_ns + cpu.io_worker_ns + cpu.sqpoll_ns;
        assert!((whole - 4000.0).abs() < 1e-6, "{cpu:?}");
        assert!((cpu.io_worker_ns - 2000.0).abs() < 1e-6, "{cpu:?}");
        assert_eq!(cpu.text(), "user 20 system 20 io-wq 40 write-back 20");
        // More than there is in the kernel is another pass's.
        let all = KernelShares { io_workers: 0.9, sqpoll: 0.9, write_back: 0.0 };
        row.measured.counted.as_mut().unwrap().shares = Some(all);
        let cpu = row.measured.cpu().unwrap();
        assert_eq!((cpu.io_worker_ns, cpu.sqpoll_ns, cpu.system_ns), (3000.0, 0.0, 0.0));
    }

    #[test]
    fn a_sample_that_saw_no_cpu_time_hides_no_other() {
        let mut row = row("tokio", RowKind::Subject, 8, Figures::DIRECT);
        let all = row.measured.cpu_ns_per_op();
        assert!(all > 0.0);
        row.measured.samples[0].cpu_ns_per_op = f64::NAN;
        assert!((row.measured.cpu_ns_per_op() / all - 1.0).abs() < 0.2);
        row.measured.samples.iter_mut().for_each(|sample| sample.cpu_ns_per_op = f64::NAN);
        assert!(row.measured.cpu_ns_per_op().is_nan());
    }
}
