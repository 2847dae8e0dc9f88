//! User agent of a person's browser (RFC 3261 §13, §15): it calls this node itself, over a connection inside this process. Pure: messages
//! come in, messages and events go out.
//!
//! It does what a call needs: INVITE, CANCEL, BYE, and answers to requests inside the dialog. It refuses REFER and doesn't list it in `Allow`, so a
//! transfer is bridged. The connection loses nothing, so nothing is retransmitted. It has no timers: the node answers every INVITE in time, and
//! `call` limits the wait after a hang-up.

use std::net::SocketAddr;

use trunkline_sip::dialog::body::{has_sdp, sdp_of};
use trunkline_sip::dialog::sdp::{self, Audio};
use trunkline_sip::flow::Flow;
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::wire::print::{self, Head};
use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};

/// Methods that the user agent accepts.
const ALLOW: &[u8] = b"INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, INFO";
/// Value of `User-Agent`.
const NAME: &str = "Trunkline phone in a browser";
/// User part of the user agent's own address.
const USER: &str = "browser";

/// Numbers that identify a call.
#[derive(Copy, Clone, Debug)]
pub(super) struct Identity {
    pub(super) call: u128,
    pub(super) tag: u64,
    pub(super) session: u64,
}

/// Call to begin.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    /// Connection to this node, as the node sees it: the user agent is its `peer`.
    pub(super) flow: Flow,
    /// Our RTP address.
    pub(super) media: SocketAddr,
    /// User part of the Request-URI.
    pub(super) user: Box<str>,
    /// Header that names the agent, with the agent.
    pub(super) agent: Option<(Box<str>, Box<str>)>,
    /// Name of the person.
    pub(super) name: Box<str>,
    pub(super) identity: Identity,
}

/// Event of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Ringing,
    /// Audio that was negotiated, at first or by a change; `None` if no audio may pass.
    Media(Option<Audio>),
    Answered,
    /// The call is over, and nothing more is to be sent.
    Ended(End),
}

/// End of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// We hung up.
    Own,
    /// The other side hung up.
    Remote,
    /// The INVITE was refused: status, stable code, and a sentence.
    Refused(u16, Option<Box<str>>, Box<str>),
}

/// Messages to send, and events, in their order.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) messages: Vec<Vec<u8>>,
    pub(super) events: Vec<Event>,
}

/// State of the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// INVITE is out. The node answers it within its `sip.setup_timeout_s`.
    Calling,
    /// CANCEL is out. `call` waits 5 s at most for the end.
    Cancelled,
    Up,
    /// BYE is out. `call` waits 5 s at most for the end.
    Leaving,
    Over,
}

/// User agent of one call.
#[derive(Debug)]
pub(super) struct UserAgent {
    dial: Dial,
    state: State,
    /// Tag and Contact of the other side, once it has answered.
    remote: Option<(Vec<u8>, Vec<u8>)>,
    cseq: u32,
    branches: u32,
    /// `sess-version` of our last SDP.
    version: u64,
    /// CSeq of the re-INVITE whose ACK has to answer our offer.
    offered: Option<u32>,
}

impl UserAgent {
    /// Makes the user agent, and its INVITE.
    pub(super) fn new(dial: Dial) -> (Self, Vec<u8>) {
        let mut agent = Self {
            dial,
            state: State::Calling,
            remote: None,
            cseq: 1,
            branches: 0,
            version: 1,
            offered: None,
        };
        let offer = agent.offer();
        let invite = agent.request(Own::Invite, &offer);
        (agent, invite)
    }

    /// Returns whether the call is over.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Hangs up: CANCEL before the answer, BYE after it.
    pub(super) fn hang_up(&mut self, output: &mut Output) {
        match self.state {
            State::Calling => {
                self.state = State::Cancelled;
                // RFC 3261 §9.1 has a CANCEL wait for a provisional response, so that it doesn't overtake its INVITE.
                // Here the shard has handled the INVITE before a command is read (`RunningCall::run`).
                let cancel = self.request(Own::Cancel, b"");
                output.messages.push(cancel);
            }
            State::Up => self.leave(output),
            State::Cancelled | State::Leaving | State::Over => {}
        }
    }

