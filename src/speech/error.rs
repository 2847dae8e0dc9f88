//! Reasons why a text isn't spoken, and the bound on what is read of an answer.

use trunkline_net::media::wav;

/// Octets of a WAV file: a minute of two channels of 16 bits at 48 kHz, and its head.
pub(super) const MAX_OCTETS: usize = 12 << 20;

/// Reason why a text isn't spoken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpeechError {
    /// No synthesiser is configured.
    #[error("no synthesiser is configured")]
    Unconfigured,
    /// The synthesiser took too long.
    #[error("the synthesiser took longer than 10 s")]
    Late,
    /// The program can't be run, or reports a failure.
    #[error("the program of speech.command failed: {0}")]
    Program(String),
    /// The endpoint can't be reached, or refuses.
    #[error("the endpoint of speech.url failed: {0}")]
    Endpoint(String),
    /// The answer is longer than a minute of audio.
    #[error("the synthesiser answered more than 12 MiB")]
    TooLong,
    /// The answer is not a WAV file.
    #[error("the answer of the synthesiser {0}")]
    Audio(#[from] wav::WavError),
}
