//! Shares of the node: neither an org nor the orgs of one partner can use up what others need.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::digest::{Asking, Challenge};
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Deadline, Message, Peer, http, process};

const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const MORE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
const UNPROVEN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 9, 1));
const NUMBER: &str = "+442071838799";
const MORE_NUMBER: &str = "+442071838751";

/// Ports for RTP in a test that uses them up.
const PORTS: u16 = 40;

/// An org that calls from an address of its own.
struct Org {
    id: String,
    host: IpAddr,
    number: String,
    /// Those of the trunk that was made for it.
    credentials: Option<Credentials>,
}

impl Org {
    /// The quickstart's org, which belongs to a partner.
    fn first(setup: &DaemonSetup, host: IpAddr) -> Self {
        setup.dedicate(&host.to_string());
        Self {
            id: setup.org.clone(),
            host,
            number: setup.first_number.clone(),
            credentials: None,
        }
    }

    /// A new org without a partner.
    fn of_operator(setup: &DaemonSetup, host: IpAddr) -> Self {
        let made = setup.run(&["org", "create", "--name", "Elsewhere", "--json"]);
        Self::equipped(setup, text(&made["id"]), host, NUMBER)
    }

    /// A new org of the partner that the quickstart's org belongs to; the partner's id comes with it.
    fn of_first_partner(daemon: &Daemon, host: IpAddr) -> (String, Self) {
        let partners = daemon.setup.run(&["partner", "list", "--json"]);
        let partner = text(&partners[0]["id"]);
        let key = ["partner", "key", "create", "--partner", partner, "--json"];
        let key = daemon.setup.run(&key);
        let (at, key) = (daemon.setup.http, text(&key["partner_key"]));
        let new = json!({"name": "Second"});
        let (status, made) = http::change("POST", at, "/partner/v1/orgs", key, &new);
        assert_eq!(status, 201, "{made}");
        let org = Self::equipped(&daemon.setup, text(&made["id"]), host, MORE_NUMBER);
        (partner.to_owned(), org)
    }

    /// Gives an org an agent that answers calls from `host` to `number`.
    fn equipped(setup: &DaemonSetup, org: &str, host: IpAddr, number: &str) -> Self {
        let agent = ["agent", "create", "--org", org, "--name", "Echo", "--json"];
        let agent = setup.run(&agent);
        let agent = text(&agent["id"]);
        let add = ["number", "add", number, "--org", org, "--verified"];
        setup.run(&[&add[..], &["--json"]].concat());
        let assign = [
            "number", "assign", number, "--org", org, "--agent", agent, "--json",
        ];
        setup.run(&assign);
        let trunk = setup.run(&["trunk", "create", "--org", org, "--json"]);
        let credentials = Credentials {
            username: text(&trunk["auth_username"]).to_owned(),
            password: text(&trunk["auth_password"]).to_owned(),
        };
        let at = host.to_string();
        setup.run(&["trunk", "dedicate", &at, "--org", org, "--json"]);
        Self {
            id: org.to_owned(),
            host,
            number: number.to_owned(),
            credentials: Some(credentials),
        }
    }

    fn call(&self, daemon: &Daemon) -> Message {
        self.call_with(daemon, &offer((self.host, 9).into()))
    }

    fn call_with(&self, daemon: &Daemon, sdp: &str) -> Message {
        Talker::call(self.host, daemon.sip(), &self.number, sdp).1
    }

    /// Calls until an INVITE is refused; returns the number of calls, and the refusal.
    fn call_until_refused(&self, daemon: &Daemon) -> (usize, Message) {
        let mut calls = 0;
        loop {
            let answer = self.call(daemon);
            if answer.status() != Some(200) {
                return (calls, answer);
            }
            calls += 1;
            assert!(calls < 100, "nothing refuses it");
        }
    }
}

/// A range of so many free ports.
fn ports(count: u16) -> String {
    let first = process::free_range(count);
    format!("{first}-{}", first + count - 1)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn is_busy(answer: &Message) -> bool {
    let reason = answer.header("X-Trunkline-Reason");
    (answer.status(), reason) == (Some(480), Some("org_busy"))
}

/// Waits until a metric that has this label isn't zero.
fn assert_counted(daemon: &Daemon, name: &str, label: &str) {
    let is_it = |line: &str| {
        let is_zero = line.ends_with(" 0");
        line.starts_with(name) && line.contains(label) && !is_zero
    };
    let counted = Deadline::after(Duration::from_secs(10)).poll(|| {
        let (_, metrics) = http::get(daemon.setup.http, "/metrics", None)?;
        metrics.lines().any(is_it).then_some(())
    });
    assert!(counted.is_some(), "{name} of {label}");
}

/// Stops the daemon, and waits until each of its threads stands still: on a busy machine the signal takes its time.
fn stop(daemon: &Daemon) {
    daemon.process.signal("STOP");
    let tasks = format!("/proc/{}/task", daemon.process.id());
    let is_stopped = |task: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let (_, state) = stat.rsplit_once(") ")?;
        Some(state.starts_with('T'))
    };
    let stopped = Deadline::after(Duration::from_secs(10)).poll(|| {
        let mut tasks = fs::read_dir(&tasks).ok()?;
        tasks
            .all(|task| is_stopped(task) == Some(true))
            .then_some(())
    });
    assert!(stopped.is_some(), "the daemon runs on");
}

