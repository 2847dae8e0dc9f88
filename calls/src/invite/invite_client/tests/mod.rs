//! Each state of an INVITE of ours with each event, at the last target and where another is left.

mod early;
mod names;
mod next_hop;
mod peer;
mod sent;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use trunkline_model::address::NamedBy;
use trunkline_model::attempt::AttemptLeg;
use trunkline_model::record::Fact;
use trunkline_model::settings::Runtime;
use trunkline_sip::auth::{Algorithm, NonceKeys, NonceWindow, Nonces};
use trunkline_sip::endpoint::{self, Endpoint};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::fault::Fault;
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node};
use trunkline_sip::wire::{Framing, lex};
use uuid::Uuid;

use super::*;
use crate::core::context::{Config, Core};
use crate::core::live::LiveCalls;
use crate::invite::attempts::{DnsFault, NoAnswer};
use crate::limits::Limits;
use crate::limits::attempt_counter::AttemptCounter;
use crate::limits::outbound_limits::{OutboundBounds, OutboundLimits};
use crate::trust::token::SessionTokens;

const NOW: Moment = Moment::from_secs(1_790_000_000);
const OWN: &str = "203.0.113.5:5060";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Words of an INVITE; its body is too large for a datagram if `is_large`.
struct Words {
    body: Vec<u8>,
}

impl InviteText for Words {
    fn hops(&self) -> u8 {
        70
    }

    fn from(&self, own_host: &str) -> Vec<u8> {
        format!("<sip:us@{own_host}>").into_bytes()
    }

    fn to(&self) -> Vec<u8> {
        b"<sip:them@192.0.2.1>".to_vec()
    }

    fn allow(&self) -> &'static [u8] {
        b"INVITE"
    }

    fn supported(&self) -> &'static [u8] {
        b"timer"
    }

    fn write_rest(&self, head: &mut Head<'_>, said: &ClientParts<'_>) {
        said.digest_answers.lines(head);
    }

    fn body(&self) -> &[u8] {
        &self.body
    }
}

/// Surroundings of a client under test.
struct World {
    core: Core,
    endpoint: Endpoint,
    words: Words,
}

impl World {
    fn new(is_large: bool) -> Self {
        let config = Config {
            header_prefix: "X-PLATFORM".into(),
            realm: "trunkline".into(),
            algorithms: vec![Algorithm::Md5],
            default_runtime: Arc::new(Runtime::Echo),
            setup_timeout: Duration::from_secs(60),
            max_duration: Duration::from_secs(900),
            session_expires: 120,
            dead_peer: Duration::from_secs(300),
            media_silence: Duration::from_secs(30),
            keep_alive: Duration::from_secs(25),
            listeners: vec![
                (Transport::Udp, address(OWN)),
                (Transport::Tcp, address(OWN)),
            ],
            asks_for_proof: true,
            public_listeners: Vec::new(),
            retry_after: 5,
            addresses: Arc::default(),
            trusted_runtimes: Vec::new(),
            session_tokens: SessionTokens::new([9; 32]),
            node: Node(7),
        };
        let minter = Minter::new(Node(7), [7; 16]);
        let lifetime = Duration::from_secs(30);
        let keys = NonceKeys {
            node: [3; 32],
            deployment: [0; 32],
        };
        let bounds = OutboundBounds {
            at_once: 1,
            per_minute: 1,
            per_day: 1,
            prefixes: Vec::new(),
        };
        let core = Core::new(
            Arc::new(config),
            minter.clone(),
            (
                Arc::new(Nonces::new(keys, lifetime)),
                Arc::new(NonceWindow::new(lifetime, 1_000)),
            ),
            (Limits::new(10), OutboundLimits::new(bounds)),
            LiveCalls::new(),
            NOW,
        );
        let endpoint = Endpoint::new(
            endpoint::Config {
                minter,
                t1: Duration::from_millis(500),
                t2: Duration::from_secs(4),
                t4: Duration::from_secs(5),
                server: "Trunkline".into(),
                sent_by: vec![OWN.into(), OWN.into()],
                max_transactions: 100,
            },
            Entropy::from_seed([5; 32]),
        );
        let octets = if is_large { 4_000 } else { 4 };

        Self {
            core,
            endpoint,
            words: Words {
                body: vec![b'x'; octets],
            },
        }
    }

    fn act<'m>(
        &mut self,
        client: &mut InviteClient,
        act: impl FnOnce(&mut InviteClient, &mut Cx<'_>, &dyn InviteText) -> InviteEvent<'m>,
    ) -> InviteEvent<'m> {
        let mut cx = Cx {
            core: &mut self.core,
            endpoint: &mut self.endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now: NOW,
        };
        act(client, &mut cx, &self.words)
    }
}

