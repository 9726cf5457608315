//! Whom to trust, and as whom to come.

use std::{fmt, fs, io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use crate::error::SetupError;

/// How the client speaks TLS.
///
/// The daemon's certificate has to be for the host of the address, or for [`Tls::server_name`].
///
/// # Examples
///
/// ```no_run
/// use ringwise_log::{Client, Tls};
///
/// let tls = Tls::with_ca("/etc/web/ca.pem")?;
/// let client = Client::builder("logs.example:9001").tls(tls).token("secret").start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl Tls {
    /// Trusts daemons whose certificates were signed by one of those in a file (PEM).
    ///
    /// # Errors
    ///
    /// [`SetupError::Tls`]: the file cannot be read, or has no certificate.
    pub fn with_ca(ca: impl AsRef<Path>) -> Result<Tls, SetupError> {
        Tls::from_files(ca.as_ref(), None)
    }

    /// The same, and shows a certificate of its own with its key, by which the daemon knows the client's tenant.
    ///
    /// # Errors
    ///
    /// [`SetupError::Tls`]: a file cannot be read or does not have what it should.
    pub fn with_ca_and_identity(
        ca: impl AsRef<Path>,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Tls, SetupError> {
        Tls::from_files(ca.as_ref(), Some((certificate.as_ref(), key.as_ref())))
    }

    /// Uses a configuration of rustls.
    pub fn with_config(config: Arc<ClientConfig>) -> Tls {
        Tls { config, name: None }
    }

    /// Expects a certificate for this name or IP address instead of the address's host.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`]: it is neither.
    pub fn server_name(mut self, name: &str) -> Result<Tls, SetupError> {
        self.name = Some(server_name(name).ok_or_else(|| {
            SetupError::Setting("server_name", format!("{name:?} is no name of a host"))
        })?);
        Ok(self)
    }

    fn from_files(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Tls, SetupError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| failed(ca, error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| SetupError::Tls(error.to_string()))?
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let secret = PrivateKeyDer::from_pem_slice(&read(key)?);
                let secret = secret.map_err(|error| failed(key, error))?;
                let built = builder.with_client_auth_cert(chain, secret);
                built.map_err(|error| failed(certificate, error))?
            }
        };
        Ok(Tls::with_config(Arc::new(config)))
    }

    /// A session with a daemon at this address.
    pub(crate) fn connection(&self, address: &str) -> io::Result<ClientConnection> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(host(address)).ok_or_else(|| {
                io::Error::other("TLS: the address has no name for a certificate; set server_name")
            })?,
        };
        ClientConnection::new(self.config.clone(), name)
            .map_err(|error| io::Error::other(format!("TLS: {error}")))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

fn server_name(name: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(name.to_owned()).ok()
}

/// `[::1]:9000` is at `::1`.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let file = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file).collect();
    let found = found.map_err(|error| failed(path, error))?;
    if found.is_empty() {
        return Err(failed(path, "it has no certificate in PEM"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, SetupError> {
    fs::read(path).map_err(|error| failed(path, error))
}

fn failed(path: &Path, why: impl fmt::Display) -> SetupError {
    SetupError::Tls(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_certificates_are_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for path in [file.path(), Path::new("no-such-file")] {
            let error = Tls::with_ca(path).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn the_host_of_an_address_is_what_a_certificate_is_for() {
        for (address, expected) in
            [("logd.example.net:9000", "logd.example.net"), ("[::1]:9000", "::1"), ("a", "a")]
        {
            assert_eq!(host(address), expected);
        }
    }
}