#[test]
fn an_org_leaves_room_for_others() {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__LIMITS__MAX_CALLS", "24")
        .set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    let greedy = Org::first(&setup, GREEDY);
    let other = Org::of_operator(&setup, OTHER);
    let daemon = setup.serve();

    let rtp = Rtp::new(GREEDY);
    let first = greedy.call_with(&daemon, &offer(rtp.address()));
    assert_eq!(first.status(), Some(200), "{first:?}");
    let (calls, beyond) = greedy.call_until_refused(&daemon);
    assert_eq!(1 + calls, 22, "a tenth is left free");
    assert!(is_busy(&beyond), "{beyond:?}");

    let others = other.call(&daemon);
    assert_eq!(others.status(), Some(200), "others get in: {others:?}");
    let again = greedy.call(&daemon);
    assert!(is_busy(&again), "its share is smaller now: {again:?}");
    let others = other.call(&daemon);
    assert_eq!(others.status(), Some(200), "others get in: {others:?}");
    let media = first.media();
    assert_eq!(rtp.converse(media), Some(media), "calls that are up go on");

    assert_counted(&daemon, "trunkline_refusals_total", "org_busy");
    assert_counted(&daemon, "trunkline_share_refusals_total", "calls");
}

#[test]
fn an_org_leaves_ports_for_the_audio_of_others() {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__MEDIA__RTP_PORTS", &ports(PORTS))
        .set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    let greedy = Org::first(&setup, GREEDY);
    let other = Org::of_operator(&setup, OTHER);
    let daemon = setup.serve();
    let others = other.call(&daemon);
    assert_eq!(others.status(), Some(200), "{others:?}");

    let rtp = Rtp::new(GREEDY);
    let first = greedy.call_with(&daemon, &offer(rtp.address()));
    assert_eq!(first.status(), Some(200), "{first:?}");
    let (calls, beyond) = greedy.call_until_refused(&daemon);
    assert!(is_busy(&beyond), "{beyond:?}");
    assert!(
        calls >= 20,
        "there was room for more than its share: {calls}"
    );

    // The flood goes on beside the honest calls.
    for _ in 0..3 {
        let others = other.call(&daemon);
        assert_eq!(others.status(), Some(200), "others get in: {others:?}");
        let again = greedy.call(&daemon);
        assert!(is_busy(&again), "what is scarce is the others': {again:?}");
    }
    let media = first.media();
    assert_eq!(rtp.converse(media), Some(media), "calls that are up go on");
    assert_counted(&daemon, "trunkline_share_refusals_total", "media_ports");
}

#[test]
fn the_orgs_of_one_partner_leave_room_for_others() {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__LIMITS__MAX_CALLS", "40")
        .set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    let first = Org::first(&setup, GREEDY);
    let other = Org::of_operator(&setup, OTHER);
    let daemon = setup.serve();
    let (partner, second) = Org::of_first_partner(&daemon, MORE);
    let others = other.call(&daemon);
    assert_eq!(others.status(), Some(200), "{others:?}");

    // An org's share is twenty here, and so is the partner's: half of forty.
    for _ in 0..20 {
        let answer = first.call(&daemon);
        assert_eq!(answer.status(), Some(200), "{answer:?}");
    }
    let (calls, beyond) = second.call_until_refused(&daemon);
    assert!(is_busy(&beyond), "{beyond:?}");
    assert_eq!(calls, 14, "it is below its own share");
    let others = other.call(&daemon);
    assert_eq!(others.status(), Some(200), "others get in: {others:?}");

    let limits = ["partner", "limits", &partner, "--node-share-percent"];
    let set = |percent: &str| {
        let shown = daemon
            .setup
            .run(&[&limits[..], &[percent, "--json"]].concat());
        let rows = shown["items"].as_array().or(shown.as_array());
        let mut rows = rows.expect("rows").iter();
        let row = rows.find(|row| row["limit"] == "node_share_percent");
        row.expect("the share")["value"].clone()
    };
    assert_eq!(set("90"), 90);
    let answer = second.call(&daemon);
    assert_eq!(answer.status(), Some(200), "the operator may: {answer:?}");
    assert_eq!(set("default"), 50);
    let answer = second.call(&daemon);
    assert!(is_busy(&answer), "{answer:?}");
    let others = other.call(&daemon);
    assert_eq!(others.status(), Some(200), "others get in: {others:?}");
}

