//! Rate limits per org, partner, operator or token: a number of requests in any minute, which may come in one burst.
//! Each node counts for itself.
//!
//! The window slides in steps of a second. Every answer tells what is left (`RateLimit`, `RateLimit-Policy`:
//! draft-ietf-httpapi-ratelimit-headers).
//!
//! This is our own window because GCRA, as in governor, is too lax: if it allows the whole limit in one burst, it lets nearly twice the limit
//! through in a minute.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use dashmap::DashMap;
use trunkline_sip::flow::source;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::error::ApiError;

/// Length of the window in seconds.
const WINDOW_S: u64 = 60;
/// Most windows of addresses. Two addresses rarely share one.
const ADDRESSES: u64 = 1 << 16;
/// Requests between two sweeps of idle windows; more if there are more windows.
const SWEPT_EVERY: usize = 1024;

/// Kind of requests that are counted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Policy {
    /// All requests of an org's keys.
    Org,
    /// Streams that an org's keys open.
    OrgStreams,
    /// Pages of the console, and the requests that they make to the API, of all people of an org.
    Console,
    /// All requests of a partner's keys.
    Partner,
    /// Login links that a partner asks for.
    LoginLinks,
    /// All requests with the token of one visitor.
    Visitor,
    /// All requests with the embed token of one org, which any visitor of its website has.
    Widget,
    /// All requests from one address that bring an embed token, or none.
    WidgetAddress,
    /// All requests with the token of one session.
    Session,
    /// All requests with the token of an org's bots: every bot makes one at the end of its call.
    Bots,
    /// All requests of the operator of this machine.
    Operator,
}

/// Maximum number of an org's console requests in a minute: pages, and the requests that they make to the API. The open page of a call that is up
/// makes a hundred. Requests of keys are counted separately, so that people who watch calls don't use up the programs' limit.
pub(crate) const CONSOLE_REQUESTS_PER_MINUTE: u32 = 1_200;

impl Policy {
    /// Name of the policy in the header fields.
    const fn name(self) -> &'static str {
        match self {
            Self::Org => "org",
            Self::OrgStreams => "org-streams",
            Self::Console => "console",
            Self::Partner => "partner",
            Self::LoginLinks => "login-links",
            Self::Visitor => "visitor",
            Self::Widget => "widget",
            Self::WidgetAddress => "widget-address",
            Self::Session => "session",
            Self::Bots => "bots",
            Self::Operator => "operator",
        }
    }
}

/// Scope of a limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum CountedBy {
    /// All requests: there is one node.
    Deployment,
    /// Requests to this node; other nodes count theirs. `RateLimit-Policy` says so.
    Node,
}

/// Windows of the credentials in use. Only a valid credential gets an entry, and all addresses share [`ADDRESSES`] of them, so unauthenticated
/// clients can't grow the map. The first sweep at least a minute after its last request drops the entry.
#[derive(Debug)]
pub(crate) struct Quotas {
    windows: DashMap<(Policy, Uuid), Box<Window>>,
    /// Spreads addresses over their windows. Random, so that nobody can choose an address that shares another's.
    addresses: RandomState,
    counted_by: CountedBy,
    /// Requests until the next sweep.
    until_sweep: AtomicUsize,
}

/// Requests of the last minute.
#[derive(Debug)]
struct Window {
    /// Count of each second, indexed by the second within the minute.
    counts: [u32; WINDOW_S as usize],
    /// Sum of the counts.
    sum: u32,
    /// Second that was written last.
    second: u64,
}

/// Outcome of counting one request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    policy: Policy,
    counted_by: CountedBy,
    limit: u32,
    /// Requests left in the window.
    left: u32,
    /// Seconds until the oldest counted request leaves the window.
    reset_s: u64,
    passed: bool,
}

impl Quotas {
    pub(super) fn new(counted_by: CountedBy) -> Self {
        Self {
            windows: DashMap::new(),
            addresses: RandomState::new(),
            counted_by,
            until_sweep: AtomicUsize::new(SWEPT_EVERY),
        }
    }

