//! The rules of a connection, each as what happened and what is to be done.

use std::time::Duration;

use super::{late::Late, *};
use crate::{clients::names::NameRule, lines::json::Rules, session::unfinished::FREE_BYTES};

mod encrypted;
mod openings;
mod sizes;

struct Table {
    limits: Limits,
    partials: Held,
    batch: Batch,
    counts: Stats,
    names: Names,
    tenants: Tenants,
    has: Guarantee,
}

impl Table {
    fn new() -> Table {
        let limits = Limits {
            rules: Rules::new(8, Vec::new()),
            line_max: 100,
            long_lines: LongLines::DeadLetter,
            framing: Framing::Lines,
            wrap: Wrap::None,
            budget_each: 300,
            budget_all: 1000,
            commit_max: usize::MAX,
            turn_max: usize::MAX,
            names: (NameRule::Anyone, usize::MAX),
            tokens: Arc::default(),
            senders: Senders::Anyone,
            address_connections: None,
            idle: None,
        };
        let (partials, batch) = (Held::default(), Batch::default());
        let names = Names::default();
        Table {
            limits,
            partials,
            batch,
            counts: Stats::default(),
            names,
            tenants: Tenants::new(&[]),
            has: Guarantee::Durable,
        }
    }

    fn desk(&mut self) -> Desk<'_> {
        Desk {
            limits: &self.limits,
            guarantee: self.has,
            partials: &mut self.partials,
            batch: &mut self.batch,
            names: &self.names,
            tenants: &self.tenants,
            counts: &mut self.counts,
        }
    }

    fn receive(&mut self, connection: &mut Connection, bytes: &[u8]) {
        connection.received(bytes, &mut self.desk());
    }

    fn end(&mut self, connection: &mut Connection) {
        connection.input_ended(&mut self.desk());
    }

    fn commit(&mut self, connection: &mut Connection) {
        let mut marks = Vec::new();
        connection.batch_began(&mut marks);
        self.batch = Batch::default();
        connection.batch_committed();
        connection.resume(&mut self.desk());
    }

    fn steps(&self, connection: &mut Connection) -> Vec<Step> {
        std::iter::from_fn(|| connection.step(&self.limits, false)).collect()
    }
}

fn connection() -> Connection {
    framed(Framing::Lines)
}

fn framed(framing: Framing) -> Connection {
    Connection::new(1, None, framing, None, &Tenants::new(&[]))
}

fn send(text: &str) -> Step {
    Step::Send(text.as_bytes().to_vec())
}

#[test]
fn who_does_not_ask_is_sent_nothing() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"{}\nx\nLOGD 1\n");
    assert_eq!((desk.batch.line_count, desk.batch.letter_count), (1, 2));
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), []);
    desk.end(&mut connection);
    assert_eq!(desk.steps(&mut connection), [Step::Close]);
}

#[test]
fn nothing_is_acknowledged_before_it_is_committed() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"LOGD 1 ack=durable\n{}\n{\n[1]\n");
    assert_eq!(desk.steps(&mut connection), [send("H 1 durable\n")]);
    connection.sent(b"");
    connection.batch_began(&mut Vec::new());
    assert_eq!(desk.steps(&mut connection), []);
    desk.receive(&mut connection, b"2\n3\n");
    connection.batch_committed();
    assert_eq!(desk.steps(&mut connection), [send("N 2 incomplete\nA 3\n")]);
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), [], "one send at a time");
    connection.sent(b"3\n");
    assert_eq!(desk.steps(&mut connection), [send("3\nA 5\n")]);
}

/// The way of a port that was not thought through, kept to be measured.
#[test]
fn with_a_completion_at_a_time_each_answer_is_a_send() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.limits.turn_max = 1;
    desk.receive(&mut connection, b"LOGD 1\nx\n{}\n");
    desk.commit(&mut connection);
    for answer in ["H 1 durable\n", "N 1 syntax\n", "A 2\n"] {
        assert_eq!(desk.steps(&mut connection), [send(answer)]);
        connection.sent(b"");
    }
    assert_eq!(desk.steps(&mut connection), []);
}

#[test]
fn the_newest_acknowledgement_is_enough() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"LOGD 1\n");
    assert_eq!(desk.steps(&mut connection), [send("H 1 durable\n")]);
    for _ in 0..3 {
        desk.receive(&mut connection, b"1\n");
        desk.commit(&mut connection);
    }
    connection.sent(b"");
    assert_eq!(desk.steps(&mut connection), [send("A 3\n")]);
}

