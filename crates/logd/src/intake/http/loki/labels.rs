//! The labels of a stream as Loki's protobuf has them: `{job="web", host="a\"b"}`, with strings of Go.

use super::super::{answer::Refusal, json::Object, json::write};

/// Writes labels as an object.
pub(super) fn write_object(labels: &str, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let inner = labels.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let mut rest = inner.ok_or_else(|| wrong(labels))?.trim();
    let mut object = Object::begin(out);
    while !rest.is_empty() {
        let (name, behind) = name(rest).ok_or_else(|| wrong(labels))?;
        let behind = behind.trim_start().strip_prefix('=').ok_or_else(|| wrong(labels))?;
        let (value, behind) = quoted(behind.trim_start()).ok_or_else(|| wrong(labels))?;
        write(object.key(&name), &value);
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => {}
            None => return Err(wrong(labels)),
        }
    }
    object.end();
    Ok(())
}

fn wrong(labels: &str) -> Refusal {
    Refusal::malformed(format_args!("labels are not {{NAME=\"VALUE\", ...}}: {labels}"))
}

/// A name and what stands behind it. Names with other signs than letters stand in quotes.
fn name(text: &str) -> Option<(String, &str)> {
    if text.starts_with(['"', '`']) {
        return quoted(text);
    }
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || "_:.".contains(sign);
    let end = text.find(|sign| !is_part(sign)).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

/// A string of Go and what stands behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    if let Some(text) = text.strip_prefix('`') {
        let (own, behind) = text.split_once('`')?;
        return Some((own.replace('\r', ""), behind));
    }
    let mut rest = text.strip_prefix('"')?;
    let mut own = Vec::new();
    loop {
        let end = rest.find(['"', '\\', '\n'])?;
        own.extend_from_slice(&rest.as_bytes()[..end]);
        let (sign, behind) = (rest.as_bytes()[end], &rest[end + 1..]);
        match sign {
            b'"' => return Some((String::from_utf8(own).ok()?, behind)),
            b'\\' => rest = escape(behind, &mut own)?,
            _ => return None,
        }
    }
}

/// Appends what an escape stands for, and gives what stands behind it.
fn escape<'a>(text: &'a str, own: &mut Vec<u8>) -> Option<&'a str> {
    let mut signs = text.chars();
    let sign = signs.next()?;
    let digits = |from: usize, count: usize, radix: u32| {
        let digits = text.get(from..from + count)?;
        // It would take a sign before them.
        let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u32::from_str_radix(digits, radix).ok().filter(|_| are_digits)?;
        Some((number, &text[from + count..]))
    };
    let simple = match sign {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        '"' => b'"',
        'x' => {
            let (byte, behind) = digits(1, 2, 16)?;
            own.push(u8::try_from(byte).ok()?);
            return Some(behind);
        }
        '0'..='7' => {
            let (byte, behind) = digits(0, 3, 8)?;
            own.push(u8::try_from(byte).ok()?);
            return Some(behind);
        }
        'u' | 'U' => {
            let (number, behind) = digits(1, if sign == 'u' { 4 } else { 8 }, 16)?;
            let mut bytes = [0; 4];
            own.extend_from_slice(char::from_u32(number)?.encode_utf8(&mut bytes).as_bytes());
            return Some(behind);
        }
        _ => return None,
    };
    own.push(simple);
    Some(signs.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_an_object() {
        let object = |labels| {
            let mut out = Vec::new();
            write_object(labels, &mut out).ok().map(|()| String::from_utf8(out).unwrap())
        };
        for (labels, expected) in [
            ("{}", "{}"),
            (" { } ", "{}"),
            ("{a=\"b\"}", "{\"a\":\"b\"}"),
            ("{ a = \"b\" , c_1:x=`d\\`, }", "{\"a\":\"b\",\"c_1:x\":\"d\\\\\"}"),
            ("{\"a.b c\"=\"\"}", "{\"a.b c\":\"\"}"),
            (
                r#"{a="\a\b\f\n\r\t\v\\\"\x41\101\u00e9\U0001f600\xc3\xa9}"}"#,
                r#"{"a":"\u0007\b\f\n\r\t\u000b\\\"AAé😀é}"}"#,
            ),
        ] {
            assert_eq!(object(labels).as_deref(), Some(expected), "{labels}");
        }
        for labels in [
            "",
            "{",
            "a=\"b\"",
            "{a}",
            "{a=}",
            "{a=b}",
            "{a=\"b}",
            "{a=\"b\" c=\"d\"}",
            "{=\"b\"}",
            "{,}",
            "{a=\"\\\"}",
            "{a=\"\\xg0\"}",
            "{a=\"\\x+1\"}",
            "{a=\"\\xff\"}",
            "{a=\"\\ud800\"}",
            "{a=\"\\400\"}",
            "{a=\"\\u00\u{e9}\"}",
            "{a=\"\n\"}",
            "{a=`b}",
            "{a~=\"b\"}",
        ] {
            assert_eq!(object(labels), None, "{labels}");
        }
    }
}
