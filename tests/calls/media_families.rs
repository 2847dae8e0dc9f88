//! Addresses of media: one per listener and family, and a refusal where the families of two legs differ.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;

use crate::calls::outbound;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Responder, Runtime};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Address of another listener.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// Calls from here need no credentials.
const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Starts a node that listens on both families with one port.
fn both() -> DaemonSetup {
    let setup = DaemonSetup::new();
    let port = setup.sip.port();
    let setup = setup.set(
        "TRUNKLINE__SIP__UDP",
        &format!("127.0.0.1:{port},{OTHER}:{port},[::1]:{port}"),
    );
    setup.dedicate(&CALLER.to_string());
    setup.dedicate(&V6.to_string());
    setup
}

fn at(ip: IpAddr, daemon: &Daemon) -> SocketAddr {
    SocketAddr::new(ip, daemon.sip().port())
}

#[test]
fn media_is_where_the_call_came_by() {
    let daemon = both().serve();
    let number = daemon.setup.first_number.clone();
    for (from, listener) in [(CALLER, V4), (V6, V6), (CALLER, OTHER)] {
        let rtp = Rtp::new(from);
        let (_talker, answer) =
            Talker::call(from, at(listener, &daemon), &number, &offer(rtp.address()));
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        assert_eq!(answer.media().ip(), listener, "{answer:?}");
        // RTP comes from the address in the SDP.
        assert_eq!(rtp.converse(answer.media()), Some(answer.media()), "{from}");
    }

    for (address, media) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")] {
        let line = daemon.log_line(&[&format!("address={address}:")]);
        assert!(line.contains(&format!("media={media}")), "{line}");
    }
}

/// The public host is 127.0.0.1: a peer on IPv6 would send its ACK to an address from which nothing comes to its listener.
#[test]
fn an_address_of_the_other_family_is_no_contact() {
    let daemon = both().serve();
    let (port, number) = (daemon.sip().port(), daemon.setup.first_number.clone());
    for (from, listener, contact) in [(CALLER, V4, "127.0.0.1"), (V6, V6, "[::1]")] {
        let rtp = Rtp::new(from);
        let (_talker, answer) =
            Talker::call(from, at(listener, &daemon), &number, &offer(rtp.address()));
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        let given = answer.header("Contact").unwrap_or_default();
        assert_eq!(
            given,
            format!("<sip:trunkline@{contact}:{port}>"),
            "{answer:?}"
        );
    }

    let warning = daemon.log_line(&["isn't used for this listener"]);
    assert!(
        warning.contains("[::1]") && warning.contains("sip.public_host"),
        "{warning}"
    );

    let (_, report) = daemon.setup.doctor();
    let findings = report["findings"].as_array().expect("findings");
    let mut of_listeners = findings
        .iter()
        .filter(|finding| finding["check"] == "media_address");
    let unused = of_listeners.find(|finding| {
        let text = finding["text"].as_str().unwrap_or_default();
        finding["level"] == "warning" && text.contains(&format!("udp [::1]:{port}"))
    });
    assert!(unused.is_some(), "{report}");
}

#[test]
fn a_daemon_on_every_address_gives_the_one_that_was_called() {
    let setup = DaemonSetup::new();
    let port = setup.sip.port();
    let setup = setup.set("TRUNKLINE__SIP__UDP", &format!("0.0.0.0:{port}"));
    // No host of this listener, so that only the call shows an address that leads back.
    let setup = setup.set("TRUNKLINE__SIP__PUBLIC_HOST", "[2001:db8::1]");
    setup.dedicate(&CALLER.to_string());
    let daemon = setup.serve();
    let number = daemon.setup.first_number.clone();
    for called in [V4, OTHER] {
        let rtp = Rtp::new(CALLER);
        let (talker, answer) =
            Talker::call(CALLER, at(called, &daemon), &number, &offer(rtp.address()));
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        let contact = format!("<sip:trunkline@{called}:{port}>");
        let given = answer.header("Contact").unwrap_or_default();
        assert_eq!(given, contact, "{answer:?}");

        // The same in a later answer.
        let again = talker.offer(&offer(rtp.address()));
        assert_eq!(again.header("Contact"), Some(&*contact), "{again:?}");
    }
}