const UNKNOWN: &str =
    "E 1 unknown LOGD 1 [ack=written|durable|replicated] [name=NAME] [token=TOKEN]\n";

/// Who comes back is told what is stored, and whom it takes the place of is not listened to.
#[test]
fn a_name_goes_on_where_it_was() {
    let (mut desk, mut first) = (Table::new(), connection());
    desk.receive(&mut first, b"LOGD 1 name=web\n1\n2\n");
    assert_eq!(desk.steps(&mut first), [send("H 1 durable 0\n")]);
    first.sent(b"");
    // Its lines are on their way: what is stored cannot be told yet.
    let mut early = connection();
    desk.receive(&mut early, b"LOGD 1 name=web ack=durable\n3\n");
    assert_eq!(desk.steps(&mut early), [send("E 1 busy\n")]);
    desk.commit(&mut first);
    assert_eq!(desk.steps(&mut first), [send("A 2\n")]);
    first.sent(b"");
    let mut second = connection();
    desk.receive(&mut second, b"LOGD 1 name=web ack=durable\n");
    assert_eq!(desk.steps(&mut second), [send("H 1 durable 2\n")]);
    second.sent(b"");
    desk.receive(&mut first, b"3\n");
    assert!(desk.batch.is_empty(), "the first has lost its name");
    assert_eq!(desk.steps(&mut first), [send("E 1 taken\n")]);
    assert_eq!(desk.counts.refused_greetings.sum(), 2, "busy, and taken");
    desk.receive(&mut second, b"3\nx\n");
    desk.commit(&mut second);
    assert_eq!(desk.steps(&mut second), [send("N 4 syntax\nA 4\n")]);
}

#[test]
fn nobody_is_promised_more_than_is_so() {
    for (has, line, answer) in [
        (Guarantee::Written, "LOGD 1 ack=durable\n", "E 1 weaker written\n"),
        (Guarantee::None, "LOGD 1\n", "E 1 weaker none\n"),
        (Guarantee::Durable, "LOGD 1 name=a name=b\n", UNKNOWN),
        (Guarantee::Durable, "LOGD 1  ack=written\n", UNKNOWN),
        (Guarantee::Durable, "LOGD 1 ack\n", UNKNOWN),
        (Guarantee::Durable, "LOGD 1 name=\n", "E 1 name\n"),
        (Guarantee::Durable, "LOGD 1 name=a/b\n", "E 1 name\n"),
        (
            Guarantee::Durable,
            "LOGD 2\n",
            "E 1 unknown LOGD 1 [ack=written|durable|replicated] [name=NAME] [token=TOKEN]\n",
        ),
    ] {
        let (mut desk, mut connection) = (Table::new(), connection());
        desk.has = has;
        desk.receive(&mut connection, line.as_bytes());
        desk.receive(&mut connection, b"1\n");
        assert!(desk.batch.is_empty(), "what is sent to it is not taken");
        assert_eq!(desk.steps(&mut connection), [send(answer)]);
        let word = answer.split_whitespace().nth(2).unwrap();
        let counted = desk.counts.refused_greetings.each().filter(|(_, count)| *count > 0);
        assert_eq!(counted.collect::<Vec<_>>(), [(word, 1)]);
        connection.sent(b"");
        assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
        connection.receiving_stopped();
        assert_eq!(desk.steps(&mut connection), [Step::EndWriting, Step::Receive]);
        desk.end(&mut connection);
        assert_eq!(desk.steps(&mut connection), [Step::Close]);
    }
}

#[test]
fn the_end_of_input_waits_for_the_commit() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"LOGD 1\n1\n12");
    assert_eq!(desk.partials.bytes, 2);
    desk.end(&mut connection);
    assert_eq!(desk.partials.bytes, 0);
    assert_eq!(desk.steps(&mut connection), [send("H 1 durable\n")]);
    connection.sent(b"");
    assert_eq!(desk.steps(&mut connection), []);
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), [send("N 2 unterminated\nA 2\n")]);
    connection.sent(b"");
    assert_eq!(desk.steps(&mut connection), [Step::Close]);
}

#[test]
fn who_sends_more_than_is_stored_is_not_received_from() {
    let (mut desk, mut connection) = (Table::new(), connection());
    let line = format!("\"{}\"\n", "x".repeat(90));
    for _ in 0..4 {
        desk.receive(&mut connection, line.as_bytes());
    }
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
    connection.receiving_stopped();
    assert_eq!(desk.steps(&mut connection), []);
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), [Step::Receive]);
}

