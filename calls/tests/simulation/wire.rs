//! The transactions of the peers, written apart from the endpoint's: requests are repeated until they are answered, answers
//! until they are acknowledged, by timers of their own (RFC 3261 §17, §13.2.2.4, §13.3.1.4; RFC 3262 §3).

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::reason_phrase;
use trunkline_sip::wire::{Framing, Message, Method, lex};
use trunkline_testkit::message::{answer, hop_request};

use crate::hands::{Alarm, Hands, PATIENCE};
use crate::network::Datagram;
use crate::session::text;

const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
/// Purpose of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It begins the call.
    Invite,
    /// It changes or refreshes the session.
    Change,
    /// It ends the call.
    Bye,
    /// It asks the node to hand the caller over.
    Refer,
    /// It is to be answered with this status, whatever else happens.
    Probe(u16),
    /// Its answer says nothing.
    Other,
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    pub(crate) purpose: Purpose,
    /// Number of the session that it belongs to.
    pub(crate) session: usize,
    pub(crate) cseq: u32,
    pub(crate) uri: &'a str,
    /// All header lines but Via, CSeq and Content-Length.
    pub(crate) lines: &'a str,
    pub(crate) body: &'a [u8],
}

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) method: Method,
    pub(crate) purpose: Purpose,
    pub(crate) session: usize,
    pub(crate) cseq: u32,
    /// It carries an offer.
    pub(crate) offers: bool,
    pub(crate) state: State,
    branch: String,
    request: Vec<u8>,
    sent: u32,
    cancelled: bool,
    /// ACKs of the 2xx by To-tag.
    acks: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Calling,
    Proceeding,
    Done,
}

/// A request that was received.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) method: Method,
    pub(crate) cseq: u32,
    /// The status of the last answer, 0 before.
    pub(crate) status: u16,
    pub(crate) acknowledged: bool,
    pub(crate) request: Vec<u8>,
    key: (Vec<u8>, Method),
    /// The To-tag of our answer to an INVITE that began the call.
    tag: String,
    answer: Vec<u8>,
    began: Moment,
    sent: u32,
    /// Reliable provisional answers that wait for their PRACK: RSeq, octets, how often sent.
    reliable: Vec<(u32, Vec<u8>, u32)>,
}

/// Meaning of a response to the peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// A provisional answer, or a final one that ends the request.
    Answer(usize),
    /// Another 2xx with a new To-tag.
    Fork(usize),
}

/// Address of a peer, and the transport by which it reaches the node.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) node: SocketAddr,
    pub(crate) stream: bool,
}

/// All transactions of one peer.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    pub(crate) node: SocketAddr,
    /// It speaks over a connection, where nothing but a 2xx and a reliable provisional answer is repeated.
    pub(crate) stream: bool,
    pub(crate) clients: Vec<Client>,
    pub(crate) servers: Vec<Server>,
    name: String,
}

impl Wire {
    pub(crate) fn new(name: &str, place: Place) -> Self {
        let Place {
            address,
            node,
            stream,
        } = place;
        Self {
            address,
            node,
            stream,
            clients: Vec::new(),
            servers: Vec::new(),
            name: name.to_owned(),
        }
    }

    fn emit(&self, hands: &mut Hands<'_>, octets: Vec<u8>) {
        hands.out.push(Datagram {
            from: self.address,
            to: self.node,
            connection: self.stream.then_some(0),
            octets,
        });
    }

    /// Sends a request, and again until it is answered.
    pub(crate) fn send(&mut self, hands: &mut Hands<'_>, outgoing: &Outgoing<'_>) -> usize {
        let at = self.clients.len();
        let branch = format!("z9hG4bK-{}-{at}", self.name);
        let request = self.print(&branch, outgoing);

        self.emit(hands, request.clone());
        self.clients.push(Client {
            method: outgoing.method,
            purpose: outgoing.purpose,
            session: outgoing.session,
            cseq: outgoing.cseq,
            offers: outgoing.purpose == Purpose::Change && !outgoing.body.is_empty(),
            state: State::Calling,
            branch,
            request,
            sent: 1,
            cancelled: false,
            acks: Vec::new(),
        });

        self.watch(hands, at);
        at
    }

    fn watch(&self, hands: &mut Hands<'_>, at: usize) {
        if !self.stream {
            hands.wake(T1, Alarm::Resend(at));
        }
        hands.wake(PATIENCE, Alarm::GiveUp(at));
    }

