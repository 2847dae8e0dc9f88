//! `trunkline trace` in a pseudo-terminal, and the same calls without one; `explain` by a call's id.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use trunkline_testkit::daemon::{Daemon, DaemonSetup};
use trunkline_testkit::http;
use trunkline_testkit::process::{Deadline, free_range, trunkline};
use trunkline_testkit::shell::text;
use trunkline_testkit::tools;

const PATIENCE: Duration = Duration::from_secs(30);

/// Size of the terminal.
const ROWS: usize = 24;
const COLUMNS: usize = 120;

/// Screen of a terminal, with text, cursor positions and clearing. Attributes are ignored.
struct Display {
    cells: Vec<Vec<char>>,
    /// Row and column of the cursor.
    cursor: (usize, usize),
    /// Escape sequence being read.
    sequence: Option<String>,
}

impl Display {
    fn new() -> Self {
        Self {
            cells: vec![vec![' '; COLUMNS]; ROWS],
            cursor: (0, 0),
            sequence: None,
        }
    }

    fn write(&mut self, char: char) {
        if let Some(sequence) = &mut self.sequence {
            sequence.push(char);
            if char.is_ascii_alphabetic() {
                let sequence = self.sequence.take().unwrap_or_default();
                self.control(&sequence);
            }
            return;
        }

        match char {
            '\u{1b}' => self.sequence = Some(String::new()),
            '\r' => self.cursor.1 = 0,
            '\n' => self.cursor.0 += 1,
            char => {
                let (row, column) = self.cursor;
                if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = char;
                }
                self.cursor.1 += 1;
            }
        }
    }

    /// Carries out a control sequence: `H` moves the cursor, `J` clears the screen.
    fn control(&mut self, sequence: &str) {
        if let Some(position) = sequence
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix('H'))
        {
            let mut numbers = position
                .split(';')
                .map(|number| number.parse().unwrap_or(1));
            let mut next = || numbers.next().unwrap_or(1_usize).saturating_sub(1);
            self.cursor = (next(), next());
        } else if sequence.ends_with('J') {
            self.cells = vec![vec![' '; COLUMNS]; ROWS];
        }
    }

    fn text(&self) -> String {
        let rows = self.cells.iter().map(|row| row.iter().collect::<String>());
        rows.collect::<Vec<_>>().join("\n")
    }
}

/// A program in a pseudo-terminal made by `script`.
struct Terminal {
    script: Killed,
    keys: ChildStdin,
    display: Arc<Mutex<Display>>,
}

