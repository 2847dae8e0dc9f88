//! A bot played by a test: a WebSocket server on this machine, with TLS or without. It shares no code with the daemon's client.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};
use socket2::{SockFilter, SockRef};

use crate::link::Stream;
use crate::{Authority, Deadline};

const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time between two checks for new orders.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Behaviour of a bot in the handshake.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    /// Delay before the handshake's response.
    pub delay: Duration,
    /// Token that must have signed the URL: otherwise the bot answers 403.
    pub token: Option<String>,
}

/// A bot that listens.
#[derive(Debug)]
pub struct BotServer {
    pub url: String,
    address: SocketAddr,
    calls: mpsc::Receiver<BotCall>,
    dialled: Arc<AtomicUsize>,
}

/// A WebSocket that was accepted. A wait for an event panics if the daemon breaks the protocol.
#[derive(Debug)]
pub struct BotCall {
    /// Head of the request.
    pub head: String,
    events: mpsc::Receiver<Heard>,
    orders: mpsc::Sender<Order>,
}

/// An event, or the rule of the protocol that the daemon has broken: then nothing follows.
type Heard = Result<Value, String>;

/// Sends octets to the daemon from another thread.
#[derive(Clone, Debug)]
pub struct BotSender(mpsc::Sender<Order>);

impl BotSender {
    /// Sends octets as they are; false once the connection is gone.
    pub fn send(&self, octets: Vec<u8>) -> bool {
        self.0.send(Order::Send(octets)).is_ok()
    }
}

/// An order to the thread that has the connection.
#[derive(Debug)]
enum Order {
    Send(Vec<u8>),
    /// Reads no more.
    Stall,
    /// Drops all received packets, so that nothing is acknowledged.
    Vanish,
}

impl BotServer {
    pub fn start() -> Self {
        Self::with(Handshake::default())
    }

    /// Listens without TLS.
    pub fn with(handshake: Handshake) -> Self {
        Self::on("ws", handshake, None)
    }

    /// Listens with TLS, under the certificate of that name.
    pub fn secured(authority: &Authority, name: &str) -> Self {
        let config = authority.server(name);
        Self::on("wss", Handshake::default(), Some(config))
    }

    fn on(scheme: &str, handshake: Handshake, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("{scheme}://{address}/ws");
        let (accepted, calls) = mpsc::channel();
        let dialled = Arc::<AtomicUsize>::default();

        let (own, counted) = (url.clone(), Arc::clone(&dialled));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                let (own, handshake) = (own.clone(), handshake.clone());
                let (tls, accepted) = (tls.clone(), accepted.clone());
                // A broken connection ends its own thread alone.
                std::thread::spawn(move || serve(socket, tls, &own, &handshake, &accepted));
            }
        });

        Self {
            url,
            address,
            calls,
            dialled,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next WebSocket.
    pub fn accepted(&self) -> BotCall {
        let call = self.calls.recv_timeout(PATIENCE);
        call.expect("the bot is dialled")
    }

    /// Number of connections so far.
    pub fn dialled(&self) -> usize {
        self.dialled.load(Ordering::Relaxed)
    }
}

impl BotCall {
    /// Waits for the next event of any kind; `close` with its code is the last.
    pub fn next(&self) -> Value {
        self.within(PATIENCE).expect("an event")
    }

    /// Returns the next event; `None` if none comes within that time, or if the connection has ended.
    pub fn within(&self, limit: Duration) -> Option<Value> {
        self.events.recv_timeout(limit).ok().map(sound)
    }

    /// Waits for the next event of this kind, skipping others.
    pub fn event(&self, kind: &str) -> Value {
        self.until(kind, |event| event["event"] == kind)
    }

    /// Waits for the next event that `is_meant` accepts.
    pub fn until(&self, what: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        let limit = Deadline::after(PATIENCE);
        while !limit.is_over() {
            match self.within(limit.left()) {
                Some(event) if is_meant(&event) => return event,
                Some(_) => {}
                None => break,
            }
        }
        panic!("no {what} came")
    }

