//! Samples all threads each second, for the status page, `/metrics` and systemd.
//!
//! All of them see the same figures, and rates are over a known time. It judges only whether the daemon lives
//! and is ready.

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

use crate::{error::LogdError, log, stats::Stats, tenants::Tenants};

/// How often it looks.
const SAMPLE_TIME: Duration = Duration::from_secs(1);
/// How many samples are kept: a minute, and where it began.
const SAMPLES: usize = 61;

/// What all threads had counted at some time.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) threads: Vec<Stats>,
    /// Threads that did not answer, whose figures are older.
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
    /// What does not change.
    pub(crate) facts: Facts,
    started: Instant,
    /// Whether systemd was told that connections are taken.
    is_ready_told: AtomicBool,
    samples: Mutex<VecDeque<Sample>>,
}

/// What does not change while a daemon runs.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) directory: PathBuf,
    pub(crate) address: String,
    pub(crate) guarantee: &'static str,
    pub(crate) engine: String,
    pub(crate) tenants: Arc<Tenants>,
}

impl Monitor {
    pub(crate) fn new(panel: Panel<Stats>, facts: Facts) -> Arc<Monitor> {
        let started = Instant::now();
        let (is_ready_told, samples) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Monitor { panel, facts, started, is_ready_told, samples })
    }

    /// Starts a thread that samples each second and, if systemd wants that, feeds its watchdog.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), LogdError> {
        let watchdog = sd_notify::watchdog_enabled();
        // Three times in the watchdog's time, so that one may be late.
        let pause = watchdog.map_or(SAMPLE_TIME, |limit| SAMPLE_TIME.min(limit / 3));
        let monitor = Arc::clone(self);
        let work = move || {
            let mut has_told_end = false;
            loop {
                let sample = monitor.sample();
                // The watchdog ends a daemon with a thread that does not answer.
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

    /// Tells systemd that connections are taken.
    pub(crate) fn tell_ready(&self) {
        tell_systemd(&[NotifyState::Ready]);
        self.is_ready_told.store(true, Ordering::Release);
    }

    /// What all threads have counted by now.
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

    /// The newest sample that is at least so old, or else the oldest.
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

    /// Why the daemon should be restarted; nothing if it lives.
    pub(crate) fn dead(&self, sample: &Sample) -> Vec<String> {
        match sample.silent {
            0 => Vec::new(),
            count => vec![format!("{count} threads do not answer")],
        }
    }

    /// Why nothing should be sent to it; nothing if it is ready.
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
            reasons.push("less space is free than there has to be (--min-free)".to_owned());
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
