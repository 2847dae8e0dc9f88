//! Sounds of built-in agents: finds the audio of a prompt and gives it to the media of the call. Audio that isn't in memory is loaded off the
//! shards' threads. A prompt that can't be loaded counts as played, so that its call continues.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use trunkline_calls::CallKey;
use trunkline_calls::flow::Sound;
use trunkline_model::builtin::{Bundled, Prompt};
use trunkline_net::media::{self, Clip, Media, spoken};
use trunkline_sip::moment::Moment;
use trunkline_store::{Store, prompts};
use uuid::Uuid;

use super::clock;
use super::inbox::{Inbox, Input};
use super::warned_orgs::WarnedOrgs;
use crate::speech::SpeechMaker;

/// Octets of loaded prompts that are kept, and those of one org: an org whose flows have many texts doesn't make others have theirs spoken again.
const MAX_KEPT: usize = 32 << 20;
const MAX_KEPT_OF_ORG: usize = MAX_KEPT / 4;
/// Most prompts loaded at the same time, and most texts spoken at the same time. Further ones count as played.
const MAX_LOADS: usize = 64;
/// Loads of one org among them, so that its slow texts don't hold up other orgs.
const MAX_LOADS_OF_ORG: usize = 16;
/// Time for which a text is not spoken again after a failure, so that not every call asks a speech service that is down.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// Most texts whose failure is remembered. The oldest give way.
const MAX_FAILED: usize = 256;
/// Most of one org among them. Then its own oldest gives way.
const MAX_FAILED_OF_ORG: usize = 32;
/// Time for reading a prompt from the store. The speech service has a bound of its own.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Player of prompts. Clones share its state.
#[derive(Clone)]
pub(crate) struct Prompts {
    media: Media,
    store: Store,
    speech: SpeechMaker,
    bundled: Arc<[(Bundled, Clip)]>,
    kept: Arc<Mutex<KeptClips>>,
    loading: Arc<Mutex<Loading>>,
    failed: Arc<Mutex<FailedTexts>>,
    /// Bounds the log: a flow may ask again and again for a prompt that can't be loaded.
    warned: WarnedOrgs,
    runtime: Handle,
}

/// Prompts that were loaded. An org beyond its share loses its own oldest; beyond the bound of all, the org with the most does.
#[derive(Default)]
struct KeptClips {
    orgs: HashMap<Uuid, OrgClips>,
    octets: usize,
}

/// Prompts of an org.
#[derive(Default)]
struct OrgClips {
    clips: HashMap<Prompt, Clip>,
    /// The oldest at the front.
    order: VecDeque<Prompt>,
    octets: usize,
}

impl KeptClips {
    fn find(&self, org: Uuid, prompt: &Prompt) -> Option<Clip> {
        self.orgs.get(&org)?.clips.get(prompt).cloned()
    }

    fn keep(&mut self, org: Uuid, prompt: Prompt, clip: Clip) {
        let kept = self.orgs.entry(org).or_default();
        let before = kept.octets;
        kept.octets += clip.len();
        match kept.clips.insert(prompt.clone(), clip) {
            Some(replaced) => kept.octets -= replaced.len(),
            None => kept.order.push_back(prompt),
        }
        // A clip that is larger than the whole share goes too. It is played all the same, from the caller's copy.
        while kept.octets > MAX_KEPT_OF_ORG && kept.drop_oldest() {}
        self.octets = self.octets - before + kept.octets;

        while self.octets > MAX_KEPT {
            let Some(largest) = self.orgs.values_mut().max_by_key(|kept| kept.octets) else {
                return;
            };
            let before = largest.octets;
            largest.drop_oldest();
            self.octets = self.octets - before + largest.octets;
        }
        self.orgs.retain(|_, kept| !kept.clips.is_empty());
    }
}

impl OrgClips {
    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.order.pop_front() else {
            return false;
        };
        if let Some(clip) = self.clips.remove(&oldest) {
            self.octets -= clip.len();
        }
        true
    }
}

/// Prompts that are being loaded, by org. Calls that want the same one wait for one load.
#[derive(Default)]
struct Loading(HashMap<(Uuid, Prompt), Load>);

/// Result of a load, once there is one.
type Load = Arc<OnceCell<Option<Clip>>>;

impl Loading {
    /// Joins the load of a prompt, or begins one; `None` if too many are in progress.
    fn join(&mut self, org: Uuid, prompt: &Prompt) -> Option<Load> {
        let key = (org, prompt.clone());
        if let Some(load) = self.0.get(&key) {
            return Some(Arc::clone(load));
        }

        // Counted apart: texts that wait for a slow speech service don't keep stored prompts from being loaded.
        let is_text = |prompt: &Prompt| matches!(prompt, Prompt::Text(_));
        let alike = || {
            let keys = self.0.keys();
            keys.filter(|(_, other)| is_text(other) == is_text(prompt))
        };
        let of_org = alike().filter(|(other, _)| *other == org).count();
        if alike().count() >= MAX_LOADS || of_org >= MAX_LOADS_OF_ORG {
            return None;
        }

        let load = Load::default();
        self.0.insert(key, Arc::clone(&load));
        Some(load)
    }

