//! Records beside a batch: the names of clients with lines in it, and the sender and time of each line.
//!
//! Records are stored before each batch's entry, split into entries of 64 bytes (`entry`). A segment has a dictionary:
//! the first batch with lines of a tenant or a connection defines a number for it, and later batches use only the
//! number. A segment never reuses a number, so a lost batch makes only the lines that refer to it unknown. Readers skip
//! kinds of records that they do not know.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

/// The most definitions that a writer remembers. Then it forgets all and defines them again.
const DEFINITIONS_MAX: usize = 4096;

/// A client's name, and the number of its last stored line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) name: Arc<str>,
    pub(crate) line: u64,
    /// When that line arrived, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// The [`network`](crate::session::unfinished::network) that brought the name, if it is no tenant's.
    pub(crate) network: Option<u128>,
}

/// The sender of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// None if the kernel did not report the address.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) tenant: Option<Arc<str>>,
}

/// Consecutive lines of a batch from one connection.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) origin: Arc<Origin>,
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    /// When the end of the first line arrived.
    pub(crate) at: Instant,
}

/// A part of a batch as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredPart {
    /// None if its definition is lost.
    pub(crate) origin: Option<Origin>,
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name = 1,
    Tenant = 2,
    Connection = 3,
    Part = 4,
    Network = 5,
}

/// Adds a record: its kind, its length and its content.
fn put(out: &mut Vec<u8>, kind: Kind, numbers: &[u64], text: &[u8]) {
    let mut content = Vec::with_capacity(32 + text.len());
    numbers.iter().for_each(|number| put_number(&mut content, *number));
    content.extend_from_slice(text);
    out.push(kind as u8);
    put_number(out, content.len() as u64);
    out.extend_from_slice(&content);
}

/// LEB128: seven bits per byte, lowest first.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Adds a name's record.
pub(crate) fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    put(out, Kind::Name, &[mark.line, mark.time_ms], mark.name.as_bytes());
    if let Some(network) = mark.network {
        match u32::try_from(network) {
            Ok(address) => put(out, Kind::Network, &[], &address.to_be_bytes()),
            Err(_) => put(out, Kind::Network, &[], &network.to_be_bytes()[..8]),
        }
    }
}

/// The number of a network: four bytes of an IPv4 address, or the first eight of an IPv6 one.
fn network(bytes: &[u8]) -> Option<u128> {
    match bytes.len() {
        4 => Some(u32::from_be_bytes(bytes.try_into().ok()?).into()),
        _ => Some(u128::from(u64::from_be_bytes(bytes.try_into().ok()?)) << 64),
    }
}

/// The numbers that a segment has defined so far.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    connections: HashMap<Arc<Origin>, u64>,
    tenants: HashMap<Arc<str>, u64>,
    given: u64,
}

impl Dictionary {
    /// Adds the records of a batch's parts. `now` is the time of the batch's entry.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, parts: &[Part], now: Instant) {
        for part in parts {
            let number = self.connection(out, &part.origin);
            let age = now.saturating_duration_since(part.at).as_millis();
            let age_ms = u64::try_from(age).unwrap_or(u64::MAX);
            put(out, Kind::Part, &[number, part.lines, part.bytes, age_ms], &[]);
        }
    }

    fn connection(&mut self, out: &mut Vec<u8>, origin: &Arc<Origin>) -> u64 {
        if let Some(number) = self.connections.get(origin) {
            return *number;
        }
        if self.connections.len() >= DEFINITIONS_MAX {
            self.connections.clear();
            self.tenants.clear();
        }
        let tenant = origin.tenant.as_ref().map_or(0, |tenant| self.tenant(out, tenant));
        self.given += 1;
        let (port, address) = match origin.peer {
            None => (0, Vec::new()),
            Some(peer) => match peer.ip() {
                IpAddr::V4(ip) => (peer.port(), ip.octets().to_vec()),
                IpAddr::V6(ip) => (peer.port(), ip.octets().to_vec()),
            },
        };
        put(out, Kind::Connection, &[self.given, tenant, u64::from(port)], &address);
        self.connections.insert(origin.clone(), self.given);
        self.given
    }

    fn tenant(&mut self, out: &mut Vec<u8>, tenant: &Arc<str>) -> u64 {
        if let Some(number) = self.tenants.get(tenant) {
            return *number;
        }
        self.given += 1;
        put(out, Kind::Tenant, &[self.given], tenant.as_bytes());
        self.tenants.insert(tenant.clone(), self.given);
        self.given
    }
}

/// Reads the records of a segment's batches, in their order.
#[derive(Debug, Default)]
pub(crate) struct Records {
    connections: HashMap<u64, Origin>,
    tenants: HashMap<u64, Arc<str>>,
}

/// The content of a batch's records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) marks: Vec<Mark>,
    pub(crate) parts: Vec<StoredPart>,
    /// Whether some bytes are not valid records.
    pub(crate) is_spoilt: bool,
}

impl Records {
    /// Reads the records of a batch. `time_ms` is the time of its entry.
    pub(crate) fn read(&mut self, mut bytes: &[u8], time_ms: u64) -> Said {
        let mut said = Said::default();
        while !bytes.is_empty() && !said.is_spoilt {
            said.is_spoilt = self.take(&mut bytes, time_ms, &mut said).is_none();
        }
        said
    }

