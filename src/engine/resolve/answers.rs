//! DNS queries and their cache.
//!
//! Stale answers are used while servers don't respond (RFC 8767). Failures are cached, so that the next call doesn't
//! wait again. A query in flight is shared.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::time::timeout;
use trunkline_calls::parts::target::UnresolvedTarget;
use trunkline_model::address::NamedBy;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::engine::clock;

use super::servers::Servers;

/// Age up to which a stale answer is used (RFC 8767 §5 advises one to three days).
const MAX_STALE: Duration = Duration::from_secs(24 * 3_600);
/// Time after a failure during which a query isn't repeated (RFC 9520 §3.2 asks for at least one second).
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// Wait for a fresh answer if a stale one is known. After it the stale one is used.
const TIMEOUT_WITH_STALE: Duration = Duration::from_secs(1);
/// Wait for an answer if the last query failed.
const TIMEOUT_AFTER_FAILURE: Duration = Duration::from_millis(300);
/// Queries in the cache.
const MAX_CACHED: usize = 8_192;
/// Queries in flight. Beyond, only the cache answers.
const MAX_IN_FLIGHT: usize = 1_024;
/// Limit on queries in flight per [`QueryOrigin`]: one host may lead to a hundred names with silent servers.
const MAX_IN_FLIGHT_OF_ONE: usize = MAX_IN_FLIGHT / 4;

/// Records of one name and type; empty if the name has none.
pub(super) type Records = Arc<[RData]>;

/// Outcome of a query; `None` if no server answered.
type Outcome = Option<Records>;
type PendingAnswer = Shared<BoxFuture<'static, Outcome>>;

/// Account that a query is charged to, so that none uses up the share of another.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum QueryOrigin {
    /// The configuration or a command.
    Operator,
    /// Calls and registrations of an org.
    Org(Uuid),
    /// Messages of established calls: names in Contact and Record-Route.
    Messages,
    /// Health checks.
    Probes,
}

/// Returns the account that a DNS query is charged to: the org, or the operator where the operator named the host.
pub(crate) const fn query_origin(wanted: &UnresolvedTarget, org: Uuid) -> QueryOrigin {
    match wanted.named {
        NamedBy::Operator => QueryOrigin::Operator,
        NamedBy::Tied | NamedBy::Tenant => QueryOrigin::Org(org),
    }
}

/// Sends queries and remembers answers.
pub(super) struct DnsCache {
    servers: Servers,
    cache: Mutex<AnswerCache>,
}

#[derive(Default)]
struct AnswerCache {
    known: HashMap<DnsQuestion, CachedAnswer>,
    /// Known queries, the next one to evict first.
    order: VecDeque<DnsQuestion>,
    in_flight: HashMap<QueryOrigin, usize>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct DnsQuestion {
    name: String,
    kind: RecordType,
}

#[derive(Default)]
struct CachedAnswer {
    /// Last answer and its time.
    answer: Option<(Records, Moment)>,
    /// Time of the failure, if the last query failed.
    failed: Option<Moment>,
    /// Query in flight. The resolver ends it, by its timeout for each try at a server.
    asked: Option<PendingAnswer>,
    /// True if the query was used since its last turn to be evicted.
    is_used: bool,
}

impl CachedAnswer {
    /// Returns a stale answer that is still usable.
    fn stale(&self, now: Moment) -> Option<Records> {
        let (records, came) = self.answer.as_ref()?;
        (now.since(*came) < MAX_STALE).then(|| Arc::clone(records))
    }

    fn has_just_failed(&self, now: Moment) -> bool {
        self.failed
            .is_some_and(|failed| now.since(failed) < FAILURE_TTL)
    }

    /// Returns how long to wait for an answer.
    fn timeout(&self, now: Moment) -> Duration {
        match self.failed {
            Some(_) => TIMEOUT_AFTER_FAILURE,
            None if self.stale(now).is_some() => TIMEOUT_WITH_STALE,
            None => Duration::MAX,
        }
    }
}

impl DnsCache {
    pub(super) fn new(servers: Servers) -> Arc<Self> {
        Arc::new(Self {
            servers,
            cache: Mutex::default(),
        })
    }

