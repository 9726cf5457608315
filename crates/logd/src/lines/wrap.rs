//! `--wrap`: makes a line of JSON of one that is none.
//!
//! This is the one exception to the rule that the daemon stores what it received, and it is off by default. A wrapped
//! line has all of the text, in `message` or in the fields before it. Text that is no UTF-8 is there twice: readable in
//! `message`, and exact in `message_hex`.
//!
//! It decides neither which lines are wrapped nor whether the result is accepted: connections do.

mod syslog;

use clap::ValueEnum;

use crate::lines::text::{quote, quote_hex};

/// What becomes of lines that are no JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wrap {
    /// Not wrapped: such lines become dead letters
    #[default]
    None,
    /// An object with the text of the line: {"message":"..."}
    Raw,
    /// Like raw, with the fields of RFC 5424 or RFC 3164 if the line is syslog
    Syslog,
}

impl Wrap {
    /// Appends the wrapped line, without its end.
    pub(crate) fn write(self, line: &[u8], out: &mut Vec<u8>) {
        out.push(b'{');
        let text = match self {
            Wrap::Syslog => syslog::write_fields(line, out),
            Wrap::None | Wrap::Raw => line,
        };
        out.extend_from_slice(b"\"message\":");
        match std::str::from_utf8(text) {
            Ok(text) => quote(text, out),
            Err(_) => {
                quote(&String::from_utf8_lossy(text), out);
                out.extend_from_slice(b",\"message_hex\":");
                quote_hex(text, out);
            }
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wrapped(wrap: Wrap, line: &[u8]) -> Value {
        let mut out = Vec::new();
        wrap.write(line, &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn any_text_is_a_message() {
        assert_eq!(wrapped(Wrap::Raw, b"<13>a \"b\"\n\0"), json!({"message": "<13>a \"b\"\n\0"}));
        assert_eq!(wrapped(Wrap::Syslog, "caf\u{e9}".as_bytes()), json!({"message": "caf\u{e9}"}));
        assert_eq!(
            wrapped(Wrap::Raw, b"a\xff\xfe"),
            json!({"message": "a\u{fffd}\u{fffd}", "message_hex": "61fffe"})
        );
    }

    #[test]
    fn a_syslog_line_has_its_fields() {
        assert_eq!(
            wrapped(Wrap::Syslog, b"<34>Oct 11 22:14:15 mymachine su[12]: it \xff failed"),
            json!({
                "facility": "auth", "severity": "crit", "timestamp": "Oct 11 22:14:15", "host": "mymachine",
                "app_name": "su", "procid": "12", "message": "it \u{fffd} failed",
                "message_hex": "697420ff206661696c6564",
            })
        );
    }
}
