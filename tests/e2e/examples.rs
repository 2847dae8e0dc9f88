//! The examples of a page such as `docs/api.md`, run as printed against a daemon: the printed answer is the real one.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::e2e::node::{NodeSetup, text};
use trunkline_testkit::tools;

/// Commands, and the answer printed after them.
#[derive(Debug)]
pub(crate) struct Example {
    commands: String,
    answer: Option<String>,
}

/// Returns the commands of a page with their answers. Code in other languages is left out.
pub(crate) fn examples(page: &str) -> Vec<Example> {
    let mut all: Vec<Example> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        let block = block.join("\n");
        match (kind, all.last_mut()) {
            ("js" | "python", _) => {}
            ("sh", _) => all.push(Example {
                commands: block,
                answer: None,
            }),
            ("json", Some(example)) if example.answer.is_none() => example.answer = Some(block),
            _ => panic!("an answer without a question: {block}"),
        }
    }

    all
}

/// Returns the fields and values of an answer, without ids, secrets, addresses and times.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            let own = [
                "id",
                "agent_id",
                "widget_token",
                "sip_endpoint",
                "created_at",
                "verified_at",
            ];
            let shown = fields.map(|(name, value)| {
                let is_own = own.contains(&&**name) && value.is_string();
                let value = if is_own { "…".into() } else { shape(value) };
                (name.clone(), value)
            });
            Value::Object(shown.collect())
        }
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[test]
fn the_examples_run_as_they_are_printed() {
    if !tools(&["bash", "curl", "jq"]) {
        return;
    }

    let setup = NodeSetup::new(&[]);
    let key = setup.run(&["quickstart", "--no-serve", "--json"]);
    let node = setup.serve();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    let examples = examples(&std::fs::read_to_string(page).expect("the page"));
    assert!(examples.len() > 8, "{examples:?}");

    let base = format!("http://{}", node.setup.http);
    let partner_key = text(&key["partner_key"]);
    let values = [("BASE", &*base), ("PARTNER_KEY", &partner_key)];
    run_as_printed(&node.setup, &examples, &values);
}

/// Runs the examples in one shell with these variables, and compares their answers with the printed ones.
pub(crate) fn run_as_printed(setup: &NodeSetup, examples: &[Example], values: &[(&str, &str)]) {
    let script: String = examples
        .iter()
        .enumerate()
        .map(|(at, example)| format!("{{\n{}\n}} > answer.{at}\n", example.commands))
        .collect();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .envs(values.iter().copied())
        .current_dir(setup.folder())
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );

    for (at, example) in examples.iter().enumerate() {
        let Some(printed) = &example.answer else {
            continue;
        };
        let told = setup.folder().join(format!("answer.{at}"));
        let told = std::fs::read_to_string(told).expect("an answer");
        let json = |text: &str| -> Value {
            serde_json::from_str(text)
                .unwrap_or_else(|fault| panic!("{fault}: {text}\nof {}", example.commands))
        };
        assert_eq!(
            shape(&json(&told)),
            shape(&json(printed)),
            "of {}",
            example.commands
        );
    }
}
