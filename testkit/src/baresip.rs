//! baresip as a phone: it plays a tone into the call and records the audio that it receives.

use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::digest::Credentials;
use crate::process::{Deadline, Process, free_port, free_range};

const RATE: u32 = 8000;
const TALK: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(30);
/// Number of RTP ports of a phone.
const RTP_PORTS: u16 = 20;
/// Module folders of Debian's and Homebrew's packages.
const MODULES: [&str; 3] = [
    "/usr/lib/baresip/modules",
    "/usr/local/lib/baresip/modules",
    "/opt/homebrew/lib/baresip/modules",
];

/// Audio that a phone heard in a call of four seconds.
#[derive(Debug)]
pub struct Baresip {
    /// Samples heard, 8 kHz mono.
    pub heard: Vec<i16>,
    pub output: String,
}

impl Baresip {
    /// Calls `number`, plays a tone of `hertz`, and hangs up after four seconds.
    pub fn call(daemon: SocketAddr, credentials: &Credentials, number: &str, hertz: f64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        configure(folder.path(), daemon, credentials, hertz, "regint=0");
        let output = folder.path().join("output");
        let file = fs::File::create(&output).expect("the output can be written");

        let mut command = Command::new("baresip");
        command
            .arg("-f")
            .arg(folder.path())
            .args(["-t", &TALK.as_secs().to_string()]);
        command.args(["-e", &format!("/dial sip:{number}@{daemon}")]);
        command
            .current_dir(folder.path())
            .stdout(Stdio::from(file))
            .stderr(Stdio::null());

        let status = Process::start("baresip", &mut command).wait(Deadline::after(LIMIT));
        let output = String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned();
        assert!(
            status.is_some_and(|status| status.success()),
            "baresip ended with {status:?}:\n{output}"
        );

        let heard = recording(folder.path())
            .map(|path| samples(&path))
            .unwrap_or_default();
        Self { heard, output }
    }

    /// Calls `number` and stays in the call, so that a test can press keys.
    pub fn dial(daemon: SocketAddr, credentials: &Credentials, number: &str) -> Phone {
        let folder = tempfile::tempdir().expect("a temporary folder");
        configure(folder.path(), daemon, credentials, 440.0, "regint=0");

        let control = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let file = fs::OpenOptions::new()
            .append(true)
            .open(folder.path().join("config"));
        let lines = format!("module_app ctrl_tcp.so\nctrl_tcp_listen {control}\n");
        file.expect("the configuration is there")
            .write_all(lines.as_bytes())
            .expect("the configuration can be written");

        let log = folder.path().join("output");
        let output = fs::File::create(&log).expect("the output can be written");
        let mut command = Command::new("baresip");
        command.arg("-f").arg(folder.path());
        command.args(["-e", &format!("/dial sip:{number}@{daemon}")]);
        command
            .current_dir(folder.path())
            .stdout(Stdio::from(output))
            .stderr(Stdio::null());

        Phone {
            process: Process::start("baresip", &mut command),
            control,
            log,
            _folder: folder,
        }
    }

    /// Starts a phone that registers over `transport` and keeps running.
    pub fn registered(
        daemon: SocketAddr,
        credentials: &Credentials,
        transport: &str,
    ) -> Registered {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let account = format!(";transport={transport} regint=60");
        configure(folder.path(), daemon, credentials, 440.0, &account);
        let mut command = Command::new("baresip");
        command.arg("-f").arg(folder.path());
        command
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Registered {
            process: Process::start("baresip", &mut command),
            _folder: folder,
        }
    }

    /// Share of this tone in what was heard: 0 to 1.
    pub fn share_of(&self, hertz: f64) -> f64 {
        // The first half second may hold the silence before the echo starts.
        let heard = self.heard.get(RATE as usize / 2..).unwrap_or_default();
        let samples: Vec<f64> = heard.iter().map(|sample| f64::from(*sample)).collect();
        let total: f64 = samples.iter().map(|sample| sample * sample).sum();
        let windows = samples.chunks_exact(RATE as usize / 10);
        let tone: f64 = windows
            .map(|window| goertzel(window, hertz) * 2.0 / window.len() as f64)
            .sum();
        if total > 0.0 { tone / total } else { 0.0 }
    }
}

/// A baresip in a call that takes commands.
#[derive(Debug)]
pub struct Phone {
    process: Process,
    control: SocketAddr,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Phone {
    /// Presses keys, one after the other.
    pub fn press(&self, keys: &str) {
        let command = format!("{{\"command\":\"sndcode\",\"params\":\"{keys}\"}}");
        let netstring = format!("{}:{command},", command.len());
        let mut control = TcpStream::connect(self.control).expect("baresip takes commands");
        control
            .write_all(netstring.as_bytes())
            .expect("the command is sent");
        // Its answer shows that it has read the command.
        let mut octets = [0; 1];
        control.read_exact(&mut octets).expect("baresip answers");
    }

    /// Returns its output so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Hangs up and ends; returns its output.
    pub fn leave(mut self) -> String {
        self.process.terminate();
        let status = self.process.wait(Deadline::after(LIMIT));
        assert!(status.is_some(), "baresip goes on:\n{}", self.output());
        self.output()
    }
}

/// A baresip that has an account with the daemon and stays.
#[derive(Debug)]
pub struct Registered {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Registered {
    /// Kills the process, which can't unregister.
    pub fn kill(self) {
        drop(self.process);
    }

