//! Dead letters: lines that were rejected, as records that say why, and bring the line back whole.

use serde_json::json;

/// A rejected line.
pub(crate) struct Letter<'a> {
    pub(crate) peer: &'a str,
    /// Whose certificate the client showed.
    pub(crate) tenant: Option<&'a str>,
    /// The connection's number, since the daemon started.
    pub(crate) connection: u64,
    /// The line's number in its connection.
    pub(crate) sequence: u64,
    pub(crate) reason: &'static str,
    /// Bytes of the line before what is wrong.
    pub(crate) offset: u64,
    /// All bytes of the line; more than there are in `line` where it was too long to be kept.
    pub(crate) bytes: u64,
    pub(crate) line: &'a [u8],
}

impl Letter<'_> {
    /// Appends it to a batch, as a line of JSON, without what the rest of it says. What is no UTF-8 goes by
    /// hexadecimal digits.
    pub(crate) fn write(&self, batch: &mut Vec<u8>) {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut record = json!({
            "time_ms": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            "peer": self.peer,
            "connection": self.connection,
            "sequence": self.sequence,
            "reason": self.reason,
        });
        if self.offset > 0 {
            record["offset"] = self.offset.into();
        }
        if self.bytes != self.line.len() as u64 {
            record["bytes"] = self.bytes.into();
        }
        if let Some(tenant) = self.tenant {
            record["tenant"] = tenant.into();
        }
        let (name, text) = match std::str::from_utf8(self.line) {
            Ok(text) => ("line", text.to_owned()),
            Err(_) => ("line_hex", self.line.iter().map(|byte| format!("{byte:02x}")).collect()),
        };
        record[name] = text.into();
        batch.extend_from_slice(record.to_string().as_bytes());
        batch.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Rules;

    #[test]
    fn a_letter_is_a_line_of_json_and_brings_the_line_back() {
        for line in [&b"{\"a\":\n"[..], b"\xff\x00", "\u{1}\"\\\u{e9}".as_bytes(), b""] {
            let mut batch = Vec::new();
            let letter = Letter {
                peer: "127.0.0.1:1",
                tenant: None,
                connection: 1,
                sequence: 2,
                reason: "syntax",
                offset: 3,
                bytes: 4,
                line,
            };
            letter.write(&mut batch);
            let record = batch.strip_suffix(b"\n").unwrap();
            Rules::new(2, Vec::new()).check(record).unwrap();
            assert!(!record.contains(&b'\n'));
            let value: serde_json::Value = serde_json::from_slice(record).unwrap();
            assert_eq!(value["reason"], "syntax");
            assert_eq!(
                value.get("bytes").is_none(),
                line.len() == 4,
                "only where it is not the line's"
            );
            match std::str::from_utf8(line) {
                Ok(text) => assert_eq!(value["line"], text),
                Err(_) => assert_eq!(value["line_hex"], "ff00"),
            }
        }
    }
}