    /// Returns the records of a name, waiting until `until` at most; `None` if no server answers and none are cached. A
    /// later answer is cached for the next caller.
    pub(super) async fn ask(
        self: &Arc<Self>,
        name: &str,
        kind: RecordType,
        origin: QueryOrigin,
        until: Moment,
    ) -> Outcome {
        let now = clock::now();
        let question = DnsQuestion {
            name: name.to_ascii_lowercase(),
            kind,
        };

        let (pending, wait) = {
            let mut cache = self.cache();
            if let Some(known) = cache.known.get_mut(&question) {
                known.is_used = true;
                // A name that has just failed isn't queried again yet (RFC 9520).
                if known.has_just_failed(now) {
                    return known.stale(now);
                }
            }
            // Within the TTL this takes no packet: the library has the answer in a cache of its own.
            let Some(pending) = self.start_query(&mut cache, &question, origin) else {
                return cache.stale(&question, now);
            };

            // The lock is released before the wait.
            let known = cache.known.get(&question);
            let wait = known.map_or(Duration::MAX, |known| known.timeout(now));
            (pending, wait.min(until.since(now)))
        };

        match timeout(wait, pending).await {
            Ok(Some(records)) => Some(records),
            Ok(None) | Err(_) => self.cache().stale(&question, now),
        }
    }

    /// Starts a query, or joins the one in flight; `None` if too many are in flight.
    fn start_query(
        self: &Arc<Self>,
        cache: &mut AnswerCache,
        question: &DnsQuestion,
        origin: QueryOrigin,
    ) -> Option<PendingAnswer> {
        // A query in flight may be joined beyond every limit: it costs no packet.
        if let Some(asked) = cache
            .known
            .get(question)
            .and_then(|known| known.asked.clone())
        {
            return Some(asked);
        }

        let resolver = self.servers.resolver()?;
        if !cache.has_room_for(origin) {
            return None;
        }

        cache.insert(question);
        *cache.in_flight.entry(origin).or_default() += 1;

        let (answers, question) = (Arc::clone(self), question.clone());
        let key = question.clone();
        // A task of its own, so that the answer is cached even if every caller has given up.
        let task = tokio::spawn(async move {
            let outcome = look_up(&resolver, &question).await;
            answers
                .cache()
                .learn(&question, origin, outcome.clone(), clock::now());
            outcome
        });

        let asked = task.map(|outcome| outcome.ok().flatten()).boxed().shared();
        if let Some(known) = cache.known.get_mut(&key) {
            known.asked = Some(asked.clone());
        }

        Some(asked)
    }

    fn cache(&self) -> MutexGuard<'_, AnswerCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerCache {
    fn stale(&self, question: &DnsQuestion, now: Moment) -> Outcome {
        self.known.get(question)?.stale(now)
    }

    /// Returns true if one more query may start. The operator is exempt: its names are few, and the policy on what
    /// tenants may call depends on them.
    fn has_room_for(&self, origin: QueryOrigin) -> bool {
        match origin {
            QueryOrigin::Operator => true,
            QueryOrigin::Org(_) | QueryOrigin::Messages | QueryOrigin::Probes => {
                let of_one = self.in_flight.get(&origin).copied().unwrap_or_default();
                of_one < MAX_IN_FLIGHT_OF_ONE
                    && self.in_flight.values().sum::<usize>() < MAX_IN_FLIGHT
            }
        }
    }

    fn learn(
        &mut self,
        question: &DnsQuestion,
        origin: QueryOrigin,
        outcome: Outcome,
        now: Moment,
    ) {
        if let Some(count) = self.in_flight.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&origin);
            }
        }

        let Some(known) = self.known.get_mut(question) else {
            return;
        };
        known.asked = None;
        match outcome {
            Some(records) => {
                known.answer = Some((records, now));
                known.failed = None;
            }
            // The last answer stays, for those who take a stale one.
            None => known.failed = Some(now),
        }
    }

    /// Adds a query to the cache. A full cache evicts the first one in order that isn't in flight and wasn't used since
    /// its last turn, so names used only once displace no others. Few are in flight, so one is always found.
    fn insert(&mut self, question: &DnsQuestion) {
        if self.known.contains_key(question) {
            return;
        }

        while self.known.len() >= MAX_CACHED
            && let Some(oldest) = self.order.pop_front()
        {
            match self.known.get_mut(&oldest) {
                Some(known) if known.asked.is_some() || known.is_used => {
                    known.is_used = false;
                    self.order.push_back(oldest);
                }
                Some(_) | None => {
                    self.known.remove(&oldest);
                }
            }
        }

        self.order.push_back(question.clone());
        self.known.insert(question.clone(), CachedAnswer::default());
    }
}

