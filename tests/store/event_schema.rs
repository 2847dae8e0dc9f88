//! Recorded events match the published schema: the same fields, each of its type.

use serde_json::Value;
use trunkline_model::record::HangupBy;
use trunkline_testkit::event_schema::schema;

#[test]
fn whoever_hangs_up_is_known_to_the_schema() {
    let schema = schema();
    let known = &schema["$defs"]["call"]["properties"]["hangup_by"]["enum"];
    let mut all: Vec<Value> = [
        HangupBy::Caller,
        HangupBy::Agent,
        HangupBy::Callee,
        HangupBy::Platform,
    ]
    .map(|by| by.as_str().into())
    .into();
    all.push(Value::Null);
    assert_eq!(known, &Value::Array(all));
}

#[test]
fn every_type_is_in_the_schema_and_no_other() {
    let schema = schema();
    let branches = schema["oneOf"].as_array().expect("branches");
    let kinds = branches.iter().flat_map(|branch| {
        let kinds = branch["properties"]["type"]["enum"].as_array();
        kinds.expect("types").iter().filter_map(Value::as_str)
    });
    let known = trunkline_store::EventType::ALL.map(trunkline_store::EventType::as_str);
    assert_eq!(kinds.collect::<Vec<_>>(), known);
}
