//! Samples all threads each second, for the status page, `/metrics` and systemd.
//!
//! All three show the same samples, and every rate has a known interval. The monitor only decides whether the daemon is
//! alive and ready.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ringwise_serve::{Panel, ServeError};
use sd_notify::NotifyState;

use crate::{
    clients::tenants::Tenants,
    error::LogdError,
    guarantee::Guarantee,
    monitoring::{log, stats::Stats},
    ship::progress::Streams,
    upload::progress::Uploads,
};

/// How often it takes a sample.
const SAMPLE_TIME: Duration = Duration::from_secs(1);
/// The samples that are kept: one minute, with both ends.
const SAMPLES: usize = 61;

/// The counts of all threads at one time.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) threads: Vec<Stats>,
    /// Threads that did not answer. Their counts are older.
    pub(crate) silent: usize,
}

impl Sample {
    /// The sum of all threads.
    pub(crate) fn sum(&self) -> Stats {
        self.threads.iter().copied().sum()
    }
}

/// Samples the daemon.
#[derive(Debug)]
pub(crate) struct Monitor {
    panel: Panel<Stats>,
    /// Facts that do not change.
    pub(crate) facts: Facts,
    started: Instant,
    /// Whether systemd was told that the daemon accepts connections.
    is_ready_told: AtomicBool,
    samples: Mutex<VecDeque<Sample>>,
}

/// Facts that do not change while a daemon runs.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) directory: PathBuf,
    pub(crate) address: String,
    pub(crate) guarantee: &'static str,
    pub(crate) engine: String,
    pub(crate) tenants: Arc<Tenants>,
    /// How far streams are shipped, if they are.
    pub(crate) shipped: Option<Arc<Streams>>,
    /// What is uploaded, if segments are.
    pub(crate) uploads: Option<Arc<Uploads>>,
}

impl Monitor {
    pub(crate) fn new(panel: Panel<Stats>, facts: Facts) -> Arc<Monitor> {
        let started = Instant::now();
        let (is_ready_told, samples) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Monitor { panel, facts, started, is_ready_told, samples })
    }

    /// Starts a thread that samples each second. If systemd has a watchdog for the daemon, the thread also notifies it.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), LogdError> {
        let watchdog = sd_notify::watchdog_enabled();
        // Three notifications per timeout of the watchdog, so that one may be late.
        let pause = watchdog.map_or(SAMPLE_TIME, |limit| SAMPLE_TIME.min(limit / 3));
        let monitor = Arc::clone(self);
        let work = move || {
            let mut has_told_end = false;
            loop {
                let sample = monitor.sample();
                // If a thread does not answer, the watchdog is not notified, and systemd ends the daemon.
                let is_up = monitor.is_ready_told.load(Ordering::Acquire);
                if watchdog.is_some() && is_up && sample.silent == 0 {
                    tell_systemd(&[NotifyState::Watchdog]);
                }
                monitor.keep(sample);
                if monitor.is_draining() && !std::mem::replace(&mut has_told_end, true) {
                    tell_systemd(&[NotifyState::Stopping]);
                }
                thread::sleep(pause);
            }
        };
        let thread = thread::Builder::new().name("logd-monitor".to_owned()).spawn(work);
        thread.map_err(|error| ServeError::of_thread("that watches the others", &error))?;
        Ok(())
    }

    /// Tells systemd that the daemon accepts connections.
    pub(crate) fn tell_ready(&self) {
        tell_systemd(&[NotifyState::Ready]);
        self.is_ready_told.store(true, Ordering::Release);
    }

    /// Asks all threads for their counts.
    pub(crate) fn sample(&self) -> Sample {
        let (threads, silent) = self.panel.ask();
        Sample { at: Instant::now(), threads, silent }
    }

    fn keep(&self, sample: Sample) {
        let mut samples = self.samples();
        let is_due = samples.back().is_none_or(|last| sample.at - last.at >= SAMPLE_TIME / 2);
        if is_due {
            samples.push_back(sample);
            if samples.len() > SAMPLES {
                samples.pop_front();
            }
        }
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest sample that is at least this old, or else the oldest one.
    pub(crate) fn before(&self, age: Duration) -> Option<Sample> {
        let samples = self.samples();
        let old = samples.iter().rev().find(|sample| sample.at.elapsed() >= age);
        old.or(samples.front()).cloned()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.panel.is_draining()
    }

    /// Lists the reasons why the daemon should be restarted. The list is empty if it is alive.
    pub(crate) fn dead(&self, sample: &Sample) -> Vec<String> {
        match sample.silent {
            0 => Vec::new(),
            count => vec![format!("{count} threads do not answer")],
        }
    }

    /// Lists the reasons why clients should not send to the daemon. The list is empty if it is ready.
    pub(crate) fn unready(&self, sample: &Sample) -> Vec<String> {
        let mut reasons = self.dead(sample);
        let sum = sample.sum();
        if self.is_draining() {
            reasons.push("draining".to_owned());
        }
        if sum.stalled > 0 {
            reasons.push(format!("{} threads cannot store", sum.stalled));
        }
        if sum.low > 0 {
            reasons.push("less space is free than --min-free".to_owned());
        }
        let is_away = self.facts.shipped.as_ref().is_some_and(|shipped| shipped.is_away());
        if is_away && self.facts.guarantee == Guarantee::Replicated.name() {
            reasons.push("lines cannot be replicated".to_owned());
        }
        reasons
    }
}

/// Tells systemd, if it started this process.
fn tell_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        log::remark("systemd", format_args!("telling systemd: {error}"));
    }
}
