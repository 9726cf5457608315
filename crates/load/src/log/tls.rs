//! Whom to trust, and as whom to come, by files in PEM.

use std::{fs, io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use super::args::Args;
use crate::error::{LoadError, plain};

/// How TLS is spoken, and with whom.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

/// What the flags say; none where it is no TLS.
pub(super) fn from(args: &Args) -> Result<Option<Tls>, LoadError> {
    let Some(path) = &args.tls_ca else { return Ok(None) };
    let name = match &args.tls_name {
        Some(name) => name.clone(),
        None => {
            let host = args.target.rsplit_once(':').map_or(&*args.target, |(host, _)| host);
            host.trim_start_matches('[').trim_end_matches(']').to_owned()
        }
    };
    let own = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    Tls::new(path, &name, own).map(Some)
}

impl Tls {
    /// Trusts whom the certificates in `ca` have signed to be `name`; has a certificate and a key
    /// of its own where they are given.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: a file that cannot be read or is not in PEM, a name that is none.
    pub fn new(ca: &Path, name: &str, own: Option<(&Path, &Path)>) -> Result<Tls, LoadError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("--tls-ca", ca)? {
            roots.add(certificate).map_err(|error| failed("--tls-ca", ca, &error.to_string()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| LoadError::Failed(format!("TLS: {error}")))?
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("--tls-cert", certificate)?;
                let file = read("--tls-key", key)?;
                let secret = PrivateKeyDer::from_pem_slice(&file)
                    .map_err(|error| failed("--tls-key", key, &error.to_string()))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| failed("--tls-cert", certificate, &error.to_string()))?
            }
        };
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            LoadError::Usage(format!("--tls-name: invalid value '{name}': expected a host name"))
        })?;
        Ok(Tls { config: Arc::new(config), name })
    }
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let file = read(flag, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file).collect();
    let found = found.map_err(|error| failed(flag, path, &error.to_string()))?;
    if found.is_empty() {
        return Err(failed(flag, path, "has no certificate; name a file in PEM"));
    }
    Ok(found)
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "name a file that you may read",
            _ => "name an existing file",
        };
        failed(flag, path, &format!("{}; {advice}", plain(&error)))
    })
}

fn failed(flag: &str, path: &Path, reason: &str) -> LoadError {
    LoadError::Failed(format!("{flag} {}: {reason}", path.display()))
}
