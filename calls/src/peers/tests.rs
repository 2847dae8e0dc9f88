//! Registrations with a carrier that answers as each test says; the clock jumps.

use trunkline_model::view::{OutboundRoute, PeerLogin};
use trunkline_routing::E164;
use trunkline_sip::auth::NonceKeys;
use trunkline_sip::endpoint::{self, Received};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::fault::Fault;
use trunkline_sip::slot::{Minter, Node};
use trunkline_sip::wire::{Framing, HeaderName, lex};

use super::carrier_registration::{MovedTrunks, RegisteringTrunk, TrunkAssignment};
use super::registrations::{RegistrationChangeKind, State};
use super::*;

mod service_routes;

const START: Moment = Moment::from_secs(1_790_000_000);
const ORG: Uuid = Uuid::from_u128(1);
const TRUNK: Uuid = Uuid::from_u128(2);
const CHALLENGE: &str =
    "WWW-Authenticate: Digest realm=\"carrier\", nonce=\"n1\", qop=\"auth\"\r\n";

struct Scene {
    endpoint: Endpoint,
    peers: Peers,
    health: Arc<Health>,
    registrations: Arc<Registrations>,
    /// Address of the last transmit.
    carrier: SocketAddr,
    now: Moment,
}

fn registering(host: &str, transport: Transport) -> RegisteringTrunk {
    RegisteringTrunk {
        org: ORG,
        shares_user: false,
        way: Arc::new(OutboundRoute {
            org: ORG,
            realms: Arc::default(),
            id: TRUNK,
            peer: Some((host.into(), 5060)),
            named: Default::default(),
            transport,
            login: Some(Arc::new(PeerLogin {
                user: "acme corp".into(),
                password: "secret".into(),
            })),
            caller_number: E164::parse("+442071838750").expect("a number"),
            from_host: None,
            p_asserted_identity: false,
            user_phone: false,
            register: true,
            max_concurrent_calls: None,
            calls_per_second: None,
            transfer_way: trunkline_model::settings::TransferWay::default(),
            keeps_caller: false,
        }),
    }
}

impl Scene {
    fn new() -> Self {
        let health = Health::shared();
        let registrations = Registrations::new();
        let config = Config {
            listeners: [Transport::Udp, Transport::Tcp]
                .map(|transport| (transport, SocketAddr::from(([192, 0, 2, 100], 5060))))
                .into(),
            expires: Duration::from_secs(600),
            retry: Duration::from_secs(30),
            addresses: Arc::default(),
            realm: "us".into(),
            nonces: Arc::new(Nonces::new(
                NonceKeys {
                    node: [1; 32],
                    deployment: [2; 32],
                },
                Duration::from_secs(30),
            )),
        };

        Self {
            endpoint: Endpoint::new(
                endpoint::Config {
                    minter: Minter::new(Node(0), [7; 16]),
                    t1: Duration::from_millis(500),
                    t2: Duration::from_secs(4),
                    t4: Duration::from_secs(5),
                    server: String::new(),
                    sent_by: vec!["us:5060".into(); 2],
                    max_transactions: 1_000,
                },
                Entropy::from_seed([1; 32]),
            ),
            peers: Peers::new(
                Arc::new(config),
                Arc::default(),
                Arc::clone(&health),
                Arc::clone(&registrations),
                Bindings::new(),
                START,
            ),
            health,
            registrations,
            carrier: SocketAddr::from(([192, 0, 2, 1], 5060)),
            now: START,
        }
    }

    /// A scene in which the trunk has sent its first REGISTER.
    fn asking() -> (Self, String) {
        let mut scene = Self::new();
        scene.register_trunks(vec![registering("192.0.2.1", Transport::Udp)]);
        let sent = scene.after(100);
        let [register] = &sent[..] else {
            panic!("{sent:?}");
        };
        let register = register.clone();
        (scene, register)
    }