    fn leave(&mut self, output: &mut Output) {
        self.state = State::Leaving;
        self.cseq += 1;
        let bye = self.request(Own::Bye, b"");
        output.messages.push(bye);
    }

    /// Handles a message. One of another call is dropped.
    pub(super) fn handle_message(&mut self, octets: &[u8], output: &mut Output) {
        let Ok(message) = lex(octets, Framing::Stream) else {
            return;
        };
        if message.call_id() != self.call_id().as_bytes() {
            return;
        }
        match message.is_request() {
            true => self.handle_request(&message, output),
            false => self.handle_response(&message, output),
        }
    }

    fn handle_response(&mut self, message: &Message<'_>, output: &mut Output) {
        let status = message.status();

        match message.method() {
            Method::Invite if status < 200 => self.handle_provisional(message, output),
            Method::Invite if status < 300 => self.handle_answer(message, output),
            Method::Invite => self.handle_refusal(message, output),
            Method::Bye if status >= 200 => self.end(End::Own, output),
            // CANCEL: the INVITE gets its own answer.
            Method::Bye
            | Method::Cancel
            | Method::Ack
            | Method::Prack
            | Method::Update
            | Method::Info
            | Method::Options
            | Method::Notify
            | Method::Refer
            | Method::Register
            | Method::Subscribe
            | Method::Message
            | Method::Publish
            | Method::Other => {}
        }
    }

    fn handle_provisional(&mut self, message: &Message<'_>, output: &mut Output) {
        if self.state != State::Calling || message.status() == 100 {
            return;
        }
        output.events.push(Event::Ringing);
        if has_sdp(message) {
            let audio = self.read_answer(message);
            output.events.push(Event::Media(audio));
        }
    }

    fn handle_answer(&mut self, message: &Message<'_>, output: &mut Output) {
        let contact = message.first(HeaderName::Contact).map(NameAddr::parse);
        // This node's answers have both (RFC 3261 §12.1.1).
        let (Some(tag), Some(Ok(contact))) = (message.to_tag(), contact) else {
            return;
        };
        let is_first = self.remote.is_none();
        if is_first {
            self.remote = Some((tag.to_vec(), contact.uri.to_vec()));
        }

        // RFC 3261 §13.2.2.4: every 2xx gets an ACK, also one that comes again.
        let ack = self.request(Own::Ack, b"");
        output.messages.push(ack);
        if !is_first {
            return;
        }
        if self.state == State::Cancelled {
            // The answer has crossed the CANCEL.
            return self.leave(output);
        }

        self.state = State::Up;
        // The SDP may have come in the 183 alone.
        if has_sdp(message) {
            let audio = self.read_answer(message);
            output.events.push(Event::Media(audio));
        }

        output.events.push(Event::Answered);
    }

    fn handle_refusal(&mut self, message: &Message<'_>, output: &mut Output) {
        let tag = message.to_tag().unwrap_or_default().to_vec();
        let ack = self.acknowledge_refusal(&tag);
        output.messages.push(ack);
        let end = match self.state {
            // A 487, or a refusal that has crossed the CANCEL.
            State::Cancelled => End::Own,
            State::Calling | State::Up | State::Leaving | State::Over => refused(message),
        };
        self.end(end, output);
    }

    fn handle_request(&mut self, message: &Message<'_>, output: &mut Output) {
        match message.method() {
            Method::Ack => {
                // Our offer was in a 2xx, so the answer is in its ACK (RFC 3261 §13.2.1).
                if self.offered.take() == Some(message.cseq().number) && has_sdp(message) {
                    let audio = self.read_answer(message);
                    output.events.push(Event::Media(audio));
                }
            }

            Method::Invite | Method::Update if message.to_tag().is_some() => {
                self.change(message, output);
            }

            Method::Bye => {
                output.messages.push(self.respond(message, 200, b""));
                self.end(End::Remote, output);
            }

            // RFC 3261 §9.2: a CANCEL has no effect on a request that is answered. Here each is answered at once.
            Method::Options | Method::Info | Method::Cancel => {
                output.messages.push(self.respond(message, 200, b""));
            }

            // One user agent has one call.
            Method::Invite => output.messages.push(self.respond(message, 486, b"")),
            Method::Update
            | Method::Prack
            | Method::Notify
            | Method::Refer
            | Method::Register
            | Method::Subscribe
            | Method::Message
            | Method::Publish
            | Method::Other => output.messages.push(self.respond(message, 405, b"")),
        }
    }

