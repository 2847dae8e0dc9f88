//! Numbers that orgs verify by a code spoken in a call: the operator's carrier is a bare socket, and its audio is compared with the clips.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::outbound::{give_trunk, order};
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::leg::Leg;
use trunkline_testkit::{
    Credentials, Daemon, DaemonSetup, Deadline, Message, Peer, Runtime, http, proves,
};

const PREFIXES: &str = "TRUNKLINE__PHONE__VERIFICATION_TRUNK__PREFIXES";
const NUMBER: &str = "+442079460123";
const FROM: &str = "+442079460000";
const USER: &str = "operator";
const PASSWORD: &str = "the-operators-own";
const PATIENCE: Duration = Duration::from_secs(40);

const PHRASE: &[u8] = include_bytes!("../../assets/spoken/code.ulaw");
const DIGITS: [&[u8]; 10] = [
    include_bytes!("../../assets/spoken/0.ulaw"),
    include_bytes!("../../assets/spoken/1.ulaw"),
    include_bytes!("../../assets/spoken/2.ulaw"),
    include_bytes!("../../assets/spoken/3.ulaw"),
    include_bytes!("../../assets/spoken/4.ulaw"),
    include_bytes!("../../assets/spoken/5.ulaw"),
    include_bytes!("../../assets/spoken/6.ulaw"),
    include_bytes!("../../assets/spoken/7.ulaw"),
    include_bytes!("../../assets/spoken/8.ulaw"),
    include_bytes!("../../assets/spoken/9.ulaw"),
];

/// Starts a daemon whose operator has an account with this carrier; returns also an unverified number of the org.
fn daemon() -> (Daemon, Peer, String) {
    daemon_of(DaemonSetup::new(), "127.0.0.1")
}

/// The same for a carrier at this name or address.
fn daemon_of(setup: DaemonSetup, host: &str) -> (Daemon, Peer, String) {
    let carrier = Peer::new(setup.sip);
    let daemon = setup
        .set(
            "TRUNKLINE__PHONE__VERIFICATION_TRUNK__HOST",
            &format!("{host}:{}", carrier.own.port()),
        )
        .set("TRUNKLINE__PHONE__VERIFICATION_TRUNK__CALLER_NUMBER", FROM)
        .set(PREFIXES, "+44,+1,+88")
        .set("TRUNKLINE__PHONE__VERIFICATION_TRUNK__USERNAME", USER)
        .set("TRUNKLINE__PHONE__VERIFICATION_TRUNK__PASSWORD", PASSWORD)
        // The org's own outbound call is its first.
        .set("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_DAY", "1")
        .serve();
    let (status, made) = daemon.change("POST", "/phone/numbers", &json!({"phone_number": NUMBER}));

    assert_eq!(status, 201, "{made}");
    assert_eq!(made["verified"], false);

    let id = made["id"].as_str().expect("an id").to_owned();
    (daemon, carrier, id)
}

fn verify(daemon: &Daemon, id: &str) -> (u16, Value) {
    daemon.change("POST", &format!("/phone/numbers/{id}/verify"), &json!({}))
}

fn confirm(daemon: &Daemon, id: &str, code: &str) -> (u16, Value) {
    let path = format!("/phone/numbers/{id}/verify/confirm");
    daemon.change("POST", &path, &json!({"code": code}))
}

/// Someone who has picked up the phone.
struct Callee {
    leg: Leg,
    rtp: UdpSocket,
    invite: Message,
    /// Packets as they came.
    heard: Vec<Vec<u8>>,
}

impl Callee {
    /// Answers the call at the carrier, with this payload type.
    fn picks_up(carrier: &Peer, payload: u8) -> Self {
        let first = carrier.request("INVITE");
        let challenge =
            "Proxy-Authenticate: Digest realm=\"carrier\", nonce=\"made-up\", qop=\"auth\"\r\n";
        carrier.reply(&first, "407 Proxy Authentication Required", challenge);
        let cseq = first.header("CSeq").map(str::to_owned);
        let is_next = |message: &Message| {
            message.is_request("INVITE") && message.header("CSeq") != cseq.as_deref()
        };
        let invite = carrier.next("INVITE with credentials", is_next);
        let credentials = Credentials {
            username: USER.to_owned(),
            password: PASSWORD.to_owned(),
        };
        assert!(
            proves(&invite, "Proxy-Authorization", "INVITE", &credentials),
            "{invite:?}"
        );

        carrier.reply(&invite, "180 Ringing", "");
        let rtp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let limit = Duration::from_millis(200);
        rtp.set_read_timeout(Some(limit)).expect("a limit");
        let port = rtp.local_addr().expect("an address").port();
        let sdp = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
             m=audio {port} RTP/AVP {payload} 101\r\na=rtpmap:101 telephone-event/8000\r\n"
        );
        let leg = Leg::called(carrier, &invite);

