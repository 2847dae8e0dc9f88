//! Events of a call whose caller asked not to be named have no number.

use std::sync::Arc;

use serde_json::{Value, json};
use trunkline_model::record::{Fact, Status};
use trunkline_routing::E164;
use uuid::Uuid;

use crate::events::{RUN, life, lose_call, told};
use crate::explained::asked;
use crate::test_db::{self, TestDb, later};
use trunkline_testkit::event_schema::assert_fits;

crate::on_both!(a_caller_who_asked_not_to_be_named_is_in_no_event,);

const NUMBER: &str = "+441632960001";

/// Facts of a call from a number.
fn called(org: Uuid, call: u128, is_anonymous: bool) -> Vec<Fact> {
    let mut facts = life(org, call, Status::Completed);
    if let Fact::Started(started) = &mut facts[0] {
        let started = Arc::make_mut(started);
        let mut invite = asked("200");
        invite.facts.anonymous = is_anonymous;
        started.from = NUMBER.into();
        started.from_e164 = NUMBER.parse::<E164>().ok();
        started.invite_facts = Some(invite.into());
    }
    facts
}

async fn a_caller_who_asked_not_to_be_named_is_in_no_event(db: &TestDb) {
    let store = db.open().await;
    let orgs = [1, 2, 3, 4].map(Uuid::from_u128);
    let [whole, pieces, lost, named] = orgs;
    let project = async |facts: &[Fact]| {
        let projected = test_db::project(&store, RUN, facts).await;
        projected.expect("projected");
    };
    project(&called(whole, 1, true)).await;
    project(&called(named, 4, false)).await;
    let mut facts = called(pieces, 2, true);
    facts.reverse();

    for fact in facts {
        project(&[fact]).await;
    }
    project(&called(lost, 3, true)[..2]).await;
    lose_call(&store, later(9)).await;

    for (org, count) in orgs.into_iter().zip([4, 4, 3, 4]) {
        let told = told(&store, org).await;
        assert_eq!(told.len(), count, "{org}: {told:?}");
        let withheld = org != named;
        let expected = match withheld {
            true => [json!("anonymous"), Value::Null, json!(true)],
            false => [json!(NUMBER), json!(NUMBER), json!(false)],
        };
        for (kind, data) in told {
            let shown = ["from_number", "from_e164", "caller_withheld"];
            assert_eq!(shown.map(|field| data[field].clone()), expected, "{kind}");
            assert_eq!(data.to_string().contains(NUMBER), !withheld, "{data}");
            assert_fits(&kind, &data);
        }
    }
}
