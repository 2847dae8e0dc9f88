//! Requests of the caller: templates of a realistic size, patched for each call.

use std::net::SocketAddrV4;

use trunkline_sip::auth::Challenge;
use trunkline_sip::wire::{HeaderName, Message};

use super::plan::Parties;
use crate::calls::{Call, CallRef};
use crate::digest::Account;
use crate::message::{MARK, contact_uri};
use crate::outbox::Outbox;
use crate::template::Template;

const AGENT: &str = "User-Agent: trunkline-bench\r\n";
const SUPPORTED: &str = "Supported: 100rel, timer, replaces, norefersub\r\n";

/// Parts that every call of the caller shares.
#[derive(Debug)]
pub(super) struct Caller {
    server: SocketAddrV4,
    uri: Vec<u8>,
    account: Account,
    invite: Template,
    invite_tail: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// The parts before and after the remote tag.
    ack: (Template, Template),
    bye: (Template, Template),
    cancel: Template,
    options: Template,
}

impl Caller {
    pub(super) fn new(parties: &Parties) -> Self {
        let lines = Lines::new(parties);
        let body = offer(parties.caller);
        Self {
            server: parties.server,
            account: Account {
                user: parties.user.clone(),
                password: parties.password.clone(),
            },
            invite: lines.invite(),
            invite_tail: format!(
                "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .into(),
            body: body.into(),
            ack: lines.in_dialog("ACK"),
            bye: lines.in_dialog("BYE"),
            cancel: lines.cancel(),
            options: lines.options(parties),
            uri: lines.uri.into(),
        }
    }

    pub(super) fn put_invite(
        &self,
        out: &mut Outbox,
        reference: CallRef,
        call: &Call,
        callers: u32,
    ) {
        self.invite
            .put(out, reference, call.cseq, reference.index() % callers);
        if !call.credentials.is_empty() {
            out.put(b"Authorization: ");
            out.put(call.credentials.as_bytes());
            out.put(b"\r\n");
        }
        out.put(&self.invite_tail);
        out.end(self.server);
    }

    pub(super) fn put_options(&self, out: &mut Outbox, reference: CallRef, callers: u32) {
        self.options
            .put(out, reference, 1, reference.index() % callers);
        out.end(self.server);
    }

    pub(super) fn put_cancel(
        &self,
        out: &mut Outbox,
        reference: CallRef,
        call: &Call,
        callers: u32,
    ) {
        self.cancel
            .put(out, reference, call.cseq, reference.index() % callers);
        out.end(self.server);
    }

    pub(super) fn put_in_dialog(
        &self,
        out: &mut Outbox,
        method: &[u8],
        cseq: u8,
        reference: CallRef,
        call: &Call,
        callers: u32,
    ) {
        let (head, tail) = if method == b"ACK" {
            &self.ack
        } else {
            &self.bye
        };
        out.put(method);
        out.put(b" ");
        out.put(call.remote_target.as_bytes());
        head.put(out, reference, cseq, reference.index() % callers);
        out.put(call.remote_tag.as_bytes());
        tail.put(out, reference, cseq, 0);
        out.end(self.server);
    }

    /// Prints the ACK of a refusal (§17.1.1.3) from the response alone, so that it works for forgotten calls too.
    pub(super) fn put_refusal_ack(&self, out: &mut Outbox, response: &Message<'_>) {
        out.put(b"ACK ");
        out.put(&self.uri);
        out.put(b" SIP/2.0\r\n");
        // RFC 3261 §17.1.1.3: a single Via, the top one of the INVITE, which the response repeats first.
        out.put(b"Via: ");
        out.put(response.first(HeaderName::Via).unwrap_or_default());
        out.put(b"\r\n");
        put_from_response(out, response, response.cseq().number, b"ACK");
        out.end(self.server);
    }

    /// Prints ACK and BYE for a 2xx whose call is over.
    pub(super) fn put_unwanted(&self, out: &mut Outbox, response: &Message<'_>) {
        let Some(target) = contact_uri(response) else {
            return;
        };

        let (call_id, cseq) = (response.call_id(), response.cseq().number);
        for (method, cseq, branch) in [(b"ACK", cseq, b"a"), (b"BYE", cseq + 1, b"b")] {
            out.put(method);
            out.put(b" ");
            out.put(target);
            out.put(b" SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1;rport;branch=z9hG4bKun");
            // The first 16 octets of the Call-ID name the call, so that the branch is this call's alone.
            out.put(&call_id[..call_id.len().min(16)]);
            out.put(branch);
            out.put(b"\r\n");
            put_from_response(out, response, cseq, method);
            out.end(self.server);
        }
    }

    /// Gives the next INVITE of `call` the answer to a challenge; false if there is none, or it is too long.
    pub(super) fn authorize(
        &self,
        reference: CallRef,
        call: &mut Call,
        challenge: &Challenge<'_>,
    ) -> bool {
        let cnonce = format!("{:016x}", reference.bits());
        let value = self
            .account
            .authorization(challenge, "INVITE", &self.uri, &cnonce);
        value.is_some_and(|value| call.credentials.set(value.as_bytes()))
    }
}

/// The lines from which the caller's requests are built.
struct Lines {
    uri: String,
    own: SocketAddrV4,
    from: String,
    to: String,
}

impl Lines {
    fn new(parties: &Parties) -> Self {
        let own = parties.caller;
        let uri = format!("sip:{}@{}", parties.number, parties.server);
        Self {
            from: format!(
                "From: \"Load {{caller}}\" <sip:+49301{{caller}}@{own}>;tag=c{{call}}\r\n"
            ),
            to: format!("To: <{uri}>"),
            uri,
            own,
        }
    }

