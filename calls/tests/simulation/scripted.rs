//! Cases of one message after another (`script`).

use std::time::Duration;

use trunkline_calls::LegRole;
use trunkline_model::record::{HangupBy, Status};

use crate::node::RUNTIME_A;
use crate::script::{
    AUDIO, CALLER, CONNECTION, HERE, SECURE, SUCCESSOR, Script, VIDEO, header, media, reply, sdp,
};

const ELSEWHERE: &str = "192.0.2.7:5060";

/// RFC 3261 §12.2.1.1 has requests go to the Contact; behind a firewall that admits no connection, only the dialog's leads there.
#[test]
fn what_a_contact_refuses_goes_by_the_connection_of_the_dialog() {
    let there = "Contact: <sip:runtime@192.0.2.7;transport=tcp>\r\nAllow: INVITE, ACK, BYE, UPDATE, INFO\r\n";
    let (offer, key) = (sdp(1, AUDIO), "Content-Type: application/dtmf-relay\r\n");
    for (method, lines, body) in [
        ("INVITE", "", &*offer),
        ("UPDATE", "", &*offer),
        ("INFO", key, "Signal=5\r\n"),
    ] {
        let (mut script, ok, _) = Script::up(there, &offer, &sdp(2, AUDIO));
        let start = format!("{method} ");
        let request = script.request(&ok, CALLER, &format!("{method} 2"), lines, body);
        script.say(CALLER, None, &request);
        let (first, by) = script.take(ELSEWHERE, &start);
        assert_eq!(by, Some(0), "{method}: a new connection");

        script.refuse(ELSEWHERE);
        assert!(!script.has(CALLER, "SIP/2.0 503"), "{method}");
        let (again, by) = script.take(RUNTIME_A, &start);
        assert_eq!(by, Some(CONNECTION), "{method}");
        assert_ne!(header(&again, "CSeq"), header(&first, "CSeq"), "{method}");
        assert_eq!(
            again.split_once("\r\n\r\n").map(|(_, body)| body.len()),
            Some(body.len()),
            "{method}"
        );

        let answer = match method {
            "INFO" => String::new(),
            _ => sdp(2, AUDIO),
        };
        let accepted = reply(&again, "200 OK", "runtime", there, &answer);
        script.say(RUNTIME_A, Some(CONNECTION), &accepted);
        let (accepted, _) = script.take(CALLER, "SIP/2.0 200");
        assert_eq!(header(&accepted, "CSeq"), format!("2 {method}"));

        // The next one goes there at once.
        let bye = script.request(&ok, CALLER, "BYE 3", "", "");
        script.say(CALLER, None, &bye);
        assert_eq!(
            script.take(RUNTIME_A, "BYE ").1,
            Some(CONNECTION),
            "{method}"
        );
    }
}

/// The caller of an agent that no longer knows its dialog stays until its transfer has an outcome.
#[test]
fn an_agent_that_is_lost_during_a_transfer_gets_its_bye_and_is_recorded_as_lost() {
    let (mut script, ok, _) = Script::up(HERE, &sdp(1, AUDIO), &sdp(2, AUDIO));
    script.hand_over(0);
    let (refer, _) = script.take(CALLER, "REFER ");
    script.say(CALLER, None, &reply(&refer, "202 Accepted", "call", "", ""));

    let info = script.request(
        &ok,
        CALLER,
        "INFO 2",
        "Content-Type: application/dtmf-relay\r\n",
        "Signal=5\r\n",
    );
    script.say(CALLER, None, &info);
    let (info, _) = script.take(RUNTIME_A, "INFO ");
    let gone = reply(&info, "481 No Such Dialog", "runtime", "", "");
    script.say(RUNTIME_A, Some(CONNECTION), &gone);
    let (first, by) = script.take(RUNTIME_A, "BYE ");
    assert_eq!(by, Some(CONNECTION));

    script.break_connection(RUNTIME_A, CONNECTION);
    let (second, by) = script.take(RUNTIME_A, "BYE ");
    assert_eq!(by, Some(0), "a new connection");
    assert_eq!(header(&second, "Call-ID"), header(&first, "Call-ID"));
    script.break_connection(RUNTIME_A, 2);
    assert!(!script.has(RUNTIME_A, "BYE "), "a third is never sent");

    let lines = "Event: refer\r\nSubscription-State: terminated;reason=noresource\r\nContent-Type: message/sipfrag\r\n";
    let busy = script.request(&ok, CALLER, "NOTIFY 3", lines, "SIP/2.0 486 Busy Here\r\n");
    script.say(CALLER, None, &busy);
    let (bye, _) = script.take(CALLER, "BYE ");
    assert!(header(&bye, "Reason").contains("cause=480"), "{bye}");
    let ended = script.ended().expect("the end");
    assert_eq!(
        (ended.status, ended.hangup_by, ended.reason.as_deref()),
        (Status::Completed, HangupBy::Platform, Some("dialog_gone"))
    );
}

