//! The features of a call: none imports the call, its shard or another feature, and the call that joins them has few methods.

use crate::modules::{Graph, without_tests};
use crate::source::Source;

/// Modules of `calls` that join the features: one call, and the calls of one shard.
const JOINING: [&str; 2] = ["call", "shard"];

/// The features of a call, each with its modules. What they work with (legs, bridge, requests) is no feature.
const FEATURES: [(&str, &[&str]); 10] = [
    ("hold", &["hold", "hold_state", "holding"]),
    ("transfer", &["transfer", "transferring"]),
    ("join", &["join", "joining"]),
    ("refresh", &["peer_liveness", "session"]),
    ("replace", &["replaces"]),
    ("dial", &["calling", "dial", "dialing"]),
    ("bot", &["bot", "bot_state", "builtin", "flow"]),
    ("local media", &["local_media"]),
    ("verification", &["spoken_code", "verification"]),
    ("source trust", &["address_change", "source_trust"]),
];

/// Most methods of a call. Functions that take `&mut Call` count as methods.
pub(crate) const MOST_METHODS: usize = 40;

/// Returns the imports of the call or its shard from outside of them, and those of one feature by another.
pub(crate) fn features_know_neither_call_nor_each_other(graph: &Graph) -> Vec<String> {
    let edges = graph
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let is_wrong = |(from, to): &(&String, &String)| {
        let joins = joins(from) || *from == "lib";
        let features = feature(from).zip(feature(to));
        (!joins && self::joins(to)) || features.is_some_and(|(one, other)| one != other)
    };
    edges
        .filter(is_wrong)
        .map(|(from, to)| format!("calls/src: {from} imports {to}"))
        .collect()
}

/// Returns a violation if the call has too many methods.
pub(crate) fn the_call_has_few_methods(sources: &[Source]) -> Vec<String> {
    let own = sources
        .iter()
        .filter(|source| source.is_under("calls/src/"));
    let count: usize = own.map(methods).sum();
    match count > MOST_METHODS {
        true => vec![format!(
            "Call has {count} methods, {MOST_METHODS} are enough"
        )],
        false => Vec::new(),
    }
}

/// Counts the call's methods in one file.
fn methods(source: &Source) -> usize {
    let mut count = 0;
    let mut is_inside = false;
    let code = without_tests(&source.code);
    for line in code.lines() {
        match line {
            "impl Call {" => is_inside = true,
            "}" => is_inside = false,
            _ => {}
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_method = is_inside && line.starts_with("    ") && !line.starts_with("     ");
        let takes_call = line.contains(": &mut Call,") || line.contains(": &mut Call)");
        if is_method && words.contains(&"fn") || takes_call {
            count += 1;
        }
    }
    count
}

fn joins(module: &str) -> bool {
    JOINING.iter().any(|root| is_below(module, root))
}

fn feature(module: &str) -> Option<&'static str> {
    let mut features = FEATURES.iter();
    let found = features.find(|(_, modules)| modules.iter().any(|root| is_below(module, root)));
    found.map(|(name, _)| *name)
}

fn is_below(module: &str, root: &str) -> bool {
    module
        .strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every module that is listed exists.
pub(crate) fn unknown_modules(graph: &Graph) -> Vec<&'static str> {
    let features = FEATURES.iter().flat_map(|(_, modules)| modules.iter());
    let listed = features.chain(&JOINING).copied();
    listed
        .filter(|module| !graph.contains_key(*module))
        .collect()
}

#[test]
fn imports_between_features_are_found() {
    let edge = |from: &str, to: &[&str]| {
        let to = to.iter().map(|to| (*to).to_owned()).collect();
        (from.to_owned(), to)
    };
    let found = |from: &str, to: &str| {
        let graph = [edge(from, &[to])].into();
        !features_know_neither_call_nor_each_other(&graph).is_empty()
    };
    for (from, to, is_wrong) in [
        ("hold", "call", true),
        ("transferring::digit", "call", true),
        ("bridge", "call::ending", true),
        ("session", "shard", true),
        ("hold", "join", true),
        ("transferring::bridge", "holding", true),
        ("bot", "local_media::media_peer", true),
        ("bot", "builtin", false),
        ("transferring::own", "transfer::plan", false),
        ("hold", "bridge", false),
        ("bridge", "join", false),
        ("call::ending", "holding", false),
        ("shard::media", "call", false),
        ("lib", "shard", false),
        ("hold", "call_status", false),
    ] {
        assert_eq!(found(from, to), is_wrong, "{from} imports {to}");
    }
}

#[test]
fn methods_of_the_call_are_counted() {
    let methods = "    pub(crate) fn a(&mut self) {\n        x(|| fn_b());\n    }\n";
    let own = |times: usize| {
        let text = format!("//! x\nimpl Call {{\n{}}}\n", methods.repeat(times));
        Source::new("calls/src/call/x.rs", text)
    };
    let others = Source::new(
        "calls/src/x.rs",
        "//! x\nimpl Other {\n    fn a() {}\n}\nfn b(act: impl FnOnce(&mut Call, u8)) {}\n#[cfg(test)]\nmod tests { fn c(call: &mut Call) {} }\n",
    );
    let free = Source::new("calls/src/y.rs", "//! x\nfn a(call: &mut Call) {}\n");

    let is_let_through = |sources: &[Source]| the_call_has_few_methods(sources).is_empty();
    assert!(is_let_through(&[own(MOST_METHODS), others]));
    assert!(!is_let_through(&[own(MOST_METHODS), free]));
    assert!(!is_let_through(&[own(MOST_METHODS + 1)]));
}
