//! Setup of everything that a first call needs, from the shell.

use trunkline_testkit::shell::{Shell, text};

/// Makes an org with an agent, a number that it holds, and a trunk.
fn acme(shell: &Shell) -> String {
    shell.json(&["org", "create", "--name", "Acme"]);
    let agent = text(
        &shell.json(&[
            "agent",
            "create",
            "--org",
            "Acme",
            "--name",
            "Sales",
            "--runtime",
            "sip:{agent_id}@runtime.example.com",
            "--fallback",
            "sip:b.example.com",
        ])["id"],
    )
    .to_owned();
    shell.json(&[
        "number",
        "add",
        "+442071838750",
        "--org",
        "Acme",
        "--verified",
    ]);
    shell.json(&[
        "number",
        "assign",
        "+442071838750",
        "--org",
        "Acme",
        "--agent",
        &agent,
    ]);
    shell.json(&["trunk", "create", "--org", "Acme", "--country", "GB"]);

    agent
}

#[test]
fn a_tenant_is_set_up_and_routed() {
    let shell = Shell::new();
    let agent = acme(&shell);
    let decision = shell.json(&["route-test", "--org", "Acme", "--to", "02071838750"]);
    assert_eq!(
        decision["outcome"],
        serde_json::json!({"agent": {"id": agent, "step": "assigned_number"}}),
        "{decision}"
    );

    let decision = shell.json(&[
        "route-test",
        "--org",
        "Acme",
        "--to",
        "02071838750",
        "--busy",
        &agent,
    ]);
    assert_eq!(
        decision["outcome"],
        serde_json::json!({"agent_busy": {"id": agent}}),
        "{decision}"
    );

    let told = shell.run(&[
        "route-test",
        "--org",
        "Acme",
        "--to",
        "1",
        "--agent-id",
        "nobody",
    ]);

    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stdout.contains("takes the call"), "{}", told.stdout);
}

#[test]
fn what_is_made_is_listed_and_changed() {
    let shell = Shell::new();
    let agent = acme(&shell);
    let changed = shell.json(&[
        "agent",
        "update",
        &agent,
        "--org",
        "Acme",
        "--disabled",
        "--max-concurrent-calls",
        "3",
        "--runtime",
        "echo",
    ]);

    assert_eq!(
        (&changed["enabled"], &changed["max_concurrent_calls"]),
        (&false.into(), &3.into()),
        "{changed}"
    );
    assert_eq!(changed["runtime"], serde_json::json!({"type": "echo"}));

    let changed = shell.json(&[
        "agent",
        "update",
        &agent,
        "--org",
        "Acme",
        "--enabled",
        "--max-concurrent-calls",
        "none",
        "--runtime",
        "default",
    ]);
    assert_eq!(
        (
            &changed["enabled"],
            &changed["max_concurrent_calls"],
            &changed["runtime"]
        ),
        (&true.into(), &().into(), &().into()),
        "{changed}"
    );

    let numbers = shell.json(&["number", "list", "--org", "Acme"]);
    assert_eq!(
        (&numbers[0]["phone_number"], &numbers[0]["agent_id"]),
        (&"+442071838750".into(), &agent.clone().into()),
        "{numbers}"
    );

    let number = shell.json(&[
        "number",
        "unverify",
        "+442071838750",
        "--org",
        "Acme",
        "--yes",
    ]);
    assert_eq!(
        (&number["verified"], &number["agent_id"]),
        (&false.into(), &().into()),
        "{number}"
    );

    let table = shell.run(&["agent", "list", "--org", "Acme"]).stdout;
    let rows: Vec<&str> = table.lines().collect();
    assert!(
        rows.len() == 2 && rows[0].starts_with("ID ") && rows[1].contains("Sales"),
        "{table}"
    );
}

