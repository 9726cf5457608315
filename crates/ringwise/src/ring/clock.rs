//! The deadlines of a ring's operations, as the driver keeps them.
//!
//! One timeout operation, for the earliest of all, wakes the driver wherever it sleeps; there is no
//! other timer, so that deadlines go by the loop's own clock, a simulated one too. The driver keeps
//! room for it, so that a full ring keeps its deadlines.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use super::hub::Key;
use crate::{completion::Completion, slot::Ticket};

/// What becomes of an operation at its deadline.
#[derive(Clone, Debug)]
pub(super) enum Expiry {
    /// It is cancelled.
    Cancel,
    /// It goes on, and its future is told by this.
    Tell(Arc<AtomicBool>),
}

#[derive(Debug)]
struct Watched {
    at: Instant,
    expiry: Expiry,
    is_over: bool,
}

/// The timeout operation that is in flight.
#[derive(Debug)]
pub(super) struct Tick {
    pub(super) at: Instant,
    pub(super) ticket: Ticket,
    /// There is an earlier deadline now.
    pub(super) is_cancelled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Deadlines to come, with the operation's tag.
    due: BTreeSet<(Instant, u64)>,
    /// By the tag of an operation without a result.
    watched: HashMap<u64, Watched>,
    pub(super) tick: Option<Tick>,
}

impl Clock {
    /// Whether a deadline is to come.
    pub(super) fn is_running(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether a timeout has to be submitted.
    pub(super) fn needs_tick(&self) -> bool {
        self.is_running() && self.tick.is_none()
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Sets the deadline of an operation; the last word counts.
    pub(super) fn watch(&mut self, key: Key, at: Instant, expiry: Expiry) {
        let watched = Watched { at, expiry, is_over: false };
        if let Some(old) = self.watched.insert(key.tag(), watched) {
            self.due.remove(&(old.at, key.tag()));
        }
        self.due.insert((at, key.tag()));
    }

    /// An operation whose deadline has passed, and what becomes of it.
    pub(super) fn expire(&mut self, now: Instant) -> Option<(Key, Expiry)> {
        let (at, tag) = self.due.first().copied()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        let watched = self.watched.get_mut(&tag).expect("it has no result");
        watched.is_over = true;
        Some((Key::from_tag(tag), watched.expiry.clone()))
    }

    /// A result has come: what was cancelled by its deadline has timed out.
    pub(super) fn settle(&mut self, key: Key, completion: &mut Completion) {
        if self.watched.is_empty() {
            return;
        }
        let Some(watched) = self.watched.remove(&key.tag()) else { return };
        self.due.remove(&(watched.at, key.tag()));
        if watched.is_over && completion.result == -libc::ECANCELED {
            completion.result = -libc::ETIMEDOUT;
        }
    }
}

impl Expiry {
    /// Tells the future, if it is to be told; who does wakes it after.
    pub(super) fn tell(&self) {
        if let Expiry::Tell(told) = self {
            told.store(true, Ordering::Release);
        }
    }
}
