//! Files that only the daemon's own user may read, whatever permissions they were created with.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use trunkline_testkit::DaemonSetup;

fn mode(path: &Path) -> u32 {
    let data = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    data.permissions().mode() & 0o777
}

#[test]
fn keys_journal_and_traces_are_the_daemons_alone_and_it_leaves_no_core() {
    let setup = DaemonSetup::new();
    let data = setup.folder.path().join("data");
    for directory in ["journal", "traces"] {
        fs::create_dir_all(data.join(directory)).expect("a directory");
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(data.join(directory), open).expect("a mode");
    }

    let open = Permissions::from_mode(0o644);
    fs::set_permissions(data.join("keys.json"), open).expect("a mode");

    let daemon = setup.serve();
    for directory in ["journal", "traces"] {
        assert_eq!(mode(&data.join(directory)), 0o700, "{directory}");
        for file in fs::read_dir(data.join(directory)).expect("it is read") {
            let path = file.expect("an entry").path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    assert_eq!(mode(&data.join("keys.json")), 0o600);

    let limits = format!("/proc/{}/limits", daemon.process.id());
    let limits = fs::read_to_string(limits).expect("the process runs");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let core: Vec<_> = core.expect("a limit").split_whitespace().collect();
    assert_eq!(core[4..6], ["0", "0"], "{core:?}");
    assert!(daemon.stop());
}
