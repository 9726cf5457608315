//! Answers a connection's first line if that asks for acknowledgements, and takes a name away when a newer
//! connection has it.
//!
//! Each refusal is an answer and a count. It does not read the line (`wish`).

use super::{Connection, Desk, Limits, Terms, state::Greeting, wish::Wish};
use crate::{clients::refusal::Refusal, guarantee::Guarantee};

/// The greeting as it should be.
const FORM: &str = "LOGD 1 [ack=written|durable|replicated] [name=NAME] [token=TOKEN]";

impl Connection {
    /// Answers a greeting.
    pub(super) fn greet(&mut self, line: &[u8], terms: Terms<'_>) {
        match self.grant(line, terms) {
            Ok(answer) => {
                self.greeting = Greeting::Wanted;
                self.answers.extend_from_slice(answer.as_bytes());
            }
            Err(refusal) => {
                let detail = match refusal {
                    Refusal::Unknown => FORM,
                    Refusal::Weaker => terms.guarantee.name(),
                    _ => "",
                };
                self.refused = Some(refusal);
                self.answer_refusal(refusal, detail);
            }
        }
    }

    /// Whether this is a first line that is no greeting, of a client that may not send lines.
    pub(super) fn is_nobody(&self, limits: &Limits) -> bool {
        self.greeting == Greeting::Awaited && !limits.lets_send(self.origin.tenant.as_deref())
    }

    /// Takes nothing from such a client.
    pub(super) fn refuse_nobody(&mut self) {
        self.refused = Some(Refusal::Unidentified);
        self.answer_refusal(Refusal::Unidentified, "");
    }

    /// The name is somebody else's now: nothing more is taken.
    pub(super) fn lose_name(&mut self, desk: &mut Desk<'_>) {
        desk.counts.refused_greetings.note(Refusal::Taken);
        self.answer_refusal(Refusal::Taken, "");
        self.backlog = Vec::new();
    }

    /// The first line was no greeting.
    pub(super) fn speak(&mut self) {
        if self.greeting == Greeting::Awaited {
            self.greeting = Greeting::Silent;
        }
    }

    pub(super) fn count_refusal(&mut self, desk: &mut Desk<'_>) {
        if let Some(refusal) = self.refused.take() {
            desk.counts.refused_greetings.note(refusal);
        }
    }

    fn answer_refusal(&mut self, refusal: Refusal, detail: &str) {
        self.greeting = Greeting::Refused;
        let answer = format!("E 1 {} {detail}", refusal.word());
        self.answers.extend_from_slice(answer.trim_end().as_bytes());
        self.answers.push(b'\n');
    }

    /// What the client is promised, or why it is not.
    fn grant(&mut self, line: &[u8], terms: Terms<'_>) -> Result<String, Refusal> {
        let wish = Wish::read(line).ok_or(Refusal::Unknown)?;
        let has = terms.guarantee;
        // Nobody is told more than is so.
        if has == Guarantee::None || wish.guarantee.is_some_and(|wanted| wanted > has) {
            return Err(Refusal::Weaker);
        }
        if let Some(token) = wish.token {
            let tokens = &terms.limits.tokens;
            let tenant = tokens.tenant(token, self.origin.peer, self.is_encrypted)?;
            self.identify(&tenant, terms.tenants);
        }
        if !terms.limits.lets_send(self.origin.tenant.as_deref()) {
            return Err(Refusal::Unidentified);
        }
        let Some(name) = wish.name else { return Ok(format!("H 1 {}\n", has.name())) };
        let (claim, stored) = terms.names.claim(self.owner(), terms.limits.names, name)?;
        (self.sequence, self.committed, self.acknowledged) = (stored, stored, stored);
        self.claim = Some(claim);
        let answer = format!("H 1 {} {stored} {}", has.name(), terms.names.directory());
        // Names that are only in memory, in tests, are of no directory.
        Ok(answer.trim_end().to_owned() + "\n")
    }
}
