//! The syntax of strace's lines: a thread, a time, a call with its arguments, a result, a duration.
//!
//! It takes a line apart and knows no syscall. strace prints strings and paths in ASCII with escapes.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

/// A line, without the call's content.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// 0: strace followed one thread only.
    pub(super) tid: u32,
    pub(super) time_ns: u64,
    pub(super) event: Event<'a>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Event<'a> {
    /// A call with everything after its parenthesis.
    Call { name: &'a str, rest: &'a str },
    /// A call that returns in a later line, with the first part of its arguments.
    Unfinished { name: &'a str, begun: &'a str },
    /// The rest of that call.
    Resumed { name: &'a str, rest: &'a str },
    /// The thread ended.
    Ended,
    /// A signal, or a remark of strace.
    Other,
}

/// What follows a call's parenthesis.
#[derive(Debug, PartialEq)]
pub(super) struct Completed<'a> {
    pub(super) arguments: Vec<&'a str>,
    /// As it is printed: `3</path>`, `-1 EBADF (Bad file descriptor)`, `?`.
    pub(super) result: &'a str,
    pub(super) duration_ns: Option<u64>,
}

/// What `-y` or `-yy` prints after a descriptor.
#[derive(Debug, PartialEq)]
pub(super) struct Annotation {
    pub(super) name: OsString,
    /// `char 1:3`, `block 8:0`: only with `-yy`.
    pub(super) device: Option<String>,
}

/// Takes a line apart. None: strace does not write such lines with `-ttt`.
pub(super) fn line(text: &str) -> Option<Line<'_>> {
    let text = text.trim_end();
    let (tid, rest) = match text.strip_prefix("[pid") {
        Some(rest) => {
            let (tid, rest) = rest.split_once(']')?;
            (tid.trim().parse().ok()?, rest.trim_start())
        }
        None => {
            let (word, rest) = text.split_once(' ')?;
            match word.parse() {
                Ok(tid) => (tid, rest.trim_start()),
                Err(_) => (0, text),
            }
        }
    };
    let (time, rest) = rest.split_once(' ')?;
    let time_ns = seconds(time).filter(|_| time.contains('.'))?;
    let rest = rest.trim_start();
    let event = if rest.starts_with("+++ ") {
        Event::Ended
    } else if rest.starts_with("--- ") || rest.starts_with("strace: ") {
        Event::Other
    } else if let Some(rest) = rest.strip_prefix("<... ") {
        let (name, rest) = rest.split_once(" resumed>")?;
        Event::Resumed { name, rest }
    } else {
        let (name, rest) = rest.split_once('(')?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return None;
        }
        match rest.strip_suffix("<unfinished ...>") {
            Some(begun) => Event::Unfinished { name, begun },
            None => Event::Call { name, rest },
        }
    };
    Some(Line { tid, time_ns, event })
}

