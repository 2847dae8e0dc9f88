//! Contexts: names under which the command line knows installations.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use trunkline_testkit::daemon::DaemonSetup;
use trunkline_testkit::shell::Shell;

#[test]
fn a_context_names_an_installation_and_its_key() {
    let daemon = DaemonSetup::new().serve();
    let shell = Shell::new();
    let config = shell.path("config").display().to_string();
    let run = |arguments: &[&str], key: Option<&str>| {
        let mut command = shell.command(arguments);
        command.env("XDG_CONFIG_HOME", &config).stdin(Stdio::null());
        if let Some(key) = key {
            command.env("TRUNKLINE_API_KEY", key);
        }
        command.output().expect("the binary runs")
    };

    let url = format!("http://{}", daemon.setup.http);
    let set = run(
        &["context", "set", "prod", "--url", &url],
        Some(daemon.key()),
    );
    assert!(set.status.success(), "{set:?}");
    let file = shell.path("config/trunkline/contexts.json");
    let mode = std::fs::metadata(&file)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let nowhere = run(&["call", "list", "--json"], None);
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
    let named = run(&["call", "list", "--json", "--context", "prod"], None);
    assert!(named.status.success(), "{named:?}");
    assert!(run(&["context", "use", "prod"], None).status.success());

    let current = run(&["call", "list", "--json"], None);
    assert_eq!(current.stdout, b"[]\n", "{current:?}");
    let listed = run(&["context", "list"], None);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("prod") && !listed.contains(daemon.key()),
        "{listed}"
    );

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("the mode");
    let open = run(&["call", "list"], None);
    assert!(
        String::from_utf8_lossy(&open.stderr).contains("chmod 600"),
        "{open:?}"
    );
}

/// A pipe brings a whole file by mistake: it isn't stored cut.
#[test]
fn a_key_that_is_too_long_is_refused() {
    let shell = Shell::new();
    shell.write("long", "k".repeat(8_193));

    let mut command = shell.command(&["context", "set", "prod", "--url", "http://127.0.0.1:9"]);
    command.env("XDG_CONFIG_HOME", shell.path("config"));
    command.stdin(File::open(shell.path("long")).expect("the file"));
    let output = command.output().expect("the binary runs");

    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("more than 8192 octets"), "{said}");
    assert!(!shell.path("config/trunkline/contexts.json").exists());
}