    /// Returns the audio of the next frame.
    pub fn frame(&self) -> Vec<u8> {
        audio_of(&self.event("media"))
    }

    /// Returns true once the connection has ended: either side has closed, or the socket has failed.
    pub fn is_over(&self) -> bool {
        let ended = |event: Result<Heard, mpsc::RecvTimeoutError>| match event {
            Ok(event) => {
                sound(event);
                None
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(()),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
        };
        let limit = Deadline::after(PATIENCE);
        limit
            .poll(|| ended(self.events.recv_timeout(POLL_INTERVAL)))
            .is_some()
    }

    pub fn say(&self, message: &Value) {
        self.send(text(message));
    }

    /// Plays this audio.
    pub fn play(&self, audio: &[u8]) {
        self.say(&json!({"event": "media", "streamSid": "MZ", "media": {"payload": STANDARD.encode(audio)}}));
    }

    pub fn mark(&self, name: &str) {
        self.say(&json!({"event": "mark", "streamSid": "MZ", "mark": {"name": name}}));
    }

    pub fn clear(&self) {
        self.say(&json!({"event": "clear", "streamSid": "MZ"}));
    }

    /// Sends octets as they are; false once the connection is gone.
    pub fn send(&self, octets: Vec<u8>) -> bool {
        self.sender().send(octets)
    }

    pub fn sender(&self) -> BotSender {
        BotSender(self.orders.clone())
    }

    /// Closes the WebSocket.
    pub fn close(&self) {
        self.send(vec![0x88, 2, 3, 232]);
    }

    /// Stops reading.
    pub fn stall(&self) {
        self.obey(Order::Stall);
    }

    /// Disappears without closing anything: no received packet is acknowledged any more.
    pub fn vanish(&self) {
        self.obey(Order::Vanish);
    }

    fn obey(&self, order: Order) {
        self.orders.send(order).expect("the connection is up");
    }
}

/// A test that reads no further events fails nevertheless if the daemon has broken the protocol by then.
impl Drop for BotCall {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for event in self.events.try_iter() {
            sound(event);
        }
    }
}

/// Returns the event; panics if the daemon has broken the protocol instead.
fn sound(event: Heard) -> Value {
    event.unwrap_or_else(|violation| panic!("the daemon broke the protocol: {violation}"))
}

/// Returns the audio of a frame.
pub fn audio_of(event: &Value) -> Vec<u8> {
    let payload = event["media"]["payload"].as_str().expect("a payload");
    STANDARD.decode(payload).expect("base64")
}

