//! Whether a request may be taken, and its body: read with a bound on time and memory, and unpacked.

use std::{io::Read, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, Request,
    body::{Body, Incoming},
    header::{CONTENT_ENCODING, CONTENT_TYPE, ORIGIN},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    answer::Refusal,
    route::{Form, Purpose, Route, word},
};
use crate::intake::shared::PERMIT_BYTES;

/// How long a body may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Unpacked bytes at a time.
const PIECE_BYTES: usize = 64 << 10;
/// What lines of JSON are called; the first is what a client should call them.
const LINES: &[&str] = &[
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/jsonlines",
    "application/json",
    "application/octet-stream",
    "text/plain",
    "",
];
/// The same, of Elasticsearch.
const BULK: &[&str] = &[
    "application/x-ndjson",
    "application/json",
    "application/vnd.elasticsearch+x-ndjson",
    "application/vnd.elasticsearch+json",
    "",
];

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
}

/// Checks what is asked for, by all but the body.
pub(super) fn check(
    route: &Route,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Encoding, Refusal> {
    // A browser says so if a page sends a request to another origin (Fetch, 3.2), whatever the page wants.
    if headers.contains_key(ORIGIN) {
        return Err(Refusal::Page);
    }
    if route.purpose == Purpose::Nothing {
        return Err(Refusal::Path);
    }
    if !route.methods.split(", ").any(|own| own == method.as_str()) {
        return Err(Refusal::Method(route.methods));
    }
    let (types, wanted) = match &route.purpose {
        Purpose::Lines => (LINES, LINES[0]),
        Purpose::Bulk(_) => (BULK, BULK[0]),
        Purpose::Logs(_) => (
            &["application/json", "application/x-protobuf"][..],
            "application/json or application/x-protobuf",
        ),
        // They have no body, or of any type.
        Purpose::About(_) | Purpose::Push(_) | Purpose::Nothing => (&[][..], ""),
    };
    let kind = word(headers, CONTENT_TYPE).map_err(|_| Refusal::Type(wanted))?;
    if !types.is_empty() && !types.contains(&kind.as_str()) {
        return Err(Refusal::Type(wanted));
    }
    let is_snappy = route.purpose == Purpose::Push(Form::Protobuf);
    match word(headers, CONTENT_ENCODING).as_deref() {
        Ok("" | "identity") => Ok(Encoding::Plain),
        Ok("gzip" | "x-gzip") => Ok(Encoding::Gzip),
        // Such a body always is, whether its client says so or not.
        Ok("snappy") if is_snappy => Ok(Encoding::Plain),
        _ => Err(Refusal::Encoding("gzip")),
    }
}

/// The memory of all requests, of which each takes what its body has.
pub(super) struct Room<'a> {
    all: &'a Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    /// What was taken before, and what since.
    before: usize,
    bytes: usize,
    bytes_max: usize,
    all_max: usize,
}

impl<'a> Room<'a> {
    pub(super) fn new(all: &'a Arc<Semaphore>, bytes_max: usize) -> Room<'a> {
        Room { all, taken: None, before: 0, bytes: 0, bytes_max, all_max: usize::MAX }
    }

    /// Says how much there is for all requests together. More than that would never become free.
    pub(super) fn within(self, all_max: usize) -> Room<'a> {
        Room { all_max, ..self }
    }

    /// What is taken from here on is for something else, which may have as much again.
    pub(super) fn begin(&mut self) {
        self.before += std::mem::take(&mut self.bytes);
    }

    /// Takes as much as so many bytes need.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.bytes_max || self.before + bytes > self.all_max {
            return Err(Refusal::TooLong);
        }
        if bytes <= self.bytes {
            return Ok(());
        }
        let has = (self.before + self.bytes).div_ceil(PERMIT_BYTES);
        let more = (self.before + bytes).div_ceil(PERMIT_BYTES) - has;
        if more > 0 {
            self.take_permits(u32::try_from(more).map_err(|_| Refusal::TooLong)?)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    fn take_permits(&mut self, count: u32) -> Result<(), Refusal> {
        let permit = self.all.clone().try_acquire_many_owned(count).map_err(|_| Refusal::Busy)?;
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            None => self.taken = Some(permit),
        }
        Ok(())
    }

    pub(super) fn take(mut self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.take_permits(0)?;
        self.taken.ok_or(Refusal::Busy)
    }
}