    /// A scene in which the carrier has granted so many seconds.
    fn registered(seconds: u32) -> (Self, String) {
        let (mut scene, register) = Self::asking();
        scene.answer(&register, 200, &format!("Expires: {seconds}\r\n"));
        assert_eq!(scene.state(), Some(State::Registered));
        scene.peers.effects().for_each(drop);
        (scene, register)
    }

    /// Has the trunk's peer at this URI watched; returns the target of its probes.
    fn watch(&mut self, uri: &str, transport: Transport) -> Target {
        let target = Target {
            uri: uri.into(),
            transport,
            address: SocketAddr::from(([192, 0, 2, 1], 5060)),
            by: None,
            route: None,
            named: Default::default(),
        };
        let peer = ProbedPeer::of(&target).expect("a peer");
        self.health.watch([&peer], [(TRUNK, vec![peer.clone()])]);
        target
    }

    fn register_trunks(&mut self, registering: Vec<RegisteringTrunk>) {
        self.assign(registering, HashMap::new());
    }

    fn assign(&mut self, ours: Vec<RegisteringTrunk>, moved: HashMap<Uuid, Arc<[String]>>) {
        let assigned = TrunkAssignment { ours, moved };
        self.peers
            .register_trunks(&mut self.endpoint, Some(assigned), self.now);
    }

    fn leave(&mut self, moved: MovedTrunks) {
        self.peers.leave(&mut self.endpoint, &moved, self.now);
    }

    /// Returns what was sent after so many milliseconds, without retransmissions.
    fn after(&mut self, millis: u64) -> Vec<String> {
        let end = self.now + Duration::from_millis(millis);
        let mut sent = self.sent();
        loop {
            let due = [self.endpoint.next_timeout(), self.peers.next_timeout()];
            let Some(at) = due.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.endpoint.handle_timeout(self.now);
            while let Some(event) = self.endpoint.poll_event() {
                assert!(
                    self.peers
                        .handle_event(&mut self.endpoint, &event, self.now)
                );
            }
            self.peers.handle_timeout(&mut self.endpoint, self.now);
            sent.extend(self.sent());
        }

        self.now = end;
        sent.dedup();
        sent
    }

    /// Returns the next transmit.
    fn next(&mut self) -> String {
        for _ in 0..100_000 {
            if let Some(first) = self.after(100).into_iter().next() {
                return first;
            }
        }
        panic!("nothing is sent");
    }

    fn sent(&mut self) -> Vec<String> {
        if let Some((flow, _)) = self.endpoint.transmits().last() {
            self.carrier = flow.peer;
        }
        let sent = self.endpoint.transmits();
        let sent = sent
            .map(|(_, octets)| String::from_utf8_lossy(octets).into_owned())
            .collect();
        self.endpoint.clear_transmits();
        sent
    }

    /// Answers a request as the carrier; returns what is sent in consequence.
    fn answer(&mut self, request: &str, status: u16, lines: &str) -> Vec<String> {
        let copied: String = request
            .lines()
            .filter(|line| {
                ["Via:", "From:", "To:", "Call-ID:", "CSeq:"]
                    .iter()
                    .any(|name| line.starts_with(name))
            })
            .map(|line| format!("{line}\r\n"))
            .collect();
        let octets = format!("SIP/2.0 {status} Said\r\n{copied}{lines}Content-Length: 0\r\n\r\n");
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: SocketAddr::from(([192, 0, 2, 100], 5060)),
            peer: self.carrier,
        };
        let received = self.endpoint.receive_message(message, flow, self.now);
        let Received::Response { owner, message, .. } = received else {
            panic!("{received:?}");
        };

        assert!(Peers::owns(owner));

