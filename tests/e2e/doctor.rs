//! `trunkline doctor` on deployments with a fault: the built binary finds each fault, and nothing else.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::database::Database;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::process::free_port;
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{DaemonSetup, Deadline, Responder, Runtime, http, tools};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns the findings of a check: level, text and fix.
fn of(report: &Value, check: &str) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().expect("findings").iter();
    let found = findings.filter(|finding| finding["check"] == check);
    found
        .map(|finding| {
            (
                text(&finding["level"]),
                text(&finding["text"]),
                text(&finding["fix"]),
            )
        })
        .collect()
}

/// Returns the only finding of a check.
fn one(report: &Value, check: &str) -> (String, String, String) {
    let found = of(report, check);
    let [one] = found.as_slice() else {
        panic!("not one of {check}: {report}")
    };
    one.clone()
}

/// Returns the number before a word.
fn number_before(text: &str, word: &str) -> i64 {
    let words: Vec<&str> = text.split(' ').collect();
    let place = words.iter().position(|other| *other == word);
    let number = place.and_then(|place| words[place - 1].parse().ok());
    number.unwrap_or_else(|| panic!("no number before {word}: {text}"))
}

/// Writes a certificate that expires in so many days.
fn certify(folder: &Path, names: &[&str], days: i64) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    let day = |days: i64| {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        let [month, day] =
            [date.month(), date.day()].map(|part| u8::try_from(part).expect("small"));
        rcgen::date_time_ymd(date.year().into(), month, day)
    };
    params.not_before = day(-400);
    params.not_after = day(days);

    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    let files = [("chain.pem", pem), ("key.pem", key.serialize_pem())];
    let [chain, key] = files.map(|(name, text)| {
        let file = folder.join(name);
        std::fs::write(&file, text).expect("it can be written");
        file.display().to_string()
    });
    (chain, key)
}

#[test]
fn certificates_are_told_before_they_end() {
    let here = vec![("sip.test", Record::Address([192, 0, 2, 7].into()))];
    let names = dns::serve(here).to_string();
    for (days, certified, level, said, nearly) in [
        (400, "sip.test", "ok", "is valid for", 399),
        (20, "sip.test", "hint", "is valid for", 19),
        (5, "sip.test", "warning", "expires in", 4),
        (-3, "sip.test", "error", "expired", 4),
        (
            400,
            "other.test",
            "error",
            "isn't for sip.test, but for other.test",
            0,
        ),
    ] {
        let setup = DaemonSetup::new();
        let (chain, key) = certify(setup.folder.path(), &[certified], days);
        let setup = setup
            .set("TRUNKLINE__SIP__PUBLIC_HOST", "sip.test")
            .set("TRUNKLINE__SIP__NAMESERVERS", &names)
            .set("TRUNKLINE__SIP__TLS_CERTIFICATE", &chain)
            .set("TRUNKLINE__SIP__TLS_KEY", &key);

        let (_, report) = setup.doctor();
        let (found, text, fix) = one(&report, "certificate");
        assert_eq!(found, level, "{days} days: {text}");
        assert!(
            text.starts_with(&format!("{chain} (sip.tls_certificate)")) && text.contains(said),
            "{days} days: {text}"
        );

        // One day of tolerance: midnight may pass meanwhile.
        if nearly > 0 {
            let told = number_before(&text, if days < 0 { "days" } else { "days." });
            assert!((nearly - 1..=nearly + 1).contains(&told), "{days}: {text}");
        }
        assert_eq!(
            fix.is_empty(),
            !["error", "warning"].contains(&level),
            "{days} days: {fix}"
        );
    }

    let setup = DaemonSetup::new();
    let gone = setup.folder.path().join("gone.pem").display().to_string();

    let (_, report) = setup
        .set("TRUNKLINE__SIP__TLS_CERTIFICATE", &gone)
        .set("TRUNKLINE__SIP__TLS_KEY", &gone)
        .doctor();
    let (level, text, _) = one(&report, "certificate");
    assert!(level == "error" && text.contains("can't be used"), "{text}");
}

/// The server's clock is wrong for the doctor only: `clock_timestamp()` is shadowed in this database.
#[test]
fn a_database_whose_clock_is_off_is_told_of() {
    let Some(database) = Database::new() else {
        return;
    };
    let (code, report) =
        DaemonSetup::with(Ipv4Addr::LOCALHOST.into(), database.settings()).doctor();
    assert_eq!(code, Some(1), "nothing is served: {report}");
    assert_eq!(one(&report, "clock").0, "ok", "{report}");

    database.run(
        "CREATE SCHEMA skewed;
         CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
         $$ SELECT pg_catalog.clock_timestamp() - interval '100 seconds' $$",
    );
    database.alter("SET search_path = public, skewed, pg_catalog");
    let (_, report) = DaemonSetup::with(Ipv4Addr::LOCALHOST.into(), database.settings()).doctor();
    let (level, text, fix) = one(&report, "clock");
    assert_eq!(level, "warning", "{report}");
    let apart = number_before(&text, "seconds");
    assert!((95..=105).contains(&apart), "{text}");
    assert!(fix.contains("NTP"), "{fix}");
}

