//! Clients that name themselves. logd tells a client that comes back up to which line it is stored, so the client
//! sends nothing twice.
//!
//! The number is stored with the batch that has the lines, in the index: a crash keeps both or neither. One
//! connection at a time has a name. A newer connection takes it over, and logd no longer listens to the older one.
//!
//! A name that has lines is never forgotten silently. Its client would be told 0 and, after a restart, its old
//! number again, and would drop lines that are not stored. If the operator lets names expire, an expired name makes
//! room for another and is refused from then on (`expired`).
//!
//! A client that takes another's name makes that one skip lines. So a name belongs to its client's tenant, and a
//! client without a tenant has names only if the operator says so. Each tenant and each address may bring a
//! limited number of names, so that one client does not take the places of all.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use clap::ValueEnum;

mod expired;

use expired::{Expired, Ledger};

pub(crate) use crate::disk::segment::format::record::Mark;
use crate::{
    clients::refusal::Refusal,
    disk::{identity, segment::now_ms},
    error::LogdError,
    session::unfinished::Owner,
    ship::progress::Streams,
};

/// Names that are remembered, those that have lines and those that are in use; no more are taken.
const NAMES_MAX: usize = 10_000;
/// The longest name that a client may give itself, in bytes.
const NAME_BYTES: usize = 64;

/// Who may have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NameRule {
    /// Clients with a tenant (from a certificate, a token or --tenant); each may use only its tenant's names
    Certified,
    /// All clients; those without a tenant may use each other's names
    Anyone,
}

/// Who brings a name: an [`Owner`] that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bringer {
    Tenant(Arc<str>),
    Network(u128),
}

impl From<Owner<'_>> for Bringer {
    fn from(owner: Owner<'_>) -> Bringer {
        match owner {
            Owner::Tenant(tenant) => Bringer::Tenant(tenant.into()),
            Owner::Address(network) => Bringer::Network(network),
        }
    }
}

/// All names of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: Arc<Known>,
    /// Counts claims: each has a number of its own.
    claims: AtomicU64,
    /// Without one no name expires.
    ledger: Option<Ledger>,
    /// If set, nobody gets a name before what was stored at the start is shipped.
    shipped: OnceLock<Arc<Streams>>,
    /// The directory's own name. Its numbers of lines mean nothing in another directory.
    directory: String,
}

/// Whoever locks it and a name's state locks it first.
#[derive(Debug, Default)]
struct Known(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    names: HashMap<Arc<str>, Arc<Name>>,
    /// How many of them each has brought, before the start too.
    brought: HashMap<Bringer, usize>,
    expired: Expired,
}

impl Table {
    fn add(
        &mut self,
        key: Arc<str>,
        bringer: Bringer,
        brought_max: usize,
    ) -> Result<Arc<Name>, Refusal> {
        let brought = self.brought.get(&bringer).copied().unwrap_or(0);
        if self.names.len() >= NAMES_MAX || brought >= brought_max {
            return Err(Refusal::Many);
        }
        Ok(self.insert(key, Some(bringer)))
    }

    /// Adds a name, and counts it for who brought it.
    fn insert(&mut self, key: Arc<str>, bringer: Option<Bringer>) -> Arc<Name> {
        if let Some(bringer) = &bringer {
            *self.brought.entry(bringer.clone()).or_default() += 1;
        }
        let name = Name::new(key.clone(), bringer);
        self.names.insert(key, name.clone());
        name
    }

    fn forget(&mut self, name: &Name) {
        self.names.remove(&name.key);
        if let Some(bringer) = &name.bringer
            && let Some(count) = self.brought.get_mut(bringer)
        {
            *count -= 1;
            if *count == 0 {
                self.brought.remove(bringer);
            }
        }
    }
}

#[derive(Debug)]
struct Name {
    key: Arc<str>,
    /// Nobody, if an index of an earlier version has it.
    bringer: Option<Bringer>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The claim that has it; 0 is none.
    holder: u64,
    /// The claim that has lines which are not committed yet; 0 is none.
    pending: u64,
    stored: u64,
    /// When the last of these came, in milliseconds since 1970.
    stored_ms: u64,
    /// When a connection last had it; before the first, as `stored_ms`.
    seen_ms: u64,
}

/// In the place of a claim: the name is being recorded as expired.
const EXPIRING: u64 = u64::MAX;

