//! REGISTERs of a PBX that has the password, over time and several flows.

use std::net::SocketAddr;

use trunkline_model::registration::BindingLoss;
use trunkline_sip::auth::client::{ChallengedMessage, Login as Answering, answer, challenge};
use trunkline_sip::auth::{NonceKeys, Secret};
use trunkline_sip::endpoint::{self, Received};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::flow::Transport;
use trunkline_sip::slot::{Minter, Node};
use trunkline_sip::wire::{Framing, lex};

use super::bindings::BindingChangeKind;
use super::*;

const START: Moment = Moment::from_secs(1_790_000_000);
const ORG: Uuid = Uuid::from_u128(1);
const TRUNK: Uuid = Uuid::from_u128(2);
const OTHER_TRUNK: Uuid = Uuid::from_u128(3);

/// A registrar with two trunks, and the clock.
struct Scene {
    endpoint: Endpoint,
    registrar: Registrar,
    bindings: Arc<Bindings>,
    view: View,
    now: Moment,
    branch: u32,
}

/// Bindings with one PBX, and the flow of its REGISTER.
pub(crate) fn registered() -> (Arc<Bindings>, Flow) {
    let request = Request::new(1, "Contact: <sip:pbx@192.0.2.1>\r\n");
    let mut scene = Scene::new();
    scene.register(&request);
    (scene.bindings, request.flow)
}

/// Returns whether the PBX of [`registered`] counts as unreachable.
pub(crate) fn is_unreachable(bindings: &Bindings) -> bool {
    bindings.of(TRUNK, START)[0].liveness.is_unreachable()
}

/// One REGISTER.
#[derive(Clone)]
struct Request {
    flow: Flow,
    user: &'static str,
    call_id: &'static str,
    cseq: u32,
    via: &'static str,
    lines: String,
}

impl Request {
    fn new(cseq: u32, lines: &str) -> Self {
        Self {
            flow: udp("192.0.2.1:5060"),
            user: "pbx",
            call_id: "a",
            cseq,
            via: "192.0.2.1:5060",
            lines: lines.to_owned(),
        }
    }

    fn from(mut self, flow: Flow) -> Self {
        self.flow = flow;
        self
    }

    fn call_id(mut self, call_id: &'static str) -> Self {
        self.call_id = call_id;
        self
    }
}

fn udp(peer: &str) -> Flow {
    flow(Transport::Udp, 0, peer)
}

fn flow(transport: Transport, connection: u32, peer: &str) -> Flow {
    Flow {
        transport,
        listener: 0,
        connection,
        local: SocketAddr::from(([192, 0, 2, 100], 5060)),
        peer: peer.parse().expect("an address"),
    }
}

impl Scene {
    fn new() -> Self {
        Self::with_shortest(60)
    }

    /// A registrar that refuses registrations of less than so many seconds.
    fn with_shortest(seconds: u64) -> Self {
        let minter = Minter::new(Node(0), [7; 16]);
        let login = |user: &str, trunk| {
            let login = Login {
                org: ORG,
                trunk,
                secret: Arc::new(Secret::new(user, "us", "secret")),
                pair: Arc::new(trunkline_model::view::PeerLogin {
                    user: user.into(),
                    password: "secret".into(),
                }),
                expires_at: None,
            };
            (user.into(), login)
        };
        let bindings = Bindings::new();

        Self {
            endpoint: Endpoint::new(
                endpoint::Config {
                    minter,
                    t1: Duration::from_millis(500),
                    t2: Duration::from_secs(4),
                    t4: Duration::from_secs(5),
                    server: String::new(),
                    sent_by: vec!["us:5060".into()],
                    max_transactions: 10_000,
                },
                Entropy::from_seed([1; 32]),
            ),
            registrar: Registrar::new(
                Arc::new(Config {
                    realm: "us".into(),
                    algorithms: vec![Algorithm::Md5],
                    shortest: Duration::from_secs(seconds),
                    longest: Duration::from_secs(3600),
                    contacts: 2,
                    wall: &crate::parts::wall_clock::STEADY,
                }),
                Arc::new(Nonces::new(
                    NonceKeys {
                        node: [2; 32],
                        deployment: [0; 32],
                    },
                    Duration::from_secs(30),
                )),
                Arc::new(NonceWindow::new(Duration::from_secs(30), 10_000)),
                Arc::clone(&bindings),
            ),
            bindings,
            view: View {
                by_username: [login("pbx", TRUNK), login("other", OTHER_TRUNK)].into(),
                ..View::default()
            },
            now: START,
            branch: 0,
        }
    }

