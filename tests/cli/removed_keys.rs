//! Keys that exist no more: a configuration that sets them works, and says which constants are in force.

use std::time::Duration;

use trunkline_testkit::shell::Shell;
use trunkline_testkit::{DaemonSetup, Deadline};

const FILE: &str = "[sip]\nt2_ms = 2000\n\n[http]\nidle_timeout_s = \"long\"\n";
const SAID: [&str; 2] = [
    "trunkline.toml:2: sip.t2_ms is no key any more: T2 is 4 s",
    "trunkline.toml:5: http.idle_timeout_s is no key any more: a connection on which nothing moves is closed after 60 s",
];

#[test]
fn a_command_names_the_removed_keys_that_are_set() {
    let shell = Shell::new();
    shell.write("trunkline.toml", FILE);
    let checked = shell.run(&["config", "check", "--json"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let summary: serde_json::Value = serde_json::from_str(&checked.stdout).expect("JSON");
    assert_eq!(summary["data_dir"], "trunkline-data");
    for said in SAID {
        let line = format!("trunkline: {said}");
        let count = checked.stderr.lines().filter(|shown| *shown == line);
        assert_eq!(count.count(), 1, "{line}: {}", checked.stderr);
    }

    // Beside a fault too.
    let faulty = shell.run(&["config", "check", "--set", "sip.node=400"]);
    assert_eq!(faulty.code, Some(2), "{faulty:?}");
    for said in SAID {
        assert!(faulty.stderr.contains(said), "{said}: {}", faulty.stderr);
    }
}

#[test]
fn a_daemon_starts_with_removed_keys_and_logs_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trunkline.toml");
    std::fs::write(&file, FILE).expect("the folder can be written");
    let path = file.to_str().expect("a path in UTF-8");
    let daemon = DaemonSetup::new().set("TRUNKLINE_CONFIG", path).serve();

    let warns = |said: &str| {
        let log = daemon.log();
        let mut lines = log.lines();
        lines.any(|line| line.contains("WARN") && line.contains(said))
    };
    for said in SAID {
        let is_logged = Deadline::after(Duration::from_secs(10)).poll(|| warns(said).then_some(()));
        assert!(is_logged.is_some(), "{said}: {}", daemon.log());
    }
    assert!(daemon.stop());
}
