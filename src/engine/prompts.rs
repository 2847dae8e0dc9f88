//! Sounds of built-in agents: finds the audio of a prompt and gives it to the media of the call. What isn't at hand is loaded off the shards'
//! threads; a prompt that can't be had counts as played, so that its call goes on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use trunkline_calls::CallKey;
use trunkline_calls::flow::Sound;
use trunkline_model::builtin::{Bundled, Prompt};
use trunkline_net::media::{self, Clip, Media, spoken};
use trunkline_store::{Store, prompts};
use uuid::Uuid;

use super::inbox::{Inbox, Input};
use crate::speech::Speech;

/// Octets of loaded prompts that are kept. When they are more, all are forgotten.
const MAX_KEPT: usize = 32 << 20;
/// Prompts that are loaded at once; beyond, a prompt counts as played.
const MAX_LOADS: usize = 64;
/// Time for loading a prompt.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Player of prompts. Clones share what it needs.
#[derive(Clone)]
pub(crate) struct Prompts {
    media: Media,
    store: Store,
    speech: Speech,
    bundled: Arc<[(Bundled, Clip)]>,
    kept: Arc<Mutex<KeptClips>>,
    loads: Arc<Semaphore>,
    runtime: Handle,
}

/// Prompts that were loaded, by org.
#[derive(Default)]
struct KeptClips {
    clips: HashMap<(Uuid, Prompt), Clip>,
    octets: usize,
}

impl KeptClips {
    fn keep(&mut self, org: Uuid, prompt: Prompt, clip: Clip) {
        if self.octets + clip.len() > MAX_KEPT {
            self.clips.clear();
            self.octets = 0;
        }
        self.octets += clip.len();
        if let Some(before) = self.clips.insert((org, prompt), clip) {
            self.octets -= before.len();
        }
    }
}

/// Sound that a call wants.
#[derive(Debug)]
pub(crate) struct WantedSound {
    pub(crate) call: CallKey,
    /// Number that names the call's media.
    pub(crate) media: u64,
    pub(crate) org: Uuid,
    pub(crate) serial: u32,
    pub(crate) sound: Sound,
}

impl Prompts {
    pub(crate) fn new(media: Media, (store, speech): (Store, Speech), runtime: Handle) -> Self {
        let bundled = Bundled::ALL.map(|(_, prompt)| {
            let audio = match prompt {
                Bundled::Welcome => spoken::WELCOME,
                Bundled::Connecting => spoken::CONNECTING,
                Bundled::Unavailable => spoken::UNAVAILABLE,
                Bundled::Invalid => spoken::INVALID,
                Bundled::Goodbye => spoken::GOODBYE,
            };
            (prompt, Clip::of_mu_law(audio))
        });
        Self {
            media,
            store,
            speech,
            bundled: bundled.into(),
            kept: Arc::default(),
            loads: Arc::new(Semaphore::new(MAX_LOADS)),
            runtime,
        }
    }

    /// Plays a sound, at once where its audio is at hand. The shard hears of a prompt that can't be had.
    pub(crate) fn play(&self, wanted: WantedSound, inbox: &Inbox) {
        let WantedSound {
            call,
            media,
            org,
            serial,
            sound,
        } = wanted;
        let sound = match sound {
            Sound::Keys(labels) => media::Sound::Clip(Clip::of_keys(&labels)),
            Sound::Echo(delay) => media::Sound::Echo(delay),
            Sound::Silence => media::Sound::Silence,
            Sound::Prompt(prompt) => match self.at_hand(org, &prompt) {
                Some(clip) => media::Sound::Clip(clip),
                None => {
                    let (this, inbox) = (self.clone(), inbox.clone());
                    self.runtime.spawn(async move {
                        match this.load(org, &prompt).await {
                            Some(clip) => this.media.play(media, serial, media::Sound::Clip(clip)),
                            None => {
                                tracing::warn!(org.id = %org, %prompt, "a prompt cannot be played");
                                let _ = inbox.send(Input::Played(call, serial)).await;
                            }
                        }
                    });
                    return;
                }
            },
        };
        self.media.play(media, serial, sound);
    }

    fn at_hand(&self, org: Uuid, prompt: &Prompt) -> Option<Clip> {
        match prompt {
            Prompt::Bundled(wanted) => {
                let found = self.bundled.iter().find(|(prompt, _)| prompt == wanted);
                found.map(|(_, clip)| clip.clone())
            }
            Prompt::Id(_) | Prompt::Text(_) => {
                let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.clips.get(&(org, prompt.clone())).cloned()
            }
        }
    }

    async fn load(&self, org: Uuid, prompt: &Prompt) -> Option<Clip> {
        let _permit = self.loads.try_acquire().ok()?;
        let clip = match prompt {
            Prompt::Id(id) => {
                let id = *id;
                let read = self.store.read(move |tx| prompts::audio(tx, org, id));
                let audio = timeout(TIMEOUT, read).await.ok()?.ok()?;
                Clip::of_mu_law(&audio)
            }
            Prompt::Text(text) => match self.speech.speak(text).await {
                Ok(clip) => clip,
                Err(error) => {
                    tracing::warn!(org.id = %org, %error, "a text is not spoken");
                    return None;
                }
            },
            Prompt::Bundled(_) => return None,
        };

        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.keep(org, prompt.clone(), clip.clone());
        Some(clip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = KeptClips::default();
        let org = Uuid::from_u128(1);
        let long = Clip::of_mu_law(&vec![0; MAX_KEPT / 4]);
        for number in 0..100 {
            kept.keep(org, Prompt::Id(Uuid::from_u128(number)), long.clone());
            assert!(kept.octets <= MAX_KEPT);
            let held: usize = kept.clips.values().map(Clip::len).sum();
            assert_eq!(held, kept.octets);
        }

        let again = Prompt::Id(Uuid::from_u128(99));
        let before = kept.octets;
        kept.keep(org, again, Clip::of_mu_law(&[0]));
        assert!(
            kept.octets < before,
            "one that is loaded twice is kept once"
        );
    }
}
