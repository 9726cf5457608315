//! How many connections each address has, over all threads, and how many it may have.
//!
//! Without a limit one client takes all of `--max-connections`. A network counts as one address where one
//! client may have as many addresses as it likes (IPv6).

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{monitoring::log, session::unfinished::network};

/// The connections of all addresses.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<HashMap<u128, u32>>);

/// An address has as many connections as it may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full;

/// A connection's place among those of its address; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    addresses: Arc<Addresses>,
    network: u128,
}

impl Addresses {
    /// Takes a place for a connection from there, if they are limited, and says so if there is none.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        most: Option<u32>,
    ) -> Result<Option<Place>, Full> {
        let Some(most) = most else { return Ok(None) };
        let place = self.take(peer, most);
        if place.is_none() {
            let why = format!("{peer}: more than {most} connections (--address-connections)");
            log::remark("address", why);
        }
        place.map(Some).ok_or(Full)
    }

    fn take(self: &Arc<Self>, peer: SocketAddr, most: u32) -> Option<Place> {
        let network = network(peer);
        let mut counts = self.counts();
        let count = counts.entry(network).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { addresses: self.clone(), network })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<u128, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.addresses.counts();
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_so_many_places_and_gets_them_back() {
        let addresses = Arc::new(Addresses::default());
        let take = |peer: &str| addresses.take(peer.parse().unwrap(), 2);
        let (one, two) = (take("10.0.0.1:1"), take("10.0.0.1:2"));
        assert!(one.is_some() && two.is_some() && take("10.0.0.1:3").is_none());
        assert!(take("10.0.0.2:1").is_some(), "another");
        drop(one);
        assert!(take("10.0.0.1:4").is_some());
        let same = [take("[2001:db8::1]:1"), take("[2001:db8::ffff]:1")];
        assert!(same.iter().all(Option::is_some) && take("[2001:db8::2]:1").is_none());
        drop((two, same));
        assert!(addresses.counts().is_empty(), "nothing is kept of who has gone");
    }
}
