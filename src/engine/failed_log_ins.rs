//! Logs failed log-ins, and stores those of an org for that org. No other org learns of them.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use trunkline_calls::{AuthFailure, UnansweredChallenge, UnknownUser};
use trunkline_model::view::View;
use trunkline_routing::{E164, numbers};
use trunkline_sip::auth::WrongPart;
use trunkline_sip::moment::Moment;
use trunkline_store::{NewAuthFailure, Store, auth_failures, inbound_trunks};
use uuid::Uuid;

use super::clock;
use super::log_in_shares::{QueueShares, StoredLogIns};
use crate::directory::Directory;
use crate::jobs;

/// Failed log-ins waiting to be stored; further ones are dropped. An org may have a quarter of the places.
const QUEUE: usize = 1_024;
/// Time after which a source that calls the same number again without credentials is stored again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Most sources stored for one number within [`REPEAT_INTERVAL`].
const MAX_SOURCES: usize = 4;
/// Most numbers stored for one source within [`REPEAT_INTERVAL`], so that a source that tries many leaves room for others.
const MAX_NUMBERS: usize = 32;
/// Most pairs of source and number stored within [`REPEAT_INTERVAL`].
const MAX_REMEMBERED: usize = 256;

/// Failed log-ins with unknown user names waiting to be logged; further ones are dropped.
const UNKNOWN_QUEUE: usize = 256;
/// Most log lines a second for failed log-ins of orgs, and as many again for unknown user names, so that an attacker who guesses passwords can't flood
/// the log. Further failures are counted in the next line. The failures that are stored for the org have a bound of their own.
const LOGGED_A_SECOND: usize = 10;
/// Limit on log lines per second and source address, so that a fast guesser leaves room for other sources. Two lines are enough for a filter
/// that bans addresses, such as fail2ban.
const LOGGED_OF_SOURCE: usize = 2;
/// Characters of a user name that a log line has.
const LOGGED_NAME: usize = 64;
/// Cause of a log-in whose user name is no org's.
pub(super) const UNKNOWN_USER: &str = "unknown_user";
/// Cause of a challenge that was never answered.
const UNANSWERED: &str = "unanswered";

/// Counter of failed log-ins that are lost.
pub(super) const UNRECORDED: &str = "trunkline_auth_failures_unrecorded_total";

/// Causes of failed log-ins, as they are counted: the parts that can be wrong, and a challenge that was never answered.
pub(super) const CAUSES: [&str; 10] = [
    "password",
    "uri",
    "algorithm",
    "malformed",
    "user",
    "expired",
    "realm",
    "nonce",
    UNKNOWN_USER,
    UNANSWERED,
];

/// Failed log-in that a shard has seen.
#[derive(Debug)]
pub(crate) enum RefusedLogIn {
    /// The credentials were wrong.
    LogIn(AuthFailure),
    /// The challenge was not answered.
    UnansweredChallenge(UnansweredChallenge),
}

impl RefusedLogIn {
    /// Name of the cause, one of [`CAUSES`].
    pub(crate) const fn cause(&self) -> &'static str {
        match self {
            Self::LogIn(failure) => part_name(failure.part),
            Self::UnansweredChallenge(_) => UNANSWERED,
        }
    }
}

/// Senders to the tasks that log and store failed log-ins.
#[derive(Clone, Debug)]
pub(crate) struct FailedLogIns {
    /// Log-ins of an org that failed.
    refused: mpsc::Sender<RefusedLogIn>,
    /// Places of each org in that queue.
    shares: QueueShares,
    /// Log-ins whose user name belongs to no org.
    pub(crate) unknown: mpsc::Sender<UnknownUser>,
}

