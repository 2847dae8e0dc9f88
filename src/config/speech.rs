//! `[speech]`: the synthesiser that speaks the texts of built-in agents.

use super::secret::Secret;
use super::section::Section;

/// The synthesiser.
#[derive(Clone, Debug)]
pub struct Speech {
    /// Synthesiser of texts; `None` if there is none.
    pub synthesiser: Option<Synthesiser>,
}

/// Synthesiser of texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Synthesiser {
    /// A program and its arguments: the text on its standard input, a WAV file on its standard output.
    Command(Vec<String>),
    /// An endpoint that answers as OpenAI's does.
    Endpoint(SpeechEndpoint),
}

/// Endpoint for speech.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpeechEndpoint {
    /// URL that is posted to.
    pub url: String,
    /// Bearer token.
    pub api_key: Option<Secret>,
    /// Model.
    pub model: String,
    /// Voice.
    pub voice: String,
    /// True if it may have a private address, or one of this machine, and be reached without TLS.
    pub private_allowed: bool,
}

impl Speech {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let command = section.list("command", |entry| entry.text());
        let url = section.text("url");
        // Read without a `url` too: a key that isn't read is reported as unknown.
        let api_key = section.secret("api_key");
        let model = section.text("model");
        let voice = section.text("voice");
        let private_allowed = section.switch("allow_private_addresses").unwrap_or(false);

        // An empty list, as the environment may give one, is no command.
        let synthesiser = match (command.filter(|command| !command.is_empty()), url) {
            (Some(_), Some(_)) => {
                section.refuse_key("url", "can't be set beside command: choose one");
                None
            }
            (Some(command), None) => Some(Synthesiser::Command(command)),
            (None, Some(url)) => Some(Synthesiser::Endpoint(SpeechEndpoint {
                url,
                api_key,
                model: model.unwrap_or_else(|| "tts-1".to_owned()),
                voice: voice.unwrap_or_else(|| "alloy".to_owned()),
                private_allowed,
            })),
            (None, None) => None,
        };

        Self { synthesiser }
    }
}
