//! What a request is answered: a status, and a body that says why, as its protocol has it.

use std::{
    borrow::Cow,
    fmt::{Display, Write},
};

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{
        ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
        WWW_AUTHENTICATE,
    },
};
use serde_json::json;

use super::{
    route::{Form, Protocol},
    status,
};
use crate::{guarantee::Guarantee, intake::depot::Rejected};

/// The most bytes of a reason that quotes a request.
const REASON_BYTES_MAX: usize = 300;

/// Why lines are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The body did not come as it was announced.
    Broken,
    BadGzip,
    /// The body is not what its protocol says, and why.
    Malformed(Box<str>),
    /// A token that is not known, or another form of it.
    Token,
    /// A token that came in plain from another machine.
    Transport,
    /// A page in a browser sent it.
    Page,
    Path,
    /// With those that there are.
    Method(&'static str),
    Slow,
    TooLong,
    /// With those that there are.
    Encoding(&'static str),
    /// With those that there are.
    Type(&'static str),
    /// Other requests have the memory.
    Busy,
    /// The same came before, and was on its way to storage.
    Twice,
    OverQuota,
    /// Storing fails, or the disk is full.
    Stalled,
    Draining,
    /// It was taken, and not stored in time.
    Late,
}

/// What a refusal is called: by HTTP, by gRPC, and by Elasticsearch.
struct Called(StatusCode, i32, &'static str);

impl Refusal {
    /// The body is not what its protocol says.
    pub(super) fn malformed(why: impl Display) -> Refusal {
        let mut why = why.to_string();
        let mut end = REASON_BYTES_MAX.min(why.len());
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        why.truncate(end);
        Refusal::Malformed(why.into())
    }

    #[rustfmt::skip]
    fn called(&self, protocol: Protocol) -> Called {
        const WRONG: &str = "illegal_argument_exception";
        const BUSY: &str = "es_rejected_execution_exception";
        const UNAVAILABLE: &str = "unavailable_shards_exception";
        const SECURITY: &str = "security_exception";
        match self {
            Refusal::Malformed(_) | Refusal::Broken => Called(StatusCode::BAD_REQUEST, 3, WRONG),
            Refusal::BadGzip => Called(StatusCode::BAD_REQUEST, 3, "parse_exception"),
            Refusal::Token => Called(StatusCode::UNAUTHORIZED, 16, SECURITY),
            Refusal::Transport | Refusal::Page => Called(StatusCode::FORBIDDEN, 7, SECURITY),
            Refusal::Path => Called(StatusCode::NOT_FOUND, 5, "resource_not_found_exception"),
            Refusal::Method(_) => Called(StatusCode::METHOD_NOT_ALLOWED, 12, WRONG),
            // The other protocols have none that says to send it again.
            Refusal::Slow if protocol == Protocol::Lines => Called(StatusCode::REQUEST_TIMEOUT, 14, UNAVAILABLE),
            Refusal::TooLong => Called(StatusCode::PAYLOAD_TOO_LARGE, 8, WRONG),
            Refusal::Type(_) if matches!(protocol, Protocol::Elastic(_)) => {
                Called(StatusCode::NOT_ACCEPTABLE, 3, "media_type_header_exception")
            }
            Refusal::Encoding(_) | Refusal::Type(_) => Called(StatusCode::UNSUPPORTED_MEDIA_TYPE, 3, WRONG),
            Refusal::Busy | Refusal::Twice | Refusal::OverQuota => Called(StatusCode::TOO_MANY_REQUESTS, 8, BUSY),
            Refusal::Slow | Refusal::Stalled | Refusal::Draining | Refusal::Late => {
                Called(StatusCode::SERVICE_UNAVAILABLE, 14, UNAVAILABLE)
            }
        }
    }

    fn words(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Refusal::Broken => "the body is shorter than announced, or not in chunks as announced",
            Refusal::BadGzip => "the body is no gzip",
            Refusal::Malformed(why) => why,
            Refusal::Token => {
                "send a token that the daemon knows: Authorization: Bearer TOKEN, ApiKey TOKEN, \
                 or Basic with the token as the password"
            }
            Refusal::Transport => {
                "tokens are taken by TLS or from this machine (--token-transport)"
            }
            Refusal::Page => "a web page may not send lines",
            Refusal::Path => {
                "there is nothing: send to /ingest, /_bulk, /v1/logs or /loki/api/v1/push"
            }
            Refusal::Method(methods) => return format!("send it with {methods}").into(),
            Refusal::Slow => "the body did not come within 30 s",
            Refusal::TooLong => {
                "the body, or what becomes of it, is too long (--connection-budget): send less at a time"
            }
            Refusal::Encoding(packed) => {
                return format!("send the body as it is, or packed: {packed}").into();
            }
            Refusal::Type(types) => return format!("send it as Content-Type: {types}").into(),
            Refusal::Busy => {
                "too many bytes of other requests wait (--budget): send it again later"
            }
            Refusal::Twice => "the same was being stored: send it again to learn what became of it",
            Refusal::OverQuota => "the tenant has no room left (quota=): send it again later",
            Refusal::Stalled => "storing fails or the disk is full: send it again later",
            Refusal::Draining => "the daemon is ending: send it again later",
            Refusal::Late => "not stored within 30 s, and may be stored later: send it again",
        })
    }

    /// A header that its status needs.
    fn header(&self) -> Option<(HeaderName, &'static str)> {
        match *self {
            Refusal::Token => Some((WWW_AUTHENTICATE, "Bearer")),
            Refusal::Method(methods) => Some((ALLOW, methods)),
            Refusal::Encoding(packed) => Some((ACCEPT_ENCODING, packed)),
            Refusal::Busy | Refusal::Twice => Some((RETRY_AFTER, "1")),
            Refusal::OverQuota
            | Refusal::Slow
            | Refusal::Stalled
            | Refusal::Draining
            | Refusal::Late => Some((RETRY_AFTER, "5")),
            _ => None,
        }
    }

    /// Whether bytes of the request may still come.
    fn ends_connection(&self) -> bool {
        !matches!(
            self,
            Refusal::BadGzip
                | Refusal::Malformed(_)
                | Refusal::Twice
                | Refusal::OverQuota
                | Refusal::Late
        )
    }

    pub(super) fn answer(&self, protocol: Protocol) -> Response<Full<Bytes>> {
        let (Called(status_code, code, kind), words) = (self.called(protocol), self.words());
        let body = match protocol {
            Protocol::Lines => format!("{}\n", json!({ "error": words })).into_bytes(),
            Protocol::Elastic(_) => {
                let cause = json!({"type": kind, "reason": words});
                let error = json!({"root_cause": [cause], "type": kind, "reason": words});
                format!("{}\n", json!({"error": error, "status": status_code.as_u16()}))
                    .into_bytes()
            }
            Protocol::Otlp(form) => status::write(form, code, &words),
            Protocol::Loki => format!("{words}\n").into_bytes(),
        };
        let mut answer = with_body(protocol, status_code, body);
        if let Some((name, value)) = self.header() {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if self.ends_connection() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
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
    with_body(Protocol::Lines, StatusCode::OK, text.into_bytes())
}

/// An answer with what its protocol says of bodies.
pub(super) fn with_body(
    protocol: Protocol,
    status: StatusCode,
    body: Vec<u8>,
) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let kind = match protocol {
        Protocol::Lines | Protocol::Otlp(Form::Json) => "application/json",
        Protocol::Elastic(kind) => kind,
        Protocol::Otlp(Form::Protobuf) => "application/x-protobuf",
        Protocol::Loki => "text/plain; charset=utf-8",
    };
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Protocol::Elastic(_) = protocol {
        // Its clients refuse to go on without it.
        let product = HeaderName::from_static("x-elastic-product");
        answer.headers_mut().insert(product, HeaderValue::from_static("Elasticsearch"));
    }
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
    async fn rejected_lines_are_listed_up_to_a_limit_and_counted() {
        let mut rejected = Rejected::new(100);
        (1..=150).for_each(|line| rejected.add(line, "syntax"));
        let told = text(stored(200, &rejected, Guarantee::Durable)).await;
        assert_eq!((&told["lines"], &told["rejected_lines"]), (&200.into(), &150.into()));
        assert_eq!(told["rejected"].as_array().unwrap().len(), 100);
        assert_eq!(told["rejected"][6], json!({"line": 7, "reason": "syntax"}));
        let told = text(stored(1, &Rejected::new(100), Guarantee::Written)).await;
        assert_eq!(told, json!({"lines": 1, "rejected_lines": 0, "guarantee": "written"}));
    }

    const ELASTIC: Protocol = Protocol::Elastic("application/json");

    #[tokio::test]
    async fn each_refusal_has_its_status_and_says_what_to_do() {
        for (refusal, status, header) in [
            (Refusal::Token, 401, Some("www-authenticate")),
            (Refusal::Method("POST"), 405, Some("allow")),
            (Refusal::Slow, 408, Some("retry-after")),
            (Refusal::TooLong, 413, Some("connection")),
            (Refusal::Encoding("gzip"), 415, Some("accept-encoding")),
            (Refusal::Type("application/json"), 415, None),
            (Refusal::Busy, 429, Some("retry-after")),
            (Refusal::OverQuota, 429, Some("retry-after")),
            (Refusal::Stalled, 503, Some("retry-after")),
            (Refusal::BadGzip, 400, None),
            (Refusal::malformed("\"quoted\"\n"), 400, None),
        ] {
            let answer = refusal.answer(Protocol::Lines);
            assert_eq!(answer.status(), status, "{refusal:?}");
            assert!(header.is_none_or(|name| answer.headers().contains_key(name)), "{refusal:?}");
            assert!(!text(answer).await["error"].as_str().unwrap().is_empty());
        }
        let long = Refusal::malformed("\u{e9}".repeat(1000));
        assert!(matches!(long, Refusal::Malformed(why) if why.len() == 300));
    }

    #[tokio::test]
    async fn each_protocol_has_its_own_form_of_it() {
        let answer = Refusal::Busy.answer(ELASTIC);
        assert_eq!(answer.headers()["x-elastic-product"], "Elasticsearch");
        let told = text(answer).await;
        assert_eq!(
            (&told["status"], &told["error"]["type"]),
            (&429.into(), &"es_rejected_execution_exception".into())
        );
        assert_eq!(told["error"]["root_cause"][0]["reason"], told["error"]["reason"]);
        assert_eq!(Refusal::Type("x").answer(ELASTIC).status(), 406);
        for protocol in [ELASTIC, Protocol::Otlp(Form::Json), Protocol::Loki] {
            assert_eq!(Refusal::Slow.answer(protocol).status(), 503, "{protocol:?}");
        }
        let answer = Refusal::OverQuota.answer(Protocol::Otlp(Form::Protobuf));
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (429, &"5".parse().unwrap())
        );
        assert_eq!(answer.headers()["content-type"], "application/x-protobuf");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(b"\x08\x08\x12"), "{body:?}");
        let answer = Refusal::Stalled.answer(Protocol::Loki);
        assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
    }
}
