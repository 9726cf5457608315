//! What is said: lines on standard output and errors, in the order of the sources.
//!
//! Files in flight end in any order. A line that is said while an earlier file is still in flight
//! waits for it, so that two runs over the same tree say the same. The caller bounds how much
//! waits ([`Report::oldest_waiting`]).

use std::{
    collections::VecDeque,
    io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write},
};

use indicatif::ProgressBar;
use ringwise::StandardStream;
use ringwise_measure::plain;
use rustix::io::Errno;

use crate::messages::{events, quoting::Locale};

/// One line, without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Out(Vec<u8>),
    /// An error or a warning, without `cp: `.
    Error(Vec<u8>),
    /// An event of `--json`.
    Event(Vec<u8>),
}

/// Puts quoted names where the template has `%s`, and an error number's text behind it.
pub(crate) fn compose(
    locale: Locale,
    template: &str,
    names: &[&[u8]],
    errno: Option<Errno>,
) -> Vec<u8> {
    let mut text = Vec::with_capacity(128);
    let mut names = names.iter();
    for (at, part) in template.split("%s").enumerate() {
        if at > 0 {
            text.extend(locale.shell(names.next().copied().unwrap_or_default()));
        }
        text.extend_from_slice(part.as_bytes());
    }
    if let Some(errno) = errno {
        text.extend_from_slice(b": ");
        text.extend_from_slice(errno_text(errno).as_bytes());
    }
    text
}

/// The C library's text, without the number that the standard library appends.
pub(crate) fn errno_text(errno: Errno) -> String {
    plain(&io::Error::from(errno))
}

/// Where lines go.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) locale: Locale,
    out: BufWriter<Stdout>,
    queue: VecDeque<Item>,
    /// Before what waits by this number is said what is said now.
    at: Option<u64>,
    write_error: Option<io::Error>,
    /// Standard input could not be read, and why closing it would fail too.
    read_error: Option<Option<Errno>>,
    is_closed: bool,
    at_once: bool,
    /// Lines are events.
    json: bool,
    /// What is to be taken off the screen while something is said.
    bar: Option<ProgressBar>,
}

/// What is said, or the place of what is not said yet.
#[derive(Debug)]
pub(crate) enum Item {
    Said(Line),
    /// Of a file in flight, by its number.
    Waiting(u64),
}

impl Report {
    pub(crate) fn new(locale: Locale) -> Report {
        let stdout = io::stdout();
        let at_once = stdout.is_terminal();
        let out = BufWriter::with_capacity(16 << 10, stdout);
        let (queue, at, write_error, read_error) = (VecDeque::new(), None, None, None);
        let is_closed = ringwise::was_closed_at_start(StandardStream::Output);
        let (json, bar) = (false, None);
        Report { locale, out, queue, at, write_error, read_error, is_closed, at_once, json, bar }
    }

    /// How lines are said from now on.
    pub(crate) fn present(&mut self, json: bool, bar: Option<ProgressBar>) {
        (self.json, self.bar) = (json, bar);
    }

    pub(crate) fn say(&mut self, line: Line) {
        if self.queue.is_empty() {
            self.print(&line);
        } else {
            self.push(Item::Said(line));
        }
    }

    fn push(&mut self, item: Item) {
        match (self.at.and_then(|number| self.place_of(number)), item) {
            (Some(0), Item::Said(line)) => self.print(&line),
            (Some(at), item) => self.queue.insert(at, item),
            (None, item) => self.queue.push_back(item),
        }
    }

    /// From both ends: a place is near one of them, however much waits on its other side.
    fn place_of(&self, number: u64) -> Option<usize> {
        let waits = |item: &Item| matches!(item, Item::Waiting(waiting) if *waiting == number);
        let last = self.queue.len().checked_sub(1)?;
        (0..=last / 2).find_map(|at| {
            let ends = [at, last - at];
            ends.into_iter().find(|end| waits(&self.queue[*end]))
        })
    }

    /// What is said from now on goes where something waits by this number, until it ended; or
    /// behind all again. Gives where it went before.
    pub(crate) fn speak_at(&mut self, number: Option<u64>) -> Option<u64> {
        std::mem::replace(&mut self.at, number)
    }

    /// All is said that goes where something waits by this number; the rest goes to `before`.
    pub(crate) fn leave(&mut self, number: u64, before: Option<u64>) {
        self.at = before;
        self.ended(number, Vec::new());
    }

    /// What waits, or is said behind that.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What a file said that was in flight for no time.
    pub(crate) fn say_all(&mut self, said: Vec<Item>) {
        for item in said {
            match item {
                Item::Said(line) => self.say(line),
                Item::Waiting(_) => self.push(item),
            }
        }
    }

