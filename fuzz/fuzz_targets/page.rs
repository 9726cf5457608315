//! What the status page of the log daemon makes of a request: of any bytes, and of some that are nearly right.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

#[derive(Arbitrary, Debug)]
enum Piece<'a> {
    Any(&'a [u8]),
    /// The first line of a request for lines, with one of the parameters.
    Search(u8, &'a str),
    /// One of the headers that matter, with a value.
    Header(u8, &'a str),
    /// The server's own address as the host, or a page of it as the origin.
    Own(bool),
    End,
}

impl Piece<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        const NAMES: [&str; 8] =
            ["tenant", "peer", "match", "where", "since", "until", "limit", "follow"];
        const HEADERS: [&str; 5] = ["Host", "Origin", "Sec-Fetch-Site", "Authorization", "X"];
        let own = match self {
            Piece::Any(bytes) => return out.extend_from_slice(bytes),
            Piece::Search(name, value) => {
                let name = NAMES[usize::from(*name) % NAMES.len()];
                format!("GET /search?{name}={value}&{name}= HTTP/1.1\r\n")
            }
            Piece::Header(name, value) => {
                format!("{}: {value}\r\n", HEADERS[usize::from(*name) % HEADERS.len()])
            }
            Piece::Own(true) => "Host: 127.0.0.1\r\n".to_owned(),
            Piece::Own(false) => "Origin: http://127.0.0.1\r\n".to_owned(),
            Piece::End => "\r\n".to_owned(),
        };
        out.extend_from_slice(own.as_bytes());
    }
}

fuzz_target!(|parts: (Vec<Piece>, &[u8])| {
    let mut bytes = Vec::new();
    parts.0.iter().for_each(|piece| piece.write(&mut bytes));
    fuzzing::page(&bytes, parts.1);
});
