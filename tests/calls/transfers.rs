//! Cold transfers: the REFER to the PBX, and the outcome of each way in which it may answer.

use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::referred::Step::{self, Answer, Bye, ByeComes, Key, Notify, Pause, Refer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, assert_handed_over, proves, tools};

const NUMBER: &str = "+442071838751";

/// The echo agent of the first org, with one destination.
fn daemon() -> Daemon {
    let daemon = DaemonSetup::new().serve();
    daemon.destination("Sales", "phone", NUMBER);
    daemon
}

/// Keeps a transfer that the PBX refuses from being bridged.
fn no_bridge(daemon: &Daemon) {
    let fields = json!({"bridge_when_refer_fails": false});
    let (status, body) = daemon.change("PATCH", "/phone/sip/inbound-trunk", &fields);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();
}

fn transfer(daemon: &Daemon, call: &str, ask: &Value) -> (u16, Value) {
    daemon.change("POST", &format!("/phone/calls/{call}/transfer"), ask)
}

#[test]
fn the_pbx_is_asked_with_all_the_context_and_the_call_ends_transferred() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = daemon();
    let pbx = daemon.caller().takes(&[
        Refer,
        Answer("202 Accepted", ""),
        Notify("SIP/2.0 100 Trying", "active;expires=60"),
        Notify("SIP/2.0 180 Ringing", "active;expires=60"),
        Pause(1_000),
        Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
        ByeComes,
    ]);

    let call = daemon.answered_call();
    let ask = json!({
        "destination": "SALES",
        "reasons": ["user_requested_human_assistance"],
        "summary": "Wants a price",
        "sentiment": "happy",
    });
    let (status, begun) = transfer(&daemon, &call, &ask);

    assert_eq!(status, 202, "{begun}");

    let trace = pbx.finish();
    let record = daemon.record();
    let refer = trace.request("REFER");
    let [session, contact] =
        ["session_id", "contact_id"].map(|field| record[field].as_str().expect("an id"));
    let agent = daemon.setup.first_agent.as_str();
    assert_eq!(refer.headers("X-PLATFORM-SESSION-ID"), [session], "{trace}");
    assert_eq!(refer.headers("X-PLATFORM-AGENT-ID"), [agent], "{trace}");
    assert_eq!(refer.headers("X-PLATFORM-CONTACT-ID"), [contact], "{trace}");

    let to = refer.header("Refer-To").expect("a Refer-To");
    assert!(to.starts_with(&format!("<sip:{NUMBER}@127.0.0.1")), "{to}");

    let inside = format!(
        "?X-PLATFORM-SESSION-ID={session}&X-PLATFORM-AGENT-ID={agent}&X-PLATFORM-CONTACT-ID={contact}>"
    );
    assert!(to.ends_with(&inside), "{to}");
    assert!(
        refer
            .header("Referred-By")
            .is_some_and(|by| by.starts_with("<sip:")),
        "{trace}"
    );
    assert!(refer.header("Contact").is_some(), "{trace}");
    assert_eq!(record["status"], "transferred", "{record}");

    let done = &record["transfer"];
    assert_eq!(done["status"], "completed", "{record}");
    assert_eq!(done["way"], "refer", "{record}");

    for time in ["requested_at", "accepted_at", "ringing_at", "ended_at"] {
        assert!(done[time].is_string(), "{time}: {record}");
    }

    let handoffs = daemon.shown("/handoff-analytics/events");
    assert_eq!(handoffs["total"], 1, "{handoffs}");

    let handoff = &handoffs["items"][0];

    assert_eq!(handoff["session_id"], session, "{handoff}");
    assert_eq!(
        handoff["reasons"],
        json!(["user_requested_human_assistance"]),
        "{handoff}"
    );
    assert_eq!(handoff["summary"], "Wants a price", "{handoff}");
    assert_eq!(handoff["sentiment"], "happy", "{handoff}");
}

