//! Attacks by a peer that has read the tags of a call: requests, an ACK and a response from an address outside the call. The legitimate peers of the
//! same calls are served: those whose port or IP moves, that have several addresses, or that are behind a proxy.

use std::net::{Ipv4Addr, SocketAddr};

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::{metric, runtime, until};
use crate::torture::one_shard;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::digest::{Asking, Challenge};
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::message::{status_of, statuses_of};
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Message, Peer};

const FOREIGN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// SDP that would divert the audio.
const STOLEN: &str = "v=0\r\no=- 1 9 IN IP4 127.0.0.2\r\ns=-\r\nc=IN IP4 127.0.0.2\r\nt=0 0\r\nm=audio 40666 RTP/AVP 8\r\n";
const COUNTED: &str = "trunkline_sip_foreign_total";

/// Returns the caller's side of a call.
fn of_caller(dialling: &Dialling, tag: &str, daemon: SocketAddr) -> Dialog {
    Dialog {
        uri: format!("sip:trunkline@{daemon}"),
        from: format!("{};tag=f-{}", dialling.from, dialling.id),
        to: format!("{};tag={tag}", dialling.to),
        id: format!("{}@pbx.invalid", dialling.id),
        lines: String::new(),
    }
}

/// Returns the header that answers a challenge to a request of this method.
fn proof(of: &Dialog, challenge: &Message, method: &str, credentials: &Credentials) -> String {
    let asking = Asking {
        method,
        uri: &of.uri,
        nc: 1,
    };
    Challenge::of(challenge).answer(&asking, credentials)
}

/// A call that is up, as both of its peers know it.
pub(crate) struct Up {
    pub(crate) daemon: Daemon,
    pub(crate) caller: Caller,
    pub(crate) runtime: Peer,
    pub(crate) of_caller: Dialog,
    of_runtime: Dialog,
}

impl Up {
    /// Makes a call whose caller has proven its password.
    fn by_digest() -> Self {
        Self::of(one_shard(DaemonSetup::new()), |caller, dialling| {
            caller.dial(dialling)
        })
    }

    /// Makes a call whose caller was admitted by its address and has proven nothing.
    fn by_address(setup: DaemonSetup) -> Self {
        Self::of(setup, |caller, dialling| caller.ask(dialling, dialling))
    }

    pub(crate) fn of(
        setup: DaemonSetup,
        begin: impl FnOnce(&Caller, &Dialling) -> Message,
    ) -> Self {
        let runtime = runtime(&setup);
        Self::with(setup, runtime, begin)
    }

    fn with(
        setup: DaemonSetup,
        runtime: Peer,
        begin: impl FnOnce(&Caller, &Dialling) -> Message,
    ) -> Self {
        let daemon = setup.serve();
        let caller = Caller::new(daemon.sip(), daemon.credentials());
        let dialling = Dialling::new("up", &daemon.setup.first_number, daemon.sip());
        begin(&caller, &dialling);

        let invite = runtime.request("INVITE");
        let contact = format!(
            "Contact: <sip:runtime@{}>\r\nAllow: INVITE, ACK, BYE, UPDATE\r\nContent-Type: application/sdp\r\n",
            runtime.own
        );
        runtime.answer(&invite, "200 OK", &contact, OFFER);
        let accepted = caller.peer.outcome("INVITE");
        assert_eq!(accepted.status(), Some(200));
        let tag = accepted.to_tag();
        let cseq = if accepted.answers("2 INVITE") { 2 } else { 1 };
        caller.send(&dialling, "ACK", cseq, &tag);
        runtime.request("ACK");

        let of_caller = of_caller(&dialling, &tag, daemon.sip());
        let of_runtime = Dialog::called(&invite, runtime.tag);
        Self {
            daemon,
            caller,
            runtime,
            of_caller,
            of_runtime,
        }
    }

    /// The caller changes its media from this socket, and the runtime gets that.
    fn reinvites(&self, of: &Dialog, peer: &Peer, cseq: u32) {
        peer.send(of.request(peer, (cseq, "INVITE"), "", OFFER));
        let change = self.runtime.request("INVITE");
        self.runtime.answer(
            &change,
            "200 OK",
            "Content-Type: application/sdp\r\n",
            OFFER,
        );
        self.runtime.request("ACK");
        assert_eq!(status_of(&peer.outcome(&format!("{cseq} INVITE"))), 200);
        peer.send(of.request(peer, (cseq, "ACK"), "", ""));
    }

    /// An INFO of the runtime reaches this socket of the caller's side.
    fn informs(&self, peer: &Peer, cseq: u32) {
        let runtime = &self.runtime;
        runtime.send(self.of_runtime.request(runtime, (cseq, "INFO"), "", ""));
        let info = peer.request("INFO");
        peer.answer(&info, "200 OK", "", "");
        let informed = runtime.outcome(&format!("{cseq} INFO"));
        assert_eq!(informed.status(), Some(200));
    }