impl FailedLogIns {
    /// Queues a failed log-in to be stored; false if it is lost, since the queue or its org's share of it is full.
    pub(super) fn refuse(&self, failed: RefusedLogIn) -> bool {
        let org = match &failed {
            RefusedLogIn::LogIn(failure) => Some(failure.org),
            // Its org isn't known yet, since finding it takes the store. `RecentAuthFailures` bounds these instead.
            RefusedLogIn::UnansweredChallenge(_) => None,
        };
        // Taken before it is sent: the task gives the place back as soon as it has the log-in.
        if org.is_some_and(|org| !self.shares.take(org)) {
            return false;
        }
        let is_queued = self.refused.try_send(failed).is_ok();
        if let Some(org) = org.filter(|_| !is_queued) {
            self.shares.leave(org);
        }
        is_queued
    }
}

/// Starts the tasks that log and store failed log-ins.
pub(super) fn start(
    store: Store,
    directory: Arc<Directory>,
    runtime: &runtime::Handle,
) -> FailedLogIns {
    let (refused, mut failures) = mpsc::channel::<RefusedLogIn>(QUEUE);
    let shares = QueueShares::new(QUEUE / 4);
    let places = shares.clone();
    jobs::FAILED_LOG_INS.spawn(runtime, async move {
        let mut batch = Vec::new();
        let mut recent = RecentAuthFailures::default();
        let mut log = FailureLog::default();

        // All that wait at once: the longer a transaction takes under a flood, the more the next one stores.
        while failures.recv_many(&mut batch, QUEUE).await > 0 {
            for failed in &batch {
                if let RefusedLogIn::LogIn(failure) = failed {
                    places.leave(failure.org);
                    log.note_failure(failure, clock::now());
                }
            }
            // After the log, which has a bound of its own: a log-in that isn't stored may still have a line.
            batch.retain(|failed| recent.should_store(failed));
            let find = |unproven| of_unproven(store.clone(), Arc::clone(&directory), unproven);
            let found = rows(batch.drain(..), find).await;
            record(&store, found).await;
        }
    });

    let (unknown, mut names) = mpsc::channel::<UnknownUser>(UNKNOWN_QUEUE);
    jobs::FAILED_LOG_INS.spawn(runtime, async move {
        let mut log = FailureLog::default();
        while let Some(UnknownUser { source, username }) = names.recv().await {
            log.note(source.ip(), UNKNOWN_USER, None, &username, clock::now());
        }
    });

    FailedLogIns {
        refused,
        shares,
        unknown,
    }
}

/// Log of failed log-ins, bounded per second. The source is the first field, before any text of a peer, so that programs can rely on its position.
#[derive(Debug, Default)]
struct FailureLog {
    second: u64,
    /// Source of each line of this second.
    logged: Vec<IpAddr>,
    left_out: u64,
}

impl FailureLog {
    fn note_failure(&mut self, failure: &AuthFailure, now: Moment) {
        let (cause, org) = (part_name(failure.part), Some(failure.org));
        self.note(failure.source.ip(), cause, org, &failure.username, now);
    }

    fn note(
        &mut self,
        source: IpAddr,
        cause: &'static str,
        org: Option<Uuid>,
        username: &str,
        now: Moment,
    ) {
        // An IPv4 address is logged as one, also if it came by an IPv6 socket: that is the form that filters ban.
        let source = source.to_canonical();
        if !self.has_room(source, now) {
            self.left_out += 1;
            return;
        }

        self.logged.push(source);
        let username: String = username.chars().take(LOGGED_NAME).collect();
        tracing::warn!(
            %source,
            cause,
            org.id = org.map(tracing::field::display),
            %username,
            lines_left_out = std::mem::take(&mut self.left_out),
            "SIP log-in failed"
        );
    }

    fn has_room(&mut self, source: IpAddr, now: Moment) -> bool {
        if self.second != now.as_secs() {
            self.second = now.as_secs();
            self.logged.clear();
        }
        let of_source = self.logged.iter().filter(|logged| **logged == source);
        self.logged.len() < LOGGED_A_SECOND && of_source.count() < LOGGED_OF_SOURCE
    }
}