/// Behaviours of PBXs after the REFER: status (`handed over`: see [`assert_handed_over`]) and transfer of the record, and the number of handoffs.
#[test]
fn every_way_of_a_pbx_has_its_outcome() {
    if !tools(&["sipp"]) {
        return;
    }

    const ACCEPTED: Step = Answer("202 Accepted", "");
    const TRYING: Step = Notify("SIP/2.0 100 Trying", "active;expires=60");
    const RINGING: Step = Notify("SIP/2.0 180 Ringing", "active;expires=60");
    const DONE: Step = Notify("SIP/2.0 200 OK", "terminated;reason=noresource");
    const LATER: Step = Pause(2_000);
    type Case = (
        &'static str,
        &'static [Step],
        [&'static str; 2],
        Option<u16>,
        usize,
    );

    let cases: [Case; 15] = [
        (
            "200 before anybody can have answered, then BYE",
            &[Refer, ACCEPTED, DONE, Pause(100), Bye],
            ["handed over", "completed"],
            None,
            1,
        ),
        (
            "200 after a while, though without ringing",
            &[Refer, ACCEPTED, TRYING, LATER, DONE, ByeComes],
            ["transferred", "completed"],
            None,
            1,
        ),
        (
            "no NOTIFY at all, then BYE",
            &[Refer, ACCEPTED, Pause(100), Bye],
            ["handed over", "unknown"],
            None,
            1,
        ),
        (
            "BYE while it rings",
            &[Refer, ACCEPTED, RINGING, Bye],
            ["handed over", "unknown"],
            None,
            1,
        ),
        (
            "BYE, then NOTIFY",
            &[Refer, ACCEPTED, RINGING, Bye, Pause(50), DONE],
            ["handed over", "completed"],
            None,
            1,
        ),
        (
            "BYE, then NOTIFY of a failure",
            &[
                Refer,
                ACCEPTED,
                Bye,
                Notify("SIP/2.0 486 Busy Here", "terminated"),
            ],
            ["completed", "failed"],
            Some(486),
            0,
        ),
        (
            "NOTIFY before 202",
            &[Refer, RINGING, ACCEPTED, LATER, DONE, ByeComes],
            ["transferred", "completed"],
            None,
            1,
        ),
        (
            "no subscription",
            &[Refer, Answer("200 OK", "Refer-Sub: false"), Pause(100), Bye],
            ["handed over", "unknown"],
            None,
            1,
        ),
        (
            "it rings and is busy",
            &[
                Refer,
                ACCEPTED,
                RINGING,
                Notify("SIP/2.0 486 Busy Here", "terminated;reason=noresource"),
                Pause(100),
                Bye,
            ],
            ["completed", "failed"],
            Some(486),
            0,
        ),
        (
            "an unknown number",
            &[
                Refer,
                ACCEPTED,
                Notify("SIP/2.0 404 Not Found", "terminated;reason=noresource"),
                Pause(100),
                Bye,
            ],
            ["completed", "failed"],
            Some(404),
            0,
        ),
        (
            "the end of the subscription without a result, and the caller stays",
            &[
                Refer,
                ACCEPTED,
                Notify("SIP/2.0 100 Trying", "terminated;reason=giveup"),
                Pause(100),
                Bye,
            ],
            ["handed over", "unknown"],
            None,
            1,
        ),
        (
            "a NOTIFY that says nothing",
            &[
                Refer,
                ACCEPTED,
                Notify("", "active"),
                RINGING,
                DONE,
                ByeComes,
            ],
            ["handed over", "completed"],
            None,
            1,
        ),
        (
            "glare",
            &[
                Refer,
                Answer("491 Request Pending", ""),
                Refer,
                ACCEPTED,
                RINGING,
                LATER,
                DONE,
                ByeComes,
            ],
            ["transferred", "completed"],
            None,
            1,
        ),
        (
            "REFER crosses BYE",
            &[
                Refer,
                Bye,
                Answer("481 Call/Transaction Does Not Exist", ""),
                Pause(100),
            ],
            ["completed", "failed"],
            Some(481),
            0,
        ),
        (
            "declined",
            &[Refer, Answer("403 Forbidden", ""), Pause(100), Bye],
            ["completed", "failed"],
            Some(403),
            0,
        ),
    ];

    let daemon = daemon();
    no_bridge(&daemon);
    let mut handoffs = 0;
    for (place, (case, steps, [status, state], code, handed)) in cases.into_iter().enumerate() {
        let pbx = daemon.caller().takes(steps);
        let call = daemon.answered_call();
        let (answer, begun) = transfer(&daemon, &call, &json!({"destination": "sales"}));
        assert_eq!(answer, 202, "{case}: {begun}");
        let trace = pbx.finish();
        let record = daemon.records(place + 1).remove(0);
        match status {
            "handed over" => assert_handed_over(&record),
            status => assert_eq!(record["status"], status, "{case}: {record}\n{trace}"),
        }
        assert_eq!(
            record["transfer"]["status"], state,
            "{case}: {record}\n{trace}"
        );
        assert_eq!(
            record["transfer"]["sip_code"],
            json!(code),
            "{case}: {record}"
        );
        handoffs += handed;
        assert_eq!(
            daemon.shown("/handoff-analytics/events")["total"],
            handoffs,
            "{case}: {record}"
        );
    }
}

/// Challenged once by a proxy and once by the PBX. A refused answer is not repeated. A challenge without qop gets no answer: inside a dialog, that
/// answer would fit any nonce that the challenger chooses.
#[test]
fn a_challenge_is_answered_with_the_trunks_own_pair() {
    if !tools(&["sipp"]) {
        return;
    }

    const QOP: &str = "realm=\"pbx\", nonce=\"n0nce\", algorithm=MD5, qop=\"auth\"";
    const OLD: &str = "realm=\"pbx\", nonce=\"0ld\"";
    let cases = [
        (
            "407 Proxy Authentication Required",
            "Proxy-",
            QOP,
            Some(false),
        ),
        ("401 Unauthorized", "WWW-", QOP, Some(true)),
        ("401 Unauthorized", "WWW-", OLD, None),
    ];

    let daemon = daemon();
    no_bridge(&daemon);

    for (place, (status, kind, parts, answer_is_taken)) in cases.into_iter().enumerate() {
        let challenge: &'static str = format!("{kind}Authenticate: Digest {parts}").leak();
        let mut steps = vec![Refer, Answer(status, challenge)];
        match answer_is_taken {
            Some(true) => steps.extend([
                Refer,
                Answer("202 Accepted", ""),
                Notify("SIP/2.0 180 Ringing", "active;expires=60"),
                Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
                ByeComes,
            ]),
            Some(false) => steps.extend([Refer, Answer(status, challenge), Pause(100), Bye]),
            None => steps.extend([Pause(100), Bye]),
        }

        let pbx = daemon.caller().takes(&steps);
        let call = daemon.answered_call();
        let (answer, begun) = transfer(&daemon, &call, &json!({"destination": "sales"}));
        assert_eq!(answer, 202, "{begun}");
        let trace = pbx.finish();
        let record = daemon.records(place + 1).remove(0);

        let header = if kind == "WWW-" {
            "Authorization"
        } else {
            "Proxy-Authorization"
        };

        let refers = trace.requests("REFER");
        assert_eq!(refers[0].header(header), None, "{trace}");
        let proof = refers
            .last()
            .map(|refer| proves(refer, header, "REFER", &daemon.credentials()));
        assert_eq!(proof, Some(answer_is_taken.is_some()), "{status}: {trace}");
        let password = &daemon.credentials().password;
        assert!(!trace.to_string().contains(password), "{trace}");

        let (state, code) = match answer_is_taken {
            Some(true) => ("completed", json!(null)),
            Some(false) => ("failed", json!(407)),
            None => ("failed", json!(401)),
        };
        assert_eq!(record["transfer"]["status"], state, "{record}");
        assert_eq!(record["transfer"]["sip_code"], code, "{record}");
    }
}

#[test]
fn what_cannot_be_transferred_is_told() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = daemon();
    let pbx = daemon
        .caller()
        .takes(&[Refer, Answer("202 Accepted", ""), Pause(1500), Bye]);
    let call = daemon.answered_call();

    for (ask, status) in [
        (json!({}), 400),
        (json!({"destination": "Sales", "destination_id": call}), 400),
        (json!({"destination": "nobody"}), 400),
        (json!({"destination_id": call}), 400),
        (json!({"destination": "human"}), 400),
        (json!({"destination": "Sales", "reasons": ["bored"]}), 400),
        (json!({"destination": "Sales", "to": "+15550100"}), 400),
        (json!({"destination": "Sales"}), 202),
        (json!({"destination": "Sales"}), 409),
    ] {
        let (answer, body) = transfer(&daemon, &call, &ask);
        assert_eq!(answer, status, "{ask}: {body}");
    }

    pbx.finish();
    daemon.record();

    let (answer, body) = transfer(&daemon, &call, &json!({"destination": "Sales"}));
    assert_eq!(answer, 409, "{body}");

    let (answer, body) = transfer(&daemon, "0199", &json!({"destination": "Sales"}));
    assert_eq!(answer, 404, "{body}");
}

