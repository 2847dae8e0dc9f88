//! Monitoring by an operator: metrics, alerts, the dashboard of Grafana, and log lines.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Deadline, http, tools};

use crate::calls::guessing::Client;

const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const PATIENCE: Duration = Duration::from_secs(10);

fn packaged(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("packaging")
        .join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(packaged(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Text of a daemon's `/metrics`.
struct Metrics(String);

impl Metrics {
    fn of(daemon: &Daemon) -> Self {
        let (status, text) = http::get(daemon.setup.http, "/metrics", None).expect("metrics");
        assert_eq!(status, 200);
        Self(text)
    }

    fn series(&self) -> impl Iterator<Item = &str> {
        let lines = self.0.lines();
        lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    fn value(&self, series: &str) -> f64 {
        let mut values = self
            .series()
            .filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = values
            .next()
            .unwrap_or_else(|| panic!("{series} is missing:\n{}", self.0));
        value.parse().expect("a number")
    }

    /// Returns the names in `# TYPE` or `# HELP` lines.
    fn told(&self, what: &str) -> BTreeSet<&str> {
        let mark = format!("# {what} ");
        let lines = self.0.lines();
        lines
            .filter_map(|line| line.strip_prefix(&mark)?.split(' ').next())
            .collect()
    }
}

/// Returns the names of metrics in a text, with a histogram's series reduced to the histogram.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let names = words.filter(|word| {
        (word.starts_with("trunkline_") && *word != "trunkline_") || word.starts_with("process_")
    });
    let reduced = names.map(|name| {
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.iter().find_map(|part| name.strip_suffix(part));
        histogram.unwrap_or(name).to_owned()
    });
    reduced.collect()
}

/// Runs a program on this input; returns its output if it succeeds.
fn judged(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let run = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut run = run.expect("it runs");
    let mut stdin = run.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);

    let ended = run.wait_with_output().expect("it ends");
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let printed = text(&ended.stdout) + &text(&ended.stderr);
    match ended.status.success() {
        true => Ok(printed),
        false => Err(printed),
    }
}