        self.peers
            .handle_response(&mut self.endpoint, owner, &message, self.now);
        self.sent()
    }

    fn state(&self) -> Option<State> {
        self.registrations.of(TRUNK).map(|status| status.state)
    }

    fn changes(&mut self) -> Vec<RegistrationChangeKind> {
        let effects = self.peers.effects();
        effects
            .filter_map(|effect| match effect {
                PeersEffect::Changed(change) => Some(change.what),
                PeersEffect::Resolve { .. }
                | PeersEffect::RegisterFinished(_)
                | PeersEffect::Down(_)
                | PeersEffect::Challenged(_) => None,
            })
            .collect()
    }

    fn seconds_to_next(&self) -> f64 {
        let status = self.registrations.of(TRUNK).expect("a status");
        status
            .next_at
            .expect("a time")
            .since(self.now)
            .as_secs_f64()
    }
}

fn header(request: &str, name: HeaderName) -> String {
    let message = lex(request.as_bytes(), Framing::Datagram).expect("a request");
    String::from_utf8_lossy(message.first(name).expect("the header")).into_owned()
}

#[test]
fn a_register_names_the_account_and_where_we_are() {
    let (_, register) = Scene::asking();
    assert!(
        register.starts_with("REGISTER sip:192.0.2.1 SIP/2.0\r\n"),
        "{register}"
    );
    for (name, value) in [
        (HeaderName::To, "<sip:acme%20corp@192.0.2.1>"),
        (HeaderName::Contact, "<sip:trunkline@us:5060>"),
        (HeaderName::Expires, "600"),
        (HeaderName::CSeq, "1 REGISTER"),
    ] {
        assert_eq!(header(&register, name), value);
    }
}

#[test]
fn a_challenge_is_answered_and_the_registration_refreshed_in_time() {
    let (mut scene, register) = Scene::asking();
    assert_eq!(scene.state(), Some(State::Registering));
    let sent = scene.answer(&register, 401, CHALLENGE);
    let again = &sent[0];
    assert_eq!(header(again, HeaderName::CSeq), "2 REGISTER");
    let credentials = header(again, HeaderName::Authorization);
    assert!(
        credentials.contains("username=\"acme corp\"")
            && credentials.contains("uri=\"sip:192.0.2.1\""),
        "{credentials}"
    );
    let contact = "Contact: <sip:other@h>;expires=3, <sip:trunkline@us:5060>;expires=100\r\n";
    assert!(scene.answer(again, 200, contact).is_empty());
    let status = scene.registrations.of(TRUNK).expect("a status");
    assert_eq!(status.state, State::Registered);
    assert_eq!(
        status.expires_at,
        Some(scene.now + Duration::from_secs(100))
    );
    let wait = scene.seconds_to_next();
    assert!((75.0..87.6).contains(&wait), "{wait}");
    let changes = scene.changes();
    assert!(
        matches!(&changes[..], [RegistrationChangeKind::Registered { contact, .. }] if contact == "sip:trunkline@us:5060"),
        "{changes:?}"
    );

    let refresh = scene.next();
    assert_eq!(header(&refresh, HeaderName::CSeq), "3 REGISTER");
    assert_eq!(
        header(&refresh, HeaderName::CallId),
        header(&register, HeaderName::CallId)
    );
    scene.answer(&refresh, 200, "Expires: 100\r\n");
    assert!(scene.changes().is_empty(), "it has stood all the time");
    let refreshed = scene.registrations.of(TRUNK).expect("a status");
    assert_eq!(refreshed.registered_at, status.registered_at);
    assert!(refreshed.expires_at > status.expires_at);
}

#[test]
fn a_nonce_that_has_gone_stale_is_answered_again_and_a_wrong_password_is_not() {
    let (mut scene, register) = Scene::asking();
    let first = scene.answer(&register, 401, CHALLENGE);
    let stale = CHALLENGE.replace("\"n1\"", "\"n2\", stale=true");
    let second = scene.answer(&first[0], 401, &stale);
    assert!(header(&second[0], HeaderName::Authorization).contains("nonce=\"n2\""));
    let wrong = CHALLENGE.replace("n1", "n3");
    assert!(scene.answer(&second[0], 401, &wrong).is_empty());
    let status = scene.registrations.of(TRUNK).expect("a status");
    assert_eq!((status.state, status.sip_code), (State::Failed, Some(401)));
}

