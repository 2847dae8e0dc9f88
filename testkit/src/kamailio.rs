//! Kamailio as a carrier's edge: a registrar with one account, and a proxy with Record-Route between us and the carrier's phones. Or as a
//! customer's proxy, whose configuration includes lines of ours.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{Deadline, Process, free_port};

const LISTENING: Duration = Duration::from_secs(20);
const ENDING: Duration = Duration::from_secs(10);

/// Configuration of Debian's package.
const PACKAGED: &str = "/etc/kamailio/kamailio.cfg";

/// User name of its one account.
pub const USER: &str = "acme";
pub const PASSWORD: &str = "wonder land";

/// A running Kamailio.
#[derive(Debug)]
pub struct Kamailio {
    pub address: SocketAddr,
    process: Process,
    folder: tempfile::TempDir,
}

impl Kamailio {
    /// Starts it. A call from `daemon` is challenged and goes to `phone`. Other calls go to `daemon`, or with `X-Way: registered` to the
    /// registered AOR. Returns once it answers.
    pub fn start(daemon: SocketAddr, phone: SocketAddr) -> Self {
        Self::challenging("1", daemon, phone)
    }

    /// The same with the challenges of its stock configuration: without `qop`.
    pub fn stock(daemon: SocketAddr, phone: SocketAddr) -> Self {
        Self::challenging("0", daemon, phone)
    }

    fn challenging(flags: &str, daemon: SocketAddr, phone: SocketAddr) -> Self {
        Self::with(|own, _| configuration(own, daemon, phone, flags))
    }

    /// Starts it with the configuration of its package, which includes these lines. New calls take their route of this name. `None` where the
    /// package's file isn't installed.
    pub fn including(lines: &str, route: &str) -> Option<Self> {
        let packaged = std::fs::read_to_string(PACKAGED).ok()?;
        let including = including(&packaged, route);
        Some(Self::with(|own, folder| {
            let write = |name: &str, text: &str| {
                std::fs::write(folder.join(name), text).expect("it can be written");
            };
            write("trunkline.cfg", lines);
            // Read by the packaged file, for what differs from machine to machine.
            write(
                "kamailio-local.cfg",
                &format!("listen=udp:{own}\nauto_aliases=no\nlog_stderror=yes\ndisable_tcp=yes\n"),
            );
            including
        }))
    }

    fn with(configuration: impl FnOnce(SocketAddr, &Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let config = folder.path().join("kamailio.cfg");
        std::fs::write(&config, configuration(address, folder.path())).expect("it can be written");

        // It says all that is wrong with a file, where a start only fails.
        let checked = Command::new("kamailio")
            .args(["-c", "-E", "-f"])
            .arg(&config)
            .arg("-Y")
            .arg(folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        assert!(
            checked.status.success(),
            "its configuration is wrong:\n{}",
            String::from_utf8_lossy(&checked.stderr)
        );

        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let mut command = Command::new("kamailio");
        command
            // -DD keeps the first process in the foreground, where SIGTERM reaches it; -E logs to standard error.
            .args(["-DD", "-E", "-m", "32", "-M", "4", "-f"])
            .arg(&config)
            .arg("-Y")
            .arg(folder.path())
            .arg("-w")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(log);

        let kamailio = Self {
            address,
            process: Process::start("kamailio", &mut command),
            folder,
        };

        let answers = Deadline::after(LISTENING).poll(|| kamailio.answers().then_some(()));
        assert!(answers.is_some(), "it doesn't answer:\n{}", kamailio.log());
        kamailio
    }

    fn answers(&self) -> bool {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a limit");
        let own = socket.local_addr().expect("an address");
        let ask = format!(
            "OPTIONS sip:{} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bKping;rport\r\nMax-Forwards: 70\r\nFrom: <sip:test@{own}>;tag=1\r\n\
             To: <sip:{}>\r\nCall-ID: ping\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n",
            self.address, self.address
        );
        let mut octets = [0; 2048];
        socket.send_to(ask.as_bytes(), self.address).is_ok()
            && socket
                .recv(&mut octets)
                .is_ok_and(|count| octets[..count].starts_with(b"SIP/2.0 200"))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Kamailio {
    /// Ends it by SIGTERM, since a killed Kamailio would leave its children behind.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kamailio's log:\n{}", self.log());
        }
        if self.process.exited().is_none() {
            self.process.terminate();
            self.process.wait(Deadline::after(ENDING));
        }
    }
}

/// Beginning of every configuration.
fn beginning(own: SocketAddr) -> String {
    format!(
        "#!KAMAILIO
debug=2
log_stderror=yes
children=1
disable_tcp=yes
auto_aliases=no
listen=udp:{own}
"
    )
}

/// Beginning of the routing of a request: all but new calls and registrations ends here.
const BEFORE_NEW: &str = r#"request_route {
  if (is_method("OPTIONS")) { sl_send_reply("200", "Here"); exit; }
  if (is_method("CANCEL")) { if (t_check_trans()) t_relay(); exit; }
  if (has_totag()) {
    if (loose_route()) { t_relay(); exit; }
    if (is_method("ACK")) { if (t_check_trans()) t_relay(); exit; }
    sl_send_reply("404", "Not here");
    exit;
  }
  t_check_trans();
"#;

/// Returns the packaged configuration with what the pasted lines say is to be added to it.
fn including(packaged: &str, route: &str) -> String {
    let (before, routing) = packaged
        .split_once("\nrequest_route {")
        .expect("the packaged file routes requests");
    let (new, rest) = routing
        .split_once("record_route();")
        .expect("the packaged file records its route");
    format!(
        "{before}\ninclude_file \"trunkline.cfg\"\nrequest_route {{{new}record_route();\n\t\troute({route});{rest}"
    )
}

fn configuration(own: SocketAddr, daemon: SocketAddr, phone: SocketAddr, flags: &str) -> String {
    let modules = [
        "sl",
        "tm",
        "rr",
        "pv",
        "usrloc",
        "registrar",
        "auth",
        "textops",
        "siputils",
    ];

    let modules = modules
        .map(|name| format!("loadmodule \"{name}.so\"\n"))
        .concat();

    let (port, beginning) = (daemon.port(), beginning(own));
    format!(
        r#"{beginning}{modules}
modparam("registrar", "min_expires", 60)
modparam("tm", "auto_inv_100", 0)
{BEFORE_NEW}  if (is_method("REGISTER")) {{
    if ($au != "{USER}" || !pv_www_authenticate("kamailio.test", "{PASSWORD}", "0")) {{ www_challenge("kamailio.test", "{flags}"); exit; }}
    save("location");
    exit;
  }}
  if (!is_method("INVITE")) {{ sl_send_reply("405", "No"); exit; }}
  record_route();
  if ($sp == {port}) {{
    if ($au != "{USER}" || !pv_proxy_authenticate("kamailio.test", "{PASSWORD}", "0")) {{ proxy_challenge("kamailio.test", "{flags}"); exit; }}
    consume_credentials();
    $du = "sip:{phone}";
  }} else if ($hdr(X-Way) == "registered") {{
    $ru = "sip:{USER}@{own}";
    if (!lookup("location")) {{ sl_send_reply("480", "Nobody"); exit; }}
  }} else {{
    $du = "sip:{daemon}";
  }}
  t_relay();
}}
"#
    )
}