/// Messages that are counted may have anything within but a line's end; a count that is none ends it.
#[test]
fn counted_messages_are_taken_until_a_count_is_none() {
    // Others may come with another framing meanwhile.
    let (mut desk, mut connection) = (Table::new(), framed(Framing::OctetCounting));
    desk.receive(&mut connection, b"6 LOGD 12 {}4 [\n1]5 null\nx2 {}");
    assert_eq!(desk.batch.lines, b"{}\nnull\n");
    assert_eq!(desk.steps(&mut connection), [send("H 1 durable\n"), Step::StopReceiving]);
    connection.sent(b"");
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), [send("N 2 line-end\nN 4 count\nA 4\n")]);
    connection.sent(b"");
    connection.receiving_stopped();
    assert_eq!(desk.steps(&mut connection), [Step::EndWriting, Step::Receive]);
    // In the middle of a message.
    let (mut desk, mut connection) = (Table::new(), framed(Framing::OctetCounting));
    desk.receive(&mut connection, b"10 {\"a\"");
    assert_eq!(desk.partials.bytes, 4);
    desk.end(&mut connection);
    assert_eq!((desk.partials.bytes, desk.batch.letter_count), (0, 1));
}

#[test]
fn all_together_may_hold_so_much() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"1\n");
    assert_eq!(connection.step(&desk.limits, true), Some(Step::StopReceiving));
    connection.receiving_stopped();
    assert_eq!(connection.step(&desk.limits, true), None);
    assert_eq!(connection.step(&desk.limits, false), Some(Step::Receive));
}

/// What is given up is a dead letter when its end comes, and the line after it is none.
#[test]
fn a_line_that_is_given_up_is_told_at_its_end() {
    for (framing, pieces) in [
        (Framing::Lines, [[&b"{}\n"[..], &[b'x'; 10_000]].concat(), b"xx\n{}\n".to_vec()]),
        (
            Framing::OctetCounting,
            [[&b"2 {}10002 "[..], &[b'x'; 10_000]].concat(), b"xx2 {}".to_vec()],
        ),
    ] {
        let (mut desk, mut connection) = (Table::new(), framed(framing));
        (desk.limits.line_max, desk.limits.budget_each) = (100_000, 100_000);
        assert_eq!(connection.unfinished_since(), None);
        desk.receive(&mut connection, &pieces[0]);
        assert_eq!(desk.partials.bytes, 10_000);
        assert!(connection.unfinished_since().is_some());
        connection.give_up_line(&mut desk.partials);
        assert_eq!(desk.partials.bytes, FREE_BYTES);
        desk.receive(&mut connection, &pieces[1]);
        assert_eq!(desk.partials, Held::default());
        assert_eq!(connection.unfinished_since(), None);
        assert_eq!((desk.batch.line_count, desk.batch.letter_count), (2, 1));
        let letter: serde_json::Value = serde_json::from_slice(&desk.batch.letters).unwrap();
        assert_eq!((&letter["reason"], &letter["bytes"]), (&"too-long".into(), &10_002.into()));
    }
}

/// Of a line that is refused nothing is kept, while it goes on or after; it is answered in its turn.
#[test]
fn a_refused_line_is_answered_and_stored_nowhere() {
    let long = [b'x'; 200];
    for (framing, before, after) in [
        (Framing::Lines, &b"LOGD 1\n1\n"[..], &b"\n2\n"[..]),
        (Framing::OctetCounting, b"6 LOGD 11 1200 ", b"1 2"),
    ] {
        let (mut desk, mut connection) = (Table::new(), framed(framing));
        desk.limits.long_lines = LongLines::Refuse;
        desk.receive(&mut connection, &[before, &long[..150]].concat());
        assert_eq!(desk.partials.bytes, 0, "it is too long already");
        desk.receive(&mut connection, &[&long[150..], after].concat());
        assert_eq!((&desk.batch.lines[..], &desk.batch.letters[..]), (&b"1\n2\n"[..], &b""[..]));
        assert_eq!((desk.batch.line_count, desk.batch.refused_count), (2, 1));
        assert_eq!(desk.steps(&mut connection), [send("H 1 durable\n")]);
        connection.sent(b"");
        assert_eq!(desk.steps(&mut connection), [], "its turn comes with the commit");
        desk.commit(&mut connection);
        assert_eq!(desk.steps(&mut connection), [send("N 2 too-long\nA 3\n")]);
        connection.sent(b"");
        // Nothing else is in the batch, and its end does not come.
        let count = if framing == Framing::OctetCounting { &b"200 "[..] } else { b"" };
        desk.receive(&mut connection, &[count, &long[..150]].concat());
        desk.end(&mut connection);
        assert!(desk.batch.bytes() == 0 && !desk.batch.is_empty());
        desk.commit(&mut connection);
        assert_eq!(desk.steps(&mut connection), [send("N 4 too-long\nA 4\n")]);
    }
}