#[test]
fn a_carrier_that_wants_more_time_is_given_it_for_good() {
    let (mut scene, register) = Scene::asking();
    let again = scene.answer(&register, 423, "Min-Expires: 1800\r\n");
    assert_eq!(header(&again[0], HeaderName::Expires), "1800");
    scene.answer(&again[0], 200, "");
    let wait = scene.seconds_to_next();
    assert!((1_350.0..1_576.0).contains(&wait), "{wait}");
    let refresh = scene.next();
    assert_eq!(header(&refresh, HeaderName::Expires), "1800");

    for lines in ["Min-Expires: 60\r\n", ""] {
        let (mut scene, register) = Scene::asking();
        assert!(scene.answer(&register, 423, lines).is_empty(), "{lines:?}");
        assert_eq!(scene.state(), Some(State::Failed), "{lines:?}");
    }
}

#[test]
fn attempts_that_fail_come_ever_later() {
    let (mut scene, mut register) = Scene::asking();
    for turn in 0..9 {
        scene.answer(&register, 403, "");
        let wait = scene.seconds_to_next();
        let most = (30.0 * 2.0_f64.powi(turn)).min(1_800.0);
        assert!((most / 2.0..=most).contains(&wait), "{turn}: {wait}");
        register = scene.next();
    }
    let lines = "Retry-After: 1700\r\n";
    let (mut scene, register) = Scene::asking();
    scene.answer(&register, 503, lines);
    assert!(scene.seconds_to_next() < 60.0, "another address may do");
    let (mut scene, register) = Scene::asking();
    scene.answer(&register, 480, lines);
    assert!((scene.seconds_to_next() - 1_700.0).abs() < 1.0);
}

#[test]
fn silence_is_no_registration_and_one_that_runs_out_is_reported() {
    let (mut scene, _) = Scene::asking();
    scene.after(33_000);
    let status = scene.registrations.of(TRUNK).expect("a status");
    assert_eq!((status.state, status.sip_code), (State::Failed, None));
    assert!(scene.changes().is_empty(), "there was none to lose");

    let (mut scene, _) = Scene::registered(40);
    // The refresh is sent after 30 to 35 seconds and stays unanswered.
    scene.after(39_000);
    assert_eq!(scene.state(), Some(State::Registered));
    scene.after(2_000);
    assert_eq!(scene.state(), Some(State::Failed));
    assert_eq!(scene.changes(), [RegistrationChangeKind::Expired]);
}

#[test]
fn a_trunk_that_goes_is_taken_back() {
    let (mut scene, register) = Scene::registered(600);
    scene.register_trunks(Vec::new());
    let sent = scene.sent();
    assert_eq!(header(&sent[0], HeaderName::Expires), "0");
    assert_eq!(
        header(&sent[0], HeaderName::Contact),
        header(&register, HeaderName::Contact)
    );

    let again = scene.answer(&sent[0], 407, &CHALLENGE.replace("WWW", "Proxy"));
    assert_eq!(header(&again[0], HeaderName::Expires), "0");
    assert!(header(&again[0], HeaderName::ProxyAuthorization).contains("n1"));
    assert_eq!(scene.registrations.held(), 1);

    scene.answer(&again[0], 200, "");
    assert_eq!(scene.registrations.held(), 0);
    assert_eq!(scene.changes(), [RegistrationChangeKind::Removed]);
    assert!(scene.after(2_000_000).is_empty());
}

