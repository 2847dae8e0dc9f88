//! Leases due deliveries, sends them, and records the outcome.
//!
//! Several nodes share one queue; each leases the deliveries that it attempts. Slow receivers use up their own places and those of their org only:
//! the fewer places are free, the fewer an org may take, and the last are kept from a partner whose orgs have its share. Where none is left, the org
//! with the fewest attempts in progress gets the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use rustls::RootCertStore;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use trunkline_bounds::{Holder, PartnerShare};
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Attempt, DueWebhook, Error, LeasedDelivery, Outcome, PartnerOfOrg, Store, Webhook, bot_tokens,
    calls, deliveries,
};
use uuid::Uuid;

use super::post::{DeliveryFault, Poster, WebhookAnswer};
use super::schedule::next_attempt;
use super::signature::signatures;
use super::status_callback;
use super::status_callback::Callback;
use super::target::Target;
use crate::telemetry::metrics;
use crate::{config, jobs};

/// Concurrent attempts.
const MAX_ATTEMPTS: usize = 256;
/// Concurrent attempts for one org.
const MAX_OF_ORG: usize = 32;
/// An org may have one attempt in progress for every four places that are free.
const SHARE_OF_FREE: usize = 4;
/// Places of which the orgs of a partner have no more than their share.
const SCARCE: usize = MAX_ATTEMPTS * 15 / 100;
/// Concurrent attempts for one webhook.
const MAX_OF_WEBHOOK: usize = 8;
/// Lease of an attempt: longer than an attempt can take.
const LEASE: Duration = Duration::from_secs(90);
/// Time for attempts in progress to end when the sender stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Results of attempts, as they are counted: success, then the stable word for each failure.
const DELIVERED: &str = "delivered";
const FAILURES: [&str; 9] = [
    "gone",
    "redirect",
    "status",
    "name_not_resolved",
    "private_address",
    "not_connected",
    "tls",
    "timeout",
    "no_http_answer",
];

/// Sender of due deliveries. Clones share it.
#[derive(Clone)]
pub struct WebhookSender(Arc<Inner>);

struct Inner {
    store: Store,
    poster: Poster,
    /// Name under which this node leases deliveries.
    holder: String,
    clock: fn() -> Moment,
    limiter: Mutex<AttemptLimiter>,
}

/// Attempts in progress.
#[derive(Debug, Default)]
struct AttemptLimiter {
    all: usize,
    orgs: HashMap<Uuid, usize>,
    partners: HashMap<Uuid, usize>,
    webhooks: HashMap<Uuid, usize>,
}

/// Place of an attempt, released when dropped.
struct AttemptPermit {
    sender: WebhookSender,
    holder: Holder,
    webhook: Uuid,
}

/// Running sender.
#[derive(Debug)]
pub struct Running {
    end: watch::Sender<bool>,
    working: JoinHandle<()>,
}

impl std::fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookSender")
            .field("holder", &self.0.holder)
            .finish_non_exhaustive()
    }
}

