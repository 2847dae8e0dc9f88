//! Faults that prevent a start: exit code 2, a sentence that names the fix, and nothing changed on disk.

use std::net::{TcpListener, UdpSocket};

use trunkline_testkit::DaemonSetup;
use trunkline_testkit::shell::Shell;

/// Runs `serve` (and a command that doesn't serve, if the same fault stops it), which must fail and change nothing.
fn refuses(shell: &Shell, arguments: &[&str], said: &[&str]) {
    let before = shell.files();
    let ran = shell.run(arguments);
    assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    assert_eq!(ran.stdout, "", "{arguments:?}");

    for part in said {
        assert!(
            ran.stderr.contains(part),
            "{arguments:?}: {part:?} is missing from {}",
            ran.stderr
        );
    }

    assert!(
        before == shell.files(),
        "{arguments:?} changed something on disk: {:?}",
        shell.files().keys()
    );
}

#[test]
fn a_faulty_configuration() {
    let shell = Shell::new();
    shell.write(
        "trunkline.toml",
        "[sip]\nudp = [\"nowhere\"]\nrelm = \"x\"\n[log]\nformat = \"xml\"\n",
    );

    let said = [
        "trunkline.toml:2: sip.udp[0]:",
        "trunkline.toml:3: sip.relm: is not a key of Trunkline; did you mean \"realm\"?",
        "trunkline.toml:5: log.format:",
    ];

    for command in [
        &["serve"] as &[&str],
        &["quickstart", "--json"],
        &["config", "check"],
        &["org", "list"],
    ] {
        refuses(&shell, command, &said);
    }
}

#[test]
fn a_broken_file_of_quickstarts() {
    let shell = Shell::new();
    std::fs::create_dir(shell.path("trunkline-data")).expect("the folder is made");
    shell.write(
        "trunkline-data/quickstart.toml",
        "[sip]\ntrusted_runtimes = [\n",
    );

    for command in [&["serve"] as &[&str], &["config", "check"]] {
        refuses(
            &shell,
            command,
            &["trunkline-data/quickstart.toml:", "is not valid TOML"],
        );
    }
}

