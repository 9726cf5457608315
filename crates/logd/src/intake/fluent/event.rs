//! A message of Fluent Forward: its tag, its events, and what its client asks for.
//!
//! - Message: `[tag, time, record, option?]`
//! - Forward: `[tag, [[time, record], ...], option?]`
//! - PackedForward: `[tag, "[time, record]...", option?]`, in which the events may be packed by gzip

use std::{io::Read, ops::Range};

use super::{
    item::{Item, check, head},
    json::Writer,
};

/// The longest tag. Each event has it in its line, so a long one would make much of few bytes.
const TAG_BYTES_MAX: usize = 1 << 10;

/// A message that was checked, and how far its lines are written. It does not have its bytes.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: usize,
    tag: Range<usize>,
    /// The value of its option `chunk`.
    chunk: Option<Range<usize>>,
    /// Its events, if they were packed. Otherwise they are in its own bytes.
    unpacked: Option<Vec<u8>>,
    /// The place of the events that are not written, each an array of its time and its record.
    events: Range<usize>,
    /// The first event has no head: it is a time and a record that follow each other.
    is_bare: bool,
}

impl Message {
    /// A message of one byte and no events.
    pub(super) fn heartbeat() -> Message {
        Message { bytes: 1, ..Message::default() }
    }

    /// Reads a message, and unpacks its events, if they have at most `unpacked_max` bytes.
    ///
    /// # Errors
    ///
    /// It is none.
    pub(super) fn read(bytes: &[u8], unpacked_max: usize) -> Result<Message, &'static str> {
        const NOT_ALL: &str = "a message has too few values, or too many";
        check(bytes)?;
        let Ok(Some((Item::Array(count @ 2..=4), head_bytes))) = head(bytes) else {
            return Err(NOT_ALL);
        };
        let mut values = Vec::new();
        let mut at = head_bytes;
        for _ in 0..count {
            let end = at + check(&bytes[at..])?;
            values.push(at..end);
            at = end;
        }
        if !matches!(item(bytes, &values[0]), Item::Text(_) | Item::Binary(_)) {
            return Err("a message has no tag");
        }
        if values[0].len() > TAG_BYTES_MAX {
            return Err("a tag has more than 1 KiB");
        }
        let (kind, tag) = (item(bytes, &values[1]), values[0].clone());
        let is_bare = !matches!(kind, Item::Array(_) | Item::Text(_) | Item::Binary(_));
        let option = values.get(if is_bare { 3 } else { 2 });
        if values.len() > if is_bare { 4 } else { 3 } || (is_bare && values.len() < 3) {
            return Err(NOT_ALL);
        }
        let Options { chunk, is_packed } =
            option.map_or(Ok(Options::default()), |option| options(bytes, option))?;
        let events = match is_bare {
            true => values[1].start..values[2].end,
            false => content(bytes, &values[1]),
        };
        let mut message =
            Message { bytes: bytes.len(), tag, chunk, unpacked: None, events, is_bare };
        if is_packed && !matches!(kind, Item::Array(_)) && !is_bare {
            let unpacked = unpack(&bytes[message.events.clone()], unpacked_max)?;
            message.events = 0..unpacked.len();
            message.unpacked = Some(unpacked);
        }
        message.check_events(bytes)?;
        Ok(message)
    }

    /// Bytes of the message.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Leaves out its lines.
    pub(super) fn skip(&mut self) {
        self.events = 0..0;
    }

    /// Whether all its lines are written.
    pub(super) fn is_done(&self) -> bool {
        self.events.is_empty()
    }

    /// The chunk that is to be acknowledged, as it was sent.
    pub(super) fn chunk<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.chunk.clone().map(|chunk| &bytes[chunk])
    }

    /// Appends the line of the next event; says whether there was one. Of a line that is longer than it may be, as much
    /// is written as shows that.
    pub(super) fn write_line(&mut self, bytes: &[u8], line_max: usize, out: &mut Vec<u8>) -> bool {
        if self.is_done() {
            return false;
        }
        let all = self.unpacked.as_deref().unwrap_or(bytes);
        let events = &all[self.events.clone()];
        // They were checked.
        let start = if self.is_bare { 0 } else { content(events, &(0..events.len())).start };
        let time_end = start + check(&events[start..]).unwrap_or(events.len() - start);
        let end = time_end + check(&events[time_end..]).unwrap_or(events.len() - time_end);
        let line_start = out.len();
        let mut writer = Writer { out: &mut *out, end: line_start + line_max };
        let parts = [
            (&b"{\"tag\":"[..], &bytes[self.tag.clone()]),
            (b",\"time\":", &events[start..time_end]),
            (b",\"record\":", &events[time_end..end]),
        ];
        for (name, value) in parts {
            if !writer.is_over() {
                writer.out.extend_from_slice(name);
                writer.value(value);
            }
        }
        writer.out.push(b'}');
        out.truncate(line_start + line_max + 1);
        out.push(b'\n');
        self.events.start += end;
        true
    }

    /// Checks that there are only events where they should be.
    fn check_events(&self, bytes: &[u8]) -> Result<(), &'static str> {
        if self.is_bare {
            return Ok(());
        }
        let all = self.unpacked.as_deref().unwrap_or(bytes);
        let mut rest = &all[self.events.clone()];
        while !rest.is_empty() {
            let Some((Item::Array(2), _)) = head(rest)? else {
                return Err("an event is no array of a time and a record");
            };
            rest = &rest[check(rest)?..];
        }
        Ok(())
    }
}

/// What a client asks for.
#[derive(Debug, Default)]
struct Options {
    chunk: Option<Range<usize>>,
    is_packed: bool,
}

fn options(bytes: &[u8], place: &Range<usize>) -> Result<Options, &'static str> {
    let keys = match head(&bytes[place.clone()])? {
        Some((Item::Map(keys), _)) => keys,
        Some((Item::Nil, _)) => 0,
        _ => return Err("the option of a message is no map"),
    };
    let mut options = Options::default();
    let mut at = content(bytes, place).start;
    for _ in 0..keys {
        let key_end = at + check(&bytes[at..])?;
        let end = key_end + check(&bytes[key_end..])?;
        let value = key_end..end;
        match &bytes[content(bytes, &(at..key_end))] {
            b"chunk" => options.chunk = Some(value),
            b"compressed" => match &bytes[content(bytes, &value)] {
                b"gzip" => options.is_packed = true,
                b"text" => {}
                _ => return Err("a message is packed by something other than gzip"),
            },
            _ => {}
        }
        at = end;
    }
    Ok(options)
}

/// The head of a checked value.
fn item(bytes: &[u8], place: &Range<usize>) -> Item {
    head(&bytes[place.clone()]).ok().flatten().map_or(Item::Nil, |(item, _)| item)
}

/// What is behind the head of a checked value.
fn content(bytes: &[u8], place: &Range<usize>) -> Range<usize> {
    let head_bytes = head(&bytes[place.clone()]).ok().flatten().map_or(0, |(_, bytes)| bytes);
    place.start + head_bytes..place.end
}

fn unpack(packed: &[u8], most: usize) -> Result<Vec<u8>, &'static str> {
    let mut unpacked = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(packed).take(most as u64 + 1);
    decoder.read_to_end(&mut unpacked).map_err(|_| "packed events are no gzip")?;
    match unpacked.len() > most {
        true => Err("unpacked events are too long (--connection-budget)"),
        false => Ok(unpacked),
    }
}