/// Who did not ask for answers goes on as if nothing had happened.
#[test]
fn who_does_not_ask_is_not_told_of_a_refused_line() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.limits.long_lines = LongLines::Refuse;
    desk.receive(&mut connection, &[&[b'x'; 101][..], b"\n1\n"].concat());
    assert_eq!((desk.batch.line_count, desk.batch.refused_count), (1, 1));
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), []);
}

/// The half was counted as the second line. The client was told that two are stored, and skipped the whole line.
#[test]
fn half_a_line_of_a_named_client_has_no_number() {
    for end in [Table::end, |desk: &mut Table, connection: &mut Connection| {
        connection.drain();
        desk.end(connection);
    }] {
        let (mut desk, mut connection) = (Table::new(), connection());
        desk.receive(&mut connection, b"LOGD 1 name=web\n1\n12");
        end(&mut desk, &mut connection);
        assert_eq!((desk.batch.line_count, desk.batch.letter_count), (1, 0));
        assert_eq!(desk.partials, Held::default());
        desk.commit(&mut connection);
        assert_eq!(desk.steps(&mut connection), [send("H 1 durable 0\nA 1\n")]);
        drop(connection);
        assert_eq!(desk.names.marks()[0].line, 1, "it sends the second line again");
    }
}

/// It waited until less was kept, but the rest of the line is what it waited for.
#[test]
fn a_long_line_that_is_not_whole_does_not_stop_its_sender() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.limits.line_max = 298;
    desk.receive(
        &mut connection,
        format!("\"{}\"\n\"{}", "x".repeat(98), "y".repeat(250)).as_bytes(),
    );
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
    connection.receiving_stopped();
    assert_eq!(desk.steps(&mut connection), []);
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), [Step::Receive]);
    desk.receive(&mut connection, b"\"\r");
    desk.receive(&mut connection, b"\n");
    assert_eq!(desk.batch.line_count, 1);
}

/// Half of a line that is short enough is what it was.
#[test]
fn half_a_line_is_a_dead_letter_where_long_ones_are_refused() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.limits.long_lines = LongLines::Refuse;
    desk.receive(&mut connection, &[b'x'; 100]);
    desk.end(&mut connection);
    assert_eq!((desk.batch.letter_count, desk.batch.refused_count), (1, 0));
    assert!(String::from_utf8_lossy(&desk.batch.letters).contains("unterminated"));
}

#[test]
fn who_does_not_read_its_answers_is_not_received_from() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.limits.budget_each = usize::MAX;
    desk.receive(&mut connection, b"LOGD 1\n");
    let _ = desk.steps(&mut connection);
    for _ in 0..5000 {
        desk.receive(&mut connection, b"x\n");
        desk.commit(&mut connection);
    }
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
}

/// What a sender makes of few bytes is bounded too, and nothing of it is lost.
#[test]
fn rejected_lines_do_not_multiply_without_bound() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.limits.budget_each = 100_000;
    desk.limits.budget_all = 1_000_000;
    desk.receive(&mut connection, &b"x\n".repeat(100_000));
    desk.end(&mut connection);
    let mut letters = 0;
    while connection.has_uncommitted() {
        assert!(desk.batch.bytes() < 2_000_000, "{}", desk.batch.bytes());
        letters += desk.batch.letter_count;
        assert!(desk.batch.letter_count > 0, "it is stuck after {letters}");
        desk.commit(&mut connection);
    }
    assert_eq!(letters, 100_000);
    assert_eq!(desk.steps(&mut connection), [Step::Close]);
}

#[test]
fn an_error_closes_when_nothing_is_in_flight() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"LOGD 1\n1\n12");
    let _ = desk.steps(&mut connection);
    connection.receiving_failed(&mut desk.partials);
    assert_eq!(desk.partials.bytes, 0);
    connection.sending_failed();
    assert_eq!(desk.steps(&mut connection), [], "its line is not stored yet");
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), [Step::Close]);
    assert!(connection.is_broken(), "it is counted when it is closed");
}

