//! An HTTP endpoint that speaks, as OpenAI's `POST /v1/audio/speech` does: a model, a voice and a text in JSON, and audio in the answer.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use rustls::RootCertStore;
use serde_json::json;

use super::error::{MAX_OCTETS, SpeechError};
use crate::config::SpeechEndpoint;
use crate::webhooks::{Fetcher, Target};

/// Endpoint, and the client that asks it.
pub(super) struct Endpoint {
    config: SpeechEndpoint,
    target: Target,
    fetcher: Fetcher,
}

impl Endpoint {
    pub(super) fn new(config: SpeechEndpoint, target: Target, roots: RootCertStore) -> Self {
        let fetcher = Fetcher::new(roots, config.private_allowed);
        Self {
            config,
            target,
            fetcher,
        }
    }

    /// Has a text spoken. The caller limits the time.
    pub(super) async fn speak(&self, text: &str) -> Result<Vec<u8>, SpeechError> {
        let failed = |why: String| SpeechError::Endpoint(why);
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if let Some(key) = &self.config.api_key {
            let value = HeaderValue::from_str(&format!("Bearer {}", key.expose()));
            let mut value =
                value.map_err(|_| failed("speech.api_key is no header value".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        let body = json!({"model": self.config.model, "voice": self.config.voice, "input": text, "response_format": "wav"});

        let answer = self
            .fetcher
            .post(&self.target, headers, body.to_string(), MAX_OCTETS)
            .await;
        let (status, audio): (StatusCode, Bytes) =
            answer.map_err(|fault| failed(fault.to_owned()))?;
        match status {
            StatusCode::OK => Ok(audio.into()),
            status => Err(failed(format!("it answers {status}"))),
        }
    }
}
