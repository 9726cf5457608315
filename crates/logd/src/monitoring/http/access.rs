//! Who may read stored lines on the status page. Lines are secrets of tenants, so this asks for more than figures do.
//!
//! A browser sends requests for any page, and a name that an attacker owns can lead to a loopback address (DNS
//! rebinding). So the request has to name the server by an address, and must not come from another page.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::request::Head;
use crate::clients::tokens::Tokens;

/// The page's port speaks plain HTTP.
const IS_TLS: bool = false;
/// The tenant of a token that shows the lines of all tenants.
const ALL: &str = "*";

/// Why a client may not read lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The request is for a name, or for no host.
    Host,
    /// A page from elsewhere sent it.
    Page,
    /// There are no tokens, and it is not from this machine.
    Remote,
    /// It has no token.
    Missing,
    /// Nobody has its token.
    Token,
    /// A token of another machine would come in plain.
    Transport,
    /// Its token is for the lines of another tenant.
    Tenant,
}

impl Denied {
    pub(super) const ALL: [Denied; 7] = [
        Denied::Host,
        Denied::Page,
        Denied::Remote,
        Denied::Missing,
        Denied::Token,
        Denied::Transport,
        Denied::Tenant,
    ];

    /// The word for it in figures.
    pub(super) fn word(self) -> &'static str {
        match self {
            Denied::Host => "host",
            Denied::Page => "page",
            Denied::Remote => "remote",
            Denied::Missing => "missing-token",
            Denied::Token => "token",
            Denied::Transport => "transport",
            Denied::Tenant => "tenant",
        }
    }

    /// The status of the answer, and what it says.
    pub(super) fn answer(self) -> (u16, &'static str) {
        match self {
            Denied::Host => (403, "lines are shown only under an IP address or localhost\n"),
            Denied::Page => (403, "a page from elsewhere may not read lines\n"),
            Denied::Remote => (
                403,
                "lines are shown on loopback addresses, and elsewhere only with --page-tokens\n",
            ),
            Denied::Missing => (401, "a token is needed: Authorization: Bearer TOKEN\n"),
            Denied::Token => (401, "this token is not in the file of --page-tokens\n"),
            Denied::Transport => (
                403,
                "a token from another machine would come in plain: use a tunnel, or permit it with \
                 --token-transport any\n",
            ),
            Denied::Tenant => (403, "this token is for the lines of another tenant\n"),
        }
    }
}

/// The addresses of a connection: the server's, and the client's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) own: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// How lines are read over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Freely,
    ByToken,
}

/// Finds the way in which lines may be read over a connection, if there is one.
pub(super) fn way(head: &Head, ends: Ends, tokens: Option<&Tokens>) -> Result<Way, Denied> {
    let host = head.host.as_deref().filter(|host| is_address(host)).ok_or(Denied::Host)?;
    let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
    let is_own_site = |site: &str| matches!(site, "same-origin" | "none");
    if !head.origin.as_deref().is_none_or(is_own) || !head.site.as_deref().is_none_or(is_own_site) {
        return Err(Denied::Page);
    }
    let is_loopback = |end: SocketAddr| end.ip().to_canonical().is_loopback();
    match tokens {
        // A token that nobody asks for is not sent.
        Some(tokens) if !tokens.may_travel(Some(ends.peer), IS_TLS) => Err(Denied::Transport),
        Some(_) => Ok(Way::ByToken),
        None if is_loopback(ends.own) && is_loopback(ends.peer) => Ok(Way::Freely),
        None => Err(Denied::Remote),
    }
}

/// Finds the tenant whose lines a client may read; nothing stands for all.
pub(super) fn tenant(
    head: &Head,
    ends: Ends,
    tokens: Option<&Tokens>,
) -> Result<Option<Arc<str>>, Denied> {
    way(head, ends, tokens)?;
    let Some(tokens) = tokens else { return Ok(None) };
    let shown = head.authorization.as_deref().ok_or(Denied::Missing)?;
    let (scheme, token) = shown.split_once(' ').ok_or(Denied::Token)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Denied::Token);
    }
    let tenant = tokens.tenant(token.trim(), Some(ends.peer), IS_TLS);
    let tenant = tenant.map_err(|_| Denied::Token)?;
    Ok(Some(tenant).filter(|tenant| **tenant != *ALL))
}

