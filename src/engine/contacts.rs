//! The contact look-up, off the shard: cached by org and number, misses gathered into one query.

use std::collections::HashMap;
use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::mpsc;
use trunkline_calls::CallKey;
use trunkline_routing::E164;
use trunkline_store::Store;
use uuid::Uuid;

use super::clock;
use super::inbox::{Inbox, Input};

/// Contacts that are remembered; beyond, the memory starts anew.
const CACHED: usize = 100_000;
/// Questions that may wait; beyond, a call goes on without its contact.
const WAITING: usize = 8_192;
/// Questions of one query.
const BATCH: usize = 500;

/// One question.
#[derive(Debug)]
struct Question {
    org: Uuid,
    number: E164,
    call: CallKey,
    inbox: Inbox,
}

/// What the shards ask.
#[derive(Clone, Debug)]
pub(crate) struct Contacts {
    cache: Arc<DashMap<(Uuid, E164), Uuid>>,
    questions: mpsc::Sender<Question>,
}

impl Contacts {
    /// Starts the task that asks the store.
    pub(crate) fn start(store: Store, runtime: &tokio::runtime::Handle) -> Self {
        let (questions, waiting) = mpsc::channel(WAITING);
        let cache = Arc::new(DashMap::new());
        runtime.spawn(answer(store, Arc::clone(&cache), waiting));
        Self { cache, questions }
    }

    /// The contact if it is remembered.
    pub(crate) fn remembered(&self, org: Uuid, number: E164) -> Option<Uuid> {
        self.cache.get(&(org, number)).map(|contact| *contact)
    }

    /// Asks the store; the answer goes to `inbox`. False if too many wait.
    pub(crate) fn ask(&self, org: Uuid, number: E164, call: CallKey, inbox: Inbox) -> bool {
        self.questions
            .try_send(Question {
                org,
                number,
                call,
                inbox,
            })
            .is_ok()
    }
}

async fn answer(
    store: Store,
    cache: Arc<DashMap<(Uuid, E164), Uuid>>,
    mut waiting: mpsc::Receiver<Question>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let mut numbers: Vec<(Uuid, E164)> = batch
            .iter()
            .map(|asked| (asked.org, asked.number))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let found: HashMap<(Uuid, E164), Uuid> = match store
            .contacts()
            .find_or_create_by_phone_many(&numbers, clock::wall_time())
            .await
        {
            Ok(contacts) => numbers.into_iter().zip(contacts).collect(),
            Err(error) => {
                tracing::warn!(%error, "calls go on without their contacts");
                HashMap::new()
            }
        };
        if cache.len() + found.len() > CACHED {
            cache.clear();
        }
        for (key, contact) in &found {
            cache.insert(*key, *contact);
        }
        for asked in batch.drain(..) {
            let contact = found.get(&(asked.org, asked.number)).copied();
            // The call's own timer has long gone on if its shard has no room.
            asked.inbox.offer(Input::Contact(asked.call, contact));
        }
    }
}
