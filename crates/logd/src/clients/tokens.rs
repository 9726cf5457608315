//! Tokens by which clients show whose they are (`LOGD 1 token=...`), and readers of the status page whose lines they
//! may read.
//!
//! A file has them, a line each: the token, a space and its tenant. Whoever reads a token from the network can
//! use it, so a token that came in plain from another machine is refused, unless the operator permits that. It
//! does not make tokens.

use std::{collections::HashMap, fmt, net::SocketAddr, path::Path, sync::Arc};

use clap::ValueEnum;

use crate::{clients::refusal::Refusal, error::LogdError};

/// The shortest token, in bytes: 128 bits in base64.
const TOKEN_BYTES_MIN: usize = 22;
/// The longest tenant, in bytes, so that names of 64 bytes fit behind it.
const TENANT_BYTES_MAX: usize = 95;

/// How tokens may travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// TLS, or connections from this machine
    #[default]
    Private,
    /// All, also unencrypted connections from other machines
    Any,
}

/// All tokens, and how they may travel.
#[derive(Clone, Default)]
pub(crate) struct Tokens {
    tenants: HashMap<Box<str>, Arc<str>>,
    transport: Transport,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.tenants.len();
        f.debug_struct("Tokens")
            .field("tokens", &tokens)
            .field("transport", &self.transport)
            .finish()
    }
}

impl Tokens {
    /// Reads the file of an option, if there is one.
    pub(crate) fn read(
        option: &str,
        path: Option<&Path>,
        transport: Transport,
    ) -> Result<Tokens, LogdError> {
        let Some(path) = path else { return Ok(Tokens { transport, ..Tokens::default() }) };
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| LogdError::on(path, &error).of(option))?;
        let tenants = parse(&text);
        let tenants = tenants
            .map_err(|why| LogdError::Usage(format!("{option} {}: {why}", path.display())))?;
        Ok(Tokens { tenants, transport })
    }

    /// Whether a token may come over such a connection: nobody but the client reads it there, or that is permitted.
    pub(crate) fn may_travel(&self, peer: Option<SocketAddr>, is_tls: bool) -> bool {
        let is_local = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
        self.transport == Transport::Any || is_tls || is_local
    }

    /// The tenant of a client that shows a token, or why it has none.
    pub(crate) fn tenant(
        &self,
        token: &str,
        peer: Option<SocketAddr>,
        is_tls: bool,
    ) -> Result<Arc<str>, Refusal> {
        if !self.may_travel(peer, is_tls) {
            return Err(Refusal::Transport);
        }
        self.tenants.get(token).cloned().ok_or(Refusal::Token)
    }
}

/// Reads lines of a token and its tenant. No error repeats a token.
fn parse(text: &str) -> Result<HashMap<Box<str>, Arc<str>>, String> {
    let mut tenants = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| Err(format!("line {}: {why}", number + 1));
        let Some((token, tenant)) = line.split_once(char::is_whitespace) else {
            return wrong("expected a token, a space and a tenant");
        };
        let tenant = tenant.trim_start();
        if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong(
                "expected a token of at least 22 ASCII letters, digits or punctuation marks",
            );
        }
        if tenant.len() > TENANT_BYTES_MAX {
            return wrong("expected a tenant of at most 95 bytes");
        }
        if tenants.insert(token.into(), tenant.into()).is_some() {
            return wrong("this token already has a tenant");
        }
    }
    Ok(tenants)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdefghij=+";

    #[test]
    fn a_file_is_read_and_what_is_wrong_is_told_without_the_token() {
        let read = parse(&format!("# tokens\n\n{TOKEN} web 1\n x{TOKEN}\tdb\n")).unwrap();
        assert_eq!((&*read[TOKEN], read.len()), ("web 1", 2));
        for (text, told) in [
            (TOKEN.to_owned(), "line 1: expected a token"),
            ("\nshort web".to_owned(), "line 2: expected a token of"),
            (format!("{TOKEN}\u{e9} web"), "expected a token of"),
            (format!("{TOKEN} {}", "t".repeat(96)), "expected a tenant of"),
            (format!("{TOKEN} a\n{TOKEN} b"), "line 2: this token"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(told) && !error.contains("0123"), "{error}");
        }
    }

    #[test]
    fn a_token_in_plain_is_taken_from_this_machine_alone_unless_permitted() {
        let tenants = parse(&format!("{TOKEN} web")).unwrap();
        let private = Tokens { tenants, transport: Transport::Private };
        let any = Tokens { transport: Transport::Any, ..private.clone() };
        let (near, far) = ("[::ffff:127.0.0.1]:1".parse().ok(), "10.0.0.1:1".parse().ok());
        assert_eq!(private.tenant(TOKEN, near, false).as_deref(), Ok("web"));
        assert_eq!(private.tenant(TOKEN, far, true).as_deref(), Ok("web"));
        assert_eq!(private.tenant(TOKEN, far, false), Err(Refusal::Transport));
        assert_eq!(private.tenant(TOKEN, None, false), Err(Refusal::Transport));
        assert_eq!(any.tenant(TOKEN, far, false).as_deref(), Ok("web"));
        assert_eq!(any.tenant("", far, true), Err(Refusal::Token));
        assert!(!format!("{any:?}").contains("0123"), "no log has it");
    }
}
