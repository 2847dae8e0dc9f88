//! A certificate authority of the test's own, and a runtime that answers one call over TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use tempfile::TempDir;
use trunkline_sip::wire::frame::{Frame, Framer};
use trunkline_sip::wire::{Framing, Method, lex};

use crate::answer::{answer, reply};
use crate::end::SDP;

const PATIENCE: Duration = Duration::from_secs(10);

/// Who certifies, and the files of those that it has certified.
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

    /// Writes `NAME.pem` and `NAME.key` for whoever has this name or address.
    pub fn certify(&self, name: &str, subject: &str) {
        let params = CertificateParams::new(vec![subject.to_owned()]).expect("a name");
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

    /// Connects to a server on this machine that has to be certified.
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
        while client.is_handshaking() {
            client.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(client, socket))
    }

    /// The certificate that a server shows now.
    pub fn seen_at(&self, server: SocketAddr) -> Vec<u8> {
        let stream = self.connect(server).expect("TLS");
        let shown = stream.conn.peer_certificates().expect("certificates");
        shown[0].to_vec()
    }
}

/// Takes OPTIONS and refuses calls as busy under the certificate of that name, on any number of connections, until the test's process ends.
pub fn busy(authority: &Authority, name: &str) -> SocketAddr {
    let (chain, key) = authority.shown(name);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || refuse_calls(config, socket));
        }
    });
    address
}

/// Takes calls under the certificate of that name, closes each connection once a call on it is acknowledged, and tells of every request.
pub fn closing(authority: &Authority, name: &str) -> (SocketAddr, mpsc::Receiver<Method>) {
    let (chain, key) = authority.shown(name);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (came, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (config, came) = (Arc::clone(&config), came.clone());
            std::thread::spawn(move || until_acknowledged(config, socket, address, &came));
        }
    });
    (address, requests)
}

fn until_acknowledged(
    config: Arc<ServerConfig>,
    mut socket: TcpStream,
    own: SocketAddr,
    came: &mpsc::Sender<Method>,
) -> io::Result<()> {
    let mut server = ServerConnection::new(config).map_err(io::Error::other)?;
    while server.is_handshaking() {
        server.complete_io(&mut socket)?;
    }
    let mut stream = StreamOwned::new(server, socket);
    let mut framer = Framer::new();
    let mut octets = [0; 4096];
    loop {
        let count = stream.read(&mut octets)?;
        if count == 0 {
            return Ok(());
        }
        framer.push(&octets[..count]);
        while let Ok(Some(frame)) = framer.next_frame() {
            let Frame::Message(octets) = frame else {
                continue;
            };
            let contact = format!("sip:runtime@{own};transport=tls");
            let (method, reply) = reply_to(octets, &contact);
            stream.write_all(reply.as_bytes())?;
            // Whoever listened may have heard enough.
            let _ = came.send(method);
            if method == Method::Ack {
                return Ok(());
            }
        }
    }
}

/// Ends with the connection, which a client that doesn't believe the certificate closes at once.
fn refuse_calls(config: Arc<ServerConfig>, mut socket: TcpStream) -> io::Result<()> {
    let mut server = ServerConnection::new(config).map_err(io::Error::other)?;
    while server.is_handshaking() {
        server.complete_io(&mut socket)?;
    }
    let mut stream = StreamOwned::new(server, socket);
    let mut framer = Framer::new();
    let mut octets = [0; 4096];
    loop {
        let count = stream.read(&mut octets)?;
        if count == 0 {
            return Ok(());
        }
        framer.push(&octets[..count]);
        while let Ok(Some(frame)) = framer.next_frame() {
            let Frame::Message(octets) = frame else {
                continue;
            };
            let request = lex(octets, Framing::Stream).map_err(|_| io::ErrorKind::InvalidData)?;
            let status = match request.method() == Method::Invite {
                true => "486 Busy Here",
                false => "200 OK",
            };
            if request.is_request() && request.method() != Method::Ack {
                stream.write_all(reply(&request, status, "").as_bytes())?;
            }
        }
    }
}

/// Answers one call over TLS, and says what came.
#[derive(Debug)]
pub struct SecureRuntime {
    pub address: SocketAddr,
    heard: JoinHandle<Heard>,
}

/// What a runtime on TLS has heard.
#[derive(Debug, Default)]
pub struct Heard {
    pub requests: Vec<(Method, String)>,
    /// Whether the client showed a certificate of the authority.
    pub knows_client: bool,
    /// Why there was no TLS.
    pub refused: Option<String>,
}

impl SecureRuntime {
    /// Listens under the certificate of that name and asks its clients for theirs.
    pub fn start(authority: &Authority, name: &str) -> Self {
        let (chain, key) = authority.shown(name);
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(authority.roots(), Arc::clone(&provider))
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

    pub fn finish(self) -> Heard {
        self.heard.join().expect("the runtime doesn't panic")
    }
}

fn serve(config: Arc<ServerConfig>, mut socket: TcpStream) -> Heard {
    let mut heard = Heard::default();
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut server = ServerConnection::new(config).expect("a server");
    while server.is_handshaking() {
        if let Err(error) = server.complete_io(&mut socket) {
            heard.refused = Some(error.to_string());
            return heard;
        }
    }
    heard.knows_client = server.peer_certificates().is_some();
    let mut stream = StreamOwned::new(server, socket);
    let mut framer = Framer::new();
    let mut octets = [0; 4096];
    while !heard
        .requests
        .iter()
        .any(|(method, _)| *method == Method::Bye)
    {
        let Ok(count @ 1..) = stream.read(&mut octets) else {
            return heard;
        };
        framer.push(&octets[..count]);
        while let Ok(Some(frame)) = framer.next_frame() {
            let Frame::Message(octets) = frame else {
                continue;
            };
            let (method, reply) = reply_to(octets, "sip:runtime@127.0.0.1;transport=tls");
            let text = String::from_utf8_lossy(octets).into_owned();
            heard.requests.push((method, text));
            stream.write_all(reply.as_bytes()).expect("it is sent");
        }
    }
    heard
}

/// 200, with our side of the media where that is asked for.
pub(super) fn reply_to(octets: &[u8], contact: &str) -> (Method, String) {
    let request = lex(octets, Framing::Stream).expect("a message");
    if request.method() == Method::Ack || !request.is_request() {
        return (request.method(), String::new());
    }
    let (lines, body) = match request.method() == Method::Invite {
        true => {
            let lines = format!("Contact: <{contact}>\r\nContent-Type: application/sdp\r\n");
            (lines, SDP)
        }
        false => (String::new(), ""),
    };
    let reply = answer(&request, "200 OK", "peer", &lines, body);
    (request.method(), reply)
}