    /// Forgets a load that has ended.
    fn end(&mut self, org: Uuid, prompt: &Prompt, load: &Load) {
        // Every call that waited ends the load. A late one must not end a newer load of the same prompt.
        let key = (org, prompt.clone());
        if self
            .0
            .get(&key)
            .is_some_and(|known| Arc::ptr_eq(known, load))
        {
            self.0.remove(&key);
        }
    }
}

/// Texts that could not be spoken just now, the oldest at the front.
#[derive(Default)]
struct FailedTexts(VecDeque<(Uuid, Prompt, Moment)>);

impl FailedTexts {
    fn note(&mut self, org: Uuid, text: &Prompt, now: Moment) {
        self.drop_old(now);
        let mut of_org = self.0.iter().filter(|(other, ..)| *other == org);
        if of_org.clone().any(|(_, known, _)| known == text) {
            return;
        }

        if of_org.clone().count() >= MAX_FAILED_OF_ORG {
            let oldest = of_org.next().map(|(_, text, _)| text.clone());
            self.0
                .retain(|(other, known, _)| *other != org || Some(known) != oldest.as_ref());
        } else if self.0.len() >= MAX_FAILED {
            self.0.pop_front();
        }
        self.0.push_back((org, text.clone(), now));
    }

    fn has(&mut self, org: Uuid, text: &Prompt, now: Moment) -> bool {
        self.drop_old(now);
        let mut known = self.0.iter();
        known.any(|(other, known, _)| *other == org && known == text)
    }

    fn drop_old(&mut self, now: Moment) {
        let is_old = |at: &Moment| now.since(*at) >= FAILURE_TTL;
        while self.0.front().is_some_and(|(_, _, at)| is_old(at)) {
            self.0.pop_front();
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
    pub(crate) fn new(media: Media, store: Store, speech: SpeechMaker, runtime: Handle) -> Self {
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
            loading: Arc::default(),
            failed: Arc::default(),
            warned: WarnedOrgs::default(),
            runtime,
        }
    }

    /// Plays a sound, at once if its audio is in memory. A prompt that can't be loaded is reported to `inbox` as played.
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
            Sound::Prompt(prompt) => match self.in_memory(org, &prompt) {
                Some(clip) => media::Sound::Clip(clip),
                None => {
                    let (this, inbox) = (self.clone(), inbox.clone());
                    self.runtime.spawn(async move {
                        match this.load(org, &prompt).await {
                            // A sound that was ordered while this one was loaded has a greater serial, and plays on.
                            Some(clip) => this.media.play(media, serial, media::Sound::Clip(clip)),
                            None => {
                                inbox.send(Input::Played(call, serial)).await;
                            }
                        }
                    });
                    return;
                }
            },
        };