#[test]
fn every_metric_exists_from_the_start_and_counts_a_call() {
    let setup = DaemonSetup::new();
    setup.dedicate(&CALLER.to_string());
    let daemon = setup.serve();

    let before = Metrics::of(&daemon);
    assert_eq!(before.told("HELP"), before.told("TYPE"));
    let documented = std::fs::read_to_string(packaged("..").join("docs/operating.md"));
    let documented = documented.expect("the page");
    let rows = documented
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<&str> = rows
        .filter(|name| name.starts_with("trunkline_") || name.starts_with("process_"))
        .collect();
    assert_eq!(
        rows,
        before.told("TYPE"),
        "docs/operating.md and a daemon that has just started"
    );

    let ended = r#"trunkline_calls_ended_total{direction="inbound",status="completed"}"#;
    let inbound = |name: &str| format!(r#"{name}{{direction="inbound"}}"#);
    let duration = inbound("trunkline_call_duration_seconds_count");
    let delay = inbound("trunkline_call_post_dial_delay_seconds_count");
    for series in [ended, &duration, &delay] {
        assert_eq!(before.value(series), 0.0, "{series}");
    }

    let rtp = Rtp::new(CALLER);
    let number = daemon.setup.first_number.clone();
    let (_talker, answer) = Talker::call(CALLER, daemon.sip(), &number, &offer(rtp.address()));
    assert_eq!(answer.status(), Some(200), "{answer:?}");

    let call = daemon.answered_call();
    daemon.hang_up(&call);
    let line = daemon.log_line(&[" INFO call ended", &call]);
    let agent = format!("agent.id={}", daemon.setup.first_agent);
    let digits = format!("to=…{}", &number[number.len() - 3..]);

    for part in [
        "direction=inbound",
        "from=…001",
        &digits,
        &agent,
        "chosen_by=",
        "status=completed",
        "talked_ms=",
        "hangup_by=",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains(&number[1..]), "{line}");

    let wrong = Credentials {
        password: "guess".to_owned(),
        ..daemon.credentials()
    };
    let nobody = Credentials {
        username: "nobody".to_owned(),
        ..wrong.clone()
    };
    for pair in [&wrong, &nobody] {
        Client::new(&daemon, "REGISTER").tries(pair);
    }

    let counted = Deadline::after(PATIENCE).poll(|| {
        let now = Metrics::of(&daemon);
        let all = [&duration, &delay].map(|series| now.value(series));
        (all == [1.0, 1.0]).then_some(now)
    });
    let after = counted.unwrap_or_else(|| panic!("{}", Metrics::of(&daemon).0));
    let grown: f64 = after
        .series()
        .filter(|line| line.starts_with(r#"trunkline_calls_ended_total{direction="inbound""#))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert_eq!(grown, 1.0);

    for cause in ["password", "unknown_user"] {
        let series = format!(r#"trunkline_auth_failures_total{{cause="{cause}"}}"#);
        assert_eq!(after.value(&series), 1.0);
    }
    for kind in ["read", "write"] {
        let series = format!(r#"trunkline_database_transaction_seconds_count{{kind="{kind}"}}"#);
        assert!(after.value(&series) > 0.0);
    }
    assert!(after.value("process_resident_memory_bytes") > 1e6);
    assert!(after.value("trunkline_change_feed_lag_seconds") < 5.0);
    let certificate = r#"trunkline_certificate_expiry_timestamp_seconds{use="sip"}"#;
    assert!(after.value(certificate).is_nan(), "there is none");

    if tools(&["promtool"]) {
        for metrics in [&before, &after] {
            let checked = judged("promtool", &["check", "metrics"], &metrics.0);
            assert_eq!(checked.as_deref().map(str::trim), Ok(""));
        }
    }
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let daemon = DaemonSetup::new().serve();
    let metrics = Metrics::of(&daemon);
    let known = metrics.told("TYPE");
    for (file, least) in [
        ("prometheus/trunkline.rules.yml", 20),
        ("grafana/trunkline.json", 25),
    ] {
        let text = read(file);
        let used = named(&text);
        assert!(used.len() >= least, "{file}: {used:?}");
        let unknown: Vec<_> = used
            .iter()
            .filter(|name| !known.contains(name.as_str()))
            .collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }

    let board: serde_json::Value =
        serde_json::from_str(&read("grafana/trunkline.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
}

#[test]
fn alerts_fire_when_something_is_wrong_and_only_then() {
    let tests = read("prometheus/trunkline.rules.test.yml");
    for line in read("prometheus/trunkline.rules.yml").lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            let expected = format!(r#"{{alertname="{alert}"}}"#);
            assert!(tests.contains(&expected), "{alert} is not tested");
        }
    }

    if !tools(&["promtool"]) {
        return;
    }
    let file = packaged("prometheus/trunkline.rules.test.yml");
    let tested = judged("promtool", &["test", "rules", &file.to_string_lossy()], "");
    assert!(tested.is_ok(), "{tested:?}");
}

/// Returns the log lines about failed log-ins, once there are so many.
fn failed_log_ins(daemon: &Daemon, count: usize) -> String {
    let lines = || {
        let log = daemon.log();
        let lines: Vec<_> = log
            .lines()
            .filter(|line| line.contains("SIP log-in failed"))
            .map(str::to_owned)
            .collect();
        (lines.len() >= count).then(|| lines.join("\n") + "\n")
    };
    let lines = Deadline::after(PATIENCE).poll(lines);
    lines.unwrap_or_else(|| panic!("{}", daemon.log()))
}

/// A user name that seems to end its log line and to begin one that blames another address. CR and LF can't be in a header.
const FORGED: &str = "x\u{2028}\u{b}2026-01-01T00:00:00.000Z  WARN SIP log-in failed source=198.51.100.9 cause=password org.id=7";

#[test]
fn fail2ban_finds_who_guesses_and_nobody_else() {
    let mut daemon = DaemonSetup::new().serve();
    let right = daemon.credentials();
    let pairs = [
        ("a wrong password", &*right.username),
        ("an unknown user", "nobody"),
        ("a line in the name", FORGED),
        ("quotes", r#"x\" source=198.51.100.9 cause=\"password"#),
        (
            "JSON",
            r#"x\",\"source\":\"198.51.100.9\",\"cause\":\"password"#,
        ),
        ("long", &"l".repeat(2_000)),
    ];

    for format in ["text", "json"] {
        daemon.restart(&[("TRUNKLINE__LOG__FORMAT", format)]);
        let before = daemon.log().matches("SIP log-in failed source").count();
        for (case, username) in pairs {
            // One source gets at most two lines a second.
            std::thread::sleep(Duration::from_millis(600));
            let pair = Credentials {
                username: username.to_owned(),
                password: "guess".to_owned(),
            };
            let outcome = Client::new(&daemon, "REGISTER").tries(&pair);
            assert_eq!(outcome.answer.status(), Some(401), "{case}");
        }

        let lines = failed_log_ins(
            &daemon,
            pairs.len() + if format == "json" { before } else { 0 },
        );
        assert!(lines.lines().all(|line| line.len() < 600), "{lines}");
        if !tools(&["fail2ban-regex"]) {
            return;
        }

        // Once as in a file, once as in the journal.
        let journal: String = lines
            .lines()
            .map(|line| format!("pbx trunkline[77]: {line}\n"))
            .collect();
        for lines in [&lines, &journal] {
            let log = daemon.setup.folder.path().join("failed");
            std::fs::write(&log, lines).expect("a file");
            let filter = packaged("fail2ban/filter.d/trunkline.conf");
            let (log, filter) = (log.to_string_lossy(), filter.to_string_lossy());
            let found = judged("fail2ban-regex", &["--out=ip", &log, &filter], "");
            let found = found.unwrap_or_else(|fault| panic!("{fault}\n{lines}"));
            let found: Vec<&str> = found.lines().filter(|line| !line.is_empty()).collect();
            assert_eq!(found, vec!["127.0.0.1"; lines.lines().count()], "{lines}");
        }
    }
}
