//! `--progress`: how far a copy has come, on standard error.
//!
//! A thread looks at two counters ten times a second; those who copy only add to them. How much
//! there is to copy is counted beside the copy by another thread, which looks at the sources as
//! they are named and follows no links: an estimate, and no part of what is copied. On a terminal
//! it is a bar, which goes away at the end and before a signal ends the process; elsewhere, where
//! it was asked for, a line a second.

use std::{
    ffi::OsString,
    fs,
    io::{IsTerminal, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringwise_measure::quantity::bytes_text;

/// When to show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum When {
    /// On a terminal.
    Auto,
    Always,
    #[default]
    Never,
}

const LOOK: Duration = Duration::from_millis(100);
const LINE: Duration = Duration::from_secs(1);

/// What was copied so far.
#[derive(Debug)]
pub(crate) struct Meter {
    files: AtomicU64,
    bytes: AtomicU64,
    began: Instant,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter { files: AtomicU64::new(0), bytes: AtomicU64::new(0), began: Instant::now() }
    }

    pub(crate) fn add_bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn text(&self) -> String {
        let seconds = self.elapsed().as_secs_f64().max(0.001);
        let rate = bytes_text((self.bytes() as f64 / seconds) as u64);
        format!("{} files, {}, {rate}/s", self.files(), bytes_text(self.bytes()))
    }
}

/// The bar and its threads. Dropped, it goes away.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    is_over: Arc<AtomicBool>,
    looks: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows it, where that was asked for.
    pub(crate) fn start(when: When, sources: &[OsString], meter: &Arc<Meter>) -> Option<Progress> {
        let is_terminal = std::io::stderr().is_terminal();
        if when == When::Never || (when == When::Auto && !is_terminal) {
            return None;
        }
        let bar = ProgressBar::with_draw_target(
            Some(0),
            match is_terminal {
                true => ProgressDrawTarget::stderr_with_hz(10),
                false => ProgressDrawTarget::hidden(),
            },
        );
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {percent:>3} %  {eta:>4} left  {msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (counted, over, sources) = (bar.clone(), is_over.clone(), sources.to_vec());
        // Without it there is no time left, and nothing else is missing.
        let _ = thread::Builder::new().name("count".into()).spawn(move || {
            count(sources.into_iter().map(PathBuf::from).collect(), &counted, &over)
        });
        let (shown, over, meter) = (bar.clone(), is_over.clone(), meter.clone());
        let looks = thread::Builder::new()
            .name("progress".into())
            .spawn(move || look(&shown, &over, &meter, is_terminal));
        Some(Progress { bar, is_over, looks: looks.ok() })
    }

    /// The bar, for who has to take it away or to print beside it.
    pub(crate) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(looks) = self.looks.take() {
            looks.thread().unpark();
            let _ = looks.join();
        }
        self.bar.finish_and_clear();
    }
}

fn look(bar: &ProgressBar, is_over: &AtomicBool, meter: &Meter, is_terminal: bool) {
    let mut said = Instant::now();
    let say = || {
        // Nobody is left to be told that nobody reads.
        let _ = writeln!(std::io::stderr(), "cp: {}", meter.text());
    };
    while !is_over.load(Ordering::Relaxed) {
        bar.set_position(meter.bytes());
        bar.set_message(meter.text());
        if !is_terminal && said.elapsed() >= LINE {
            said = Instant::now();
            say();
        }
        thread::park_timeout(LOOK);
    }
    if !is_terminal {
        say();
    }
}

/// Adds up the sources.
fn count(mut left: Vec<PathBuf>, bar: &ProgressBar, is_over: &AtomicBool) {
    while let Some(path) = left.pop() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // What cannot be looked at is said by the copy itself.
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if found.is_file() {
            bar.inc_length(found.len());
        } else if found.is_dir() {
            let Ok(entries) = fs::read_dir(&path) else { continue };
            left.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_are_added_up_with_all_below_them() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        fs::write(directory.path().join("a/b/c"), [0; 300]).unwrap();
        fs::write(directory.path().join("d"), [0; 20]).unwrap();
        let bar = ProgressBar::hidden();
        bar.set_length(0);
        let sources = vec![directory.path().to_owned(), directory.path().join("missing")];
        count(sources, &bar, &AtomicBool::new(false));
        assert_eq!(bar.length(), Some(320));
        let meter = Meter::new();
        meter.add_bytes(2048);
        meter.add_file();
        assert!(meter.text().starts_with("1 files, 2.0 KiB, "), "{}", meter.text());
    }
}