        self.media.play(media, serial, sound);
    }

    fn in_memory(&self, org: Uuid, prompt: &Prompt) -> Option<Clip> {
        match prompt {
            Prompt::Bundled(wanted) => {
                let found = self.bundled.iter().find(|(prompt, _)| prompt == wanted);
                found.map(|(_, clip)| clip.clone())
            }
            Prompt::Id(_) | Prompt::Text(_) => {
                let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.find(org, prompt)
            }
        }
    }

    /// Loads a prompt, or waits for the load that another call has begun.
    async fn load(&self, org: Uuid, prompt: &Prompt) -> Option<Clip> {
        let loading = || self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        // Only texts are remembered as failed. For a prompt with an id, the store is asked again.
        if self.failed().has(org, prompt, clock::now()) {
            return None;
        }
        let load = loading().join(org, prompt);
        let Some(load) = load else {
            self.warn(org, prompt, &"too many prompts are being loaded");
            return None;
        };

        let clip = load.get_or_init(|| self.fetch(org, prompt)).await.clone();
        loading().end(org, prompt, &load);
        clip
    }

    /// Reads or speaks a prompt, and keeps it. Logs why there is none.
    async fn fetch(&self, org: Uuid, prompt: &Prompt) -> Option<Clip> {
        let clip = match prompt {
            Prompt::Id(id) => {
                let id = *id;
                let read = self.store.read(move |tx| prompts::audio(tx, org, id));
                match timeout(TIMEOUT, read).await {
                    Ok(Ok(audio)) => Clip::of_mu_law(&audio),
                    Ok(Err(error)) => {
                        self.warn(org, prompt, &error);
                        return None;
                    }
                    Err(_) => {
                        self.warn(org, prompt, &"the database doesn't answer");
                        return None;
                    }
                }
            }

            Prompt::Text(text) => match self.speech.speak(text).await {
                Ok(clip) => clip,
                Err(error) => {
                    self.warn(org, prompt, &error);
                    self.failed().note(org, prompt, clock::now());
                    return None;
                }
            },
            Prompt::Bundled(_) => return None,
        };

        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.keep(org, prompt.clone(), clip.clone());
        Some(clip)
    }

    /// Logs a prompt that is not played, unless the org had such a line in the last minute.
    fn warn(&self, org: Uuid, prompt: &Prompt, error: &dyn Display) {
        if self.warned.is_due(org, clock::now()) {
            tracing::warn!(org.id = %org, %prompt, %error, "a prompt is not played; further ones of this org are not logged for a minute");
        }
    }

    fn failed(&self) -> MutexGuard<'_, FailedTexts> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_org_keeps_its_own_prompts_within_its_share() {
        let mut kept = KeptClips::default();
        let (other, busy) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let greeting = Prompt::Text("Hello".into());
        kept.keep(other, greeting.clone(), Clip::of_mu_law(&[0]));

        let long = Clip::of_mu_law(&vec![0; MAX_KEPT_OF_ORG / 4]);
        let number = |number: u128| Prompt::Id(Uuid::from_u128(number));
        for at in 0..100 {
            kept.keep(busy, number(at), long.clone());
            let orgs = kept.orgs.values();
            let held: usize = orgs.flat_map(|org| org.clips.values()).map(Clip::len).sum();
            assert_eq!(held, kept.octets);
        }
        assert!(kept.find(other, &greeting).is_some(), "another org's stays");
        assert_eq!(kept.octets, MAX_KEPT_OF_ORG + 1);
        assert!(kept.find(busy, &number(99)).is_some());
        assert!(kept.find(busy, &number(95)).is_none(), "the oldest goes");

        for org in 10..20 {
            for at in 0..4 {
                kept.keep(Uuid::from_u128(org), number(at), long.clone());
            }
            assert!(kept.octets <= MAX_KEPT);
        }
        assert!(
            kept.find(other, &greeting).is_some(),
            "the largest gives way"
        );

        let before = kept.octets;
        kept.keep(Uuid::from_u128(19), number(3), Clip::of_mu_law(&[0]));
        assert!(
            kept.octets < before,
            "one that is loaded twice is kept once"
        );
    }

    #[test]
    fn an_org_whose_texts_take_long_leaves_room_for_others_and_for_recordings() {
        let text = |number: usize| Prompt::Text(number.to_string().into());
        let (busy, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut loading = Loading::default();
        let first = loading.join(busy, &text(0)).expect("the first");
        for number in 1..MAX_LOADS_OF_ORG {
            assert!(loading.join(busy, &text(number)).is_some(), "{number}");
        }
        assert!(loading.join(busy, &text(99)).is_none(), "its share is used");
        assert!(loading.join(other, &text(0)).is_some());
        assert!(loading.join(busy, &Prompt::Id(busy)).is_some());

        let same = loading.join(busy, &text(0)).expect("the load under way");
        assert!(Arc::ptr_eq(&first, &same), "a text is spoken once");
        loading.end(busy, &text(0), &first);
        let next = loading.join(busy, &text(0)).expect("room again");
        assert!(!Arc::ptr_eq(&first, &next));
        loading.end(busy, &text(0), &first);
        assert!(
            loading.join(busy, &text(99)).is_none(),
            "a load that goes on counts"
        );

        for org in 10..20 {
            for number in 0..MAX_LOADS_OF_ORG {
                let _ = loading.join(Uuid::from_u128(org), &text(number));
            }
        }
        let texts = loading
            .0
            .keys()
            .filter(|(_, it)| matches!(it, Prompt::Text(_)));
        assert_eq!(texts.count(), MAX_LOADS);
    }

    #[test]
    fn a_text_that_failed_is_not_spoken_again_for_seconds() {
        let text = |number: usize| Prompt::Text(number.to_string().into());
        let (org, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let began = Moment::from_secs(100);
        let mut failed = FailedTexts::default();
        failed.note(org, &text(0), began);
        assert!(failed.has(org, &text(0), began + FAILURE_TTL / 2));
        assert!(!failed.has(other, &text(0), began), "another org's");
        assert!(!failed.has(org, &text(1), began), "another text");
        assert!(!failed.has(org, &text(0), began + FAILURE_TTL), "too old");

        failed.note(other, &text(0), began);
        for number in 0..1_000 {
            failed.note(org, &text(number), began);
        }
        assert_eq!(failed.0.len(), MAX_FAILED_OF_ORG + 1);
        assert!(failed.has(other, &text(0), began) && failed.has(org, &text(999), began));
        for number in 10..1_000 {
            failed.note(Uuid::from_u128(number), &text(0), began);
        }
        assert_eq!(failed.0.len(), MAX_FAILED);
    }
}
