//! Stores failed log-ins for the org that they concern. No other org learns of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use trunkline_calls::{AuthFailure, Unproven};
use trunkline_model::view::View;
use trunkline_routing::{Country, E164, numbers};
use trunkline_sip::auth::Part;
use trunkline_sip::moment::Moment;
use trunkline_store::{NewAuthFailure, Store, auth_failures, inbound_trunks};
use uuid::Uuid;

use super::clock;
use crate::directory::Directory;

/// Failed log-ins waiting to be stored; further ones are dropped.
const QUEUE: usize = 1_024;
/// Time during which the same source, calling the same number without credentials, isn't stored again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Sources stored for one number within that time; the next constant bounds those of all numbers.
const MAX_SOURCES: usize = 4;
const MAX_REMEMBERED: usize = 256;

/// Log lines of failed log-ins in one second. An attacker who guesses makes no more; the org still gets its records.
const LOGGED_A_SECOND: u32 = 10;

/// Failed log-in that a shard has seen.
#[derive(Debug)]
pub(crate) enum RefusedLogIn {
    /// The credentials were wrong.
    LogIn(AuthFailure),
    /// The challenge was not answered.
    Unproven(Unproven),
}

/// Starts the task that stores failed log-ins, and returns the way to it.
pub(super) fn start(
    store: Store,
    directory: Arc<Directory>,
    runtime: &runtime::Handle,
) -> mpsc::Sender<RefusedLogIn> {
    let (sender, mut failures) = mpsc::channel::<RefusedLogIn>(QUEUE);
    runtime.spawn(async move {
        let mut batch = Vec::new();
        let mut recent = RecentAuthFailures::default();
        let mut log = FailureLog::default();
        while failures.recv_many(&mut batch, QUEUE).await > 0 {
            for failed in &batch {
                log.note(failed, clock::now());
            }
            batch.retain(|failed| recent.should_store(failed));
            if let Err(error) = record(&store, &directory, batch.drain(..)).await {
                tracing::warn!(%error, "failed log-ins were not recorded");
            }
        }
    });
    sender
}

/// Log lines of failed log-ins, at most [`LOGGED_A_SECOND`]. The source comes first, before anything that a peer wrote, so that programs can
/// rely on its place.
#[derive(Debug, Default)]
struct FailureLog {
    second: u64,
    logged: u32,
    left_out: u64,
}

impl FailureLog {
    fn note(&mut self, failed: &RefusedLogIn, now: Moment) {
        let RefusedLogIn::LogIn(failure) = failed else {
            return;
        };
        if self.second != now.as_secs() {
            self.second = now.as_secs();
            self.logged = 0;
        }
        if self.logged >= LOGGED_A_SECOND {
            self.left_out += 1;
            return;
        }

        self.logged += 1;
        tracing::warn!(
            source = %failure.source.ip(),
            cause = part_name(failure.part),
            org.id = %failure.org,
            username = ?failure.username,
            lines_left_out = std::mem::take(&mut self.left_out),
            "SIP log-in failed"
        );
    }
}

/// Unanswered challenges stored recently, of all shards, oldest first.
#[derive(Debug, Default)]
struct RecentAuthFailures(VecDeque<(IpAddr, Box<str>, Moment)>);

impl RecentAuthFailures {
    /// Returns true if the failure should be stored, and remembers it as stored.
    fn should_store(&mut self, failed: &RefusedLogIn) -> bool {
        let RefusedLogIn::Unproven(unproven) = failed else {
            return true;
        };
        let (source, number, at) = (unproven.source, &unproven.dialled, unproven.at);
        let is_over = |(.., told): &(IpAddr, Box<str>, Moment)| at.since(*told) >= REPEAT_INTERVAL;
        while self.0.front().is_some_and(is_over) {
            self.0.pop_front();
        }

        let mut of_number = self.0.iter().filter(|(_, other, _)| other == number);
        if self.0.len() >= MAX_REMEMBERED
            || of_number.clone().count() >= MAX_SOURCES
            || of_number.any(|(other, ..)| *other == source)
        {
            return false;
        }

        self.0.push_back((source, number.clone(), at));
        true
    }
}

async fn record(
    store: &Store,
    directory: &Directory,
    batch: impl Iterator<Item = RefusedLogIn>,
) -> Result<(), trunkline_store::Error> {
    let mut noted = Vec::new();
    for failed in batch {
        match failed {
            RefusedLogIn::LogIn(failure) => noted.push(of_log_in(failure)),
            RefusedLogIn::Unproven(unproven) => {
                noted.extend(of_unproven(store, directory, unproven).await?)
            }
        }
    }
    if noted.is_empty() {
        return Ok(());
    }
    store
        .write(move |tx| auth_failures::record(tx, &noted))
        .await
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

/// Finds the org of the called number. If the source address is on the trunk's IP allow list, the cause is the number,
/// which isn't one of the trunk's.
async fn of_unproven(
    store: &Store,
    directory: &Directory,
    unproven: Unproven,
) -> Result<Option<NewAuthFailure>, trunkline_store::Error> {
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

    let is_allowed = trunk
        .allowed_addresses
        .iter()
        .any(|network| network.contains(&unproven.source));

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
        for number in readings(digits, *country) {
            let holds = |id: &&Uuid| {
                let org = view.org(**id);
                org.is_some_and(|org| org.routing.country() == Some(*country))
            };
            match (view.by_number.get(&number).filter(holds), found) {
                (Some(org), Some((other, _))) if *org != other => return None,
                (Some(org), None) => found = Some((*org, number)),
                (_, _) => {}
            }
        }
    }
    found
}

/// Every E.164 number that the digits can mean in a country.
fn readings(digits: &str, country: Country) -> Vec<E164> {
    let seen = RefCell::new(Vec::new());
    numbers::reduce(digits, Some(country), &|number| {
        seen.borrow_mut().push(*number);
        false
    });
    seen.into_inner()
}

/// Name of the wrong credential in the API.
const fn part_name(part: Part) -> &'static str {
    match part {
        Part::Password => "password",
        Part::Uri => "uri",
        Part::Algorithm => "algorithm",
        Part::Malformed => "malformed",
        Part::User => "user",
        Part::Expired => "expired",
        Part::Realm => "realm",
        Part::Nonce => "nonce",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use trunkline_model::view::OrgView;

    use super::*;

    fn unproven(host: u8, number: &str, second: u64) -> RefusedLogIn {
        RefusedLogIn::Unproven(Unproven {
            source: IpAddr::from([192, 0, 2, host]),
            dialled: number.into(),
            at: Moment::from_secs(second),
            call_id: "a".into(),
        })
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
                operators_runtimes: Default::default(),
                tied: Default::default(),
                suspended: false,
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
        for place in 0..2 * MAX_REMEMBERED {
            recent.should_store(&unproven(9, &format!("+4420718{place:05}"), 161));
        }
        assert_eq!(recent.0.len(), MAX_REMEMBERED);
        assert!(
            recent.should_store(&unproven(1, ONE, 300)),
            "the old is forgotten"
        );
        assert_eq!(recent.0.len(), 1);
    }
}