/// Another program holds the database: reads go on, and the records of calls wait.
#[test]
fn records_that_wait_are_told_of_and_nothing_is_lost() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let status_is = |status: &str, journal: &str| {
        let (_, ready) = http::get(daemon.setup.http, "/readyz", None)?;
        let ready: Value = serde_json::from_str(&ready).ok()?;
        let wanted = json!({"status": status, "database": "ok", "journal": journal});
        (ready == wanted).then_some(())
    };
    assert!(status_is("ready", "ok").is_some(), "well at first");

    let database = daemon.setup.folder.path().join("data/trunkline.db");
    let holder = rusqlite::Connection::open(database).expect("the database opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("it is held");
    daemon.caller().play("caller_hangs_up").finish();

    let waits = Deadline::after(LIMIT).poll(|| status_is("degraded", "waiting"));
    assert!(waits.is_some(), "nobody is told that records wait");

    let (code, report) = daemon.setup.doctor();
    assert_eq!(code, Some(1), "{report}");

    let (level, text, _) = one(&report, "daemon");
    assert_eq!(level, "error", "{report}");
    assert!(text.contains("they wait in the journal"), "{text}");
    holder.execute_batch("ROLLBACK").expect("it is let go");

    let call = daemon.record();
    assert_eq!(call["status"], "completed", "{call}");

    let well = Deadline::after(LIMIT).poll(|| status_is("ready", "ok"));
    assert!(well.is_some(), "it doesn't say that all is well");
}

/// The PBX's Date header shows its time.
#[test]
fn a_phone_system_whose_clock_is_off_is_told_of() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let caller = daemon.caller();
    let caller = caller.with_header("Date: Sat, 31 Jan 2026 12:01:00 GMT");
    caller.play("caller_hangs_up").finish();
    daemon.record();

    let (code, report) = daemon.setup.doctor();
    assert_eq!(code, Some(1), "{report}");

    let (level, text, fix) = one(&report, "clock");
    assert_eq!(level, "warning", "{report}");
    assert!(
        text.starts_with("1 of the last 1 calls of") && text.contains(": Its clock is"),
        "{text}"
    );
    assert_eq!(fix, "Set the PBX's clock by NTP.");
}

#[test]
fn a_port_that_is_somebody_elses_is_told_of() {
    let setup = DaemonSetup::new();

    // Another process may hold the UDP port by chance.
    let datagrams = UdpSocket::bind(setup.sip);
    let streams = TcpListener::bind(setup.http).expect("the port is free");

    // Another client may connect before the doctor does, and leave.
    std::thread::spawn(move || {
        let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        for stream in streams.incoming().flatten() {
            // Closing without reading the request would reset the connection and lose the answer.
            let _ = std::io::Read::read(&mut &stream, &mut [0; 4096]);
            let _ = std::io::Write::write_all(&mut &stream, answer);
        }
    });

    let (_, report) = setup.doctor();
    let (level, text, _) = one(&report, "daemon");
    assert!(
        level == "error" && text.starts_with("Another program than this daemon answers"),
        "{report}"
    );

    let taken = format!("udp {} can't be listened on", setup.sip);
    let ports = of(&report, "port");
    let told = ports.iter().filter(|(_, text, _)| text.starts_with(&taken));
    assert_eq!(told.count(), 1, "{report}");

    drop(datagrams);
}

#[test]
fn carriers_that_cannot_be_reached_are_told_of() {
    let names = dns::serve(Vec::new()).to_string();
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names);
    let daemon = setup.serve();
    let trunk = |name: &str, host: &str, port: u16| {
        let trunk = json!({
            "name": name, "host": host, "port": port, "transport": "udp", "caller_number": "+442079460000",
        });
        let (status, made) = daemon.change("POST", "/phone/sip/outbound-trunks", &trunk);
        assert_eq!(status, 201, "{made}");
    };
    let silent = Runtime::new().address();
    trunk("Silent", "127.0.0.1", silent.port());
    let alive = Responder::busy();
    trunk("Alive", "127.0.0.1", alive.address.port());
    trunk("Nowhere", "carrier.test", 5060);
    let (code, report) = daemon.setup.doctor();

    assert_eq!(code, Some(1), "{report}");

    for (name, level, said) in [
        ("Silent", "error", "can't be reached"),
        ("Alive", "ok", "answers at"),
        ("Nowhere", "error", "its host has no address"),
    ] {
        let found = of(&report, "carrier");
        let whose = format!("outbound trunk \"{name}\"");
        let told = found.iter().find(|(_, text, _)| text.contains(&whose));
        let (found, text, _) = told.unwrap_or_else(|| panic!("{name}: {report}"));
        assert!(found == level && text.contains(said), "{name}: {text}");
    }
}