/// A connection's hold on a name.
#[derive(Debug)]
pub(crate) struct Claim {
    known: Arc<Known>,
    name: Arc<Name>,
    number: u64,
}

impl Names {
    /// No names but those that expired in this directory, which gets a name of its own if it has none.
    pub(crate) fn of(directory: &Path) -> Result<Names, LogdError> {
        let table = Table { expired: Expired::read(directory)?, ..Table::default() };
        let known = Arc::new(Known(Mutex::new(table)));
        let ledger = Some(Ledger::new(directory));
        Ok(Names { known, ledger, directory: identity::of(directory)?, ..Names::default() })
    }

    /// Returns the random name of the directory.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// Lets nobody have a name before what is stored now is shipped. The numbers of names then stand for shipped lines.
    pub(crate) fn wait_for(&self, shipped: Arc<Streams>) {
        self.shipped.get_or_init(|| shipped);
    }

    /// Knows that a name's lines are stored up to this one.
    pub(crate) fn restore(&self, mark: &Mark) {
        let mut known = self.known.lock();
        // Segments from before may still have it.
        if known.expired.has(&mark.name) {
            return;
        }
        let name = match known.names.get(&mark.name) {
            Some(name) => name.clone(),
            None => known.insert(mark.name.clone(), bringer(mark)),
        };
        let mut state = name.state();
        state.stored = state.stored.max(mark.line);
        state.stored_ms = state.stored_ms.max(mark.time_ms);
        // Indexes of earlier versions have no time.
        state.seen_ms = if state.stored_ms > 0 { state.stored_ms } else { now_ms() };
    }

    /// Lets the names expire that nobody has and whose last use is too old; gives how many. Each is recorded
    /// durably before it is forgotten.
    pub(crate) fn expire(&self, is_old: impl Fn(u64) -> bool) -> io::Result<usize> {
        let Some(ledger) = &self.ledger else { return Ok(0) };
        let mut old = Vec::new();
        let known = self.known.lock();
        let room = known.expired.room();
        for name in known.names.values() {
            let mut state = name.state();
            let is_free = state.holder == 0 && state.pending == 0;
            if is_free && old.len() < room && is_old(state.seen_ms) {
                state.pending = EXPIRING;
                old.push((name.clone(), name.mark(state.stored, state.stored_ms)));
            }
        }
        drop(known);
        if old.is_empty() {
            return Ok(0);
        }
        let marks: Vec<Mark> = old.iter().map(|(_, mark)| mark.clone()).collect();
        let recorded = ledger.record(&marks);
        let mut known = self.known.lock();
        for (name, _) in &old {
            match recorded {
                Ok(()) => {
                    known.expired.add(&name.key);
                    known.forget(name);
                }
                Err(_) => name.state().pending = 0,
            }
        }
        recorded.map(|()| old.len())
    }

    /// Takes a name for a connection; says with it up to which line it is stored. Who comes may bring
    /// `brought_max` new ones.
    pub(crate) fn claim(
        &self,
        owner: Owner<'_>,
        (rule, brought_max): (NameRule, usize),
        name: &str,
    ) -> Result<(Claim, u64), Refusal> {
        let tenant = match owner {
            Owner::Tenant(tenant) => Some(tenant),
            Owner::Address(_) if rule == NameRule::Certified => return Err(Refusal::Unidentified),
            Owner::Address(_) => None,
        };
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(is_good) {
            return Err(Refusal::Wrong);
        }
        let key = match tenant {
            // No name has a slash, so that this is nobody else's.
            Some(tenant) => format!("{tenant}/{name}"),
            None => name.to_owned(),
        };
        if key.len() > KEY_BYTES {
            return Err(Refusal::Wrong);
        }
        if self.shipped.get().is_some_and(|shipped| !shipped.have_shipped_start()) {
            return Err(Refusal::Busy);
        }
        let number = self.claims.fetch_add(1, Ordering::Relaxed) + 1;
        let mut known = self.known.lock();
        let name = match known.names.get(&*key) {
            Some(name) => name.clone(),
            None if known.expired.has(&key) => return Err(Refusal::Expired),
            None => known.add(key.into(), owner.into(), brought_max)?,
        };
        let mut state = name.state();
        if state.pending != 0 {
            // Whoever has it is stored first, and told to go.
            state.holder = 0;
            if state.pending != EXPIRING {
                // The name is in use, so it does not expire before its client comes again.
                state.seen_ms = now_ms();
            }
            return Err(Refusal::Busy);
        }
        // Until it is known that no lines came with the greeting.
        (state.holder, state.pending) = (number, number);
        let stored = state.stored;
        drop(state);
        Ok((Claim { known: self.known.clone(), name, number }, stored))
    }