#[test]
fn a_certificate_that_is_none() {
    let shell = Shell::new();
    shell.write("chain.pem", "rubbish");

    let alone = ["--set", "http.tls_certificate=chain.pem"];
    let pair = [
        "--set",
        "http.tls_certificate=chain.pem",
        "--set",
        "http.tls_key=nowhere.pem",
    ];

    for command in [&["serve"] as &[&str], &["config", "check"]] {
        let with = |settings: &[&'static str]| [settings, command].concat();
        refuses(&shell, &with(&alone), &["http.tls_key: is needed beside"]);
        refuses(
            &shell,
            &with(&pair),
            &["chain.pem: holds no", "set http.tls_certificate"],
        );
    }
}

#[test]
fn a_configuration_that_is_not_there() {
    let shell = Shell::new();
    refuses(
        &shell,
        &["--config", "nowhere.toml", "serve"],
        &["nowhere.toml: can't be read"],
    );
}

#[test]
fn a_taken_port() {
    let shell = Shell::new();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let udp = format!("sip.udp={}", udp.local_addr().expect("bound"));
    let tcp_address = tcp.local_addr().expect("bound");
    let (sip_tcp, http) = (
        format!("sip.tcp={tcp_address}"),
        format!("http.listen={tcp_address}"),
    );
    let free = [
        "--set",
        "http.listen=127.0.0.1:0",
        "--set",
        "sip.udp=127.0.0.1:0",
        "--set",
        "sip.tcp=127.0.0.1:0",
    ];

    for (setting, key) in [
        (&udp, "sip.udp"),
        (&sip_tcp, "sip.tcp"),
        (&http, "http.listen"),
    ] {
        for command in [&["serve"] as &[&str], &["quickstart", "--json"]] {
            let arguments = [command, &free, &["--set", setting]].concat();
            refuses(
                &shell,
                &arguments,
                &[
                    "the port is taken",
                    &format!("set {key} to another address"),
                ],
            );
        }
    }
}

#[test]
fn a_name_for_media_without_an_address_and_a_file_where_traces_belong() {
    let shell = Shell::new();
    std::fs::create_dir(shell.path("data")).expect("the folder can be written");
    shell.write("data/traces", "notes");

    let free = [
        "--set",
        "http.listen=127.0.0.1:0",
        "--set",
        "sip.udp=127.0.0.1:0",
        "--set",
        "sip.tcp=127.0.0.1:0",
    ];

    for (setting, said) in [
        (
            "sip.public_host=nowhere.invalid",
            [
                "nowhere.invalid, which resolves to no address",
                "set media.ip to",
            ],
        ),
        (
            "data_dir=data",
            [
                "data/traces is not a directory",
                "remove it, or set traces.max_mb to 0",
            ],
        ),
    ] {
        for command in [&["serve"] as &[&str], &["quickstart", "--json"]] {
            let arguments = [command, &free, &["--set", setting]].concat();
            refuses(&shell, &arguments, &said);
        }
    }
}

#[test]
fn an_unreadable_database() {
    let shell = Shell::new();
    shell.write(
        "notes.txt",
        "these are no database's octets, but somebody's notes that must not be touched\n"
            .repeat(99),
    );

    for command in [
        &["serve"] as &[&str],
        &["org", "list"],
        &["quickstart", "--no-serve"],
    ] {
        let free = [
            "--set",
            "http.listen=127.0.0.1:0",
            "--set",
            "sip.udp=127.0.0.1:0",
            "--set",
            "sip.tcp=127.0.0.1:0",
        ];
        let arguments = [command, &free, &["--set", "database.url=sqlite:notes.txt"]].concat();
        refuses(&shell, &arguments, &["notes.txt", "database.url"]);
    }
}

/// Checkpoints a database into its one file.
fn fold(file: &std::path::Path) {
    let database = rusqlite::Connection::open(file).expect("the database opens");
    let folded = database.pragma_update(None, "journal_mode", "DELETE");
    folded.expect("no write-ahead log");
}

/// An installation damaged by a disk fault or by mistake is not initialized anew.
#[test]
fn a_database_that_is_gone_beside_its_keys_and_journal() {
    let shell = Shell::new();
    let free = [
        "--set",
        "http.listen=127.0.0.1:0",
        "--set",
        "sip.udp=127.0.0.1:0",
        "--set",
        "sip.tcp=127.0.0.1:0",
    ];
    shell.json(&["org", "create", "--name", "Acme"]);

    // A start that was cut off before it served leaves no journal: the installation is initialized anew.
    let file = shell.path("trunkline-data/trunkline.db");
    std::fs::remove_file(&file).expect("it is there");
    shell.json(&["org", "create", "--name", "Acme"]);

    std::fs::create_dir(shell.path("trunkline-data/journal")).expect("a directory");
    shell.write("trunkline-data/journal/00000001.log", "");
    shell.json(&["org", "list"]);
    fold(&file);
    let whole = std::fs::read(&file).expect("it can be read");
    let refused = |said: &[&str]| {
        for command in [
            &["serve"] as &[&str],
            &["org", "list"],
            &["quickstart", "--json"],
        ] {
            refuses(&shell, &[command, &free].concat(), said);
        }
    };
    std::fs::remove_file(&file).expect("it is there");
    refused(&[
        "trunkline.db is not there",
        "restore the database",
        "data_dir",
    ]);
    shell.write("trunkline-data/trunkline.db", "");
    refused(&["trunkline.db is empty", "restore the database"]);

    for damaged in [
        whole[..whole.len() / 2].to_vec(),
        [&[0; 4096], &whole[4096..]].concat(),
    ] {
        shell.write("trunkline-data/trunkline.db", damaged);
        refused(&["trunkline.db can't be read", "restore a backup"]);
    }
    shell.write("trunkline-data/trunkline.db", whole);
    assert_eq!(
        shell.json(&["org", "list"]).as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn a_postgres_that_is_not_there() {
    let shell = Shell::new();
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let url = format!("database.url=postgres://u:hunter2@127.0.0.1:{port}/db");
    let arguments = [
        "org",
        "list",
        "--set",
        &url,
        "--set",
        "secrets.master_key=0123456789abcdef0123456789abcdef",
    ];
    refuses(&shell, &arguments, &["PostgreSQL", "database.url"]);
    assert!(!shell.run(&arguments).stderr.contains("hunter2"));

    refuses(
        &shell,
        &["org", "list", "--set", &url],
        &["secrets.master_key"],
    );
}

#[test]
fn a_migration_from_the_future() {
    let shell = Shell::new();
    shell.json(&["org", "create", "--name", "Acme"]);

    let file = shell.path("trunkline-data/trunkline.db");
    let database = rusqlite::Connection::open(file).expect("the database opens");
    let sql = "INSERT INTO schema_migrations (version, name, fingerprint, applied_at) VALUES (9999, 'later', '', 0)";
    database.execute(sql, []).expect(sql);
    drop(database);

    let free = [
        "--set",
        "http.listen=127.0.0.1:0",
        "--set",
        "sip.udp=127.0.0.1:0",
        "--set",
        "sip.tcp=127.0.0.1:0",
    ];

    for command in [
        &["serve"] as &[&str],
        &["org", "list"],
        &["quickstart", "--json"],
    ] {
        refuses(
            &shell,
            &[command, &free].concat(),
            &["9999", "newer version"],
        );
    }
}

/// Name of a segment of the journal as build c486631c wrote it.
const OLD_SEGMENT: &str = "0000000000000007.node1.boot42.facts";

/// Only the build that wrote the facts can store them, and only in a database that isn't migrated yet.
#[test]
fn a_journal_of_another_format() {
    let shell = Shell::new();
    shell.json(&["org", "create", "--name", "Acme"]);
    std::fs::create_dir(shell.path("trunkline-data/journal")).expect("a directory");
    let segment = format!("trunkline-data/journal/{OLD_SEGMENT}");
    shell.write(&segment, "1 2 {\"fact\":\"ended\"}\n");

    let free = [
        "--set",
        "http.listen=127.0.0.1:0",
        "--set",
        "sip.udp=127.0.0.1:0",
        "--set",
        "sip.tcp=127.0.0.1:0",
    ];
    let said = [OLD_SEGMENT, "start build c486631c once", "move the file"];
    for command in [&["serve"] as &[&str], &["quickstart", "--json"]] {
        refuses(&shell, &[command, &free].concat(), &said);
    }
    // Commands that don't serve need no journal.
    shell.json(&["org", "list"]);

    let file = shell.path("trunkline-data/trunkline.db");
    fold(&file);
    let database = rusqlite::Connection::open(&file).expect("the database opens");
    let sql = "UPDATE schema_migrations SET version = 49; ALTER TABLE schema_migrations DROP COLUMN fingerprint";
    database.execute_batch(sql).expect(sql);
    drop(database);
    for command in [&["serve"] as &[&str], &["org", "list"]] {
        refuses(&shell, &[command, &free].concat(), &said);
    }
}

#[test]
fn an_empty_segment_of_another_format_is_replaced() {
    let setup = DaemonSetup::new();
    let journal = setup.folder.path().join("data/journal");
    std::fs::create_dir_all(&journal).expect("a directory");
    let segment = journal.join(OLD_SEGMENT);
    std::fs::write(&segment, "").expect("a file");
    let daemon = setup.serve();
    assert!(!segment.exists());
    assert!(daemon.stop());
}

/// Another user of the machine leaves a file where root will start a command: it would run that user's commands as root.
#[test]
fn root_reads_no_configuration_that_another_user_can_write() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root_reads_no_configuration_that_another_user_can_write needs root");
        return;
    }
    const NOBODY: u32 = 65_534;
    let chown = |path: &std::path::Path, uid: u32| {
        std::os::unix::fs::chown(path, Some(uid), None).expect("root may do that");
    };
    let shell = Shell::new();
    let pwned = shell.path("pwned");
    let text = format!("[speech]\ncommand = [\"touch\", \"{}\"]\n", pwned.display());

    shell.write("trunkline.toml", &text);
    let file = shell.path("trunkline.toml");
    chown(&file, NOBODY);
    let said = ["trunkline.toml", "isn't read by root", "--config"];
    for command in [&["serve"] as &[&str], &["config", "check"], &["doctor"]] {
        refuses(&shell, command, &said);
    }
    // Root's own, but everybody may write it.
    chown(&file, 0);
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&file, mode(0o666)).expect("root may do that");
    refuses(&shell, &["config", "check"], &said);

    // Honest: root's own file, and one that root names.
    std::fs::set_permissions(&file, mode(0o644)).expect("root may do that");
    assert_eq!(shell.run(&["config", "check"]).code, Some(0));
    chown(&file, NOBODY);
    let named = shell.run(&["config", "check", "--config", "trunkline.toml"]);
    assert_eq!(named.code, Some(0), "{named:?}");

    // Quickstart's file in a data directory that somebody else has left there.
    std::fs::remove_file(&file).expect("root may do that");
    std::fs::create_dir(shell.path("trunkline-data")).expect("the folder is made");
    shell.write("trunkline-data/quickstart.toml", &text);
    chown(&shell.path("trunkline-data/quickstart.toml"), NOBODY);
    refuses(
        &shell,
        &["config", "check"],
        &["quickstart.toml", "isn't read by root"],
    );
    assert!(!pwned.exists());
}
