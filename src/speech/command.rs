//! A program that speaks: the text goes to its standard input, and it writes a WAV file to its standard output. It is started without a shell,
//! so that nothing of a text is run, and is killed where nobody waits for it any more.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::error::{MAX_OCTETS, SpeechError};

/// Variables of ours that the program gets. The others may hold secrets.
const VARIABLES: [&str; 3] = ["PATH", "HOME", "LANG"];
/// Interval at which a program is asked for its end once it has written all.
const CHECK: Duration = Duration::from_millis(5);

/// A program that is killed with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // With the programs that it has started.
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs the program.
pub(super) async fn speak(command: &[String], text: &str) -> Result<Vec<u8>, SpeechError> {
    let failed = |error: io::Error| SpeechError::Program(error.to_string());
    let [program, arguments @ ..] = command else {
        return Err(SpeechError::Unconfigured);
    };
    let kept = std::env::vars_os().filter(|(name, _)| VARIABLES.iter().any(|kept| name == kept));
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(kept)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut running = Running(child);

    let (stdin, stdout) = (running.0.stdin.take(), running.0.stdout.take());
    let text = text.to_owned();
    let talking = tokio::task::spawn_blocking(move || {
        if let Some(mut stdin) = stdin {
            // A text is shorter than a pipe's buffer. A program that doesn't read it says so by its exit code.
            let _ = stdin.write_all(text.as_bytes());
        }
        let mut file = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_OCTETS as u64 + 1).read_to_end(&mut file)?;
        }
        Ok(file)
    });
    let file = talking
        .await
        .map_err(|panic| SpeechError::Program(panic.to_string()))?
        .map_err(failed)?;
    if file.len() > MAX_OCTETS {
        return Err(SpeechError::TooLong);
    }

    loop {
        match running.0.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(file),
            Some(status) => return Err(SpeechError::Program(status.to_string())),
            None => tokio::time::sleep(CHECK).await,
        }
    }
}
