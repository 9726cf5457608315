//! The rules of a client, without any I/O: lines and the daemon's answers go in, bytes to send and events come out.
//!
//! A session outlives its connections. After each greeting the daemon says how many lines of the client's name are
//! stored; the session drops these and sends the rest again. A daemon's directory numbers the lines of a name for good,
//! and the session numbers those that it took from 1, so it keeps the difference and the directory (`Numbering`).
//! Another directory's numbers say nothing about the lines that are waiting. Without a name the daemon counts each
//! connection's lines from 1.
//!
//! An answer that cannot be true ends the connection with [`Failure::Protocol`]. The session neither waits nor pauses:
//! the driver does.

use std::{io, sync::Arc};

use crate::{
    backlog::{Backlog, Numbering, Places, PushError},
    error::Failure,
    event::{Event, Stats},
};

pub(crate) mod protocol;
#[cfg(test)]
mod tests;

use protocol::{Answer, Answers, strange};

/// What has to be said first, and by whom.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) line: String,
    pub(crate) has_name: bool,
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is none.
    Away,
    /// The greeting is to be sent.
    Begun,
    /// It was sent, and is not answered.
    Greeted,
    /// Lines are taken.
    Open,
}

/// A client's lines, and how far they are.
#[derive(Debug)]
pub(crate) struct Session {
    greeting: Greeting,
    backlog: Backlog,
    phase: Phase,
    answers: Answers,
    /// What the daemon's numbers mean.
    numbering: Option<Numbering>,
    /// Whether the daemon has greeted this session before.
    is_known: bool,
    /// The last line that was sent on any connection; at the start, the last line that an earlier program left.
    highest: u64,
    /// The last line that was rejected on this connection.
    rejected: u64,
    stats: Stats,
    events: Vec<Event>,
}

impl Session {
    pub(crate) fn new(greeting: Greeting, backlog: Backlog) -> Session {
        let (numbering, highest) = (backlog.numbering(), backlog.places().last);
        Session {
            greeting,
            numbering,
            highest,
            backlog,
            phase: Phase::Away,
            answers: Answers::default(),
            is_known: false,
            rejected: 0,
            stats: Stats::default(),
            events: Vec::new(),
        }
    }

    /// Takes a line that was checked; gives its number.
    pub(crate) fn push(&mut self, line: &[u8]) -> Result<u64, PushError> {
        self.backlog.push(line)?;
        self.stats.accepted_lines += 1;
        Ok(self.backlog.places().last)
    }

    pub(crate) fn places(&self) -> Places {
        self.backlog.places()
    }

    /// Counts a line that was not taken for want of room.
    pub(crate) fn count_dropped(&mut self) {
        self.stats.dropped_lines += 1;
    }

