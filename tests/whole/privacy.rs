//! What the built daemon deletes by itself.

use std::time::Duration;

use serde_json::Value;
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{Options, Store};
use trunkline_testkit::Deadline;
use uuid::Uuid;

use crate::node::{Plot, text};

const LIMIT: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> Moment {
    let seconds = jiff::Timestamp::now().as_second();
    Moment::from_secs(seconds.unsigned_abs())
}

/// A call that was answered for a minute.
fn call(org: Uuid, at: Moment) -> [Fact; 2] {
    let call = Uuid::new_v4();
    let started = Started {
        call,
        org,
        session: Uuid::new_v4(),
        agent: None,
        trunk: None,
        direction: Direction::Inbound,
        from: "+441632960001".into(),
        to: "+442071838750".into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: "a@b".into(),
        at,
        decision: None,
        headers: Vec::new(),
        metadata: None,
        asked: None,
    };
    let ended = Ended {
        call,
        org,
        at: at + Duration::from_secs(60),
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    [Fact::Started(started.into()), Fact::Ended(ended.into())]
}

#[test]
fn what_is_older_than_its_days_goes() {
    let days = (
        "TRUNKLINE__RETENTION__CALLS_DAYS".to_owned(),
        "30".to_owned(),
    );
    let plot = Plot::new(&[days]);
    let outset = plot.run(&["quickstart", "--json", "--no-serve"]);
    let org: Uuid = text(&outset["org_id"]).parse().expect("an id");
    let key = text(&outset["api_key"]);
    let mut facts = Vec::new();
    for age in [40, 31, 29, 0] {
        facts.extend(call(org, now() - DAY * age - Duration::from_secs(3_600)));
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = Options {
            data_dir: plot.data(),
            url: None,
            master_key: None,
            max_connections: 2,
        };
        let store = Store::open(&options, now()).await.expect("the store opens");
        let run = Origin { node: 9, boot: 1 };
        let projected = store.write(move |tx| trunkline_store::project(tx, run, &facts));
        projected.await.expect("projected");
        store.close().await;
    });

    let node = plot.serve();
    let left = Deadline::after(LIMIT).poll(|| {
        let (_, calls) = node.get("/phone/calls", &key);
        let calls: Value = serde_json::from_str(&calls).ok()?;
        (calls["total"] == 2).then_some(())
    });
    assert!(left.is_some(), "{:?}", node.get("/phone/calls", &key));
    let from = (now() - DAY * 60).as_secs();
    let from = jiff::Timestamp::from_second(from.cast_signed()).expect("a time");
    let (_, usage) = node.get(&format!("/phone/usage?start_date={from}"), &key);
    let usage: Value = serde_json::from_str(&usage).expect("JSON");
    assert_eq!(usage["items"][0]["calls"], 4, "{usage}");
}
