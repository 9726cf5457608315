//! Fields of a syslog line, by RFC 5424 and, as far as senders agree, RFC 3164.
//!
//! Fields are cut out of the line and not interpreted: a time without a year or a zone stays one. What does not follow
//! the grammar stays in the text of the message, so nothing of a line is lost.
//!
//! The crate `syslog_loose` parses more forms. It turns times into dates, for which it has to guess years and zones,
//! and drops the text that it parsed.

use std::{borrow::Cow, collections::BTreeMap};

use crate::lines::text::quote;

/// The names of facilities (RFC 5424, table 1), as syslog.conf(5) and Linux write them.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
/// Those of severities (table 2).
const SEVERITIES: [&str; 8] =
    ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
/// What no field of a header has: RFC 5424 writes it for a missing one.
const NIL: &str = "-";

/// Elements of structured data, by their names: parameters by theirs. A parameter may have several values.
type Elements<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<Cow<'a, str>>>>;

/// What is before the text of a message. Empty fields are missing.
#[derive(Debug, Default)]
struct Header<'a> {
    timestamp: &'a str,
    host: &'a str,
    app_name: &'a str,
    procid: &'a str,
    msgid: &'a str,
    structured_data: Elements<'a>,
}

/// Appends the fields of a line as members of an object, each with a comma behind it; gives what is the text. A line
/// that is no syslog has no fields.
pub(super) fn write_fields<'a>(line: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let Some((priority, rest)) = priority(line) else { return line };
    let (header, text) =
        new_form(rest).or_else(|| old_form(rest)).unwrap_or_else(|| (Header::default(), rest));
    let fields = [
        ("facility", FACILITIES[usize::from(priority >> 3)]),
        ("severity", SEVERITIES[usize::from(priority & 7)]),
        ("timestamp", header.timestamp),
        ("host", header.host),
        ("app_name", header.app_name),
        ("procid", header.procid),
        ("msgid", header.msgid),
    ];
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        member(name, out);
        quote(value, out);
        out.push(b',');
    }
    if !header.structured_data.is_empty() {
        member("structured_data", out);
        write_elements(&header.structured_data, out);
        out.push(b',');
    }
    text
}

/// `<34>`: facility and severity, without leading zeros.
fn priority(line: &[u8]) -> Option<(u8, &[u8])> {
    let rest = line.strip_prefix(b"<")?;
    let end = rest.iter().take(4).position(|byte| *byte == b'>')?;
    let digits = &rest[..end];
    let is_number = digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first().is_some_and(|first| *first != b'0'));
    let number: u8 = is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())??;
    (number < 192).then_some((number, &rest[end + 1..]))
}

/// RFC 5424, after the priority: `1 TIMESTAMP HOSTNAME APP-NAME PROCID MSGID STRUCTURED-DATA [MSG]`.
fn new_form(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let rest = bytes.strip_prefix(b"1 ")?;
    let (timestamp, rest) = word(rest)?;
    let (host, rest) = word(rest)?;
    let (app_name, rest) = word(rest)?;
    let (procid, rest) = word(rest)?;
    let (msgid, rest) = word(rest)?;
    if timestamp != NIL && !is_new_time(timestamp.as_bytes()) {
        return None;
    }
    let (structured_data, rest) = match rest.strip_prefix(NIL.as_bytes()) {
        Some(rest) => (Elements::new(), rest),
        None => elements(rest)?,
    };
    let text = match rest {
        [] => rest,
        [b' ', text @ ..] => text,
        _ => return None,
    };
    let [timestamp, host, app_name, procid, msgid] =
        [timestamp, host, app_name, procid, msgid].map(|word| if word == NIL { "" } else { word });
    let header = Header { timestamp, host, app_name, procid, msgid, structured_data };
    // A mark that the text is UTF-8 is not of the text (6.4).
    Some((header, text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)))
}

/// RFC 3164, after the priority: `TIMESTAMP HOSTNAME TAG[PID]: TEXT`, without the host if the sender is local. Many
/// write the time as RFC 5424 does.
fn old_form(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (timestamp, rest) = old_time(bytes)?;
    let mut header = Header { timestamp, ..Header::default() };
    if let Some(text) = tag(rest, &mut header) {
        return Some((header, text));
    }
    let Some((host, rest)) = word(rest) else { return Some((header, rest)) };
    header.host = host;
    let text = tag(rest, &mut header).unwrap_or(rest);
    Some((header, text))
}

/// `su: ` or `su[12]: `.
fn tag<'a>(bytes: &'a [u8], header: &mut Header<'a>) -> Option<&'a [u8]> {
    let is_of_name = |byte: &u8| byte.is_ascii_graphic() && !b"[]:".contains(byte);
    let end = bytes.iter().position(|byte| !is_of_name(byte)).unwrap_or(bytes.len());
    let (name, mut rest) = bytes.split_at(end);
    let mut procid: &[u8] = b"";
    if let Some(after) = rest.strip_prefix(b"[") {
        let end = after.iter().position(|byte| !is_of_name(byte))?;
        (procid, rest) = after.split_at(end);
        rest = rest.strip_prefix(b"]")?;
    }
    // A colon within a word, as in `http://`, ends no tag.
    let text = match rest.strip_prefix(b":")? {
        [] => b"",
        [b' ', text @ ..] => text,
        _ => return None,
    };
    if name.is_empty() {
        return None;
    }
    header.app_name = std::str::from_utf8(name).ok()?;
    header.procid = std::str::from_utf8(procid).ok()?;
    Some(text)
}

