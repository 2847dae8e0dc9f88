//! Speech for the texts of built-in agents: a program or an HTTP endpoint makes a WAV file of each. The operator configures it. Neither may take
//! longer than 10 s, nor answer more than a minute of audio.

mod command;
mod endpoint;
mod error;

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use tokio::time::timeout;
use trunkline_net::media::{Clip, wav};

use crate::config;
use crate::webhooks::{Target, TargetFault};
use endpoint::Endpoint;
pub(crate) use error::SpeechError;

/// Time for one text.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest speech.
const LONGEST: Duration = Duration::from_secs(60);

/// Speaks texts. Clones share the synthesiser.
#[derive(Clone)]
pub struct SpeechMaker {
    way: Option<Arc<SpeechSource>>,
    timeout: Duration,
}

impl std::fmt::Debug for SpeechMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpeechMaker").finish_non_exhaustive()
    }
}

enum SpeechSource {
    Command(Vec<String>),
    Endpoint(Box<Endpoint>),
}

impl SpeechMaker {
    /// Sets up the configured synthesiser; `roots` are trusted for TLS.
    ///
    /// # Errors
    /// The URL may not be posted to.
    pub fn new(
        config: &config::Speech,
        roots: impl FnOnce() -> RootCertStore,
    ) -> Result<Self, TargetFault> {
        let way = match &config.synthesiser {
            None => None,
            Some(config::Synthesiser::Command(command)) => {
                Some(SpeechSource::Command(command.clone()))
            }
            Some(config::Synthesiser::Endpoint(endpoint)) => {
                let target = Target::parse(&endpoint.url, endpoint.private_allowed)?;
                let endpoint = Endpoint::new(endpoint.clone(), target, roots());
                Some(SpeechSource::Endpoint(Box::new(endpoint)))
            }
        };

        Ok(Self {
            way: way.map(Arc::new),
            timeout: TIMEOUT,
        })
    }

    /// Speaks a text.
    pub(crate) async fn speak(&self, text: &str) -> Result<Clip, SpeechError> {
        let way = self.way.as_deref().ok_or(SpeechError::Unconfigured)?;
        let spoken = async {
            match way {
                SpeechSource::Command(command) => command::speak(command, text).await,
                SpeechSource::Endpoint(endpoint) => endpoint.speak(text).await,
            }
        };
        let file = timeout(self.timeout, spoken)
            .await
            .map_err(|_| SpeechError::Late)??;
        // Converting a minute of audio would block other tasks of this thread.
        let read = tokio::task::spawn_blocking(move || wav::read(&file, LONGEST)).await;
        let read = read.map_err(|panic| SpeechError::Program(panic.to_string()))?;
        Ok(read?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_synthesiser_that_says_nothing_is_given_up() {
        let command = ["sleep", "60"].map(str::to_owned);
        let maker = SpeechMaker {
            way: Some(Arc::new(SpeechSource::Command(command.into()))),
            timeout: Duration::from_millis(100),
        };
        let fault = maker.speak("hello").await.err();
        assert!(matches!(fault, Some(SpeechError::Late)), "{fault:?}");
    }
}