    /// Counts a request of `whom`, unless the limit is reached.
    pub(crate) fn take(&self, policy: Policy, whom: Uuid, limit: u32, now: Moment) -> Counted {
        // Before `entry`: `retain` locks every shard of the map, and would wait for the one that this thread holds. Exactly
        // one request sees 1 and sweeps. The counter wraps below 0 for those that come during the sweep.
        if self.until_sweep.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.sweep(now);
        }
        let mut window = self.windows.entry((policy, whom)).or_default();
        window.take(policy, self.counted_by, limit, now.as_secs())
    }

    /// Counts a request from an address, unless the limit is reached. An IPv6 address counts as its /64; unknown addresses count as one.
    pub(super) fn take_address(
        &self,
        policy: Policy,
        limit: u32,
        address: Option<IpAddr>,
        now: Moment,
    ) -> Counted {
        let window = self.addresses.hash_one(address.map(source)) % ADDRESSES;
        self.take(policy, Uuid::from_u128(window.into()), limit, now)
    }

    /// Drops idle windows. It runs so seldom that its cost per request is negligible.
    fn sweep(&self, now: Moment) {
        self.windows
            .retain(|_, window| now.as_secs() < window.second + WINDOW_S);
        let next = self.windows.len().max(SWEPT_EVERY);
        self.until_sweep.store(next, Ordering::Relaxed);
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            counts: [0; WINDOW_S as usize],
            sum: 0,
            second: 0,
        }
    }
}

impl Window {
    fn take(&mut self, policy: Policy, counted_by: CountedBy, limit: u32, now: u64) -> Counted {
        self.advance(now);
        let passed = self.sum < limit;
        // A refused request doesn't count: a client that goes on trying gets in once earlier requests have left the window.
        if passed {
            self.sum += 1;
            self.counts[place(self.second)] += 1;
        }

        Counted {
            policy,
            counted_by,
            limit,
            left: limit.saturating_sub(self.sum),
            reset_s: self.reset_s(),
            passed,
        }
    }

    /// Clears the seconds that have left the window. Ignores a clock that goes backwards.
    fn advance(&mut self, now: u64) {
        let gone = now.saturating_sub(self.second).min(WINDOW_S);
        for second in 1..=gone {
            let place = place(self.second + second);
            self.sum -= self.counts[place];
            self.counts[place] = 0;
        }
        self.second = self.second.max(now);
    }

    fn reset_s(&self) -> u64 {
        let oldest = (1..=WINDOW_S).find(|step| self.counts[place(self.second + step)] > 0);
        oldest.unwrap_or(WINDOW_S)
    }
}

const fn place(second: u64) -> usize {
    (second % WINDOW_S) as usize
}

impl Counted {
    /// Turns the outcome into the result of the request.
    ///
    /// # Errors
    /// 429 if the request was over the limit.
    fn verdict(self) -> Result<(), ApiError> {
        if self.passed {
            Ok(())
        } else {
            Err(ApiError::TooMany {
                limit: self.limit,
                wait_s: self.reset_s,
            })
        }
    }
}

/// Outcomes for one request, for the header fields of its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Mutex<Vec<Counted>>>);

impl Tally {
    /// Returns the tally that the middleware, `super::request`, attached.
    pub(crate) fn of(parts: &Parts) -> Self {
        parts.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Notes an outcome.
    ///
    /// # Errors
    /// 429 if the request was over the limit.
    pub(crate) fn note(&self, taken: Counted) -> Result<(), ApiError> {
        let mut noted = self.0.lock().expect("nothing panics while it is held");
        noted.push(taken);
        taken.verdict()
    }

    /// Writes the header fields, if anything was counted.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        let noted = self.0.lock().expect("nothing panics while it is held");
        if noted.is_empty() {
            return;
        }

        let policies = noted.iter().map(|taken| {
            let (name, limit) = (taken.policy.name(), taken.limit);
            let scope = match taken.counted_by {
                CountedBy::Deployment => "",
                CountedBy::Node => ";scope=node",
            };
            format!("\"{name}\";q={limit};w={WINDOW_S}{scope}")
        });

        let rests = noted.iter().map(|taken| {
            format!(
                "\"{}\";r={};t={}",
                taken.policy.name(),
                taken.left,
                taken.reset_s
            )
        });

        headers.insert(
            HeaderName::from_static("ratelimit-policy"),
            list(policies.collect()),
        );
        headers.insert(HeaderName::from_static("ratelimit"), list(rests.collect()));
    }
}