    fn print(&self, branch: &str, outgoing: &Outgoing<'_>) -> Vec<u8> {
        let (method, address) = (outgoing.method.as_str(), self.address);
        let transport = if self.stream { "TCP" } else { "UDP" };
        let mut octets = format!(
            "{method} {} SIP/2.0\r\nVia: SIP/2.0/{transport} {address};branch={branch};rport\r\nCSeq: {} {method}\r\n{}Content-Length: {}\r\n\r\n",
            outgoing.uri,
            outgoing.cseq,
            outgoing.lines,
            outgoing.body.len()
        )
        .into_bytes();
        octets.extend_from_slice(outgoing.body);
        octets
    }

    /// Acknowledges a 2xx; the same again for each repetition of it.
    pub(crate) fn ack(
        &mut self,
        hands: &mut Hands<'_>,
        client: usize,
        to_tag: &[u8],
        outgoing: &Outgoing<'_>,
    ) {
        let branch = format!("{}-ack", self.clients[client].branch);
        let octets = self.print(&branch, outgoing);
        self.emit(hands, octets.clone());
        self.clients[client].acks.push((to_tag.to_vec(), octets));
    }

    /// Cancels an INVITE once it has a provisional answer.
    pub(crate) fn cancel(&mut self, hands: &mut Hands<'_>, at: usize) {
        let client = &mut self.clients[at];
        if client.cancelled || client.state == State::Done {
            return;
        }
        client.cancelled = true;
        if client.state == State::Proceeding {
            self.send_cancel(hands, at);
        }
    }

    pub(crate) fn is_cancelled(&self, at: usize) -> bool {
        self.clients[at].cancelled
    }

    /// The INVITE's own Request-URI, top Via, From, To, Call-ID and CSeq number (RFC 3261 §9.1).
    fn send_cancel(&mut self, hands: &mut Hands<'_>, at: usize) {
        let invite = self.clients[at].request.clone();
        let message = lex(&invite, Framing::Datagram).expect("our own request");
        let octets = hop_request(&message, "CANCEL", &text(message.to())).into_bytes();
        self.emit(hands, octets.clone());

        let copy = self.clients.len();
        self.clients.push(Client {
            method: Method::Cancel,
            purpose: Purpose::Other,
            session: self.clients[at].session,
            cseq: self.clients[at].cseq,
            offers: false,
            state: State::Calling,
            branch: self.clients[at].branch.clone(),
            request: octets,
            sent: 1,
            cancelled: false,
            acks: Vec::new(),
        });

        self.watch(hands, copy);
        hands.wake(PATIENCE, Alarm::GiveUpCancelled(at));
    }

    /// Takes a response; `None` if it is a repetition or nobody's.
    pub(crate) fn hear(&mut self, hands: &mut Hands<'_>, message: &Message<'_>) -> Option<Heard> {
        let branch = message.top_via().branch?;
        let at = self.clients.iter().position(|client| {
            client.branch.as_bytes() == branch && client.method == message.method()
        })?;
        match (self.clients[at].state, message.status()) {
            (State::Done, 200..300) => self.hear_accepted_again(hands, at, message),
            (State::Done, 300..) => {
                self.acknowledge_refusal(hands, at, message);
                None
            }
            (State::Done, _) => None,
            (_, ..200) => {
                self.proceed(hands, at);
                Some(Heard::Answer(at))
            }
            (_, 300..) => {
                self.clients[at].state = State::Done;
                self.acknowledge_refusal(hands, at, message);
                Some(Heard::Answer(at))
            }
            (_, _) => {
                self.clients[at].state = State::Done;
                Some(Heard::Answer(at))
            }
        }
    }

    fn proceed(&mut self, hands: &mut Hands<'_>, at: usize) {
        let client = &mut self.clients[at];
        let first = client.state == State::Calling;
        client.state = State::Proceeding;
        if first && client.cancelled {
            self.send_cancel(hands, at);
        }
    }

    fn hear_accepted_again(
        &mut self,
        hands: &mut Hands<'_>,
        at: usize,
        message: &Message<'_>,
    ) -> Option<Heard> {
        let client = &self.clients[at];
        if client.method != Method::Invite {
            return None;
        }
        let tag = message.to_tag().unwrap_or_default();
        match client.acks.iter().find(|(of, _)| of == tag) {
            Some((_, ack)) => {
                let ack = ack.clone();
                self.emit(hands, ack);
                None
            }
            None => Some(Heard::Fork(at)),
        }
    }