/// Unanswered challenges stored recently, of all shards, oldest first, and log-ins stored in this minute.
#[derive(Debug, Default)]
struct RecentAuthFailures(VecDeque<(IpAddr, Box<str>, Moment)>, StoredLogIns);

impl RecentAuthFailures {
    /// Returns true if the failure should be stored, and remembers it as stored.
    fn should_store(&mut self, failed: &RefusedLogIn) -> bool {
        let unproven = match failed {
            RefusedLogIn::UnansweredChallenge(unproven) => unproven,
            RefusedLogIn::LogIn(failure) => {
                let AuthFailure {
                    org, source, at, ..
                } = failure;
                let is_stored = self.1.admits(*org, source.ip(), *at);
                if !is_stored {
                    metrics::counter!("trunkline_auth_failures_unrecorded_total").increment(1);
                }
                return is_stored;
            }
        };
        let (source, number, at) = (unproven.source, &unproven.dialled, unproven.at);
        let is_over = |(.., then): &(IpAddr, Box<str>, Moment)| at.since(*then) >= REPEAT_INTERVAL;
        while self.0.front().is_some_and(is_over) {
            self.0.pop_front();
        }

        let mut of_number = self.0.iter().filter(|(_, other, _)| other == number);
        let of_source = self.0.iter().filter(|(other, ..)| *other == source);
        if self.0.len() >= MAX_REMEMBERED
            || of_source.count() >= MAX_NUMBERS
            || of_number.clone().count() >= MAX_SOURCES
            || of_number.any(|(other, ..)| *other == source)
        {
            return false;
        }

        self.0.push_back((source, number.clone(), at));
        true
    }
}

/// Returns the rows of failed log-ins. One whose org can't be found now is lost, and costs no other its row.
async fn rows<F>(
    failed: impl Iterator<Item = RefusedLogIn>,
    find: impl Fn(UnansweredChallenge) -> F,
) -> Vec<NewAuthFailure>
where
    F: Future<Output = Result<Option<NewAuthFailure>, trunkline_store::Error>>,
{
    let mut rows = Vec::new();
    for failed in failed {
        match failed {
            RefusedLogIn::LogIn(failure) => rows.push(of_log_in(failure)),
            RefusedLogIn::UnansweredChallenge(unproven) => match find(unproven).await {
                Ok(row) => rows.extend(row),
                Err(error) => note_unrecorded(1, &error),
            },
        }
    }
    rows
}

async fn record(store: &Store, rows: Vec<NewAuthFailure>) {
    let failures = rows.len();
    if failures == 0 {
        return;
    }
    let written = store.write(move |tx| auth_failures::record(tx, &rows));
    if let Err(error) = written.await {
        note_unrecorded(failures, &error);
    }
}

fn note_unrecorded(failures: usize, error: &trunkline_store::Error) {
    metrics::counter!(UNRECORDED).increment(failures as u64);
    tracing::warn!(%error, failures, "failed log-ins were not recorded");
}

/// Makes a peer's text fit for the database: bounded, and without characters that PostgreSQL refuses.
fn text(sent: &str) -> Box<str> {
    let kept = sent.chars().filter(|char| *char != '\0').take(255);
    kept.collect::<String>().into()
}

fn of_log_in(failure: AuthFailure) -> NewAuthFailure {
    NewAuthFailure {
        org: failure.org,
        trunk: failure.trunk,
        username: text(&failure.username),
        source: failure.source.ip(),
        part: part_name(failure.part),
        at: clock::on_wall(failure.at),
        sip_call_id: text(&failure.call_id),
        dialled: failure.dialled.as_deref().map(text),
    }
}