/// Takes the arguments, the result and the duration apart.
pub(super) fn completed(rest: &str) -> Option<Completed<'_>> {
    let bytes = rest.as_bytes();
    let (mut arguments, mut begin, mut depth, mut at) = (Vec::new(), 0, 0_usize, 0);
    loop {
        match *bytes.get(at)? {
            b'"' => at = end_of_string(bytes, at)?,
            b'<' if begins_annotation(bytes, at) => at = end_of_annotation(bytes, at)?,
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => break,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                arguments.push(rest[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    if !rest[begin..at].trim().is_empty() {
        arguments.push(rest[begin..at].trim());
    }
    let result = rest[at + 1..].trim_start().strip_prefix("= ")?;
    let (result, duration_ns) = match result.rsplit_once(" <") {
        Some((result, time)) if time.ends_with('>') => {
            (result, Some(seconds(time.strip_suffix('>')?)?))
        }
        _ => (result, None),
    };
    Some(Completed { arguments, result: result.trim(), duration_ns })
}

/// A descriptor, with what it refers to.
pub(super) fn descriptor(text: &str) -> Option<(i32, Option<Annotation>)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let number = text[..len].parse().ok()?;
    let rest = &text[len..];
    if !rest.starts_with('<') {
        return Some((number, None));
    }
    let end = end_of_annotation(rest.as_bytes(), 0)?;
    Some((number, annotation(&rest[1..end])))
}

/// The sum of the lengths in a vector or message header, outside of strings.
pub(super) fn vector_bytes(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let (mut at, mut sum) = (0, None);
    while at < bytes.len() {
        if bytes[at] == b'"' {
            at = end_of_string(bytes, at)?;
        } else if let Some(rest) = text[at..].strip_prefix("iov_len=") {
            let len = rest.bytes().take_while(u8::is_ascii_digit).count();
            let length: u64 = rest[..len].parse().ok()?;
            sum = Some(sum.unwrap_or(0_u64).checked_add(length)?);
        }
        at += 1;
    }
    sum
}

/// Seconds with a fraction, as nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let fraction_ns: u64 = format!("{fraction:0<9}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// The place of the quote that ends the string which begins here.
fn end_of_string(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
}

/// A descriptor or `AT_FDCWD` stands before an annotation. `1<<2` has none.
fn begins_annotation(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    before.is_some_and(|byte| byte.is_ascii_digit() || byte == b'D')
        && bytes.get(at + 1) != Some(&b'<')
}

/// The place of the bracket that ends the annotation which begins here. strace escapes brackets in paths, so others are
/// `->` between addresses, and those around a device.
fn end_of_annotation(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut depth = 0;
    for at in begin..bytes.len() {
        match bytes[at] {
            b'<' => depth += 1,
            b'>' if bytes[at - 1] == b'-' => {}
            b'>' if depth == 1 => return Some(at),
            b'>' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn annotation(text: &str) -> Option<Annotation> {
    let (name, device) = match text.split_once('<') {
        Some((name, device)) => (name, Some(device.strip_suffix('>')?.to_owned())),
        None => (text, None),
    };
    Some(Annotation { name: OsString::from_vec(unescaped(name)?), device })
}

/// A string without C's escapes.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes().peekable();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 11,
            b'f' => 12,
            b'x' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            first @ b'0'..=b'7' => {
                let mut value = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|byte| (b'0'..=b'7').contains(byte)) else {
                        break;
                    };
                    value = value * 8 + u32::from(digit - b'0');
                }
                u8::try_from(value).ok()?
            }
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_thread_a_time_and_an_event() {
        let call = Event::Call { name: "close", rest: "3) = 0 <0.000008>" };
        for (text, tid) in [
            ("7 1795679361.2 close(3) = 0 <0.000008>", 7),
            ("[pid  7] 1795679361.200000 close(3) = 0 <0.000008>", 7),
            ("1795679361.2 close(3) = 0 <0.000008>", 0),
        ] {
            let found = line(text).unwrap();
            assert_eq!((found.tid, found.time_ns), (tid, 1_795_679_361_200_000_000));
            assert_eq!(found.event, call);
        }
        let event = |text| line(text).map(|line| line.event);
        assert_eq!(event("7 1.5 +++ exited with 0 +++"), Some(Event::Ended));
        assert_eq!(event("7 1.5 --- SIGCHLD {si_signo=SIGCHLD} ---"), Some(Event::Other));
        let resumed = Event::Resumed { name: "read", rest: "\"a\", 5) = 1 <0.1>" };
        assert_eq!(event("7 1.5 <... read resumed>\"a\", 5) = 1 <0.1>"), Some(resumed));
        for bad in ["", "7", "7 13:02:11 close(3) = 0", "a b c", "7 1.5 what is this", "7 1.x f("] {
            assert_eq!(line(bad), None, "{bad}");
        }
    }

    #[test]
    fn arguments_are_apart_whatever_stands_in_strings_and_paths() {
        let found = completed(
            r#"3</a,b\76c>, "x\", )(", [{iov_base="iov_len=7", iov_len=10}], 2, 1<<2) = 30</p> <0.000015>"#,
        )
        .unwrap();
        let vector = r#"[{iov_base="iov_len=7", iov_len=10}]"#;
        assert_eq!(found.arguments, [r"3</a,b\76c>", r#""x\", )(""#, vector, "2", "1<<2"]);
        assert_eq!((found.result, found.duration_ns), ("30</p>", Some(15_000)));
        assert_eq!(vector_bytes(vector), Some(10));
        assert_eq!(completed("0)   = ?").unwrap().result, "?");
        for cut in ["3, \"x", "3</a", "3, [1", "3", "3)", "3) ="] {
            assert_eq!(completed(cut), None, "{cut}");
        }
    }

    #[test]
    fn a_descriptor_has_a_name() {
        let name = |text| descriptor(text).and_then(|(_, found)| found).map(|found| found.name);
        assert_eq!(name(r"3</tmp/a,b\76c.dat>"), Some("/tmp/a,b>c.dat".into()));
        assert_eq!(name("3<pipe:[7]>"), Some("pipe:[7]".into()));
        let socket = "TCP:[127.0.0.1:1->127.0.0.1:2]";
        assert_eq!(name(&format!("12<{socket}>")), Some(socket.into()));
        let (number, found) = descriptor("0</dev/null<char 1:3>>").unwrap();
        let found = found.unwrap();
        assert_eq!((number, &*found.name), (0, "/dev/null".as_ref()));
        assert_eq!(found.device.as_deref(), Some("char 1:3"));
        assert_eq!(descriptor("7"), Some((7, None)));
        assert_eq!(descriptor("-1"), None);
        assert_eq!(descriptor("AT_FDCWD</tmp>"), None);
    }
}