/// A call from this machine to one of its own addresses says nothing about the host that others dial, and the test call nothing about a PBX.
#[test]
fn calls_of_this_machine_are_not_complained_of() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__PUBLIC_HOST", "127.0.0.9");
    let daemon = setup.serve();
    let pasted = daemon.setup.output(&["trunk", "paste", "sipp"]);
    let pasted = String::from_utf8(pasted.stdout).expect("text");
    let pasted = pasted.replace("127.0.0.9", "127.0.0.1");
    let line = format!(
        "{} -i 127.0.0.1 -nostdin -timeout 20 -timeout_error",
        pasted.trim_end()
    );
    let ran = daemon
        .setup
        .program("sh")
        .args(["-c", &line])
        .output()
        .expect("sh runs");
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(daemon.record()["status"], "completed");

    let (code, report) = daemon.setup.doctor();
    assert_eq!(
        (code, &report["problems"]),
        (Some(0), &0.into()),
        "{report}"
    );
}

/// The runtime's failure is the first finding, and a PBX's faults are attributed by its `User-Agent`.
#[test]
fn a_runtime_that_fails_is_named_first() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();

    // Nothing listens there.
    setup.runtime(&setup.first_agent, "sip:bot@127.0.0.1:1;transport=tcp");
    let daemon = setup.serve();
    let caller = daemon.caller().with_header("User-Agent: Old PBX 1.0");
    caller.play("caller_is_refused").finish();
    daemon.record();
    let (code, report) = daemon.setup.doctor();
    assert_eq!(code, Some(1), "{report}");

    let first = &report["findings"][0];
    assert_eq!(
        (&first["check"], &first["level"]),
        (&"runtime".into(), &"error".into()),
        "{report}"
    );

    let text = first["text"].as_str().unwrap_or_default();
    assert!(text.contains("the connection was refused"), "{text}");

    let (level, text, _) = one(&report, "session_timers");
    assert!(
        level == "warning" && text.contains("(Old PBX 1.0): It speaks no"),
        "{text}"
    );
}

/// A runtime that answers no OPTIONS has just taken a call.
#[test]
fn a_call_that_was_taken_outranks_a_probe() {
    let runtime = Responder::deaf_to_options();
    let setup = DaemonSetup::new();
    setup.runtime(&setup.first_agent, &format!("sip:bot@{}", runtime.address));
    setup.dedicate("127.0.0.2");
    let number = setup.first_number.clone();
    let daemon = setup.serve();
    let (_, report) = daemon.setup.doctor();
    let (level, text, _) = one(&report, "runtime");
    assert!(
        level == "error" && text.contains("answers no OPTIONS"),
        "{text}"
    );

    let from = Ipv4Addr::new(127, 0, 0, 2).into();
    let rtp = Rtp::new(from);
    let (caller, answer) = Talker::call(from, daemon.sip(), &number, &offer(rtp.address()));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let call = daemon.answered_call();
    daemon.hang_up(&call);
    assert!(caller.asked("BYE").is_some());
    daemon.record();

    let (_, report) = daemon.setup.doctor();
    let (level, text, _) = one(&report, "runtime");
    assert!(level == "hint" && text.contains("it took one at"), "{text}");

    // A later call that it doesn't take counts again.
    runtime.stop();
    let (_caller, answer) = Talker::call(from, daemon.sip(), &number, &offer(rtp.address()));
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    daemon.records(2);
    let (_, report) = daemon.setup.doctor();
    assert!(
        of(&report, "runtime")
            .iter()
            .any(|(level, ..)| level == "error"),
        "{report}"
    );
}