/// Reads a whole body.
pub(super) async fn body(
    request: &mut Request<Incoming>,
    encoding: Encoding,
    room: &mut Room<'_>,
) -> Result<Vec<u8>, Refusal> {
    let incoming = request.body_mut();
    // What is only announced takes no memory from others.
    if incoming.size_hint().lower() > room.bytes_max as u64 {
        return Err(Refusal::TooLong);
    }
    let mut body = Vec::new();
    let read = async {
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|_| Refusal::Broken)?;
            if let Ok(data) = frame.into_data() {
                room.grow(body.len() + data.len())?;
                body.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    timeout(BODY_TIME, read).await.map_err(|_| Refusal::Slow)??;
    match encoding {
        Encoding::Plain => Ok(body),
        Encoding::Gzip => unpack(&body, room),
    }
}

/// Unpacks gzip, at most as much as a body may have.
fn unpack(packed: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Refusal> {
    let mut unpacked = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(packed);
    loop {
        let before = unpacked.len();
        room.grow(packed.len() + before + PIECE_BYTES.min(room.bytes_max - packed.len() - before))?;
        let mut piece = decoder.by_ref().take(PIECE_BYTES as u64);
        let count = piece.read_to_end(&mut unpacked).map_err(|_| Refusal::BadGzip)?;
        if packed.len() + unpacked.len() > room.bytes_max {
            return Err(Refusal::TooLong);
        }
        if count < PIECE_BYTES {
            return Ok(unpacked);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use hyper::header::HeaderValue;

    use super::{super::route::find, *};

    fn headers(all: &[(hyper::header::HeaderName, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_is_asked_for_is_checked_before_the_body_comes() {
        let of = |path: &str, method: Method, all: &[_]| {
            let headers = headers(all);
            check(&find(path, &headers), &method, &headers)
        };
        let post = |all: &[_]| of("/ingest", Method::POST, all);
        assert_eq!(post(&[]), Ok(Encoding::Plain));
        assert_eq!(
            post(&[(CONTENT_TYPE, "Application/X-NDJSON; charset=utf-8")]),
            Ok(Encoding::Plain)
        );
        assert_eq!(post(&[(CONTENT_ENCODING, "GZIP")]), Ok(Encoding::Gzip));
        assert_eq!(post(&[(CONTENT_ENCODING, "br")]), Err(Refusal::Encoding("gzip")));
        assert_eq!(post(&[(CONTENT_TYPE, "text/html")]), Err(Refusal::Type(LINES[0])));
        assert_eq!(post(&[(ORIGIN, "null")]), Err(Refusal::Page));
        assert_eq!(of("/x", Method::POST, &[]), Err(Refusal::Path));
        assert_eq!(of("/ingest", Method::PUT, &[]), Err(Refusal::Method("POST")));
        assert_eq!(of("/", Method::HEAD, &[]), Ok(Encoding::Plain));
        assert_eq!(of("/", Method::POST, &[]), Err(Refusal::Method("GET, HEAD")));
        let compatible = "application/vnd.elasticsearch+x-ndjson; compatible-with=8";
        assert_eq!(of("/_bulk", Method::PUT, &[(CONTENT_TYPE, compatible)]), Ok(Encoding::Plain));
        assert_eq!(
            of("/_bulk", Method::POST, &[(CONTENT_TYPE, "text/plain")]),
            Err(Refusal::Type(BULK[0]))
        );
        let otlp = |kind| of("/v1/logs", Method::POST, &[(CONTENT_TYPE, kind)]);
        assert_eq!(otlp("application/x-protobuf"), Ok(Encoding::Plain));
        assert!(matches!(otlp("application/grpc"), Err(Refusal::Type(_))));
        assert!(matches!(of("/v1/logs", Method::POST, &[]), Err(Refusal::Type(_))));
        let snappy = |kind| {
            let headers = [(CONTENT_TYPE, kind), (CONTENT_ENCODING, "snappy")];
            of("/loki/api/v1/push", Method::POST, &headers)
        };
        assert_eq!(snappy("application/x-protobuf"), Ok(Encoding::Plain));
        assert_eq!(snappy("application/json"), Err(Refusal::Encoding("gzip")));
    }

    #[test]
    fn the_memory_of_all_phases_is_taken_and_given_back() {
        let all = Arc::new(Semaphore::new(100));
        let mut room = Room::new(&all, 40 << 10);
        room.grow(30 << 10).unwrap();
        room.grow(1).unwrap();
        assert_eq!(room.grow(50 << 10), Err(Refusal::TooLong));
        assert_eq!(all.available_permits(), 70);
        room.begin();
        room.grow((40 << 10) - 1).unwrap();
        assert_eq!(all.available_permits(), 30);
        room.begin();
        room.grow(0).unwrap();
        assert_eq!(room.grow(40 << 10), Err(Refusal::Busy));
        drop(room.take().unwrap());
        assert_eq!(all.available_permits(), 100);
        drop(Room::new(&all, 10).take().unwrap());
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_unpacked_within_a_bound_and_gives_its_memory_back() {
        let all = Arc::new(Semaphore::new(4 << 10));
        let lines = b"{\"a\":1}\n".repeat(20_000);
        let mut room = Room::new(&all, 1 << 20);
        assert_eq!(unpack(&packed(&lines), &mut room).unwrap(), lines);
        drop(room.take().unwrap());
        assert_eq!(all.available_permits(), 4 << 10);
        let mut room = Room::new(&all, 1 << 20).within((1 << 20) + 1);
        room.grow(1 << 20).unwrap();
        room.begin();
        assert_eq!(room.grow(2), Err(Refusal::TooLong), "it would never become free");
        drop(room);
        // A bomb: a thousand times as long as it came.
        let bomb = packed(&vec![b' '; 64 << 20]);
        assert_eq!(unpack(&bomb, &mut Room::new(&all, 1 << 20)), Err(Refusal::TooLong));
        let whole = packed(&lines);
        let cut = &whole[..whole.len() - 9];
        assert_eq!(unpack(cut, &mut Room::new(&all, 1 << 20)), Err(Refusal::BadGzip));
        assert_eq!(unpack(b"{}\n", &mut Room::new(&all, 1 << 20)), Err(Refusal::BadGzip));
        let few = Arc::new(Semaphore::new(10));
        assert_eq!(unpack(&whole, &mut Room::new(&few, 1 << 20)), Err(Refusal::Busy));
        assert_eq!((few.available_permits(), all.available_permits()), (10, 4 << 10));
    }
}
