//! A peer that answers by a rule, in its own thread: a runtime, a callee or a carrier that no test code has to drive.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Message;

/// Longest time until a responder notices that it has to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Answers every message except ACKs.
#[derive(Debug)]
pub struct Responder {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<Message>>>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Responder {
    /// Starts a responder; `says` returns the messages to send for a received one, which need not be answers.
    pub fn start<S: IntoIterator<Item = String>>(
        ip: impl Into<IpAddr>,
        says: impl FnMut(&Message) -> S + Send + 'static,
    ) -> Self {
        Self::on(UdpSocket::bind((ip.into(), 0)).expect("a port"), says)
    }

    /// The same on a bound socket.
    pub fn on<S: IntoIterator<Item = String>>(
        socket: UdpSocket,
        mut says: impl FnMut(&Message) -> S + Send + 'static,
    ) -> Self {
        socket
            .set_read_timeout(Some(POLL_INTERVAL))
            .expect("a limit above zero");
        let address = socket.local_addr().expect("an address");

        let (heard, is_over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::default());
        let (hears, over) = (Arc::clone(&heard), Arc::<AtomicBool>::clone(&is_over));

        let thread = std::thread::spawn(move || {
            let mut octets = [0; 65_536];
            while !over.load(Ordering::Relaxed) {
                let Ok((count, from)) = socket.recv_from(&mut octets) else {
                    continue;
                };
                let message = Message::of(&octets[..count]);

                let said = match message.is_request("ACK") {
                    true => None,
                    false => Some(says(&message)),
                };
                // Before the answers leave: a test that sees their effect must find the message that caused them.
                hears.lock().expect("nobody panics with it").push(message);

                for octets in said.into_iter().flatten() {
                    // The daemon may have ended.
                    let _ = socket.send_to(octets.as_bytes(), from);
                }
            }
        });

        Self {
            address,
            heard,
            is_over,
            thread,
        }
    }

    /// Answers each INVITE with this status and these lines, and all other requests with 200.
    pub fn answering(status: &'static str, lines: &'static str) -> Self {
        Self::answering_at(Ipv4Addr::LOCALHOST, status, lines)
    }

    fn answering_at(ip: Ipv4Addr, status: &'static str, lines: &'static str) -> Self {
        Self::start(ip, move |request| match request.method()? {
            "INVITE" => Some(request.reply(status, lines)),
            _ => Some(request.reply("200 OK", "")),
        })
    }

    /// Refuses every call as busy, and answers OPTIONS.
    pub fn busy() -> Self {
        Self::busy_at(Ipv4Addr::LOCALHOST)
    }

    pub fn busy_at(ip: Ipv4Addr) -> Self {
        Self::answering_at(ip, "486 Busy Here", "")
    }

    /// Accepts each call with this SDP; its Contact is its own address unless one is given.
    pub fn accepting(ip: impl Into<IpAddr>, contact: Option<&str>, sdp: String) -> Self {
        let socket = UdpSocket::bind((ip.into(), 0)).expect("a port");
        let own = socket.local_addr().expect("an address").to_string();
        let contact = contact.unwrap_or(&own);
        let lines = format!("Contact: <sip:peer@{contact}>\r\nContent-Type: application/sdp\r\n");
        Self::on(socket, move |request| match request.method()? {
            "INVITE" => Some(request.answer("200 OK", "peer", &lines, &sdp)),
            _ => Some(request.reply("200 OK", "")),
        })
    }

    /// Accepts each call, and answers no OPTIONS.
    pub fn deaf_to_options() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let own = socket.local_addr().expect("an address");
        let lines = format!("Contact: <sip:peer@{own}>\r\nContent-Type: application/sdp\r\n");
        let sdp = crate::talker::offer(own);
        Self::on(socket, move |request| match request.method()? {
            "INVITE" => Some(request.answer("200 OK", "peer", &lines, &sdp)),
            "OPTIONS" => None,
            _ => Some(request.reply("200 OK", "")),
        })
    }

    /// All messages received, ACKs among them.
    pub fn heard(&self) -> Vec<Message> {
        self.heard.lock().expect("nobody panics with it").clone()
    }

    /// The requests of this method received.
    pub fn requests(&self, method: &str) -> Vec<Message> {
        let heard = self.heard();
        let of_it = heard
            .into_iter()
            .filter(|message| message.is_request(method));
        of_it.collect()
    }

    /// Number of calls received.
    pub fn taken(&self) -> usize {
        let invites = self.requests("INVITE");
        let calls: HashSet<_> = invites
            .iter()
            .map(|invite| invite.value("Call-ID"))
            .collect();
        calls.len()
    }

    /// Closes the port.
    pub fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it doesn't panic");
    }
}
