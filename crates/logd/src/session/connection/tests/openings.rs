//! What is meant for another port, and what only looks so.

use super::*;

/// What a page, a forged request or a client that is configured wrongly sends, and then lines.
const STRANGERS: [&[u8]; 6] = [
    b"POST /x HTTP/1.1\r\nHost: logs\r\n\r\n{\"forged\":true}\n{}\n",
    b"PROPFIND /x HTTP/1.1\r\nHost: logs\r\n\r\n{\"forged\":true}\n{}\n",
    b"get / HTTP/1.1\r\n\r\n{}\n",
    b"trace / http/1.0\n\n{}\n",
    b"\r\n\n\r\nPOST / HTTP/1.1\r\n\r\n{}\n",
    b"\x16\x03\x01\x00\x02{}\n{}\n",
];

/// Takes all steps up to the last word, with what was sent.
fn answer(desk: &Table, connection: &mut Connection) -> Vec<u8> {
    let mut answer = Vec::new();
    loop {
        match connection.step(&desk.limits, false) {
            Some(Step::Send(bytes)) => {
                answer.extend(bytes);
                connection.sent(b"");
            }
            Some(Step::StopReceiving) => connection.receiving_stopped(),
            step => {
                assert_eq!(step, Some(Step::EndWriting));
                return answer;
            }
        }
    }
}

/// A page or a forged request may send HTTP to any port; its body was stored as lines. Later only that of ten
/// methods was not.
#[test]
fn what_is_meant_for_another_port_is_answered_and_stores_nothing() {
    for framing in [Framing::Lines, Framing::OctetCounting] {
        for sent in STRANGERS {
            for cut in 1..sent.len() {
                let (mut desk, mut connection) = (Table::new(), framed(framing));
                desk.limits.turn_max = if cut % 2 == 0 { 1 } else { usize::MAX };
                // In two pieces, or byte by byte up to there.
                let size = if cut % 3 == 0 { 1 } else { cut };
                sent[..cut].chunks(size).for_each(|piece| desk.receive(&mut connection, piece));
                desk.receive(&mut connection, &sent[cut..]);
                assert_eq!(desk.partials, Held::default());
                let answer = answer(&desk, &mut connection);
                let is_answer = match sent[0] {
                    22 => answer[..2] == [21, 3] && answer.len() == 7,
                    _ => answer.starts_with(b"HTTP/1.1 400 ") && answer.ends_with(b"\r\n"),
                };
                assert!(is_answer, "{:?}", String::from_utf8_lossy(&answer));
                desk.end(&mut connection);
                assert!(desk.batch.is_empty() && desk.counts.misdirected == 1, "cut at {cut}");
            }
        }
    }
}

/// What looks like a request until it ends is a line like any other.
#[test]
fn half_a_request_is_a_line_without_an_end() {
    for text in [&b"G"[..], b"POST", b"\x16", b"PROPFIND / HTTP/1.1", b"true", b"1"] {
        let (mut desk, mut connection) = (Table::new(), connection());
        desk.receive(&mut connection, text);
        assert!(desk.batch.is_empty());
        assert_eq!(desk.partials.bytes, text.len(), "it is counted");
        desk.end(&mut connection);
        assert_eq!((desk.batch.letter_count, desk.counts.misdirected), (1, 0));
        assert_eq!(desk.partials, Held::default());
    }
    for lines in [&b"GETTY\n{}\n"[..], b"get it\n{}\n", b"x HTTP/1\r\n\n{}\n"] {
        for cut in 1..lines.len() {
            let (mut desk, mut connection) = (Table::new(), connection());
            desk.receive(&mut connection, &lines[..cut]);
            desk.receive(&mut connection, &lines[cut..]);
            assert_eq!((desk.batch.line_count, desk.batch.letter_count), (1, 1));
        }
    }
}

#[test]
fn words_and_numbers_are_lines_however_they_come() {
    let text = b"\n\r\ntrue\r\nnull\n1\n-2 \nfalse\n";
    for size in 1..text.len() {
        let (mut desk, mut connection) = (Table::new(), connection());
        text.chunks(size).for_each(|piece| desk.receive(&mut connection, piece));
        assert_eq!(desk.batch.lines, b"true\nnull\n1\n-2 \nfalse\n", "in pieces of {size}");
    }
}

/// Without an end it is no request for ever, and its memory is that of an unfinished line.
#[test]
fn what_is_held_back_has_the_limits_of_an_unfinished_line() {
    for framing in [Framing::Lines, Framing::OctetCounting] {
        let (mut desk, mut connection) = (Table::new(), framed(framing));
        (desk.limits.line_max, desk.limits.budget_each) = (100_000, 100_000);
        desk.receive(&mut connection, b"\nPROPFIND /");
        let (began, soon) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let (handshake, idle) = (Duration::from_secs(10), Some(Duration::from_secs(5)));
        let late = connection.late(soon, began, handshake, idle);
        assert_eq!(late, Some(Late::Silence));
        desk.receive(&mut connection, &[b'x'; 6000]);
        assert_eq!(desk.partials.bytes, 6010);
        assert!(connection.unfinished_since().is_some());
        connection.give_up_line(&mut desk.partials);
        assert_eq!(desk.partials.bytes, FREE_BYTES);
        desk.receive(&mut connection, b"x\n1\n");
        let reason = match framing {
            Framing::Lines => "too-long",
            Framing::OctetCounting => "count",
        };
        assert!(String::from_utf8_lossy(&desk.batch.letters).contains(reason), "{framing:?}");
        assert_eq!((desk.batch.letter_count, desk.counts.misdirected), (1, 0));
        assert_eq!(desk.partials, Held::default());
    }
    // Beyond 8 KiB, or what a connection may hold, it is a line.
    for budget in [1000, 100_000] {
        let (mut desk, mut connection) = (Table::new(), connection());
        (desk.limits.line_max, desk.limits.budget_each) = (budget, budget);
        desk.receive(&mut connection, b"x ");
        for _ in 0..900 {
            desk.receive(&mut connection, &[b'x'; 10]);
        }
        assert_eq!(desk.partials.bytes, 9002.min(budget));
        desk.receive(&mut connection, b" HTTP/1.1\n");
        assert_eq!((desk.batch.letter_count, desk.counts.misdirected), (1, 0));
    }
}
