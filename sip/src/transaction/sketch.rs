//! Parts of a message that are kept to make others from them: of a sent INVITE, for its CANCEL and the ACK of a
//! refusal (RFC 3261 §9.1, §17.1.1.3); of a received request, for its responses (RFC 3261 §8.2.6.2).
//!
//! Both are cut from the output of `wire::print`, which writes every header on one line under its full name, or under its compact name
//! in a message too large for a datagram.

use std::io::Write as _;
use std::ops::Range;

use smallvec::SmallVec;

use crate::flow::Flow;
use crate::header::content_type;
use crate::wire::print::CopiedLines;
use crate::wire::{HeaderName, Message, Method, print};

use super::Response;

const LINE_END: &[u8] = b"\r\n";

/// Large enough for the kept parts of most messages, so that the box is allocated once, at its final size.
type Scratch = SmallVec<[u8; 1024]>;

/// Parts that CANCEL and ACK share with their INVITE.
#[derive(Debug, Default)]
pub(crate) struct InviteSketch {
    /// The start line from the space after the method on, then header lines, the To line last.
    octets: Box<[u8]>,
    to: usize,
    cseq: u32,
    offers: bool,
}

impl InviteSketch {
    /// Sketches a printed INVITE.
    pub(crate) fn of(invite: &[u8]) -> Self {
        let mut kept = Scratch::new();
        let mut to: &[u8] = b"";
        let mut cseq = 0;
        let mut via = false;
        // A body without a Content-Type counts as an SDP, as it does to `dialog::body`.
        let (mut length, mut is_sdp) = (0, true);
        let start = lines(invite).next().unwrap_or_default();

        push_line(&mut kept, start.strip_prefix(b"INVITE").unwrap_or(start));

        for line in header_lines(invite) {
            let (name, value) = cut(line);

            // Of several Vias only ours, the first: an ACK or CANCEL has "a single Via header field" (RFC 3261 §9.1,
            // §17.1.1.3). Route is kept, so that the ACK or CANCEL takes the path of the INVITE.
            if matches!(
                name,
                HeaderName::Route | HeaderName::From | HeaderName::CallId
            ) {
                push_line(&mut kept, line);
            } else if name == HeaderName::Via && !via {
                via = true;
                push_line(&mut kept, line);
            } else if name == HeaderName::To {
                to = line;
            } else if name == HeaderName::CSeq {
                cseq = number_in(value);
            } else if name == HeaderName::ContentType {
                is_sdp = content_type::may_hold_sdp(value.trim_ascii());
            } else if name == HeaderName::ContentLength {
                length = number_in(value);
            }
        }

        // CANCEL and ACK begin at this hop, so they get the full Max-Forwards (RFC 3261 §8.1.1.6), not the INVITE's.
        push_line(&mut kept, b"Max-Forwards: 70");

        let at = kept.len();
        push_line(&mut kept, to);

        Self {
            octets: Box::from(&kept[..]),
            to: at,
            cseq,
            offers: length > 0 && is_sdp,
        }
    }

    /// Returns true if the INVITE offers a session.
    pub(crate) const fn offers(&self) -> bool {
        self.offers
    }

    /// The CANCEL, with further header lines.
    pub(crate) fn print_cancel(&self, out: &mut Vec<u8>, head: &[u8]) {
        out.extend_from_slice(b"CANCEL");
        out.extend_from_slice(&self.octets);
        self.print_end(out, "CANCEL", head);
    }

    /// The ACK of a refusal whose To header has the value `to`.
    pub(crate) fn print_ack(&self, out: &mut Vec<u8>, to: &[u8]) {
        out.extend_from_slice(b"ACK");
        out.extend_from_slice(&self.octets[..self.to]);
        print::Head::new(out).line("To", to);
        self.print_end(out, "ACK", b"");
    }

    fn print_end(&self, out: &mut Vec<u8>, method: &str, head: &[u8]) {
        push(out, format_args!("CSeq: {} {method}\r\n", self.cseq));
        out.extend_from_slice(head);
        out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    }
}