/// Encodes a message as a frame.
pub fn text(message: &Value) -> Vec<u8> {
    let payload = message.to_string().into_bytes();
    let mut frame = vec![0x81];
    match payload.len() {
        short @ 0..=125 => frame.push(short as u8),
        middle @ 126..=0xffff => {
            frame.push(126);
            frame.extend((middle as u16).to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

fn serve(
    mut socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    url: &str,
    handshake: &Handshake,
    accepted: &mpsc::Sender<BotCall>,
) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = match tls {
        None => Stream::Tcp(socket),
        Some(config) => {
            let mut server = ServerConnection::new(config).map_err(io::Error::other)?;
            while server.is_handshaking() {
                server.complete_io(&mut socket)?;
            }
            Stream::Server(Box::new(StreamOwned::new(server, socket)))
        }
    };

    let mut head = Vec::new();
    // Octet by octet, so that no octet of the first frame is taken with the head.
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        if stream.read(&mut octet)? == 0 {
            return Ok(());
        }
        head.push(octet[0]);
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;

    std::thread::sleep(handshake.delay);
    if !handshake
        .token
        .as_ref()
        .is_none_or(|token| is_signed(&head, token, url))
    {
        return stream.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    }
    let key = field(&head, "Sec-WebSocket-Key").unwrap_or_default();
    let accept = STANDARD.encode(Sha1::digest(format!("{key}{GUID}")));
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write(answer.as_bytes())?;

    let ((orders, ordered), (heard, events)) = (mpsc::channel(), mpsc::channel());
    let call = BotCall {
        head,
        events,
        orders,
    };
    if accepted.send(call).is_err() {
        return Ok(());
    }
    // From here on a read returns soon, so that orders are carried out while the daemon is silent.
    stream.socket().set_read_timeout(Some(POLL_INTERVAL))?;
    converse(&mut stream, &ordered, &heard)
}

/// Serves the connection until either side leaves.
fn converse(
    stream: &mut Stream,
    orders: &mpsc::Receiver<Order>,
    heard: &mpsc::Sender<Heard>,
) -> io::Result<()> {
    let (mut octets, mut part) = (Vec::new(), [0; 16_384]);
    let mut is_stalled = false;

    loop {
        loop {
            match orders.try_recv() {
                Ok(Order::Send(octets)) => stream.write(&octets)?,
                Ok(Order::Stall) => is_stalled = true,
                Ok(Order::Vanish) => {
                    // The BPF program "return 0": the kernel drops every packet for this socket.
                    const NOTHING: SockFilter = SockFilter::new(0x06, 0, 0, 0);
                    SockRef::from(stream.socket()).attach_filter(&[NOTHING])?;
                    is_stalled = true;
                }
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
        // The connection stays open unread: the daemon's window fills, and then its queue.
        if is_stalled {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        }

        match stream.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(count) => octets.extend_from_slice(&part[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        }

        while let Some(event) = take(&mut octets).transpose() {
            let is_broken = event.is_err();
            let is_last = event.as_ref().is_ok_and(|event| event["event"] == "close");
            // The receiver may be gone if the test has heard enough.
            let _ = heard.send(event);
            if is_broken {
                return Ok(());
            }
            if is_last {
                // RFC 6455 §5.5.1: an endpoint that receives a Close frame "MUST send a Close frame in response".
                return stream.write(&[0x88, 0]);
            }
        }
    }
}

/// Takes the next frame: a message, or an event made from a control frame. `None`: it hasn't arrived whole.
///
/// # Errors
/// The rule that the frame breaks (RFC 6455 §5.1, §5.2), or that we keep beyond those.
fn take(octets: &mut Vec<u8>) -> Result<Option<Value>, String> {
    let &[first, second, ..] = &octets[..] else {
        return Ok(None);
    };
    // RFC 6455 §5.1: "The server MUST close the connection upon receiving a frame that is not masked."
    if second & 0x80 == 0 {
        return Err("a client masks".to_owned());
    }

    let (length, payload) = match (second & 0x7f, octets.get(2..4)) {
        (126, Some(&[high, low])) => (4, usize::from(u16::from_be_bytes([high, low]))),
        (126, _) => return Ok(None),
        (127, _) => return Err("no message of ours is that long".to_owned()),
        (short, _) => (2, usize::from(short)),
    };
    let end = length + 4 + payload;
    if octets.len() < end {
        return Ok(None);
    }

    let frame: Vec<u8> = octets.drain(..end).collect();
    let (mask, payload) = frame[length..].split_at(4);
    let payload: Vec<u8> = payload
        .iter()
        .zip(mask.iter().cycle())
        .map(|(octet, mask)| octet ^ mask)
        .collect();
    Ok(Some(match first {
        0x81 => serde_json::from_slice(&payload).map_err(|error| format!("JSON: {error}"))?,
        0x88 => {
            let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
            json!({"event": "close", "code": code})
        }
        0x8a => json!({"event": "pong", "data": String::from_utf8_lossy(&payload)}),
        other => return Err(format!("a frame of kind {other:x}")),
    }))
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let named = head.lines().find_map(|line| {
        let (of, value) = line.split_once(':')?;
        of.eq_ignore_ascii_case(name).then_some(value)
    });
    named.map(str::trim)
}

fn is_signed(head: &str, token: &str, url: &str) -> bool {
    let mac = Hmac::<Sha1>::new_from_slice(token.as_bytes()).expect("a key");
    let signed = STANDARD.encode(mac.chain_update(url).finalize().into_bytes());
    field(head, "X-Twilio-Signature") == Some(&signed)
}