fn list(items: Vec<String>) -> HeaderValue {
    HeaderValue::from_str(&items.join(", ")).expect("names and numbers are visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whom() -> Uuid {
        Uuid::from_u128(1)
    }

    fn take(quotas: &Quotas, at: u64) -> (bool, u32, u64) {
        let taken = quotas.take(Policy::Org, whom(), 3, Moment::from_secs(at));
        (taken.passed, taken.left, taken.reset_s)
    }

    #[test]
    fn a_burst_of_the_whole_limit_passes_and_no_more_in_a_minute() {
        let quotas = Quotas::new(CountedBy::Deployment);
        let start = 1_000;

        for (name, at, expected) in [
            ("the first", 0, (true, 2, 60)),
            ("at once", 0, (true, 1, 60)),
            ("later", 20, (true, 0, 40)),
            ("one too many", 20, (false, 0, 40)),
            ("it isn't counted", 59, (false, 0, 1)),
            ("two have left", 60, (true, 1, 20)),
            ("a clock that went back", 10, (true, 0, 20)),
            ("full again", 79, (false, 0, 1)),
            ("one has left", 80, (true, 0, 40)),
            ("after a rest", 100_000, (true, 2, 60)),
        ] {
            assert_eq!(take(&quotas, start + at), expected, "{name}");
        }
    }

    #[test]
    fn whoever_keeps_the_pace_is_never_refused() {
        let quotas = Quotas::new(CountedBy::Deployment);
        for turn in 0..100 {
            assert!(take(&quotas, turn * 20).0, "{turn}");
        }
    }

    #[test]
    fn each_counts_for_himself_and_by_policy() {
        let quotas = Quotas::new(CountedBy::Deployment);
        let now = Moment::from_secs(1);
        for (policy, whom) in [
            (Policy::Org, 1),
            (Policy::Org, 2),
            (Policy::Partner, 1),
            (Policy::LoginLinks, 1),
        ] {
            let taken = quotas.take(policy, Uuid::from_u128(whom), 1, now);
            assert!(taken.passed, "{policy:?} {whom}");
        }
    }

    #[test]
    fn windows_at_rest_are_dropped() {
        let quotas = Quotas::new(CountedBy::Deployment);
        for whom in 0..20 * SWEPT_EVERY {
            // A minute apart, so that one window counts at a time.
            let now = Moment::from_secs(60 * whom as u64);
            quotas.take(Policy::Org, Uuid::from_u128(whom as u128), 1, now);
        }
        let kept = quotas.windows.len();
        assert!(kept <= SWEPT_EVERY, "{kept}");
    }

    #[test]
    fn addresses_are_counted_apart_within_a_bounded_number_of_windows() {
        let quotas = Quotas::new(CountedBy::Deployment);
        let take = |address: &str, limit| {
            let address = address.parse().ok();
            quotas
                .take_address(Policy::WidgetAddress, limit, address, Moment::from_secs(1))
                .passed
        };
        assert!(take("192.0.2.1", 1));
        assert!(!take("192.0.2.1", 1));
        assert!(!take("::ffff:192.0.2.1", 1));
        assert!(take("2001:db8::1", 1));
        assert!(!take("2001:db8::2", 1), "the /64 counts as one");
        assert!(take("unknown", 1));
        assert!(!take("unknown", 1));

        // A client with a whole /32 has as many windows as all others together.
        for network in 0..3 * ADDRESSES {
            let bits = (0x2001_0db8_u128 << 96) + (u128::from(network) << 64);
            take(&std::net::Ipv6Addr::from_bits(bits).to_string(), 1);
        }
        assert!(quotas.windows.len() as u64 <= ADDRESSES);
    }

    #[test]
    fn what_is_left_is_told() {
        let quotas = Quotas::new(CountedBy::Deployment);
        let tally = Tally::default();
        let mut headers = HeaderMap::new();
        tally.write(&mut headers);
        assert!(headers.is_empty());
        let now = Moment::from_secs(7);
        for (policy, limit) in [(Policy::Partner, 100), (Policy::LoginLinks, 30)] {
            let taken = quotas.take(policy, whom(), limit, now);
            tally.note(taken).unwrap();
        }
        tally.write(&mut headers);
        let told = r#""partner";r=99;t=60, "login-links";r=29;t=60"#;
        assert_eq!(headers["ratelimit"], told);
        let policies = r#""partner";q=100;w=60, "login-links";q=30;w=60"#;
        assert_eq!(headers["ratelimit-policy"], policies);

        let (of_node, tally) = (Quotas::new(CountedBy::Node), Tally::default());
        tally
            .note(of_node.take(Policy::Org, whom(), 9, now))
            .unwrap();
        tally.write(&mut headers);
        let policies = r#""org";q=9;w=60;scope=node"#;
        assert_eq!(headers["ratelimit-policy"], policies);
    }
}
