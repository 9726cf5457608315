//! A bar on a terminal, and nothing elsewhere. It uses no colour.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is being done, on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
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
        Progress { bar }
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

    /// So many steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Takes the bar off the screen, so that other output can come.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
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