/// RFC 3264 §6: with another profile than the offer's, neither end would hear the other.
#[test]
fn an_answer_of_another_profile_is_taken_out_of_a_provisional_response() {
    for (offer, answer, crosses) in [
        (AUDIO, AUDIO, true),
        (SECURE, SECURE, true),
        (SECURE, AUDIO, false),
        (AUDIO, SECURE, false),
    ] {
        let mut script = Script::new();
        let invite = script.invite(CALLER, "call", "", &sdp(1, offer));
        script.say(CALLER, None, &invite);
        let (invite, _) = script.take(RUNTIME_A, "INVITE ");
        let early = reply(
            &invite,
            "183 Session Progress",
            "runtime",
            HERE,
            &sdp(2, answer),
        );
        script.say(RUNTIME_A, Some(CONNECTION), &early);

        let (early, _) = script.take(CALLER, "SIP/2.0 183");
        assert_eq!(!media(&early).is_empty(), crosses, "{offer} {answer}");
        assert_eq!(early.contains("Content-Type"), crosses, "{early}");
    }
}

#[test]
fn a_change_that_is_answered_with_another_profile_fails_and_the_call_goes_on() {
    for method in ["INVITE", "UPDATE"] {
        let (mut script, ok, _) = Script::up(HERE, &sdp(1, AUDIO), &sdp(2, AUDIO));
        let request = script.request(&ok, CALLER, &format!("{method} 2"), "", &sdp(1, SECURE));
        script.say(CALLER, None, &request);
        let (relayed, _) = script.take(RUNTIME_A, &format!("{method} "));
        let accepted = reply(&relayed, "200 OK", "runtime", HERE, &sdp(2, AUDIO));
        script.say(RUNTIME_A, Some(CONNECTION), &accepted);

        let (refused, _) = script.take(CALLER, "SIP/2.0 488");
        assert!(refused.contains("no_common_media"), "{refused}");
        if method == "INVITE" {
            script.take(RUNTIME_A, "ACK ");
            let ack = script.request(&ok, CALLER, "ACK 2", "", "");
            // RFC 3261 §17.1.1.3: the ACK to a refusal has the branch of its INVITE.
            script.say(CALLER, None, &ack.replace("z9hG4bKACK2", "z9hG4bKINVITE2"));
        }

        // The runtime has taken what the caller doesn't send, and is offered what it does.
        script.after(Duration::from_secs(5));
        let (restored, _) = script.take(RUNTIME_A, "INVITE ");
        assert_eq!(media(&restored), ["m=audio 4000 RTP/AVP 0"], "{method}");
        assert!(script.ended().is_none(), "{method}");
    }
}