    fn take(&mut self, bytes: &mut &[u8], time_ms: u64, said: &mut Said) -> Option<()> {
        let (&kind, rest) = bytes.split_first()?;
        *bytes = rest;
        let len = usize::try_from(take_number(bytes)?).ok()?;
        let (mut content, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        let content = &mut content;
        if kind == Kind::Name as u8 {
            let (line, time_ms) = (take_number(content)?, take_number(content)?);
            said.marks.push(Mark { name: text(content)?, line, time_ms, network: None });
        } else if kind == Kind::Network as u8 {
            said.marks.last_mut()?.network = Some(network(content)?);
        } else if kind == Kind::Tenant as u8 {
            self.tenants.insert(take_number(content)?, text(content)?);
        } else if kind == Kind::Connection as u8 {
            let (number, tenant) = (take_number(content)?, take_number(content)?);
            let port = u16::try_from(take_number(content)?).ok()?;
            let ip = match content.len() {
                0 => None,
                4 => Some(IpAddr::from(<[u8; 4]>::try_from(*content).ok()?)),
                _ => Some(IpAddr::from(<[u8; 16]>::try_from(*content).ok()?)),
            };
            let tenant = match tenant {
                0 => None,
                // The sender is unknown if its tenant is.
                tenant => Some(self.tenants.get(&tenant).cloned()),
            };
            if !matches!(tenant, Some(None)) {
                let peer = ip.map(|ip| SocketAddr::new(ip, port));
                self.connections.insert(number, Origin { peer, tenant: tenant.flatten() });
            }
        } else if kind == Kind::Part as u8 {
            let origin = self.connections.get(&take_number(content)?).cloned();
            let (lines, bytes) = (take_number(content)?, take_number(content)?);
            let time_ms = time_ms.saturating_sub(take_number(content)?);
            said.parts.push(StoredPart { origin, lines, bytes, time_ms });
        }
        Some(())
    }
}

fn text(bytes: &[u8]) -> Option<Arc<str>> {
    std::str::from_utf8(bytes).ok().map(Arc::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn origin(peer: Option<&str>, tenant: Option<&str>) -> Arc<Origin> {
        let peer = peer.map(|peer| peer.parse().unwrap());
        Arc::new(Origin { peer, tenant: tenant.map(Arc::from) })
    }

    #[test]
    fn records_are_read_as_written_and_defined_once() {
        let now = Instant::now();
        let part = |origin: &Arc<Origin>, age| Part {
            origin: origin.clone(),
            lines: 3,
            bytes: 1 << 40,
            at: now.checked_sub(Duration::from_millis(age)).unwrap(),
        };
        let origins = [
            origin(Some("10.1.2.3:4"), Some("web")),
            origin(Some("[2001:db8::1]:65535"), Some("web")),
            origin(None, None),
        ];
        let mut dictionary = Dictionary::default();
        let mut records = Records::default();
        let mut sizes = Vec::new();
        for _ in 0..2 {
            let mut bytes = Vec::new();
            let mark = |name: &str, network| Mark {
                name: name.into(),
                line: u64::MAX,
                time_ms: 7,
                network,
            };
            let of_tenant = mark("web/1", None);
            let marks = [mark("a", Some(0x0a01_0203)), of_tenant, mark("b", Some(7 << 64))];
            marks.iter().for_each(|mark| put_mark(&mut bytes, mark));
            let parts: Vec<Part> =
                origins.iter().zip([0, 20, 5000]).map(|(origin, age)| part(origin, age)).collect();
            dictionary.put(&mut bytes, &parts, now);
            sizes.push(bytes.len());
            // A kind of record from a later version.
            bytes.extend_from_slice(&[200, 2, 0, 0]);
            let said = records.read(&bytes, 10_000);
            assert_eq!((&said.marks[..], said.is_spoilt), (&marks[..], false));
            let expected = origins.iter().zip([10_000, 9980, 5000]).map(|(origin, time_ms)| {
                StoredPart { origin: Some((**origin).clone()), lines: 3, bytes: 1 << 40, time_ms }
            });
            assert_eq!(said.parts, expected.collect::<Vec<_>>());
            for cut in 0..bytes.len() {
                let _ = Records::default().read(&bytes[..cut], 1);
            }
        }
        assert!(sizes[1] < sizes[0] - 30, "{sizes:?}");
    }

    #[test]
    fn a_lost_definition_makes_an_origin_unknown_and_never_wrong() {
        let now = Instant::now();
        let mut dictionary = Dictionary::default();
        let mut batch = |port: usize| {
            let peer = format!("10.0.0.1:{}", port % 60_000);
            let origin = origin(Some(&peer), Some(&format!("tenant {}", port / 60_000)));
            let mut bytes = Vec::new();
            dictionary.put(&mut bytes, &[Part { origin, lines: 1, bytes: 2, at: now }], now);
            bytes
        };
        let mut records = Records::default();
        batch(1);
        // So many definitions make the writer forget the earlier ones.
        for port in 2..2 * DEFINITIONS_MAX {
            records.read(&batch(port), 0);
        }
        let again = records.read(&batch(2 * DEFINITIONS_MAX - 1), 0);
        let peer = again.parts[0].origin.as_ref().unwrap().peer.unwrap();
        assert_eq!(usize::from(peer.port()), 2 * DEFINITIONS_MAX - 1);
        let mut late = Records::default();
        assert_eq!(late.read(&batch(2 * DEFINITIONS_MAX - 2), 0).parts[0].origin, None);
        assert!(dictionary.connections.len() <= DEFINITIONS_MAX);
    }
}