#[test]
fn the_number_for_human_escalation_is_a_destination() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = daemon();
    let path = format!("/phone/{}", daemon.setup.first_agent);
    let (status, body) = daemon.change(
        "PATCH",
        &path,
        &json!({"handoff_phone_number": "+442071838759"}),
    );
    assert_eq!(status, 200, "{body}");

    let pbx = daemon
        .caller()
        .takes(&[Refer, Answer("603 Declined", ""), Pause(100), Bye]);
    let call = daemon.answered_call();
    let (status, begun) = transfer(&daemon, &call, &json!({"destination": "Human"}));
    assert_eq!(status, 202, "{begun}");
    assert!(begun["destination_id"].is_null(), "{begun}");

    let trace = pbx.finish();
    let to = trace
        .request("REFER")
        .header("Refer-To")
        .expect("a Refer-To");
    assert!(to.starts_with("<sip:+442071838759@"), "{to}");
}

/// Numbers in the trunk's format, SIP URIs unchanged.
#[test]
fn refer_to_is_written_as_the_trunk_says() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = daemon();
    daemon.destination("Desk", "sip", "sip:desk@pbx.example;transport=tcp");

    let set = |fields: Value| {
        let (status, body) = daemon.change("PATCH", "/phone/sip/inbound-trunk", &fields);
        assert_eq!(status, 200, "{body}");
    };

    let cases = [
        (
            json!({"refer_to_format": "tel"}),
            "Sales",
            format!("<tel:{NUMBER}>"),
        ),
        (
            json!({}),
            "Desk",
            "<sip:desk@pbx.example;transport=tcp?X-PLATFORM-SESSION-ID=".to_owned(),
        ),
        (
            json!({"refer_headers_in_uri": false}),
            "Desk",
            "<sip:desk@pbx.example;transport=tcp>".to_owned(),
        ),
        (
            json!({"refer_to_format": "sip", "refer_host": "pbx.example"}),
            "Sales",
            format!("<sip:{NUMBER}@pbx.example>"),
        ),
    ];

    for (place, (fields, destination, expected)) in cases.into_iter().enumerate() {
        set(fields);
        let pbx = daemon
            .caller()
            .takes(&[Refer, Answer("403 Forbidden", ""), Pause(100), Bye]);

        let call = daemon.answered_call();
        transfer(&daemon, &call, &json!({"destination": destination}));
        let trace = pbx.finish();
        let to = trace
            .request("REFER")
            .header("Refer-To")
            .expect("a Refer-To");
        assert!(to.starts_with(&expected), "{to} is not {expected}");
        daemon.records(place + 1);
    }
}