/// Whether a host is an IP address or this machine's own name, which no other machine's name server answers for.
fn is_address(host: &str) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.is_empty() => name,
        _ => host,
    };
    match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6()),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse().is_ok_and(|ip: IpAddr| ip.is_ipv4())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tokens::Transport;

    const TOKEN: &str = "0123456789abcdefghij=+";
    const OF_ALL: &str = "abcdefghij=+0123456789";

    fn ends(own: &str, peer: &str) -> Ends {
        Ends { own: own.parse().unwrap(), peer: peer.parse().unwrap() }
    }

    fn near() -> Ends {
        ends("127.0.0.1:9001", "127.0.0.1:5")
    }

    fn head(host: &str) -> Head {
        Head { host: Some(host.to_owned()), ..Head::default() }
    }

    fn tokens(transport: Transport) -> Tokens {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{TOKEN} web\n{OF_ALL} *\n")).unwrap();
        Tokens::read("--page-tokens", Some(file.path()), transport).unwrap()
    }

    #[test]
    fn only_an_address_or_localhost_is_the_servers_own_host() {
        for host in
            ["127.0.0.1", "127.0.0.1:9001", "localhost", "LOCALHOST:9001", "[::1]:9001", "[::1]"]
        {
            assert_eq!(way(&head(host), near(), None), Ok(Way::Freely), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9001",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "::1",
            "[evil]",
            "127.0.0.1@evil",
            "127.0.0.1:x",
            "127.0.0.1:",
            ":9001",
            "[127.0.0.1]",
            "2130706433",
            "localhost:9001:9001",
        ] {
            assert_eq!(way(&head(host), near(), None), Err(Denied::Host), "{host}");
        }
        assert_eq!(way(&Head::default(), near(), None), Err(Denied::Host));
    }

    #[test]
    fn a_page_from_elsewhere_reads_nothing() {
        let with = |origin: &str, site: &str| {
            let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Head { origin: own(origin), site: own(site), ..head("127.0.0.1:9001") }
        };
        for (origin, site) in
            [("http://127.0.0.1:9001", "same-origin"), ("", "same-origin"), ("", "none"), ("", "")]
        {
            assert_eq!(way(&with(origin, site), near(), None), Ok(Way::Freely), "{origin} {site}");
        }
        for (origin, site) in [
            ("http://evil.example", ""),
            ("http://127.0.0.1", ""),
            ("http://127.0.0.1:8000", "same-site"),
            ("https://127.0.0.1:9001", ""),
            ("null", ""),
            ("", "cross-site"),
            ("", "same-site"),
        ] {
            assert_eq!(
                way(&with(origin, site), near(), None),
                Err(Denied::Page),
                "{origin} {site}"
            );
        }
    }

    #[test]
    fn without_tokens_both_ends_have_to_be_on_this_machine() {
        for (own, peer, expected) in [
            ("127.0.0.1:1", "127.0.0.1:2", Ok(Way::Freely)),
            ("[::1]:1", "[::1]:2", Ok(Way::Freely)),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:2", Ok(Way::Freely)),
            ("10.0.0.1:1", "10.0.0.2:2", Err(Denied::Remote)),
            ("10.0.0.1:1", "10.0.0.1:2", Err(Denied::Remote)),
            ("127.0.0.1:1", "10.0.0.2:2", Err(Denied::Remote)),
            ("10.0.0.1:1", "127.0.0.1:2", Err(Denied::Remote)),
        ] {
            assert_eq!(way(&head("10.0.0.1"), ends(own, peer), None), expected, "{own} {peer}");
        }
    }

    #[test]
    fn a_token_shows_the_lines_of_its_tenant() {
        let asked = |authorization: Option<&str>, ends: Ends, transport: Transport| {
            let authorization = authorization.map(str::to_owned);
            let head = Head { authorization, ..head("10.0.0.1:1") };
            tenant(&head, ends, Some(&tokens(transport)))
        };
        let far = ends("10.0.0.1:1", "10.0.0.2:2");
        let (web, all) = (format!("Bearer {TOKEN}"), format!("bearer  {OF_ALL}"));
        assert_eq!(asked(Some(&web), far, Transport::Any), Ok(Some("web".into())));
        assert_eq!(asked(Some(&all), far, Transport::Any), Ok(None));
        assert_eq!(asked(Some(&web), far, Transport::Private), Err(Denied::Transport));
        assert_eq!(asked(Some(&web), near(), Transport::Private), Ok(Some("web".into())));
        assert_eq!(asked(None, near(), Transport::Any), Err(Denied::Missing));
        for wrong in
            [TOKEN.to_owned(), format!("Basic {TOKEN}"), "Bearer guess".into(), "Bearer".into()]
        {
            assert_eq!(asked(Some(&wrong), near(), Transport::Any), Err(Denied::Token), "{wrong}");
        }
    }
}
