//! A runtime that joins two of its calls: it refers to a dialog of its own with us, whichever shard has it.

use trunkline_sip::wire::HeaderName;

use crate::caller::{Caller, Dialling, OFFER, read, to_tag};
use crate::one_shard;
use crate::peer::{Stranger, status_of};
use crate::runtime::Runtime;
use trunkline_testkit::answer::answer;
use trunkline_testkit::{Daemon, House};

/// A call with the runtime: the PBX's side and its tag, and the INVITE that the runtime got.
struct Call {
    pbx: Caller,
    dialling: Dialling,
    tag: String,
    invite: Vec<u8>,
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// What a 200 says besides.
fn accepting(at: &Stranger) -> String {
    format!(
        "Contact: <sip:peer@{}>\r\nContent-Type: application/sdp\r\n",
        at.address()
    )
}

fn sdp(port: u16) -> String {
    OFFER.replace("40000", &port.to_string())
}

impl Call {
    /// A call of this name whose PBX listens at this port.
    fn new(daemon: &Daemon, runtime: &Runtime, name: &str, port: u16) -> Self {
        let pbx = Caller::new(daemon.sip(), daemon.credentials());
        let mut dialling = Dialling::new(name, &daemon.house.first_number, daemon.sip());
        dialling.body = sdp(port);
        let mut came = pbx.dial(&dialling);
        let invite = runtime.request("INVITE");
        runtime.answer(&invite, "200 OK", &accepting(&runtime.peer), &sdp(41_000));
        while status_of(&came) < 200 {
            came = pbx.answer(&dialling);
        }
        let tag = to_tag(&came);
        pbx.send(&dialling, "ACK", 2, &tag);
        runtime.request("ACK");
        // The ACK before it has been served.
        pbx.send(&dialling, "OPTIONS", 3, &tag);
        while read(&pbx.answer(&dialling)).cseq().number != 3 {}
        Self {
            pbx,
            dialling,
            tag,
            invite,
        }
    }

    fn value(&self, name: HeaderName) -> String {
        text(read(&self.invite).first(name).expect("it is there"))
    }

    /// What names the runtime's dialog in this call, inside a URI.
    fn named(&self) -> String {
        let ours = text(read(&self.invite).from_tag().expect("a tag"));
        let id = self.value(HeaderName::CallId);
        format!("{id}%3Bto-tag%3D{ours}%3Bfrom-tag%3Druntime")
    }

    /// The runtime refers this call's caller to who is named.
    fn refer(&self, daemon: &Daemon, runtime: &Runtime, cseq: u32, named: &str) {
        let (at, id) = (runtime.peer.address(), &self.dialling.id);
        let refer = format!(
            "REFER sip:trunkline@{0} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bKr{id}{cseq}\r\nMax-Forwards: 70\r\n\
             From: {1};tag=runtime\r\nTo: {2}\r\nCall-ID: {3}\r\nCSeq: {cseq} REFER\r\nContact: <sip:agent@{at}>\r\n\
             Refer-To: <sip:trunkline@{0}?Replaces={named}>\r\nContent-Length: 0\r\n\r\n",
            daemon.sip(),
            self.value(HeaderName::To),
            self.value(HeaderName::From),
            self.value(HeaderName::CallId),
        );
        runtime.peer.send(refer.as_bytes());
    }

    /// Takes the next offer with the PBX's own media; what was offered. What else is asked is granted.
    fn takes_offer(&self, port: u16) -> String {
        loop {
            let octets = self.pbx.peer.receive();
            let message = read(&octets);
            if message.is_request() && message.method_token() == b"INVITE" {
                let lines = accepting(&self.pbx.peer);
                let body = sdp(port).replace("o=- 1 1", "o=- 1 2");
                self.pbx
                    .peer
                    .send(answer(&message, "200 OK", "pbx", &lines, &body));
                return text(message.body());
            }
        }
    }

    fn is_hung_up_on(&self) {
        loop {
            let octets = self.pbx.peer.receive();
            let message = read(&octets);
            if message.is_request() && message.method_token() == b"BYE" {
                return self
                    .pbx
                    .peer
                    .send(answer(&message, "200 OK", "pbx", "", ""));
            }
        }
    }
}

/// What the runtime is told until it was hung up on in so many calls, or until the end of its subscription: fragments of NOTIFYs, and Call-IDs of
/// BYEs.
fn told(runtime: &Runtime, byes: usize) -> (Vec<String>, Vec<String>) {
    let (mut fragments, mut gone) = (Vec::new(), Vec::new());
    let is_over = |fragments: &Vec<String>| {
        let last: Option<&String> = fragments.last();
        last.is_some_and(|last| !last.starts_with("SIP/2.0 1"))
    };
    while !is_over(&fragments) || gone.len() < byes {
        let octets = runtime.peer.receive();
        let message = read(&octets);
        if !message.is_request() || message.method_token() == b"ACK" {
            continue;
        }
        runtime.answer(&octets, "200 OK", "", "");
        let (fragment, id) = (text(message.body()), text(message.call_id()));
        match message.method_token() {
            b"NOTIFY" if fragments.last() != Some(&fragment) => fragments.push(fragment),
            b"BYE" if !gone.contains(&id) => gone.push(id),
            _ => {}
        }
    }
    (fragments, gone)
}

#[test]
fn two_far_ends_hear_each_other_on_whichever_shards_they_are() {
    let house = House::new().set("TRUNKLINE__SIP__SHARDS", "4");
    let runtime = Runtime::of(&house);
    let daemon = house.serve();
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
                gone.contains(&call.value(HeaderName::CallId)),
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

/// A dialog that isn't there, and one whose far end won't: the runtime is told, and keeps its caller.
#[test]
fn a_far_end_that_is_not_there_or_refuses_changes_nothing() {
    let house = House::new();
    let runtime = Runtime::of(&house);
    let daemon = house.serve();
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
    loop {
        let octets = callee.pbx.peer.receive();
        let message = read(&octets);
        if message.is_request() && message.method_token() == b"INVITE" {
            let refused = answer(&message, "488 Not Acceptable Here", "pbx", "", "");
            callee.pbx.peer.send(&refused);
            break;
        }
    }
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

/// Nobody but ourselves takes an agent's place, whatever it knows of the call.
#[test]
fn nobody_else_takes_an_agents_place() {
    let house = one_shard(House::new());
    let runtime = Runtime::of(&house);
    let daemon = house.serve();
    let call = Call::new(&daemon, &runtime, "call", 40_002);
    let named = call.named().replace("%3B", ";").replace("%3D", "=");
    let proof = format!("X-PLATFORM-JOIN: {}", "0".repeat(64));
    let dialling = |id: &str| {
        Dialling::new(id, "trunkline", daemon.sip())
            .with(&format!("Replaces: {named}"))
            .with(&proof)
    };
    let stranger = Stranger::new(daemon.sip());
    let answers = stranger.answers_to(&dialling("stranger").invite(1, stranger.address()));
    let statuses: Vec<u16> = answers.iter().map(|answer| status_of(answer)).collect();
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