/// A word of visible ASCII, and what is after the space behind it.
fn word(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|byte| !byte.is_ascii_graphic())?;
    let (word, rest) = bytes.split_at(end);
    let rest = rest.strip_prefix(b" ")?;
    (!word.is_empty()).then_some((std::str::from_utf8(word).ok()?, rest))
}

/// `Oct  1 22:14:15` or a time of RFC 5424, and what is after the space behind it.
fn old_time(bytes: &[u8]) -> Option<(&str, &[u8])> {
    if let Some((time, rest)) = bytes.split_at_checked(15)
        && MONTHS.contains(&&time[..3])
        && (fits(time, b"...  9 99:99:99") || fits(time, b"... 99 99:99:99"))
    {
        return Some((std::str::from_utf8(time).ok()?, rest.strip_prefix(b" ")?));
    }
    word(bytes).filter(|(time, _)| is_new_time(time.as_bytes()))
}

/// `2003-10-11T22:14:15.003Z`, by its form.
fn is_new_time(time: &[u8]) -> bool {
    let Some((time, mut zone)) = time.split_at_checked(19) else { return false };
    if let Some(fraction) = zone.strip_prefix(b".") {
        let end = fraction.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(0);
        if end == 0 {
            return false;
        }
        zone = &fraction[end..];
    }
    fits(time, b"9999-99-99T99:99:99")
        && (zone == b"Z" || fits(zone, b"+99:99") || fits(zone, b"-99:99"))
}

/// Whether each byte is the form's, a digit where that has a 9, and any where it has a dot.
fn fits(bytes: &[u8], form: &[u8]) -> bool {
    bytes.len() == form.len()
        && bytes.iter().zip(form).all(|(byte, form)| match form {
            b'9' => byte.is_ascii_digit(),
            b'.' => true,
            _ => byte == form,
        })
}

/// Structured data, `[ID NAME="VALUE" ...]...`, and what is behind it.
fn elements(bytes: &[u8]) -> Option<(Elements<'_>, &[u8])> {
    let mut found = Elements::new();
    let mut rest = bytes;
    while let Some(after) = rest.strip_prefix(b"[") {
        let (id, after) = name(after)?;
        let mut values: BTreeMap<&str, Vec<Cow<'_, str>>> = BTreeMap::new();
        rest = after;
        while let Some(after) = rest.strip_prefix(b" ") {
            let (param, after) = name(after)?;
            let (value, after) = value(after.strip_prefix(b"=\"")?)?;
            values.entry(param).or_default().push(value);
            rest = after;
        }
        rest = rest.strip_prefix(b"]")?;
        // No two elements may have one name.
        if found.insert(id, values).is_some() {
            return None;
        }
    }
    (!found.is_empty()).then_some((found, rest))
}

fn name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let is_of_name = |byte: &u8| byte.is_ascii_graphic() && !b"=]\"".contains(byte);
    let end = bytes.iter().position(|byte| !is_of_name(byte))?;
    let (name, rest) = bytes.split_at(end);
    (end > 0).then_some((std::str::from_utf8(name).ok()?, rest))
}

/// A value up to its quotation mark. Before a quotation mark, a backslash and a bracket, a backslash is none.
fn value(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let mut whole = Vec::new();
    let mut start = 0;
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
        if bytes[at] == b'"' {
            break;
        }
        if bytes.get(at + 1).is_some_and(|next| b"\"\\]".contains(next)) {
            whole.extend_from_slice(&bytes[start..at]);
            start = at + 1;
        }
        at += 2;
        if at > bytes.len() {
            return None;
        }
    }
    let rest = &bytes[at + 1..];
    if start == 0 {
        return Some((Cow::Borrowed(std::str::from_utf8(&bytes[..at]).ok()?), rest));
    }
    whole.extend_from_slice(&bytes[start..at]);
    Some((Cow::Owned(String::from_utf8(whole).ok()?), rest))
}

fn write_elements(elements: &Elements<'_>, out: &mut Vec<u8>) {
    object(out, elements, |params, out| {
        object(out, params, |values, out| match &values[..] {
            [value] => quote(value, out),
            several => {
                let mut before = b'[';
                for value in several {
                    out.push(before);
                    quote(value, out);
                    before = b',';
                }
                out.push(b']');
            }
        });
    });
}

/// Appends an object.
fn object<T>(out: &mut Vec<u8>, members: &BTreeMap<&str, T>, write: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'{');
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        member(name, out);
        write(value, out);
    }
    out.push(b'}');
}

fn member(name: &str, out: &mut Vec<u8>) {
    quote(name, out);
    out.push(b':');
}

#[cfg(test)]
mod tests;