/// Queries the servers. *No such records* is an answer; *no server responded* is `None`.
async fn look_up(resolver: &TokioResolver, question: &DnsQuestion) -> Outcome {
    match resolver.lookup(question.name.as_str(), question.kind).await {
        Ok(answer) => {
            let records = answer.answers().iter().map(|record| record.data.clone());
            Some(records.collect())
        }
        Err(error) if error.is_no_records_found() => Some(Records::default()),
        Err(error) => {
            let DnsQuestion { name, kind } = question;
            tracing::info!(%name, %kind, %error, "no name server has answered");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::rdata::A;

    use super::*;

    fn question() -> DnsQuestion {
        DnsQuestion {
            name: "pbx.test".to_owned(),
            kind: RecordType::A,
        }
    }

    fn records() -> Records {
        [RData::A(A::new(192, 0, 2, 1))].into()
    }

    /// Makes a cache that has learnt the outcomes, one per second.
    fn after(outcomes: &[Outcome], start: Moment) -> AnswerCache {
        let mut cache = AnswerCache::default();
        for (second, outcome) in (0..).zip(outcomes) {
            cache.insert(&question());
            *cache.in_flight.entry(QueryOrigin::Operator).or_default() += 1;
            cache.learn(
                &question(),
                QueryOrigin::Operator,
                outcome.clone(),
                start + Duration::from_secs(second),
            );
        }
        cache
    }

    #[test]
    fn an_answer_serves_for_a_day_while_no_server_answers() {
        let start = Moment::from_secs(1_000);
        let cache = after(&[Some(records()), None], start);
        assert_eq!(
            cache.stale(&question(), start + MAX_STALE / 2),
            Some(records())
        );
        assert_eq!(cache.stale(&question(), start + MAX_STALE), None);
    }

    #[test]
    fn an_answer_of_no_records_replaces_what_was_known() {
        let start = Moment::from_secs(1_000);
        let cache = after(&[Some(records()), Some(Records::default())], start);
        assert_eq!(cache.stale(&question(), start), Some(Records::default()));
    }

    #[test]
    fn a_failure_is_remembered_for_seconds_and_ends_with_an_answer() {
        let start = Moment::from_secs(1_000);
        let failed = after(&[None], start);
        let known = &failed.known[&question()];
        assert!(known.has_just_failed(start + FAILURE_TTL / 2));
        assert!(!known.has_just_failed(start + FAILURE_TTL));
        assert_eq!(known.timeout(start + FAILURE_TTL), TIMEOUT_AFTER_FAILURE);
        let answered = after(&[None, Some(records())], start);
        assert!(!answered.known[&question()].has_just_failed(start + FAILURE_TTL / 2));
        assert_eq!(answered.in_flight, HashMap::new());
    }

    #[test]
    fn a_full_memory_forgets_what_is_neither_under_way_nor_asked_again() {
        let named = |number: usize| DnsQuestion {
            name: format!("{number}.test"),
            kind: RecordType::A,
        };
        let mut cache = AnswerCache::default();
        let in_flight = async { None }.boxed().shared();
        for number in 0..MAX_CACHED {
            cache.insert(&named(number));
        }

        let known = |cache: &mut AnswerCache, number: usize| cache.known.remove(&named(number));
        for (number, asked, is_used) in [(0, Some(in_flight), false), (1, None, true)] {
            let mut held = known(&mut cache, number).expect("it is known");
            (held.asked, held.is_used) = (asked, is_used);
            cache.known.insert(named(number), held);
        }
        cache.insert(&question());
        assert_eq!(cache.known.len(), MAX_CACHED);

        for (number, is_known) in [(0, true), (1, true), (2, false), (3, true)] {
            assert_eq!(
                cache.known.contains_key(&named(number)),
                is_known,
                "{number}"
            );
        }

        // Its next turn comes after all others'.
        for number in 0..MAX_CACHED - 3 {
            cache.insert(&named(MAX_CACHED + number));
        }
        assert!(cache.known.contains_key(&named(1)));

        cache.insert(&named(3 * MAX_CACHED));
        cache.insert(&named(3 * MAX_CACHED + 1));
        assert!(!cache.known.contains_key(&named(1)));
    }

    /// Hosts of one tenant that lead to a hundred silent names each must not block another tenant's queries.
    #[tokio::test]
    async fn an_asker_leaves_the_others_their_questions() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address");
        let answers = DnsCache::new(Servers::new(&[address]));
        let (greedy, other) = (
            QueryOrigin::Org(Uuid::from_u128(1)),
            QueryOrigin::Org(Uuid::from_u128(2)),
        );
        let begun = |origin: QueryOrigin, name: String| {
            let question = DnsQuestion {
                name,
                kind: RecordType::A,
            };
            let mut cache = answers.cache();
            answers.start_query(&mut cache, &question, origin).is_some()
        };

        let many =
            (0..MAX_IN_FLIGHT).filter(|number| begun(greedy, format!("{number}.greedy.test")));
        assert_eq!(many.count(), MAX_IN_FLIGHT_OF_ONE);

        for origin in [
            other,
            QueryOrigin::Messages,
            QueryOrigin::Probes,
            QueryOrigin::Operator,
        ] {
            assert!(begun(origin, format!("{origin:?}.test")), "{origin:?}");
        }

        // A query in flight is shared.
        assert!(begun(greedy, format!("{other:?}.test")));
    }
}
