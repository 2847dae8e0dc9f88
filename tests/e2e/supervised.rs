//! The daemon under a supervisor: systemd's notifications and watchdog, health by the command line, and health on a separate address.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use trunkline_testkit::process::{Deadline, free_port, trunkline};
use trunkline_testkit::{DaemonSetup, http};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(30);

/// The socket on which systemd would be notified.
struct Supervisor(UnixDatagram);

impl Supervisor {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a socket");
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a timeout");
        Self(socket)
    }

    /// Waits for this state, and skips others.
    fn hears(&self, wanted: &str) {
        let heard = Deadline::after(LIMIT).poll(|| {
            let mut octets = [0; 512];
            let read = self.0.recv(&mut octets).ok()?;
            let states = String::from_utf8_lossy(&octets[..read]).into_owned();
            states.lines().any(|state| state == wanted).then_some(())
        });
        assert!(heard.is_some(), "systemd isn't told {wanted}");
    }
}

#[test]
fn systemd_is_told_of_the_start_each_turn_a_reload_and_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let supervisor = Supervisor::listen(&path);
    let setup = DaemonSetup::new()
        .set("NOTIFY_SOCKET", &path.display().to_string())
        .set("WATCHDOG_USEC", "200000");

    let daemon = setup.serve();
    supervisor.hears("READY=1");
    for _ in 0..3 {
        supervisor.hears("WATCHDOG=1");
    }

    daemon.process.signal("HUP");
    supervisor.hears("RELOADING=1");
    supervisor.hears("READY=1");

    daemon.process.terminate();
    supervisor.hears("STOPPING=1");
    assert!(daemon.stop());
}

#[test]
fn health_is_asked_by_the_command_line_and_has_an_address_of_its_own() {
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let setup = DaemonSetup::new();
    let down = setup.output(&["health"]);
    assert_eq!(down.status.code(), Some(1));
    let said = String::from_utf8_lossy(&down.stderr).into_owned();
    assert!(said.contains("is not ready"), "{said}");

    let mut daemon = setup.serve();
    let up = daemon.setup.output(&["health"]);
    assert_eq!(up.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&up.stdout).contains(r#""status":"ready""#));

    daemon.restart(&[("TRUNKLINE__HTTP__HEALTH_LISTEN", &own.to_string())]);
    assert_eq!(daemon.setup.output(&["health"]).status.code(), Some(0));
    for (address, path, status) in [
        (own, "/healthz", 200),
        (own, "/readyz", 200),
        (own, "/metrics", 200),
        (own, "/phone/calls", 404),
        (daemon.setup.http, "/readyz", 200),
        (daemon.setup.http, "/metrics", 404),
    ] {
        let answered = http::get(address, path, None).map(|(status, _)| status);
        assert_eq!(answered, Some(status), "{address}{path}");
    }

    // Refusals there are those of the API.
    for (request, status) in [("GET /phone", 404), ("POST /healthz", 405)] {
        let mut stream = TcpStream::connect(own).expect("it listens");
        let lines = "Host: x\r\nX-Request-Id: ours-7\r\nConnection: close";
        write!(stream, "{request} HTTP/1.1\r\n{lines}\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("a whole answer");
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{answer}");
        assert!(answer.contains("x-request-id: ours-7\r\n"), "{answer}");
        let body = format!("\"statusCode\":{status},");
        assert!(answer.contains(&body), "{answer}");
    }
}

#[test]
fn man_pages_and_completions_are_those_of_the_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| {
        let ran = std::process::Command::new(trunkline())
            .args(arguments)
            .output();
        let ran = ran.expect("the binary runs");
        assert!(ran.status.success(), "{arguments:?}: {ran:?}");
        String::from_utf8(ran.stdout).expect("text")
    };
    run(&["man", &folder.path().display().to_string()]);
    let page = |name: &str| {
        let path = folder.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(page("trunkline.1").contains("trunkline\\-quickstart(1)"));
    assert!(page("trunkline-key-rotate-signing.1").contains("NAME"));

    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completion", shell]);
        for word in ["quickstart", "rotate-signing", "health"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
