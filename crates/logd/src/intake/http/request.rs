//! What a request asks for, and its body: read with a bound on time and memory, and unpacked.

use std::{io::Read, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, Request,
    body::{Body, Bytes, Incoming},
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, ORIGIN},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::answer::Refusal;
use crate::intake::shared::PERMIT_BYTES;

/// How long a body may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How long and how much of a refused body is read.
const DISCARD_TIME: Duration = Duration::from_secs(1);
const DISCARD_BYTES: usize = 16 << 20;
/// Unpacked bytes at a time.
const PIECE_BYTES: usize = 64 << 10;
/// What lines of JSON are called.
const TYPES: [&str; 8] = [
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/jsonlines",
    "application/json",
    "application/octet-stream",
    "text/plain",
];

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
}

/// Checks what is asked for, by all but the body.
pub(super) fn check(path: &str, method: &Method, headers: &HeaderMap) -> Result<Encoding, Refusal> {
    // A browser says so if a page sends a request to another origin (Fetch, 3.2), whatever the page wants.
    if headers.contains_key(ORIGIN) {
        return Err(Refusal::Page);
    }
    if path != "/ingest" {
        return Err(Refusal::Path);
    }
    if method != Method::POST {
        return Err(Refusal::Method);
    }
    let word = |name| match headers.get(name) {
        None => Some(String::new()),
        Some(value) => value.to_str().ok().map(|word| word.trim().to_ascii_lowercase()),
    };
    let kind = word(CONTENT_TYPE).ok_or(Refusal::Type)?;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        return Err(Refusal::Type);
    }
    match word(CONTENT_ENCODING).as_deref() {
        Some("" | "identity") => Ok(Encoding::Plain),
        Some("gzip" | "x-gzip") => Ok(Encoding::Gzip),
        _ => Err(Refusal::Encoding),
    }
}

/// The token of a request, if it has one.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let (scheme, token) =
        value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or(Refusal::Token)?;
    match scheme.eq_ignore_ascii_case("bearer") {
        true => Ok(Some(token.trim())),
        false => Err(Refusal::Token),
    }
}

/// The memory of all requests, of which each takes what its body has.
pub(super) struct Room<'a> {
    all: &'a Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    bytes: usize,
    bytes_max: usize,
}

impl<'a> Room<'a> {
    pub(super) fn new(all: &'a Arc<Semaphore>, bytes_max: usize) -> Room<'a> {
        Room { all, taken: None, bytes: 0, bytes_max }
    }

    /// Takes as much as a body of so many bytes needs.
    fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.bytes_max {
            return Err(Refusal::TooLong);
        }
        let has = self.bytes.div_ceil(PERMIT_BYTES);
        let more = bytes.div_ceil(PERMIT_BYTES).saturating_sub(has);
        self.bytes = self.bytes.max(bytes);
        let more = u32::try_from(more).map_err(|_| Refusal::TooLong)?;
        let permit = self.all.clone().try_acquire_many_owned(more).map_err(|_| Refusal::Busy)?;
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            None => self.taken = Some(permit),
        }
        Ok(())
    }

    pub(super) fn take(mut self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.grow(0)?;
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

/// Reads what is left of a body that is refused, for a time and so much of it: a connection that is closed over unread
/// bytes is reset, and its client may never see the answer (RFC 9112, 9.6).
pub(super) async fn discard(request: &mut Request<Incoming>) {
    if request.headers().contains_key(EXPECT) {
        // The client waits for the answer.
        return;
    }
    let mut bytes = 0;
    let _ = timeout(DISCARD_TIME, async {
        while bytes < DISCARD_BYTES
            && let Some(Ok(frame)) = request.body_mut().frame().await
        {
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    })
    .await;
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

    use super::*;

    fn headers(all: &[(hyper::header::HeaderName, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_is_asked_for_is_checked_before_the_body_comes() {
        let post = |all: &[_]| check("/ingest", &Method::POST, &headers(all));
        assert_eq!(post(&[]), Ok(Encoding::Plain));
        assert_eq!(
            post(&[(CONTENT_TYPE, "Application/X-NDJSON; charset=utf-8")]),
            Ok(Encoding::Plain)
        );
        assert_eq!(post(&[(CONTENT_ENCODING, "GZIP")]), Ok(Encoding::Gzip));
        assert_eq!(post(&[(CONTENT_ENCODING, "br")]), Err(Refusal::Encoding));
        assert_eq!(post(&[(CONTENT_TYPE, "text/html")]), Err(Refusal::Type));
        assert_eq!(post(&[(ORIGIN, "null")]), Err(Refusal::Page));
        assert_eq!(check("/", &Method::POST, &HeaderMap::new()), Err(Refusal::Path));
        assert_eq!(check("/ingest", &Method::PUT, &HeaderMap::new()), Err(Refusal::Method));
    }

    #[test]
    fn a_token_is_a_bearer() {
        let of =
            |value| token(&headers(&[(AUTHORIZATION, value)])).map(|own| own.map(str::to_owned));
        assert_eq!(of("bearer  abc"), Ok(Some("abc".to_owned())));
        assert_eq!((of("Basic abc"), of("abc")), (Err(Refusal::Token), Err(Refusal::Token)));
        assert_eq!(token(&HeaderMap::new()), Ok(None));
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
