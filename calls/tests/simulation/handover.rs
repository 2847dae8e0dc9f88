//! Handing a caller over: the request to the node, the answers of the PBX to the REFER, and its NOTIFYs; and the runtime that refers and
//! gets NOTIFYs (RFC 3515).

use std::time::Duration;

use trunkline_sip::wire::{HeaderName, Message, Method};

use crate::dice::Dice;
use crate::hands::{Hands, Step};
use crate::party::{Party, value};
use crate::plan::{AttemptPlan, CallerPlan};
use crate::session::text;
use crate::wire::Purpose;

/// The names of what every agent may hand its callers to: a number, and a desk with a host of its own.
pub(crate) const DESTINATIONS: [&str; 2] = ["Number", "Desk"];

/// Requests to the node's API.
#[derive(Clone, Debug)]
pub(crate) struct HandoverPlan {
    /// Time from the start of the call, and destination.
    pub(crate) asked: Vec<(Duration, usize)>,
    /// Behaviour of the destinations that the node calls itself.
    pub(crate) destinations: Vec<AttemptPlan>,
    /// The PBX puts a new leg in the caller's place: when, counted from the start of the call, and how that one behaves.
    pub(crate) taken_over: Option<(Duration, CallerPlan)>,
    /// The call is held, or resumed: when, counted from the start of the call.
    pub(crate) held: Vec<(Duration, bool)>,
}

impl HandoverPlan {
    pub(crate) fn none(destination: AttemptPlan) -> Self {
        Self {
            asked: Vec::new(),
            destinations: vec![destination],
            taken_over: None,
            held: Vec::new(),
        }
    }

    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let count = if dice.percent(40) {
            1 + dice.below(2)
        } else {
            0
        };

        Self {
            asked: (0..count)
                .map(|_| (dice.millis(0, 30_000), dice.below(2) as usize))
                .collect(),
            destinations: (0..2).map(|_| AttemptPlan::draw(dice)).collect(),
            taken_over: dice
                .maybe(20, 500, 25_000)
                .map(|after| (after, CallerPlan::draw(dice))),
            held: match dice.percent(30) {
                true => (0..1 + dice.below(3))
                    .map(|turn| (dice.millis(0, 20_000), turn % 2 == 0))
                    .collect(),
                false => Vec::new(),
            },
        }
    }
}

/// Behaviour of a PBX on REFER.
#[derive(Clone, Debug)]
pub(crate) struct ReferPlan {
    /// It lists REFER in `Allow`.
    pub(crate) is_known: bool,
    /// Its answers to the first REFER and to those after it, the last for all others, and how long each takes.
    pub(crate) answers: Vec<(Duration, u16)>,
    /// NOTIFYs that it sends, timed from the answer or from the REFER.
    pub(crate) news: Vec<News>,
    pub(crate) news_first: bool,
    /// `expires` of its NOTIFYs, in seconds.
    pub(crate) expires: u32,
    /// Time from its acceptance to its BYE.
    pub(crate) leaves: Option<Duration>,
}

/// One NOTIFY.
#[derive(Copy, Clone, Debug)]
pub(crate) struct News {
    pub(crate) after: Duration,
    pub(crate) status: u16,
    pub(crate) last: bool,
}

impl ReferPlan {
    /// It takes the caller over.
    pub(crate) fn plain() -> Self {
        let news = |seconds, status, last| News {
            after: Duration::from_secs(seconds),
            status,
            last,
        };
        Self {
            is_known: true,
            answers: vec![(Duration::ZERO, 202)],
            news: vec![news(1, 180, false), news(2, 200, true)],
            news_first: false,
            expires: 60,
            leaves: None,
        }
    }

    /// It has never heard of it.
    pub(crate) fn refuses(status: u16) -> Self {
        Self {
            answers: vec![(Duration::ZERO, status)],
            news: Vec::new(),
            ..Self::plain()
        }
    }

    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let one = |dice: &mut Dice| {
            let status = match dice.below(100) {
                0..45 => dice.pick(&[202, 202, 202, 200]),
                45..75 => dice.pick(&[405, 501, 603]),
                75..85 => dice.pick(&[401, 407, 491]),
                85..97 => dice.pick(&[403, 400, 500, 480, 481, 408, 503]),
                _ => 0,
            };
            let slow = dice.maybe(30, 0, 6_000);
            (slow.unwrap_or_default(), status)
        };

        let mut news: Vec<News> = (0..dice.below(4))
            .map(|_| News {
                after: dice.millis(0, 8_000),
                status: dice.pick(&[100, 180, 180, 183, 0]),
                last: dice.percent(3),
            })
            .collect();
        if dice.percent(75) {
            news.push(News {
                after: dice.millis(0, 20_000),
                status: dice.pick(&[200, 200, 200, 486, 404, 503, 100]),
                last: dice.percent(90),
            });
        }

        Self {
            is_known: dice.percent(85),
            answers: (0..3).map(|_| one(dice)).collect(),
            news,
            news_first: dice.percent(10),
            expires: 60,
            leaves: dice.maybe(30, 0, 20_000),
        }
    }
}

/// State of a peer's REFER.
#[derive(Debug, Default)]
pub(crate) struct Referral {
    /// REFERs that came.
    came: usize,
    /// CSeq of the last one.
    cseq: u32,
    /// The last answer was a challenge.
    challenged: bool,
}

