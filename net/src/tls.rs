//! Certificates: the one that this node presents, read from PEM files and replaced without closing connections, and the authorities that
//! clients trust.
//!
//! An unusable file leaves the certificate in use as it is, until a usable one is read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Returns the system's trusted authorities, without unreadable ones. If there is none, logs a warning with the consequence, `otherwise`.
pub fn system_roots(otherwise: &str) -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a certificate of the system can't be read");
    }
    let mut roots = RootCertStore::empty();
    let (_, unreadable) = roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        tracing::warn!(unreadable, "the system trusts no certificate: {otherwise}");
    }
    roots
}

/// Adds the authorities of a PEM file to `roots`.
///
/// # Errors
/// The file can't be read, or holds no certificate.
pub fn authorities(
    file: &Path,
    mut roots: RootCertStore,
) -> Result<RootCertStore, CertificateFault> {
    let unusable = |why: String| CertificateFault::File(file.to_owned(), why);
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(format!("holds no readable certificates: {error}")))?;
    // A file without any PEM block reads as an empty list, not as an error.
    if certificates.is_empty() {
        return Err(unusable("holds no certificate".to_owned()));
    }
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    Ok(roots)
}

/// Returns the configuration of a client that trusts `roots` and presents no certificate.
///
/// # Panics
/// Never: ring supports the versions of TLS.
pub fn client(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring knows the versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A certificate with its key, and the files that they are read from.
pub struct Certificate {
    files: Files,
    current: ArcSwap<CertifiedKey>,
}

/// Paths of a certificate chain and its private key, both PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The chain, the server's certificate first.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Reason why a certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFault {
    /// The file can't be read, or holds no item of the expected kind.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// Key and certificate don't match, or are of an unknown kind.
    #[error("{0} with {1}: {2}")]
    Pair(PathBuf, PathBuf, rustls::Error),
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// The files hold no certificate with its key.
    pub fn load(files: Files) -> Result<Arc<Self>, CertificateFault> {
        let current = ArcSwap::from_pointee(read(&files)?);
        Ok(Arc::new(Self { files, current }))
    }

    /// Reads the files again. Open connections continue; new ones use the new certificate.
    ///
    /// # Errors
    /// The files hold no certificate with its key; the certificate in use stays.
    pub fn reload(&self) -> Result<(), CertificateFault> {
        self.current.store(Arc::new(read(&self.files)?));
        Ok(())
    }

    /// Returns the certificate in use.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.current.load_full()
    }

    /// Returns the paths of the files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the configuration of a server with this certificate: TLS 1.2 or 1.3, and the first of the `protocols` that the client
    /// supports (RFC 7301).
    pub fn server(self: &Arc<Self>, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring knows TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.files).finish()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(files: &Files) -> Result<CertifiedKey, CertificateFault> {
    let Files { chain, key } = files;
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(chain, "certificate", &error))?;
    if certificates.is_empty() {
        return Err(CertificateFault::File(
            chain.clone(),
            "holds no certificate".into(),
        ));
    }

    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| unreadable(key, "private key", &error))?;
    CertifiedKey::from_der(certificates, private, &provider())
        .map_err(|error| CertificateFault::Pair(chain.clone(), key.clone(), error))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other errors get the same text"
)]
fn unreadable(file: &Path, what: &str, error: &pem::Error) -> CertificateFault {
    let why = match error {
        pem::Error::Io(error) => format!("can't be read: {error}"),
        pem::Error::NoItemsFound => format!("holds no {what}"),
        // The error's text may quote the file, which may be the key.
        _ => format!("holds no well-formed PEM {what}"),
    };
    CertificateFault::File(file.to_owned(), why)
}
