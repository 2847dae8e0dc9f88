//! A certificate authority for tests, and a runtime that answers one call over TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use tempfile::TempDir;

use crate::link::Stream;
use crate::message::SDP;
use crate::peer::FOREVER;
use crate::{Deadline, Message, Peer};

const PATIENCE: Duration = Duration::from_secs(10);

/// A certificate authority, and the files of the certificates that it issued.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = Self {
            issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate"),
            folder: tempfile::tempdir().expect("a folder"),
        };
        let written = std::fs::write(authority.file("ca.pem"), authority.issuer.pem());
        written.expect("the authority's certificate can be written");
        authority
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Writes `NAME.pem` and `NAME.key`, a certificate for this name or address.
    pub fn certify(&self, name: &str, subject: &str) {
        let params = CertificateParams::new(vec![subject.to_owned()]).expect("a name");
        self.sign(name, params);
    }

    /// The same, for a URI alone.
    pub fn certify_uri(&self, name: &str, uri: &str) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a URI"))];
        self.sign(name, params);
    }

    fn sign(&self, name: &str, params: CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is signed");
        for (file, text) in [
            (format!("{name}.pem"), certificate.pem()),
            (format!("{name}.key"), key.serialize_pem()),
        ] {
            std::fs::write(self.file(&file), text).expect("it can be written");
        }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots
            .add(self.issuer.der().clone())
            .expect("it is a certificate");
        Arc::new(roots)
    }

    fn shown(&self, name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = CertificateDer::from_pem_file(self.file(&format!("{name}.pem")));
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{name}.key")));
        (vec![chain.expect("a certificate")], key.expect("a key"))
    }

    /// Configuration of a server under the certificate of that name.
    pub(crate) fn server(&self, name: &str) -> Arc<ServerConfig> {
        let (chain, key) = self.shown(name);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key);
        Arc::new(config.expect("a certificate"))
    }

    /// Connects to a server on this machine, whose certificate must be valid.
    pub fn connect(
        &self,
        server: SocketAddr,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        let name = ServerName::IpAddress(server.ip().into());
        let client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut socket = TcpStream::connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut client = client;

        // Completed here, so that a refused certificate is an error of this function and not of the first read.
        while client.is_handshaking() {
            client.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(client, socket))
    }

    /// A peer on a new connection to a server on this machine, whose certificate must be valid.
    pub fn peer(&self, server: SocketAddr) -> Peer {
        let stream = self.connect(server).expect("TLS");
        Peer::over(Stream::Client(Box::new(stream)))
    }

    /// The certificate that a server presents now.
    pub fn seen_at(&self, server: SocketAddr) -> Vec<u8> {
        let stream = self.connect(server).expect("TLS");
        let shown = stream.conn.peer_certificates().expect("certificates");
        shown[0].to_vec()
    }
}

/// Answers OPTIONS and refuses calls as busy under the certificate of that name, on any number of connections, until the process ends.
pub fn busy(authority: &Authority, name: &str) -> SocketAddr {
    serving(authority, name, |peer| {
        while let Some(request) = peer.receive_within(FOREVER) {
            match request.method() {
                None | Some("ACK") => {}
                Some("INVITE") => peer.answer(&request, "486 Busy Here", "", ""),
                Some(_) => peer.answer(&request, "200 OK", "", ""),
            }
        }
    })
}

/// Accepts calls under the certificate of that name, closes each connection once its call is acknowledged, and reports every request.
pub fn closing(authority: &Authority, name: &str) -> (SocketAddr, mpsc::Receiver<Message>) {
    let (came, requests) = mpsc::channel();
    let address = serving(authority, name, move |peer| {
        let mut is_acknowledged = false;
        while !is_acknowledged && let Some(request) = peer.receive_within(FOREVER) {
            accept(peer, &request, &peer.uri("runtime"));
            is_acknowledged = request.is_request("ACK");
            // The receiver may be gone if the test has heard enough.
            let _ = came.send(request);
        }
    });
    (address, requests)
}

