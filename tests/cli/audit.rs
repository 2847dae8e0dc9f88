//! Commands that change something leave an entry in the audit log; commands that only read leave none.

use serde_json::{Value, json};
use trunkline_testkit::shell::{Shell, text};

fn entries(shell: &Shell) -> Vec<Value> {
    let entries = shell.json(&["audit", "--limit", "1000"]);
    entries.as_array().expect("a list").clone()
}

#[test]
fn a_command_that_changes_something_leaves_an_entry() {
    let shell = Shell::new();
    let org = text(&shell.json(&["org", "create", "--name", "Acme"])["id"]).to_owned();
    let partner = text(&shell.json(&["partner", "create", "--name", "Reseller"])["id"]).to_owned();
    let new = ["agent", "create", "--org", "Acme", "--name", "Sales"];
    shell.json(&new);
    let number = "+442071838750";
    let verify = "/operator/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify";

    let changes: [(&[&str], String, &str, &[&str]); 16] = [
        (
            &["number", "add", number, "--org", "Acme"],
            "POST /phone/numbers".to_owned(),
            "number",
            &["phone_number"],
        ),
        (
            &["number", "verify", number, "--org", "Acme"],
            format!("POST {verify}"),
            "number",
            &[],
        ),
        (
            &[
                "number", "assign", number, "--org", "Acme", "--agent", "Sales",
            ],
            "POST /phone/sip/agents/{agent_id}/inbound-numbers".to_owned(),
            "agent",
            &["phone_number_id"],
        ),
        (
            &["trunk", "create", "--org", "Acme", "--country", "GB"],
            "POST /phone/sip/inbound-trunk".to_owned(),
            "inbound_trunk",
            &["default_country"],
        ),
        (
            &["trunk", "rotate", "--org", "Acme"],
            "POST /phone/sip/inbound-trunk/rotate-credentials".to_owned(),
            "inbound_trunk",
            &[],
        ),
        (
            &["trunk", "dedicate", "198.51.100.0/24", "--org", "Acme"],
            "POST /operator/orgs/{orgId}/networks".to_owned(),
            "org",
            &["network"],
        ),
        (
            &[
                "agent", "update", "Sales", "--org", "Acme", "--name", "Desk",
            ],
            "PATCH /phone/{agent_id}".to_owned(),
            "agent",
            &["name"],
        ),
        (
            &["key", "create", "--org", "Acme"],
            "POST /api-keys".to_owned(),
            "api_key",
            &[],
        ),
        (
            &["key", "rotate-signing"],
            "key rotate-signing".to_owned(),
            "installation",
            &[],
        ),
        (
            &["org", "suspend", "Acme", "--yes"],
            "POST /operator/orgs/{orgId}/suspend".to_owned(),
            "org",
            &[],
        ),
        (
            &["org", "resume", "Acme"],
            "POST /operator/orgs/{orgId}/resume".to_owned(),
            "org",
            &[],
        ),
        (
            &["org", "tie", "Acme", "carrier.test"],
            "POST /operator/orgs/{orgId}/tied-peers".to_owned(),
            "org",
            &["peer"],
        ),
        (
            &["org", "untie", "Acme", "carrier.test", "--yes"],
            "DELETE /operator/orgs/{orgId}/tied-peers/{peer}".to_owned(),
            "org",
            &[],
        ),
        (
            &["partner", "deactivate", &partner, "--yes"],
            "PATCH /operator/partners/{partnerId}".to_owned(),
            "partner",
            &["active"],
        ),
        (
            &["partner", "activate", "Reseller"],
            "PATCH /operator/partners/{partnerId}".to_owned(),
            "partner",
            &["active"],
        ),
        (
            &["org", "delete", "Acme", "--yes"],
            "DELETE /operator/orgs/{orgId}".to_owned(),
            "org",
            &[],
        ),
    ];

    for (arguments, action, resource, fields) in changes {
        let before = entries(&shell).len();
        let made = shell.json(arguments);
        let entries = entries(&shell);
        assert_eq!(entries.len(), before + 1, "{arguments:?}: {:?}", entries[0]);

        let entry = &entries[0];
        assert_eq!(entry["actor"], "command", "{entry}");
        let actor = text(&entry["actor_name"]);
        let is_operator = actor.starts_with("operator, uid ");
        assert!(
            is_operator || actor == "trunkline key rotate-signing",
            "{entry}"
        );
        assert_eq!(entry["action"], action, "{entry}");
        assert_eq!(entry["resource"], resource, "{entry}");
        assert_eq!(entry["fields"], json!(fields), "{entry}");

        if arguments.contains(&"Acme") {
            assert_eq!(entry["org_id"], org, "{entry}");
        }
        if arguments[0] == "partner" {
            assert_eq!(entry["partner_id"], partner, "{entry}");
        }

        for secret in ["api_key", "auth_password"] {
            if let Some(secret) = made[secret].as_str() {
                assert!(!entry.to_string().contains(secret), "{entry}");
            }
        }
    }

    let before = entries(&shell).len();
    for look in [
        &["org", "list"][..],
        &["partner", "show", "Reseller"],
        &["partner", "list"],
        &["org", "deleted"],
    ] {
        shell.json(look);
    }
    assert_eq!(
        entries(&shell).len(),
        before,
        "a command that only reads leaves no entry"
    );
}

#[test]
fn each_thing_that_quickstart_makes_has_an_entry() {
    let shell = Shell::new();
    let made = shell.json(&["quickstart", "--no-serve"]);
    let all = entries(&shell);
    let resources: Vec<&str> = all.iter().map(|entry| text(&entry["resource"])).collect();

    // The partner has one: it gets the right to verify as it is made.
    let newest_first = [
        "login_link",
        "trunk",
        "number",
        "agent",
        "api_key",
        "org",
        "api_key",
        "partner",
    ];
    assert_eq!(resources, newest_first);

    for entry in &all {
        assert_eq!(entry["actor_name"], "trunkline quickstart", "{entry}");
    }
    assert_eq!(all[5]["resource_id"], made["org_id"], "{}", all[5]);
    let of_org = all[..6]
        .iter()
        .all(|entry| entry["org_id"] == made["org_id"]);
    assert!(of_org, "{all:?}");

    shell.json(&["quickstart", "--no-serve"]);
    let again = entries(&shell);
    assert_eq!(again.len() - all.len(), 1, "only a link is made again");
    assert_eq!(again[0]["resource"], "login_link", "{}", again[0]);
}
