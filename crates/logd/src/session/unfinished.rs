//! Memory that waits for a client, and who gives it up where there is too little: lines whose end has not
//! come, and answers that are not read.
//!
//! An unfinished line waits for its own end, so to wait for room would be to wait for ever: some line has to
//! go. It is never that of who comes: whose clients hold the most loses the oldest of theirs, so that
//! who holds little, as everybody does who ends lines, is not touched by those who end none.

use std::{
    collections::{BinaryHeap, HashMap},
    net::{IpAddr, SocketAddr},
    time::Instant,
};

/// What each connection may keep of an unfinished line whatever the others do, in bytes.
pub(crate) const FREE_BYTES: usize = 4 << 10;

/// What the connections of a thread keep of unfinished lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) bytes: usize,
    /// Of these, what each has beyond [`FREE_BYTES`].
    beyond: usize,
}

impl Held {
    /// A connection keeps so much more than nothing.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.beyond += bytes.saturating_sub(FREE_BYTES);
    }

    /// It does no more.
    pub(crate) fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.beyond -= bytes.saturating_sub(FREE_BYTES);
    }

    /// What each may keep whatever the others do.
    pub(crate) fn free(&self) -> usize {
        self.bytes - self.beyond
    }

    /// How much is to be given up where all may keep `max` bytes: if any, somewhat more than has to be,
    /// so that it is not looked at all connections again at once.
    pub(crate) fn excess(&self, max: usize) -> Option<usize> {
        (self.beyond > max).then(|| self.beyond - (max - max / 16))
    }
}

/// Whose a connection is: a certificate's, or an address's. A network has all addresses of IPv6 that
/// begin with the same 64 bits (RFC 4291, 2.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner<'a> {
    Tenant(&'a str),
    Address(u128),
}

impl<'a> Owner<'a> {
    /// A tenant's, or without one a [`network`]'s.
    pub(crate) fn new(tenant: Option<&'a str>, network: u128) -> Owner<'a> {
        tenant.map_or(Owner::Address(network), Owner::Tenant)
    }
}

/// The number of an address, or of the network that it is of.
pub(crate) fn network(address: SocketAddr) -> u128 {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits() >> 64 << 64,
    }
}

/// What a connection keeps of an unfinished line, or since its client does not read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) connection: usize,
    pub(crate) owner: Owner<'a>,
    pub(crate) bytes: usize,
    /// When its first byte came.
    pub(crate) since: Instant,
}

/// What connections keep besides lines in a batch: what was not looked at yet, and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) bytes: usize,
    /// Of these, of connections with a send in flight: only their clients, who read it, can free that.
    pub(crate) unread: usize,
}

impl Kept {
    /// One connection keeps this now, and kept `before`.
    pub(crate) fn replace(&mut self, before: Kept, now: Kept) {
        self.bytes = self.bytes - before.bytes + now.bytes;
        self.unread = self.unread - before.unread + now.unread;
    }
}

/// Lines of an owner: since when, of which connection, and how long.
type Lines = Vec<(Instant, usize, usize)>;

/// The connections that are to give up what they have, so that `excess` bytes come back, if there are as many. `free`
/// bytes of each are not counted.
pub(crate) fn to_give_up<'a>(
    lines: impl Iterator<Item = Line<'a>>,
    free: usize,
    excess: usize,
) -> Vec<usize> {
    let mut owners: HashMap<Owner<'_>, (usize, Lines)> = HashMap::new();
    for line in lines.filter(|line| line.bytes > free) {
        let (bytes, own) = owners.entry(line.owner).or_default();
        *bytes += line.bytes;
        own.push((line.since, line.connection, line.bytes));
    }
    // The oldest last, from where it is taken.
    let ordered = |(bytes, mut own): (usize, Lines)| {
        own.sort_unstable_by(|one, other| other.cmp(one));
        (bytes, own)
    };
    let mut by_bytes: BinaryHeap<_> = owners.into_values().map(ordered).collect();
    let (mut given_up, mut freed) = (Vec::new(), 0);
    while freed < excess
        && let Some((bytes, mut own)) = by_bytes.pop()
    {
        let Some((_, connection, line_bytes)) = own.pop() else { continue };
        given_up.push(connection);
        freed += line_bytes - free;
        by_bytes.push((bytes - line_bytes, own));
    }
    given_up
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(
        connection: usize,
        owner: u128,
        bytes: usize,
        second: u64,
        began: Instant,
    ) -> Line<'static> {
        let since = began + Duration::from_secs(second);
        Line { connection, owner: Owner::Address(owner), bytes, since }
    }

    #[test]
    fn who_holds_the_most_loses_the_oldest() {
        let began = Instant::now();
        // An old line of one, large and small ones of another, and one that may stay whatever comes.
        let lines = [
            line(0, 1, 100_000, 0, began),
            line(1, 2, 200_000, 2, began),
            line(2, 2, 50_000, 1, began),
            line(3, 2, 150_000, 3, began),
            line(4, 2, FREE_BYTES, 0, began),
        ];
        let given_up = |excess| to_give_up(lines.into_iter(), FREE_BYTES, excess);
        assert!(given_up(0).is_empty());
        assert_eq!(given_up(1), [2]);
        assert_eq!(given_up(50_000), [2, 1]);
        // Then both hold about as much.
        assert_eq!(given_up(250_000), [2, 1, 3]);
        assert_eq!(given_up(usize::MAX), [2, 1, 3, 0]);
        assert_eq!(to_give_up(lines.into_iter(), 0, usize::MAX), [4, 2, 1, 3, 0]);
    }

    #[test]
    fn addresses_of_a_network_are_one_owner() {
        let owner = |text: &str| Owner::new(None, network(text.parse().unwrap()));
        assert_eq!(owner("[2001:db8::1]:1"), owner("[2001:db8::2:3:4:5]:2"));
        assert_ne!(owner("[2001:db8::1]:1"), owner("[2001:db8:0:1::1]:1"));
        assert_eq!(owner("1.2.3.4:1"), owner("[::ffff:1.2.3.4]:2"));
        assert_ne!(owner("1.2.3.4:1"), owner("1.2.3.5:1"));
        let of_tenant = Owner::new(Some("web"), network("1.2.3.4:1".parse().unwrap()));
        assert_eq!(of_tenant, Owner::Tenant("web"));
    }

    #[test]
    fn what_all_hold_is_counted() {
        let mut held = Held::default();
        held.add(FREE_BYTES);
        held.add(FREE_BYTES + 1600);
        assert_eq!((held.excess(1600), held.excess(1599)), (None, Some(100)));
        held.remove(FREE_BYTES + 1600);
        held.remove(FREE_BYTES);
        assert_eq!(held, Held::default());
    }
}