impl Party {
    /// The node asks the PBX to take the caller over.
    pub(crate) fn on_refer(
        &mut self,
        hands: &mut Hands<'_>,
        session: usize,
        at: usize,
        message: &Message<'_>,
    ) {
        self.seen.push("referred");
        let to = value(message, HeaderName::ReferTo);
        if !to.starts_with("<sip:") || !to.contains("X-PLATFORM-SESSION-ID=") {
            self.fault(format!("Refer-To {to}"));
        }
        if message.other("X-PLATFORM-SESSION-ID").is_none() {
            self.fault("a REFER without its context");
        }

        let proven = message.first(HeaderName::Authorization).is_some()
            || message.first(HeaderName::ProxyAuthorization).is_some();
        let plan = &self.talk.refers;
        let (after, status) = match plan.answers[self.referral.came.min(plan.answers.len() - 1)] {
            // Who is challenged and proves nothing is challenged again.
            (after, status) if self.referral.challenged && !proven && status != 0 => (after, 401),
            planned => planned,
        };

        self.referral.came += 1;
        self.referral.cseq = message.cseq().number;
        if plan.news_first && (200..300).contains(&status) {
            self.tell(hands, session);
        }

        if after.is_zero() {
            self.answer_refer(hands, session, at, status);
        } else {
            hands.step(after, Step::Referred(session, at, status));
        }
    }

    /// The PBX's answer to a REFER; 0 is none.
    pub(crate) fn answer_refer(
        &mut self,
        hands: &mut Hands<'_>,
        session: usize,
        at: usize,
        status: u16,
    ) {
        let challenge = "Digest realm=\"pbx\", nonce=\"1\", algorithm=MD5, qop=\"auth\"\r\n";
        let lines = match status {
            0 => return,
            200..300 => format!("Contact: {}\r\n", self.contact()),
            401 => format!("WWW-Authenticate: {challenge}"),
            407 => format!("Proxy-Authenticate: {challenge}"),
            _ => String::new(),
        };

        self.referral.challenged = matches!(status, 401 | 407);
        self.wire.answer(hands, at, status, ("", &lines, b""));
        if !(200..300).contains(&status) {
            return;
        }

        if !self.talk.refers.news_first {
            self.tell(hands, session);
        }

        if let Some(after) = self.talk.refers.leaves {
            hands.step(after, Step::Leave(session));
        }
    }

    fn tell(&self, hands: &mut Hands<'_>, session: usize) {
        for (at, news) in self.talk.refers.news.iter().enumerate() {
            hands.step(news.after, Step::News(session, at, self.referral.cseq));
        }
    }

    /// A NOTIFY of the PBX, whether it is still in the call or not.
    pub(crate) fn notify(&mut self, hands: &mut Hands<'_>, session: usize, at: usize, cseq: u32) {
        let News { status, last, .. } = self.talk.refers.news[at];
        let state = match last {
            true => "terminated;reason=noresource".to_owned(),
            false => format!("active;expires={}", self.talk.refers.expires),
        };
        let body = match status {
            0 => String::new(),
            status => format!("SIP/2.0 {status} Told\r\n"),
        };
        let lines = format!(
            "Contact: {}\r\nEvent: refer;id={cseq}\r\nSubscription-State: {state}\r\nContent-Type: message/sipfrag\r\n",
            self.contact()
        );
        let method = (Method::Notify, Purpose::Other);
        self.request(hands, session, method, &lines, body.as_bytes());
    }

    /// The PBX has taken the caller away.
    pub(crate) fn leave(&mut self, hands: &mut Hands<'_>, session: usize) {
        if self.sessions[session].unacknowledged {
            return hands.step(Duration::from_millis(500), Step::Leave(session));
        }
        self.hang_up(hands, session);
    }

    /// A REFER of the runtime's own.
    pub(crate) fn refer(&mut self, hands: &mut Hands<'_>, session: usize, destination: usize) {
        let name = DESTINATIONS.get(destination).unwrap_or(&"nobody");
        let lines = format!(
            "Contact: {}\r\nRefer-To: <sip:{name}@anywhere.example>\r\n",
            self.contact()
        );
        let method = (Method::Refer, Purpose::Refer);
        self.request(hands, session, method, &lines, b"");
    }

    pub(crate) fn on_refer_answered(&mut self, message: &Message<'_>) {
        if message.status() < 300 {
            self.seen.push("refers");
        }
    }

    /// NOTIFYs of the node about the runtime's REFER.
    pub(crate) fn on_notify(&mut self, hands: &mut Hands<'_>, at: usize, message: &Message<'_>) {
        self.wire.answer(hands, at, 200, ("", "", b""));
        let state = value(message, HeaderName::SubscriptionState);
        let over = state.starts_with("terminated");
        let asks = |client: &crate::wire::Client| client.purpose == Purpose::Refer;
        if !self.wire.clients.iter().any(asks) {
            return self.fault("NOTIFY to one who hasn't referred");
        }
        let status = text(message.body());
        if !status.starts_with("SIP/2.0 ") {
            self.fault(format!("NOTIFY says {status}"));
        }
        self.seen
            .push(if over { "told the outcome" } else { "told" });
    }
}