fn target(last: u8) -> Target {
    let uri = format!("sip:them@192.0.2.{last}");
    Target {
        uri: uri.into(),
        transport: Transport::Udp,
        address: SocketAddr::from(([192, 0, 2, last], 5060)),
        by: None,
        route: None,
        named: NamedBy::Operator,
    }
}

fn name() -> DialTarget {
    DialTarget::Unresolved(UnresolvedTarget {
        uri: "sip:them@agents.example.com".into(),
        host: "agents.example.com".into(),
        port: None,
        transport: None,
        route: None,
        named: NamedBy::Operator,
    })
}

fn client(dial_targets: Vec<DialTarget>) -> InviteClient {
    let leg = DialledLeg {
        key: CallKey {
            index: 0,
            generation: 1,
        },
        slot: Slot::new(0).expect("a slot"),
        id: LegId::SECOND,
        owner: AttemptOwner {
            call: Uuid::from_u128(1),
            org: Uuid::from_u128(2),
            leg: AttemptLeg::Callee,
        },
    };
    let plan = PeerPlan {
        dial_targets: dial_targets.into(),
        hosts: smallvec!["192.0.2.1".to_owned()],
        credentials: SmallVec::new(),
        challenger: None,
        transport: TransportChoice::Ours,
        max_requests: 5,
        fails_over: FailoverRule::BeforeRinging,
        redirects: RedirectRule::ByTheSameWay,
        patience: Patience::WithLast,
        call_ids: CallIds::PerTarget,
    };

    InviteClient::new(leg, plan)
}

const STATES: [&str; 6] = [
    "idle",
    "looking ahead",
    "resolving",
    "connecting",
    "inviting",
    "over",
];

/// A client in that state; another target is left if `has_more`.
fn at(state: &str, has_more: bool) -> (World, InviteClient) {
    let first = match state {
        "looking ahead" | "resolving" => name(),
        _ => DialTarget::Resolved(target(1)),
    };
    let more = has_more.then(|| DialTarget::Resolved(target(9)));
    let mut client = client([first].into_iter().chain(more).collect());
    let mut world = World::new(state == "connecting");
    let event = world.act(&mut client, |client, cx, text| match state {
        "idle" => InviteEvent::Waits,
        "looking ahead" => {
            client.look_ahead(cx);
            InviteEvent::Waits
        }
        "over" => {
            client.cancel(cx, b"");
            InviteEvent::Waits
        }
        _ => client.begin(cx, text),
    });

    assert_eq!(said(&event), "waits", "{state}");
    assert_eq!(state_of(&client), state);

    (world, client)
}

const fn state_of(client: &InviteClient) -> &'static str {
    match &client.state {
        State::Idle => "idle",
        State::LookingAhead(_) => "looking ahead",
        State::Resolving(_) => "resolving",
        State::Connecting(_) => "connecting",
        State::Inviting(..) => "inviting",
        State::Over => "over",
    }
}

fn said(event: &InviteEvent<'_>) -> String {
    match event {
        InviteEvent::Waits => "waits".to_owned(),
        InviteEvent::Provisional(heard) => match &heard.early {
            Some(early) => format!("dialog {}", early.fork),
            None => "no dialog".to_owned(),
        },
        InviteEvent::Accepted(accepted) => format!("accepted {}", accepted.message.status()),
        InviteEvent::Failed(failed) => format!("failed {}", failed.failure.sip_code),
    }
}

fn answer(status: &str, contact: &str, lines: &str) -> String {
    format!(
        "SIP/2.0 {status} X\r\nVia: SIP/2.0/UDP 203.0.113.5:5060;branch=z9hG4bKa\r\nFrom: <sip:us@203.0.113.5>;tag=a\r\n\
         To: <sip:them@192.0.2.1>;tag=b\r\nCall-ID: i\r\nCSeq: 1 INVITE\r\nContact: <{contact}>\r\n{lines}Content-Length: 0\r\n\r\n"
    )
}

/// The answer that an event is, if it is one: status, Contact and further lines.
fn answer_of(event: &str) -> Option<String> {
    let here = "sip:them@192.0.2.1";
    Some(match event {
        "200 without a usable route" => answer("200", here, "Record-Route: <\r\n"),
        "302 to this host" => answer("302", "sip:other@192.0.2.1", ""),
        "302 to another host" => answer("302", "sip:other@198.51.100.1", ""),
        "422" => answer("422", here, "Min-SE: 1800\r\n"),
        "100" | "180" | "200" | "401" | "486" | "503" => answer(event, here, ""),
        _ => return None,
    })
}

/// Flow that answers come by.
fn flow() -> Flow {
    Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: address(OWN),
        peer: address("192.0.2.1:5060"),
    }
}

