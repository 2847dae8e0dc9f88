//! A runtime that joins two of its calls: it refers to one of its own dialogs with us, on whichever shard.

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::{accepting, runtime};
use crate::torture::one_shard;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::{status_of, statuses_of};
use trunkline_testkit::{Daemon, DaemonSetup, Message, Peer};

/// A call with the runtime: the PBX's side and its tag, and the INVITE that the runtime got.
struct Call {
    pbx: Caller,
    dialling: Dialling,
    tag: String,
    invite: Message,
}

fn sdp(port: u16) -> String {
    OFFER.replace("40000", &port.to_string())
}

impl Call {
    /// Makes a call with this name, whose PBX listens at this port.
    fn new(daemon: &Daemon, runtime: &Peer, name: &str, port: u16) -> Self {
        let pbx = Caller::new(daemon.sip(), daemon.credentials());
        let mut dialling = Dialling::new(name, &daemon.setup.first_number, daemon.sip());
        dialling.body = sdp(port);
        let answer = (&*accepting(runtime), &*sdp(41_000));
        let (tag, invite) = pbx.connect_to(runtime, &dialling, answer);

        // The answer shows that the ACK before it has been served.
        pbx.send(&dialling, "OPTIONS", 3, &tag);
        pbx.peer.outcome("3 OPTIONS");
        Self {
            pbx,
            dialling,
            tag,
            invite,
        }
    }

    /// Returns the text that names the runtime's dialog in this call, inside a URI.
    fn named(&self) -> String {
        let id = self.invite.value("Call-ID");
        let from = self.invite.value("From");
        let (_, ours) = from.split_once(";tag=").expect("a tag");
        format!("{id}%3Bto-tag%3D{ours}%3Bfrom-tag%3Druntime")
    }

    /// The runtime refers this call's caller to the target.
    fn refer(&self, daemon: &Daemon, runtime: &Peer, cseq: u32, named: &str) {
        let daemon = daemon.sip();
        let refer_to = format!("Refer-To: <sip:trunkline@{daemon}?Replaces={named}>\r\n");
        let dialog = Dialog::called(&self.invite, runtime.tag);
        runtime.send(dialog.request(runtime, (cseq, "REFER"), &refer_to, ""));
    }

    /// Answers the next offer with the PBX's own media; returns the offer. Other requests get no answer.
    fn takes_offer(&self, port: u16) -> String {
        let invite = self.pbx.peer.request("INVITE");
        let body = sdp(port).replace("o=- 1 1", "o=- 1 2");
        let lines = accepting(&self.pbx.peer);
        self.pbx.peer.answer(&invite, "200 OK", &lines, &body);
        invite.body().to_owned()
    }

    fn is_hung_up_on(&self) {
        let bye = self.pbx.peer.request("BYE");
        self.pbx.peer.answer(&bye, "200 OK", "", "");
    }
}

/// Collects the runtime's messages until so many BYEs came, or until its subscription ends: fragments of NOTIFYs, and Call-IDs of BYEs.
fn told(runtime: &Peer, byes: usize) -> (Vec<String>, Vec<String>) {
    let (mut fragments, mut gone) = (Vec::new(), Vec::new());
    let is_over = |fragments: &Vec<String>| {
        let last: Option<&String> = fragments.last();
        last.is_some_and(|last| !last.starts_with("SIP/2.0 1"))
    };

    while !is_over(&fragments) || gone.len() < byes {
        let request = runtime.receive();
        if request.method().is_none_or(|method| method == "ACK") {
            continue;
        }
        runtime.answer(&request, "200 OK", "", "");
        let fragment = String::from_utf8_lossy(request.wire().body()).into_owned();
        let id = request.value("Call-ID");
        match request.method() {
            Some("NOTIFY") if fragments.last() != Some(&fragment) => fragments.push(fragment),
            Some("BYE") if !gone.contains(&id) => gone.push(id),
            _ => {}
        }
    }

    (fragments, gone)
}

