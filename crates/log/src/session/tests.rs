//! The session against a model of the daemon, and against daemons that say what cannot be.

use proptest::prelude::*;

use super::*;
use crate::{backlog::Memory, error::Refusal};

/// A daemon as its protocol describes it: batches, commits, answers, crashes.
#[derive(Default)]
struct Daemon {
    /// Empty for a daemon that does not tell it.
    directory: &'static str,
    stored: Vec<String>,
    /// Lines that are not committed; a crash loses them.
    batch: Vec<String>,
    /// Half of a line.
    partial: Vec<u8>,
    /// What was answered and has not arrived.
    answers: Vec<u8>,
    is_greeted: bool,
}

impl Daemon {
    fn receive(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let rest = self.partial.split_off(end + 1);
            let line = std::mem::replace(&mut self.partial, rest);
            let line = String::from_utf8(line).unwrap().trim_end().to_owned();
            if self.is_greeted {
                self.batch.push(line);
            } else {
                assert_eq!(line, "LOGD 1 name=web");
                self.is_greeted = true;
                let hello = format!("H 1 durable {} {}", self.stored.len(), self.directory);
                self.answers.extend(format!("{}\n", hello.trim_end()).bytes());
            }
        }
    }

    /// Every third line is rejected, and has a number all the same.
    fn commit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        for line in std::mem::take(&mut self.batch) {
            self.stored.push(line);
            if self.stored.len().is_multiple_of(3) {
                self.answers.extend(format!("N {} syntax\n", self.stored.len()).bytes());
            }
        }
        self.answers.extend(format!("A {}\n", self.stored.len()).bytes());
    }

    fn hang_up(&mut self) {
        (self.is_greeted, self.partial) = (false, Vec::new());
        self.answers.clear();
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Lines are sent by the program.
    Push(usize),
    /// So many bytes of what the session has to send arrive; the rest is in flight.
    Send(usize),
    Commit,
    /// So many bytes of the answers arrive.
    Answer(usize),
    /// The connection breaks, and the daemon may have crashed.
    Break(bool),
    /// The program is killed and started again; only with a spool.
    Restart,
    /// The next connection goes to the other daemon.
    Move,
}

/// What else than connections changes.
#[derive(Clone, Copy, Debug)]
struct Change {
    is_restarted: bool,
    is_moved: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..20_usize).prop_map(Step::Push),
        6 => (0..300_usize).prop_map(Step::Send),
        4 => Just(Step::Commit),
        6 => (0..100_usize).prop_map(Step::Answer),
        2 => any::<bool>().prop_map(Step::Break),
        1 => Just(Step::Restart),
        1 => Just(Step::Move),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A program with a session, and the daemon that it sends to beside another one.
struct World<'a> {
    open: &'a dyn Fn() -> Session,
    session: Option<Session>,
    daemon: Daemon,
    other: Daemon,
    change: Change,
    has_moved: bool,
    pushed: Vec<String>,
    in_flight: Vec<u8>,
}

impl World<'_> {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().unwrap()
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Push(count) => {
                for _ in 0..count {
                    let line = format!("line {}", self.pushed.len() + 1);
                    self.session().push(line.as_bytes()).unwrap();
                    self.pushed.push(line);
                }
            }
            Step::Send(bytes) => {
                let mut out = std::mem::take(&mut self.in_flight);
                if self.session().phase == Phase::Away {
                    self.session().connected();
                }
                self.session().output(&mut out, 50).unwrap();
                self.in_flight = out.split_off(bytes.min(out.len()));
                self.daemon.receive(&out);
            }
            Step::Commit => self.daemon.commit(),
            Step::Answer(bytes) => {
                let bytes = bytes.min(self.daemon.answers.len());
                let answers: Vec<u8> = self.daemon.answers.drain(..bytes).collect();
                self.session().input(&answers).unwrap();
            }
            Step::Break(has_crashed) => self.hang_up(has_crashed),
            Step::Restart => {
                self.hang_up(false);
                if self.change.is_restarted {
                    self.session = None;
                    self.session = Some((self.open)());
                }
            }
            Step::Move if self.change.is_moved => {
                self.hang_up(false);
                self.has_moved = true;
                std::mem::swap(&mut self.daemon, &mut self.other);
            }
            Step::Move => {}
        }
        let Places { last, sent, acknowledged } = self.session().places();
        assert!(acknowledged <= sent && sent <= last);
        let is_stored =
            |line| self.daemon.stored.contains(line) || self.other.stored.contains(line);
        assert!(self.pushed[..acknowledged as usize].iter().all(is_stored));
    }

    fn hang_up(&mut self, has_crashed: bool) {
        self.in_flight.clear();
        self.daemon.hang_up();
        // A daemon that lives stores what it has before it greets the name again (`E 1 busy` until then).
        if has_crashed {
            self.daemon.batch.clear()
        } else {
            self.daemon.commit()
        }
        self.daemon.hang_up();
        if self.session().phase != Phase::Away {
            self.session().disconnected();
        }
    }

    /// All that was sent is stored, and once and in order if the client stayed with one daemon.
    fn finish(mut self) {
        for _ in 0..10_000 {
            if self.session().places().waiting() == 0 {
                break;
            }
            for step in [Step::Send(1000), Step::Commit, Step::Answer(1000)] {
                self.take(&step);
            }
        }
        // What was not acknowledged when the client moved may be stored again.
        if !self.has_moved {
            assert_eq!(self.daemon.stored, self.pushed);
        }
        let stats = self.session().stats();
        assert_eq!((stats.waiting_lines, stats.forgotten_lines), (0, 0));
        let rejected = self.daemon.stored.len() / 3 + self.other.stored.len() / 3;
        assert!(stats.rejected_lines <= rejected as u64);
    }
}

