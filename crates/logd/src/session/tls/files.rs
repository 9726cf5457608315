//! Certificates and keys, from files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::ValueEnum;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::{TLS12, TLS13},
};

use crate::error::LogdError;

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientAuth {
    /// A client may show one
    Optional,
    /// A client without one is refused
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
        let provider = Arc::new(default_provider());
        let chain = certificates(CERTIFICATE, &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unreadable(KEY, &self.key, &error))?;
        let versions = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(LogdError::failed)?;
        let verified = match &self.client_ca {
            None => versions.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(CLIENT_CA, path)? {
                    roots.add(certificate).map_err(|error| wrong(CLIENT_CA, path, &error))?;
                }
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
        let mut config = config.map_err(|error| self.unfit(&error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Explains why the certificate and the key do not match.
    fn unfit(&self, error: &rustls::Error) -> LogdError {
        match error {
            rustls::Error::InconsistentKeys(_) => LogdError::Failed(format!(
                "{KEY} {}: not the key of the certificate in {}: name two that belong together",
                self.key.display(),
                self.certificate.display()
            )),
            error => wrong(CERTIFICATE, &self.certificate, error),
        }
    }
}

/// The options that name the files.
const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const CLIENT_CA: &str = "--tls-client-ca";

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, LogdError> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, pem::Error>>();
    let found = read().map_err(|error| unreadable(option, path, &error))?;
    match found.is_empty() {
        true => Err(wrong(option, path, &"no certificate in it (PEM is wanted)")),
        false => Ok(found),
    }
}

fn unreadable(option: &str, path: &Path, error: &pem::Error) -> LogdError {
    match error {
        pem::Error::Io(error) => LogdError::on(path, error).of(option),
        pem::Error::NoItemsFound => wrong(option, path, &"no private key in it (PEM is wanted)"),
        error => wrong(option, path, error),
    }
}

fn wrong(option: &str, path: &Path, error: &impl std::fmt::Display) -> LogdError {
    LogdError::Failed(format!("{option} {}: {error}", path.display()))
}
