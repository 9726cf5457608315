//! What was stored lately and may come again: a chunk of Fluent Forward, a document with an `_id`, a push of Loki.
//!
//! A client that got no answer sends the same again. Where its protocol lets that be recognised, it is answered as
//! before and not stored again. The last ones are remembered, since a client comes again soon, and none over a restart.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

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
}

#[derive(Debug, Default)]
struct Known {
    keys: HashSet<Key>,
    order: VecDeque<Key>,
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
        Recent { seed: state.hash_one("seed"), state, most, known: Mutex::default() }
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
}