/// The doctor's own look at a TLS port, and that of a load balancer, is no failed handshake.
#[test]
fn a_connection_that_sends_nothing_is_no_failed_handshake() {
    let setup = DaemonSetup::new();
    let (chain, key) = certify(setup.folder.path(), &["sip.test"], 400);
    let tls = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let daemon = setup
        .set("TRUNKLINE__SIP__TLS", &tls.to_string())
        .set("TRUNKLINE__SIP__TLS_CERTIFICATE", &chain)
        .set("TRUNKLINE__SIP__TLS_KEY", &key)
        .serve();
    let (_, report) = daemon.setup.doctor();
    let answers = of(&report, "port").into_iter();
    let answers = answers.filter(|(level, text, _)| level == "ok" && text.contains("tls"));
    assert_eq!(answers.count(), 1, "{report}");

    // What a handshake that fails leaves in the log comes behind what the look would have left.
    let mut stray = TcpStream::connect(tls).expect("it listens");
    stray
        .write_all(b"OPTIONS sip:x SIP/2.0\r\n\r\n")
        .expect("it reads");
    let failed = || {
        daemon
            .log()
            .matches("TLS handshake with a client failed")
            .count()
    };
    let logged = Deadline::after(LIMIT).poll(|| (failed() > 0).then_some(()));
    assert!(logged.is_some(), "{}", daemon.log());
    assert_eq!(failed(), 1, "{}", daemon.log());
}

#[test]
fn a_database_that_is_away_or_empty_stays_so() {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let setup = DaemonSetup::new()
        .set(
            "TRUNKLINE__DATABASE__URL",
            &format!("postgres://u:hunter2@{nobody}/x"),
        )
        .set(
            "TRUNKLINE__SECRETS__MASTER_KEY",
            trunkline_testkit::database::MASTER_KEY,
        );
    let (code, report) = setup.doctor();
    assert_eq!(code, Some(1), "{report}");

    let (level, _, fix) = one(&report, "database");
    assert!(level == "error" && fix.contains("PostgreSQL"), "{report}");
    assert!(!report.to_string().contains("hunter2"), "{report}");
    let Some(database) = Database::new() else {
        return;
    };

    let setup = DaemonSetup::new();
    let setup = database
        .settings()
        .into_iter()
        .fold(setup, |setup, (name, value)| setup.set(name, &value));
    let (_, report) = setup.doctor();
    let (level, text, _) = one(&report, "database");
    assert!(
        level == "hint" && text.starts_with("There is no database yet"),
        "{report}"
    );
    assert_eq!(database.tables(), Vec::<String>::new());
}

/// The daemon migrates it; the doctor doesn't.
#[test]
fn a_database_of_an_older_version_is_left_as_it_is() {
    let setup = DaemonSetup::new();
    let file = setup.folder.path().join("data/trunkline.db");
    let database = rusqlite::Connection::open(file).expect("a file");
    let older = "UPDATE schema_migrations SET version = 49; ALTER TABLE schema_migrations DROP COLUMN fingerprint";
    database.execute_batch(older).expect(older);

    let (_, report) = setup.doctor();
    let (level, text, _) = one(&report, "database");
    let said = "The database is from an older version of this program.";
    assert_eq!((level.as_str(), &*text), ("error", said), "{report}");
    let version = database.query_row("SELECT version FROM schema_migrations", [], |row| {
        row.get(0)
    });
    assert_eq!(version, Ok(49));
}

#[test]
fn a_default_runtime_is_asked_without_what_only_it_may_know() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let url = format!("ws://{address}/{{agent_id}}?token=SECRET");
    let setup = DaemonSetup::new().set("TRUNKLINE__PHONE__DEFAULT_RUNTIME", &url);

    let (_, report) = setup.doctor();
    assert!(!report.to_string().contains("SECRET"), "{report}");
    let (level, text, _) = one(&report, "runtime");
    assert!(level == "ok" && text.contains("answers at"), "{report}");
}

#[test]
fn addresses_that_are_forbidden_to_tenants_are_not_contacted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket's option");
    let port = listener.local_addr().expect("an address").port();

    let names = vec![("carrier.test", Record::Address([127, 0, 0, 1].into()))];
    let names = dns::serve(names).to_string();
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__SIP__NAMESERVERS", &names)
        .set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "10.0.0.0/8")
        .serve();
    let trunk = json!({
        "name": "Inner", "host": "carrier.test", "port": port, "transport": "tcp", "caller_number": "+442079460000",
    });
    let (status, made) = daemon.change("POST", "/phone/sip/outbound-trunks", &trunk);
    assert_eq!(status, 201, "{made}");

    let (_, report) = daemon.setup.doctor();
    let refused = of(&report, "addresses");
    let is_named = |(_, text, _): &(String, String, String)| text.contains("carrier.test");
    assert!(refused.iter().any(is_named), "{report}");
    assert!(of(&report, "carrier").is_empty(), "{report}");
    let met = listener.accept().map_err(|error| error.kind());
    assert_eq!(
        met.err(),
        Some(std::io::ErrorKind::WouldBlock),
        "nobody connected"
    );
}