    /// All names that have lines.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let known = self.known.lock();
        let marks = known.names.values().map(|name| {
            let state = name.state();
            name.mark(state.stored, state.stored_ms)
        });
        marks.filter(|mark| mark.line > 0).collect()
    }
}

/// Who brought a name that is stored.
fn bringer(mark: &Mark) -> Option<Bringer> {
    match mark.name.rsplit_once('/') {
        Some((tenant, _)) => Some(Bringer::Tenant(tenant.into())),
        None => mark.network.map(Bringer::Network),
    }
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest key, in bytes: a tenant of 64, as X.509 allows (RFC 5280, ub-common-name), or a
/// longer one with a shorter name.
pub(crate) const KEY_BYTES: usize = 160;

impl Name {
    fn new(key: Arc<str>, bringer: Option<Bringer>) -> Arc<Name> {
        let state = State { holder: 0, pending: 0, stored: 0, stored_ms: 0, seen_ms: now_ms() };
        Arc::new(Name { key, bringer, state: Mutex::new(state) })
    }

    /// That its lines are stored up to this one, which came at that time.
    fn mark(&self, line: u64, time_ms: u64) -> Mark {
        let network = match self.bringer {
            Some(Bringer::Network(network)) => Some(network),
            Some(Bringer::Tenant(_)) | None => None,
        };
        Mark { name: self.key.clone(), line, time_ms, network }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Whether lines may be taken under the name. Until it is known that there are
    /// [none](Self::hold), nobody else gets it.
    pub(crate) fn take(&self) -> bool {
        let mut state = self.name.state();
        let is_own = state.holder == self.number;
        if is_own {
            state.pending = self.number;
        }
        is_own
    }

    /// Whether there are lines that are not committed.
    pub(crate) fn hold(&self, has_lines: bool) {
        let mut state = self.name.state();
        if state.pending == self.number && !has_lines {
            state.pending = 0;
        }
    }

    /// The mark of a batch that has lines up to this one.
    pub(crate) fn mark(&self, sequence: u64) -> Mark {
        self.name.mark(sequence, now_ms())
    }

    /// The lines up to this one are committed.
    pub(crate) fn committed(&self, sequence: u64) {
        let mut state = self.name.state();
        if sequence > state.stored {
            (state.stored, state.stored_ms) = (sequence, now_ms());
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut known = self.known.lock();
        let mut state = self.name.state();
        if state.holder == self.number {
            (state.holder, state.seen_ms) = (0, now_ms());
        }
        if state.pending == self.number {
            state.pending = 0;
        }
        // Without lines there is nothing to remember.
        if state.holder == 0 && state.pending == 0 && state.stored == 0 {
            drop(state);
            known.forget(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(names: &Names, tenant: Option<&str>, name: &str) -> Result<(Claim, u64), Refusal> {
        names.claim(Owner::new(tenant, 1), (NameRule::Anyone, usize::MAX), name)
    }

    /// A client would be told that lines are replicated which are only stored.
    #[test]
    fn nobody_gets_a_name_before_what_was_stored_is_shipped_if_that_is_promised() {
        let (names, shipped) = (Names::default(), Arc::new(Streams::default()));
        shipped.of(0).opened(5);
        shipped.of(1).opened(0);
        names.wait_for(shipped.clone());
        assert_eq!(claim(&names, None, "web").unwrap_err(), Refusal::Busy);
        shipped.of(0).acknowledge(4, 4, 40);
        assert_eq!(claim(&names, None, "web").unwrap_err(), Refusal::Busy);
        // More is stored meanwhile, for clients without a name.
        shipped.of(0).committed(9, 40);
        shipped.of(0).acknowledge(5, 1, 10);
        assert!(claim(&names, None, "web").is_ok());
    }

    #[test]
    fn each_brings_so_many_names_and_all_may_come_back() {
        let names = Names::default();
        restore(&names, "old", 1);
        let claim =
            |network, name: &str| names.claim(Owner::Address(network), (NameRule::Anyone, 2), name);
        let (one, two) = (claim(1, "a").unwrap().0, claim(1, "b").unwrap().0);
        assert_eq!(claim(1, "c").unwrap_err(), Refusal::Many);
        assert!(claim(1, "old").is_ok() && claim(2, "c").is_ok(), "known, and another's");
        drop(one);
        one_with_lines(claim(1, "c").unwrap().0);
        drop(two);
        one_with_lines(claim(1, "d").unwrap().0);
        assert_eq!(claim(1, "e").unwrap_err(), Refusal::Many, "those stay");
        assert!(claim(1, "c").is_ok());
        let tenant = Owner::Tenant("t");
        assert!(names.claim(tenant, (NameRule::Certified, 2), "e").is_ok(), "a tenant's own");
        let nobody = Owner::Address(3);
        let refused = names.claim(nobody, (NameRule::Certified, 2), "a");
        assert_eq!(refused.unwrap_err(), Refusal::Unidentified);
    }

    /// Who filled its names before a restart brought as many again.
    #[test]
    fn what_each_brought_is_known_after_a_restart() {
        let before = Names::default();
        let mark = |owner: Owner<'_>, name: &str| {
            let (claim, _) = before.claim(owner, (NameRule::Anyone, 2), name).unwrap();
            one_with_lines(claim);
        };
        let owners = [Owner::Address(7), Owner::Tenant("a/b")];
        for owner in owners {
            mark(owner, "one");
            mark(owner, "two");
        }
        let after = Names::default();
        // Each stream has some of them, and some are in several.
        for mark in before.marks().iter().chain(&before.marks()) {
            after.restore(mark);
        }
        for owner in owners {
            let claim = |name: &str| after.claim(owner, (NameRule::Anyone, 2), name);
            assert_eq!(claim("three").unwrap_err(), Refusal::Many);
            assert_eq!(claim("two").unwrap().1, 1);
        }
        for owner in [Owner::Address(8), Owner::Tenant("a")] {
            assert!(after.claim(owner, (NameRule::Anyone, 2), "three").is_ok());
        }
    }

    fn restore(names: &Names, name: &str, line: u64) {
        names.restore(&Mark { name: name.into(), line, time_ms: 1, network: None });
    }

    fn lines(names: &Names) -> Vec<(Arc<str>, u64)> {
        names.marks().into_iter().map(|mark| (mark.name, mark.line)).collect()
    }

    fn one_with_lines(claim: Claim) {
        claim.committed(1);
        claim.hold(false);
    }

    #[test]
    fn who_comes_back_is_told_what_is_stored() {
        let names = Names::default();
        restore(&names, "web", 7);
        restore(&names, "web", 3);
        let (first, stored) = claim(&names, None, "web").unwrap();
        assert_eq!(stored, 7);
        assert_eq!(claim(&names, None, "web").unwrap_err(), Refusal::Busy, "lines may have come");
        first.hold(false);
        let (first, _) = claim(&names, None, "web").unwrap();
        assert!(first.take());
        assert_eq!(claim(&names, None, "web").unwrap_err(), Refusal::Busy);
        assert!(!first.take(), "who was taken over is not listened to");
        first.committed(9);
        assert_eq!(claim(&names, None, "web").unwrap_err(), Refusal::Busy, "there may be more");
        first.hold(false);
        let (second, stored) = claim(&names, None, "web").unwrap();
        assert_eq!(stored, 9);
        assert!(second.take() && !first.take());
        drop(first);
        assert!(second.take(), "the end of who was taken over changes nothing");
        assert_eq!(claim(&names, Some("web"), "web").unwrap().1, 0, "a tenant's own");
        assert_eq!(lines(&names), [("web".into(), 9)]);
    }

    /// Half of a line, and gone without a word.
    #[test]
    fn an_end_without_a_commit_sets_the_name_free() {
        let names = Names::default();
        let (first, _) = claim(&names, None, "web").unwrap();
        assert!(first.take());
        assert_eq!(claim(&names, None, "web").unwrap_err(), Refusal::Busy);
        drop(first);
        assert_eq!(claim(&names, None, "web").unwrap().1, 0);
    }

    #[test]
    fn a_name_is_a_word() {
        let names = Names::default();
        for name in ["", "a b", "a/b", "\u{e9}", &"x".repeat(65)] {
            assert_eq!(claim(&names, None, name).unwrap_err(), Refusal::Wrong, "{name}");
        }
        let tenant = "t".repeat(100);
        assert!(claim(&names, Some(&tenant), &"x".repeat(59)).is_ok());
        assert_eq!(claim(&names, Some(&tenant), &"x".repeat(60)).unwrap_err(), Refusal::Wrong);
    }

    /// Its client came again while its last lines were stored. Then nobody had the name, and its last use was the start of
    /// the connection before.
    #[test]
    fn a_name_that_its_client_asks_for_again_does_not_expire() {
        let directory = tempfile::tempdir().unwrap();
        let names = Names::of(directory.path()).unwrap();
        let (first, _) = claim(&names, None, "web").unwrap();
        assert!(first.take());
        names.known.lock().names["web"].state().seen_ms = 1;
        assert_eq!(claim(&names, None, "web").unwrap_err(), Refusal::Busy);
        first.committed(9);
        first.hold(false);
        assert_eq!(names.expire(|seen_ms| seen_ms < 1000).unwrap(), 0);
        assert_eq!(claim(&names, None, "web").unwrap().1, 9);
    }

    /// One that was forgotten was told 0, and after a restart its old number: its client dropped lines
    /// that were not stored.
    #[test]
    fn a_name_that_has_lines_is_never_forgotten() {
        let names = Names::default();
        claim(&names, None, "web").unwrap().0.committed(1000);
        for number in 0..=NAMES_MAX {
            claim(&names, None, &number.to_string()).unwrap();
        }
        assert_eq!(claim(&names, None, "web").unwrap().1, 1000);
        assert_eq!(lines(&names), [("web".into(), 1000)]);
        assert_eq!(names.known.lock().names.len(), 1, "those without lines are not remembered");
    }

    /// An expired name that was accepted as new stored its client's lines twice.
    #[test]
    fn an_expired_name_makes_room_and_is_refused_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let names = Names::of(directory.path()).unwrap();
        restore(&names, "old", 7);
        restore(&names, "young", 8);
        let in_use = claim(&names, Some("t"), "old").unwrap().0;
        in_use.committed(3);
        in_use.hold(false);
        assert_eq!(names.expire(|_| false).unwrap(), 0);
        names.known.lock().names["young"].state().seen_ms = 100;
        let is_old = |seen_ms| seen_ms != 100;
        assert_eq!(names.expire(is_old).unwrap(), 1, "the one that nobody has");
        assert_eq!(names.expire(is_old).unwrap(), 0);
        let same = || claim(&names, None, "old").unwrap_err();
        assert_eq!((same(), lines(&names).len()), (Refusal::Expired, 2));
        drop(in_use);
        assert_eq!(names.expire(is_old).unwrap(), 1);
        assert_eq!(claim(&names, Some("t"), "old").unwrap_err(), Refusal::Expired);

        // A crash left half of a record, and segments still have the name.
        let file = directory.path().join("expired-names");
        let mut file = std::fs::File::options().append(true).open(file).unwrap();
        io::Write::write_all(&mut file, b"{\"name\":\"yo").unwrap();
        let again = Names::of(directory.path()).unwrap();
        restore(&again, "old", 7);
        restore(&again, "young", 8);
        assert_eq!(claim(&again, None, "old").unwrap_err(), Refusal::Expired);
        assert_eq!(again.expire(|_| true).unwrap(), 1);
        let third = Names::of(directory.path()).unwrap();
        assert_eq!(claim(&third, None, "young").unwrap_err(), Refusal::Expired);
    }

    #[test]
    fn when_as_many_as_are_remembered_have_lines_no_other_is_taken() {
        let names = Names::default();
        let (held, _) = claim(&names, None, "held").unwrap();
        for number in 1..NAMES_MAX {
            claim(&names, None, &number.to_string()).unwrap().0.committed(1);
        }
        assert_eq!(claim(&names, None, "new").unwrap_err(), Refusal::Many);
        assert_eq!(claim(&names, None, "1").unwrap().1, 1, "who is known comes back");
        drop(held);
        assert_eq!(claim(&names, None, "new").unwrap().1, 0, "there is a place");
    }
}
