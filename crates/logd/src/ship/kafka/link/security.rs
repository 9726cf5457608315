//! How logd knows brokers, and how they know logd: TLS, and a login by SASL.
//!
//! All files are read again for each connection, so one that was replaced needs no restart. It makes no connection.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::ValueEnum;
use rustls::ClientConfig;

use super::scram::Hash;
use crate::{
    error::LogdError,
    session::tls::{Own, VERSIONS, authorities, provider},
};

const CA: &str = "--kafka-ca";
const CERT: &str = "--kafka-cert";
const KEY: &str = "--kafka-key";
const LOGIN: &str = "--kafka-login";

/// How a login shows that it knows the password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mechanism {
    /// Send the password itself; needs TLS
    #[value(name = "plain")]
    Plain,
    /// Send a proof of the password (RFC 7677)
    #[value(name = "scram-sha-256")]
    ScramSha256,
    /// Send a proof of the password, with SHA-512
    #[default]
    #[value(name = "scram-sha-512")]
    ScramSha512,
}

impl Mechanism {
    /// Returns Kafka's name of it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }

    /// Returns the hash of its proof, if it has one.
    pub(super) fn hash(self) -> Option<Hash> {
        match self {
            Mechanism::Plain => None,
            Mechanism::ScramSha256 => Some(Hash::Sha256),
            Mechanism::ScramSha512 => Some(Hash::Sha512),
        }
    }
}

/// The files that TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The authorities that sign brokers' certificates.
    pub(crate) authorities: PathBuf,
    /// A certificate and its key, if brokers want one.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Reads the files.
    pub(super) fn load(&self) -> Result<Arc<ClientConfig>, LogdError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(LogdError::failed)?
            .with_root_certificates(authorities(CA, &self.authorities)?);
        let Some((certificate, key)) = &self.own else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let own = Own { certificate: (CERT, certificate), key: (KEY, key) };
        let (chain, key) = own.read()?;
        let config = builder.with_client_auth_cert(chain, key);
        config.map(Arc::new).map_err(|error| own.unfit(&error))
    }
}

/// Where a login's user and password are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) mechanism: Mechanism,
    /// A file with two lines: the user and the password.
    pub(crate) file: PathBuf,
}

impl Login {
    /// Reads the file.
    pub(super) fn load(&self) -> Result<Credentials, LogdError> {
        let text = std::fs::read_to_string(&self.file);
        let text = text.map_err(|error| LogdError::on(&self.file, &error).of(LOGIN))?;
        parse(&text).ok_or_else(|| {
            let file = self.file.display();
            let wrong = "expected two lines: the user and the password";
            LogdError::Failed(format!("{LOGIN} {file}: {wrong}"))
        })
    }

    /// Names the file in an error.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}

/// A user and a password.
#[derive(PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Reads two lines. No error repeats them. PLAIN has zero bytes between its parts.
fn parse(text: &str) -> Option<Credentials> {
    let mut lines = text.lines();
    let (user, password) = (lines.next()?.to_owned(), lines.next()?.to_owned());
    let is_text = |text: &str| !text.is_empty() && !text.contains('\0');
    let is_good = is_text(&user) && is_text(&password) && lines.next().is_none();
    is_good.then_some(Credentials { user, password })
}

/// How connections to brokers are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Security {
    pub(crate) tls: Option<Tls>,
    pub(crate) login: Option<Login>,
}

impl Security {
    /// Checks the files.
    ///
    /// # Errors
    ///
    /// One cannot be read, or is no such file.
    pub(crate) fn check(&self) -> Result<(), LogdError> {
        self.tls.as_ref().map(Tls::load).transpose()?;
        self.login.as_ref().map(Login::load).transpose()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_two_lines() {
        let read = |text: &str| parse(text).map(|read| (read.user, read.password));
        let both = Some(("logd".to_owned(), "a b,c=d ".to_owned()));
        for text in ["logd\na b,c=d ", "logd\na b,c=d \n", "logd\r\na b,c=d \r\n"] {
            assert_eq!(read(text), both, "{text:?}");
        }
        for text in ["", "logd", "logd\n", "logd\n\n", "\nsecret", "a\nb\nc", "a\0b\nc", "a\nb\0"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert!(!format!("{:?}", parse("logd\nsecret")).contains("secret"), "no log has it");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "secret\n").unwrap();
        let login = |file: &Path| {
            let login = Login { mechanism: Mechanism::Plain, file: file.to_owned() };
            Security { login: Some(login), tls: None }.check().unwrap_err().to_string()
        };
        assert!(login(&file).starts_with("--kafka-login ") && login(&file).contains("two lines"));
        assert!(!login(&file).contains("secret"));
        assert!(login(&directory.path().join("none")).contains("; name an existing path"));
        let tls = |own| {
            let tls = Tls { authorities: file.clone(), own };
            Security { tls: Some(tls), login: None }.check().unwrap_err().to_string()
        };
        assert!(
            tls(None).starts_with("--kafka-ca ") && tls(None).contains("it has no certificate")
        );
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        std::fs::write(&file, made.cert.pem()).unwrap();
        let key = directory.path().join("key");
        assert!(tls(Some((file.clone(), key.clone()))).starts_with("--kafka-key "));
        std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        let told = tls(Some((file.clone(), key)));
        assert!(told.contains("not the key of the certificate"), "{told}");
    }
}
