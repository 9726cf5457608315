//! A request becomes lines, and what became of them an answer, by the rules of its protocol.

use std::time::Instant;

use http_body_util::Full;
use hyper::{Response, StatusCode, body::Bytes, header::CONTENT_TYPE};

use super::{
    answer::{Refusal, stored, with_body},
    bulk::{self, Bulk},
    loki, otlp,
    request::Room,
    route::{Form, Protocol, Purpose, Route},
};
use crate::{
    guarantee::Guarantee,
    intake::{
        depot::Rejected,
        recent::{Key, Lately},
    },
};

/// So many rejected lines are listed where the answer does not need each; the rest is only counted.
const REJECTED_MAX: usize = 100;

/// A request whose lines are to be stored.
pub(super) struct Exchange {
    protocol: Protocol,
    kind: Kind,
    /// By what lines are recognised if they come again, as a deposit has them.
    pub(super) keys: Vec<(u64, Key)>,
    begun: Instant,
}

enum Kind {
    Lines,
    Bulk(Bulk),
    Logs(Form),
    /// Whether it was stored before.
    Push(bool),
}

impl Exchange {
    /// The exchange of a request, and its lines.
    pub(super) fn begin(
        route: Route,
        body: Vec<u8>,
        lately: Lately<'_>,
        room: &mut Room<'_>,
    ) -> Result<(Exchange, Vec<u8>), Refusal> {
        room.begin();
        let (begun, mut keys) = (Instant::now(), Vec::new());
        let (kind, lines) = match route.purpose {
            Purpose::Bulk(index) => {
                let mut bulk =
                    bulk::read(body, index.as_deref(), lately, |bytes| room.grow(bytes))?;
                let lines = std::mem::take(&mut bulk.lines);
                keys = std::mem::take(&mut bulk.keys);
                (Kind::Bulk(bulk), lines)
            }
            Purpose::Logs(form) => {
                (Kind::Logs(form), otlp::lines(&body, form, |bytes| room.grow(bytes))?)
            }
            Purpose::Push(form) => {
                // The same times, labels and lines are the same entries to Loki.
                let key = lately.key(b"loki", &body);
                let is_repeated = lately.has(key);
                if !is_repeated {
                    keys.push((0, key));
                }
                let body = if form == Form::Protobuf { unpack(&body, room)? } else { body };
                let lines = loki::lines(&body, form, |bytes| room.grow(bytes))?;
                (Kind::Push(is_repeated), if is_repeated { Vec::new() } else { lines })
            }
            Purpose::Lines | Purpose::About(_) | Purpose::Nothing => (Kind::Lines, body),
        };
        Ok((Exchange { protocol: route.protocol, kind, keys, begun }, lines))
    }

    /// How many rejected lines the answer needs to know.
    pub(super) fn rejected_max(&self) -> usize {
        match self.kind {
            Kind::Bulk(_) => usize::MAX,
            _ => REJECTED_MAX,
        }
    }

    /// How many parts of the request hold no line.
    pub(super) fn refused_items(&self) -> u64 {
        match &self.kind {
            Kind::Bulk(bulk) => bulk.refused(),
            _ => 0,
        }
    }

    /// How many parts of the request were stored before.
    pub(super) fn repeated_items(&self) -> u64 {
        match &self.kind {
            Kind::Bulk(bulk) => bulk.repeated(),
            Kind::Push(is_repeated) => (*is_repeated).into(),
            _ => 0,
        }
    }

    /// All lines are committed, but for rejected ones that the operator does not want to keep.
    pub(super) fn answer(
        &self,
        lines: u64,
        rejected: &Rejected,
        guarantee: Guarantee,
    ) -> Response<Full<Bytes>> {
        match &self.kind {
            Kind::Lines => stored(lines, rejected, guarantee),
            Kind::Bulk(bulk) => {
                let text = bulk.answer(&rejected.first, self.begun.elapsed().as_millis());
                with_body(self.protocol, StatusCode::OK, text)
            }
            Kind::Logs(form) => {
                let first = rejected.first.first().copied();
                let text = otlp::answer(*form, rejected.count, first);
                with_body(self.protocol, StatusCode::OK, text)
            }
            Kind::Push(_) => match rejected.first.first() {
                None => {
                    let mut answer = with_body(self.protocol, StatusCode::NO_CONTENT, Vec::new());
                    answer.headers_mut().remove(CONTENT_TYPE);
                    answer
                }
                // Loki stores the others too, and says it so.
                Some((line, reason)) => {
                    let count = rejected.count;
                    let text = format!(
                        "{count} entries rejected, the first is entry {line}: {reason}; the others are stored\n"
                    );
                    with_body(self.protocol, StatusCode::BAD_REQUEST, text.into_bytes())
                }
            },
        }
    }
}

/// Unpacks snappy. Its length stands in front.
fn unpack(packed: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Refusal> {
    let wrong = |error| Refusal::malformed(format_args!("the body is no snappy: {error}"));
    let bytes = snap::raw::decompress_len(packed).map_err(wrong)?;
    room.grow(bytes)?;
    let unpacked = snap::raw::Decoder::new().decompress_vec(packed).map_err(wrong)?;
    room.begin();
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn snappy_is_unpacked_within_a_bound() {
        let all = Arc::new(Semaphore::new(1 << 10));
        let unpack = |packed: &[u8]| unpack(packed, &mut Room::new(&all, 100 << 10));
        let packed = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
        let bytes = b"line ".repeat(1000);
        assert_eq!(unpack(&packed(&bytes)).unwrap(), bytes);
        assert_eq!(unpack(&packed(&vec![0; 1 << 20])), Err(Refusal::TooLong));
        // It claims four GiB and has nothing.
        assert_eq!(unpack(b"\xff\xff\xff\xff\x0f\0"), Err(Refusal::TooLong));
        let whole = packed(&bytes);
        for wrong in [&b""[..], b"\xff", &whole[..whole.len() - 1], b"{\"streams\":[]}"] {
            let refused = unpack(wrong);
            assert!(matches!(refused, Err(Refusal::Malformed(_) | Refusal::TooLong)), "{wrong:?}");
        }
        assert_eq!(all.available_permits(), 1 << 10);
    }
}