/// Finds the org of the called number. If the source address was on the trunk's IP allow list when the call came, the cause is the
/// number, which wasn't one of the trunk's.
async fn of_unproven(
    store: Store,
    directory: Arc<Directory>,
    unproven: UnansweredChallenge,
) -> Result<Option<NewAuthFailure>, trunkline_store::Error> {
    // Without its prefix an international number looks like a national one, so both are tried.
    let international = E164::parse(&format!("+{}", unproven.dialled)).ok();
    let verified = match international {
        Some(number) => store
            .read(move |tx| trunkline_store::numbers::verified_in(tx, &number))
            .await?
            .zip(Some(number)),
        None => None,
    };

    let Some((org, number)) = verified.or_else(|| national(&directory.load(), &unproven.dialled))
    else {
        return Ok(None);
    };
    let trunk = match store.read(move |tx| inbound_trunks::of_org(tx, org)).await {
        Ok(trunk) => trunk,
        Err(trunkline_store::Error::Wrong(_)) => return Ok(None),
        Err(error) => return Err(error),
    };

    // By the list as the INVITE came. The operator may have added the address while the challenge was unanswered.
    let is_allowed = unproven.allowed_by.contains(&org);
    Ok(Some(NewAuthFailure {
        org,
        trunk: trunk.id,
        username: Box::default(),
        source: unproven.source,
        part: if is_allowed { "number" } else { "address" },
        at: clock::on_wall(unproven.at),
        sip_call_id: text(&unproven.call_id),
        dialled: Some(number.as_str().into()),
    }))
}

/// Finds the org whose trunk's country makes these digits one of its numbers. `None` if several orgs match.
fn national(view: &View, digits: &str) -> Option<(Uuid, E164)> {
    let mut found: Option<(Uuid, E164)> = None;
    for country in view.countries.keys() {
        for number in numbers::readings(digits, Some(*country)) {
            let holds = |id: &&Uuid| {
                let org = view.org(**id);
                org.is_some_and(|org| org.routing.country() == Some(*country))
            };
            match (view.by_number.get(&number).filter(holds), found) {
                // Either org may be meant, and neither may learn of the other's caller.
                (Some(org), Some((other, _))) if *org != other => return None,
                (Some(org), None) => found = Some((*org, number)),
                (_, _) => {}
            }
        }
    }
    found
}