        // The dialog's own tag, as `reply` writes it.
        carrier.reply_with_sdp(&invite, "200 OK", &sdp);
        carrier.request("ACK");
        Self {
            leg,
            rtp,
            invite,
            heard: Vec::new(),
        }
    }

    fn hear(&mut self) -> bool {
        let mut octets = vec![0; 2048];
        let Ok(count) = self.rtp.recv(&mut octets) else {
            return false;
        };
        octets.truncate(count);
        self.heard.push(octets);
        true
    }

    /// Receives so many more packets.
    fn hears(&mut self, count: usize) {
        let wanted = self.heard.len() + count;
        let heard = Deadline::after(PATIENCE).poll(|| {
            while self.heard.len() < wanted && self.hear() {}
            (self.heard.len() == wanted).then_some(())
        });
        assert!(heard.is_some(), "it speaks no more");
    }

    /// Listens until the daemon hangs up.
    fn listen(mut self) -> Heard {
        let over = Deadline::after(PATIENCE).poll(|| {
            while self.hear() {}
            let message = self.leg.end.soon()?;
            message.is_request("BYE").then(|| {
                self.leg.end.reply(&message, "200 OK", "");
            })
        });
        assert!(over.is_some(), "nobody hung up");

        while self.hear() {}
        Heard {
            invite: self.invite,
            packets: self.heard,
        }
    }
}

struct Heard {
    invite: Message,
    packets: Vec<Vec<u8>>,
}

impl Heard {
    /// Returns the digits spoken after each occurrence of the phrase.
    fn codes(&self) -> Vec<String> {
        let audio: Vec<u8> = self
            .packets
            .iter()
            .flat_map(|packet| packet[12..].to_vec())
            .collect();
        let begins = memchr::memmem::find_iter(&audio, PHRASE);
        let begins: Vec<usize> = begins.map(|at| at + PHRASE.len()).collect();
        let ends = begins.iter().skip(1).copied().chain([audio.len()]);
        let parts = begins
            .iter()
            .zip(ends)
            .map(|(begin, end)| &audio[*begin..end]);
        parts.map(digits).collect()
    }
}

fn digits(mut audio: &[u8]) -> String {
    let mut found = String::new();
    while !audio.is_empty() {
        let spoken = DIGITS.iter().position(|clip| audio.starts_with(clip));
        match spoken {
            Some(digit) => {
                found += &digit.to_string();
                audio = &audio[DIGITS[digit].len()..];
            }
            None => audio = &audio[1..],
        }
    }
    found
}

/// Returns whether these octets hold the code as a separate number.
fn holds(octets: &[u8], code: &str) -> bool {
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| octets.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let mut found = memchr::memmem::find_iter(octets, code.as_bytes());
    found.any(|at| !is_digit(at.checked_sub(1)) && !is_digit(Some(at + code.len())))
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let each = entries.map(|entry| entry.path());
    each.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    })
    .collect()
}

