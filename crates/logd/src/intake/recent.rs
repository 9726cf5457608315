//! What was stored lately and may come again: a chunk of Fluent Forward, a document with an `_id`, a push of Loki.
//!
//! A client that got no answer sends the same again. Where its protocol lets that be recognised, it is answered as
//! before and not stored again. What is on its way to storage is claimed: whoever comes with the same meanwhile waits, and
//! is to send it once more, for only then is known whether it was stored. The last ones are remembered, since a client
//! comes again soon, and none over a restart.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use twox_hash::XxHash3_128;

/// So many are remembered. They take 10 MB.
const KEYS_MAX: usize = 1 << 17;

/// What was stored: a hash of its tenant and its name, which nobody else can compute, and a fast one of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key([u64; 3]);

/// What was stored lately.
#[derive(Debug)]
pub(crate) struct Recent {
    state: RandomState,
    seed: u64,
    most: usize,
    known: Mutex<Known>,
    /// Claims have ended.
    released: Notify,
}

#[derive(Debug, Default)]
struct Known {
    keys: HashSet<Key>,
    order: VecDeque<Key>,
    /// What is on its way to storage.
    claimed: HashSet<Key>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent::of(KEYS_MAX)
    }
}

impl Recent {
    /// One that remembers so many.
    fn of(most: usize) -> Recent {
        let state = RandomState::new();
        Recent {
            seed: state.hash_one("seed"),
            state,
            most,
            known: Mutex::default(),
            released: Notify::new(),
        }
    }

    /// Adds what was stored. The oldest are forgotten.
    pub(crate) fn remember(&self, keys: impl Iterator<Item = Key>) {
        let mut known = self.known();
        for key in keys {
            if known.keys.contains(&key) {
                continue;
            }
            if known.order.len() == self.most
                && let Some(oldest) = known.order.pop_front()
            {
                known.keys.remove(&oldest);
            }
            known.keys.insert(key);
            known.order.push_back(key);
        }
    }

    /// No claim yet.
    pub(crate) fn claims(self: &Arc<Self>) -> Claims {
        Claims { recent: self.clone(), keys: Vec::new() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is on its way to storage. It is no more when this is dropped, and only what was stored is remembered.
#[derive(Debug)]
pub(crate) struct Claims {
    recent: Arc<Recent>,
    keys: Vec<(u64, Key)>,
}

impl Claims {
    /// Claims more, each for a line. None: some of it is on its way already, or was stored since the sender looked. Then
    /// this has waited until it is known what became of that, and the sender looks again.
    pub(crate) async fn with(mut self, mut keys: Vec<(u64, Key)>) -> Option<Claims> {
        let recent = self.recent.clone();
        let is_of = |set: &HashSet<Key>| keys.iter().any(|(_, key)| set.contains(key));
        {
            let mut known = recent.known();
            if !is_of(&known.claimed) && !is_of(&known.keys) {
                known.claimed.extend(keys.iter().map(|(_, key)| *key));
                self.keys.append(&mut keys);
                return Some(self);
            }
        }
        // No two wait for each other.
        drop(self);
        loop {
            // Made before the look, so it learns of all that ends after that.
            let released = recent.released.notified();
            if !is_of(&recent.known().claimed) {
                return None;
            }
            released.await;
        }
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.keys.iter().any(|(_, own)| *own == key)
    }

    /// Parts with a key, if it has that.
    pub(crate) fn split(&mut self, key: Option<Key>) -> Claims {
        let (apart, keys) = self.keys.drain(..).partition(|(_, own)| Some(*own) == key);
        self.keys = keys;
        Claims { recent: self.recent.clone(), keys: apart }
    }

    /// All are stored but for lines of which `is_rejected` says so.
    pub(crate) fn stored(self, is_rejected: impl Fn(u64) -> bool) {
        let stored = self.keys.iter().filter(|(line, _)| !is_rejected(*line));
        self.recent.remember(stored.map(|(_, key)| *key));
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let mut known = self.recent.known();
        for (_, key) in &self.keys {
            known.claimed.remove(key);
        }
        drop(known);
        self.recent.released.notify_waiters();
    }
}

/// What was stored lately of a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lately<'a> {
    pub(crate) recent: &'a Recent,
    pub(crate) tenant: Option<&'a str>,
}

impl Lately<'_> {
    /// The key of something: what it is called, and what is in it.
    pub(crate) fn key(&self, name: &[u8], content: &[u8]) -> Key {
        let named = self.recent.state.hash_one((self.tenant, name));
        let content = XxHash3_128::oneshot_with_seed(self.recent.seed, content);
        Key([named, content as u64, (content >> 64) as u64])
    }

    /// Whether it was stored.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.recent.known().keys.contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_of_a_tenant_are_known() {
        let recent = Recent::of(3);
        let [web, db] = [Some("web"), None].map(|tenant| Lately { recent: &recent, tenant });
        let keys: Vec<Key> = (0..4).map(|number| web.key(b"x", &[number])).collect();
        assert!(keys.iter().all(|key| !web.has(*key)));
        recent.remember(keys[..3].iter().copied());
        // What is known does not push out others.
        recent.remember(keys[..3].iter().copied());
        assert!(keys[..3].iter().all(|key| web.has(*key)));
        assert!(!db.has(db.key(b"x", &[0])), "it is of another tenant");
        assert_ne!(web.key(b"x", b"y"), web.key(b"xy", b""));
        recent.remember(keys[3..].iter().copied());
        assert_eq!(
            keys.iter().map(|key| web.has(*key)).collect::<Vec<_>>(),
            [false, true, true, true]
        );
    }

    #[tokio::test]
    async fn who_comes_with_what_is_on_its_way_waits_and_looks_again() {
        let recent = Arc::new(Recent::of(3));
        let lately = Lately { recent: &recent, tenant: None };
        let [one, two] = [b"1", b"2"].map(|name| lately.key(name, b"x"));
        let first = recent.claims().with(vec![(1, one), (2, two)]).await.unwrap();
        assert!(!lately.has(one), "it is not stored");
        let again = tokio::spawn(recent.claims().with(vec![(1, one)]));
        tokio::task::yield_now().await;
        assert!(!again.is_finished());
        first.stored(|line| line == 2);
        assert!(again.await.unwrap().is_none());
        assert!(lately.has(one) && !lately.has(two), "the second was rejected");
        assert!(recent.claims().with(vec![(1, one)]).await.is_none(), "it looked before that");
        // What was not stored is given up.
        drop(recent.claims().with(vec![(1, two)]).await.unwrap());
        assert!(recent.claims().with(vec![(1, two)]).await.is_some());
    }

    #[tokio::test]
    async fn no_two_wait_for_each_other() {
        let recent = Arc::new(Recent::of(3));
        let lately = Lately { recent: &recent, tenant: None };
        let [one, two] = [b"1", b"2"].map(|name| (0, lately.key(name, b"x")));
        let has_one = recent.claims().with(vec![one]).await.unwrap();
        let has_two = recent.claims().with(vec![two]).await.unwrap();
        let first = tokio::spawn(has_one.with(vec![two]));
        tokio::task::yield_now().await;
        // It gave up what this one wants.
        drop(has_two.with(vec![one]).await.unwrap());
        assert!(first.await.unwrap().is_none());
    }
}