/// Digit N leads to the echo agent's N-th destination.
#[test]
fn a_key_hands_the_echo_agents_caller_over() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = daemon();
    daemon.destination("Second", "phone", "+442071838752");
    let steps = [
        Pause(300),
        Key('9'),
        Key('2'),
        Refer,
        Answer("403 Forbidden", ""),
        Pause(100),
        Bye,
    ];
    let trace = daemon.caller().takes(&steps).finish();

    let to = trace
        .request("REFER")
        .header("Refer-To")
        .expect("a Refer-To");
    assert!(to.starts_with("<sip:+442071838752@"), "{to}");
    assert_eq!(daemon.record()["transfer"]["destination"], "Second");
}

/// The same key among the audio, repeated in several packets as phones do.
#[test]
fn a_key_among_the_audio_does_the_same() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = daemon();
    daemon.destination("Second", "phone", "+442071838752");
    let pbx = daemon
        .caller()
        .takes(&[Refer, Answer("403 Forbidden", ""), Pause(300), Bye]);

    let answered = || {
        let so_far = pbx.so_far();
        let is_answered = so_far.statuses("INVITE").contains(&200);
        is_answered.then_some(so_far)
    };

    daemon.answered_call();
    let so_far = Deadline::after(Duration::from_secs(30)).poll(answered);
    let so_far = so_far.expect("the caller has its answer");
    let answer = so_far.response(200, "INVITE").body();
    let value = |key: &str| answer.lines().find_map(|line| line.strip_prefix(key));
    let port = value("m=audio ").and_then(|rest| rest.split(' ').next());
    let address = value("c=IN IP4 ");
    let ours = format!("{}:{}", address.expect("c="), port.expect("m="));

    let phone = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    for sequence in 0..6_u8 {
        let (marker, end) = (
            0x80 * u8::from(sequence == 0),
            0x80 * u8::from(sequence > 2),
        );

        let packet = [
            0x80,
            marker | 101,
            0,
            sequence,
            0,
            0,
            3,
            32,
            1,
            2,
            3,
            4,
            2,
            end | 10,
            1,
            64,
        ];
        phone.send_to(&packet, &ours).expect("it is sent");
    }

    let trace = pbx.finish();
    let refers = trace.requests("REFER");
    assert_eq!(refers.len(), 1, "{trace}");

    let to = refers[0].header("Refer-To").expect("a Refer-To");
    assert!(to.starts_with("<sip:+442071838752@"), "{to}");
    assert_eq!(daemon.record()["transfer"]["destination"], "Second");
}