#[test]
fn two_far_ends_hear_each_other_on_whichever_shards_they_are() {
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__SHARDS", "4");
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let pairs = ["a", "b", "c", "d"];

    for pair in pairs {
        let caller = Call::new(&daemon, &runtime, &format!("{pair}-caller"), 40_002);
        let callee = Call::new(&daemon, &runtime, &format!("{pair}-callee"), 40_004);
        caller.refer(&daemon, &runtime, 1, &callee.named());
        let offered = callee.takes_offer(40_004);
        assert!(offered.contains("m=audio 40002 "), "{pair}: {offered}");
        let offered = caller.takes_offer(40_002);
        assert!(offered.contains("m=audio 40004 "), "{pair}: {offered}");
        let (fragments, gone) = told(&runtime, 2);
        let ends = ["SIP/2.0 100 Trying\r\n", "SIP/2.0 200 OK\r\n"];
        assert_eq!(fragments, ends, "{pair}");
        for call in [&caller, &callee] {
            assert!(
                gone.contains(&call.invite.value("Call-ID")),
                "{pair}: {gone:?}"
            );
        }
        assert_eq!(
            caller.pbx.hang_up(&caller.dialling, 9, &caller.tag),
            200,
            "{pair}"
        );
        callee.is_hung_up_on();
    }

    let records = daemon.records(2 * pairs.len());
    for record in &records {
        assert_eq!(record["status"], "transferred", "{record}");
    }

    let joined = records
        .iter()
        .filter(|record| record["transfer"]["way"] == "bridge");
    assert_eq!(joined.count(), pairs.len(), "{records:?}");
}

/// If the dialog doesn't exist or its far end refuses, the runtime gets a NOTIFY and keeps its caller.
#[test]
fn a_far_end_that_is_not_there_or_refuses_changes_nothing() {
    let setup = DaemonSetup::new();
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Call::new(&daemon, &runtime, "caller", 40_002);
    let callee = Call::new(&daemon, &runtime, "callee", 40_004);
    let wrong = callee
        .named()
        .replace("%3Bfrom-tag%3Druntime", "%3Bfrom-tag%3Dother");
    caller.refer(&daemon, &runtime, 1, &wrong);
    let (fragments, _) = told(&runtime, 0);
    let gone = "SIP/2.0 481 Call/Transaction Does Not Exist\r\n";
    assert_eq!(
        fragments.last().map(String::as_str),
        Some(gone),
        "{fragments:?}"
    );

    caller.refer(&daemon, &runtime, 2, &callee.named());
    let invite = callee.pbx.peer.request("INVITE");
    callee
        .pbx
        .peer
        .answer(&invite, "488 Not Acceptable Here", "", "");
    let (fragments, _) = told(&runtime, 0);
    let refused = "SIP/2.0 488 Not Acceptable Here\r\n";
    assert_eq!(
        fragments.last().map(String::as_str),
        Some(refused),
        "{fragments:?}"
    );

    for call in [&caller, &callee] {
        assert_eq!(call.pbx.hang_up(&call.dialling, 9, &call.tag), 200);
        let bye = runtime.request("BYE");
        runtime.answer(&bye, "200 OK", "", "");
    }

    for record in daemon.records(2) {
        assert_eq!(record["status"], "completed", "{record}");
        let is_caller = record["transfer"].is_object();
        assert!(
            !is_caller || record["transfer"]["sip_code"] == 488,
            "{record}"
        );
    }
}

/// Only the daemon itself replaces an agent, whatever a peer knows of the call.
#[test]
fn nobody_else_takes_an_agents_place() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let call = Call::new(&daemon, &runtime, "call", 40_002);
    let named = call.named().replace("%3B", ";").replace("%3D", "=");
    let proof = format!("X-PLATFORM-JOIN: {}", "0".repeat(64));
    let dialling = |id: &str| {
        Dialling::new(id, "trunkline", daemon.sip())
            .with(&format!("Replaces: {named}"))
            .with(&proof)
    };
    let stranger = Peer::new(daemon.sip());
    let answers = stranger.answers_to(dialling("stranger").invite(1, stranger.own));
    let statuses = statuses_of(&answers);

    assert_eq!(statuses, [401]);

    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    assert_eq!(
        status_of(&pbx.call(&dialling("pbx"))),
        481,
        "it is the agent's dialog"
    );
    assert_eq!(call.pbx.hang_up(&call.dialling, 9, &call.tag), 200);

    let bye = runtime.request("BYE");
    runtime.answer(&bye, "200 OK", "", "");
}