    /// Our last offer, or the next one.
    fn offer(&self) -> Vec<u8> {
        sdp::offer_audio(self.dial.media, self.dial.identity.session, self.version)
    }

    /// Reads the answer to our offer.
    fn read_answer(&self, message: &Message<'_>) -> Option<Audio> {
        sdp::read_answer(&self.offer(), sdp_of(message.body()))
    }

    /// Answers an offer, or makes one if the INVITE has none.
    fn change(&mut self, message: &Message<'_>, output: &mut Output) {
        let (media, session) = (self.dial.media, self.dial.identity.session);
        if !has_sdp(message) {
            // An UPDATE without an offer refreshes the session. A re-INVITE without one asks for ours.
            if message.method() == Method::Update {
                return output.messages.push(self.respond(message, 200, b""));
            }
            self.version += 1;
            self.offered = Some(message.cseq().number);
            let offer = self.offer();
            return output.messages.push(self.respond(message, 200, &offer));
        }

        self.version += 1;
        let answer = sdp::answer_audio(sdp_of(message.body()), media, session, self.version);
        match answer {
            Ok(answer) => {
                output
                    .messages
                    .push(self.respond(message, 200, &answer.body));
                output.events.push(Event::Media(answer.audio));
            }
            Err(_) => output.messages.push(self.respond(message, 488, b"")),
        }
    }

    fn end(&mut self, end: End, output: &mut Output) {
        if self.state != State::Over {
            self.state = State::Over;
            output.events.push(Event::Ended(end));
        }
    }

    fn call_id(&self) -> String {
        format!("{:032x}", self.dial.identity.call)
    }

    /// Host and port of the user agent: those of its RTP, which are also its end of the connection, and no other call's.
    fn host(&self) -> SocketAddr {
        self.dial.flow.peer
    }

    fn via(&mut self, method: Own) -> String {
        match method {
            // CANCEL, and the ACK of a refusal, belong to the INVITE's transaction (RFC 3261 §9.1, §17.1.1.3).
            Own::Invite | Own::Cancel => self.via_of(0),
            Own::Ack | Own::Bye => {
                self.branches += 1;
                self.via_of(self.branches)
            }
        }
    }

    fn via_of(&self, number: u32) -> String {
        let host = self.host();
        let transport = self.dial.flow.transport.via_name();
        let call = self.dial.identity.call;
        format!("SIP/2.0/{transport} {host};branch=z9hG4bK{call:032x}-{number}")
    }

    fn request(&mut self, method: Own, body: &[u8]) -> Vec<u8> {
        let target = self.remote.as_ref().map(|(_, contact)| contact.clone());
        let target = target.unwrap_or_else(|| self.callee().into_bytes());
        let tag = self.remote.as_ref().map(|(tag, _)| tag.clone());

        let via = self.via(method);
        let is_first = matches!(method, Own::Invite | Own::Cancel);
        self.print(
            method,
            &target,
            &via,
            tag.filter(|_| !is_first).as_deref(),
            body,
        )
    }

    fn acknowledge_refusal(&self, tag: &[u8]) -> Vec<u8> {
        let target = self.callee();
        self.print(Own::Ack, target.as_bytes(), &self.via_of(0), Some(tag), b"")
    }