/// Parts that responses share with their request.
#[derive(Debug)]
pub(crate) struct RequestSketch {
    /// The header lines that are copied, in the order of [`print::response`].
    octets: Box<[u8]>,
    record_route: Range<usize>,
    /// Position of Timestamp, which comes last and is in a 100 alone (RFC 3261 §8.2.6.1).
    timestamp: usize,
    /// The end of the To value, where a tag goes.
    to_end: usize,
    tagged: bool,
}

impl RequestSketch {
    /// Sketches a request that came by `flow`; `scratch` is printed into and left as it was.
    pub(crate) fn of(request: &Message<'_>, flow: &Flow, scratch: &mut Vec<u8>) -> Self {
        let start = scratch.len();

        // Record-Route is included, since some responses copy it.
        let CopiedLines {
            record_route,
            to_end,
        } = print::copied(scratch, request, flow, true, None);
        let timestamp = scratch.len();

        // Only an INVITE gets a 100.
        if request.method() == Method::Invite
            && let Some(value) = request.first(HeaderName::Timestamp)
        {
            print::Head::new(scratch).unfolded("Timestamp", value);
        }

        let sketch = Self {
            octets: scratch[start..].into(),
            record_route: record_route.start - start..record_route.end - start,
            timestamp: timestamp - start,
            to_end: to_end - start,
            tagged: request.to_tag().is_some(),
        };
        scratch.truncate(start);
        sketch
    }

    /// Returns true if the request came with a To-tag, so that we add none to its responses.
    pub(crate) fn is_tagged(&self) -> bool {
        self.tagged
    }

    /// Prints a response; `tag` goes into its To header, unless the request had one or the response is a 100.
    pub(crate) fn print(
        &self,
        out: &mut Vec<u8>,
        response: &Response<'_>,
        tag: Option<&[u8]>,
        server: &str,
    ) {
        let reason = response
            .reason
            .unwrap_or_else(|| print::reason_phrase(response.status));

        print::status_line(out, response.status, reason);

        let Range { start, end } = self.record_route;
        // RFC 3261 §12.1.1: a response that makes a dialog "MUST copy all Record-Route header field values from the
        // request".
        let below = if (101..300).contains(&response.status) {
            start
        } else {
            end
        };

        out.extend_from_slice(&self.octets[..start]);
        out.extend_from_slice(&self.octets[below..self.to_end]);
        if let Some(tag) = tag.filter(|_| !self.tagged && response.status > 100) {
            print::tag(out, tag);
        }

        let end = match response.status {
            100 => self.octets.len(),
            _ => self.timestamp,
        };
        out.extend_from_slice(&self.octets[self.to_end..end]);

        out.extend_from_slice(response.head);
        if !server.is_empty() {
            print::Head::new(out).line("Server", server.as_bytes());
        }
        print::Head::new(out).number("Content-Length", response.body.len() as u64);
        out.extend_from_slice(LINE_END);
        out.extend_from_slice(response.body);
    }
}

/// Headers that identify our request, read from the header lines that it is printed from.
#[derive(Debug, Default)]
pub(crate) struct IdentifyingHeaders<'h> {
    pub(crate) from_tag: Option<&'h [u8]>,
    pub(crate) call_id: &'h [u8],
    pub(crate) cseq: u32,
}

impl<'h> IdentifyingHeaders<'h> {
    /// Reads the header lines until all three are found; they are among the first.
    pub(crate) fn read(head: &'h [u8]) -> Self {
        let mut known = Self::default();
        let (mut from, mut call_id, mut cseq) = (false, false, false);
        for (name, value) in lines(head).map(cut) {
            if name == HeaderName::From && !from {
                from = true;
                known.from_tag = tag_in(value.trim_ascii());
            } else if name == HeaderName::CallId && !call_id {
                call_id = true;
                known.call_id = value.trim_ascii();
            } else if name == HeaderName::CSeq && !cseq {
                cseq = true;
                known.cseq = number_in(value);
            }
            if from && call_id && cseq {
                break;
            }
        }

        known
    }
}

/// The tag parameter of a From or To value, after the address.
fn tag_in(value: &[u8]) -> Option<&[u8]> {
    // A display name or a URI parameter before the bracket may look like a tag.
    let address = memchr::memrchr(b'>', value).map_or(0, |at| at + 1);
    let params = &value[address..];

    // The form in which we write a tag. All other forms take the slower search below.
    if let Some(tag) = params.strip_prefix(b";tag=")
        && memchr::memchr(b';', tag).is_none()
    {
        return Some(tag);
    }

    let params = params
        .split(|octet| *octet == b';')
        .skip(1)
        .map(<[u8]>::trim_ascii);
    params
        .filter(|param| {
            param
                .get(..4)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"tag="))
        })
        .map(|param| &param[4..])
        .next()
}