/// A process that is killed when the test ends, even by a failure.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Terminal {
    fn open(mut script: Command, line: &str) -> Self {
        let line = format!("stty rows {ROWS} cols {COLUMNS}; exec {line}");
        let mut script = script
            .args(["-qefc", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script runs");

        let display = Arc::new(Mutex::new(Display::new()));
        let (mut output, shown) = (script.stdout.take().expect("a pipe"), Arc::clone(&display));

        std::thread::spawn(move || {
            let (mut octets, mut waiting) = ([0; 4096], Vec::new());
            while let Ok(length @ 1..) = output.read(&mut octets) {
                waiting.extend_from_slice(&octets[..length]);

                // A character may arrive in two parts.
                let whole = match std::str::from_utf8(&waiting) {
                    Ok(text) => text.len(),
                    Err(error) => error.valid_up_to(),
                };
                let text: Vec<u8> = waiting.drain(..whole).collect();

                let mut shown = shown.lock().expect("a lock");
                for char in String::from_utf8_lossy(&text).chars() {
                    shown.write(char);
                }
            }
        });

        Self {
            keys: script.stdin.take().expect("a pipe"),
            script: Killed(script),
            display,
        }
    }

    fn screen(&self) -> String {
        self.display.lock().expect("a lock").text()
    }

    /// Waits until the screen shows this text.
    fn shows(&self, text: &str) {
        let seen = Deadline::after(PATIENCE).poll(|| self.screen().contains(text).then_some(()));
        assert!(seen.is_some(), "{text:?} isn't on\n{}", self.screen());
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a key");
    }

    /// Waits until the program has ended successfully.
    fn ends(mut self) {
        let ended = Deadline::after(PATIENCE).poll(|| self.script.0.try_wait().expect("a child"));
        if ended.is_none() {
            self.script.0.kill().expect("killed");
        }
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    }
}

/// Returns the sipp command that `trunk paste` prints, with these arguments added.
fn sipp(daemon: &Daemon, arguments: &[&str]) -> Command {
    let pasted = daemon.setup.output(&["trunk", "paste", "sipp"]);
    let line = String::from_utf8(pasted.stdout).expect("text");
    let line = format!(
        "{} -i 127.0.0.1 -nostdin {}",
        line.trim_end(),
        arguments.join(" ")
    );

    let mut sipp = daemon.setup.program("sh");
    sipp.args(["-c", &line])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    sipp
}

/// Places one call, to its end.
fn place_call(daemon: &Daemon) {
    let placed = sipp(daemon, &["-timeout 20", "-timeout_error"]).status();
    assert!(placed.is_ok_and(|status| status.success()));
}

#[test]
fn calls_are_shown_opened_and_saved_in_a_terminal() {
    if !tools(&["sipp", "script"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let line = format!("'{}' trace", trunkline().display());
    let mut terminal = Terminal::open(daemon.setup.program("script"), &line);
    terminal.shows("0 calls");
    place_call(&daemon);
    terminal.shows("completed");

    let id = text(&daemon.record()["id"]).to_owned();
    terminal.press("\r");
    terminal.shows(&format!("call {id}"));
    terminal.shows("INVITE (SDP)");
    terminal.shows("is assigned to agent");
    terminal.press("\r");
    terminal.shows("m=audio");

    terminal.press("s\t");
    terminal.shows(&format!("{id}.flow"));
    terminal.press("\r");
    terminal.shows("Saved to");
    terminal.press("qqq");
    terminal.ends();

    let flow = daemon.setup.folder.path().join(format!("{id}.flow"));
    let flow = std::fs::read_to_string(flow).expect("the call is saved");
    assert!(flow.contains("INVITE sip:+12025550123@"), "{flow}");
}

#[test]
fn calls_are_printed_saved_and_explained_without_a_terminal() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let mut watcher = daemon.setup.program(&trunkline().display().to_string());
    let watcher = watcher
        .args(["trace", "--json", "--number", "+12025550123"])
        .stdout(Stdio::piped())
        .spawn();
    let mut watcher = Killed(watcher.expect("it runs"));
    let mut lines = BufReader::new(watcher.0.stdout.take().expect("a pipe")).lines();

    place_call(&daemon);
    let id = text(&daemon.record()["id"]).to_owned();
    let printed = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains("completed"));
    drop(watcher);

    let printed = printed.expect("a line");
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(
        (&printed["id"], &printed["sip_code"]),
        (&id.as_str().into(), &200.into())
    );

    let setup = &daemon.setup;
    let run = |arguments: &[&str]| -> (Option<i32>, String) {
        let output = setup.output(arguments);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("text"))
    };

    let trunk = daemon.shown("/phone/sip/inbound-trunk");
    let call_id = text(&daemon.record()["caller_call_id"]).to_owned();
    for (filter, count) in [
        (["--agent", "Echo"], 1),
        (["--trunk", "inbound"], 1),
        (["--trunk", text(&trunk["id"])], 1),
        (["--call-id", &call_id[2..]], 1),
        (["--call-id", "x@y"], 0),
        (["--number", "+12025550123"], 1),
        (["--status", "refused"], 0),
    ] {
        let (code, said) = run(&[&["trace", "--once", "--json"] as &[&str], &filter].concat());
        let lines = said.lines().filter(|line| line.contains(&id)).count();
        assert_eq!((code, lines), (Some(0), count), "{filter:?}: {said}");
    }

    for named in [&*id, &id[24..], "--last"] {
        let (code, said) = run(&["trace", named]);
        assert!(
            code == Some(0) && said.contains("trunkline <-- caller  INVITE"),
            "{named}: {said}"
        );
    }

    for (file, part) in [
        ("a.flow", "trunkline-flow 1"),
        ("a.txt", "  * The call names no agent"),
        ("a.pcap", ""),
    ] {
        let (code, said) = run(&["trace", &id, "--save", file]);
        assert_eq!(code, Some(0), "{file}: {said}");
        let path = setup.folder.path().join(file);
        let mode = std::fs::metadata(&path).expect("a file").mode();
        assert_eq!(
            mode & 0o777,
            0o600,
            "{file}: its messages are for nobody else"
        );
        let saved = std::fs::read(path).expect("a file");
        assert!(String::from_utf8_lossy(&saved).contains(part), "{file}");
    }

    let (code, said) = run(&["trace", &id, "--save", "a.pcap"]);
    assert!(code == Some(1) && said.contains("exists"), "{said}");
    let (code, said) = run(&["trace", &id, "--save", "a.doc"]);
    assert!(
        code == Some(1) && said.contains(".pcap, .flow or .txt"),
        "{said}"
    );

    let (code, said) = run(&["explain", &id]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with(&format!("Call {id} from ")), "{said}");
    assert!(
        said.contains("takes the call: it holds the dialled number"),
        "{said}"
    );

    let explained = setup.run(&["explain", &id, "--json"]);
    assert_eq!(
        (&explained[0]["call_id"], &explained[0]["sip_code"]),
        (&id.as_str().into(), &200.into())
    );

    // The same by a part of the id, through the API with a key.
    let url = format!("http://{}", setup.http);
    let through_api = ["--url", &url, "--key", daemon.key()];
    for named in [&id[24..], "--last"] {
        let same = setup.run(&[&["explain", named, "--json"], &through_api[..]].concat());
        assert_eq!(same[0]["explanation"], explained[0]["explanation"]);
    }

    let (code, said) = run(&["explain", "0198c0de-0000-7000-8000-000000000001"]);
    assert!(code == Some(1), "{said}");
}

