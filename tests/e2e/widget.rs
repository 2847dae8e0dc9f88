//! `docs/widget.md` as printed: its commands against a daemon, and its verifiers in Node and Python, which take a token of the org's contact and
//! no other.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;
use trunkline_testkit::{not_run, tools};

use crate::e2e::examples::{examples, run_as_printed};
use crate::e2e::node::{Node, NodeSetup, text};

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/widget.md");
    std::fs::read_to_string(page).expect("the page")
}

/// Returns the block of code of this language.
fn block(page: &str, language: &str) -> String {
    let (_, rest) = page
        .split_once(&format!("```{language}\n"))
        .expect("the block");
    rest.split("```").next().expect("its end").to_owned()
}

/// An org with a visitor.
#[derive(Debug)]
struct Scene {
    node: Node,
    org: String,
    api_key: String,
    contact: String,
    token: String,
}

impl Scene {
    fn new() -> Self {
        let setup = NodeSetup::new(&[]);
        let made = setup.run(&["quickstart", "--no-serve", "--json"]);
        let node = setup.serve();
        let api_key = text(&made["api_key"]);
        let path = "/widget/authenticate-user-by-external-id";
        let visitor = node.made("POST", path, &api_key, &json!({"external_id": "user-7"}));
        Self {
            org: text(&made["org_id"]),
            contact: text(&visitor["contact"]["id"]),
            token: text(&visitor["token"]),
            api_key,
            node,
        }
    }

    fn base(&self) -> String {
        format!("http://{}", self.node.setup.http)
    }

    /// Runs a verifier for this org on a token.
    fn verify(&self, program: &[&str], org: &str, token: &str) -> Output {
        Command::new(program[0])
            .args(&program[1..])
            .arg(token)
            .env("BASE", self.base())
            .env("ORG_ID", org)
            .current_dir(self.node.setup.folder())
            .stdin(Stdio::null())
            .output()
            .expect("it runs")
    }

    /// Checks that a verifier takes the visitor's token, and nothing else.
    fn judge(&self, program: &[&str]) {
        let taken = self.verify(program, &self.org, &self.token);
        let said = String::from_utf8_lossy(&taken.stdout);
        assert_eq!(said.trim(), self.contact, "{taken:?}");
        let (signed, _) = self.token.rsplit_once('.').expect("a signature");
        let forged = format!("{signed}.{}", "A".repeat(86));
        let nobodys = "00000000-0000-7000-8000-000000000000";
        for (name, org, token) in [
            ("another org's", nobodys, &*self.token),
            ("an API key", &self.org, &self.api_key),
            ("forged", &self.org, &forged),
            ("garbage", &self.org, "garbage"),
        ] {
            let refused = self.verify(program, org, token);
            assert!(!refused.status.success(), "{name}: {refused:?}");
            assert!(refused.stdout.is_empty(), "{name}: {refused:?}");
        }

        // A key that is rotated goes on verifying.
        self.node
            .setup
            .run(&["key", "rotate-signing", "--widget", "--json"]);
        let taken = self.verify(program, &self.org, &self.token);
        assert!(taken.status.success(), "{taken:?}");
    }
}

#[test]
fn the_verifier_for_node_takes_visitors_of_the_org_alone() {
    if !tools(&["node"]) {
        return;
    }
    let scene = Scene::new();
    let script = scene.node.setup.folder().join("verify.mjs");
    std::fs::write(script, block(&page(), "js")).expect("the script");
    scene.judge(&["node", "verify.mjs"]);
}

#[test]
fn the_verifier_for_python_takes_visitors_of_the_org_alone() {
    if !tools(&["python3"]) {
        return;
    }
    let has_library = Command::new("python3")
        .args(["-c", "import cryptography"])
        .stderr(Stdio::null())
        .status();
    if !has_library.is_ok_and(|status| status.success()) {
        not_run::note("the Python package cryptography");
        eprintln!("skipped: the Python package cryptography isn't installed");
        return;
    }
    let scene = Scene::new();
    let script = scene.node.setup.folder().join("verify.py");
    std::fs::write(script, block(&page(), "python")).expect("the script");
    scene.judge(&["python3", "verify.py"]);
}

#[test]
fn the_commands_of_the_widgets_page_run_as_they_are_printed() {
    if !tools(&["bash", "curl", "jq"]) {
        return;
    }
    let scene = Scene::new();
    let setup = &scene.node.setup;
    let org = setup.run(&["org", "show", "Quickstart", "--json"]);
    let examples = examples(&page());
    assert_eq!(examples.len(), 4, "{examples:?}");
    let widget_token = text(&org["widget_token"]);
    let base = scene.base();
    let values = [
        ("BASE", &*base),
        ("API_KEY", &scene.api_key),
        ("WIDGET_TOKEN", &widget_token),
        ("CONTACT_ID", &scene.contact),
    ];
    run_as_printed(setup, &examples, &values);
}