    /// Ends the process in the regular way: it unregisters.
    pub fn leave(mut self) {
        self.process.terminate();
        let status = self.process.wait(Deadline::after(LIMIT));
        assert!(status.is_some(), "baresip goes on");
    }
}

/// The power of one frequency in a window.
fn goertzel(window: &[f64], hertz: f64) -> f64 {
    let coefficient = 2.0 * (TAU * hertz / f64::from(RATE)).cos();
    let (last, before) = window.iter().fold((0.0, 0.0), |(last, before), sample| {
        (sample + coefficient * last - before, last)
    });
    last * last + before * before - coefficient * last * before
}

fn configure(
    folder: &Path,
    daemon: SocketAddr,
    credentials: &Credentials,
    hertz: f64,
    account: &str,
) {
    let modules = MODULES
        .into_iter()
        .find(|path| Path::new(path).is_dir())
        .expect("baresip's modules are where packages put them");
    let tone = folder.join("tone.wav");
    fs::write(&tone, wave(hertz)).expect("the tone can be written");
    // Above the media ports come one port for SIP, and the next one, which baresip uses for TLS by itself.
    let rtp = free_range(RTP_PORTS + 2);

    let mut config = String::new();
    let lines = [
        ("sip_listen", format!("127.0.0.1:{}", rtp + RTP_PORTS)),
        ("net_interface", "127.0.0.1".to_owned()),
        ("rtp_ports", format!("{rtp}-{}", rtp + RTP_PORTS - 1)),
        ("module_path", modules.to_owned()),
        ("audio_source", format!("aufile,{}", tone.display())),
        (
            "audio_player",
            format!("aufile,{}", folder.join("player.wav").display()),
        ),
        (
            "audio_alert",
            format!("aufile,{}", folder.join("alert.wav").display()),
        ),
        ("snd_path", folder.display().to_string()),
    ];
    let loaded = ["account", "menu", "g711", "aufile", "sndfile"]
        .map(|name| ("module", format!("{name}.so")));

    for (name, value) in lines.into_iter().chain(loaded) {
        writeln!(config, "{name} {value}").expect("a string takes what is written");
    }
    fs::write(folder.join("config"), config).expect("the configuration can be written");

    let Credentials { username, password } = credentials;
    // Parameters of the URI belong into its brackets, settings of the account behind them.
    let (uri, settings) = account.split_once(' ').unwrap_or(("", account));
    let account = format!(
        "<sip:{username}@{daemon}{uri}>;auth_user={username};auth_pass={password};{settings}\n"
    );
    fs::write(folder.join("accounts"), account).expect("the account can be written");
}

/// Twenty seconds of a sine at a third of full scale.
fn wave(hertz: f64) -> Vec<u8> {
    let samples = (0..20 * RATE)
        .map(|index| (TAU * hertz * f64::from(index) / f64::from(RATE)).sin() * 11_000.0);
    let data: Vec<u8> = samples
        .flat_map(|sample| (sample as i16).to_le_bytes())
        .collect();

    let size = u32::try_from(data.len()).expect("seconds of sound are small");
    let mut file = Vec::with_capacity(44 + data.len());
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(36 + size).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0"); // PCM, one channel
    file.extend_from_slice(&RATE.to_le_bytes());
    file.extend_from_slice(&(2 * RATE).to_le_bytes());
    file.extend_from_slice(b"\x02\0\x10\0data"); // two octets a sample
    file.extend_from_slice(&size.to_le_bytes());

    file.extend_from_slice(&data);
    file
}

/// Returns the recording of decoded audio: the sndfile module names its files by the time, and this one ends in `-dec.wav`.
fn recording(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder).expect("the folder can be read");
    let mut files = files.filter_map(|file| file.ok().map(|file| file.path()));
    files.find(|path| path.to_string_lossy().ends_with("-dec.wav"))
}

fn samples(path: &Path) -> Vec<i16> {
    let file = fs::read(path).expect("the recording can be read");
    let data = file.get(44..).unwrap_or_default();
    data.chunks_exact(2)
        .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_is_told_from_another_and_from_silence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tone.wav");
        fs::write(&path, wave(440.0)).unwrap();
        let tone = Baresip {
            heard: samples(&path),
            output: String::new(),
        };
        let silence = Baresip {
            heard: vec![0; 16_000],
            output: String::new(),
        };
        assert!(tone.share_of(440.0) > 0.95, "{}", tone.share_of(440.0));
        assert!(tone.share_of(880.0) < 0.05, "{}", tone.share_of(880.0));
        assert!(silence.share_of(440.0) < 0.01);
    }
}