#[test]
fn a_trunks_credentials_are_rotated_and_networks_dedicated() {
    let shell = Shell::new();
    acme(&shell);
    let before = shell.json(&["trunk", "show", "--org", "Acme"]);
    let after = shell.json(&["trunk", "rotate", "--org", "Acme"]);
    assert_eq!(before["id"], after["id"]);
    assert_ne!(before["auth_password"], after["auth_password"]);
    assert_eq!(after["agent_id_header"], "X-PLATFORM-AGENT-ID");

    shell.json(&[
        "number",
        "add",
        "+442071838751",
        "--org",
        "Acme",
        "--verified",
    ]);
    let listed = shell.json(&["trunk", "add-number", "+442071838751", "--org", "Acme"]);
    assert_eq!(
        listed["phone_numbers"],
        serde_json::json!(["+442071838750", "+442071838751"])
    );

    let dedicated = shell.json(&["trunk", "dedicate", "198.51.100.0/24", "--org", "Acme"]);
    assert_eq!(dedicated["network"], "198.51.100.0/24");

    shell.json(&["org", "create", "--name", "Other"]);
    let refused = shell.run(&["trunk", "dedicate", "198.51.100.0/24", "--org", "Other"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

#[test]
fn keys_are_made_for_some_scopes_and_revoked() {
    let shell = Shell::new();
    shell.json(&["org", "create", "--name", "Acme"]);
    let key = shell.json(&[
        "key",
        "create",
        "--org",
        "Acme",
        "--scopes",
        "calls:read,phone:read",
    ]);
    assert_eq!(
        key["scopes"],
        serde_json::json!(["phone:read", "calls:read"])
    );
    assert_eq!(text(&key["api_key"]).split('.').count(), 3);
    assert_eq!(
        shell
            .run(&["key", "create", "--org", "Acme", "--scopes", "calls:fly"])
            .code,
        Some(2)
    );

    shell.json(&[
        "key",
        "revoke",
        text(&key["api_key_id"]),
        "--org",
        "Acme",
        "--yes",
    ]);
    assert_eq!(
        shell.json(&["key", "list", "--org", "Acme"]),
        serde_json::json!([])
    );

    let create = ["key", "create", "--org", "Acme", "--expires-at"];
    let end = "2099-01-31T00:00:00.000Z";
    let brief = shell.json(&[&create[..], &[end]].concat());
    assert_eq!(brief["expires_at"], end, "{brief}");
    assert_eq!(
        shell.json(&["key", "list", "--org", "Acme"])[0]["expires_at"],
        end
    );
    for (wrong, code) in [("2001-01-31T00:00:00Z", 1), ("2099-01-31", 2)] {
        let out = shell.run(&[&create[..], &[wrong]].concat());
        assert_eq!(out.code, Some(code), "{wrong}: {out:?}");
    }
}

#[test]
fn partners_are_made_with_keys() {
    let shell = Shell::new();
    let partner = shell.json(&[
        "partner",
        "create",
        "--name",
        "Reseller",
        "--allow",
        "198.51.100.7",
    ]);
    assert_eq!(
        partner["allowed_networks"],
        serde_json::json!(["198.51.100.7/32"])
    );

    let key = shell.json(&[
        "partner",
        "key",
        "create",
        "--partner",
        text(&partner["id"]),
    ]);
    assert!(text(&key["partner_key"]).starts_with("tlp_"), "{key}");
}

#[test]
fn what_can_not_be_done_is_exit_code_1_and_a_sentence() {
    let shell = Shell::new();
    acme(&shell);
    let nobody = "00000000-0000-0000-0000-000000000000";

    for (arguments, said) in [
        (
            &["org", "show", "Nope"] as &[&str],
            "there is no org \"Nope\"",
        ),
        (
            &["agent", "show", nobody, "--org", "Acme"],
            "there is no such agent",
        ),
        (
            &["number", "verify", "+15550000001", "--org", "Acme"],
            "there is no number \"+15550000001\"",
        ),
        (
            &["trunk", "create", "--org", "Acme"],
            "the org has an inbound trunk already",
        ),
        (
            &[
                "agent",
                "create",
                "--org",
                "Acme",
                "--name",
                "x",
                "--runtime",
                "echo",
                "--fallback",
                "sip:a",
            ],
            "the echo agent has no fallbacks",
        ),
    ] {
        let ran = shell.run(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn arguments_are_held_to_the_rules_of_the_api() {
    let shell = Shell::new();
    shell.json(&["org", "create", "--name", "Acme"]);
    let hyphens = "ids are UUIDs with their hyphens";
    let unhyphenated = "0198f3a27c417d129b1e3f5f0c6d2a10";

    for (arguments, said) in [
        (&["agent", "show", unhyphenated][..], hyphens),
        (
            &[
                "agent",
                "create",
                "--org",
                "Acme",
                "--name",
                "A",
                "--language",
                "xx",
            ],
            "is none of en, fr",
        ),
    ] {
        let ran = shell.run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let shell = Shell::new();
    let before = shell.files();
    for (name, said) in [
        ("A\u{1b}[2J", "must not hold control characters"),
        (" ", "must not be empty"),
        (&"x".repeat(201), "expected 1 to 200 characters, not 201"),
    ] {
        let ran = shell.run(&["org", "create", "--name", name]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    assert!(before == shell.files(), "a refused name begins nothing");
    shell.json(&["org", "create", "--name", "Acme"]);

    // As no command stores it.
    rusqlite::Connection::open(shell.path("trunkline-data/trunkline.db"))
        .and_then(|database| database.execute("UPDATE orgs SET name = ?1", ["A\u{1b}[2J"]))
        .expect("it is renamed");

    let table = shell.run(&["org", "list"]).stdout;
    assert!(
        table.contains("A\\u{1b}[2J") && !table.contains('\u{1b}'),
        "{table:?}"
    );
}

#[test]
fn limits_of_an_org_and_of_a_partner_are_shown_and_set() {
    let shell = Shell::new();
    shell.json(&["org", "create", "--name", "Acme"]);
    let of = |shown: &serde_json::Value, limit: &str, field: &str| {
        let shown = shown.as_array().expect("a list").iter();
        let mut shown = shown.filter(|one| one["limit"] == limit);
        shown.next().expect("the limit")[field].clone()
    };
    let shown = shell.json(&["org", "limits", "Acme"]);

    for (limit, value) in [
        ("outbound_trunks", 50),
        ("agents", 1_000),
        ("destinations", 1_000),
        ("api_keys", 100),
        ("registrations", 10),
        ("webhooks", 20),
        ("contacts", 1_000_000),
        ("numbers", 10_000),
        ("handoffs", 1_000_000),
        ("requests_per_minute", 100),
        ("streaming_requests_per_minute", 1_000),
    ] {
        assert_eq!(of(&shown, limit, "value"), value, "{shown}");
    }
    assert_eq!(of(&shown, "agents", "used"), 0, "{shown}");
    assert!(of(&shown, "requests_per_minute", "used").is_null());

    let set = ["--agents", "1", "--requests-per-minute", "600"];
    let shown = shell.json(&[&["org", "limits", "Acme"], &set[..]].concat());
    assert_eq!(of(&shown, "agents", "value"), 1, "{shown}");
    assert_eq!(of(&shown, "requests_per_minute", "value"), 600, "{shown}");
    let shown = shell.json(&["org", "limits", "Acme", "--agents", "default"]);
    assert_eq!(of(&shown, "agents", "value"), 1_000, "{shown}");
    assert_eq!(of(&shown, "requests_per_minute", "value"), 600, "{shown}");

    // Only the operator makes keys beyond the limit.
    shell.json(&["org", "limits", "Acme", "--api-keys", "0"]);
    shell.json(&["key", "create", "--org", "Acme"]);

    for wrong in ["-1", "0", "100000001", "99999999999999999999", "many"] {
        let set = format!("--requests-per-minute={wrong}");
        let out = shell.run(&["org", "limits", "Acme", &set]);
        assert_eq!(out.code, Some(2), "{wrong}: {out:?}");
    }

    let partner = shell.json(&["partner", "create", "--name", "Reseller"]);
    let id = text(&partner["id"]);
    let set = ["--login-links-per-minute", "7", "--agents", "5000"];
    let shown = shell.json(&[&["partner", "limits", id], &set[..]].concat());
    let links = "login_links_per_minute";
    assert_eq!(of(&shown, links, "value"), 7, "{shown}");
    assert_eq!(of(&shown, "agents", "value"), 5_000, "{shown}");
    assert_eq!(of(&shown, "agents", "of"), "org", "{shown}");

    let share = "node_share_percent";
    assert_eq!(of(&shown, share, "value"), 50, "{shown}");
    assert_eq!(of(&shown, share, "of"), "partner", "{shown}");
    let shown = shell.json(&["partner", "limits", id, "--node-share-percent", "70"]);
    assert_eq!(of(&shown, share, "value"), 70, "{shown}");
    for wrong in ["0", "101"] {
        let set = format!("--node-share-percent={wrong}");
        let out = shell.run(&["partner", "limits", id, &set]);
        assert_eq!(out.code, Some(2), "{wrong}: {out:?}");
    }

    let own = "partner_requests_per_minute";
    assert_eq!(of(&shown, own, "value"), 100, "{shown}");
    let set = ["--login-links-per-minute", "default"];
    let shown = shell.json(&[&["partner", "limits", id], &set[..]].concat());
    assert_eq!(of(&shown, links, "value"), 30, "{shown}");
    assert_eq!(of(&shown, "agents", "value"), 5_000, "it stays: {shown}");
}