    fn via(&self, kind: &str) -> String {
        format!(
            "Via: SIP/2.0/UDP {};rport;branch=z9hG4bKPj{{call}}{{n}}{kind}\r\n",
            self.own
        )
    }

    fn ids(&self, method: &str) -> String {
        format!(
            "Call-ID: {{call}}-5f2d1c@{}\r\nCSeq: {{n}} {method}\r\nMax-Forwards: 70\r\n",
            self.own.ip()
        )
    }

    /// The INVITE up to the place of the credentials.
    fn invite(&self) -> Template {
        let Self { uri, own, from, to } = self;
        let (via, ids) = (self.via("i"), self.ids("INVITE"));
        Template::new(&format!(
            "INVITE {uri} SIP/2.0\r\n{via}{from}{to}\r\nContact: <sip:trunk@{own}>\r\n{ids}\
             Allow: OPTIONS, REGISTER, SUBSCRIBE, NOTIFY, PUBLISH, INVITE, ACK, BYE, CANCEL, UPDATE, PRACK, MESSAGE, REFER, INFO\r\n\
             {SUPPORTED}Session-Expires: 1800\r\nMin-SE: 90\r\n\
             P-Asserted-Identity: \"Load {{caller}}\" <sip:+49301{{caller}}@{own}>\r\n{MARK}: {{call}}\r\n{AGENT}"
        ))
    }

    /// The parts of a request after the remote target, and after the remote tag.
    fn in_dialog(&self, method: &str) -> (Template, Template) {
        let Self { from, to, .. } = self;
        (
            Template::new(&format!(
                " SIP/2.0\r\n{}{from}{to};tag=",
                self.via(&method.to_lowercase())
            )),
            Template::new(&format!(
                "\r\n{}{AGENT}Content-Length: 0\r\n\r\n",
                self.ids(method)
            )),
        )
    }

    /// §9.1: all lines of the INVITE with another method.
    fn cancel(&self) -> Template {
        let Self { uri, from, to, .. } = self;
        Template::new(&format!(
            "CANCEL {uri} SIP/2.0\r\n{}{from}{to}\r\n{}Content-Length: 0\r\n\r\n",
            self.via("i"),
            self.ids("CANCEL")
        ))
    }

    fn options(&self, parties: &Parties) -> Template {
        let (server, own, from) = (parties.server, self.own, &self.from);
        Template::new(&format!(
            "OPTIONS sip:{server} SIP/2.0\r\n{}{from}To: <sip:{server}>\r\nContact: <sip:trunk@{own}>\r\n{}\
             Accept: application/sdp\r\n{SUPPORTED}{AGENT}Content-Length: 0\r\n\r\n",
            self.via("o"),
            self.ids("OPTIONS")
        ))
    }
}

fn put_from_response(out: &mut Outbox, response: &Message<'_>, cseq: u32, method: &[u8]) {
    let lines: [(&[u8], &[u8]); 3] = [
        (b"From: ", response.from()),
        (b"To: ", response.to()),
        (b"Call-ID: ", response.call_id()),
    ];
    for (name, value) in lines {
        out.put(name);
        out.put(value);
        out.put(b"\r\n");
    }
    out.put(b"Max-Forwards: 70\r\nCSeq: ");
    out.put_decimal(cseq);
    out.put(b" ");
    out.put(method);
    out.put(b"\r\nContent-Length: 0\r\n\r\n");
}

/// An offer like that of a phone system: two codecs and DTMF.
fn offer(own: SocketAddrV4) -> String {
    let ip = own.ip();
    format!(
        "v=0\r\no=- 1583926331 1583926331 IN IP4 {ip}\r\ns=Phone\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio 16384 RTP/AVP 0 8 101\r\n\
         a=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\n\
         a=ptime:20\r\na=maxptime:150\r\na=sendrecv\r\n"
    )
}
