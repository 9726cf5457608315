//! `GET /search`: stored lines that fulfil conditions, an object each, as `query --with-origin` prints them.
//!
//! A search reads on one thread, and ends at a number of lines or bytes or after a time. The last object says how it
//! ended. An answer without that object was cut off.

use std::{
    io,
    ops::{ControlFlow, Range},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    client::{Client, PATIENCE},
    readers::Readers,
};
use crate::{
    disk::segment::{
        format::name::Stream,
        reading::cursor::{Piece, first_lines},
    },
    tool::{printer::Printer, query::QueryArgs},
};

/// The type of the answer.
pub(super) const KIND: &str = "application/x-ndjson";

/// The lines of a search, if it does not say how many or asks for more than the most.
const LINES: u64 = 100;
const LINES_MAX: u64 = 10_000;
/// The most bytes of lines.
const BYTES_MAX: usize = 16 << 20;
/// How long a search may take.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Threads that read segments. The processors are for those that store.
const THREADS: usize = 1;
/// Bytes that are gathered before they are written.
const GATHERED_BYTES: usize = 64 << 10;

/// Sends what is found.
pub(super) fn send(client: &Client<'_>, args: &QueryArgs, readers: &Readers) {
    let mut found = Found::new(client, args);
    let searched = args.search(THREADS, &mut found);
    let Found { lines, cut, gathered, until, .. } = found;
    let problems = searched.unwrap_or_else(|error| vec![error.to_string()]);
    if cut.is_some() {
        readers.cut_searches.fetch_add(1, Relaxed);
    }
    let end = json!({ "end": { "lines": lines, "cut": cut, "problems": problems } });
    // Who has gone does not miss it.
    let rest = [gathered, format!("{end}\n").into_bytes()].concat();
    let _ = client.write(&rest, until + PATIENCE);
}

/// Takes lines up to the limits.
struct Found<'a> {
    client: &'a Client<'a>,
    args: &'a QueryArgs,
    lines_max: u64,
    bytes_left: usize,
    until: Instant,
    lines: u64,
    gathered: Vec<u8>,
    /// Why it ended before its end.
    cut: Option<&'static str>,
}

impl<'a> Found<'a> {
    fn new(client: &'a Client<'a>, args: &'a QueryArgs) -> Found<'a> {
        Found {
            client,
            args,
            lines_max: args.limit().unwrap_or(LINES).min(LINES_MAX),
            bytes_left: BYTES_MAX,
            until: Instant::now() + TIME_MAX,
            lines: 0,
            gathered: Vec::new(),
            cut: None,
        }
    }

    /// Takes objects up to the limits.
    fn take(&mut self, text: &[u8], count: u64) {
        let left = self.lines_max - self.lines;
        let mut wanted = if count > left { first_lines(text, left) } else { text };
        let mut taken = count.min(left);
        if count > left {
            self.cut = Some("lines");
        }
        if wanted.len() > self.bytes_left {
            self.cut = Some("bytes");
            let end = memchr::memrchr(b'\n', &wanted[..self.bytes_left]).map_or(0, |end| end + 1);
            wanted = &wanted[..end];
            taken = memchr::memchr_iter(b'\n', wanted).count() as u64;
        }
        self.lines += taken;
        self.bytes_left -= wanted.len();
        self.gathered.extend_from_slice(wanted);
    }
}

impl Printer for Found<'_> {
    fn print(&mut self, _stream: Stream, piece: &Piece<'_>) -> io::Result<ControlFlow<()>> {
        // One more line than is wanted says whether there are more.
        let most = self.lines_max - self.lines + 1;
        let mut text = Vec::new();
        let count = self.args.print(piece, most, &mut text)?;
        self.take(&text, count);
        if self.gathered.len() >= GATHERED_BYTES {
            self.flush()?;
        }
        let goes_on = self.cut.is_none() && self.wait(Duration::ZERO);
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    /// Problems say which lines are missing.
    fn skip(&mut self, _stream: Stream, _lines: &Range<u64>) {}

    fn flush(&mut self) -> io::Result<()> {
        // Nobody has the place for longer, however slowly it reads.
        self.client.write(&std::mem::take(&mut self.gathered), self.until + PATIENCE)
    }

    fn wait(&mut self, time: Duration) -> bool {
        if self.client.is_ending() {
            self.cut = Some("shutdown");
        } else if Instant::now() >= self.until {
            self.cut = Some("time");
        }
        self.cut.is_none() && self.client.is_there_after(time)
    }
}