/// The other node has registered it by now, and has told of it. The same holds for a node that drains.
#[test]
fn a_trunk_that_moves_is_taken_back_in_silence_unless_the_contacts_are_the_same() {
    let cases = [("203.0.113.7:5060", true), ("OWN", false)];
    let cases = cases.map(|case| [(case, false), (case, true)]);
    for ((host, is_removed), is_leaving) in cases.into_iter().flatten() {
        let (mut scene, register) = Scene::registered(600);
        let contact = header(&register, HeaderName::Contact);
        let own = contact.split_once('@').expect("a user").1;
        let own = own.trim_end_matches('>');
        let host = host.replace("OWN", own);
        let trunk = registering("192.0.2.1", Transport::Udp).way.id;
        let moved = HashMap::from([(trunk, [host].into())]);
        match is_leaving {
            true => scene.leave(moved),
            false => scene.assign(Vec::new(), moved),
        }

        let sent = scene.sent();
        assert_eq!(sent.len(), usize::from(is_removed), "{sent:?}");
        if let Some(removal) = sent.first() {
            assert_eq!(header(removal, HeaderName::Expires), "0");
            scene.answer(removal, 200, "");
        }
        assert_eq!(scene.registrations.held(), 0);
        assert!(scene.changes().is_empty());
        assert!(scene.after(2_000_000).is_empty());
    }
}

#[test]
fn a_registration_pending_at_shutdown_is_removed_once_granted() {
    let (mut scene, register) = Scene::asking();
    scene.leave(HashMap::new());
    assert!(scene.sent().is_empty(), "the carrier hasn't granted it yet");
    let sent = scene.answer(&register, 200, "");
    assert_eq!(header(&sent[0], HeaderName::Expires), "0");
    scene.after(33_000);
    assert_eq!(scene.registrations.held(), 0, "it doesn't wait for ever");
    scene.register_trunks(vec![registering("192.0.2.1", Transport::Udp)]);
    assert!(scene.after(5_000).is_empty(), "it has left");
}

#[test]
fn a_trunk_that_changes_leaves_the_old_carrier_first() {
    let (mut scene, _) = Scene::registered(600);
    scene.register_trunks(vec![registering("192.0.2.9", Transport::Udp)]);
    let sent = scene.sent();
    assert!(
        sent[0].starts_with("REGISTER sip:192.0.2.1 "),
        "{}",
        sent[0]
    );

    scene.answer(&sent[0], 200, "");
    let sent = scene.after(1_000);

    assert!(
        sent[0].starts_with("REGISTER sip:192.0.2.9 "),
        "{}",
        sent[0]
    );
    assert_eq!(header(&sent[0], HeaderName::Expires), "600");
}

/// The trunk may be another node's by now.
#[test]
fn a_trunk_that_is_disowned_while_it_changes_isnt_registered_again() {
    let (mut scene, _) = Scene::registered(600);
    scene.register_trunks(vec![registering("192.0.2.9", Transport::Udp)]);
    let removal = scene.sent();

    scene
        .peers
        .register_trunks(&mut scene.endpoint, None, scene.now);
    scene.answer(&removal[0], 200, "");

    assert_eq!(scene.after(10_000), Vec::<String>::new());
}

#[test]
fn a_name_is_resolved_for_each_attempt_and_its_addresses_are_tried_in_turn() {
    let mut scene = Scene::new();
    scene.register_trunks(vec![registering("sip.example.com", Transport::Udp)]);
    assert!(scene.after(100).is_empty());

    let asked: Vec<UnresolvedTarget> = scene
        .peers
        .effects()
        .filter_map(|effect| match effect {
            PeersEffect::Resolve { registrar, .. } => Some(registrar),
            PeersEffect::Changed(_)
            | PeersEffect::RegisterFinished(_)
            | PeersEffect::Down(_)
            | PeersEffect::Challenged(_) => None,
        })
        .collect();
    let [registrar] = &asked[..] else {
        panic!("{asked:?}");
    };

    assert_eq!(
        (&*registrar.uri, registrar.transport),
        ("sip:sip.example.com", Some(Transport::Udp))
    );

    let targets = ["192.0.2.1:5060", "192.0.2.2:5060"].map(|address| Target {
        uri: registrar.uri.clone(),
        transport: Transport::Udp,
        address: address.parse().expect("an address"),
        by: None,
        route: None,
        named: Default::default(),
    });
    let now = scene.now;
    scene
        .peers
        .handle_resolved(&mut scene.endpoint, TRUNK, targets.into(), now);

    let first = scene.sent();
    let second = scene.answer(&first[0], 503, "");
    assert!(second[0].starts_with("REGISTER sip:sip.example.com "));
    scene.answer(&second[0], 200, "");

    assert_eq!(scene.state(), Some(State::Registered));
}

