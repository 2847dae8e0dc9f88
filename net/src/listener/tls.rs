//! TLS of the streams: what we show, whom we believe (RFC 3261 §26.3, RFC 5922).
//!
//! Read from PEM files, and again on SIGHUP. What can't be used replaces nothing.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::ResolvesClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trunkline_sip::verified::Names;

use super::handshake::Unverified;
use crate::tls::{Certificate, Files, Unusable, authorities, system_roots};

/// Where the files are.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What we show: to clients, and to servers that ask for it.
    pub certificate: Option<Files>,
    /// Whom we believe when we connect; absent: the system's authorities.
    pub authorities: Option<PathBuf>,
    /// Whom clients have to be certified by; absent: they show nothing.
    pub client_authorities: Option<PathBuf>,
}

/// TLS as it is spoken on the streams.
pub struct Security {
    settings: Settings,
    certificate: Option<Arc<Certificate>>,
    current: ArcSwap<Current>,
    names: Arc<Names>,
    unverified: Unverified,
}

struct Current {
    /// None without a certificate.
    server: Option<Arc<ServerConfig>>,
    client: Arc<ClientConfig>,
}

impl Security {
    /// Reads the files.
    ///
    /// # Errors
    /// One can't be used.
    pub fn load(settings: Settings, names: Arc<Names>) -> Result<Arc<Self>, Unusable> {
        let certificate = settings.certificate.clone().map(Certificate::load);
        let certificate = certificate.transpose()?;
        let current = Current::read(&settings, certificate.as_ref())?;
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(current),
            settings,
            certificate,
            names,
            unverified: Unverified::default(),
        }))
    }

    /// Reads the files again; connections that are up go on.
    ///
    /// # Errors
    /// One can't be used; everything stays as it was.
    pub fn reload(&self) -> Result<(), Unusable> {
        let current = Current::read(&self.settings, self.certificate.as_ref())?;
        if let Some(certificate) = &self.certificate {
            certificate.reload()?;
        }
        self.current.store(Arc::new(current));
        Ok(())
    }

    /// The names that flows speak of.
    pub fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// The peers that the log has named as not verified.
    pub(super) const fn unverified(&self) -> &Unverified {
        &self.unverified
    }

    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
        let Some(config) = self.current.load().server.clone() else {
            return Err(io::Error::other("no certificate is configured"));
        };
        TlsAcceptor::from(config).accept(stream).await
    }

    /// Connects to a peer that has to prove the name that the flow asked for; one without a name, its address.
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        asked: u32,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = match self.names.name(asked) {
            Some(name) => ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
                .map_err(io::Error::other)?,
            None if asked == 0 => {
                ServerName::IpAddress(stream.peer_addr()?.ip().to_canonical().into())
            }
            None => {
                return Err(io::Error::other(
                    "the name that it is to prove is known no more",
                ));
            }
        };
        let config = Arc::clone(&self.current.load().client);
        TlsConnector::from(config).connect(name, stream).await
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Security").field(&self.settings).finish()
    }
}

impl Current {
    fn read(settings: &Settings, certificate: Option<&Arc<Certificate>>) -> Result<Self, Unusable> {
        let server = match certificate {
            Some(certificate) => Some(server(settings, certificate)?),
            None => None,
        };
        Ok(Self {
            server,
            client: client(settings, certificate)?,
        })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server(
    settings: &Settings,
    certificate: &Arc<Certificate>,
) -> Result<Arc<ServerConfig>, Unusable> {
    let Some(file) = &settings.client_authorities else {
        return Ok(certificate.server(&[]));
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(authorities(file, RootCertStore::empty())?),
        provider(),
    )
    .build()
    .map_err(|error| Unusable::File(file.clone(), error.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.2 and 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(certificate) as _);
    Ok(Arc::new(config))
}

fn client(
    settings: &Settings,
    certificate: Option<&Arc<Certificate>>,
) -> Result<Arc<ClientConfig>, Unusable> {
    let roots = match &settings.authorities {
        Some(file) => authorities(file, RootCertStore::empty())?,
        None => system_roots("no peer on TLS can be verified; set sip.tls_ca"),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.2 and 1.3")
        .with_root_certificates(roots);
    Ok(Arc::new(match certificate {
        Some(certificate) => {
            builder.with_client_cert_resolver(Arc::new(Ours(Arc::clone(certificate))))
        }
        None => builder.with_no_client_auth(),
    }))
}

/// Our certificate, for servers that ask who we are.
#[derive(Debug)]
struct Ours(Arc<Certificate>);

impl ResolvesClientCert for Ours {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let certificate = self.0.current();
        certificate
            .key
            .choose_scheme(schemes)
            .is_some()
            .then_some(certificate)
    }

    fn has_certs(&self) -> bool {
        true
    }
}