    /// Counts a line that is none.
    pub(crate) fn count_invalid(&mut self) {
        self.stats.invalid_lines += 1;
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            waiting_lines: self.backlog.places().waiting(),
            waiting_bytes: self.backlog.bytes(),
            spool_cut_bytes: self.backlog.cut_bytes(),
            is_connected: self.phase == Phase::Open,
            ..self.stats
        }
    }

    /// What happened since this was asked last.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether the daemon owes an answer to what was sent.
    pub(crate) fn awaits_answer(&self) -> bool {
        match self.phase {
            Phase::Away | Phase::Begun => false,
            Phase::Greeted => true,
            Phase::Open => self.backlog.places().sent > self.backlog.places().acknowledged,
        }
    }

    /// Whether it owes that of the greeting.
    pub(crate) fn awaits_greeting(&self) -> bool {
        self.phase == Phase::Greeted
    }

    /// Whether lines are numbered across connections.
    pub(crate) fn has_name(&self) -> bool {
        self.greeting.has_name
    }

    /// A connection was made.
    pub(crate) fn connected(&mut self) {
        self.phase = Phase::Begun;
        self.answers = Answers::default();
        // What is sent again may be rejected again.
        self.rejected = 0;
    }

    /// It is gone.
    pub(crate) fn disconnected(&mut self) {
        self.phase = Phase::Away;
        self.stats.failures += 1;
    }

    /// Whether there is something to send.
    pub(crate) fn has_output(&self) -> bool {
        match self.phase {
            Phase::Away | Phase::Greeted => false,
            Phase::Begun => true,
            Phase::Open => self.backlog.places().sent < self.backlog.places().last,
        }
    }

    /// Appends what to send next, about so many bytes.
    ///
    /// # Errors
    ///
    /// [`Failure::Spool`]
    pub(crate) fn output(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Failure> {
        match self.phase {
            Phase::Away | Phase::Greeted => {}
            Phase::Begun => {
                self.phase = Phase::Greeted;
                out.extend_from_slice(self.greeting.line.as_bytes());
            }
            Phase::Open => {
                let before = self.backlog.places().sent;
                self.backlog.read(out, bytes_max).map_err(spool)?;
                let sent = self.backlog.places().sent;
                self.stats.resent_lines += sent.min(self.highest).saturating_sub(before);
                self.highest = self.highest.max(sent);
            }
        }
        Ok(())
    }

    /// Takes what the daemon sent. Says whether lines are acknowledged by it.
    ///
    /// # Errors
    ///
    /// Why the connection is to end.
    pub(crate) fn input(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let before = self.backlog.places().acknowledged;
        let mut answers = std::mem::take(&mut self.answers);
        let taken = answers.take(bytes, |answer| self.answer(answer));
        self.answers = answers;
        taken.map(|()| self.backlog.places().acknowledged > before)
    }

    fn answer(&mut self, answer: Answer) -> Result<(), Failure> {
        match (answer, self.phase) {
            (Answer::Hello { stored, directory }, Phase::Greeted) => {
                match (stored, self.greeting.has_name) {
                    (Some(stored), true) => self.join(stored, directory)?,
                    (None, false) => {
                        let offset = -i128::from(self.backlog.places().acknowledged);
                        self.numbering = Some(Numbering { offset, directory });
                    }
                    (Some(_), false) => {
                        return Err(strange(b"a number for a client without a name"));
                    }
                    (None, true) => return Err(strange(b"no number for a client with a name")),
                }
                self.backlog.rewind();
                (self.phase, self.is_known) = (Phase::Open, true);
                self.stats.connections += 1;
                self.events.push(Event::Connected { stored });
                Ok(())
            }
            (Answer::Acknowledged(number), Phase::Open) => {
                let line = self.sent_line(number, "A")?;
                self.acknowledge(line).map(|_| ())
            }
            (Answer::Rejected(number, reason), Phase::Open) => {
                let line = self.sent_line(number, "N")?;
                if line <= self.rejected || line <= self.backlog.places().acknowledged {
                    return Err(strange(format!("N {number} came too late").as_bytes()));
                }
                self.rejected = line;
                self.stats.rejected_lines += 1;
                self.events.push(Event::Rejected { line, reason });
                Ok(())
            }
            (Answer::Refused(refusal), _) => Err(Failure::Refused(refusal)),
            (answer, _) => Err(strange(format!("{answer:?} out of turn").as_bytes())),
        }
    }

    /// The daemon has so many lines of the name in its directory, whose name is empty if it told none.
    fn join(&mut self, stored: u64, directory: String) -> Result<(), Failure> {
        if self.numbering.as_ref().is_some_and(|numbering| numbering.is_of_another(&directory)) {
            self.numbering = None;
            self.events.push(Event::Moved { lines: self.backlog.places().waiting() });
        }
        let stored = i128::from(stored);
        let Places { acknowledged, .. } = self.backlog.places();
        // For a directory that is new to the client all lines are new; an earlier program sent at most what it left.
        let known = self.numbering.as_ref().map(|numbering| numbering.offset);
        let offset = known.unwrap_or(stored - i128::from(acknowledged));
        let line = stored - offset;
        let (least, most) = (i128::from(acknowledged), i128::from(self.highest));
        let offset = if line < least {
            let lines = (least - line) as u64;
            self.stats.forgotten_lines += lines;
            self.events.push(Event::Forgotten { lines });
            stored - least
        } else if line <= most {
            self.stats.settled_lines += self.acknowledge(line as u64)?;
            offset
        } else if self.is_known {
            return Err(Failure::NameShared);
        } else {
            self.events.push(Event::Ahead { lines: (line - most) as u64 });
            self.stats.settled_lines += self.acknowledge(self.highest)?;
            stored - most
        };
        let numbering = Numbering { offset, directory };
        // Before a line is sent under it.
        self.backlog.keep_numbering(&numbering).map_err(spool)?;
        self.numbering = Some(numbering);
        Ok(())
    }

    /// The line that the daemon means by a number, if it was sent.
    fn sent_line(&self, number: u64, answer: &str) -> Result<u64, Failure> {
        let offset = self.numbering.as_ref().map_or(0, |numbering| numbering.offset);
        let line = i128::from(number) - offset;
        match u64::try_from(line) {
            Ok(line) if line <= self.backlog.places().sent => Ok(line),
            _ => Err(strange(format!("{answer} {number} for what was not sent").as_bytes())),
        }
    }

    /// Removes lines that are stored; gives how many.
    fn acknowledge(&mut self, line: u64) -> Result<u64, Failure> {
        let before = self.backlog.places().acknowledged;
        let acknowledged = self.backlog.acknowledge(line.max(before));
        let lines = self.backlog.places().acknowledged - before;
        self.stats.acknowledged_lines += lines;
        acknowledged.map_err(spool)?;
        Ok(lines)
    }
}

fn spool(error: io::Error) -> Failure {
    Failure::Spool(Arc::new(error))
}
