//! `GET /live`: the last lines, and then each as it is stored, as server-sent events.
//!
//! It reads segments as `query --follow` does, so no storing thread knows of it. If a client reads slowly, or a stream is
//! faster than any client, it leaves lines out: at each look all but the newest [`LINES_MAX`]. It says how many. Without
//! conditions it reads the batches of those lines only. No line waits in memory for longer than a look.

use std::{
    collections::VecDeque,
    io,
    ops::{ControlFlow, Range},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use super::{
    client::{Client, PATIENCE},
    readers::Readers,
};
use crate::{
    disk::segment::{format::name::Stream, reading::cursor::Piece},
    error::LogdError,
    tool::{printer::Printer, query::QueryArgs},
};

/// The type of the answer.
pub(super) const KIND: &str = "text/event-stream";

/// The most lines that a look sends, and the most bytes of them.
const LINES_MAX: usize = 200;
const BYTES_MAX: usize = 1 << 20;
/// After how long without a line something is sent, so that a client that is gone is found.
const QUIET_TIME: Duration = Duration::from_secs(10);

/// Sends lines until the client has gone or the daemon ends.
pub(super) fn send(client: Client<'_>, args: &QueryArgs, readers: &Readers) {
    let mut events = Events {
        client,
        args,
        readers,
        newest: Newest::default(),
        is_begun: false,
        sent_at: Instant::now(),
    };
    if let Err(error) = args.live(LINES_MAX as u64, &mut events)
        && !matches!(error, LogdError::BrokenPipe)
    {
        // Who has gone does not miss it.
        let event = format!("event: failure\ndata: {error}\n\n");
        let _ = events.client.write(event.as_bytes(), Instant::now() + PATIENCE);
    }
}

struct Events<'a> {
    client: Client<'a>,
    args: &'a QueryArgs,
    readers: &'a Readers,
    newest: Newest,
    /// Whether the last lines from before were sent.
    is_begun: bool,
    sent_at: Instant,
}

/// The newest lines of a look, as objects.
#[derive(Default)]
struct Newest {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    left_out: u64,
}

impl Newest {
    /// Takes lines, before which so many were left out, and drops older ones if there are too many.
    fn take(&mut self, text: &[u8], left_out: u64) {
        self.left_out += left_out;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            self.bytes += line.len();
            self.lines.push_back(line.to_vec());
            while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
                let Some(oldest) = self.lines.pop_front() else { break };
                self.bytes -= oldest.len();
                self.left_out += 1;
            }
        }
    }

    /// Formats them as events, and is empty then.
    fn events(&mut self) -> Vec<u8> {
        let mut events = Vec::with_capacity(self.bytes + 10 * self.lines.len());
        if self.left_out > 0 {
            let left_out = std::mem::take(&mut self.left_out);
            events.extend_from_slice(format!("event: left-out\ndata: {left_out}\n\n").as_bytes());
        }
        for line in self.lines.drain(..) {
            events.extend_from_slice(b"data: ");
            // A carriage return would end the event's line. In JSON it can only be a space between values.
            events.extend(line.iter().map(|byte| if *byte == b'\r' { b' ' } else { *byte }));
            events.push(b'\n');
        }
        self.bytes = 0;
        events
    }
}

impl Printer for Events<'_> {
    fn print(&mut self, _stream: Stream, piece: &Piece<'_>) -> io::Result<ControlFlow<()>> {
        let mut text = Vec::new();
        // A batch may have millions of lines: as objects they would be a hundred times as large.
        let left_out = self.args.print_last(piece, LINES_MAX as u64, &mut text)?;
        self.newest.take(&text, left_out);
        Ok(ControlFlow::Continue(()))
    }

    fn skip(&mut self, _stream: Stream, lines: &Range<u64>) {
        self.newest.left_out += lines.end - lines.start;
    }

    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_begun, true) {
            // The last lines of many streams may be too many. Nobody asked for more than the last ones.
            self.newest.left_out = 0;
        }
        self.readers.left_out_lines.fetch_add(self.newest.left_out, Relaxed);
        let events = self.newest.events();
        let events = match events.is_empty() {
            true if self.sent_at.elapsed() >= QUIET_TIME => b":\n\n",
            true => return Ok(()),
            false => &*events,
        };
        self.sent_at = Instant::now();
        self.client.write(events, self.sent_at + PATIENCE)
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.client.is_there_after(time) && !self.client.is_ending()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(newest: &mut Newest) -> String {
        String::from_utf8(newest.events()).unwrap()
    }

    #[test]
    fn the_newest_lines_are_sent_and_the_others_counted() {
        let mut newest = Newest::default();
        newest.take(b"1\n{\"a\":\r2}\n", 0);
        assert_eq!(text(&mut newest), "data: 1\n\ndata: {\"a\": 2}\n\n");
        assert_eq!(text(&mut newest), "");
        let lines = |range: Range<usize>| range.map(|n| format!("{n}\n")).collect::<String>();
        newest.take(lines(800..1000).as_bytes(), 800);
        newest.take(lines(1000..1007).as_bytes(), 0);
        let sent = text(&mut newest);
        assert!(sent.starts_with("event: left-out\ndata: 807\n\ndata: 807\n\n"), "{sent}");
        assert!(sent.ends_with("data: 1006\n\n"), "{sent}");
        assert_eq!(sent.matches("data: ").count(), 1 + LINES_MAX);
    }

    #[test]
    fn a_line_that_is_too_large_to_show_is_left_out() {
        let mut newest = Newest::default();
        let line = [vec![b'1'; BYTES_MAX], b"\n".to_vec()].concat();
        newest.take(&line, 0);
        assert_eq!(text(&mut newest), "event: left-out\ndata: 1\n\n");
        newest.take(b"2\n", 0);
        assert_eq!(text(&mut newest), "data: 2\n\n");
    }
}