impl WebhookSender {
    /// Makes the sender of the node with this number. `roots` are trusted for TLS.
    pub fn new(
        store: Store,
        config: &config::Webhooks,
        roots: RootCertStore,
        node: u8,
        clock: fn() -> Moment,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            poster: Poster::new(config, roots),
            holder: format!("node {node}"),
            clock,
            limiter: Mutex::default(),
        }))
    }

    /// Starts the task that sends.
    pub fn start(self) -> Running {
        for result in [DELIVERED].iter().chain(&FAILURES) {
            metrics::webhook_attempts(result, 0);
        }
        let (end, ended) = watch::channel(false);
        let working = jobs::WEBHOOKS.spawn(&runtime::Handle::current(), self.work(ended));
        Running { end, working }
    }

    /// Attempts every due delivery once and returns the number of attempts.
    ///
    /// # Errors
    /// Only [`Broke`](trunkline_store::Broke).
    pub async fn deliver_due(&self) -> Result<usize, Error> {
        let mut attempts = 0;
        loop {
            let tasks = self.take().await?;
            if tasks.is_empty() {
                return Ok(attempts);
            }
            attempts += tasks.len();
            futures_util::future::join_all(tasks).await;
        }
    }

    async fn work(self, mut ended: watch::Receiver<bool>) {
        let mut recorded = self.0.store.events_recorded();
        let mut tasks = JoinSet::new();

        // An earlier run of this node may have died with leases. They would hold their deliveries up until they
        // expire.
        let mut fails = self.release_leases().await;

        loop {
            // Before looking: an event that is recorded meanwhile then ends the wait below.
            recorded.mark_unchanged();

            match self.take().await {
                Ok(taken) => {
                    fails = false;
                    let more = !taken.is_empty();
                    taken.into_iter().for_each(|task| {
                        tasks.spawn(task);
                    });
                    if more {
                        continue;
                    }
                }
                Err(error) if !fails => {
                    fails = true;
                    tracing::warn!(%error, "webhooks wait for the database");
                }
                Err(_) => {}
            }

            tokio::select! {
                _ = ended.changed() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
                // While the database is away, poll it instead of waiting for new events.
                _ = recorded.changed(), if !fails => {}
                // Retries become due without an event, and other nodes' events are noticed by looking alone.
                () = tokio::time::sleep(jobs::WEBHOOKS.period()) => {}
            }
        }

        let last = async { while tasks.join_next().await.is_some() {} };
        // Attempts that take longer are aborted; another lease repeats them.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, last).await;
        tasks.shutdown().await;
        self.release_leases().await;
    }

    /// Releases the leases of this node; `true` if the database failed, and they have to expire.
    async fn release_leases(&self) -> bool {
        let holder = self.0.holder.clone();
        let freed = self
            .0
            .store
            .write(move |tx| deliveries::release(tx, &holder))
            .await;
        freed.is_err()
    }

    /// Leases due deliveries that have a place.
    async fn take(&self) -> Result<Vec<impl Future<Output = ()> + Send + 'static>, Error> {
        let mut tasks = Vec::new();
        let now = self.now();
        let mut due = self
            .0
            .store
            .read(move |tx| deliveries::due(tx, now))
            .await?;
        {
            let limiter = self.limiter();
            due.sort_by_key(|due| limiter.of_org(due.webhook.org_id));
        }

        for due in due {
            let (holder, webhook) = (holder(&due), due.webhook);
            // Computed for each webhook anew, since the leases before have taken places.
            let room = self.limiter().room(holder, webhook.id);
            if room == 0 {
                continue;
            }

            let limit = u32::try_from(room).unwrap_or(u32::MAX);
            let node = self.0.holder.clone();
            // Read again for each lease, since those before may have taken long.
            let now = self.now();
            let held = self
                .0
                .store
                .write(move |tx| deliveries::lease(tx, webhook.id, &node, limit, LEASE, now))
                .await?;

            let webhook = Arc::new(webhook);
            for held in held {
                let permit = self.enter(holder, webhook.id);
                tasks.push(attempt(permit, Arc::clone(&webhook), held));
            }
        }

        Ok(tasks)
    }

    fn enter(&self, holder: Holder, webhook: Uuid) -> AttemptPermit {
        self.limiter().enter(holder, webhook);
        AttemptPermit {
            sender: self.clone(),
            holder,
            webhook,
        }
    }

    fn limiter(&self) -> MutexGuard<'_, AttemptLimiter> {
        self.0
            .limiter
            .lock()
            .expect("nothing panics while it is held")
    }

    fn now(&self) -> Moment {
        (self.0.clock)()
    }

    async fn post(
        &self,
        holder: Holder,
        webhook: &Webhook,
        held: &LeasedDelivery,
    ) -> Result<WebhookAnswer, DeliveryFault> {
        let poster = &self.0.poster;
        // The URL was checked when it was set, but the policy may have changed since.
        let target = Target::parse(&webhook.url, poster.private_allowed());
        let target = target.map_err(|_| DeliveryFault::Private)?;
        if webhook.agent_id.is_some() {
            let (headers, form) = self.status_callback(webhook, held).await;
            return poster.post(holder, &target, headers, form).await;
        }
        let headers = headers(webhook, held, self.now());
        let body = held.body.clone();
        poster.post(holder, &target, headers, body).await
    }
}

