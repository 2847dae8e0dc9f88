//! Keys that became constants of the code. One that is still set is no fault: its value is ignored, and a warning names the constant in
//! force.
//!
//! The table serves installations from before the first release. This file and `RemovedKey` are to be deleted at 0.1.0; from then on such
//! a key is an unknown one.

use figment::value::{Dict, Value};

use super::fault::RemovedKey;
use super::section::tag_within;
use super::sources::Merged;

/// Removed keys, each with the constant in force.
pub(super) const REMOVED: [(&str, &str); 26] = [
    (
        "database.max_connections",
        "the pool of the database holds at most 10 connections",
    ),
    (
        "http.max_connections_per_source",
        "one source may have 128 connections",
    ),
    (
        "http.head_timeout_s",
        "a client has 15 s for a request's head",
    ),
    (
        "http.body_timeout_s",
        "a client has 30 s for a request's body",
    ),
    (
        "http.idle_timeout_s",
        "a connection on which nothing moves is closed after 60 s",
    ),
    (
        "sip.digest_allow_rfc2069",
        "credentials without qop are refused",
    ),
    (
        "sip.enforce_peers",
        "an address that the rule on addresses refuses is never contacted",
    ),
    (
        "sip.health_down_after",
        "a peer is down after 3 failures in a row",
    ),
    (
        "sip.health_up_after",
        "a peer that was down is up after one answer",
    ),
    (
        "sip.register_expires_s",
        "carriers are asked for registrations of 600 s",
    ),
    (
        "sip.registration_min_s",
        "the shortest registration of a PBX is 30 s",
    ),
    (
        "sip.registration_max_s",
        "the longest registration of a PBX is 3600 s",
    ),
    (
        "sip.registration_contacts",
        "a trunk may have 10 contacts registered",
    ),
    (
        "sip.session_expires_s",
        "the session interval that is asked for is 1800 s",
    ),
    (
        "sip.min_se_s",
        "the shortest session interval that is taken is 90 s",
    ),
    ("sip.t2_ms", "T2 is 4 s"),
    ("sip.t4_ms", "T4 is 5 s"),
    (
        "media.bind",
        "RTP is bound to the address that SDP says, or else to the one that the call came to",
    ),
    (
        "phone.verification_trunk.from_host",
        "From has our own host",
    ),
    (
        "phone.verification_trunk.p_asserted_identity",
        "no P-Asserted-Identity is sent",
    ),
    (
        "phone.verification_trunk.calls_per_day",
        "all orgs together have 200 verification calls in 24 hours; prefixes and the limits of each org bound their costs",
    ),
    (
        "widget.token_lifetime_s",
        "the token of a widget's visitor is good for 86400 s",
    ),
    (
        "integrations.booking.timeout_s",
        "the booking platform has 10 s for an answer",
    ),
    ("speech.timeout_s", "the synthesiser has 10 s for a text"),
    (
        "traces.directory",
        "traces are written to data_dir/traces; delete the old directory, since nothing ends or erases its files any more",
    ),
    ("traces.hep_node", "the capture id is sip.node + 1"),
];

/// Takes the removed keys out of `root`, and sections that had nothing else.
pub(super) fn take(root: &mut Dict, merged: &Merged) -> Vec<RemovedKey> {
    let set = REMOVED.iter().filter_map(|(key, in_force)| {
        let value = take_value(root, key)?;
        Some(RemovedKey {
            origin: merged.origin(tag_within(&value), key),
            key,
            in_force,
        })
    });
    let set = set.collect();
    // Sections that have no key any more may stand there empty.
    if let Some(Value::Dict(_, inner)) = root.get("widget")
        && inner.is_empty()
    {
        root.remove("widget");
    }
    set
}

fn take_value(dict: &mut Dict, path: &str) -> Option<Value> {
    let Some((section, rest)) = path.split_once('.') else {
        return dict.remove(path);
    };
    let Some(Value::Dict(_, inner)) = dict.get_mut(section) else {
        return None;
    };
    let value = take_value(inner, rest)?;
    if inner.is_empty() {
        dict.remove(section);
    }
    Some(value)
}