#[test]
fn media_of_ours_have_the_ip_version_of_the_offer() {
    let daemon = both().serve();
    let number = daemon.setup.first_number.clone();
    for (from, listener, media) in [(V6, V6, V4), (CALLER, V4, V6)] {
        let rtp = Rtp::new(media);
        let (_talker, answer) =
            Talker::call(from, at(listener, &daemon), &number, &offer(rtp.address()));
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        assert_eq!(answer.media().ip(), media, "{answer:?}");
        assert_eq!(rtp.converse(answer.media()), Some(answer.media()), "{from}");
    }
}

#[test]
fn a_public_host_that_is_a_name_is_looked_up_for_media() {
    let here = Record::Address(Ipv4Addr::new(127, 0, 0, 9));
    let names = dns::serve(vec![
        ("voice.test", here.clone()),
        // This host has addresses only by its SRV record.
        (
            "_sip._udp.service.test",
            Record::Service(10, 5060, "a.service.test"),
        ),
        ("a.service.test", here),
    ]);

    for name in ["voice.test", "service.test"] {
        let daemon = DaemonSetup::new()
            .set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string())
            .set("TRUNKLINE__SIP__PUBLIC_HOST", name)
            .serve();
        let (_, report) = daemon.setup.doctor();
        let findings = report["findings"].as_array().expect("findings");
        let told = findings.iter().any(|finding| {
            let text = finding["text"].as_str().unwrap_or_default();
            finding["check"] == "media_address"
                && text.contains(&format!("{name}:"))
                && text.contains("for signalling")
        });
        assert!(told, "{report}");
    }
}

#[test]
fn a_callee_whose_name_has_ipv6_addresses_alone_is_offered_ipv6_media() {
    let names = dns::serve(vec![(
        "six.test",
        Record::SixthVersion(Ipv6Addr::LOCALHOST),
    )]);
    let callee = answering(V6);
    let daemon = both()
        .set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string())
        .serve();
    let port = callee.address.port();
    let trunk = json!({"host": "six.test", "port": port});
    outbound::give_trunk(&daemon, Runtime::new(), &trunk);
    outbound::order(&daemon, &json!({"max_duration_s": 1}));

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");

    let invites = callee.requests("INVITE");
    let offered = invites.last().expect("an INVITE").text();
    let (_, offered) = offered.split_once("\r\n\r\n").expect("a body");
    assert!(offered.contains("\r\nc=IN IP6 ::1\r\n"), "{offered}");
    assert!(!offered.contains("IN IP4"), "{offered}");
}

/// Starts a runtime that answers each call with media of its own family.
fn answering(ip: IpAddr) -> Responder {
    Responder::accepting(ip, None, offer(SocketAddr::new(ip, 4_000)))
}

#[test]
fn two_families_of_media_are_not_bridged() {
    let (v4, v6) = (answering(V4), answering(V6));
    let setup = both();
    let number = setup.first_number.clone();
    let six = format!("sip:x@{}", v6.address);
    setup.runtime(&setup.first_agent, &six);
    let daemon = setup.serve();
    let call = |from: IpAddr, listener: IpAddr| {
        let sdp = offer(SocketAddr::new(from, 4_002));
        Talker::call(from, at(listener, &daemon), &number, &sdp).1
    };

    let refused = call(CALLER, V4);
    assert_eq!(refused.status(), Some(488), "{refused:?}");
    let warning = refused.header("Warning").unwrap_or_default();
    assert!(
        warning.contains("IPv4") && warning.contains("IPv6"),
        "{warning}"
    );

    let ended = Deadline::after(Duration::from_secs(10))
        .poll(|| (!v6.requests("BYE").is_empty()).then_some(()));
    assert!(ended.is_some(), "the runtime isn't left with a call");

    let recorded = daemon.record();
    assert_eq!(recorded["reason"], "media_families_differ", "{recorded}");
    let explained = daemon.shown(&format!(
        "/phone/calls/{}/routing",
        recorded["id"].as_str().expect("an id")
    ));
    let said = explained["explanation"].to_string();
    assert!(said.contains("IPv6"), "{explained}");

    let found = Deadline::after(Duration::from_secs(10)).poll(|| {
        let (_, report) = daemon.setup.doctor();
        let findings = report["findings"].as_array()?.clone();
        let mut findings = findings.into_iter();
        findings.find(|finding| finding["check"] == "media_families")
    });
    assert!(found.is_some(), "the doctor names it");

    // The same runtime serves callers of its family, and a fallback of the caller's family is tried.
    assert_eq!(call(V6, V6).status(), Some(200));
    let four = format!("sip:x@{}", v4.address);
    daemon
        .setup
        .runtime_with_fallback(&daemon.setup.first_agent, &six, &four);
    daemon.setup.settle();
    let taken = call(CALLER, V4);
    assert_eq!(taken.status(), Some(200), "{taken:?}");
    assert_eq!(taken.media().ip(), V4);
}