#[test]
fn an_ack_that_answers_with_another_profile_rejects_the_offer() {
    let (mut script, ok, _) = Script::up(HERE, &sdp(1, AUDIO), &sdp(2, AUDIO));
    let request = script.request(&ok, CALLER, "INVITE 2", "", "");
    script.say(CALLER, None, &request);
    let (relayed, _) = script.take(RUNTIME_A, "INVITE ");
    let offers = reply(&relayed, "200 OK", "runtime", HERE, &sdp(2, SECURE));
    script.say(RUNTIME_A, Some(CONNECTION), &offers);
    let (offered, _) = script.take(CALLER, "SIP/2.0 200");
    assert_eq!(media(&offered), ["m=audio 4000 RTP/SAVP 0"]);

    let ack = script.request(&ok, CALLER, "ACK 2", "", &sdp(1, AUDIO));
    script.say(CALLER, None, &ack);
    let (ack, _) = script.take(RUNTIME_A, "ACK ");
    assert_eq!(media(&ack), ["m=audio 0 RTP/SAVP 0"]);
}

/// RFC 3262 §5: a PRACK may have an offer, which its 200 answers.
#[test]
fn an_offer_in_a_prack_that_is_answered_with_another_profile_fails() {
    let mut script = Script::new();
    let reliable = "Supported: 100rel\r\n";
    let invite = script.invite(CALLER, "call", reliable, &sdp(1, AUDIO));
    script.say(CALLER, None, &invite);
    let (invite, _) = script.take(RUNTIME_A, "INVITE ");
    let lines = format!("{HERE}Require: 100rel\r\nRSeq: 1\r\n");
    let early = reply(&invite, "183 Early", "runtime", &lines, &sdp(2, AUDIO));
    script.say(RUNTIME_A, Some(CONNECTION), &early);

    let (early, _) = script.take(CALLER, "SIP/2.0 183");
    let rack = format!("RAck: {} 1 INVITE\r\n", header(&early, "RSeq"));
    let prack = script.request(&early, CALLER, "PRACK 2", &rack, &sdp(1, SECURE));
    script.say(CALLER, None, &prack);
    let (relayed, _) = script.take(RUNTIME_A, "PRACK ");
    assert_eq!(media(&relayed), ["m=audio 4000 RTP/SAVP 0"]);
    let accepted = reply(&relayed, "200 OK", "runtime", "", &sdp(2, AUDIO));
    script.say(RUNTIME_A, Some(CONNECTION), &accepted);
    let (refused, _) = script.take(CALLER, "SIP/2.0 488");
    assert_eq!(header(&refused, "CSeq"), "2 PRACK");
    assert!(refused.contains("no_common_media"), "{refused}");

    // The call goes on with what the 183 had. The runtime has taken the other offer, and is offered what the caller sends.
    let ok = reply(&invite, "200 OK", "runtime", HERE, "");
    script.say(RUNTIME_A, Some(CONNECTION), &ok);
    let (ok, _) = script.take(CALLER, "SIP/2.0 200");
    let ack = script.request(&ok, CALLER, "ACK 1", "", "");
    script.say(CALLER, None, &ack);
    script.after(Duration::from_secs(1));
    let (restored, _) = script.take(RUNTIME_A, "INVITE ");
    assert_eq!(media(&restored), ["m=audio 4000 RTP/AVP 0"]);
}

