//! What a client asks for in its first line, if that is a greeting.

use crate::guarantee::Guarantee;

/// What a greeting asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wish<'a> {
    pub(super) guarantee: Option<Guarantee>,
    pub(super) name: Option<&'a str>,
    pub(super) token: Option<&'a str>,
}

impl Wish<'_> {
    /// Each word once, in any order.
    pub(super) fn read(line: &[u8]) -> Option<Wish<'_>> {
        let mut words = std::str::from_utf8(line).ok()?.strip_prefix("LOGD 1")?.split(' ');
        // Before the first space there is nothing more.
        words.next().filter(|rest| rest.is_empty())?;
        let mut wish = Wish::default();
        for word in words {
            match word.split_once('=')? {
                ("ack", "written") if wish.guarantee.is_none() => {
                    wish.guarantee = Some(Guarantee::Written);
                }
                ("ack", "durable") if wish.guarantee.is_none() => {
                    wish.guarantee = Some(Guarantee::Durable);
                }
                ("ack", "replicated") if wish.guarantee.is_none() => {
                    wish.guarantee = Some(Guarantee::Replicated);
                }
                ("name", name) if wish.name.is_none() => wish.name = Some(name),
                ("token", token) if wish.token.is_none() => wish.token = Some(token),
                _ => return None,
            }
        }
        Some(wish)
    }
}

/// Whether a first line is no log line but asks for something. No JSON begins so.
pub(super) fn greets(line: &[u8]) -> bool {
    line.starts_with(b"LOGD ")
}
