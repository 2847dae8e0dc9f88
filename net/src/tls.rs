//! Certificates: those that we show, read from PEM files and replaced while connections go on; and whom our clients trust.
//!
//! What can't be used replaces nothing: the certificate in use stays until a better one is read.

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

/// Whom the system trusts; what can't be read is left out. A system that trusts nobody is told of, with what follows from it.
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

/// The authorities of a PEM file, beside those that are trusted already.
///
/// # Errors
/// The file can't be read, or holds none.
pub fn authorities(file: &Path, mut roots: RootCertStore) -> Result<RootCertStore, Unusable> {
    let unusable = |why: String| Unusable::File(file.to_owned(), why);
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(format!("holds no readable certificates: {error}")))?;
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

/// A client that trusts these and shows no certificate of its own.
///
/// # Panics
/// Never: ring knows the versions of TLS.
pub fn client(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring knows the versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A certificate with its key, and the files that they come from.
pub struct Certificate {
    files: Files,
    current: ArcSwap<CertifiedKey>,
}

/// Where a certificate chain and its private key are, both PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The chain, that of the server first.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why a certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file can't be read, or holds nothing of the kind.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// Key and certificate don't fit, or are of a kind that isn't known.
    #[error("{0} with {1}: {2}")]
    Pair(PathBuf, PathBuf, rustls::Error),
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// They hold no certificate with its key.
    pub fn load(files: Files) -> Result<Arc<Self>, Unusable> {
        let current = ArcSwap::from_pointee(read(&files)?);
        Ok(Arc::new(Self { files, current }))
    }

    /// Reads the files again. Connections that are up go on; new ones see what was read.
    ///
    /// # Errors
    /// They hold no certificate with its key; the one in use stays.
    pub fn reload(&self) -> Result<(), Unusable> {
        self.current.store(Arc::new(read(&self.files)?));
        Ok(())
    }

    /// What is shown now.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.current.load_full()
    }

    /// The files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// How a server shows the certificate: TLS 1.2 or 1.3, and one of the protocols, the first that the client knows (RFC 7301).
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

fn read(files: &Files) -> Result<CertifiedKey, Unusable> {
    let Files { chain, key } = files;
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(chain, "certificate", &error))?;
    if certificates.is_empty() {
        return Err(Unusable::File(chain.clone(), "holds no certificate".into()));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| unreadable(key, "private key", &error))?;
    CertifiedKey::from_der(certificates, private, &provider())
        .map_err(|error| Unusable::Pair(chain.clone(), key.clone(), error))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all the others are told alike"
)]
fn unreadable(file: &Path, what: &str, error: &pem::Error) -> Unusable {
    let why = match error {
        pem::Error::Io(error) => format!("can't be read: {error}"),
        pem::Error::NoItemsFound => format!("holds no {what}"),
        // Its text may quote the file, and that may be the key.
        _ => format!("holds no well-formed PEM {what}"),
    };
    Unusable::File(file.to_owned(), why)
}
