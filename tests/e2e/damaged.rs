//! A start on a database file whose pages are damaged.

use std::os::unix::fs::FileExt as _;

use trunkline_testkit::DaemonSetup;

#[test]
fn a_start_refuses_a_damaged_database_and_says_what_to_do() {
    let setup = DaemonSetup::new();
    let file = setup.folder.path().join("data/trunkline.db");
    let written = std::fs::OpenOptions::new().write(true).open(&file);
    let written = written.expect("the database");
    let length = written.metadata().expect("a length").len();
    let garbage = [0x5a; 64 << 10];
    let middle = length / 2 - garbage.len() as u64 / 2;
    written.write_all_at(&garbage, middle).expect("written");

    let output = setup.output(&["serve"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for part in ["trunkline.db is damaged", "restore the backup", ".recover"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