/// Returns the resident memory of a process in KiB.
fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    value.expect("the process runs")
}

/// Returns the process that `script` has started.
fn child_of(script: u32) -> u32 {
    let found = Deadline::after(PATIENCE).poll(|| {
        let children = format!("/proc/{script}/task/{script}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().next()?.parse().ok()
    });
    found.expect("script has started it")
}

/// Follows a load of 20 calls/s for three seconds, or of 100 calls/s for `TRUNKLINE_TRACE_SOAK_S` seconds. It uses none of the org's requests, and
/// its memory is bounded. In a soak of more than three minutes memory no longer grows once the list is full.
#[test]
fn a_load_costs_the_org_no_requests_and_little_memory() {
    /// Requests a minute of the org's keys.
    const LIMIT: u32 = 20;
    const MOST_KIB: u64 = 96 << 10;
    /// Time after which the list is full.
    const FULL: Duration = Duration::from_secs(120);
    /// Growth of memory from then on that passes.
    const GROWTH_KIB: u64 = 4 << 10;

    if !tools(&["sipp", "script"]) {
        return;
    }

    let seconds = std::env::var("TRUNKLINE_TRACE_SOAK_S").ok();
    let rate = if seconds.is_some() { 100 } else { 20 };
    let seconds: u32 = seconds.map_or(3, |seconds| seconds.parse().expect("seconds"));

    let rtp = free_range(1_024);
    let limit = LIMIT.to_string();
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE", &limit)
        .set(
            "TRUNKLINE__MEDIA__RTP_PORTS",
            &format!("{rtp}-{}", rtp + 1_023),
        )
        .serve();

    let line = format!("'{}' trace", trunkline().display());
    let mut terminal = Terminal::open(daemon.setup.program("script"), &line);
    terminal.shows("0 calls");
    let tracer = child_of(terminal.script.0.id());

    // Each call has its own caller: many calls of one caller to one number count as a loop.
    let scenario = daemon
        .setup
        .folder
        .path()
        .join("data/quickstart-caller.xml");
    let arguments = format!("-r {rate} -l 400 -m {}", rate * seconds);
    let mut load = sipp(&daemon, &["-trace_err", &arguments]);
    let text = std::fs::read_to_string(&scenario).expect("the scenario");
    let text = text.replace("sip:sipp@", "sip:+4930[call_number]@");
    std::fs::write(&scenario, text.replace("\"2000\"", "\"500\"")).expect("written");
    let mut load = Killed(load.spawn().expect("sipp runs"));

    let (list_full, mut full) = (Deadline::after(FULL), None);
    while load.0.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_secs(1));
        let now = resident_kib(tracer);
        assert!(now < MOST_KIB, "{now} KiB");
        if full.is_none() && list_full.is_over() {
            full = Some(now);
        }
    }

    let last = resident_kib(tracer);
    println!("{seconds} s: {last} KiB at the end, {full:?} when the list was full");
    if let Some(full) = full.filter(|_| seconds > 180) {
        assert!(last < full + GROWTH_KIB, "{full} KiB, then {last} KiB");
    }

    terminal.shows("completed");
    for request in 0..LIMIT {
        let path = "/phone/calls?limit=1";
        let answer = http::get(daemon.setup.http, path, Some(&daemon.setup.key));
        let (status, body) = answer.expect("an answer");
        assert_eq!(status, 200, "request {request}: {body}");
        let listed: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(listed["items"][0]["status"], "completed", "{listed}");
    }

    terminal.press("q");
    terminal.ends();
}