    /// The caller hangs up from this socket.
    pub(crate) fn hangs_up(&self, peer: &Peer, cseq: u32) {
        peer.send(self.of_caller.request(peer, (cseq, "BYE"), "", ""));
        let bye = self.runtime.request("BYE");
        self.runtime.answer(&bye, "200 OK", "", "");
        assert_eq!(status_of(&peer.outcome(&format!("{cseq} BYE"))), 200);
        assert_eq!(self.daemon.record()["status"], "completed");
    }

    fn counts(&self, wanted: f64) {
        until(|| (metric(&self.daemon, COUNTED) >= wanted).then_some(()));
        assert!((metric(&self.daemon, COUNTED) - wanted).abs() < 0.5);
    }
}

const METHODS: [&str; 8] = [
    "INVITE", "UPDATE", "REFER", "BYE", "INFO", "NOTIFY", "PRACK", "OPTIONS",
];

/// Sends a request over TCP; returns the status of the only answer.
fn over_tcp(of: &Dialog, what: (u32, &str), daemon: SocketAddr, sdp: &str) -> u16 {
    let peer = Peer::tcp(FOREIGN, daemon);
    peer.send(of.request(&peer, what, "", sdp));
    let answers = peer.answers_until_probed();
    let answers = statuses_of(&answers);
    let [status] = answers[..] else {
        panic!("one answer to {what:?}: {answers:?}");
    };
    status
}

#[test]
fn whoever_has_the_tags_of_a_proven_leg_needs_its_password() {
    let up = Up::by_digest();
    let intruder = Peer::on(FOREIGN, up.daemon.sip());
    for (cseq, method) in (50..).zip(METHODS) {
        let sdp = if method == "INVITE" { STOLEN } else { "" };
        assert_eq!(
            up.of_caller.status(&intruder, (cseq, method), sdp),
            401,
            "{method}"
        );
        assert_eq!(
            over_tcp(&up.of_caller, (cseq, method), up.daemon.sip(), sdp),
            401,
            "{method}"
        );
    }

    // A wrong password, and a correct one of another user.
    let credentials = up.daemon.credentials();
    for (cseq, wrong) in [
        (
            70,
            Credentials {
                password: "guess".into(),
                ..credentials.clone()
            },
        ),
        (
            72,
            Credentials {
                username: "other".into(),
                ..credentials.clone()
            },
        ),
    ] {
        let challenge = up.of_caller.ask(&intruder, (cseq, "BYE"), "");
        let proof = proof(&up.of_caller, &challenge, "BYE", &wrong);
        let refused = up
            .of_caller
            .with(&proof)
            .status(&intruder, (cseq + 1, "BYE"), "");
        assert_eq!(refused, 401);
    }

    up.counts(20.0);
    until(|| {
        let failures = up.daemon.shown("/phone/sip/inbound-trunk/auth-failures");
        failures.to_string().contains("127.0.0.2").then_some(())
    });

    // None of it had an effect, neither on CSeq nor on the path to the caller.
    up.informs(&up.caller.peer, 2);
    up.reinvites(&up.of_caller, &up.caller.peer, 3);
    up.hangs_up(&up.caller.peer, 4);
}

#[test]
fn a_phone_that_moves_proves_itself_and_is_followed() {
    let up = Up::by_digest();
    let credentials = up.daemon.credentials();

    // Behind NAT the caller's port moves, without a challenge.
    let port = Peer::new(up.daemon.sip());
    assert_eq!(up.of_caller.status(&port, (3, "OPTIONS"), ""), 200);
    up.reinvites(&up.of_caller, &port, 4);
    up.informs(&port, 2);

    let moved = Peer::on(FOREIGN, up.daemon.sip());
    let challenge = up.of_caller.ask(&moved, (5, "INVITE"), OFFER);
    assert_eq!(status_of(&challenge), 401);
    up.informs(&port, 3);
    let proof = proof(&up.of_caller, &challenge, "INVITE", &credentials);
    up.reinvites(&up.of_caller.with(&proof), &moved, 6);
    up.informs(&moved, 4);
    up.hangs_up(&moved, 7);
}

#[test]
fn a_leg_that_nothing_has_proven_is_held_to_its_places() {
    let setup = one_shard(DaemonSetup::new());
    let org = setup.org.as_str();
    let allow = ["127.0.0.1/32", "--allow", "127.0.0.3/32"];
    setup.run(
        &[
            &["trunk", "update", "--org", org, "--json", "--allow"],
            &allow[..],
        ]
        .concat(),
    );
    let up = Up::by_address(setup);
    let intruder = Peer::on(FOREIGN, up.daemon.sip());
    let mut sent = 0.0;

    for (cseq, method) in (50..).zip(METHODS) {
        let sdp = if method == "INVITE" { STOLEN } else { "" };
        for of in [&up.of_caller, &up.of_runtime] {
            assert_eq!(of.status(&intruder, (cseq, method), sdp), 403, "{method}");
            assert_eq!(
                over_tcp(of, (cseq, method), up.daemon.sip(), sdp),
                403,
                "{method}"
            );
            sent += 2.0;
        }
    }
    up.counts(sent);
    up.informs(&up.caller.peer, 2);

    // The trunk allows a second address of the PBX, which the runtime may not use.
    let second = Peer::on(SECOND, up.daemon.sip());
    assert_eq!(up.of_runtime.status(&second, (60, "OPTIONS"), ""), 403);
    up.reinvites(&up.of_caller, &second, 3);
    up.informs(&second, 3);
    up.hangs_up(&up.caller.peer, 4);
}