    fn print(
        &self,
        method: Own,
        target: &[u8],
        via: &str,
        tag: Option<&[u8]>,
        body: &[u8],
    ) -> Vec<u8> {
        let mut lines = Vec::with_capacity(512);
        let mut head = Head::new(&mut lines);
        head.number("Max-Forwards", 70);

        let (name, own) = (quoted(&self.dial.name), self.own_uri());
        let from_tag = self.dial.identity.tag;
        head.fmt("From", format_args!("{name}<{own}>;tag={from_tag:016x}"));

        let callee = self.callee();
        match tag {
            Some(tag) => {
                let tag = String::from_utf8_lossy(tag);
                head.fmt("To", format_args!("<{callee}>;tag={tag}"));
            }
            None => head.fmt("To", format_args!("<{callee}>")),
        }

        head.line("Call-ID", self.call_id().as_bytes());
        let cseq = match method {
            // ACK and CANCEL have the number of their INVITE (RFC 3261 §9.1, §13.2.2.4), of which there is only one.
            Own::Ack | Own::Cancel => 1,
            Own::Invite | Own::Bye => self.cseq,
        };
        let name = method.name();
        head.fmt("CSeq", format_args!("{cseq} {name}"));

        if method == Own::Invite {
            self.own_lines(&mut head);
            if let Some((name, agent)) = &self.dial.agent {
                head.line(name, agent.as_bytes());
            }
            head.line("Content-Type", b"application/sdp");
        }

        let mut octets = Vec::with_capacity(1_024);
        print::request(&mut octets, name, target, via, &lines, body);
        octets
    }

    fn respond(&self, request: &Message<'_>, status: u16, body: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut head = Head::new(&mut lines);
        self.own_lines(&mut head);
        if !body.is_empty() {
            head.line("Content-Type", b"application/sdp");
        }

        let mut octets = Vec::with_capacity(1_024);
        let flow = &self.dial.flow;
        print::response(
            &mut octets,
            request,
            flow,
            status,
            None,
            None,
            "",
            &lines,
            body,
        );
        octets
    }

    fn own_lines(&self, head: &mut Head<'_>) {
        head.fmt("Contact", format_args!("<{}>", self.own_uri()));
        head.line("Allow", ALLOW);
        head.line("User-Agent", NAME.as_bytes());
    }

    fn own_uri(&self) -> String {
        let transport = self.dial.flow.transport.uri_name();
        format!("sip:{USER}@{};transport={transport}", self.host())
    }

    fn callee(&self) -> String {
        let flow = &self.dial.flow;
        let transport = flow.transport.uri_name();
        format!(
            "sip:{}@{};transport={transport}",
            self.dial.user, flow.local
        )
    }
}

/// Request that the user agent sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Own {
    Invite,
    Ack,
    Cancel,
    Bye,
}

impl Own {
    const fn name(self) -> &'static str {
        match self {
            Self::Invite => "INVITE",
            Self::Ack => "ACK",
            Self::Cancel => "CANCEL",
            Self::Bye => "BYE",
        }
    }
}