#[test]
fn a_drain_acknowledges_all_that_came_and_parts() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"LOGD 1\n1\n");
    let _ = desk.steps(&mut connection);
    connection.sent(b"");
    connection.drain();
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
    desk.receive(&mut connection, b"2\n");
    connection.receiving_stopped();
    desk.commit(&mut connection);
    assert_eq!(desk.steps(&mut connection), [send("A 2\n")]);
    connection.sent(b"");
    assert_eq!(desk.steps(&mut connection), [Step::EndWriting, Step::Receive]);
    desk.receive(&mut connection, b"3\n");
    assert!(desk.batch.is_empty(), "what comes after the last word is not taken");
}

/// Who was refused held its place for as long as it liked.
#[test]
fn who_was_told_everything_has_a_limited_time_to_go() {
    let began = Instant::now();
    let (mut desk, mut connection) = (Table::new(), connection());
    let handshake = Duration::from_secs(10);
    let soon = Instant::now() + Duration::from_secs(60);
    desk.receive(&mut connection, b"LOGD 9\n");
    let _ = desk.steps(&mut connection);
    connection.sent(b"");
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
    connection.receiving_stopped();
    assert_eq!(desk.steps(&mut connection), [Step::EndWriting, Step::Receive]);
    desk.receive(&mut connection, b"it goes on talking\n");
    assert_eq!(connection.late(Instant::now(), began, handshake, None), None);
    assert_eq!(connection.late(soon, began, handshake, None), Some(Late::Parting));
    connection.end_for(Late::Parting, &mut desk.desk());
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
    connection.receiving_stopped();
    assert_eq!(desk.steps(&mut connection), [Step::Close]);
    assert!(!connection.is_broken());
}

#[test]
fn who_is_silent_is_ended_where_that_is_asked_for_and_not_before_its_lines_are_stored() {
    let (mut desk, mut connection) = (Table::new(), connection());
    let began = Instant::now();
    let (handshake, idle) = (Duration::from_secs(10), Some(Duration::from_secs(5)));
    let soon = Instant::now() + Duration::from_secs(60);
    assert_eq!(connection.late(soon, began, handshake, None), None);
    assert_eq!(
        connection.late(soon, began, handshake, idle),
        Some(Late::Silence),
        "it never spoke"
    );
    desk.receive(&mut connection, b"1\n");
    assert_eq!(connection.late(soon, began, handshake, idle), None);
    desk.commit(&mut connection);
    assert_eq!(connection.late(Instant::now(), began, handshake, idle), None);
    assert_eq!(
        connection.late(soon, soon, handshake, idle),
        None,
        "what it says was not looked at"
    );
    assert_eq!(connection.late(soon, began, handshake, idle), Some(Late::Silence));
    connection.end_for(Late::Silence, &mut desk.desk());
    assert_eq!(desk.counts.idle_ended, 1);
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
    connection.receiving_stopped();
    assert_eq!(desk.steps(&mut connection), [Step::Close]);
}

#[test]
fn who_has_used_up_a_quota_is_not_received_from_until_there_is_room() {
    let mut desk = Table::new();
    desk.tenants =
        Tenants::new(&[crate::clients::tenants::rule("web,from=10.0.0.0/8,quota=4").unwrap()]);
    let peer = Some("10.0.0.1:2".parse().unwrap());
    let mut connection = Connection::new(1, peer, Framing::Lines, None, &desk.tenants);
    desk.receive(&mut connection, b"1\n2\n");
    assert_eq!(desk.steps(&mut connection), [Step::StopReceiving]);
    // What came before that stays where it is.
    desk.receive(&mut connection, b"3\n");
    connection.receiving_stopped();
    desk.commit(&mut connection);
    assert_eq!((desk.batch.line_count, connection.has_backlog()), (0, true));
    // If there is too little memory for all, this is given up first.
    assert_eq!(connection.kept().unread, connection.kept().bytes);
    assert_eq!(desk.steps(&mut connection), []);
    desk.tenants.removed(&[(0, 4)]);
    connection.resume(&mut desk.desk());
    assert_eq!(desk.batch.line_count, 1);
    assert_eq!(desk.steps(&mut connection), [Step::Receive]);
}

#[test]
fn lines_are_noted_with_who_sent_them() {
    let (mut desk, mut connection) = (Table::new(), connection());
    desk.receive(&mut connection, b"LOGD 1\n1\nx\n22\n3");
    desk.receive(&mut connection, b"3\n");
    let parts = &desk.batch.parts;
    let sums =
        (parts.iter().map(|part| part.lines).sum(), parts.iter().map(|part| part.bytes).sum());
    assert_eq!(sums, (3_u64, 8_u64));
    assert_eq!(desk.batch.lines, b"1\n22\n33\n");
    assert!(desk.batch.held() > desk.batch.bytes());
}