/// The branch and the tags are known to anybody who reads the trace while it rings.
#[test]
fn answers_and_acks_from_another_address_are_nobodys() {
    let setup = one_shard(DaemonSetup::new());
    setup.allow("127.0.0.1/32");
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let mut dialling = Dialling::new("late", &daemon.setup.first_number, daemon.sip());
    dialling.body = String::new();
    caller.ask(&dialling, &dialling);
    let invite = runtime.request("INVITE");
    let intruder = Peer::on(FOREIGN, daemon.sip());
    let lines = |address: SocketAddr| {
        format!("Contact: <sip:runtime@{address}>\r\nContent-Type: application/sdp\r\n")
    };
    intruder.send(invite.answer("200 OK", "thief", &lines(intruder.own), STOLEN));
    until(|| (metric(&daemon, COUNTED) >= 1.0).then_some(()));

    runtime.answer(&invite, "200 OK", &lines(runtime.own), OFFER);
    let accepted = caller.peer.outcome("INVITE");
    assert!(!accepted.text().contains("40666"));

    // The caller's SDP is still to come, in its ACK.
    let inside = of_caller(&dialling, &accepted.to_tag(), daemon.sip());
    for sdp in [STOLEN, ""] {
        intruder.send(inside.request(&intruder, (1, "ACK"), "", sdp));
    }
    until(|| (metric(&daemon, COUNTED) >= 3.0).then_some(()));
    let ack = inside.request(&caller.peer, (1, "ACK"), "", OFFER);
    caller.peer.send(ack);
    let ack = runtime.request("ACK");
    assert!(ack.body().contains("m=audio 40000"), "{ack}");
}

/// Requests may come from a proxy on the recorded route, and from the phone's Contact.
#[test]
fn a_proxy_on_the_route_and_a_contact_are_places_of_the_dialog() {
    let setup = one_shard(DaemonSetup::new());
    setup.allow("127.0.0.1/32");

    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let proxy = Peer::on(SECOND, daemon.sip());
    let phone = Peer::on(Ipv4Addr::new(127, 0, 0, 4), daemon.sip());
    let dialling = Dialling::new("routed", &daemon.setup.first_number, daemon.sip())
        .with(&format!("Record-Route: <sip:{};lr>", proxy.own));
    caller.ask(&dialling, &dialling);

    let invite = runtime.request("INVITE");
    let contact = format!(
        "Contact: <sip:runtime@{}>\r\nContent-Type: application/sdp\r\n",
        phone.own
    );
    runtime.answer(&invite, "200 OK", &contact, OFFER);

    let accepted = caller.peer.outcome("INVITE");
    let of_caller = of_caller(&dialling, &accepted.to_tag(), daemon.sip());
    proxy.send(of_caller.request(&proxy, (1, "ACK"), "", ""));
    assert_eq!(of_caller.status(&proxy, (2, "OPTIONS"), ""), 200);

    let of_runtime = Dialog::called(&invite, runtime.tag);
    assert_eq!(of_runtime.status(&phone, (2, "OPTIONS"), ""), 200);

    let intruder = Peer::on(FOREIGN, daemon.sip());
    assert_eq!(of_caller.status(&intruder, (3, "BYE"), ""), 403);
    assert_eq!(of_caller.status(&proxy, (3, "BYE"), ""), 200);
}

/// Any address of the configured name may send requests, not just the one that was called.
#[test]
fn a_runtime_is_at_every_address_of_its_name() {
    let table = [Ipv4Addr::LOCALHOST, SECOND].map(|ip| ("bot.test", Record::Address(ip)));
    let names = dns::serve(table.to_vec());
    let setup =
        one_shard(DaemonSetup::new()).set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    setup.allow("127.0.0.1/32");
    let runtime = runtime(&setup);
    let port = runtime.own.port();
    setup.runtime(&setup.first_agent, &format!("sip:x@bot.test:{port}"));
    let up = Up::with(setup, runtime, |caller, dialling| {
        caller.ask(dialling, dialling)
    });

    let intruder = Peer::on(FOREIGN, up.daemon.sip());
    assert_eq!(up.of_runtime.status(&intruder, (2, "OPTIONS"), ""), 403);
    let second = Peer::on(SECOND, up.daemon.sip());
    second.send(up.of_runtime.request(&second, (3, "INVITE"), "", OFFER));
    let change = up.caller.peer.request("INVITE");
    let lines = "Content-Type: application/sdp\r\n";
    up.caller.peer.answer(&change, "200 OK", lines, OFFER);
    assert_eq!(status_of(&second.outcome("3 INVITE")), 200);
}