#[test]
fn media_does_not_move_to_another_family_within_a_call() {
    let runtime = answering(V4);
    let setup = both();
    let number = setup.first_number.clone();
    setup.runtime(&setup.first_agent, &format!("sip:x@{}", runtime.address));
    let daemon = setup.serve();
    let sdp = |ip, port| offer(SocketAddr::new(ip, port));
    let (caller, taken) = Talker::call(CALLER, at(V4, &daemon), &number, &sdp(CALLER, 4_002));
    assert_eq!(taken.status(), Some(200), "{taken:?}");

    let moved = caller.offer(&sdp(V6, 4_002));
    assert_eq!(moved.status(), Some(488), "{moved:?}");
    let reason = moved.header("X-Trunkline-Reason");
    assert_eq!(reason, Some("media_families_differ"), "{moved:?}");
    assert_eq!(runtime.requests("INVITE").len(), 1, "it isn't asked");

    // The call is unchanged. Its media may move within its family, or offer both.
    let stays = caller.offer(&sdp(CALLER, 4_004));
    assert_eq!(stays.status(), Some(200), "{stays:?}");
    let either = "a=candidate:1 1 UDP 1 127.0.0.2 4006 typ host\r\n";
    let stays = caller.offer(&format!("{}{either}", sdp(V6, 4_006)));
    assert_eq!(stays.status(), Some(200), "{stays:?}");
    assert_eq!(runtime.requests("INVITE").len(), 3);
}

/// A caller that offers SRTP alone would take a plain answer for a call that is up, and hear nothing.
#[test]
fn a_plain_answer_to_an_encrypted_offer_is_not_passed_on() {
    const KEY: &str =
        "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR\r\n";
    let encrypted = |at: SocketAddr| format!("{}{KEY}", offer(at).replace("RTP/AVP", "RTP/SAVP"));

    let plain = answering(V4);
    let setup = both();
    let number = setup.first_number.clone();
    let first = format!("sip:x@{}", plain.address);
    setup.runtime(&setup.first_agent, &first);
    let daemon = setup.serve();
    let call = || {
        let sdp = encrypted(SocketAddr::new(CALLER, 4_002));
        Talker::call(CALLER, at(V4, &daemon), &number, &sdp)
    };

    let (_caller, refused) = call();
    assert_eq!(refused.status(), Some(488), "{refused:?}");
    let reason = refused.header("X-Trunkline-Reason");
    assert_eq!(reason, Some("no_common_media"), "{refused:?}");
    let ended = Deadline::after(Duration::from_secs(10))
        .poll(|| (!plain.requests("BYE").is_empty()).then_some(()));
    assert!(ended.is_some(), "the runtime isn't left with a call");
    let recorded = daemon.record();
    assert_eq!(recorded["reason"], "no_common_media", "{recorded}");
    let detail = "The offer holds encrypted audio (SRTP) alone";
    assert_eq!(recorded["reason_detail"], detail, "{recorded}");

    // What the offer lacks for media of ours stands in the explanation and at the end of the ladder.
    let id = recorded["id"].as_str().expect("an id").to_owned();
    for path in [
        format!("/phone/calls/{id}/routing"),
        format!("/phone/calls/{id}/trace"),
    ] {
        let shown = daemon.shown(&path).to_string();
        assert!(
            shown.contains("encrypted audio (SRTP) alone"),
            "{path}: {shown}"
        );
    }

    // A fallback that speaks SRTP is tried.
    let secured = Responder::accepting(V4, None, encrypted(SocketAddr::new(V4, 4_000)));
    let second = format!("sip:x@{}", secured.address);
    let agent = &daemon.setup.first_agent;
    daemon.setup.runtime_with_fallback(agent, &first, &second);
    daemon.setup.settle();
    let (_caller, taken) = call();
    assert_eq!(taken.status(), Some(200), "{taken:?}");
}