/// Name of the wrong credential in the API.
const fn part_name(part: WrongPart) -> &'static str {
    match part {
        WrongPart::Password => "password",
        WrongPart::Uri => "uri",
        WrongPart::Algorithm => "algorithm",
        WrongPart::Malformed => "malformed",
        WrongPart::User => "user",
        WrongPart::Expired => "expired",
        WrongPart::Realm => "realm",
        WrongPart::Nonce => "nonce",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use trunkline_model::view::OrgView;
    use trunkline_routing::Country;

    use super::*;

    fn unproven(host: u8, number: &str, second: u64) -> RefusedLogIn {
        RefusedLogIn::UnansweredChallenge(UnansweredChallenge {
            source: IpAddr::from([192, 0, 2, host]),
            dialled: number.into(),
            at: Moment::from_secs(second),
            allowed_by: Default::default(),
            call_id: "a".into(),
        })
    }

    #[tokio::test]
    async fn a_look_up_that_fails_costs_no_other_failure_its_row() {
        let failed = ["1", "2", "3"].map(|number| unproven(1, number, 100));
        let find = |unproven: UnansweredChallenge| async move {
            if &*unproven.dialled == "2" {
                return Err(trunkline_store::Broke::Closed.into());
            }
            Ok(Some(NewAuthFailure {
                org: Uuid::nil(),
                trunk: Uuid::nil(),
                username: Box::default(),
                source: unproven.source,
                part: "address",
                at: unproven.at,
                sip_call_id: Box::default(),
                dialled: Some(unproven.dialled),
            }))
        };

        let found = rows(failed.into_iter(), find).await;
        let numbers: Vec<_> = found
            .iter()
            .filter_map(|row| row.dialled.as_deref())
            .collect();
        assert_eq!(numbers, ["1", "3"]);
    }

    #[test]
    fn one_source_leaves_room_in_the_log_for_others() {
        let mut log = FailureLog::default();
        let mut lines = |host: u8, tries: usize, second: u64| {
            let (source, before) = (IpAddr::from([192, 0, 2, host]), log.left_out);
            for _ in 0..tries {
                let now = Moment::from_secs(second);
                match log.has_room(source, now) {
                    true => log.logged.push(source),
                    false => log.left_out += 1,
                }
            }
            tries as u64 - (log.left_out - before)
        };

        assert_eq!(lines(1, 100, 7), 2);
        assert_eq!(lines(2, 1, 7), 1);

        let others: u64 = (3..100).map(|host| lines(host, 1, 7)).sum();
        assert_eq!(others, 7);
        assert_eq!(lines(1, 100, 8), 2, "the next second is a new one");
    }

    #[test]
    fn a_national_number_is_read_as_its_trunk_reads_it() {
        let mut view = View::default();
        let mut org = |number: &str, country: &str| {
            let id = Uuid::new_v4();
            let country = Country::parse(country).unwrap();
            view.by_number.insert(E164::parse(number).unwrap(), id);
            view.countries.update(country, |count| *count += 1);
            let routing = trunkline_routing::Org {
                id,
                agents: Vec::new(),
                held: HashMap::new(),
                numbers: [E164::parse(number).unwrap()].into(),
                trunk: Some(trunkline_routing::Trunk {
                    id,
                    numbers: Vec::new(),
                    default_country: Some(country),
                    max_concurrent_calls: None,
                }),
                max_concurrent_calls: None,
            };
            let org = OrgView {
                routing,
                runtimes: HashMap::new(),
                media_silences: Default::default(),
                media_networks: Default::default(),
                operators_runtimes: Default::default(),
                bot_token: None,
                tied: Default::default(),
                suspended: false,
                partner: None,
                trunk: None,
                outbound_routes: HashMap::new(),
                outbound: Vec::new(),
                registrations: Default::default(),
                destinations: HashMap::new(),
            };
            view.orgs.insert(id, Arc::new(org));
            id
        };

        let berlin = org("+493012345601", "DE");
        let london = org("+442071838750", "GB");
        org("+493012345602", "FR");
        org("+493055555555", "DE");
        org("+443055555555", "GB");
        for (digits, expected) in [
            ("03012345601", Some((berlin, "+493012345601"))),
            ("02071838750", Some((london, "+442071838750"))),
            ("2071838750", Some((london, "+442071838750"))),
            ("03012345602", None),
            ("03055555555", None),
            ("0711", None),
        ] {
            let found = national(&view, digits);
            let found = found.as_ref().map(|(org, number)| (*org, number.as_str()));
            assert_eq!(found, expected, "{digits}");
        }
    }

    #[test]
    fn a_source_is_told_of_once_in_a_while() {
        const ONE: &str = "+442071838750";

        let mut recent = RecentAuthFailures::default();
        for (failed, is_news) in [
            (unproven(1, ONE, 100), true),
            (unproven(1, ONE, 130), false),
            (unproven(1, "+442071838751", 130), true),
            (unproven(2, ONE, 131), true),
            (unproven(3, ONE, 132), true),
            (unproven(4, ONE, 133), true),
            (unproven(5, ONE, 134), false),
            (unproven(1, ONE, 160), true),
        ] {
            assert_eq!(recent.should_store(&failed), is_news, "{failed:?}");
        }

        let mut fill = |hosts: u8| {
            let before = recent.0.len();
            for place in 0..2 * MAX_REMEMBERED {
                let host = 9 + place as u8 % hosts;
                recent.should_store(&unproven(host, &format!("+4420718{place:05}"), 161));
            }
            (before, recent.0.len())
        };

        let (before, after) = fill(1);
        assert_eq!(after, before + MAX_NUMBERS, "one source");
        assert_eq!(fill(100).1, MAX_REMEMBERED, "all sources");
        assert!(
            recent.should_store(&unproven(1, ONE, 300)),
            "the old is forgotten"
        );
        assert_eq!(recent.0.len(), 1);
    }
}