/// A display name (RFC 3261 §25.1), with the blank behind it.
fn quoted(name: &str) -> String {
    // A line end in a name would begin a header.
    let kept = name.chars().filter(|char| !char.is_control());
    let mut quoted = String::from("\"");
    for char in kept.take(64) {
        if matches!(char, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted.push_str("\" ");
    quoted
}

fn refused(message: &Message<'_>) -> End {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let warning = message.first(HeaderName::Warning).map(text);
    // This node's refusals have their sentence in `Warning`.
    let sentence = warning
        .as_deref()
        .and_then(|warning| warning.split('"').nth(1))
        .map_or_else(|| text(message.reason()), str::to_owned);
    let code = message.other("X-Trunkline-Reason").map(text);
    End::Refused(
        message.status(),
        code.map(String::into_boxed_str),
        sentence.into(),
    )
}

#[cfg(test)]
mod tests {
    use trunkline_sip::flow::Transport;

    use super::*;

    const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.9\r\ns=-\r\nc=IN IP4 127.0.0.9\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\n";

    fn agent() -> (UserAgent, String) {
        let media = "127.0.0.1:40000".parse().unwrap();
        let dial = Dial {
            flow: Flow {
                transport: Transport::Tcp,
                listener: 0,
                connection: 7,
                local: "127.0.0.1:5060".parse().unwrap(),
                peer: media,
            },
            media,
            user: "agent".into(),
            agent: Some(("X-PLATFORM-AGENT-ID".into(), "a1".into())),
            name: "Ada \"the\"\r\nCaller".into(),
            identity: Identity {
                call: 1,
                tag: 2,
                session: 3,
            },
        };
        let (agent, invite) = UserAgent::new(dial);

        (agent, String::from_utf8(invite).unwrap())
    }

    /// Lines of a request that its response repeats.
    fn repeated(request: &str) -> String {
        let is_repeated = |line: &&str| {
            ["Via:", "From:", "To:", "Call-ID:", "CSeq:"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        let lines = request.lines().filter(is_repeated);
        lines.map(|line| format!("{line}\r\n")).collect()
    }

    fn answer(request: &str, status: &str, more: &str, body: &str) -> String {
        let to = |line: String| match line.starts_with("To:") && !line.contains(";tag=") {
            true => format!("{line};tag=remote"),
            false => line,
        };
        let lines: Vec<_> = repeated(request)
            .lines()
            .map(|line| to(line.to_owned()))
            .collect();
        let head = lines.join("\r\n");
        let length = body.len();
        format!("SIP/2.0 {status}\r\n{head}\r\n{more}Content-Length: {length}\r\n\r\n{body}")
    }

    /// A request of the other side, inside the dialog.
    fn asked(method: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "{method} sip:browser@127.0.0.1:40000 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1:5060;branch=z9hG4bKx\r\nMax-Forwards: 70\r\n\
             From: <sip:agent@127.0.0.1>;tag=remote\r\nTo: <sip:browser@127.0.0.1>;tag=0000000000000002\r\n\
             Call-ID: {:032x}\r\nCSeq: 5 {method}\r\nContact: <sip:c@127.0.0.1:5060>\r\nContent-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{body}",
            1
        )
    }

    /// Returns the first lines of sent messages, and the events.
    fn after(agent: &mut UserAgent, message: &str) -> (Vec<String>, Vec<Event>) {
        let mut output = Output::default();
        agent.handle_message(message.as_bytes(), &mut output);
        let first = |octets: &Vec<u8>| {
            let text = String::from_utf8_lossy(octets);
            text.lines().next().unwrap_or_default().to_owned()
        };
        (output.messages.iter().map(first).collect(), output.events)
    }

    fn kinds(events: &[Event]) -> Vec<&'static str> {
        let kind = |event: &Event| match event {
            Event::Ringing => "ringing",
            Event::Media(Some(_)) => "media",
            Event::Media(None) => "no media",
            Event::Answered => "answered",
            Event::Ended(_) => "ended",
        };
        events.iter().map(kind).collect()
    }

    fn up() -> UserAgent {
        let (mut agent, invite) = agent();
        let contact =
            "Contact: <sip:c@127.0.0.1:5060;transport=tcp>\r\nContent-Type: application/sdp\r\n";
        let (sent, events) = after(&mut agent, &answer(&invite, "200 OK", contact, OFFER));
        assert_eq!(sent, ["ACK sip:c@127.0.0.1:5060;transport=tcp SIP/2.0"]);
        assert_eq!(kinds(&events), ["media", "answered"]);
        agent
    }

    #[test]
    fn an_invite_names_agent_and_person_and_takes_no_refer() {
        let (_, invite) = agent();
        assert!(invite.starts_with("INVITE sip:agent@127.0.0.1:5060;transport=tcp SIP/2.0\r\n"));
        assert!(
            invite.contains("\r\nX-PLATFORM-AGENT-ID: a1\r\n"),
            "{invite}"
        );
        assert!(
            invite.contains("From: \"Ada \\\"the\\\"Caller\" <sip:browser@127.0.0.1:40000"),
            "{invite}"
        );
        assert!(invite.contains("m=audio 40000 RTP/AVP 0 8 101"), "{invite}");
        assert!(!invite.contains("REFER"), "{invite}");
        assert!(lex(invite.as_bytes(), Framing::Stream).is_ok());
    }

    #[test]
    fn a_call_rings_is_answered_and_is_hung_up() {
        let (mut agent, invite) = agent();
        let (_, events) = after(&mut agent, &answer(&invite, "180 Ringing", "", ""));
        assert_eq!(events, [Event::Ringing]);

        let mut agent = up();
        let mut output = Output::default();
        agent.hang_up(&mut output);
        agent.hang_up(&mut output);
        let bye = String::from_utf8(output.messages.remove(0)).unwrap();
        assert!(output.messages.is_empty(), "one BYE");
        assert!(
            bye.starts_with("BYE sip:c@127.0.0.1:5060") && bye.contains("CSeq: 2 BYE"),
            "{bye}"
        );
        assert!(bye.contains(";tag=remote"), "{bye}");
        let (_, events) = after(&mut agent, &answer(&bye, "200 OK", "", ""));
        assert_eq!(events, [Event::Ended(End::Own)]);
        assert!(agent.is_over());
    }

    #[test]
    fn the_sdp_of_the_183_alone_will_do() {
        let (mut agent, invite) = agent();
        let contact = "Contact: <sip:c@127.0.0.1:5060;transport=tcp>\r\n";
        let with_sdp = format!("{contact}Content-Type: application/sdp\r\n");
        let early = answer(&invite, "183 Session Progress", &with_sdp, OFFER);
        let (_, events) = after(&mut agent, &early);
        assert_eq!(kinds(&events), ["ringing", "media"]);

        let (_, events) = after(&mut agent, &answer(&invite, "200 OK", contact, ""));
        assert_eq!(kinds(&events), ["answered"]);
    }

    #[test]
    fn a_cancel_that_an_answer_crosses_is_followed_by_bye() {
        let (mut agent, invite) = agent();
        let mut output = Output::default();
        agent.hang_up(&mut output);
        let cancel = String::from_utf8(output.messages.remove(0)).unwrap();
        let via = |text: &str| {
            text.lines()
                .find(|line| line.starts_with("Via:"))
                .map(str::to_owned)
        };
        assert!(
            cancel.starts_with("CANCEL ") && cancel.contains("CSeq: 1 CANCEL"),
            "{cancel}"
        );
        assert_eq!(via(&cancel), via(&invite), "the INVITE's transaction");

        let contact = "Contact: <sip:c@127.0.0.1:5060>\r\n";
        let (sent, events) = after(&mut agent, &answer(&invite, "200 OK", contact, OFFER));
        let methods: Vec<_> = sent
            .iter()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!((methods, events), (vec!["ACK", "BYE"], vec![]));
    }

    #[test]
    fn a_refusal_is_acknowledged_and_explained() {
        let (mut agent, invite) = agent();
        let why = "Warning: 399 trunkline \"No agent.\"\r\nX-Trunkline-Reason: no_agent\r\n";
        let (sent, events) = after(
            &mut agent,
            &answer(&invite, "480 Temporarily Unavailable", why, ""),
        );
        assert!(sent[0].starts_with("ACK sip:agent@"), "{sent:?}");
        let end = End::Refused(480, Some("no_agent".into()), "No agent.".into());
        assert_eq!(events, [Event::Ended(end)]);
    }

    #[test]
    fn what_comes_inside_a_call_is_answered() {
        for (method, body, status, events) in [
            ("INVITE", OFFER, "SIP/2.0 200 OK", vec!["media"]),
            ("UPDATE", OFFER, "SIP/2.0 200 OK", vec!["media"]),
            ("UPDATE", "", "SIP/2.0 200 OK", vec![]),
            (
                "INVITE",
                "v=0\r\nm=video 1 RTP/AVP 96\r\n",
                "SIP/2.0 488 Not Acceptable Here",
                vec![],
            ),
            ("OPTIONS", "", "SIP/2.0 200 OK", vec![]),
            ("INFO", "", "SIP/2.0 200 OK", vec![]),
            ("REFER", "", "SIP/2.0 405 Method Not Allowed", vec![]),
            ("BYE", "", "SIP/2.0 200 OK", vec!["ended"]),
        ] {
            let mut agent = up();
            let (sent, happened) = after(&mut agent, &asked(method, body));
            assert_eq!(
                (sent, kinds(&happened)),
                (vec![status.to_owned()], events),
                "{method} {body}"
            );
        }
    }

    #[test]
    fn an_invite_without_an_offer_gets_one() {
        let mut agent = up();
        let mut output = Output::default();
        agent.handle_message(asked("INVITE", "").as_bytes(), &mut output);
        let sent = String::from_utf8(output.messages.remove(0)).unwrap();
        assert!(sent.contains("m=audio 40000"), "{sent}");
        let (_, events) = after(&mut agent, &asked("ACK", OFFER));
        assert_eq!(kinds(&events), ["media"]);
    }
}
