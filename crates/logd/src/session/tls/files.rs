//! Certificates and keys, from files.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::ValueEnum;
use rustls::{
    RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring::default_provider},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::{TLS12, TLS13},
};

use crate::{error::LogdError, monitoring::log, session::tls::certificate::is_authority};

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientAuth {
    /// Clients may present one
    Optional,
    /// Clients without one are refused
    Required,
}

/// The paths of certificates and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The authorities that sign clients' certificates.
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: ClientAuth,
}

impl Files {
    /// Reads the files.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>, LogdError> {
        let provider = provider();
        let own = Own { certificate: (CERTIFICATE, &self.certificate), key: (KEY, &self.key) };
        let (chain, key) = own.read()?;
        if chain.first().is_some_and(is_authority) {
            log::remark(
                "tls",
                format_args!(
                    "{CERTIFICATE} {}: it is the certificate of an authority, which clients that use rustls refuse \
                    (CaUsedAsEndEntity); make another with `openssl req -x509 ... -addext basicConstraints=critical,CA:FALSE`",
                    self.certificate.display()
                ),
            );
        }
        let versions = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(VERSIONS)
            .map_err(LogdError::failed)?;
        let verified = match &self.client_ca {
            None => versions.with_no_client_auth(),
            Some(path) => {
                let roots = authorities(CLIENT_CA, path)?;
                let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                let builder = match self.client_auth {
                    ClientAuth::Optional => builder.allow_unauthenticated(),
                    ClientAuth::Required => builder,
                };
                let verifier = builder.build().map_err(|error| wrong(CLIENT_CA, path, &error))?;
                versions.with_client_cert_verifier(verifier)
            }
        };
        let config = verified.with_single_cert(chain, key);
        let mut config = config.map_err(|error| own.unfit(&error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// The options that name the files.
const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const CLIENT_CA: &str = "--tls-client-ca";

/// The protocol versions that are spoken.
pub(crate) const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// What encrypts and verifies.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// The files of a certificate and its key, each with the option that names it.
pub(crate) struct Own<'a> {
    pub(crate) certificate: (&'a str, &'a Path),
    pub(crate) key: (&'a str, &'a Path),
}

impl Own<'_> {
    /// Reads the files.
    pub(crate) fn read(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), LogdError> {
        let (option, path) = self.certificate;
        let chain = certificates(option, path)?;
        let (option, path) = self.key;
        let key = PrivateKeyDer::from_pem_file(path);
        Ok((chain, key.map_err(|error| unreadable(option, path, &error))?))
    }

    /// Explains why the certificate and the key do not match.
    pub(crate) fn unfit(&self, error: &rustls::Error) -> LogdError {
        let ((option, path), (key_option, key)) = (self.certificate, self.key);
        match error {
            rustls::Error::InconsistentKeys(_) => LogdError::Failed(format!(
                "{key_option} {}: it is not the key of the certificate in {}; name two that belong together",
                key.display(),
                path.display()
            )),
            error => wrong(option, path, error),
        }
    }
}

/// Reads the certificates of authorities.
pub(crate) fn authorities(option: &str, path: &Path) -> Result<RootCertStore, LogdError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(option, path)? {
        roots.add(certificate).map_err(|error| wrong(option, path, &error))?;
    }
    Ok(roots)
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, LogdError> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, pem::Error>>();
    let found = read().map_err(|error| unreadable(option, path, &error))?;
    match found.is_empty() {
        true => Err(wrong(option, path, &"it has no certificate; name a PEM file with one")),
        false => Ok(found),
    }
}

fn unreadable(option: &str, path: &Path, error: &pem::Error) -> LogdError {
    match error {
        pem::Error::Io(error) => LogdError::on(path, error).of(option),
        pem::Error::NoItemsFound => {
            wrong(option, path, &"it has no private key; name a PEM file with one")
        }
        error => wrong(option, path, error),
    }
}

fn wrong(option: &str, path: &Path, error: &impl fmt::Display) -> LogdError {
    LogdError::Failed(format!("{option} {}: {error}", path.display()))
}