    fn later(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    /// Returns the answer to one message, as text; empty if there was none.
    fn send(&mut self, octets: &str, flow: Flow) -> String {
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
        if let Received::Request(request) = self.endpoint.receive_message(message, flow, self.now) {
            self.registrar
                .handle(&mut self.endpoint, &self.view, flow, &request, self.now);
        }
        let sent: Vec<String> = self
            .endpoint
            .transmits()
            .map(|(_, octets)| String::from_utf8_lossy(octets).into_owned())
            .collect();
        self.endpoint.clear_transmits();
        assert!(sent.len() <= 1, "{sent:?}");
        sent.concat()
    }

    fn written(&mut self, request: &Request, authorization: &str) -> String {
        self.branch += 1;
        let Request {
            user,
            call_id,
            cseq,
            via,
            lines,
            flow,
        } = request;
        format!(
            "REGISTER sip:us SIP/2.0\r\nVia: SIP/2.0/{} {via};branch=z9hG4bK{};rport\r\nFrom: <sip:{user}@elsewhere>;tag=1\r\n\
             To: <sip:{user}@elsewhere>\r\nCall-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n{authorization}{lines}\
             Content-Length: 0\r\n\r\n",
            flow.transport.via_name(),
            self.branch,
        )
    }

    /// Returns the answer to a challenge, as a header line.
    fn authorization(&self, user: &str, password: &str, refusal: &str) -> String {
        let refused = lex(refusal.as_bytes(), Framing::Datagram).expect("a response");
        let (_, challenge) = challenge(&refused).expect("a challenge");
        let challenged = ChallengedMessage {
            method: "REGISTER",
            uri: b"sip:us",
            body: b"",
        };
        let value = answer(
            &challenge,
            &challenged,
            &Answering { user, password },
            1,
            "c",
        );
        format!("Authorization: {}\r\n", value.expect("an answer"))
    }

    /// Registers with a challenge; returns the final status and its Contacts.
    fn register(&mut self, request: &Request) -> (u16, Vec<String>) {
        let octets = self.written(request, "");
        let challenged = self.send(&octets, request.flow);
        let authorization = self.authorization(request.user, "secret", &challenged);
        let octets = self.written(request, &authorization);
        let answered = self.send(&octets, request.flow);
        judged(&answered)
    }

    fn changes(&mut self) -> Vec<BindingChangeKind> {
        let changed = |effect| match effect {
            RegistrarEffect::Changed(change) => Some(change.what),
            RegistrarEffect::AuthFailure(_) | RegistrarEffect::UnknownUser(_) => None,
        };
        self.registrar.effects().filter_map(changed).collect()
    }

    fn reach(&self) -> Vec<(String, u32, String)> {
        let all = self
            .bindings
            .reach(
                TRUNK,
                &trunkline_model::address::AddressPolicy::default(),
                self.now,
            )
            .into_iter();
        all.map(|reach| {
            (
                reach.uri.into(),
                reach.by.map_or(0, |flow| flow.connection),
                reach.address.to_string(),
            )
        })
        .collect()
    }
}

fn judged(answer: &str) -> (u16, Vec<String>) {
    let message = lex(answer.as_bytes(), Framing::Datagram).expect("a response");
    let contacts = message.elements(HeaderName::Contact);
    let contacts = contacts.map(|contact| String::from_utf8_lossy(contact).into_owned());
    (message.status(), contacts.collect())
}

/// It is granted the longest time, an hour, unless `Expires` asks for less.
const CONTACT_WITHOUT_EXPIRES: &str = "Contact: <sip:pbx@192.0.2.1:5060;rinstance=f00>\r\n";

#[test]
fn an_unauthenticated_peer_is_challenged_whatever_user_it_names() {
    let mut scene = Scene::new();
    let request = Request::new(1, CONTACT_WITHOUT_EXPIRES);
    let octets = scene.written(&request, "");
    let challenged = scene.send(&octets, request.flow);
    assert!(challenged.starts_with("SIP/2.0 401 "), "{challenged}");

    for (user, password) in [("pbx", "wrong"), ("nobody", "secret")] {
        let authorization = scene.authorization(user, password, &challenged);
        let octets = scene.written(&request, &authorization);
        let (status, _) = judged(&scene.send(&octets, request.flow));
        assert_eq!(status, 401, "{user}");
    }

    let (of_orgs, others): (Vec<_>, Vec<_>) = scene
        .registrar
        .effects()
        .partition(|effect| matches!(effect, RegistrarEffect::AuthFailure(_)));

    assert_eq!(of_orgs.len(), 1, "only what concerns an org is stored");
    assert!(matches!(&others[..], [RegistrarEffect::UnknownUser(_)]));
    assert_eq!(scene.endpoint.counts().server_other, 0);
    assert!(scene.bindings.is_empty());
}

/// Timers don't count the time for which the machine was suspended, but a replaced password ends at a time of day.
#[test]
fn a_replaced_password_expires_by_the_wall_clock() {
    static WALL: WallClock = WallClock::new();
    let mut scene = Scene::new();
    let config = Config::clone(&scene.registrar.config);
    scene.registrar.config = Arc::new(Config {
        wall: &WALL,
        ..config
    });
    let day = Duration::from_secs(24 * 3600);
    let login = scene.view.by_username.get("pbx").expect("a login").clone();
    let replaced = Login {
        expires_at: Some(START + day),
        ..login
    };
    scene.view.by_username.insert("pbx".into(), replaced);

    assert_eq!(
        scene.register(&Request::new(1, CONTACT_WITHOUT_EXPIRES)).0,
        200
    );
    WALL.step(i64::try_from(day.as_micros()).expect("a step"));
    assert_eq!(
        scene.register(&Request::new(2, CONTACT_WITHOUT_EXPIRES)).0,
        401
    );

    let parts: Vec<WrongPart> = scene
        .registrar
        .effects()
        .filter_map(|effect| match effect {
            RegistrarEffect::AuthFailure(failure) => Some(failure.part),
            RegistrarEffect::UnknownUser(_) | RegistrarEffect::Changed(_) => None,
        })
        .collect();
    assert_eq!(parts, [WrongPart::Expired]);
}

#[test]
fn a_pbx_comes_stays_and_goes() {
    let mut scene = Scene::new();
    let here = "<sip:pbx@192.0.2.1:5060;rinstance=f00>".to_owned();
    let (status, contacts) = scene.register(&Request::new(
        1,
        &format!("{CONTACT_WITHOUT_EXPIRES}Expires: 120\r\n"),
    ));
    assert_eq!(
        (status, contacts),
        (200, vec![format!("{here};expires=120")])
    );
    assert!(matches!(
        scene.changes()[..],
        [BindingChangeKind::Registered(_)]
    ));

    let listed = scene.later(60).register(&Request::new(2, ""));
    assert_eq!(listed, (200, vec![format!("{here};expires=60")]));

    let refreshed = scene.register(&Request::new(3, CONTACT_WITHOUT_EXPIRES));
    assert_eq!(refreshed, (200, vec![format!("{here};expires=3600")]));
    assert_eq!(scene.bindings.of(TRUNK, scene.now)[0].registered_at, START);
    assert!(scene.changes().is_empty(), "a refresh is nothing new");

    let gone = scene.register(&Request::new(4, "Contact: *\r\nExpires: 0\r\n"));
    assert_eq!(gone, (200, vec![]));
    assert_eq!(
        scene.changes(),
        [BindingChangeKind::Lost(BindingLoss::Removed)]
    );
    assert!(scene.bindings.is_empty());
}

#[test]
fn a_binding_expires_by_itself() {
    let mut scene = Scene::new();
    scene.register(&Request::new(
        1,
        &format!("{CONTACT_WITHOUT_EXPIRES}Expires: 60\r\n"),
    ));
    assert!(scene.bindings.sweep(scene.now).is_empty());
    scene.later(60);
    assert!(scene.reach().is_empty(), "before it is swept as well");
    let swept = scene.bindings.sweep(scene.now);
    assert_eq!(swept.len(), 1);
    assert_eq!(swept[0].what, BindingChangeKind::Lost(BindingLoss::Expired));
    assert!(scene.bindings.is_empty());
}

#[test]
fn a_binding_that_expired_before_its_removal_is_reported_as_expired() {
    let mut scene = Scene::new();
    scene.register(&Request::new(
        1,
        &format!("{CONTACT_WITHOUT_EXPIRES}Expires: 60\r\n"),
    ));
    assert_eq!(scene.changes().len(), 1);
    scene.later(60);
    scene.register(&Request::new(
        2,
        &CONTACT_WITHOUT_EXPIRES.replace("\r\n", ";expires=0\r\n"),
    ));
    assert_eq!(
        scene.changes(),
        [BindingChangeKind::Lost(BindingLoss::Expired)]
    );
    assert!(scene.bindings.sweep(scene.now).is_empty());
}

#[test]
fn an_older_request_changes_nothing() {
    let mut scene = Scene::new();
    let two = "Contact: <sip:pbx@192.0.2.9>, <sip:pbx@192.0.2.1:5060;rinstance=f00>;expires=0\r\n";
    assert_eq!(
        scene.register(&Request::new(5, CONTACT_WITHOUT_EXPIRES)).0,
        200
    );

    let star = "Contact: *\r\nExpires: 0\r\n";
    for (cseq, lines) in [(4, two), (3, star), (5, two), (5, star)] {
        // Lets the earlier transaction end: until then a request with its CSeq counts as merged.
        scene.later(40);
        while scene
            .endpoint
            .next_timeout()
            .is_some_and(|due| due <= scene.now)
        {
            scene.endpoint.handle_timeout(scene.now);
        }
        assert_eq!(
            scene.register(&Request::new(cseq, lines)).0,
            500,
            "CSeq {cseq}"
        );
    }
    assert_eq!(scene.bindings.len(), 1);

    let restarted = Request::new(1, two).call_id("b");
    let (status, contacts) = scene.register(&restarted);
    assert_eq!(
        (status, contacts.len()),
        (200, 1),
        "another Call-ID counts anew"
    );
}

#[test]
fn a_retransmission_gets_the_same_answer() {
    let mut scene = Scene::new();
    let request = Request::new(1, CONTACT_WITHOUT_EXPIRES);
    let octets = scene.written(&request, "");
    let challenged = scene.send(&octets, request.flow);
    let authorization = scene.authorization("pbx", "secret", &challenged);
    let octets = scene.written(&request, &authorization);
    let first = scene.send(&octets, request.flow);
    assert!(first.starts_with("SIP/2.0 200 "), "{first}");
    assert_eq!(scene.send(&octets, request.flow), first);
}

#[test]
fn a_trunk_that_registers_without_end_leaves_room_for_others() {
    let mut scene = Scene::new();
    for cseq in 1..1_100 {
        assert_eq!(
            scene
                .register(&Request::new(cseq, CONTACT_WITHOUT_EXPIRES))
                .0,
            200
        );
    }
    assert_eq!(scene.endpoint.counts().server_other, 1_024, "answers kept");

    let other = Request {
        user: "other",
        call_id: "b",
        ..Request::new(1, CONTACT_WITHOUT_EXPIRES)
    };
    assert_eq!(scene.register(&other).0, 200);
    scene.later(1);
    assert_eq!(
        scene
            .register(&Request::new(2_000, CONTACT_WITHOUT_EXPIRES))
            .0,
        200
    );
}

#[test]
fn refusals_say_what_would_do() {
    let mut scene = Scene::new();
    let cases = [
        (
            "too brief",
            "Contact: <sip:a@192.0.2.1>;expires=59\r\n",
            423,
        ),
        ("* with a time", "Contact: *\r\nExpires: 60\r\n", 400),
        (
            "more than fit",
            "Contact: <sip:a@h>, <sip:b@h>, <sip:c@h>\r\n",
            403,
        ),
        (
            "an extension",
            "Require: path, outbound\r\nContact: <sip:a@h>\r\n",
            420,
        ),
    ];
    for (at, (name, lines, expected)) in cases.into_iter().enumerate() {
        let cseq = u32::try_from(at).unwrap() + 1;
        assert_eq!(
            scene.register(&Request::new(cseq, lines)).0,
            expected,
            "{name}"
        );
    }

    assert!(scene.bindings.is_empty());
}

#[test]
fn a_pbx_is_reached_the_way_that_leads_there() {
    let by_contact = "Contact: <sip:pbx@192.0.2.1:5070>\r\n";
    let private = "Contact: <sip:pbx@10.0.0.7:5060>\r\n";
    let behind = |peer, via| Request {
        via,
        ..Request::new(1, private).from(udp(peer))
    };
    let cases = [
        (
            "no NAT: its Contact",
            Request::new(1, by_contact),
            ("sip:pbx@192.0.2.1:5070", "192.0.2.1:5070"),
        ),
        (
            "NAT: where it came from",
            behind("203.0.113.5:40000", "10.0.0.7:5060"),
            ("sip:pbx@10.0.0.7:5060", "203.0.113.5:40000"),
        ),
        (
            "NAT of ports alone",
            behind("203.0.113.5:40000", "203.0.113.5:5060"),
            ("sip:pbx@10.0.0.7:5060", "203.0.113.5:40000"),
        ),
        (
            "a name: where it came from",
            Request::new(1, "Contact: <sip:pbx@pbx.example>\r\n"),
            ("sip:pbx@pbx.example", "192.0.2.1:5060"),
        ),
        (
            "a path: its proxy, at the port that it names",
            Request::new(
                1,
                "Contact: <sip:pbx@10.0.0.7:5060>\r\nPath: <sip:192.0.2.1:5080;lr>\r\n",
            ),
            ("sip:pbx@10.0.0.7:5060", "192.0.2.1:5080"),
        ),
        (
            "a path of somebody else: its Contact",
            Request::new(
                1,
                "Contact: <sip:pbx@192.0.2.1:5070>\r\nPath: <sip:192.0.2.66;lr>\r\n",
            ),
            ("sip:pbx@192.0.2.1:5070", "192.0.2.1:5070"),
        ),
    ];

    for (name, request, (uri, peer)) in cases {
        let mut scene = Scene::new();
        assert_eq!(scene.register(&request).0, 200, "{name}");
        assert_eq!(
            scene.reach(),
            [(uri.to_owned(), 0, peer.to_owned())],
            "{name}"
        );
    }
}

#[test]
fn the_shortest_time_is_no_longer_than_the_longest_over_a_stream() {
    let mut scene = Scene::with_shortest(900);
    let by_tcp = Request::new(
        1,
        "Contact: <sip:pbx@192.0.2.1:5062;transport=tcp>;expires=3600\r\n",
    );
    let by_tcp = by_tcp.from(flow(Transport::Tcp, 9, "192.0.2.1:33000"));
    let (status, contacts) = scene.register(&by_tcp);
    assert_eq!(status, 200, "{contacts:?}");
    assert!(contacts[0].ends_with(";expires=600"), "{contacts:?}");
    let (status, _) = scene.register(&Request::new(
        2,
        &CONTACT_WITHOUT_EXPIRES.replace("\r\n", ";expires=600\r\n"),
    ));
    assert_eq!(status, 423, "by UDP");
}

#[test]
fn a_connection_is_used_again_and_its_end_is_noticed() {
    let by_tcp = |via| Request {
        via,
        ..Request::new(1, "Contact: <sip:pbx@192.0.2.1:5062;transport=tcp>\r\n").from(flow(
            Transport::Tcp,
            9,
            "192.0.2.1:33000",
        ))
    };
    let uri = "sip:pbx@192.0.2.1:5062;transport=tcp".to_owned();
    let lost = flow(Transport::Tcp, 9, "192.0.2.1:33000");
    let mut scene = Scene::new();
    let (status, contacts) = scene.register(&by_tcp("192.0.2.1:5062"));
    assert_eq!(status, 200);
    assert!(
        contacts[0].ends_with(";expires=600"),
        "a stream is refreshed before it is closed: {contacts:?}"
    );
    assert_eq!(
        scene.reach(),
        [(uri.clone(), 9, "192.0.2.1:33000".to_owned())]
    );
    scene.registrar.handle_flow_lost(&lost);
    assert_eq!(
        scene.reach(),
        [(uri, 0, "192.0.2.1:5062".to_owned())],
        "a new connection to its Contact"
    );

    let mut scene = Scene::new();
    scene.register(&by_tcp("10.0.0.7:5062"));
    scene.changes();
    scene.registrar.handle_flow_lost(&lost);
    assert!(
        scene.reach().is_empty(),
        "behind NAT nothing else leads there"
    );
    assert_eq!(
        scene.changes(),
        [BindingChangeKind::Lost(BindingLoss::Disconnected)]
    );
}

#[test]
fn a_pbx_that_comes_back_from_another_port_is_found_there() {
    let mut scene = Scene::new();
    for (at, port) in [5060, 5071, 5082].into_iter().enumerate() {
        let call_id = ["a", "b", "c"][at];
        let lines = format!("Contact: <sip:pbx@192.0.2.1:{port}>\r\n");
        let (status, _) = scene
            .later(1)
            .register(&Request::new(1, &lines).call_id(call_id));
        assert_eq!(status, 200);
        assert_eq!(
            scene.reach()[0].2,
            format!("192.0.2.1:{port}"),
            "the newest first"
        );
    }
    assert_eq!(scene.bindings.len(), 2, "the oldest has yielded");

    let mut scene = Scene::new();
    for (at, port) in [5060, 5071].into_iter().enumerate() {
        let lines =
            format!("Contact: <sip:pbx@192.0.2.1:{port}>;+sip.instance=\"<urn:uuid:1>\"\r\n");
        scene.register(&Request::new(1, &lines).call_id(["a", "b"][at]));
    }
    let ports: Vec<String> = scene.reach().into_iter().map(|(.., peer)| peer).collect();
    assert_eq!(ports, ["192.0.2.1:5071"], "the same device has one place");
}

#[test]
fn trunks_do_not_see_each_other() {
    let mut scene = Scene::new();
    scene.register(&Request::new(1, CONTACT_WITHOUT_EXPIRES));
    let other = Request {
        user: "other",
        ..Request::new(9, "Contact: *\r\nExpires: 0\r\n")
    };
    assert_eq!(scene.register(&other), (200, vec![]));
    assert_eq!(scene.bindings.len(), 1);
}

#[test]
fn a_binding_behind_nat_is_asked_and_its_silence_is_seen() {
    let contact = "Contact: <sip:pbx@10.0.0.7:5060>;expires=3600\r\n";
    let behind = Request {
        via: "10.0.0.7:5060",
        ..Request::new(1, contact).from(udp("203.0.113.5:40000"))
    };
    let mut scene = Scene::new();
    scene.register(&behind);
    let due = |scene: &Scene| {
        let interval = || Duration::from_secs(25);
        scene.bindings.due_keep_alives(interval, scene.now)
    };
    let is_unreachable = |scene: &Scene| {
        scene.bindings.of(TRUNK, scene.now)[0]
            .liveness
            .is_unreachable()
    };

    // The REGISTER has just opened the mapping.
    assert_eq!(due(&scene), []);
    assert_eq!(due(scene.later(24)), []);
    let asked = due(scene.later(1));
    let [one] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!((one.trunk, one.flow), (TRUNK, behind.flow));
    assert_eq!(due(scene.later(24)), [], "not again at once");

    // A PBX that has never answered may not support OPTIONS.
    for _ in 0..5 {
        assert!(!scene.bindings.note_keep_alive(one, false));
    }
    assert!(!is_unreachable(&scene));
    scene.bindings.note_keep_alive(one, true);
    assert!(
        !scene.bindings.note_keep_alive(one, false),
        "once is chance"
    );
    assert!(scene.bindings.note_keep_alive(one, false), "that is news");
    assert!(is_unreachable(&scene));
    assert!(scene.bindings.note_keep_alive(one, true), "so is that");

    scene.bindings.note_unanswered(&one.flow);
    assert!(is_unreachable(&scene), "an INVITE without an answer");
    scene.register(&Request { cseq: 2, ..behind });
    assert!(!is_unreachable(&scene), "it has sent something");

    // A phone without NAT that registers from another port than the one it listens on is called at its Contact.
    let apart = Request::new(1, "Contact: <sip:pbx@203.0.113.5:5062>;expires=3600\r\n")
        .from(udp("203.0.113.5:40000"));
    let mut scene = Scene::new();
    scene.register(&apart);
    let contact = udp("203.0.113.5:5062");
    scene.bindings.note_unanswered(&udp("203.0.113.5:5064"));
    assert!(!is_unreachable(&scene), "another phone at that address");
    scene.bindings.note_unanswered(&contact);
    assert!(is_unreachable(&scene), "its Contact was silent");

    // Without NAT, no keep-alives are needed.
    let mut direct = Scene::new();
    direct.register(&Request::new(
        1,
        "Contact: <sip:pbx@192.0.2.1>;expires=3600\r\n",
    ));
    assert_eq!(due(&direct), []);
    assert_eq!(due(direct.later(60)), []);
}