#[test]
fn an_org_verifies_its_number_by_the_code_that_a_call_speaks() {
    let (mut daemon, carrier, id) = daemon();
    let (status, asked) = verify(&daemon, &id);
    assert_eq!(status, 202, "{asked}");
    assert_eq!(
        (
            &asked["phone_number"],
            &asked["tries"],
            &asked["calls_left"]
        ),
        (&json!(NUMBER), &json!(5), &json!(2))
    );

    let heard = Callee::picks_up(&carrier, 0).listen();
    let invite = &heard.invite;
    assert!(
        invite
            .start_line()
            .starts_with(&format!("INVITE sip:{NUMBER}@")),
        "{invite:?}"
    );
    let from = invite.header("From").expect("a caller");
    assert!(from.contains(FROM), "{from}");

    let codes = heard.codes();
    let [first, second] = &codes[..] else {
        panic!("spoken {} times", codes.len())
    };
    assert_eq!((first.len(), first), (6, second));

    let header = |packet: &Vec<u8>| {
        let sequence = u16::from_be_bytes([packet[2], packet[3]]);
        let timestamp = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
        (sequence, timestamp)
    };
    for pair in heard.packets.windows(2) {
        let ((before, then), (after, now)) = (header(&pair[0]), header(&pair[1]));
        assert_eq!(after, before.wrapping_add(1));
        assert_eq!(now, then.wrapping_add(160));
    }

    let foreign = daemon
        .setup
        .run(&["org", "create", "--name", "Other", "--json"]);
    let foreign = foreign["id"].as_str().expect("an id").to_owned();
    let key = daemon
        .setup
        .run(&["key", "create", "--org", &foreign, "--json"]);
    let key = key["api_key"].as_str().expect("a key").to_owned();
    let path = format!("/phone/numbers/{id}/verify/confirm");
    let right = json!({"code": first});
    let (status, absent) = http::change("POST", daemon.setup.http, &path, &key, &right);
    assert_eq!(status, 404, "{absent}");

    let wrong = if first == "000000" {
        "000001"
    } else {
        "000000"
    };
    let (status, refused) = confirm(&daemon, &id, wrong);
    assert_eq!(
        (status, &refused["code"]),
        (400, &json!("wrong_code")),
        "{refused}"
    );

    let (status, verified) = confirm(&daemon, &id, first);
    assert_eq!(
        (status, &verified["verified"]),
        (200, &json!(true)),
        "{verified}"
    );
    let (status, again) = verify(&daemon, &id);
    assert_eq!((status, &again["verified"]), (200, &json!(true)), "{again}");

    // It isn't a call of the org, and the code appears nowhere.
    assert_eq!(daemon.calls(), Vec::<Value>::new());
    give_trunk(&daemon, Runtime::new(), &json!({}));
    order(&daemon, &json!({}));
    let metrics = http::get(daemon.setup.http, "/metrics", None)
        .expect("metrics")
        .1;
    assert!(!holds(metrics.as_bytes(), first));

    daemon.process.terminate();
    let ended = daemon.process.wait(Deadline::after(PATIENCE));
    assert!(ended.is_some(), "it ends");
    let seen = files(daemon.setup.folder.path());
    assert!(seen.len() > 3, "{seen:?}");
    for file in seen {
        let octets = std::fs::read(&file).expect("it is read");
        assert!(!holds(&octets, first), "{}", file.display());
    }
}

/// The operator pays for every call, and all orgs share a limit on them: an org alone leaves one of ten free.
#[test]
fn an_org_leaves_a_verification_call_to_others() {
    let (daemon, carrier, first) = daemon();
    let call = |key: &str, id: &str| {
        let path = format!("/phone/numbers/{id}/verify");
        http::change("POST", daemon.setup.http, &path, key, &json!({}))
    };
    let own = daemon.setup.key.clone();
    let [second, third, fourth] =
        [24, 25, 26].map(|end| add(&daemon, &own, &format!("+4420794601{end}")));

    for id in [&first, &second, &third].into_iter().cycle().take(9) {
        let (status, asked) = call(&own, id);
        assert_eq!(status, 202, "{asked}");
    }
    let (status, refused) = call(&own, &fourth);
    let is_busy = (status, &refused["code"]) == (429, &json!("org_busy"));
    assert!(is_busy, "{refused}");

    let key = other_org(&daemon);
    let (status, asked) = call(&key, &add(&daemon, &key, "+442079460127"));
    assert_eq!(status, 202, "{asked}");

    // Finished calls make room, and the refused one didn't count.
    let again = Deadline::after(PATIENCE).poll(|| {
        let invite = carrier.request("INVITE");
        carrier.reply(&invite, "486 Busy Here", "");
        let (status, asked) = call(&own, &fourth);
        (status == 202).then_some(asked)
    });
    assert_eq!(
        again.map(|asked| asked["calls_left"].clone()),
        Some(json!(2))
    );
}

/// Adds a number to the org of this key; returns its id.
fn add(daemon: &Daemon, key: &str, number: &str) -> String {
    let body = json!({"phone_number": number});
    let (status, made) = http::change("POST", daemon.setup.http, "/phone/numbers", key, &body);
    assert_eq!(status, 201, "{made}");
    made["id"].as_str().expect("an id").to_owned()
}

/// Makes another org; returns its key.
fn other_org(daemon: &Daemon) -> String {
    let run = |arguments: &[&str]| daemon.setup.run(arguments);
    let org = run(&["org", "create", "--name", "Other", "--json"]);
    let org = org["id"].as_str().expect("an id").to_owned();
    let key = run(&["key", "create", "--org", &org, "--json"]);
    key["api_key"].as_str().expect("a key").to_owned()
}