/// RFC 3262 §3: the PRACK gets its 2xx, though the caller's answer in it can't be used.
#[test]
fn a_prack_that_answers_with_another_profile_ends_the_set_up() {
    for (answer, is_usable) in [(SECURE, true), (AUDIO, false)] {
        let mut script = Script::new();
        let invite = script.invite(CALLER, "call", "Supported: 100rel\r\n", "");
        script.say(CALLER, None, &invite);
        let (invite, _) = script.take(RUNTIME_A, "INVITE ");
        let lines = format!("{HERE}Require: 100rel\r\nRSeq: 1\r\n");
        let early = reply(&invite, "183 Early", "runtime", &lines, &sdp(2, SECURE));
        script.say(RUNTIME_A, Some(CONNECTION), &early);

        let (early, _) = script.take(CALLER, "SIP/2.0 183");
        let rack = format!("RAck: {} 1 INVITE\r\n", header(&early, "RSeq"));
        let prack = script.request(&early, CALLER, "PRACK 2", &rack, &sdp(1, answer));
        script.say(CALLER, None, &prack);
        if is_usable {
            let (relayed, _) = script.take(RUNTIME_A, "PRACK ");
            assert_eq!(media(&relayed), ["m=audio 4000 RTP/SAVP 0"]);
            continue;
        }

        let (acknowledged, _) = script.take(CALLER, "SIP/2.0 200");
        assert_eq!(header(&acknowledged, "CSeq"), "2 PRACK");
        script.take(RUNTIME_A, "CANCEL ");
        let (refused, _) = script.take(CALLER, "SIP/2.0 488");
        assert_eq!(header(&refused, "CSeq"), "1 INVITE");
        assert!(refused.contains("no_common_media"), "{refused}");
        let ended = script.ended().expect("the end");
        let reason = ended.reason.as_deref();
        assert_eq!(
            (ended.status, reason),
            (Status::Failed, Some("no_common_media"))
        );
    }
}

/// The caller answers our re-INVITE with the destination's media by another profile: it has them no more than if it had refused.
#[test]
fn a_caller_that_answers_a_join_with_another_profile_keeps_its_agent() {
    const DESK: &str = "192.0.2.50:5060";

    let (mut script, _, _) = Script::up(HERE, &sdp(1, AUDIO), &sdp(2, AUDIO));
    script.hand_over(1);
    let (refer, _) = script.take(CALLER, "REFER ");
    let unknown = reply(&refer, "405 Method Not Allowed", "call", "", "");
    script.say(CALLER, None, &unknown);
    let (called, _) = script.take(DESK, "INVITE ");
    let there = format!("Contact: <sip:desk@{DESK}>\r\n");
    let ok = reply(&called, "200 OK", "desk", &there, &sdp(3, AUDIO));
    script.say(DESK, None, &ok);

    let (joined, _) = script.take(CALLER, "INVITE ");
    let here = format!("Contact: <sip:pbx@{CALLER}>\r\n");
    let misanswered = reply(&joined, "200 OK", "call", &here, &sdp(1, SECURE));
    script.say(CALLER, None, &misanswered);
    script.take(CALLER, "ACK ");
    script.take(DESK, "BYE ");
    assert!(!script.has(RUNTIME_A, "BYE "), "the agent stays");

    // It is offered its agent's media again. Whatever it answers then, it isn't asked a third time.
    script.after(Duration::from_secs(5));
    for answer in [SECURE, AUDIO] {
        let (asked, _) = script.take(RUNTIME_A, "INVITE ");
        let media = reply(&asked, "200 OK", "runtime", HERE, &sdp(2, AUDIO));
        script.say(RUNTIME_A, Some(CONNECTION), &media);
        script.take(RUNTIME_A, "ACK ");
        if answer == SECURE {
            let (restored, _) = script.take(CALLER, "INVITE ");
            assert!(restored.contains("m=audio 4000 RTP/AVP 0"), "{restored}");
            let again = reply(&restored, "200 OK", "call", &here, &sdp(1, answer));
            script.say(CALLER, None, &again);
            script.take(CALLER, "ACK ");
        }
    }
    script.after(Duration::from_secs(60));
    assert!(!script.has(CALLER, "INVITE ") && !script.has(RUNTIME_A, "INVITE "));
    assert!(script.ended().is_none());
}

#[test]
fn a_hold_that_is_answered_with_another_profile_is_refused() {
    let (mut script, _, _) = Script::up(HERE, &sdp(1, AUDIO), &sdp(2, AUDIO));
    script.hold();
    let (held, _) = script.take(RUNTIME_A, "INVITE ");
    let answer = reply(&held, "200 OK", "runtime", HERE, &sdp(2, SECURE));
    script.say(RUNTIME_A, Some(CONNECTION), &answer);
    script.take(RUNTIME_A, "ACK ");
    assert!(!script.has(CALLER, "INVITE "), "nothing of it crosses");
    let refused = script.hold_refusal().expect("a refusal");
    assert_eq!((refused.role, refused.status), (LegRole::Agent, 488));
    script.after(Duration::from_secs(60));
    assert!(script.ended().is_none());
}