#[test]
fn a_connection_that_breaks_is_replaced_soon() {
    let mut scene = Scene::new();
    scene.register_trunks(vec![registering("192.0.2.1", Transport::Tcp)]);

    let sent = scene.after(100);
    assert!(
        header(&sent[0], HeaderName::Contact).contains(";transport=tcp"),
        "{}",
        sent[0]
    );
    scene.answer(&sent[0], 200, "");

    let lost = Flow {
        transport: Transport::Tcp,
        listener: 1,
        connection: 4,
        local: SocketAddr::from(([192, 0, 2, 100], 5060)),
        peer: SocketAddr::from(([192, 0, 2, 1], 5060)),
    };
    let now = scene.now;
    scene
        .peers
        .handle_flow_lost(&mut scene.endpoint, &lost, now);

    assert_eq!(scene.after(2_100).len(), 1);
}

#[test]
fn a_peer_that_answers_options_is_up() {
    let mut scene = Scene::new();
    let target = scene.watch("sip:192.0.2.1", Transport::Udp);

    // Down after three failures, up after one answer.
    for (status, reachable) in [
        (404, Some(true)),
        (503, Some(true)),
        (503, Some(true)),
        (503, Some(false)),
        (200, Some(true)),
    ] {
        let now = scene.now;
        scene.peers.ask(
            &mut scene.endpoint,
            OptionsBatch::Probe(vec![target.clone()]),
            now,
        );
        let sent = scene.sent();
        assert!(
            sent[0].starts_with("OPTIONS sip:192.0.2.1 SIP/2.0"),
            "{}",
            sent[0]
        );
        scene.answer(&sent[0], status, "");
        assert_eq!(scene.health.trunk(TRUNK), reachable, "{status}");
    }
}

#[test]
fn a_silent_peer_has_one_probe_at_a_time() {
    let mut scene = Scene::new();
    let target = scene.watch("sip:192.0.2.1", Transport::Udp);
    let ask = |scene: &mut Scene| {
        let now = scene.now;
        let probe = OptionsBatch::Probe(vec![target.clone()]);
        scene.peers.ask(&mut scene.endpoint, probe, now);
        scene.sent().len()
    };

    assert_eq!(ask(&mut scene), 1);
    assert_eq!(ask(&mut scene), 0, "the first is under way");
    scene.after(40_000);
    assert_eq!(ask(&mut scene), 1, "it was given up");
}

#[test]
fn our_own_limit_of_connections_takes_no_peer_down() {
    let mut scene = Scene::new();
    let target = scene.watch("sip:192.0.2.1;transport=tcp", Transport::Tcp);

    for (fault, reachable) in [
        (Fault::TooMany, None),
        (Fault::TooMany, None),
        (Fault::Refused, None),
        (Fault::TooMany, None),
        (Fault::Refused, None),
        (Fault::TooMany, None),
        (Fault::NotOpened, Some(false)),
        (Fault::TooMany, Some(false)),
    ] {
        let now = scene.now;
        let probe = OptionsBatch::Probe(vec![target.clone()]);
        scene.peers.ask(&mut scene.endpoint, probe, now);
        let (flow, _) = scene.endpoint.transmits().next().expect("a probe");
        scene.endpoint.clear_transmits();

        scene.endpoint.handle_flow_lost(&flow, &fault, now);
        let event = scene.endpoint.poll_event().expect("its end");
        let endpoint = &mut scene.endpoint;
        assert!(scene.peers.handle_event(endpoint, &event, now));
        assert_eq!(scene.health.trunk(TRUNK), reachable, "{fault:?}");
    }
}