/// The attacker is paid for calls to its numbers, and the operator would pay them.
#[test]
fn no_verification_call_goes_to_a_number_that_costs_more_than_a_line() {
    let (daemon, carrier, honest) = daemon();
    let key = daemon.setup.key.clone();
    for (case, number) in [
        ("premium rate", "+19005550100"),
        ("premium rate, with more digits", "+190055501007"),
        ("premium rate in Britain", "+449012345678"),
        ("shared cost", "+448431234567"),
        ("personal", "+447012345678"),
        ("satellite", "+881612345678"),
        ("a country without prefix", "+37112345678"),
    ] {
        let id = add(&daemon, &key, number);
        for _ in 0..2 {
            let (status, refused) = verify(&daemon, &id);
            assert_eq!(
                (status, &refused["code"]),
                (403, &json!("destination_not_allowed")),
                "{case}: {refused}"
            );
        }
    }

    let (status, asked) = verify(&daemon, &honest);
    assert_eq!((status, &asked["calls_left"]), (202, &json!(2)), "{asked}");
    let invite = carrier.request("INVITE");
    assert!(
        invite.start_line().contains(NUMBER),
        "the first call that was placed: {invite:?}"
    );
    carrier.reply(&invite, "486 Busy Here", "");
}

/// An org that calls other people's phones with the operator's number is stopped, and others aren't.
#[test]
fn an_org_has_ten_verification_calls_to_five_numbers_a_day() {
    let (daemon, carrier, first) = daemon();
    let key = daemon.setup.key.clone();
    let more = (24..28).map(|end| add(&daemon, &key, &format!("+4420794601{end}")));
    let ids: Vec<String> = std::iter::once(first).chain(more).collect();
    let called = |id: &str| {
        let (status, asked) = verify(&daemon, id);
        assert_eq!(status, 202, "{asked}");
        let invite = carrier.request("INVITE");
        carrier.reply(&invite, "486 Busy Here", "");
        carrier.request("ACK");
    };
    let used_up = |id: &str| {
        let (status, refused) = verify(&daemon, id);
        assert_eq!(
            (status, &refused["code"]),
            (429, &json!("verification_calls_used_up")),
            "{refused}"
        );
        refused["message"].to_string()
    };

    ids.iter().for_each(|id| called(id));
    let sixth = add(&daemon, &key, "+442079460129");
    let message = used_up(&sixth);
    assert!(message.contains("5 other numbers"), "{message}");
    ids.iter().for_each(|id| called(id));
    let message = used_up(&ids[0]);
    assert!(message.contains("10 verification calls"), "{message}");

    let other = other_org(&daemon);
    let theirs = add(&daemon, &other, "+442079460130");
    let path = format!("/phone/numbers/{theirs}/verify");
    let (status, asked) = http::change("POST", daemon.setup.http, &path, &other, &json!({}));
    assert_eq!(status, 202, "the honest org: {asked}");
}

/// Nobody has said what the calls may cost.
#[test]
fn without_prefixes_nobody_is_called_and_the_doctor_prints_the_line() {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__PHONE__VERIFICATION_TRUNK__HOST", "127.0.0.1:9")
        .set("TRUNKLINE__PHONE__VERIFICATION_TRUNK__CALLER_NUMBER", FROM);
    let daemon = setup.serve();
    let id = add(&daemon, &daemon.setup.key, NUMBER);
    let (status, refused) = verify(&daemon, &id);
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("no_verification_route")),
        "{refused}"
    );
    let message = refused["message"].to_string();
    assert!(
        message.contains("phone.verification_trunk.prefixes"),
        "{message}"
    );

    let (_, found) = daemon.setup.doctor();
    let findings = found["findings"].as_array().expect("findings");
    let prefixes = |finding: &&Value| finding["check"] == "verification_prefixes";
    let finding = findings.iter().find(prefixes).expect("a finding");
    let line = "phone.verification_trunk.prefixes = [\"+44\"]";
    assert!(
        finding["fix"].as_str().expect("a fix").contains(line),
        "{finding}"
    );
    let is_logged = || {
        let text = "phone.verification_trunk has no prefixes";
        daemon.log().contains(text).then_some(())
    };
    let logged = Deadline::after(PATIENCE).poll(is_logged);
    assert!(logged.is_some(), "{}", daemon.log());
}

