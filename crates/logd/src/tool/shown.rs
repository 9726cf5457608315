//! Which stored lines `cat`, `tail` and `query` show by time and sender, and how.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use ringwise_measure::quantity;

use crate::disk::segment::{
    format::record::{Origin, StoredPart},
    now_ms,
    reading::cursor::{Choice, Piece, after_lines, first_lines},
};

/// What is shown of stored lines. Without any of it: all lines, as they came.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Shown {
    /// Print each line in an object: time_ms (when it arrived), peer, tenant, line
    #[arg(long)]
    with_origin: bool,
    /// Print only lines of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Print only lines from this address
    #[arg(long, value_name = "IP[:PORT]", value_parser = peer)]
    peer: Option<Peer>,
    /// Print only lines that arrived at this time or later: how long ago (10m), or in UTC
    /// (2026-01-31T12:00:00)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Print only lines that arrived before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    ip: IpAddr,
    port: Option<u16>,
}

impl Shown {
    /// The names of these options. Dead letters say themselves who sent them and when.
    pub(crate) const OPTIONS: [&str; 5] = ["with_origin", "tenant", "peer", "since", "until"];

    /// Whether lines of some senders or times are left out.
    pub(super) fn is_filter(&self) -> bool {
        let is_timed = self.since.is_some() || self.until.is_some();
        is_timed || self.tenant.is_some() || self.peer.is_some()
    }

    /// Has the senders of lines printed.
    #[cfg(feature = "parquet")]
    pub(super) fn with_origins(self) -> Shown {
        Shown { with_origin: true, ..self }
    }

    /// Whether the senders of lines are printed.
    pub(super) fn has_origins(&self) -> bool {
        self.with_origin
    }

    /// Prints lines, at most so many. Returns how many.
    pub(super) fn print(
        &self,
        piece: &Piece<'_>,
        most: u64,
        out: &mut impl Write,
    ) -> io::Result<u64> {
        self.print_after(piece, 0, most, out)
    }

    /// Prints the last lines, at most so many. Returns how many were left out before them.
    pub(super) fn print_last(
        &self,
        piece: &Piece<'_>,
        most: u64,
        out: &mut impl Write,
    ) -> io::Result<u64> {
        let left_out = piece.line_count.saturating_sub(most);
        self.print_after(piece, left_out, most, out)?;
        Ok(left_out)
    }

    /// Prints lines after so many, at most `most`. Returns how many.
    fn print_after(
        &self,
        piece: &Piece<'_>,
        mut before: u64,
        most: u64,
        out: &mut impl Write,
    ) -> io::Result<u64> {
        let wanted = piece.line_count.saturating_sub(before);
        let count = wanted.min(most);
        if !self.with_origin {
            let lines = after_lines(piece.lines(), before);
            out.write_all(if count < wanted { first_lines(lines, most) } else { lines })?;
            return Ok(count);
        }
        let mut left = count;
        for (part, lines, line_count) in piece.parts() {
            let skipped = before.min(line_count);
            before -= skipped;
            if skipped == line_count {
                continue;
            }
            let head = head(part.time_ms, part.origin.as_ref());
            for line in after_lines(lines, skipped).split_inclusive(|byte| *byte == b'\n') {
                let Some(after) = left.checked_sub(1) else { return Ok(count) };
                left = after;
                out.write_all(head.as_bytes())?;
                out.write_all(line.strip_suffix(b"\n").unwrap_or(line))?;
                out.write_all(b"}\n")?;
            }
        }
        Ok(count)
    }

    fn is_of(&self, origin: Option<&Origin>) -> bool {
        let tenant = origin.and_then(|origin| origin.tenant.as_deref());
        let from = origin.and_then(|origin| origin.peer);
        self.tenant.as_deref().is_none_or(|wanted| tenant == Some(wanted))
            && self.peer.is_none_or(|peer| from.is_some_and(|from| peer.is(from)))
    }
}

impl Choice for Shown {
    fn times_ms(&self) -> Range<u64> {
        self.since.unwrap_or(0)..self.until.unwrap_or(u64::MAX)
    }

    fn wants(&self, part: &StoredPart) -> bool {
        self.times_ms().contains(&part.time_ms) && self.is_of(part.origin.as_ref())
    }
}

impl Peer {
    fn is(self, peer: SocketAddr) -> bool {
        peer.ip().to_canonical() == self.ip.to_canonical()
            && self.port.is_none_or(|port| port == peer.port())
    }
}