impl WebhookSender {
    /// Returns the headers and the form of a delivery to an agent's status callback. Without a bot token it is not signed.
    async fn status_callback(
        &self,
        webhook: &Webhook,
        held: &LeasedDelivery,
    ) -> (HeaderMap, String) {
        let org = webhook.org_id;
        let Some(callback) = Callback::of(org, &held.body) else {
            return (HeaderMap::new(), String::new());
        };

        let session = callback.session();
        let known = self.0.store.read(move |tx| {
            let withheld = calls::of_session(tx, org, session)
                .map(|(call, _)| call.caller_withheld == Some(true));
            Ok((withheld, bot_tokens::of_org(tx, org)))
        });
        // A number whose caller's wish can't be read is withheld.
        let (withheld, tokens) = match known.await {
            Ok((withheld, tokens)) => (withheld.unwrap_or(true), tokens.ok()),
            Err(_) => (true, None),
        };
        let callback = match withheld {
            true => callback.withholding_caller(),
            false => callback,
        };

        let mut headers = HeaderMap::from_iter([
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/x-www-form-urlencoded"),
            ),
            (
                header::USER_AGENT,
                HeaderValue::from_static(concat!("Trunkline/", env!("CARGO_PKG_VERSION"))),
            ),
        ]);
        let signature =
            tokens.map(|tokens| callback.signature(tokens.token.reveal(), &webhook.url));
        if let Some(Ok(signature)) = signature.as_deref().map(HeaderValue::from_str) {
            headers.insert(status_callback::SIGNATURE, signature);
        }
        (headers, callback.form())
    }
}

impl Running {
    /// Starts no further attempt, and waits some seconds for those in progress.
    pub async fn stop(self) {
        // If the task has ended, there is no receiver left.
        let _ = self.end.send(true);
        if self.working.await.is_err() {
            tracing::error!("the webhook sender panicked");
        }
    }
}

impl AttemptLimiter {
    /// Returns how many more attempts the org's webhook may have now.
    fn room(&self, holder: Holder, webhook: Uuid) -> usize {
        let left = |most: usize, taken: Option<&usize>| {
            most.saturating_sub(taken.copied().unwrap_or_default())
        };
        let free = left(MAX_ATTEMPTS, Some(&self.all));
        let of_org = MAX_OF_ORG.min(free.div_ceil(SHARE_OF_FREE));
        let of_partner = holder.partner.map_or(free, |own| {
            let share = MAX_ATTEMPTS * usize::from(own.percent) / 100;
            let before_scarce = free.saturating_sub(SCARCE);
            before_scarce.max(left(share, self.partners.get(&own.id)))
        });
        free.min(of_partner)
            .min(left(of_org, self.orgs.get(&holder.org)))
            .min(left(MAX_OF_WEBHOOK, self.webhooks.get(&webhook)))
    }

    /// Returns the org's attempts in progress.
    fn of_org(&self, org: Uuid) -> usize {
        self.orgs.get(&org).copied().unwrap_or_default()
    }

    fn enter(&mut self, holder: Holder, webhook: Uuid) {
        self.all += 1;
        *self.orgs.entry(holder.org).or_default() += 1;
        if let Some(partner) = holder.partner {
            *self.partners.entry(partner.id).or_default() += 1;
        }
        *self.webhooks.entry(webhook).or_default() += 1;
    }

    fn leave(&mut self, holder: Holder, webhook: Uuid) {
        fn less(counts: &mut HashMap<Uuid, usize>, whose: Uuid) {
            if let Some(count) = counts.get_mut(&whose) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&whose);
                }
            }
        }
        self.all -= 1;
        less(&mut self.orgs, holder.org);
        if let Some(partner) = holder.partner {
            less(&mut self.partners, partner.id);
        }
        less(&mut self.webhooks, webhook);
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        self.sender.limiter().leave(self.holder, self.webhook);
    }
}

