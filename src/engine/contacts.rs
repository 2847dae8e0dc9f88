//! The contact look-up, off the shard: cached by org and number, misses gathered into one query. Contacts that are deleted are forgotten by
//! way of the change feed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dashmap::DashMap;
use tokio::sync::mpsc;
use trunkline_calls::CallKey;
use trunkline_routing::E164;
use trunkline_store::{Change, Store, feed};
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
struct ContactLookup {
    org: Uuid,
    number: E164,
    call: CallKey,
    inbox: Inbox,
}

/// Contacts that are known, by org and number.
#[derive(Debug, Default)]
struct Cache {
    known: DashMap<(Uuid, E164), Uuid>,
    /// Counts up whenever something is forgotten: what was read from the store before may be gone.
    forgotten: AtomicU64,
}

impl Cache {
    /// Keeps what was found, unless something was forgotten since `forgotten` was read.
    fn keep(&self, found: &HashMap<(Uuid, E164), Uuid>, forgotten: u64) {
        if self.known.len() + found.len() > CACHED {
            self.known.clear();
        }
        for (key, contact) in found {
            self.known.insert(*key, *contact);
        }
        if self.forgotten.load(Ordering::SeqCst) != forgotten {
            for key in found.keys() {
                self.known.remove(key);
            }
        }
    }

    fn forget(&self, is_gone: impl Fn(Uuid) -> bool) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.known.retain(|(org, _), _| !is_gone(*org));
    }
}

/// What the shards ask.
#[derive(Clone, Debug)]
pub(crate) struct Contacts {
    cache: Arc<Cache>,
    questions: mpsc::Sender<ContactLookup>,
}

impl Contacts {
    /// Starts the task that asks the store.
    pub(crate) fn start(store: Store, runtime: &tokio::runtime::Handle) -> Self {
        let (questions, waiting) = mpsc::channel(WAITING);
        let cache = Arc::new(Cache::default());
        runtime.spawn(follow(store.clone(), Arc::downgrade(&cache)));
        runtime.spawn(answer(store, Arc::clone(&cache), waiting));
        Self { cache, questions }
    }

    /// The contact if it is remembered.
    pub(crate) fn remembered(&self, org: Uuid, number: E164) -> Option<Uuid> {
        let known = &self.cache.known;
        known.get(&(org, number)).map(|contact| *contact)
    }

    /// Asks the store; the answer goes to `inbox`. False if too many wait.
    pub(crate) fn ask(&self, org: Uuid, number: E164, call: CallKey, inbox: Inbox) -> bool {
        self.questions
            .try_send(ContactLookup {
                org,
                number,
                call,
                inbox,
            })
            .is_ok()
    }
}

async fn answer(store: Store, cache: Arc<Cache>, mut waiting: mpsc::Receiver<ContactLookup>) {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let mut numbers: Vec<(Uuid, E164)> = batch
            .iter()
            .map(|asked| (asked.org, asked.number))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();

        let forgotten = cache.forgotten.load(Ordering::SeqCst);
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

        cache.keep(&found, forgotten);
        for asked in batch.drain(..) {
            let contact = found.get(&(asked.org, asked.number)).copied();
            // The call's own timer has long gone on if its shard has no room.
            asked.inbox.offer(Input::Contact(asked.call, contact));
        }
    }
}

/// Forgets the contacts of orgs that have deleted some, until the cache is dropped.
async fn follow(store: Store, cache: Weak<Cache>) {
    let follower = store.follower();
    let mut signal = store.follow_changes().await;
    let mut place = None;
    loop {
        let Some(cache) = cache.upgrade() else {
            return;
        };
        match place {
            // What was cached before the position is known may be gone.
            None => {
                place = store.read(feed::position).await.ok();
                cache.forget(|_| true);
            }
            Some(at) => {
                if let Ok(changes) = store.read_inline(move |tx| feed::since(tx, at)).await {
                    if changes.missed {
                        cache.forget(|_| true);
                    }
                    for change in changes.changes {
                        if let Change::Contacts(gone) = change {
                            cache.forget(|org| org == gone);
                        }
                    }
                    place = Some(changes.seq);
                    if changes.more {
                        continue;
                    }
                }
            }
        }

        if let Some(seq) = place {
            follower.applied(seq);
        }

        drop(cache);
        signal.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_before_contacts_were_deleted_is_not_kept() {
        let cache = Cache::default();
        let org = Uuid::from_u128(1);
        let number = E164::parse("+442071838750").unwrap();
        let found = HashMap::from([((org, number), Uuid::from_u128(2))]);
        let before = cache.forgotten.load(Ordering::SeqCst);
        cache.keep(&found, before);
        assert_eq!(cache.known.len(), 1);
        cache.forget(|gone| gone == Uuid::from_u128(9));
        assert_eq!(cache.known.len(), 1, "another org's");
        cache.forget(|gone| gone == org);
        assert_eq!(cache.known.len(), 0);
        cache.keep(&found, before);
        assert_eq!(cache.known.len(), 0, "it was read before");
    }
}
