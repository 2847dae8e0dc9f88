//! Finds or creates the contact of a caller, off the shard's thread.
//!
//! Results are cached by org and number, and cache misses are gathered into one query. The change feed removes deleted contacts from the cache.

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
use super::warned_orgs::WarnedOrgs;
use crate::jobs;

/// Contacts in the cache. When it is full, it is emptied.
const MAX_CACHED: usize = 100_000;
/// Look-ups that may wait; beyond, a call continues without its contact.
const QUEUE: usize = 8_192;
/// Look-ups that one query answers.
const BATCH: usize = 500;

/// Look-up of one caller.
#[derive(Debug)]
struct ContactLookup {
    org: Uuid,
    number: E164,
    call: CallKey,
    inbox: Inbox,
}

/// Known contacts, by org and number.
#[derive(Debug, Default)]
struct Cache {
    known: DashMap<(Uuid, E164), Uuid>,
    /// Counts invalidations. A result that was read before the latest one may name a deleted contact.
    forgotten: AtomicU64,
}

impl Cache {
    /// Caches results, unless something was invalidated since `forgotten` was read.
    fn keep(&self, found: &HashMap<(Uuid, E164), Uuid>, forgotten: u64) {
        // Emptied whole: a forgotten contact costs one query, which is less than keeping track of the oldest ones.
        if self.known.len() + found.len() > MAX_CACHED {
            self.known.clear();
        }
        for (key, contact) in found {
            self.known.insert(*key, *contact);
        }
        // After the results were inserted: checked before, an invalidation between the two would be missed.
        if self.forgotten.load(Ordering::SeqCst) != forgotten {
            for key in found.keys() {
                self.known.remove(key);
            }
        }
    }

    fn forget(&self, is_gone: impl Fn(Uuid) -> bool) {
        // Before the removal: a `keep` that inserts after it sees the new count, and takes its results back.
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.known.retain(|(org, _), _| !is_gone(*org));
    }
}

/// Contact look-ups, as shards use them.
#[derive(Clone, Debug)]
pub(crate) struct Contacts {
    cache: Arc<Cache>,
    questions: mpsc::Sender<ContactLookup>,
}

impl Contacts {
    /// Starts the task that queries the store.
    pub(crate) fn start(store: Store, runtime: &tokio::runtime::Handle) -> Self {
        let (questions, waiting) = mpsc::channel(QUEUE);
        let cache = Arc::new(Cache::default());
        let following = follow(store.clone(), Arc::downgrade(&cache));
        jobs::CONTACTS.spawn(runtime, following);
        jobs::CONTACTS.spawn(runtime, answer(store, Arc::clone(&cache), waiting));
        Self { cache, questions }
    }

    /// Returns the contact if it is cached.
    pub(crate) fn remembered(&self, org: Uuid, number: E164) -> Option<Uuid> {
        let known = &self.cache.known;
        known.get(&(org, number)).map(|contact| *contact)
    }

    /// Queues a look-up; the result goes to `inbox`. Returns false if too many are waiting.
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
    let warned = WarnedOrgs::default();
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let mut numbers: Vec<(Uuid, E164)> = batch
            .iter()
            .map(|asked| (asked.org, asked.number))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();

        // Before the query, which may read contacts that are deleted while it runs.
        let forgotten = cache.forgotten.load(Ordering::SeqCst);
        let found: HashMap<(Uuid, E164), Uuid> = match store
            .contacts()
            .find_or_create_by_phone_many(&numbers, clock::wall_time())
            .await
        {
            Ok(contacts) => {
                let all = numbers.into_iter().zip(contacts);
                let known = all.filter_map(|(caller, contact)| match contact {
                    Some(contact) => Some((caller, contact)),
                    None => {
                        warn_of_limit(&warned, caller.0);
                        None
                    }
                });
                known.collect()
            }

            Err(error) => {
                tracing::warn!(%error, "looking up contacts failed: calls continue without them");
                HashMap::new()
            }
        };

        cache.keep(&found, forgotten);

        for asked in batch.drain(..) {
            let contact = found.get(&(asked.org, asked.number)).copied();
            // If the shard's inbox is full the result is lost. An inbound call waits for it half a second at most, by a
            // timer of its own; an outbound call doesn't wait.
            asked.inbox.offer(Input::Contact(asked.call, contact));
        }
    }
}

/// Logs that an org may have no more contacts, unless it had such a line in the last minute.
fn warn_of_limit(warned: &WarnedOrgs, org: Uuid) {
    if warned.is_due(org, clock::now()) {
        tracing::warn!(org.id = %org, "the org has as many contacts as it may have: calls of unknown callers continue without one; further ones are not logged for a minute");
    }
}

/// Removes deleted contacts from the cache, until the cache is dropped.
async fn follow(store: Store, cache: Weak<Cache>) {
    let follower = store.follower();
    let mut signal = store.follow_changes().await;
    let mut place = None;

    loop {
        let Some(cache) = cache.upgrade() else {
            return;
        };
        match place {
            // Contacts cached before the position in the change feed was known may be deleted by now.
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
            // The request that deleted a contact is answered only after this, so no later call finds the contact here.
            follower.applied(seq);
        }

        // A reference that is held during the wait would keep the cache, and so this task, alive for ever.
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