    fn acknowledge_refusal(&mut self, hands: &mut Hands<'_>, at: usize, answer: &Message<'_>) {
        let client = &self.clients[at];
        if client.method == Method::Invite {
            let request = client.request.clone();
            let invite = lex(&request, Framing::Datagram).expect("our own request");
            let ack = hop_request(&invite, "ACK", &text(answer.to()));
            self.emit(hands, ack.into_bytes());
        }
    }

    /// Takes a request: its number, and whether it is new. A repetition gets the last answer again.
    pub(crate) fn take(&mut self, hands: &mut Hands<'_>, message: &Message<'_>) -> (usize, bool) {
        let key = (
            message.top_via().branch.unwrap_or_default().to_vec(),
            message.method(),
        );
        if let Some(at) = self.servers.iter().position(|server| server.key == key) {
            let again = self.servers[at].answer.clone();
            let accepted = key.1 == Method::Invite && (200..300).contains(&self.servers[at].status);
            if !again.is_empty() && !accepted {
                self.emit(hands, again);
            }
            return (at, false);
        }

        self.servers.push(Server {
            method: message.method(),
            cseq: message.cseq().number,
            status: 0,
            acknowledged: false,
            request: message.raw().to_vec(),
            key,
            tag: String::new(),
            answer: Vec::new(),
            began: hands.now,
            sent: 0,
            reliable: Vec::new(),
        });
        (self.servers.len() - 1, true)
    }

    /// Answers a request; a final answer to an INVITE is repeated until it is acknowledged. Nothing after a final answer.
    pub(crate) fn answer(
        &mut self,
        hands: &mut Hands<'_>,
        at: usize,
        status: u16,
        (tag, lines, body): (&str, &str, &[u8]),
    ) {
        let server = &mut self.servers[at];
        if server.status >= 200 {
            return;
        }

        let octets = response(&server.request, status, tag, lines, body);
        server.status = status;
        server.tag = tag.to_owned();
        server.answer.clone_from(&octets);
        if status >= 200 && server.method == Method::Invite {
            server.began = hands.now;
            server.sent = 1;
            server.reliable.clear();
            if status < 300 || !self.stream {
                hands.wake(T1, Alarm::Repeat(at));
            }
        }

        self.emit(hands, octets);
    }

    /// A 200 of another fork to an INVITE that was answered already; repeated until it is acknowledged.
    pub(crate) fn fork(
        &mut self,
        hands: &mut Hands<'_>,
        at: usize,
        (tag, lines, body): (&str, &str, &[u8]),
    ) -> usize {
        let first = &self.servers[at];
        let fork = Server {
            method: first.method,
            cseq: first.cseq,
            status: 0,
            acknowledged: false,
            request: first.request.clone(),
            key: (format!("fork {tag}").into_bytes(), first.method),
            tag: String::new(),
            answer: Vec::new(),
            began: hands.now,
            sent: 0,
            reliable: Vec::new(),
        };
        self.servers.push(fork);

        let copy = self.servers.len() - 1;
        self.answer(hands, copy, 200, (tag, lines, body));
        copy
    }

    /// Sends a provisional answer that wants a PRACK.
    pub(crate) fn answer_reliably(
        &mut self,
        hands: &mut Hands<'_>,
        at: usize,
        (status, rseq): (u16, u32),
        (tag, lines, body): (&str, &str, &[u8]),
    ) {
        let lines = format!("{lines}Require: 100rel\r\nRSeq: {rseq}\r\n");
        let server = &mut self.servers[at];
        if server.status >= 200 {
            return;
        }
        let octets = response(&server.request, status, tag, &lines, body);
        server.status = status;
        server.answer.clone_from(&octets);
        server.reliable.push((rseq, octets.clone(), 1));
        hands.wake(T1, Alarm::RepeatReliable(at, rseq));
        self.emit(hands, octets);
    }

    /// A PRACK came: whether it was waited for.
    pub(crate) fn reliably_heard(&mut self, at: usize, rseq: u32) -> bool {
        let waiting = &mut self.servers[at].reliable;
        let before = waiting.len();
        waiting.retain(|(of, ..)| *of != rseq);
        waiting.len() < before
    }

