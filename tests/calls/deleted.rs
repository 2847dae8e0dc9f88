//! A deleted org: its callers are unknown, calls that are up finish or are ended, and its number is free for others.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::json;

use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Pbx};

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const PATIENCE: Duration = Duration::from_secs(10);

fn setup() -> DaemonSetup {
    let setup = DaemonSetup::new().set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    setup.dedicate(&OURS.to_string());
    setup
}

fn call(daemon: &Daemon, sdp: &str) -> (Talker, Message) {
    Talker::call(OURS, daemon.sip(), &daemon.setup.first_number, sdp)
}

#[test]
fn a_deleted_org_is_unknown_its_live_call_finishes_and_it_comes_back() {
    let daemon = setup().serve();
    let rtp = Rtp::new(OURS);
    let sdp = offer(rtp.address());
    let (live, answer) = call(&daemon, &sdp);
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let mut pbx = Pbx::udp(&daemon);
    let contact = format!("Contact: <sip:pbx@{}>\r\n", pbx.address());
    assert_eq!(pbx.register(&contact).status(), Some(200));

    let org = daemon.setup.org.clone();
    daemon
        .setup
        .run(&["org", "delete", &org, "--yes", "--json"]);
    let unknown = Deadline::after(PATIENCE).poll(|| {
        // An unknown sender is challenged for every request.
        (call(&daemon, &sdp).1.status() == Some(401)).then_some(())
    });
    assert!(
        unknown.is_some(),
        "its INVITEs are those of an unknown sender"
    );
    assert_eq!(pbx.register(&contact).status(), Some(401));

    let (status, _) = daemon.read("/phone", daemon.key());
    assert_eq!(status, 401);
    let again = live.offer(&sdp);
    assert_eq!(again.status(), Some(200), "{again:?}");

    // The number of the deleted org is free.
    let other = daemon
        .setup
        .run(&["org", "create", "--name", "Other", "--json"]);
    let other = other["id"].as_str().expect("an id");
    let number = &daemon.setup.first_number;
    let add = ["number", "add", number, "--org", other, "--verified"];
    daemon.setup.run(&[&add[..], &["--json"]].concat());
    let remove = [
        "number", "unverify", number, "--org", other, "--yes", "--json",
    ];
    daemon.setup.run(&remove);

    daemon.setup.run(&["org", "restore", &org, "--json"]);
    daemon.setup.dedicate(&OURS.to_string());
    let served = Deadline::after(PATIENCE)
        .poll(|| (call(&daemon, &sdp).1.status() == Some(200)).then_some(()));
    assert!(served.is_some(), "its INVITEs are taken again");
    assert_eq!(pbx.register(&contact).status(), Some(200));
    let key = ["key", "create", "--org", &org, "--name", "New", "--json"];
    let key = daemon.setup.run(&key);
    let key = key["api_key"].as_str().expect("a key");
    let (_, calls) = daemon.read("/phone/calls", key);
    let live = calls["items"].as_array().expect("calls").len();
    assert!(live >= 2, "{calls}");
}

#[test]
fn an_org_deleted_at_once_loses_its_calls_and_everything() {
    let daemon = setup().serve();
    let rtp = Rtp::new(OURS);
    let (live, answer) = call(&daemon, &offer(rtp.address()));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let org = daemon.setup.org.clone();
    let shown = daemon
        .setup
        .run(&["org", "delete", &org, "--now", "--yes", "--json"]);
    assert_eq!(shown["restorable"], false);
    let bye = Deadline::after(PATIENCE).poll(|| live.asked("BYE"));
    assert!(bye.is_some(), "its call is ended");

    let purged = Deadline::after(PATIENCE).poll(|| {
        daemon
            .log()
            .contains("a deleted org is purged")
            .then_some(())
    });
    assert!(purged.is_some(), "{}", daemon.log());
    let deleted = daemon.setup.run(&["org", "deleted", "--json"]);
    assert_eq!(deleted, json!([]));
}

/// The first of two deleted orgs has a row that the database doesn't give up.
#[test]
fn an_org_that_cannot_be_purged_leaves_the_next_one_its_turn() {
    let daemon = setup().serve();
    let [stuck, other] = ["Stuck", "Other"].map(|name| {
        let org = daemon
            .setup
            .run(&["org", "create", "--name", name, "--json"]);
        org["id"].as_str().expect("an id").to_owned()
    });

    let file = daemon.setup.folder.path().join("data/trunkline.db");
    let trigger = format!(
        "CREATE TRIGGER stuck BEFORE DELETE ON agents WHEN lower(hex(OLD.org_id)) = '{}'
             BEGIN SELECT RAISE(ABORT, 'stuck'); END",
        stuck.replace('-', "")
    );
    rusqlite::Connection::open(file)
        .and_then(|database| database.execute(&trigger, []))
        .expect("a trigger");

    let agent = ["agent", "create", "--org", &stuck, "--name", "A", "--json"];
    daemon.setup.run(&agent);
    for org in [&stuck, &other] {
        daemon
            .setup
            .run(&["org", "delete", org, "--now", "--yes", "--json"]);
    }

    let is_logged = |org: &str| daemon.log().contains(&format!("purged org.id={org}"));
    let purged = Deadline::after(PATIENCE).poll(|| is_logged(&other).then_some(()));
    assert!(purged.is_some(), "{}", daemon.log());
    assert!(!is_logged(&stuck), "{}", daemon.log());
}