    pub(crate) fn error(&mut self, template: &str, names: &[&[u8]], errno: Option<Errno>) {
        self.say(Line::Error(compose(self.locale, template, names, errno)));
    }

    pub(crate) fn out(&mut self, template: &str, names: &[&[u8]]) {
        self.say(Line::Out(compose(self.locale, template, names, None)));
    }

    /// The place of what a file in flight will say.
    pub(crate) fn wait_for(&mut self, number: u64) {
        self.push(Item::Waiting(number));
    }

    /// A file in flight ended: what it says takes its place.
    pub(crate) fn ended(&mut self, number: u64, said: Vec<Item>) {
        let Some(at) = self.place_of(number) else { return };
        self.queue.remove(at);
        for (offset, item) in said.into_iter().enumerate() {
            self.queue.insert(at + offset, item);
        }
        while let Some(Item::Said(_)) = self.queue.front() {
            let Some(Item::Said(line)) = self.queue.pop_front() else { unreachable!("seen") };
            self.print(&line);
        }
    }

    /// The file in flight that keeps `most` lines or more waiting.
    pub(crate) fn oldest_waiting(&self, most: usize) -> Option<u64> {
        match self.queue.front() {
            Some(Item::Waiting(number)) if self.queue.len() >= most => Some(*number),
            _ => None,
        }
    }

    fn print(&mut self, line: &Line) {
        match self.bar.clone() {
            Some(bar) => bar.suspend(|| self.print_now(line)),
            None => self.print_now(line),
        }
    }

    fn print_now(&mut self, line: &Line) {
        match line {
            Line::Out(text) if self.json => self.print_now(&events::output(text)),
            Line::Out(_) | Line::Event(_) if self.is_closed => self.keep(Err(Errno::BADF.into())),
            Line::Out(text) | Line::Event(text) => {
                let mut written = self.out.write_all(text).and_then(|()| self.out.write_all(b"\n"));
                if self.at_once {
                    written = written.and_then(|()| self.out.flush());
                }
                self.keep(written);
            }
            Line::Error(text) => {
                let line = [b"cp: ", &text[..], b"\n"].concat();
                // Nobody is left to be told that nobody reads.
                let _ = io::stderr().lock().write_all(&line);
                if self.json {
                    self.print_now(&events::error(text));
                }
            }
        }
    }

    fn keep(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.write_error.get_or_insert(error);
        }
    }

    /// An answer could not be read: the run ends with that, as GNU cp's does.
    pub(crate) fn input_failed(&mut self, errno: Option<Errno>) {
        self.read_error = Some(errno);
    }

    pub(crate) fn flush(&mut self) {
        let flushed = self.out.flush();
        self.keep(flushed);
    }

    /// Prints what is left. Whether standard input gave what was asked for and standard output took
    /// everything; a reader that went away is no error.
    pub(crate) fn finish(mut self) -> bool {
        debug_assert!(self.queue.is_empty(), "a file in flight was not waited for");
        self.flush();
        let read_error = self.read_error.take();
        if let Some(errno) = read_error {
            self.print(&Line::Error(compose(self.locale, "error closing file", &[], errno)));
        }
        match self.write_error.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                self.print(&Line::Error(format!("write error: {}", errno_text(errno)).into()));
                false
            }
            _ => read_error.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wait_for_files_before_them() {
        let mut report = Report::new(Locale::from_environment());
        report.wait_for(1);
        report.wait_for(2);
        report.say(Line::Out(b"third".to_vec()));
        report.ended(2, vec![Item::Said(Line::Error(b"second".to_vec()))]);
        assert_eq!(report.queue.len(), 3, "all wait for the first");
        assert_eq!(report.oldest_waiting(3), Some(1));
        assert_eq!(report.oldest_waiting(4), None);
        report.ended(1, Vec::new());
        assert!(report.queue.is_empty());
    }

    /// As of a directory that is told of before its turn and in which nothing can be read.
    #[test]
    fn however_many_lines_wait_the_place_of_the_next_is_found_at_once() {
        let mut report = Report::new(Locale::from_environment());
        (0..20).for_each(|number| report.wait_for(number));
        report.speak_at(Some(10));
        let lines = 400_000;
        (0..lines).for_each(|_| report.say(Line::Error(b"cannot open".to_vec())));
        assert_eq!(report.queue.len(), 20 + lines);
        assert!((0..20).all(|number| report.place_of(number).is_some()));
        assert_eq!(report.place_of(10), Some(10 + lines));
        assert_eq!(report.place_of(20), None);
    }

    #[test]
    fn names_stand_where_the_template_has_them() {
        let text = compose(
            Locale::from_environment(),
            "cannot create hard link %s to %s",
            &[b"a b", b"c"],
            Some(Errno::EXIST),
        );
        assert_eq!(text, b"cannot create hard link 'a b' to 'c': File exists");
    }
}