    pub(crate) fn owes_nothing_reliable(&self, at: usize) -> bool {
        self.servers[at].reliable.is_empty()
    }

    /// Takes an ACK: the INVITE whose 2xx it acknowledges for the first time.
    pub(crate) fn take_ack(&mut self, message: &Message<'_>) -> Option<usize> {
        let number = message.cseq().number;
        let branch = message.top_via().branch.unwrap_or_default();
        let tag = message.to_tag().unwrap_or_default();
        let at = self.servers.iter().position(|server| {
            let accepted = (200..300).contains(&server.status)
                && (server.tag.is_empty() || server.tag.as_bytes() == tag);
            server.method == Method::Invite
                && server.cseq == number
                && (server.key.0 == branch || accepted)
        })?;
        let server = &mut self.servers[at];
        let first = !std::mem::replace(&mut server.acknowledged, true);
        (first && server.status < 300).then_some(at)
    }

    /// Serves an alarm about a request: the number of a request that has failed in silence.
    pub(crate) fn alarm(&mut self, hands: &mut Hands<'_>, alarm: &Alarm) -> Silence {
        match *alarm {
            Alarm::Resend(at) => self.resend(hands, at),
            Alarm::GiveUp(at) => {
                let client = &mut self.clients[at];
                // A provisional answer holds off the end of an INVITE alone.
                let waits = client.method == Method::Invite && client.state == State::Proceeding;
                if client.state != State::Done && !waits {
                    client.state = State::Done;
                    return Silence::NoAnswer(at);
                }
            }
            Alarm::GiveUpCancelled(at) => {
                if self.clients[at].state != State::Done {
                    self.clients[at].state = State::Done;
                    return Silence::NoAnswer(at);
                }
            }
            Alarm::Repeat(at) => return self.repeat(hands, at),
            Alarm::RepeatReliable(at, rseq) => return self.repeat_reliable(hands, at, rseq),
            Alarm::Step(_) => {}
        }

        Silence::None
    }

    fn resend(&mut self, hands: &mut Hands<'_>, at: usize) {
        let client = &mut self.clients[at];
        let goes_on = match (client.method, client.state) {
            (_, State::Done) => false,
            (Method::Invite, state) => state == State::Calling,
            (_, _) => true,
        };
        if !goes_on {
            return;
        }
        client.sent += 1;

        let doubled = T1 * (1 << (client.sent - 1).min(6));
        let wait = if client.method == Method::Invite {
            doubled
        } else {
            doubled.min(T2)
        };

        let octets = client.request.clone();
        self.emit(hands, octets);
        hands.wake(wait, Alarm::Resend(at));
    }

    fn repeat(&mut self, hands: &mut Hands<'_>, at: usize) -> Silence {
        let server = &mut self.servers[at];
        if server.acknowledged {
            return Silence::None;
        }
        if hands.now.since(server.began) >= PATIENCE {
            return if server.status < 300 {
                Silence::NoAck(at)
            } else {
                Silence::None
            };
        }
        server.sent += 1;

        let wait = (T1 * (1 << (server.sent - 1).min(6))).min(T2);
        let octets = server.answer.clone();
        self.emit(hands, octets);
        hands.wake(wait, Alarm::Repeat(at));
        Silence::None
    }

    fn repeat_reliable(&mut self, hands: &mut Hands<'_>, at: usize, rseq: u32) -> Silence {
        let Some((_, octets, sent)) = self.servers[at]
            .reliable
            .iter_mut()
            .find(|(of, ..)| *of == rseq)
        else {
            return Silence::None;
        };
        *sent += 1;
        if *sent > 7 {
            return Silence::NoPrack(at);
        }
        let (octets, wait) = (octets.clone(), T1 * (1 << (*sent - 1)));
        self.emit(hands, octets);
        hands.wake(wait, Alarm::RepeatReliable(at, rseq));
        Silence::None
    }
}

/// Messages that never came.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Silence {
    None,
    /// The answer to a request.
    NoAnswer(usize),
    /// The ACK of a 2xx.
    NoAck(usize),
    /// The PRACK of a reliable provisional answer.
    NoPrack(usize),
}

fn response(request: &[u8], status: u16, tag: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let request = lex(request, Framing::Datagram).expect("it was read when it came");
    let tag = if status == 100 { "" } else { tag };
    let status = format!("{status} {}", reason_phrase(status));
    answer(&request, &status, tag, lines, &text(body)).into_bytes()
}
