//! Tenants that the configuration names: whose addresses are whose, how long their lines are kept, and how
//! much of them.
//!
//! A client's tenant is the subject of its certificate, or without one what `--tenant` says of its address.
//! All tenants that are not named share one account, so that clients cannot make more of them. A quota counts
//! bytes of lines as they came that are in segments: at the start they are counted from the indexes, then
//! added when they are accepted and taken off when retention removes their segment. The batch that a dead
//! segment left to the next one is taken off twice; the next start counts again.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ringwise_measure::quantity::parse_size;

use crate::{
    args::value::{kept_size, kept_time},
    disk::segment::scan::ByTenant,
    monitoring::log,
};

/// Tenants that can be named, each of which has figures of its own.
pub(crate) const TENANTS_MAX: usize = 100;

/// What the configuration says of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) name: Arc<str>,
    /// Networks, each with how many of its bits count, whose clients it has if they show no certificate.
    networks: Vec<(IpAddr, u32)>,
    /// Bytes of it that may be stored before its senders wait.
    quota: Option<u64>,
    pub(crate) keep: Keep,
}

/// How much is kept of a tenant's lines, and for how long. Nothing set: as for all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keep {
    pub(crate) bytes: Option<u64>,
    pub(crate) age: Option<Duration>,
}

/// A tenant's figures.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Nothing of those that are not named.
    pub(crate) rule: Option<Rule>,
    /// Whether anybody wants to know: threads need not meet here otherwise.
    is_counted: bool,
    pub(crate) lines: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Bytes that are in segments or on their way there.
    pub(crate) stored: AtomicU64,
    /// Times that a connection was not received from because the quota was used up.
    pub(crate) waits: AtomicU64,
}

/// All tenants; the last account is of those that are not named.
#[derive(Debug)]
pub(crate) struct Tenants(Vec<Arc<Account>>);

impl Tenants {
    pub(crate) fn new(rules: &[Rule]) -> Tenants {
        let is_counted = !rules.is_empty();
        let account = |rule| Arc::new(Account { rule, is_counted, ..Account::default() });
        let named = rules.iter().map(|rule| account(Some(rule.clone())));
        Tenants(named.chain([account(None)]).collect())
    }

    /// Whether any is named: without that nobody has to count.
    pub(crate) fn are_named(&self) -> bool {
        self.0.len() > 1
    }

    pub(crate) fn accounts(&self) -> &[Arc<Account>] {
        &self.0
    }

    /// The tenant of clients from an address, of those that are named.
    pub(crate) fn of_address(&self, ip: IpAddr) -> Option<Arc<str>> {
        let rules = self.0.iter().filter_map(|account| account.rule.as_ref());
        let mut owners = rules.filter(|rule| rule.networks.iter().any(|network| has(*network, ip)));
        owners.next().map(|rule| rule.name.clone())
    }

    /// The place of a tenant's account.
    pub(crate) fn place(&self, tenant: Option<&str>) -> usize {
        let is_named = |account: &Arc<Account>| {
            account.rule.as_ref().is_some_and(|rule| Some(&*rule.name) == tenant)
        };
        self.0.iter().position(is_named).unwrap_or(self.0.len() - 1)
    }

    pub(crate) fn account(&self, tenant: Option<&str>) -> &Arc<Account> {
        &self.0[self.place(tenant)]
    }

    /// What is kept of the tenant at this place.
    pub(crate) fn keep(&self, place: usize) -> Keep {
        self.0[place].rule.as_ref().map_or_else(Keep::default, |rule| rule.keep)
    }

    /// How many bytes each account has of some that were counted by their tenants.
    pub(crate) fn shares(&self, bytes: ByTenant) -> Vec<(usize, u64)> {
        let mut shares: Vec<(usize, u64)> = Vec::new();
        for (tenant, bytes) in bytes {
            let place = self.place(tenant.as_deref());
            match shares.iter_mut().find(|(of, _)| *of == place) {
                Some((_, sum)) => *sum += bytes,
                None => shares.push((place, bytes)),
            }
        }
        shares
    }

    /// These bytes were found in segments at the start.
    pub(crate) fn found(&self, shares: &[(usize, u64)]) {
        for (place, bytes) in shares {
            self.0[*place].stored.fetch_add(*bytes, Relaxed);
        }
    }

    /// These bytes were removed.
    pub(crate) fn removed(&self, shares: &[(usize, u64)]) {
        for (place, bytes) in shares {
            let less = |stored: u64| Some(stored.saturating_sub(*bytes));
            let _ = self.0[*place].stored.fetch_update(Relaxed, Relaxed, less);
        }
    }
}