fn lines(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(message);
    std::iter::from_fn(move || {
        let all = rest?;
        let end = memchr::memchr(b'\n', all);
        rest = end.map(|at| &all[at + 1..]);
        let line = &all[..end.unwrap_or(all.len())];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

fn header_lines(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines(message).skip(1).take_while(|line| !line.is_empty())
}

/// The name of a printed header line, full or compact, and its value with the space before it.
fn cut(line: &[u8]) -> (HeaderName, &[u8]) {
    // Names are short, so a plain search is fast enough.
    match line.iter().position(|octet| *octet == b':') {
        Some(colon) => (HeaderName::from_bytes(&line[..colon]), &line[colon + 1..]),
        None => (HeaderName::Other, b""),
    }
}

/// The number at the start of a value; 0 where there is none.
fn number_in(line: &[u8]) -> u32 {
    let digits = line.iter().skip_while(|octet| !octet.is_ascii_digit());
    let digits = digits.take_while(|octet| octet.is_ascii_digit());
    digits.fold(0, |number: u32, digit| {
        number
            .wrapping_mul(10)
            .wrapping_add(u32::from(digit - b'0'))
    })
}

fn push_line(out: &mut Scratch, line: &[u8]) {
    out.extend_from_slice(line);
    out.extend_from_slice(LINE_END);
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Transport;
    use crate::wire::{Framing, lex};

    const FLOW: Flow = Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5060),
        peer: std::net::SocketAddr::new(
            std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            40_000,
        ),
    };

    fn invite(routes: &str, to: &str) -> Vec<u8> {
        format!(
            "INVITE sip:c@d SIP/2.0\r\nv: SIP/2.0/UDP 192.0.2.1;rport;branch=z9hG4bKx, SIP/2.0/TCP a\r\n\
             {routes}Via: SIP/2.0/UDP b;branch=z9hG4bKy\r\nf: \"A;\r\n B\" <sip:a@b>;tag=from\r\n\
             t: {to}\r\ni: x@y\r\nCSeq: 7  INVITE\r\nContent-Type: a/b\r\nContent-Length: 2\r\n\r\nhi"
        )
        .into_bytes()
    }

    #[test]
    fn a_response_is_what_the_printer_makes_of_the_request() {
        let route = "Record-Route: <sip:p;lr>\r\nRecord-Route: <sip:q;lr>\r\n";
        let answers = [
            ("trying", Response::bare(100)),
            (
                "ringing",
                Response {
                    head: b"Contact: <sip:we>\r\n",
                    ..Response::bare(180)
                },
            ),
            (
                "answer",
                Response {
                    body: b"v=0",
                    head: b"Content-Type: x/y\r\n",
                    ..Response::bare(200)
                },
            ),
            (
                "refusal",
                Response {
                    reason: Some("Not Now"),
                    ..Response::bare(486)
                },
            ),
        ];

        for (routes, to) in [
            ("", "<sip:c@d>"),
            (route, "<sip:c@d>"),
            (route, "<sip:c@d>;tag=t"),
            ("", "<sip:c@d>;tag="),
            ("", "sip:c@d;x=y;Tag"),
        ] {
            let octets = invite(routes, to);
            let request = lex(&octets, Framing::Datagram).expect("the request is in order");
            let sketch = RequestSketch::of(&request, &FLOW, &mut Vec::new());

            for (name, answer) in &answers {
                let tag = (answer.status > 100).then_some(&b"ours"[..]);
                let (mut made, mut expected) = (Vec::new(), Vec::new());
                sketch.print(&mut made, answer, tag, "we");
                let Response {
                    status,
                    reason,
                    head,
                    body,
                    ..
                } = *answer;

                print::response(
                    &mut expected,
                    &request,
                    &FLOW,
                    status,
                    reason,
                    tag,
                    "we",
                    head,
                    body,
                );
                assert_eq!(
                    String::from_utf8_lossy(&made),
                    String::from_utf8_lossy(&expected),
                    "{name} to {routes}{to}"
                );
            }
        }
    }

    /// RFC 3261 §8.2.6.1.
    #[test]
    fn a_timestamp_comes_back_in_the_100_alone() {
        let octets = invite("Timestamp: 54.2\r\n  1\r\n", "<sip:c@d>");
        let request = lex(&octets, Framing::Datagram).expect("the request is in order");
        let sketch = RequestSketch::of(&request, &FLOW, &mut Vec::new());
        for (status, expected) in [(100, Some(&b"54.2 1"[..])), (180, None), (486, None)] {
            let mut made = Vec::new();
            sketch.print(&mut made, &Response::bare(status), Some(b"ours"), "we");
            let printed = lex(&made, Framing::Stream).expect("what we print is in order");
            assert_eq!(printed.first(HeaderName::Timestamp), expected, "{status}");
        }
    }

    #[test]
    fn a_reason_phrase_and_a_tag_stay_on_their_lines() {
        let octets = invite("", "<sip:c@d>");
        let request = lex(&octets, Framing::Datagram).expect("the request is in order");
        let mut made = Vec::new();
        let response = Response {
            reason: Some("No\r\nX: y"),
            ..Response::bare(486)
        };
        let sketch = RequestSketch::of(&request, &FLOW, &mut Vec::new());
        sketch.print(&mut made, &response, Some(b"a\r\nZ: z"), "");
        assert!(made.starts_with(b"SIP/2.0 486 No  X: y\r\nVia"));
        let printed = lex(&made, Framing::Stream).expect("what we print is in order");
        assert_eq!((printed.other("X"), printed.other("Z")), (None, None));
    }

    #[test]
    fn cancel_and_ack_share_what_they_must_with_their_invite() {
        let mut invite = Vec::new();
        let head = b"Route: <sip:p;lr>\r\nMax-Forwards: 69\r\nFrom: <sip:a@b>;tag=from\r\n\
            Route: <sip:q;lr>\r\nTo: <sip:c@d>\r\nCall-ID: x@y\r\nCSeq: 4711 INVITE\r\n\
            Via: SIP/2.0/UDP below\r\nContact: <sip:we>\r\nContent-Type: x/y\r\n";
        print::request(
            &mut invite,
            "INVITE",
            b"sip:c@d",
            "SIP/2.0/UDP a;branch=z9hG4bKx",
            head,
            b"v=0",
        );

        let sketch = InviteSketch::of(&invite);
        let common = "sip:c@d SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bKx\r\nRoute: <sip:p;lr>\r\n\
            From: <sip:a@b>;tag=from\r\nRoute: <sip:q;lr>\r\nCall-ID: x@y\r\nMax-Forwards: 70\r\n";
        let printed = |print: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            print(&mut out);
            String::from_utf8(out).expect("all of it is text")
        };

        assert_eq!(
            printed(&|out| sketch.print_cancel(out, b"Reason: SIP;cause=200\r\n")),
            format!(
                "CANCEL {common}To: <sip:c@d>\r\nCSeq: 4711 CANCEL\r\n\
                 Reason: SIP;cause=200\r\nContent-Length: 0\r\n\r\n"
            )
        );

        assert_eq!(
            printed(&|out| sketch.print_ack(out, b"<sip:c@d>;\r\n tag=t")),
            format!(
                "ACK {common}To: <sip:c@d>;   tag=t\r\nCSeq: 4711 ACK\r\nContent-Length: 0\r\n\r\n"
            )
        );
    }

    #[test]
    fn a_tag_is_read_behind_the_address() {
        let cases: [(&[u8], Option<&[u8]>); 6] = [
            (b"<sip:a@b>;tag=x", Some(b"x")),
            (b"<sip:a@b;tag=no>;p=q; TAG=x;r", Some(b"x")),
            (b"\";tag=no\" <sip:a@b>;tag=x", Some(b"x")),
            (b"sip:a@b;tag=x", Some(b"x")),
            (b"<sip:a@b;tag=no>", None),
            (b"", None),
        ];
        for (value, tag) in cases {
            assert_eq!(tag_in(value), tag, "{}", String::from_utf8_lossy(value));
        }
    }
}