#[test]
fn an_org_that_is_alone_leaves_room_for_others_of_its_partner() {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__MEDIA__RTP_PORTS", &ports(PORTS))
        .set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    let greedy = Org::first(&setup, GREEDY);
    let stranger = Org::of_operator(&setup, OTHER);
    let daemon = setup.serve();
    let (_, sibling) = Org::of_first_partner(&daemon, MORE);

    let (_, beyond) = greedy.call_until_refused(&daemon);
    assert!(is_busy(&beyond), "{beyond:?}");
    let siblings = sibling.call(&daemon);
    assert_eq!(siblings.status(), Some(200), "{siblings:?}");
    let again = greedy.call(&daemon);
    assert!(is_busy(&again), "{again:?}");
    let strangers = stranger.call(&daemon);
    assert_eq!(strangers.status(), Some(200), "{strangers:?}");
}

/// What waits for a busy shard is served in turn: behind a flood that came first, another org's INVITEs are among the first. One of them comes from
/// its own address, the other proves its password.
#[test]
fn invites_of_an_org_are_served_in_turn_beside_a_flood() {
    const FLOOD: u16 = 90;
    const UNKNOWN: u16 = 40;

    let setup = DaemonSetup::new()
        .set("TRUNKLINE__MEDIA__RTP_PORTS", &ports(4 * FLOOD))
        .set("TRUNKLINE__SIP__SHARDS", "1")
        .set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    let greedy = Org::first(&setup, GREEDY);
    let other = Org::of_operator(&setup, OTHER);
    let daemon = setup.serve();
    let key = ["key", "create", "--org", &other.id, "--json"];
    let key = daemon.setup.run(&key);
    let key = text(&key["api_key"]);

    let uri_of = |number: &str| format!("sip:{number}@{}", daemon.sip());
    let invite = |peer: &Peer, number: &str, id: &str, cseq: u32, lines: &str| {
        let dialog = Dialog::calling(&uri_of(number), "+441632960001", id, peer);
        let sdp = offer((peer.own.ip(), 9).into());
        dialog.request(peer, (cseq, "INVITE"), lines, &sdp)
    };
    let send = |peer: &Peer, number: &str, id: &str| peer.send(invite(peer, number, id, 1, ""));
    let hosts = [GREEDY, UNPROVEN, OTHER, MORE];
    let [flood, unknown, honest, by_digest] = hosts.map(|host| Peer::on(host, daemon.sip()));

    let proving = |cseq, lines: &str| invite(&by_digest, &other.number, "digest", cseq, lines);
    let challenge = Challenge::of(&by_digest.ask(&proving(1, "")));
    let asking = Asking {
        method: "INVITE",
        uri: &uri_of(&other.number),
        nc: 1,
    };
    let credentials = other.credentials.as_ref().expect("its trunk's");
    let proof = challenge.answer(&asking, credentials) + "\r\n";

    // All are in the socket's buffer before the first is read.
    stop(&daemon);
    for at in 0..FLOOD {
        send(&flood, &greedy.number, &format!("flood-{at}"));
    }
    for at in 0..UNKNOWN {
        send(&unknown, &greedy.number, &format!("unknown-{at}"));
    }
    send(&honest, &other.number, "honest");
    by_digest.send(proving(2, &proof));
    daemon.process.signal("CONT");

    for peer in [&honest, &by_digest] {
        let answer = peer.next("a final answer", Message::is_final);
        assert_eq!(answer.status(), Some(200), "{answer:?}");
    }
    let began = |key: &str| -> Vec<String> {
        let page = http::json(daemon.setup.http, "/phone/calls?limit=100", key);
        let calls = page["items"].as_array().expect("a list").iter();
        calls
            .map(|call| text(&call["started_at"]).to_owned())
            .collect()
    };
    let honest = began(key);
    assert_eq!(honest.len(), 2, "{honest:?}");
    let listed = Deadline::after(Duration::from_secs(10)).poll(|| {
        let flood = began(&daemon.setup.key);
        (!flood.is_empty()).then_some(flood)
    });
    let listed = listed.expect("the flood's calls");
    // Those of the flood that were shed have no record.
    for honest in honest {
        let before = listed.iter().filter(|began| **began < honest).count();
        assert!(before <= 3, "{before} of the flood's calls began before");
    }
}
