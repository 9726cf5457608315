//! A bar on a terminal, and nothing elsewhere. It uses no colour.
//!
//! It tells what runs, its figure so far, and how long the whole run will still take, by the time
//! that its samples took so far: what was laid out and calibrated between them is in that too.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringwise_measure::quantity::duration_text;

use crate::{results::row::Row, workload::form::columns::rate};

/// What is being done, on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    whole: Mutex<Whole>,
}

/// The samples of the whole run.
#[derive(Debug)]
struct Whole {
    began: Instant,
    samples: u64,
    taken: u64,
    next: Option<String>,
}

impl Progress {
    /// A bar if standard error is a terminal.
    pub fn new() -> Progress {
        let bar = ProgressBar::new(0);
        let is_terminal = std::io::stderr().is_terminal();
        bar.set_draw_target(match is_terminal {
            true => ProgressDrawTarget::stderr_with_hz(5),
            false => ProgressDrawTarget::hidden(),
        });
        let whole = Whole { began: Instant::now(), samples: 0, taken: 0, next: None };
        Progress { bar, whole: Mutex::new(whole) }
    }

    /// So many samples will be taken, in all phases together.
    pub fn expect(&self, samples: u64) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        *whole = Whole { began: Instant::now(), samples, taken: 0, next: None };
    }

    /// What comes when the current part is done, where there is anything.
    pub fn then(&self, next: Option<String>) {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner).next = next;
    }

    /// A new phase of `length` steps.
    pub fn begin(&self, length: u64) {
        let template = "{bar:30} {percent:>3} %  {eta:>4} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
        self.bar.reset();
        self.bar.set_length(length);
    }

    /// What is being done now.
    pub fn tell(&self, what: String) {
        self.bar.set_message(what);
    }

    /// A sample of a row is being taken now: one step.
    pub fn sample(&self, what: &str, row: &Row) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let figure = (!row.measured.samples.is_empty()).then(|| row.measured.ops_per_s());
        let left = whole.left(whole.began.elapsed());
        self.tell(line(what, figure, whole.next.as_deref(), left));
        whole.taken += 1;
        self.advance(1);
    }

    /// So many steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Takes the bar off the screen, so that other output can come.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Whole {
    /// How long the rest will take, where that can be told.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let rest = self.samples.checked_sub(self.taken)?;
        (self.taken > 0).then(|| elapsed.mul_f64(rest as f64 / self.taken as f64))
    }
}

/// What is told: `read: uring at depth 32, 98 123/s so far; then nop; whole run: 2m left`.
fn line(what: &str, figure: Option<f64>, next: Option<&str>, left: Option<Duration>) -> String {
    let figure = figure.map_or_else(String::new, |per_s| format!(", {}/s so far", rate(per_s)));
    let left = left.map_or_else(String::new, |left| {
        let seconds = Duration::from_secs(left.as_secs().max(1));
        format!("; whole run: {} left", duration_text(seconds))
    });
    let next = next.map_or_else(String::new, |next| format!("; then {next}"));
    format!("{what}{figure}{next}{left}")
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_was() {
        let mut whole = Whole { began: Instant::now(), samples: 100, taken: 0, next: None };
        assert_eq!(whole.left(Duration::from_secs(1)), None, "nothing to go by");
        whole.taken = 25;
        assert_eq!(whole.left(Duration::from_secs(10)), Some(Duration::from_secs(30)));
        whole.taken = 101;
        assert_eq!(whole.left(Duration::from_secs(10)), None, "more than was expected");
    }

    #[test]
    fn a_line_has_what_is_known() {
        assert_eq!(line("nop: uring", None, None, None), "nop: uring");
        let left = Some(Duration::from_millis(9_500));
        let all = line("nop: uring", Some(98_123.4), Some("echo"), left);
        assert_eq!(all, "nop: uring, 98 123/s so far; then echo; whole run: 9s left");
    }
}