impl Account {
    /// Lines of it were accepted.
    pub(crate) fn accepted(&self, lines: u64, bytes: u64) {
        if !self.is_counted {
            return;
        }
        self.lines.fetch_add(lines, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.stored.fetch_add(bytes, Relaxed);
    }

    /// Whether its senders wait until some of its lines are removed.
    pub(crate) fn is_full(&self) -> bool {
        let quota = self.rule.as_ref().and_then(|rule| rule.quota);
        quota.is_some_and(|quota| self.stored.load(Relaxed) >= quota)
    }

    /// A client of it is not received from, because the quota is used up.
    pub(crate) fn wait(&self, peer: &str) {
        self.waits.fetch_add(1, Relaxed);
        let tenant = self.label();
        log::remark(
            "quota",
            format_args!(
                "{peer}: tenant {tenant} has used up its quota (--tenant); the client waits"
            ),
        );
    }

    /// What it is called in figures.
    pub(crate) fn label(&self) -> &str {
        self.rule.as_ref().map_or("(others)", |rule| &rule.name)
    }
}

/// Whether a network has an address.
fn has((network, bits): (IpAddr, u32), ip: IpAddr) -> bool {
    match (network, ip.to_canonical()) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => {
            (network.to_bits() ^ ip.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) => {
            (network.to_bits() ^ ip.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Reads `NAME,from=10.0.0.0/8,quota=10g,retain-size=5g,retain-age=7d`.
pub(crate) fn rule(text: &str) -> Result<Rule, String> {
    let mut words = text.split(',').map(str::trim);
    let name = words.next().unwrap_or_default();
    if name.is_empty() || name.contains('=') {
        return Err(
            "expected NAME[,from=NETWORK][,quota=SIZE][,retain-size=SIZE][,retain-age=TIME]"
                .to_owned(),
        );
    }
    let (networks, quota, keep) = (Vec::new(), None, Keep::default());
    let mut rule = Rule { name: name.into(), networks, quota, keep };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let wrong = |why: String| format!("{key}: {why}");
        match key {
            "from" => rule.networks.push(network(value)?),
            "quota" => {
                let size = parse_size(value).map_err(|error| wrong(error.to_string()));
                rule.quota = Some(size?);
            }
            "retain-size" => rule.keep.bytes = Some(kept_size(value).map_err(wrong)?),
            "retain-age" => rule.keep.age = Some(kept_time(value).map_err(wrong)?),
            _ => {
                return Err(format!(
                    "unknown key {key:?}: expected from, quota, retain-size or retain-age"
                ));
            }
        }
    }
    Ok(rule)
}

fn network(text: &str) -> Result<(IpAddr, u32), String> {
    let wrong = |_| format!("{text:?}: expected a network, such as 10.0.0.0/8 or 2001:db8::/32");
    let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
    let ip: IpAddr = ip.parse().map_err(|_| wrong(()))?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong(()))?;
    if bits <= most { Ok((ip, bits)) } else { Err(wrong(())) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_rule_is_read_and_what_is_wrong_is_told() {
        let read = rule("web 1, from=10.0.0.0/8,from=::1, quota=1k,retain-size=2k,retain-age=3s");
        let read = read.unwrap();
        assert_eq!((&*read.name, read.quota, read.keep.bytes), ("web 1", Some(1024), Some(2048)));
        assert_eq!((read.keep.age, read.networks.len()), (Some(Duration::from_secs(3)), 2));
        for (text, told) in [
            ("", "expected NAME"),
            ("quota=1k", "expected NAME"),
            ("web,quota", "quota: expected a whole number"),
            ("web,from=10.0.0.0/33", "expected a network"),
            ("web,from=x", "expected a network"),
            ("web,age=1s", "unknown key \"age\": expected from"),
            ("web,retain-size=0", "retain-size: expected more than 0"),
            ("web,retain-age=0s", "retain-age: expected more than 0"),
        ] {
            let error = rule(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_have_the_first_tenant_that_has_their_network() {
        let rules =
            ["a,from=10.1.0.0/16", "b,from=10.0.0.0/8,from=2001:db8::/32", "c,from=0.0.0.0/0"];
        let tenants = Tenants::new(&rules.map(|text| rule(text).unwrap()));
        let of = |ip: &str| tenants.of_address(ip.parse().unwrap()).map(|name| name.to_string());
        let owners = ["10.1.2.3", "10.2.0.1", "::ffff:10.1.0.1", "2001:db8::9", "9.9.9.9", "::2"];
        let owners = owners.map(|ip| of(ip).unwrap_or_default());
        assert_eq!(owners, ["a", "b", "a", "b", "c", ""]);
    }

    #[test]
    fn a_quota_counts_what_is_stored() {
        let tenants = Tenants::new(&[rule("a,quota=100").unwrap()]);
        tenants.found(&[(0, 60), (1, 1000)]);
        let (own, others) = (tenants.account(Some("a")), tenants.account(Some("b")));
        assert!(!own.is_full() && !others.is_full());
        own.accepted(2, 40);
        assert!(own.is_full());
        let shares = tenants.shares(HashMap::from([
            (Some("a".into()), 30),
            (None, 1),
            (Some("b".into()), 2),
        ]));
        tenants.removed(&shares);
        assert!(!own.is_full());
        assert_eq!(others.stored.load(Relaxed), 997);
        assert_eq!((own.label(), others.label()), ("a", "(others)"));
    }
}
