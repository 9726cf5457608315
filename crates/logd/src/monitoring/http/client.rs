//! A client that reads lines: what it may ask for, and the connection that lines are written to until it has gone.

use std::{
    io::{self, Write},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{event::PollFlags, net::sockopt::set_tcp_user_timeout};

use super::{access::Denied, answer::head_of_stream};
use crate::{
    monitoring::monitor::Monitor,
    tool::{printer::is_open_after, query::QueryArgs},
};

/// How long a client may take what is written to it, and how long its machine may be silent while something is on the
/// way. The kernel knows of a client that has vanished only from that (tcp(7), `TCP_USER_TIMEOUT`).
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The connection of a client that reads lines.
pub(super) struct Client<'a> {
    stream: &'a TcpStream,
    monitor: &'a Monitor,
}

impl<'a> Client<'a> {
    /// Begins an answer that ends with the connection.
    pub(super) fn begin(
        stream: &'a TcpStream,
        monitor: &'a Monitor,
        kind: &str,
    ) -> io::Result<Client<'a>> {
        set_tcp_user_timeout(stream, PATIENCE.as_millis() as u32)?;
        let client = Client { stream, monitor };
        client.write(head_of_stream(kind).as_bytes(), Instant::now() + PATIENCE)?;
        Ok(client)
    }

    /// Writes bytes; waits until then while the client does not read.
    pub(super) fn write(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_write_timeout(Some(left))?;
            let mut stream = self.stream;
            match stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for so long at most, and says whether the client is there.
    pub(super) fn is_there_after(&self, time: Duration) -> bool {
        is_open_after(time, self.stream, PollFlags::RDHUP)
    }

    /// Whether the daemon ends.
    pub(super) fn is_ending(&self) -> bool {
        self.monitor.is_draining()
    }
}

/// The parameters of a request, which are options of `query`.
pub(super) const LIVE_OPTIONS: &[&str] = &["tenant", "peer", "match", "where"];
pub(super) const SEARCH_OPTIONS: &[&str] =
    &["tenant", "peer", "match", "where", "since", "until", "limit"];

/// Why a request for lines is answered with an error.
#[derive(Debug)]
pub(super) enum Refused {
    Denied(Denied),
    /// A parameter is wrong: why.
    Wrong(String),
}

/// Reads the parameters of a request. If the client may only read the lines of one tenant, `own` is that tenant.
pub(super) fn parse(
    query: &str,
    options: &[&str],
    directory: &Path,
    own: Option<&str>,
) -> Result<QueryArgs, Refused> {
    let mut typed = vec![("with-origin".to_owned(), None)];
    let mut is_of_own = false;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !options.contains(&&*name) {
            let options = options.join(", ");
            return Err(Refused::Wrong(format!("unknown parameter {name:?}: expected {options}")));
        }
        // A form sends fields that nobody has filled.
        if value.is_empty() {
            continue;
        }
        if name == "tenant" && own.is_some() {
            if own != Some(&*value) {
                return Err(Refused::Denied(Denied::Tenant));
            }
            is_of_own = true;
        }
        typed.push((name.into_owned(), Some(value.into_owned())));
    }
    if let Some(own) = own.filter(|_| !is_of_own) {
        typed.push(("tenant".to_owned(), Some(own.to_owned())));
    }
    QueryArgs::typed(directory, typed).map_err(Refused::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str, options: &[&str], own: Option<&str>) -> Result<String, String> {
        let args = parse(query, options, Path::new("-d"), own);
        args.map(|args| format!("{args:?}")).map_err(|why| format!("{why:?}"))
    }

    #[test]
    fn parameters_are_options_and_what_is_wrong_is_told() {
        let query = "since=&match=a+b%3D%3Cc%3E&match=--limit&where=x%3D1&limit=3&tenant=t";
        let found = parsed(query, SEARCH_OPTIONS, None).unwrap();
        for part in
            ["\"a b=<c>\"", "\"--limit\"", "limit: Some(3)", "tenant: Some(\"t\")", "\"-d\""]
        {
            assert!(found.contains(part), "{part}: {found}");
        }
        for (query, options, told) in [
            ("limit=0", SEARCH_OPTIONS, "limit: invalid value '0': expected at least 1"),
            ("since=soon", SEARCH_OPTIONS, "expected how long ago (10m)"),
            ("where=x", SEARCH_OPTIONS, "expected NAME=VALUE"),
            ("match=a%0Ab", SEARCH_OPTIONS, "without a line end"),
            ("since=1m", LIVE_OPTIONS, "unknown parameter"),
            ("follow=", SEARCH_OPTIONS, "unknown parameter"),
            ("tenant=a&tenant=b", LIVE_OPTIONS, "tenant is given twice: give it once"),
        ] {
            let error = parsed(query, options, None).unwrap_err();
            assert!(error.contains(told) && error.lines().count() == 1, "{query}: {error}");
        }
    }

    #[test]
    fn who_may_read_one_tenant_reads_no_other() {
        for query in ["", "tenant=", "tenant=web"] {
            let found = parsed(query, LIVE_OPTIONS, Some("web")).unwrap();
            assert!(found.contains("tenant: Some(\"web\")"), "{found}");
        }
        for query in ["tenant=db", "tenant=web&tenant=db", "tenant=web%20"] {
            assert!(
                parsed(query, LIVE_OPTIONS, Some("web")).unwrap_err().contains("Tenant"),
                "{query}"
            );
        }
        assert!(parsed("tenant=web&tenant=web", LIVE_OPTIONS, Some("web")).is_err());
    }
}