/// The address rules don't apply to the operator's carrier: one that no tenant may name speaks codes too, and so does one at an unlisted private
/// address, with Contact and recorded route there.
#[test]
fn the_operators_own_carrier_may_be_reserved_or_private() {
    let at = std::net::Ipv4Addr::LOCALHOST;
    let names = dns::serve(vec![("carrier.test", Record::Address(at))]);
    let (reserved, listed) = (
        "TRUNKLINE__SIP__RESERVED_PEERS",
        "TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS",
    );
    let cases = [
        ("reserved", "127.0.0.1", reserved, "127.0.0.1"),
        ("reserved by name", "carrier.test", reserved, "carrier.test"),
        ("private", "127.0.0.1", listed, "127.0.0.9"),
    ];

    std::thread::scope(|scope| {
        for (case, host, key, value) in cases {
            scope.spawn(move || {
                let settings = vec![
                    (key, value.to_owned()),
                    ("TRUNKLINE__SIP__NAMESERVERS", names.to_string()),
                ];
                let (daemon, carrier, id) = daemon_of(DaemonSetup::with(at.into(), settings), host);
                let (status, asked) = verify(&daemon, &id);
                assert_eq!(status, 202, "{case}: {asked}");
                let heard = Callee::picks_up(&carrier, 0).listen();
                let codes = heard.codes();
                let code = codes.first().expect("a code");
                let (status, verified) = confirm(&daemon, &id, code);
                assert_eq!(
                    (status, &verified["verified"]),
                    (200, &json!(true)),
                    "{case}: {verified}"
                );
                let trunk = json!({
                    "name": "Carrier", "host": host, "port": carrier.own.port(), "caller_number": NUMBER, "transport": "udp",
                });
                let (status, refused) = daemon.change("POST", "/phone/sip/outbound-trunks", &trunk);
                assert_eq!(status, 400, "{case}: {refused}");
            });
        }
    });
}

#[test]
fn a_code_dies_of_five_wrong_tries_and_a_number_is_called_three_times_a_day() {
    let (daemon, carrier, id) = daemon();
    for calls_left in [2, 1, 0] {
        let (status, asked) = verify(&daemon, &id);
        assert_eq!(
            (status, &asked["calls_left"]),
            (202, &json!(calls_left)),
            "{asked}"
        );
        let invite = carrier.request("INVITE");
        carrier.reply(&invite, "486 Busy Here", "");
        carrier.request("ACK");
    }

    let (status, refused) = verify(&daemon, &id);
    assert_eq!(
        (status, &refused["code"]),
        (429, &json!("verification_calls_used_up")),
        "{refused}"
    );

    let mut wrong = 0;
    let ended = (0..20).find_map(|code| {
        let (status, answer) = confirm(&daemon, &id, &format!("{code:06}"));
        wrong += usize::from(status == 400);
        (status != 400).then_some((status, answer))
    });

    let (status, answer) = ended.expect("an end of tries");
    assert_eq!(
        (wrong, status, &answer["code"]),
        (5, 409, &json!("no_code")),
        "{answer}"
    );
    assert_eq!(daemon.calls(), Vec::<Value>::new());
}

#[test]
fn a_callee_that_presses_keys_and_hangs_up_ends_the_call() {
    let (daemon, carrier, id) = daemon();
    let (status, _) = verify(&daemon, &id);
    assert_eq!(status, 202);

    let mut callee = Callee::picks_up(&carrier, 8);
    callee.hears(25);
    assert!(callee.heard.iter().all(|packet| packet[1] & 0x7f == 8));

    let offered = callee.invite.body().lines().find_map(|line| {
        let port = line.strip_prefix("m=audio ")?.split(' ').next()?;
        port.parse::<u16>().ok()
    });
    let to = SocketAddr::from(([127, 0, 0, 1], offered.expect("a port")));
    for sequence in 0..8_u8 {
        let mut packet = vec![0x80, 101, 0, sequence, 0, 0, 0, 0, 0, 0, 0, 9];
        packet.extend([5, 10, 0, 160]);
        callee.rtp.send_to(&packet, to).expect("it is sent");
    }

    callee.hears(10);
    callee.leg.ask("BYE");

    let answered = callee.leg.end.response(200);
    assert_eq!(answered.status(), Some(200));

    let quiet = Deadline::after(PATIENCE).poll(|| (!callee.hear()).then_some(()));
    assert!(quiet.is_some(), "it speaks to nobody");
    assert_eq!(daemon.calls(), Vec::<Value>::new());
}