/// Serves each connection in its own thread, which ends if the client refuses the certificate.
fn serving(
    authority: &Authority,
    name: &str,
    serve: impl Fn(&Peer) + Send + Sync + 'static,
) -> SocketAddr {
    let (config, serve) = (authority.server(name), Arc::new(serve));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");

    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (config, serve) = (Arc::clone(&config), Arc::clone(&serve));
            std::thread::spawn(move || taken(config, socket).map(|peer| serve(&peer)));
        }
    });
    address
}

fn taken(config: Arc<ServerConfig>, mut socket: TcpStream) -> io::Result<Peer> {
    let mut server = ServerConnection::new(config).map_err(io::Error::other)?;
    while server.is_handshaking() {
        server.complete_io(&mut socket)?;
    }
    let stream = StreamOwned::new(server, socket);
    Ok(Peer::over(Stream::Server(Box::new(stream))))
}

/// Answers one call over TLS, and returns the requests received.
#[derive(Debug)]
pub struct SecureRuntime {
    pub address: SocketAddr,
    heard: JoinHandle<TlsRequests>,
}

/// Requests that a runtime on TLS has received.
#[derive(Debug, Default)]
pub struct TlsRequests {
    pub requests: Vec<Message>,
    /// True if the client presented a certificate of the authority.
    pub knows_client: bool,
    /// Reason why the TLS handshake failed.
    pub refused: Option<String>,
}

impl SecureRuntime {
    /// Listens under the certificate of that name and requests client certificates.
    pub fn start(authority: &Authority, name: &str) -> Self {
        let (chain, key) = authority.shown(name);
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(authority.roots(), Arc::clone(&provider))
                // A client without a certificate is let in as well: the test finds out by `knows_client`.
                .allow_unauthenticated()
                .build()
                .expect("a verifier");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .expect("a certificate");

        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = TcpListener::bind((ip, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let config = Arc::new(config);

        let heard = std::thread::spawn(move || match listener.accept() {
            Ok((socket, _)) => serve(config, socket),
            Err(error) => panic!("{error}"),
        });
        Self { address, heard }
    }

    pub fn uri(&self) -> String {
        format!("sip:{{agent_id}}@{};transport=tls", self.address)
    }

    pub fn finish(self) -> TlsRequests {
        self.heard.join().expect("the runtime doesn't panic")
    }
}

fn serve(config: Arc<ServerConfig>, mut socket: TcpStream) -> TlsRequests {
    let mut heard = TlsRequests::default();
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut server = ServerConnection::new(config).expect("a server");
    while server.is_handshaking() {
        if let Err(error) = server.complete_io(&mut socket) {
            heard.refused = Some(error.to_string());
            return heard;
        }
    }

    heard.knows_client = server.peer_certificates().is_some();
    let stream = StreamOwned::new(server, socket);
    let peer = Peer::over(Stream::Server(Box::new(stream)));
    heard.requests = serve_call(&peer, "sip:runtime@127.0.0.1;transport=tls", FOREVER);
    heard
}

/// Answers requests for at most `limit`, or until a call is hung up; returns the messages received.
pub(crate) fn serve_call(peer: &Peer, contact: &str, limit: Duration) -> Vec<Message> {
    let (mut heard, end) = (Vec::new(), Deadline::after(limit));
    while let Some(request) = peer.receive_within(end.left()) {
        accept(peer, &request, contact);
        let is_over = request.is_request("BYE");
        heard.push(request);
        if is_over {
            break;
        }
    }
    heard
}

/// Answers a request with 200, and with our SDP if it is an INVITE.
pub(crate) fn accept(peer: &Peer, request: &Message, contact: &str) {
    let lines = format!("Contact: <{contact}>\r\nContent-Type: application/sdp\r\n");
    match request.method() {
        None | Some("ACK") => {}
        Some("INVITE") => peer.answer(request, "200 OK", &lines, SDP),
        Some(_) => peer.answer(request, "200 OK", "", ""),
    }
}
