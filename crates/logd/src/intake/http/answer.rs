//! What a request is answered: a status, and JSON that says why.

use std::fmt::Write;

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{
        ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE,
    },
};

use crate::{guarantee::Guarantee, intake::depot::Rejected};

/// Why lines are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The body did not come as it was announced.
    Broken,
    BadGzip,
    /// A token that is not known, or another form of it.
    Token,
    /// A token that came in plain from another machine.
    Transport,
    /// A page in a browser sent it.
    Page,
    Path,
    Method,
    Slow,
    TooLong,
    Encoding,
    Type,
    /// Other requests have the memory.
    Busy,
    OverQuota,
    /// Storing fails, or the disk is full.
    Stalled,
    Draining,
    /// It was taken, and not stored in time.
    Late,
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Refusal::Broken | Refusal::BadGzip => StatusCode::BAD_REQUEST,
            Refusal::Token => StatusCode::UNAUTHORIZED,
            Refusal::Transport | Refusal::Page => StatusCode::FORBIDDEN,
            Refusal::Path => StatusCode::NOT_FOUND,
            Refusal::Method => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Slow => StatusCode::REQUEST_TIMEOUT,
            Refusal::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Encoding | Refusal::Type => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::Busy | Refusal::OverQuota => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Stalled | Refusal::Draining | Refusal::Late => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Refusal::Broken => "the body is shorter than announced, or not in chunks as announced",
            Refusal::BadGzip => "the body is no gzip",
            Refusal::Token => "send a token that the daemon knows: Authorization: Bearer TOKEN",
            Refusal::Transport => {
                "tokens are taken by TLS or from this machine (--token-transport)"
            }
            Refusal::Page => "a web page may not send lines",
            Refusal::Path => "send lines to /ingest",
            Refusal::Method => "send lines with POST",
            Refusal::Slow => "the body did not come within 30 s",
            Refusal::TooLong => {
                "the body is too long (--connection-budget): send fewer lines at a time"
            }
            Refusal::Encoding => "send the body as it is, or as gzip",
            Refusal::Type => "send lines of JSON: Content-Type: application/x-ndjson",
            Refusal::Busy => {
                "too many bytes of other requests wait (--budget): send it again later"
            }
            Refusal::OverQuota => "the tenant has no room left (quota=): send it again later",
            Refusal::Stalled => "storing fails or the disk is full: send it again later",
            Refusal::Draining => "the daemon is ending: send it again later",
            Refusal::Late => "not stored within 30 s, and may be stored later: send it again",
        }
    }

    /// A header that its status needs.
    fn header(self) -> Option<(HeaderName, &'static str)> {
        match self {
            Refusal::Token => Some((WWW_AUTHENTICATE, "Bearer")),
            Refusal::Method => Some((ALLOW, "POST")),
            Refusal::Encoding => Some((ACCEPT_ENCODING, "gzip")),
            Refusal::Busy => Some((RETRY_AFTER, "1")),
            Refusal::OverQuota | Refusal::Stalled | Refusal::Draining | Refusal::Late => {
                Some((RETRY_AFTER, "5"))
            }
            _ => None,
        }
    }

    /// Whether bytes of the request may still come.
    fn ends_connection(self) -> bool {
        !matches!(self, Refusal::BadGzip | Refusal::OverQuota | Refusal::Late)
    }

    pub(super) fn answer(self) -> Response<Full<Bytes>> {
        let mut answer = json(self.status(), format!("{{\"error\":\"{}\"}}\n", self.words()));
        if let Some((name, value)) = self.header() {
            answer.headers_mut().insert(name, value.parse().expect("a plain word"));
        }
        if self.ends_connection() {
            answer.headers_mut().insert(CONNECTION, "close".parse().expect("a plain word"));
        }
        answer
    }
}

/// All lines are committed, but for rejected ones that the operator does not want to keep.
pub(super) fn stored(
    lines: u64,
    rejected: &Rejected,
    guarantee: Guarantee,
) -> Response<Full<Bytes>> {
    let mut text = format!(
        "{{\"lines\":{lines},\"rejected_lines\":{},\"guarantee\":\"{}\"",
        rejected.count,
        guarantee.name()
    );
    if rejected.count > 0 {
        text += ",\"rejected\":[";
        for (index, (line, reason)) in rejected.first.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            // Writing to memory does not fail.
            let _ = write!(text, "{comma}{{\"line\":{line},\"reason\":\"{reason}\"}}");
        }
        text.push(']');
    }
    text += "}\n";
    json(StatusCode::OK, text)
}

fn json(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let json = "application/json".parse().expect("a plain word");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn text(answer: Response<Full<Bytes>>) -> serde_json::Value {
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(body.ends_with(b"\n"));
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn rejected_lines_are_listed_up_to_a_hundred_and_counted() {
        let mut rejected = Rejected::default();
        (1..=150).for_each(|line| rejected.add(line, "syntax"));
        let told = text(stored(200, &rejected, Guarantee::Durable)).await;
        assert_eq!((&told["lines"], &told["rejected_lines"]), (&200.into(), &150.into()));
        assert_eq!(told["rejected"].as_array().unwrap().len(), 100);
        assert_eq!(told["rejected"][6], serde_json::json!({"line": 7, "reason": "syntax"}));
        let told = text(stored(1, &Rejected::default(), Guarantee::Written)).await;
        assert_eq!(
            told,
            serde_json::json!({"lines": 1, "rejected_lines": 0, "guarantee": "written"})
        );
    }

    #[tokio::test]
    async fn each_refusal_has_its_status_and_says_what_to_do() {
        for (refusal, status, header) in [
            (Refusal::Token, 401, Some("www-authenticate")),
            (Refusal::Method, 405, Some("allow")),
            (Refusal::TooLong, 413, Some("connection")),
            (Refusal::Encoding, 415, Some("accept-encoding")),
            (Refusal::Busy, 429, Some("retry-after")),
            (Refusal::OverQuota, 429, Some("retry-after")),
            (Refusal::Stalled, 503, Some("retry-after")),
            (Refusal::BadGzip, 400, None),
        ] {
            let answer = refusal.answer();
            assert_eq!(answer.status(), status, "{refusal:?}");
            assert!(header.is_none_or(|name| answer.headers().contains_key(name)), "{refusal:?}");
            assert!(!text(answer).await["error"].as_str().unwrap().is_empty());
        }
    }
}