/// Sends one delivery and records the outcome. If that fails, the delivery is sent again once its lease expires.
async fn attempt(permit: AttemptPermit, webhook: Arc<Webhook>, held: LeasedDelivery) {
    let sender = &permit.sender;
    let began = sender.now();
    let answered = sender.post(permit.holder, &webhook, &held).await;
    let now = sender.now();
    let attempts = held.delivery.attempts + 1;
    let (outcome, fault) = judge(answered, attempts, &webhook.url, held.delivery.id, now);
    metrics::webhook_attempted(now.since(began));
    let cause = answered.err().map(DeliveryFault::as_str).or(fault);
    metrics::webhook_attempts(cause.unwrap_or(DELIVERED), 1);

    let attempt = Attempt {
        at: began,
        took_ms: u64::try_from(now.since(began).as_millis()).unwrap_or(u64::MAX),
        http_status: answered.ok().map(|answer| answer.status.as_u16()),
        fault: fault.map(str::to_owned),
    };

    tracing::debug!(org.id = %webhook.org_id, webhook.id = %webhook.id, event.id = %held.delivery.event_id, attempts, fault = cause, "webhook attempted");
    if let Err(DeliveryFault::Private) = answered {
        tracing::info!(org.id = %webhook.org_id, webhook.id = %webhook.id, fault = cause, "a webhook's receiver has private addresses alone");
    }

    let holder = sender.0.holder.clone();
    // By holder: if the attempt took longer than its lease, the delivery may be another node's by now.
    let settled = sender
        .0
        .store
        .write(move |tx| deliveries::settle(tx, &held.delivery, &holder, attempt, outcome, now));

    let settled = settled.await;
    // As stored: a 410 of a URL that has been changed meanwhile gives nothing up.
    if let Ok(Some(Outcome::GivenUp | Outcome::Gone { .. })) = settled {
        metrics::webhook_given_up();
    }
    match settled {
        Ok(Some(Outcome::Gone { .. })) => {
            tracing::info!(org.id = %webhook.org_id, webhook.id = %webhook.id, "a webhook is disabled: its receiver answers 410");
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, webhook.id = %webhook.id, "recording a webhook attempt failed");
        }
    }
}

/// Returns the org of a webhook as one that takes of the places.
fn holder(due: &DueWebhook) -> Holder {
    let share = |partner: PartnerOfOrg| {
        let percent = partner.node_share_percent;
        let percent = percent.and_then(|set| u8::try_from(set).ok());
        PartnerShare {
            id: partner.id,
            percent: percent.unwrap_or(PartnerShare::DEFAULT),
        }
    };
    Holder {
        org: due.webhook.org_id,
        partner: due.partner.map(share),
    }
}

/// Decides what follows from an attempt, and the stable word for the failure.
fn judge(
    answered: Result<WebhookAnswer, DeliveryFault>,
    attempts: u32,
    url: &str,
    delivery: Uuid,
    now: Moment,
) -> (Outcome, Option<&'static str>) {
    let (fault, retry_after) = match answered {
        Ok(answer) if answer.status.is_success() => return (Outcome::Delivered, None),
        // Standard Webhooks: by 410 a receiver says that it wants no more.
        Ok(answer) if answer.status == StatusCode::GONE => {
            let url = url.to_owned();
            return (Outcome::Gone { url }, Some("gone"));
        }
        Ok(answer) if answer.status.is_redirection() => ("redirect", None),
        Ok(answer) => ("status", answer.retry_after),
        Err(fault) => (fault.shown(), None),
    };
    let again = next_attempt(attempts, delivery, retry_after, now);
    (again.map_or(Outcome::GivenUp, Outcome::Again), Some(fault))
}