fn named(backlog: Backlog) -> Session {
    let greeting = Greeting { line: "LOGD 1 name=web\n".to_owned(), has_name: true };
    Session::new(greeting, backlog)
}

fn in_memory() -> Session {
    named(Backlog::Memory(Memory::new(1 << 20)))
}

fn run(open: &dyn Fn() -> Session, steps: &[Step], change: Change) {
    let directories = if change.is_moved { ["a", "b"] } else { ["", ""] };
    let [daemon, other] = directories.map(|directory| Daemon { directory, ..Daemon::default() });
    let mut world = World {
        open,
        session: Some(open()),
        daemon,
        other,
        change,
        has_moved: false,
        pushed: Vec::new(),
        in_flight: Vec::new(),
    };
    steps.iter().for_each(|step| world.take(step));
    world.finish();
}

proptest! {
    #[test]
    fn every_line_is_stored_once_and_in_order(steps in steps()) {
        run(&in_memory, &steps, Change { is_restarted: false, is_moved: false });
    }

    #[test]
    fn every_line_is_stored_by_one_of_two_daemons(steps in steps()) {
        run(&in_memory, &steps, Change { is_restarted: false, is_moved: true });
    }
}

#[cfg(feature = "spool")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn with_a_spool_also_when_the_program_is_started_again(
        steps in steps(),
        is_moved in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let spool = crate::Spool::new(directory.path());
        let open = || {
            let files = crate::backlog::spool::Files::open(&spool, "web").unwrap();
            named(Backlog::Spool(Box::new(files)))
        };
        run(&open, &steps, Change { is_restarted: true, is_moved });
    }
}

/// A session that was greeted with `hello` and sent three lines.
fn greeted(mut session: Session, hello: &str) -> Session {
    session.connected();
    session.output(&mut Vec::new(), 100).unwrap();
    session.input(hello.as_bytes()).unwrap();
    for line in ["1", "2", "3"] {
        session.push(line.as_bytes()).unwrap();
    }
    session.output(&mut Vec::new(), 100).unwrap();
    session
}

fn reconnect(session: &mut Session, hello: &str) -> Result<bool, Failure> {
    session.disconnected();
    session.connected();
    session.output(&mut Vec::new(), 100).unwrap();
    session.input(hello.as_bytes())
}

#[test]
fn what_cannot_be_true_ends_the_connection() {
    for answers in [
        "A 21\n",
        "A 16\n",
        "A 18446744073709551615\n",
        "N 21 syntax\n",
        "N 17 syntax\n",
        "N 19 syntax\nN 19 syntax\n",
        "A 19\nN 19 syntax\n",
        "H 1 durable 17\n",
        "nonsense\n",
        "HTTP/1.1 400 Bad Request\r\n",
    ] {
        let mut session = greeted(in_memory(), "H 1 durable 17\n");
        let failure = session.input(answers.as_bytes()).unwrap_err();
        assert!(matches!(&failure, Failure::Protocol(_)), "{answers}: {failure}");
    }
    // Before the greeting is answered, and answers to another greeting.
    for answers in ["A 0\n", "N 1 syntax\n", "H 1 durable\n"] {
        let mut session = in_memory();
        session.connected();
        session.output(&mut Vec::new(), 100).unwrap();
        assert!(
            matches!(session.input(answers.as_bytes()), Err(Failure::Protocol(_))),
            "{answers}"
        );
    }
}

#[test]
fn a_daemon_that_begins_again_is_told_and_lines_go_on() {
    let mut session = greeted(in_memory(), "H 1 durable 17\n");
    assert!(session.input(b"A 18\nN 19 depth\nA 19\n").unwrap());
    // It lost power.
    reconnect(&mut session, "H 1 durable 0\n").unwrap();
    let mut out = Vec::new();
    session.output(&mut out, 100).unwrap();
    assert_eq!(out, b"3\n");
    session.input(b"A 1\n").unwrap();
    let events = session.events();
    assert!(
        matches!(&events[..], [
            Event::Connected { stored: Some(17) },
            Event::Rejected { line: 2, reason },
            Event::Forgotten { lines: 19 },
            Event::Connected { stored: Some(0) },
        ] if reason == "depth"),
        "{events:?}"
    );
    let stats = session.stats();
    assert_eq!((stats.forgotten_lines, stats.rejected_lines, stats.waiting_lines), (19, 1, 0));
    assert_eq!((stats.acknowledged_lines, stats.resent_lines), (3, 1));
}

