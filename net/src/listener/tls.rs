//! TLS of SIP streams: the certificate that this node presents, and the authorities that it trusts (RFC 3261 §26.3, RFC 5922).
//!
//! Read from PEM files at startup, and again on SIGHUP. An unusable file leaves the configuration as it is.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trunkline_sip::verified::VerifiedNames;

use super::handshake::Unverified;
use super::sip_identity::SipServerVerifier;
use crate::tls::{Certificate, CertificateFault, Files, authorities, system_roots};

/// Paths of the PEM files.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// Certificate presented to clients, and to servers that ask for one.
    pub certificate: Option<Files>,
    /// Certificate authorities of servers; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Certificate authorities of clients; `None`: clients present no certificate.
    pub client_authorities: Option<PathBuf>,
}

/// TLS configuration of the streams.
pub struct Security {
    settings: TlsSettings,
    certificate: Option<Arc<Certificate>>,
    current: ArcSwap<Current>,
    names: Arc<VerifiedNames>,
    unverified: Unverified,
}

struct Current {
    /// Configuration for clients that connect; `None` without a certificate.
    server: Option<Arc<ServerConfig>>,
    /// Configuration towards servers that aren't SIP's, such as bots.
    client: Arc<ClientConfig>,
    /// Configuration towards SIP peers.
    sip_client: Arc<ClientConfig>,
}

impl Security {
    /// Reads the files.
    ///
    /// # Errors
    /// A file can't be used.
    pub fn load(
        settings: TlsSettings,
        names: Arc<VerifiedNames>,
    ) -> Result<Arc<Self>, CertificateFault> {
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

    /// Returns the certificate that this node presents, if it has one.
    pub fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.certificate.as_ref()
    }

    /// Reads the files again; open connections continue.
    ///
    /// # Errors
    /// A file can't be used; the configuration stays as it was.
    pub fn reload(&self) -> Result<(), CertificateFault> {
        let current = Current::read(&self.settings, self.certificate.as_ref())?;
        // The authorities are read by now, and a certificate is replaced once it is read: a fault changes nothing.
        if let Some(certificate) = &self.certificate {
            certificate.reload()?;
        }
        self.current.store(Arc::new(current));
        Ok(())
    }

    /// Returns the table of names to which flows refer by number.
    pub fn names(&self) -> &Arc<VerifiedNames> {
        &self.names
    }

    /// Returns the peers that the log has reported as unverified.
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

    /// Returns the configuration of a client that isn't SIP's. It trusts `tls_ca`, or else the system's authorities.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.current.load().client)
    }

    /// Performs the handshake with a peer, which has to prove the name of number `required_name`, or its address if that is 0.
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        required_name: u32,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = match self.names.name(required_name) {
            // An IPv6 address keeps its brackets in a SIP URI; a certificate has none.
            Some(name) => ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
                .map_err(io::Error::other)?,
            // The flow names no host, so the certificate has to be for the address that was called.
            None if required_name == 0 => {
                ServerName::IpAddress(stream.peer_addr()?.ip().to_canonical().into())
            }
            // Names are forgotten when there are too many. To connect without a check would be worse than to fail.
            None => {
                return Err(io::Error::other(
                    "the name that the peer must prove is no longer known",
                ));
            }
        };

        let config = Arc::clone(&self.current.load().sip_client);
        TlsConnector::from(config).connect(name, stream).await
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Security").field(&self.settings).finish()
    }
}

impl Current {
    fn read(
        settings: &TlsSettings,
        certificate: Option<&Arc<Certificate>>,
    ) -> Result<Self, CertificateFault> {
        let server = match certificate {
            Some(certificate) => Some(server(settings, certificate)?),
            None => None,
        };
        let (client, sip_client) = clients(settings, certificate)?;
        Ok(Self {
            server,
            client,
            sip_client,
        })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server(
    settings: &TlsSettings,
    certificate: &Arc<Certificate>,
) -> Result<Arc<ServerConfig>, CertificateFault> {
    let Some(file) = &settings.client_authorities else {
        return Ok(certificate.server(&[]));
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(authorities(file, RootCertStore::empty())?),
        provider(),
    )
    .build()
    .map_err(|error| CertificateFault::File(file.clone(), error.to_string()))?;

    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.2 and 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(certificate) as _);
    Ok(Arc::new(config))
}

/// Returns the configurations of [`Current::client`] and [`Current::sip_client`].
fn clients(
    settings: &TlsSettings,
    certificate: Option<&Arc<Certificate>>,
) -> Result<(Arc<ClientConfig>, Arc<ClientConfig>), CertificateFault> {
    let roots = match &settings.authorities {
        Some(file) => authorities(file, RootCertStore::empty())?,
        None => system_roots("no peer on TLS can be verified; set sip.tls_ca"),
    };
    let roots = Arc::new(roots);
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.2 and 1.3")
        .with_root_certificates(Arc::clone(&roots));
    let client = match certificate {
        Some(certificate) => {
            builder.with_client_cert_resolver(Arc::new(OwnCertificate(Arc::clone(certificate))))
        }
        None => builder.with_no_client_auth(),
    };

    let mut sip_client = client.clone();
    // Without any authority no peer can be verified, by whatever name.
    if let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(roots, provider()).build() {
        let verifier = Arc::new(SipServerVerifier(verifier));
        sip_client.dangerous().set_certificate_verifier(verifier);
    }

    Ok((Arc::new(client), Arc::new(sip_client)))
}

/// Presents this node's certificate to servers that ask for one.
#[derive(Debug)]
struct OwnCertificate(Arc<Certificate>);

impl ResolvesClientCert for OwnCertificate {
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