/// Lets an event happen; what it led to, and the state after it.
fn happen(state: &str, has_more: bool, event: &str) -> String {
    let (mut world, mut client) = at(state, has_more);
    let octets = answer_of(event);
    let answer = octets
        .as_ref()
        .map(|octets| lex(octets.as_bytes(), Framing::Datagram).expect("an answer"));
    let said = said(&world.act(&mut client, |client, cx, text| match event {
        "found" => client.handle_resolved(cx, text, Ok(vec![target(3)])),
        "not found" => client.handle_resolved(cx, text, Err(DnsFault::NoAddress)),
        "no answer" => client.handle_no_answer(cx, text, &NoAnswer::Silence),
        "a broken way" => client.handle_no_answer(cx, text, &NoAnswer::Broken(Fault::Refused)),
        "silence" => client.handle_silence(cx, text),
        "cancel" => {
            client.cancel(cx, b"");
            InviteEvent::Waits
        }
        "ringing time" => InviteEvent::Failed(client.give_up(cx)),
        _ => {
            let answer = answer.as_ref().expect("an answer");
            client.handle_response(cx, text, flow(), answer)
        }
    }));

    format!("{said}, {}", state_of(&client))
}

/// Events of the INVITE that is out, with what each leads to at the last target, and where another is left.
const OF_INVITE: [(&str, &str, &str); 13] = [
    ("100", "waits, inviting", "waits, inviting"),
    ("180", "dialog 0, inviting", "dialog 0, inviting"),
    ("200", "accepted 200, inviting", "accepted 200, inviting"),
    // It is acknowledged and hung up on.
    (
        "200 without a usable route",
        "failed 503, over",
        "waits, inviting",
    ),
    ("302 to this host", "waits, inviting", "waits, inviting"),
    (
        "302 to another host",
        "failed 302, over",
        "failed 302, over",
    ),
    ("401", "failed 401, over", "failed 401, over"),
    // It is asked again, with the session that the peer wants.
    ("422", "waits, inviting", "waits, inviting"),
    ("486", "failed 486, over", "failed 486, over"),
    ("503", "failed 503, over", "waits, inviting"),
    ("no answer", "failed 408, over", "waits, inviting"),
    ("a broken way", "failed 503, over", "waits, inviting"),
    ("silence", "failed 408, over", "waits, inviting"),
];

#[test]
fn the_invite_that_is_out_answers_each_event() {
    for (event, last, more) in OF_INVITE {
        assert_eq!(happen("inviting", false, event), last, "{event}, the last");
        assert_eq!(happen("inviting", true, event), more, "{event}");
    }
}

/// Each proxy on the path may want a longer session than the one before it (RFC 4028 §7.3).
#[test]
fn each_422_with_a_longer_interval_is_followed() {
    let (mut world, mut client) = at("inviting", false);
    for (min_se, expected) in [(1_800, "waits"), (3_600, "waits"), (3_600, "failed 422")] {
        let octets = answer(
            "422",
            "sip:them@192.0.2.1",
            &format!("Min-SE: {min_se}\r\n"),
        );
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
        let event = world.act(&mut client, |client, cx, text| {
            client.handle_response(cx, text, flow(), &message)
        });
        assert_eq!(said(&event), expected, "{min_se}");
    }
}

#[test]
fn an_invite_that_is_not_out_has_no_answer() {
    for state in STATES.into_iter().filter(|state| *state != "inviting") {
        for (event, ..) in OF_INVITE {
            for has_more in [false, true] {
                let unchanged = format!("waits, {state}");
                assert_eq!(
                    happen(state, has_more, event),
                    unchanged,
                    "{state}: {event}"
                );
            }
        }
    }
}

#[test]
fn a_look_up_counts_where_it_is_awaited() {
    for (state, found, not_found) in [
        ("idle", "waits, idle", "waits, idle"),
        // The offer is to come before the INVITE.
        ("looking ahead", "waits, idle", "waits, idle"),
        ("resolving", "waits, inviting", "failed 503, over"),
        ("connecting", "waits, connecting", "failed 503, over"),
        ("inviting", "waits, inviting", "waits, inviting"),
        ("over", "waits, over", "waits, over"),
    ] {
        assert_eq!(happen(state, false, "found"), found, "{state}");
        assert_eq!(happen(state, false, "not found"), not_found, "{state}");
    }
    assert_eq!(happen("resolving", true, "not found"), "waits, inviting");
}

#[test]
fn the_client_may_be_given_up_in_each_state() {
    for state in STATES {
        for has_more in [false, true] {
            assert_eq!(happen(state, has_more, "cancel"), "waits, over", "{state}");
            let given_up = happen(state, has_more, "ringing time");
            assert_eq!(given_up, "failed 408, over", "{state}");
        }
    }
}
