//! The answers of the daemon's own page: a status, headers and a body.

use std::{
    io::{self, Write},
    net::TcpStream,
};

/// What a browser may load and run for an answer: nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// A whole answer.
pub(super) struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
    /// What a browser may load and run for it.
    policy: String,
}

impl Answer {
    pub(super) fn new(status: u16, kind: &'static str, body: String) -> Answer {
        Answer { status, kind, body, policy: NOTHING.to_owned() }
    }

    pub(super) fn text(status: u16, body: &str) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", body.to_owned())
    }

    /// Lets a browser load and run this.
    pub(super) fn with_policy(self, policy: String) -> Answer {
        Answer { policy, ..self }
    }

    pub(super) fn write(&self, mut stream: &TcpStream, has_body: bool) -> io::Result<()> {
        let len = format!("Content-Length: {}\r\n", self.body.len());
        let head = head(self.status, self.kind, &self.policy, &len);
        let body = if has_body { &*self.body } else { "" };
        stream.write_all([&head, body].concat().as_bytes())
    }
}

/// The head of an answer whose body ends with the connection.
pub(super) fn head_of_stream(kind: &str) -> String {
    head(200, kind, NOTHING, "")
}

fn head(status: u16, kind: &str, policy: &str, more: &str) -> String {
    let (words, own) = match status {
        200 => ("OK", ""),
        400 => ("Bad Request", ""),
        401 => ("Unauthorized", "WWW-Authenticate: Bearer\r\n"),
        403 => ("Forbidden", ""),
        404 => ("Not Found", ""),
        405 => ("Method Not Allowed", "Allow: GET, HEAD\r\n"),
        408 => ("Request Timeout", ""),
        431 => ("Request Header Fields Too Large", ""),
        _ => ("Service Unavailable", "Retry-After: 1\r\n"),
    };
    format!(
        "HTTP/1.1 {status} {words}\r\nContent-Type: {kind}\r\n{more}{own}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Content-Security-Policy: {policy}\r\nConnection: close\r\n\r\n"
    )
}
