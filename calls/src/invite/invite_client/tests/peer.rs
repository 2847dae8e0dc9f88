//! A client and the peer that answers it: each answer belongs to the INVITE that was sent last, and the requests that follow are looked at.

use trunkline_sip::endpoint::Received;
use trunkline_sip::wheel::Wheel;

use super::*;

/// A client that has begun, and its surroundings.
pub(super) struct Peer {
    pub(super) world: World,
    pub(super) client: InviteClient,
    /// The last INVITE, and the flow that it went by.
    pub(super) invite: String,
    flow: Flow,
}

impl Peer {
    /// A client that has not begun.
    pub(super) fn idle(client: InviteClient) -> Self {
        Self {
            world: World::new(false),
            client,
            invite: String::new(),
            flow: flow(),
        }
    }

    /// Sends the first INVITE of a client.
    pub(super) fn of(client: InviteClient, is_large: bool) -> Self {
        let mut peer = Self {
            world: World::new(is_large),
            ..Self::idle(client)
        };
        peer.on(|client, cx, text| client.begin(cx, text));
        peer
    }

    /// Lets the client act; returns the event, and what was sent and wanted then.
    pub(super) fn on<'m>(
        &mut self,
        act: impl FnOnce(&mut InviteClient, &mut Cx<'_>, &dyn InviteText) -> InviteEvent<'m>,
    ) -> String {
        let event = self.world.act(&mut self.client, act);
        [said(&event), self.seen()].join("")
    }

    /// Answers the last INVITE in the dialog `tag`.
    pub(super) fn answer(&mut self, status: &str, tag: &str, rest: &str) -> String {
        let octets = self.response(status, tag, rest);
        let (flow, endpoint) = (self.flow, &mut self.world.endpoint);
        let received = endpoint.receive(octets.as_bytes(), flow, NOW);
        let Received::Response { message, .. } = received else {
            panic!("{status} is handled as {received:?}");
        };
        self.on(|client, cx, text| client.handle_response(cx, text, flow, &message))
    }

    /// A response to the last INVITE; `rest` has further lines, and a body after an empty line.
    pub(super) fn response(&self, status: &str, tag: &str, rest: &str) -> String {
        let copied = ["Via", "From", "To", "Call-ID", "CSeq"].map(|name| {
            let line = line_of(&self.invite, name);
            match name {
                "To" if status != "100" => format!("{line};tag={tag}"),
                _ => line,
            }
        });
        let copied = copied.join("\r\n");
        let (lines, body) = rest.split_once("\r\n\r\n").unwrap_or((rest, ""));
        let lines = lines.trim_end();
        let lines = match lines {
            "" => String::new(),
            lines => format!("{lines}\r\n"),
        };
        let octets = body.len();
        format!(
            "SIP/2.0 {status} X\r\n{copied}\r\nContact: <sip:them@192.0.2.1>\r\n{lines}Content-Length: {octets}\r\n\r\n{body}"
        )
    }

    /// Abbreviates the requests and effects since the last look.
    fn seen(&mut self) -> String {
        let mut seen = String::new();
        let sent: Vec<_> = self.world.endpoint.transmits().collect();
        for (flow, octets) in &sent {
            let text = String::from_utf8_lossy(octets).into_owned();
            let mut words = text.split([' ', '\r']);
            let (method, uri) = (words.next().expect("one"), words.next().expect("a URI"));
            let number = line_of(&text, "CSeq");
            let number: String = number.chars().filter(char::is_ascii_digit).collect();
            seen.push_str(&format!("; {method} {uri} {number}"));
            if method == "INVITE" {
                (self.invite, self.flow) = (text, *flow);
            }
        }
        drop(sent);
        self.world.endpoint.clear_transmits();

        for effect in self.world.core.effects.drain(..) {
            let words = if let Effect::Resolve { wanted, .. } = &effect {
                format!("resolve {}", wanted.host)
            } else if let Effect::Connect { .. } = &effect {
                "connect".to_owned()
            } else if let Effect::StreamSilent { .. } = &effect {
                "the connection is silent".to_owned()
            } else if let Effect::FailedOver { cause } = &effect {
                format!("over after {}", cause.as_str())
            } else if let Effect::Fact(Fact::Attempt(attempt)) = &effect {
                format!("tried {}: {}", attempt.target, attempt.outcome.as_str())
            } else {
                format!("{effect:?}")
            };
            seen.push_str(&format!("; {words}"));
        }
        seen
    }

    /// The flow to the first target, as far as it is known.
    pub(super) fn first_flow(&mut self) -> Option<Flow> {
        let cx = Cx {
            core: &mut self.world.core,
            endpoint: &mut self.world.endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now: NOW,
        };
        self.client.first_flow(&cx)
    }

    /// Seconds until the timer of the client ends, as if it ended now; `None` without one.
    pub(super) fn timer(&mut self) -> Option<u64> {
        let mut timers = std::mem::replace(&mut self.world.core.timers, Wheel::new(NOW));
        (0..60).find(|seconds| timers.pop(NOW + Duration::from_secs(*seconds)).is_some())
    }
}

/// The line with that name, which a large INVITE has in its compact form (RFC 3261 §7.3.3).
pub(super) fn line_of(message: &str, name: &str) -> String {
    let compact = match name {
        "Via" => "v",
        "From" => "f",
        "To" => "t",
        "Call-ID" => "i",
        _ => name,
    };
    let (full, compact) = (format!("{name}: "), format!("{compact}:"));
    let mut lines = message.split("\r\n");
    lines
        .find(|line| line.starts_with(&full) || line.starts_with(&compact))
        .unwrap_or_else(|| panic!("no {name} in {message}"))
        .to_owned()
}
