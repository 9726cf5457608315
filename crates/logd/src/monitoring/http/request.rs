//! Reads the head of a request, within a time and a number of bytes. It answers nothing.

use std::{
    io::{self, Read},
    net::TcpStream,
    time::Instant,
};

/// The most bytes of a head.
const HEAD_BYTES: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// What a client asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    For(Head),
    /// It is no request: the status, and why.
    Wrongly(u16, &'static str),
}

/// The parts of a head that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) path: String,
    /// What comes after the question mark.
    pub(super) query: String,
    pub(super) host: Option<String>,
    pub(super) origin: Option<String>,
    /// Where a browser says that the request comes from (`Sec-Fetch-Site`).
    pub(super) site: Option<String>,
    pub(super) authorization: Option<String>,
}

/// Reads the head of a request.
pub(super) fn read(stream: &TcpStream, until: Instant) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let count = match read_until(stream, &mut piece, until) {
            Ok(None) => return Ok(Asked::Wrongly(408, "too slow\n")),
            Ok(Some(0)) => return Ok(Asked::Wrongly(400, "no request\n")),
            Ok(Some(count)) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&piece[..count]);
        if let Some(asked) = parse(&bytes) {
            return Ok(asked);
        }
    }
}

/// What bytes ask for; nothing if more has to come.
pub(super) fn parse(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {
            Some(head(&request).map_or_else(|why| Asked::Wrongly(400, why), Asked::For))
        }
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => None,
        Ok(httparse::Status::Partial) => Some(Asked::Wrongly(431, "too long\n")),
        Err(_) => Some(Asked::Wrongly(400, "no request\n")),
    }
}

fn head(request: &httparse::Request<'_, '_>) -> Result<Head, &'static str> {
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        ..Head::default()
    };
    for header in &*request.headers {
        let place = match header.name.to_ascii_lowercase().as_str() {
            "host" => &mut head.host,
            "origin" => &mut head.origin,
            "sec-fetch-site" => &mut head.site,
            "authorization" => &mut head.authorization,
            _ => continue,
        };
        // Whoever is in front of the daemon may have looked at the other one.
        if place.is_some() {
            return Err("a header is repeated that may occur only once\n");
        }
        *place = Some(String::from_utf8_lossy(header.value).trim().to_owned());
    }
    Ok(head)
}

/// Reads what comes until then; nothing if the time is over.
fn read_until(
    mut stream: &TcpStream,
    piece: &mut [u8],
    until: Instant,
) -> io::Result<Option<usize>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(None);
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(piece).map(Some)
}

/// Reads until the other end closes, or until then, however slowly it sends.
pub(super) fn drain(stream: &TcpStream, until: Instant) -> io::Result<()> {
    let mut piece = [0; 1024];
    for _ in 0..HEAD_BYTES / piece.len() {
        if read_until(stream, &mut piece, until)?.unwrap_or(0) == 0 {
            break;
        }
    }
    Ok(())
}