fn headers(webhook: &Webhook, held: &LeasedDelivery, now: Moment) -> HeaderMap {
    let id = held.delivery.event_id.to_string();
    let signatures = signatures(webhook, &id, now, &held.body);
    let agent = concat!("Trunkline/", env!("CARGO_PKG_VERSION"));
    let visible = |text: &str| {
        HeaderValue::from_str(text).expect("ids, numbers and base64 are visible ASCII")
    };

    HeaderMap::from_iter([
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::USER_AGENT, HeaderValue::from_static(agent)),
        (HeaderName::from_static("webhook-id"), visible(&id)),
        (
            HeaderName::from_static("webhook-timestamp"),
            HeaderValue::from(now.as_secs()),
        ),
        (
            HeaderName::from_static("webhook-signature"),
            visible(&signatures),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_settles_a_delivery() {
        let now = Moment::from_secs(1_000_000);
        let answer = |status: u16| {
            Ok(WebhookAnswer {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after: None,
            })
        };

        let url = "https://example.com/";
        let gone = Outcome::Gone {
            url: url.to_owned(),
        };
        let again = |_| Outcome::Again(now + Duration::from_secs(5));
        for (answered, outcome, fault) in [
            (answer(200), Outcome::Delivered, None),
            (answer(204), Outcome::Delivered, None),
            (answer(301), again(()), Some("redirect")),
            (answer(400), again(()), Some("status")),
            (answer(410), gone, Some("gone")),
            (answer(503), again(()), Some("status")),
            (Err(DeliveryFault::Timeout), again(()), Some("timeout")),
            (
                Err(DeliveryFault::Private),
                again(()),
                Some("name_not_resolved"),
            ),
        ] {
            assert_eq!(
                judge(answered, 1, url, Uuid::nil(), now),
                (outcome, fault),
                "{answered:?}"
            );
            assert!(fault.is_none_or(|fault| FAILURES.contains(&fault)));
        }

        let last = judge(answer(500), 14, url, Uuid::nil(), now);
        assert_eq!(last.0, Outcome::GivenUp);
    }

    #[test]
    fn orgs_of_silent_receivers_leave_the_next_place_to_another() {
        let newcomer = (Holder::alone(Uuid::from_u128(999)), Uuid::from_u128(9_999));
        for (orgs, has_places_left) in [(1, true), (8, true), (16, true), (20, false), (250, false)]
        {
            let mut limiter = AttemptLimiter::default();
            // Each org has more webhooks than its share, and nothing that it sends ends.
            for org in (1..=orgs).map(Uuid::from_u128) {
                for webhook in 0..6 {
                    let webhook = Uuid::from_u128(org.as_u128() * 10 + webhook);
                    let holder = Holder::alone(org);
                    for _ in 0..limiter.room(holder, webhook) {
                        limiter.enter(holder, webhook);
                    }
                }
            }

            let most = limiter.orgs.values().max();
            assert!(most <= Some(&MAX_OF_ORG), "{orgs}: {most:?}");
            let room = limiter.room(newcomer.0, newcomer.1);
            assert_eq!(room > 0, has_places_left, "{orgs}: {limiter:?}");
            if !has_places_left {
                // The first attempt that ends makes room for the newcomer alone, which comes before those with attempts.
                let org = Holder::alone(Uuid::from_u128(1));
                limiter.leave(org, Uuid::from_u128(10));
                assert_eq!(limiter.room(org, Uuid::from_u128(10)), 0, "{orgs}");
                assert!(limiter.room(newcomer.0, newcomer.1) > 0, "{orgs}");
            }
        }
    }

    #[test]
    fn a_partner_with_many_orgs_leaves_places_to_others() {
        let mut limiter = AttemptLimiter::default();
        let partner = PartnerShare {
            id: Uuid::from_u128(5_000),
            percent: 50,
        };
        for org in (1..=1_000).map(Uuid::from_u128) {
            let holder = Holder {
                org,
                partner: Some(partner),
            };
            for _ in 0..limiter.room(holder, org) {
                limiter.enter(holder, org);
            }
        }
        assert_eq!(limiter.all, MAX_ATTEMPTS - SCARCE);
        let other = Holder::alone(Uuid::from_u128(9_999));
        assert!(limiter.room(other, Uuid::nil()) > 0);
    }
}