/// The numbers of the first directory do not count what the second one stored.
#[test]
fn a_daemon_with_another_directory_is_told_and_lines_go_on() {
    let mut session = greeted(in_memory(), "H 1 durable 17 ab01\n");
    assert!(session.input(b"A 18\n").unwrap());
    reconnect(&mut session, "H 1 durable 0 cd02\n").unwrap();
    let mut out = Vec::new();
    session.output(&mut out, 100).unwrap();
    assert_eq!(out, b"2\n3\n");
    session.input(b"A 1\n").unwrap();
    for line in ["4", "5"] {
        session.push(line.as_bytes()).unwrap();
    }
    // It has lines 1 to 3. By its numbers alone, those after line 2 would be stored.
    assert!(!reconnect(&mut session, "H 1 durable 20 ab01\n").unwrap());
    out.clear();
    session.output(&mut out, 100).unwrap();
    assert_eq!(out, b"3\n4\n5\n");
    session.input(b"A 23\n").unwrap();
    let events = session.events();
    assert!(
        matches!(
            &events[..],
            [
                Event::Connected { stored: Some(17) },
                Event::Moved { lines: 2 },
                Event::Connected { stored: Some(0) },
                Event::Moved { lines: 3 },
                Event::Connected { stored: Some(20) },
            ]
        ),
        "{events:?}"
    );
    let stats = session.stats();
    assert_eq!((stats.acknowledged_lines, stats.waiting_lines, stats.forgotten_lines), (5, 0, 0));
}

#[test]
fn lines_of_another_program_under_the_same_name_end_the_client() {
    let mut session = greeted(in_memory(), "H 1 durable 17\n");
    let failure = reconnect(&mut session, "H 1 durable 21\n").unwrap_err();
    assert!(matches!(failure, Failure::NameShared) && failure.is_final());
    // The last line that was sent may be stored.
    let mut session = greeted(in_memory(), "H 1 durable 17\n");
    assert!(reconnect(&mut session, "H 1 durable 20\n").unwrap());
    assert_eq!(session.stats().settled_lines, 3);
}

#[test]
fn without_a_name_lines_are_sent_again_and_counted() {
    let greeting = Greeting { line: "LOGD 1\n".to_owned(), has_name: false };
    let backlog = Backlog::Memory(Memory::new(1 << 20));
    let mut session = greeted(Session::new(greeting, backlog), "H 1 durable\n");
    session.input(b"A 1\n").unwrap();
    reconnect(&mut session, "H 1 durable\n").unwrap();
    let mut out = Vec::new();
    session.output(&mut out, 100).unwrap();
    assert_eq!(out, b"2\n3\n");
    session.input(b"A 2\n").unwrap();
    let stats = session.stats();
    assert_eq!((stats.acknowledged_lines, stats.resent_lines, stats.waiting_lines), (3, 2, 0));
}

#[test]
fn refusals_are_told_apart() {
    for (word, refusal, is_final) in [
        ("busy", Refusal::Busy, false),
        ("taken", Refusal::Taken, true),
        ("expired", Refusal::Expired, true),
        ("identity", Refusal::Identity, false),
        ("names", Refusal::Names, false),
        ("name", Refusal::Name, true),
        ("token", Refusal::Token, false),
        ("transport", Refusal::Transport, false),
        ("weaker written", Refusal::Weaker("written".to_owned()), false),
        ("unknown LOGD 1 [...]", Refusal::Unknown, true),
        ("later", Refusal::Other("later".to_owned()), false),
    ] {
        let mut session = in_memory();
        session.connected();
        session.output(&mut Vec::new(), 100).unwrap();
        let failure = session.input(format!("E 1 {word}\n").as_bytes()).unwrap_err();
        assert!(matches!(&failure, Failure::Refused(told) if *told == refusal), "{word}");
        assert_eq!(failure.is_final(), is_final, "{word}");
        assert!(failure.to_string().starts_with("the daemon refused: "), "{failure}");
    }
}

/// A power cut took the end of the spool: the daemon has lines that the spool does not.
#[cfg(feature = "spool")]
#[test]
fn lines_that_a_spool_lost_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let spool = crate::Spool::new(directory.path());
    let open = || crate::backlog::spool::Files::open(&spool, "web").unwrap();
    let mut session = greeted(named(Backlog::Spool(Box::new(open()))), "H 1 durable 17\n");
    session.input(b"A 18\n").unwrap();
    drop(session);
    let mut session = named(Backlog::Spool(Box::new(open())));
    session.push(b"4").unwrap();
    session.connected();
    session.output(&mut Vec::new(), 100).unwrap();
    session.input(b"H 1 durable 25\n").unwrap();
    let events = session.events();
    assert!(matches!(&events[0], Event::Ahead { lines: 5 }), "{events:?}");
    let mut out = Vec::new();
    session.output(&mut out, 100).unwrap();
    assert_eq!(out, b"4\n");
    session.input(b"A 26\n").unwrap();
    assert_eq!(session.stats().waiting_lines, 0);
}
