//! Connections without any I/O: each form of a message, and what is none.

use std::io::Write;

use super::*;
use crate::intake::{
    Recent,
    trial::{Trial, talk},
};

fn trial(bytes: &[u8]) -> Trial {
    let whole = talk::<Session>([bytes].into_iter(), 1000, 200);
    for size in [1, 7] {
        assert_eq!(whole, talk::<Session>(bytes.chunks(size), 1000, 200));
    }
    whole
}

fn lines(trial: &Trial) -> Vec<&str> {
    std::str::from_utf8(&trial.stored).unwrap().lines().collect()
}

/// `[time, {"n": number}]`
fn event(number: u8) -> Vec<u8> {
    [&b"\x92\xd7\0\0\0\0\x07\0\0\0\x09\x81\xa1n"[..], &[number]].concat()
}

const LINES: [&str; 2] = [
    "{\"tag\":\"a.b\",\"time\":7.000000009,\"record\":{\"n\":1}}",
    "{\"tag\":\"a.b\",\"time\":7.000000009,\"record\":{\"n\":2}}",
];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// `[tag, binary, option]`
fn packed(binary: &[u8], option: &[u8]) -> Vec<u8> {
    let length = u16::try_from(binary.len()).unwrap().to_be_bytes();
    [&b"\x93\xa3a.b\xc5"[..], &length, binary, option].concat()
}

#[test]
fn each_form_of_a_message_is_lines_and_its_chunk_comes_back() {
    let both = [event(1), event(2)].concat();
    let chunk = &b"\x81\xa5chunk\xa2\xff\0"[..];
    let packed_chunk = b"\x82\xa5chunk\xd9\x01c\xaacompressed\xa4gzip";
    let gzipped = [gzip(&event(1)), gzip(&event(2))].concat();
    for (message, said) in [
        ([b"\x93\xa3a.b\x92", &both[..], chunk].concat(), &b"\x81\xa3ack\xa2\xff\0"[..]),
        (packed(&both, chunk), b"\x81\xa3ack\xa2\xff\0"),
        (packed(&gzipped, packed_chunk), b"\x81\xa3ack\xd9\x01c"),
        (packed(&both, b"\xc0"), b""),
        ([b"\x92\xa3a.b\x92", &both[..]].concat(), b""),
        // Two messages, with a heartbeat between them.
        (
            [b"\x93\xa3a.b", &event(1)[1..], b"\xc0\x94\xa3a.b", &event(2)[1..], chunk].concat(),
            b"\x81\xa3ack\xa2\xff\0",
        ),
    ] {
        let trial = trial(&message);
        assert_eq!(
            (lines(&trial), &trial.said[..], trial.end),
            (LINES.to_vec(), said, None),
            "{message:x?}"
        );
    }
    // Without events there is nothing to store before the answer.
    let empty = trial(&packed(b"", chunk));
    assert_eq!((lines(&empty), &empty.said[..]), (vec![], &b"\x81\xa3ack\xa2\xff\0"[..]));
}

#[test]
fn nothing_of_a_message_that_is_wrong_is_stored() {
    let bad = &b"\x82\xa5chunk\xa1c\xaacompressed\xa4gzip"[..];
    let right = [b"\x93\xa3a.b", &event(1)[1..]].concat();
    for (wrong, why) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "no array"),
        (b"\x91\xa1a".to_vec(), "too few values"),
        (b"\x95\xa1a\x01\x02\x03\x04".to_vec(), "or too many"),
        (b"\x94\xa1a\x90\xc0\xc0".to_vec(), "or too many"),
        (b"\x92\xa1a\x01".to_vec(), "too few values"),
        (b"\x93\x01\x01\x80".to_vec(), "no tag"),
        (b"\x93\xa1a\xc1\x80".to_vec(), "byte c1"),
        (b"\x93\xa1a\x90\x01".to_vec(), "option"),
        (b"\x92\xa1a\x92\x92\x01\x80\x01".to_vec(), "no array of a time"),
        (packed(b"\x92\x01\x80\x92\x01", b"\xc0"), "ends before its end"),
        (packed(b"\x92\x01\x80\x93\x01\x80\x01", b"\xc0"), "no array of a time"),
        (packed(&event(1), bad), "no gzip"),
        (packed(&gzip(&event(1))[..20], bad), "no gzip"),
        (packed(&gzip(&[0x90; 5000]), bad), "too long"),
        (packed(b"", b"\x81\xaacompressed\xa4zstd"), "other than gzip"),
        (b"\x93\xa1a\x01\xc6\0\x01\0\0".to_vec(), "too long"),
        (b"\xdd\xff\xff\xff\xff".to_vec(), "too long"),
        // All of it has come.
        ([&b"\x92\xa1a\xc5\x04\0"[..], &[0; 1024]].concat(), "too long"),
    ] {
        let trial = trial(&[&right[..], &wrong].concat());
        assert!(trial.end.is_some_and(|end| end.contains(why)), "{why}: {:?}", trial.end);
        assert_eq!((lines(&trial), &trial.said[..]), (vec![LINES[0]], &b""[..]), "{why}");
    }
}

/// Lines are stored in pieces, and acknowledged after the last.
#[test]
fn a_long_tag_is_repeated_and_no_more_is_kept_at_a_time() {
    let events = event(1).repeat(3000);
    let tag = [b'x'; 180];
    let head =
        [&b"\x93\xd9\xb4"[..], &tag, b"\xdc\x0b\xb8", &events, b"\x81\xa5chunk\xa1c"].concat();
    let trial = talk::<Session>([&head[..]].into_iter(), 1 << 20, 1000);
    assert_eq!((lines(&trial).len(), &trial.said[..]), (3000, &b"\x81\xa3ack\xa1c"[..]));
    let mut session = Session::default();
    session.look(&head, 1 << 20).unwrap();
    let recent = Recent::default();
    let lately = Lately { recent: &recent, tenant: None };
    let taken = session.take(&head, 1000, lately).unwrap();
    assert_eq!((taken.next, taken.used, taken.answers.len()), (Next::Rest, 0, 0));
    assert!((PIECE_BYTES..PIECE_BYTES + 1000).contains(&taken.body.len()));
}

#[test]
fn a_tag_has_a_bound_since_each_line_repeats_it() {
    let message = |length: u16| {
        let tag = vec![b't'; length.into()];
        [&b"\x92\xda"[..], &length.to_be_bytes(), &tag, b"\x90"].concat()
    };
    assert!(Message::read(&message(1021), 0).is_ok());
    assert_eq!(Message::read(&message(1022), 0).unwrap_err(), "a tag has more than 1 KiB");
}

#[test]
fn a_message_takes_memory_by_its_bytes_unless_it_is_packed() {
    let look = |bytes: &[u8]| Session::default().look(bytes, 4 << 20).unwrap();
    let plain = [&b"\x93\xa3a.b"[..], &event(1)[1..]].concat();
    assert_eq!(look(&plain), Seen::Whole { memory: PIECE_BYTES + 8 * plain.len() + 100 });
    let gzipped = packed(&gzip(&event(1)), b"\x81\xaacompressed\xa4gzip");
    assert_eq!(look(&gzipped), Seen::Whole { memory: PIECE_BYTES + (8 << 20) });
}