/// The beginning of an object, up to the line, which is JSON itself.
fn head(time_ms: u64, origin: Option<&Origin>) -> String {
    let mut head = format!("{{\"time_ms\":{time_ms}");
    if let Some(peer) = origin.and_then(|origin| origin.peer) {
        head += &format!(",\"peer\":\"{peer}\"");
    }
    if let Some(tenant) = origin.and_then(|origin| origin.tenant.as_deref()) {
        head += &format!(",\"tenant\":{}", serde_json::Value::from(tenant));
    }
    head + ",\"line\":"
}

fn peer(text: &str) -> Result<Peer, String> {
    let alone = || text.parse().map(|ip| Peer { ip, port: None });
    let whole = text.parse().map(|peer: SocketAddr| (peer.ip(), peer.port()));
    let peer = whole.map(|(ip, port)| Peer { ip, port: Some(port) }).or_else(|_| alone());
    peer.map_err(|_| "expected an address, such as 10.0.0.1 or [::1]:9000".to_owned())
}

/// A time in milliseconds since 1970.
fn moment(text: &str) -> Result<u64, String> {
    if let Ok(ago) = quantity::parse_duration(text) {
        let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        return Ok(now_ms().saturating_sub(ago_ms));
    }
    utc(text).ok_or_else(|| "expected how long ago (10m), or UTC (2026-01-31T12:00:00)".to_owned())
}

/// A date with or without a time of day, in UTC.
fn utc(text: &str) -> Option<u64> {
    let (date, time) = text.trim_end_matches('Z').split_once('T').unwrap_or((text, "00:00:00"));
    let numbers = |text: &str, by: char| -> Option<[u64; 3]> {
        let numbers: Option<Vec<u64>> = text.split(by).map(|word| word.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    let ([year, month, day], [hours, minutes, seconds]) =
        (numbers(date, '-')?, numbers(time, ':')?);
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    if !is_date || !(1..=31).contains(&day) || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    // Years begin in March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // 719468 days before 1970 begins the March of the year 0.
    Some((days - 719_468) * 86_400_000 + (hours * 3600 + minutes * 60 + seconds) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_what_is_none_is_not() {
        assert_eq!(utc("1970-01-01"), Some(0));
        assert_eq!(utc("2000-02-29T23:59:59Z"), Some(951_868_799_000));
        assert_eq!(utc("2026-11-25T01:02:03"), Some(1_795_568_523_000));
        for text in ["", "x", "2026-13-01", "2026-01-32", "2026-01-01T24:00:00", "1969-12-31"] {
            assert_eq!(utc(text), None, "{text}");
        }
        assert!(moment("soon").is_err());
        let ago = now_ms() - moment("10m").unwrap();
        assert!((600_000..610_000).contains(&ago), "{ago}");
    }

    #[test]
    fn a_peer_is_an_address_with_or_without_a_port() {
        let from = "10.0.0.1:5".parse().unwrap();
        assert!(peer("10.0.0.1").unwrap().is(from) && peer("10.0.0.1:5").unwrap().is(from));
        assert!(!peer("10.0.0.1:6").unwrap().is(from) && !peer("10.0.0.2").unwrap().is(from));
        assert!(peer("10.0.0.1").unwrap().is("[::ffff:10.0.0.1]:7".parse().unwrap()));
        assert!(peer("web").is_err());
    }

    #[test]
    fn the_last_lines_are_printed_and_no_others_formatted() {
        let part =
            |lines: u64, time_ms| StoredPart { lines, bytes: 2 * lines, time_ms, origin: None };
        let parts = || vec![part(1 << 20, 7), part(1, 8), part(2, 9)];
        let count = (1 << 20) + 3;
        let piece = Piece::selected(7, (count, Vec::new()), parts(), b"1\n".repeat(count as usize));
        let print = |with_origin: bool, most: u64| {
            let mut out = Vec::new();
            let shown = Shown { with_origin, ..Shown::default() };
            assert_eq!(
                shown.print_last(&piece, most, &mut out).unwrap(),
                count.saturating_sub(most)
            );
            String::from_utf8(out).unwrap()
        };
        let object = |time_ms: u64| format!("{{\"time_ms\":{time_ms},\"line\":1}}\n");
        assert_eq!(print(true, 2), object(9).repeat(2));
        assert_eq!(print(true, 4), [object(7), object(8), object(9).repeat(2)].concat());
        assert_eq!(print(true, 200).lines().count(), 200);
        assert_eq!(print(false, 200), "1\n".repeat(200));
        assert_eq!(print(false, count + 1).len() as u64, 2 * count);
    }

    #[test]
    fn an_object_with_a_line_is_json() {
        let origin = Origin { peer: None, tenant: Some("a \"b\"".into()) };
        let text = head(7, Some(&origin)) + "[1]}";
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, serde_json::json!({"time_ms": 7, "tenant": "a \"b\"", "line": [1]}));
    }
}
