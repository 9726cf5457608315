//! How much is stored of what is rejected, in bytes for each byte that came.

use super::*;

/// What dead letters may take of what came (docs/reference/logd-files.md).
const FACTOR_MAX: usize = 12;

/// Bytes of dead letters, and of what came: that text again and again, in pieces of 16 KiB.
fn stored(rules: Rules, peer: &str, text: &[u8]) -> (usize, usize) {
    let mut desk = Table::new();
    desk.limits.rules = rules;
    (desk.limits.budget_each, desk.limits.budget_all) = (1 << 20, 1 << 20);
    let mut connection =
        Connection::new(1, peer.parse().ok(), Framing::Lines, None, &Tenants::new(&[]));
    let sent = text.repeat((256 << 10) / text.len());
    let mut letters = 0;
    for piece in sent.chunks(16 << 10) {
        desk.receive(&mut connection, piece);
        while connection.has_uncommitted() {
            letters += desk.batch.letters.len();
            desk.commit(&mut connection);
        }
    }
    (letters, sent.len())
}

/// A record for each line took up to 60 times its bytes.
#[test]
fn rejected_lines_take_at_most_twelve_times_their_bytes() {
    let any = || Rules::new(8, Vec::new());
    let strict = || Rules::new(8, vec!["ts:string".parse().unwrap()]);
    let peer = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
    let texts: [(&[u8], Rules); 10] = [
        (b"x\n", any()),
        (b"x\n{\n", any()),
        (b"\xff\n", any()),
        (b"\xff\nx\n", any()),
        (b"\x01\n{\n", any()),
        (b"1\nx\n", any()),
        (b"1\n{\n1\n\xff\n", any()),
        (b"1\n{\n", strict()),
        (b"1\n\xff\n", strict()),
        (b"{}\n\x01\n", strict()),
    ];
    for (text, rules) in texts {
        let (letters, sent) = stored(rules, peer, text);
        println!("{:?}: {:.2}", String::from_utf8_lossy(text), letters as f64 / sent as f64);
        assert!(letters <= FACTOR_MAX * sent, "{letters} of {sent}: {text:?}");
    }
}
