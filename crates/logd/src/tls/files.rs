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

/// What a client's certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientAuth {
    /// A client may show one
    Optional,
    /// A client without one is refused
    Required,
}

/// Where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Who signs clients' certificates.
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: ClientAuth,
}

impl Files {
    /// Reads them.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>, LogdError> {
        let provider = Arc::new(default_provider());
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unreadable(&self.key, &error))?;
        let versions = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(LogdError::failed)?;
        let verified = match &self.client_ca {
            None => versions.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| wrong(path, &error))?;
                }
                let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                let builder = match self.client_auth {
                    ClientAuth::Optional => builder.allow_unauthenticated(),
                    ClientAuth::Required => builder,
                };
                let verifier = builder.build().map_err(|error| wrong(path, &error))?;
                versions.with_client_cert_verifier(verifier)
            }
        };
        let config = verified.with_single_cert(chain, key);
        let mut config = config.map_err(|error| wrong(&self.certificate, &error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LogdError> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, pem::Error>>();
    let found = read().map_err(|error| unreadable(path, &error))?;
    match found.is_empty() {
        true => Err(LogdError::Failed(format!("{}: no certificate in it", path.display()))),
        false => Ok(found),
    }
}

fn unreadable(path: &Path, error: &pem::Error) -> LogdError {
    match error {
        pem::Error::Io(error) => LogdError::on(path, error),
        pem::Error::NoItemsFound => {
            LogdError::Failed(format!("{}: what is looked for is not in it", path.display()))
        }
        error => wrong(path, error),
    }
}

fn wrong(path: &Path, error: &impl std::fmt::Display) -> LogdError {
    LogdError::Failed(format!("{}: {error}", path.display()))
}
