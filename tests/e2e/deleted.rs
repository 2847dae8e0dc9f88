//! An org that is deleted at one of two daemons on one PostgreSQL.

use std::time::Duration;

use serde_json::Value;

use crate::e2e::node::text;
use crate::e2e::nodes::Pair;
use trunkline_testkit::{Deadline, tools};

const LIMIT: Duration = Duration::from_secs(30);

/// At the other node the org's keys and its call end, and one of the two nodes purges it.
#[test]
fn an_org_deleted_at_one_node_is_gone_from_the_other() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    let peer = pair.caller(&pair.second).play("caller_is_hung_up_on");
    let up = Deadline::after(LIMIT).poll(|| {
        let (_, calls) = pair.first.get("/phone/calls?status=in_progress", &pair.key);
        let calls: Value = serde_json::from_str(&calls).ok()?;
        (calls["total"] == 1).then_some(())
    });
    assert!(up.is_some(), "the call is up");
    assert_eq!(pair.second.get("/phone", &pair.key).0, 200);

    let org = text(&pair.outset["org_id"]);
    let delete = ["org", "delete", &org, "--now", "--yes", "--json"];
    pair.first.setup.run(&delete);
    // The other node polls; the long limit is for a busy machine.
    let ended = Deadline::after(LIMIT)
        .poll(|| (pair.second.get("/phone", &pair.key).0 == 401).then_some(()));
    assert!(ended.is_some(), "the other one takes its key no more");
    peer.finish();

    let purged = Deadline::after(LIMIT).poll(|| {
        let left = pair.database.texts(
            "SELECT 'org' FROM orgs UNION ALL SELECT 'call' FROM calls UNION ALL SELECT 'event' FROM events",
        );
        left.is_empty().then_some(())
    });
    assert!(purged.is_some(), "nothing of it is left");

    let usage = "SELECT answered_calls::text FROM usage_kept";
    assert_eq!(pair.database.texts(usage), ["1"]);
    // The purge is logged after the last row has gone.
    let purging = || {
        let logs = [&pair.first, &pair.second].map(|node| node.setup.log());
        let purged = logs
            .iter()
            .filter(|log| log.contains("a deleted org is purged"));
        purged.count()
    };
    let logged = Deadline::after(LIMIT).poll(|| (purging() > 0).then_some(()));
    assert!(logged.is_some(), "nobody says so");
    assert_eq!(purging(), 1, "one node purges");
}
