//! A program that speaks: the text goes to its standard input, and it writes a WAV file to its standard output. It is started without a shell, so
//! that no part of a text is run. It is killed when its result is no longer awaited. No thread is blocked meanwhile.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;

use super::error::{MAX_OCTETS, SpeechError};

/// Variables of ours that the program gets. The others may hold secrets.
const VARIABLES: [&str; 3] = ["PATH", "HOME", "LANG"];
/// Interval between checks whether a program that has closed its output has ended.
const CHECK: Duration = Duration::from_millis(5);

/// Running program, killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Kills the programs that it has started too. An error means that it has just ended. Reaping a killed program takes no time.
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs the program. Its pipes are read without a thread: a program that has left the group isn't killed, and may hold them open for ever.
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
        // Nothing reads it: a pipe that fills up would stop the program.
        .stderr(Stdio::null())
        // A group of its own, so that `Running` kills what the program has started as well.
        .process_group(0)
        .spawn()
        .map_err(failed)?;

    // From here on, each early return and the caller's timeout kill the program.
    let mut running = Running(child);

    let pipes = running.0.stdin.take().zip(running.0.stdout.take());
    let (stdin, stdout) = pipes.ok_or(SpeechError::Unconfigured)?;
    let mut stdin = pipe::Sender::from_owned_fd(stdin.into()).map_err(failed)?;
    let stdout = pipe::Receiver::from_owned_fd(stdout.into()).map_err(failed)?;

    let say = async move {
        // A program that doesn't read the text says so by its exit code.
        let _ = stdin.write_all(text.as_bytes()).await;
        drop(stdin);
    };
    let mut file = Vec::new();
    // One octet more than allowed tells an answer that is too long from one that just fits.
    let mut audio = stdout.take(MAX_OCTETS as u64 + 1);
    // At the same time: a program that writes while it reads would fill its pipe, and wait for this process for ever.
    let ((), read) = tokio::join!(say, audio.read_to_end(&mut file));
    read.map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_program_that_has_left_its_group_is_read_no_longer() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = folder.path().join("seen");
        // It goes on until its output is closed.
        let script = format!(
            "trap '' PIPE; while echo x; do sleep 0.02; done; touch {}",
            seen.display()
        );
        let command = ["setsid", "-f", "sh", "-c", &script].map(str::to_owned);
        let spoken = timeout(Duration::from_millis(100), speak(&command, "hello")).await;
        assert!(spoken.is_err(), "its output has no end");
        let closed = timeout(Duration::from_secs(20), async {
            while !seen.exists() {
                tokio::time::sleep(CHECK).await;
            }
        });
        closed.await.expect("the pipe is closed");
    }
}
