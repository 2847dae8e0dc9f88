//! A Kamailio that forwards the load's calls, for comparison: one UDP child on the measured core, logging errors alone.

use std::net::{SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use std::{fs, io};

use crate::clock::{Clock, seconds};
use crate::daemon::{free_port, stop, tail};
use crate::kernel;

/// Digest user of the configuration.
pub const USER: &str = "bench";
/// Its password.
pub const PASSWORD: &str = "bench-password";
/// The number that the agent holds.
pub const NUMBER: &str = "+442071838750";

/// Longest wait for its first answer, in seconds.
const START: u64 = 20;

/// A running Kamailio.
#[derive(Debug)]
pub struct Kamailio {
    child: Child,
    log: PathBuf,
    /// Address of its listener.
    pub sip: SocketAddrV4,
}

impl Kamailio {
    /// Starts `kamailio` with the configuration in `folder`, and waits for its first answer.
    ///
    /// # Errors
    /// It isn't installed, or doesn't answer; the end of its log then says why.
    pub fn start(
        folder: &Path,
        data: &Path,
        callee: SocketAddrV4,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let sip = free_port()?;
        let log = data.join("kamailio.log");
        let runtime = data.join("kamailio");
        fs::create_dir_all(&runtime)?;
        let defined = |name: &str, value: &str| format!("{name}={value}");
        if let Some(core) = core {
            kernel::pin_to(core)?;
        }

        let child = Command::new("kamailio")
            .arg("-DD")
            .arg("-E")
            .args(["-m", "4096", "-M", "32", "-x", "tlsf", "-X", "tlsf"])
            // The kernel's buffer of its socket, as large as the generator's: otherwise requests of a full closed loop are lost there.
            .args(["-b", "16777216"])
            .args(["-f".as_ref(), folder.join("kamailio.cfg").as_os_str()])
            .args(["-Y".as_ref(), runtime.as_os_str()])
            .args(["-l", &format!("udp:{sip}")])
            .args(["-A", &defined("CALLEE", &format!("\"sip:agent@{callee}\""))])
            .args(["-A", &defined("USER", &format!("\"{USER}\""))])
            .args(["-A", &defined("PASSWORD", &format!("\"{PASSWORD}\""))])
            .args(["-A", &defined("NUMBER", &format!("\"{NUMBER}\""))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()?;

        let kamailio = Self { child, log, sip };
        kamailio.wait_until_ready()?;
        Ok(kamailio)
    }

    /// Process id of its main process, whose children do the work.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All its processes.
    ///
    /// # Errors
    /// /proc can't be read.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let main = self.pid();
        let children = fs::read_to_string(format!("/proc/{main}/task/{main}/children"))?;
        let children = children.split_ascii_whitespace();
        Ok(std::iter::once(main)
            .chain(children.filter_map(|pid| pid.parse().ok()))
            .collect())
    }

    /// Returns the end of its log.
    pub fn log(&self) -> String {
        tail(&self.log)
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let own = socket.local_addr()?;
        let server = self.sip;
        let options = format!(
            "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bKready\r\nMax-Forwards: 70\r\n\
             From: <sip:bench@{own}>;tag=1\r\nTo: <sip:{server}>\r\nCall-ID: ready\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        let clock = Clock::start();
        while clock.now() < seconds(START) {
            // Refused while nothing listens there yet.
            if socket.send_to(options.as_bytes(), server).is_ok()
                && socket.recv(&mut [0; 2_048]).is_ok()
            {
                return Ok(());
            }
            sleep(Duration::from_millis(50));
        }
        Err(io::Error::other(format!(
            "kamailio doesn't answer; its log ends:\n{}",
            self.log()
        )))
    }
}

impl Drop for Kamailio {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}