/// RFC 3264 §8: "the new SDP MUST have at least N media lines". The phone that takes the caller's place has no video.
#[test]
fn the_kept_leg_of_an_attended_transfer_keeps_its_media_lines() {
    let timer = "Contact: <sip:runtime@192.0.2.1;transport=tcp>\r\nAllow: INVITE, ACK, BYE, CANCEL\r\n\
        Session-Expires: 120;refresher=uac\r\nRequire: timer\r\n";
    let both = format!("{AUDIO}{VIDEO}");
    let no_video = format!("{AUDIO}m=video 0 RTP/AVP 96\r\n");
    let (audio, kept) = ("m=audio 4000 RTP/AVP 0", "m=video 0 RTP/AVP 96");
    let (mut script, ok, invite) = Script::up(timer, &sdp(1, &both), &sdp(2, &both));

    let to = header(&ok, "To");
    let tag = to.split_once(";tag=").expect("a tag").1;
    let replaces = format!("Replaces: call;to-tag={tag};from-tag=call\r\nRequire: replaces\r\n");
    let successor = script.invite(SUCCESSOR, "new", &replaces, &sdp(3, AUDIO));
    script.say(SUCCESSOR, None, &successor);
    let mut told = Vec::new();

    // The INVITE of the new leg, and a re-INVITE of it.
    for round in 0..2 {
        let (offered, _) = script.take(RUNTIME_A, "INVITE ");
        told.push(header(&offered, "CSeq"));
        assert_eq!(media(&offered), [audio, kept], "{round}");
        let answer = reply(&offered, "200 OK", "runtime", timer, &sdp(2, &no_video));
        script.say(RUNTIME_A, Some(CONNECTION), &answer);
        let (accepted, _) = script.take(SUCCESSOR, "SIP/2.0 200");
        assert_eq!(
            media(&accepted),
            [audio],
            "{round}: as many as it has offered"
        );

        let cseq = format!("ACK {}", round + 1);
        let ack = script.request(&accepted, SUCCESSOR, &cseq, "", "");
        script.say(SUCCESSOR, None, &ack);
        if round == 0 {
            let again = script.request(&accepted, SUCCESSOR, "INVITE 2", "", &sdp(3, AUDIO));
            script.say(SUCCESSOR, None, &again);
        }
    }

    // Our own refresh of the runtime's session.
    script.after(Duration::from_secs(70));
    let (refresh, _) = script.take(RUNTIME_A, "INVITE ");
    assert!(!told.contains(&header(&refresh, "CSeq")), "{refresh}");
    assert_eq!(media(&refresh), [audio, kept]);
    let answer = reply(&refresh, "200 OK", "runtime", timer, &sdp(2, &no_video));
    script.say(RUNTIME_A, Some(CONNECTION), &answer);

    // The runtime asks the new leg for an offer.
    let asks = script.runtime_request(&invite, "INVITE 1", "", "");
    script.say(RUNTIME_A, Some(CONNECTION), &asks);
    let (asked, _) = script.take(SUCCESSOR, "INVITE ");
    let there = format!("Contact: <sip:pbx@{SUCCESSOR}>\r\n");
    script.say(
        SUCCESSOR,
        None,
        &reply(&asked, "200 OK", "new", &there, &sdp(3, AUDIO)),
    );
    let (offered, _) = script.take(RUNTIME_A, "SIP/2.0 200");
    assert_eq!(media(&offered), [audio, kept]);
    let ack = script.runtime_request(&invite, "ACK 1", "", &sdp(2, &no_video));
    script.say(RUNTIME_A, Some(CONNECTION), &ack);
    let (ack, _) = script.take(SUCCESSOR, "ACK ");
    assert_eq!(media(&ack), [audio]);
}
