//! Plan of one run, drawn from its seed before it begins: the network's faults, the calls, the behaviour of each peer.

use std::time::Duration;

use crate::dice::Dice;
use crate::handover::{HandoverPlan, ReferPlan};
use crate::network::Weather;
use crate::orders::OrderPlan;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) weather: Weather,
    pub(crate) calls: Vec<CallPlan>,
    /// The node loses all its state.
    pub(crate) restart: Option<Duration>,
    /// Every connection breaks.
    pub(crate) cut: Option<Duration>,
    /// The node takes no new calls from then on.
    pub(crate) drain: Option<Duration>,
    /// The operator ends every call.
    pub(crate) hang_up_all: Option<Duration>,
    /// The echo agent hears nothing from any of its callers.
    pub(crate) silence: Option<Duration>,
    /// `max_concurrent_calls` of every agent.
    pub(crate) agent_limit: Option<u32>,
    /// Time that the contact look-up takes.
    pub(crate) contact: Duration,
    /// Time that the resolver takes.
    pub(crate) resolver: Duration,
    /// No RTP port is free.
    pub(crate) no_media: bool,
}

/// Which agent is called, by where its runtime is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Agent {
    /// The built-in one.
    Echo,
    /// One runtime.
    One,
    /// A runtime and another to fall back on.
    Two,
    /// Nobody is at the first address.
    DeadFirst,
    /// Nobody is at any address.
    AllDead,
    /// A name with two addresses.
    Named,
    /// A name without an address.
    Nowhere,
    /// A runtime over TCP.
    Stream,
    /// A bot on a WebSocket. Its calls are those of `bots`.
    Bot,
    /// A bot, then a runtime, then another bot.
    BotThenSip,
    /// A flow, then a bot. Its calls are those of `builtin`.
    FlowThenBot,
    /// A bot, then a flow.
    BotThenFlow,
    /// A runtime, then a bot.
    SipThenBot,
    /// Nobody is at the address of a runtime, a flow follows.
    DeadThenFlow,
}

impl Agent {
    pub(crate) const ALL: [Self; 14] = [
        Self::Echo,
        Self::One,
        Self::Two,
        Self::DeadFirst,
        Self::AllDead,
        Self::Named,
        Self::Nowhere,
        Self::Stream,
        Self::Bot,
        Self::BotThenSip,
        Self::FlowThenBot,
        Self::BotThenFlow,
        Self::SipThenBot,
        Self::DeadThenFlow,
    ];
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct CallPlan {
    pub(crate) start: Duration,
    pub(crate) agent: Agent,
    pub(crate) caller: CallerPlan,
    /// Behaviour of each runtime that is tried; the last one's again for all further ones.
    pub(crate) attempts: Vec<AttemptPlan>,
    /// The call is one that the node begins, instead of the caller.
    pub(crate) order: Option<OrderPlan>,
    pub(crate) handover: HandoverPlan,
}

/// Identity that the caller claims.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Identity {
    /// A trunk's user with its password.
    Good,
    /// A trunk's user with another's password.
    WrongPassword,
    /// Nobody's user.
    Unknown,
    /// No credentials at all.
    Stranger,
    /// No credentials, from an address that is an org's.
    Trusted,
}

/// A caller's support of RFC 3262.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reliable {
    Unknown,
    Supported,
    Required,
}

/// Behaviour of a caller.
#[derive(Clone, Debug)]
pub(crate) struct CallerPlan {
    pub(crate) identity: Identity,
    /// It comes over TCP.
    pub(crate) stream: bool,
    /// The wait before it answers a challenge; the nonce may be stale by then.
    pub(crate) login_after: Duration,
    pub(crate) offers_late: bool,
    /// Its INVITE has a second part beside the offer.
    pub(crate) has_parts: bool,
    pub(crate) reliable: Reliable,
    /// `Session-Expires` in its INVITE: seconds and refresher.
    pub(crate) interval: Option<(u64, Option<&'static str>)>,
    pub(crate) cancel_after: Option<Duration>,
    /// BYE while it still rings.
    pub(crate) bye_early: Option<Duration>,
    /// That BYE comes in the first early dialog alone; chosen, never drawn.
    pub(crate) byes_first_alone: bool,
    /// UPDATE with an offer while it still rings.
    pub(crate) update_early: Option<Duration>,
    /// It disappears this long after it dialled.
    pub(crate) vanish_after: Option<Duration>,
    pub(crate) never_acks: bool,
    pub(crate) never_pracks: bool,
    /// Its ACK to a late offer lacks the answer.
    pub(crate) forgets_answer: bool,
    pub(crate) talk: Talk,
}

/// Behaviour of a runtime on INVITE.
#[derive(Clone, Debug)]
pub(crate) struct AttemptPlan {
    /// It isn't there, and nothing says so.
    pub(crate) deaf: bool,
    pub(crate) tries: bool,
    pub(crate) rings: Vec<Ring>,
    pub(crate) finish: Finish,
    pub(crate) on_cancel: OnCancel,
    /// Another fork answers this long after the first.
    pub(crate) second_fork: Option<Duration>,
    pub(crate) agrees_to_timer: bool,
    /// Flaw of its 200; chosen, never drawn.
    pub(crate) flaw: Option<Flaw>,
    /// UPDATE with an offer in its first early dialog; chosen, never drawn.
    pub(crate) update_early: Option<Duration>,
    pub(crate) talk: Talk,
}

/// A fault in a 200.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    NoSdp,
    UnreadableRoute,
}

/// A provisional answer.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ring {
    pub(crate) after: Duration,
    pub(crate) status: u16,
    pub(crate) fork: usize,
    pub(crate) reliable: bool,
    pub(crate) sdp: bool,
}

/// End of a runtime's answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    Answer { after: Duration, fork: usize },
    Refuse { after: Duration, status: u16 },
    Never,
}

/// Behaviour of a runtime on CANCEL.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OnCancel {
    /// 200 and 487.
    Obeys,
    /// 200 to it, and then 200 to the INVITE.
    AnswersAnyway,
    /// 200 to it and nothing more.
    Forgets,
}

/// Behaviour of a peer inside the call.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    /// Its own actions, timed from the answer.
    pub(crate) acts: Vec<(Duration, Act)>,
    pub(crate) reaction: Reaction,
    /// It knows UPDATE.
    pub(crate) updates: bool,
    /// The answer to each UPDATE, where it isn't taken.
    pub(crate) refuses_updates: Option<u16>,
    /// Each answer of its has another port than the last.
    pub(crate) moves: bool,
    /// It knows session timers.
    pub(crate) timers: bool,
    /// As the refresher it does refresh.
    pub(crate) keeps_promises: bool,
    /// Behaviour on REFER.
    pub(crate) refers: ReferPlan,
}

/// Action of a peer inside the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// re-INVITE with an offer.
    Hold,
    /// re-INVITE without one.
    OfferLate,
    /// re-INVITE with an offer, and CANCEL behind it.
    HoldAndCancel,
    /// UPDATE with an offer.
    UpdateOffer,
    /// UPDATE without a body.
    UpdateBare,
    Info,
    Options,
    /// INFO with a CSeq that was used long ago.
    OldCSeq,
    /// BYE with a To-tag that is nobody's.
    ForeignTag,
    /// INFO that requires what nobody has.
    Extension,
    HangUp,
    /// REFER to the destination of that number, or to nobody.
    Refer(usize),
    /// Silence from one moment to the next.
    Vanish,
}

/// Behaviour of a peer on an offer inside the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reaction {
    Accept,
    Refuse(u16),
    Later(Duration, u16),
    /// 100, and no more.
    Never,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let weather = Weather::draw(&mut dice);
        let count = 1 + dice.below(4);

        Self {
            seed,
            weather,
            calls: (0..count).map(|_| CallPlan::draw(&mut dice)).collect(),
            restart: dice.maybe(8, 0, 40_000),
            drain: dice.maybe(4, 0, 20_000),
            cut: dice.maybe(10, 0, 20_000),
            hang_up_all: dice.maybe(4, 0, 40_000),
            silence: dice.maybe(5, 0, 40_000),
            agent_limit: dice.percent(10).then_some(1),
            contact: dice.millis(0, 140),
            resolver: dice.millis(0, 2_000),
            no_media: dice.percent(3),
        }
    }
}

impl Plan {
    /// One call in clear weather that is answered after a second and ended by the caller five seconds later.
    pub(crate) fn plain(agent: Agent) -> Self {
        Self {
            seed: 1,
            weather: Weather::CLEAR,
            calls: vec![CallPlan::plain(agent)],
            restart: None,
            drain: None,
            cut: None,
            hang_up_all: None,
            silence: None,
            agent_limit: None,
            contact: Duration::ZERO,
            resolver: Duration::ZERO,
            no_media: false,
        }
    }
}

impl CallPlan {
    fn plain(agent: Agent) -> Self {
        let quiet = Talk {
            acts: Vec::new(),
            reaction: Reaction::Accept,
            updates: true,
            timers: false,
            keeps_promises: true,
            refuses_updates: None,
            moves: false,
            refers: ReferPlan::plain(),
        };

        let hangs_up = Talk {
            acts: vec![(Duration::from_secs(5), Act::HangUp)],
            ..quiet.clone()
        };

        Self {
            start: Duration::ZERO,
            agent,
            caller: CallerPlan {
                identity: Identity::Trusted,
                stream: false,
                login_after: Duration::ZERO,
                offers_late: false,
                has_parts: false,
                reliable: Reliable::Supported,
                interval: None,
                cancel_after: None,
                bye_early: None,
                byes_first_alone: false,
                update_early: None,
                vanish_after: None,
                never_acks: false,
                never_pracks: false,
                forgets_answer: false,
                talk: hangs_up,
            },
            handover: HandoverPlan::none(AttemptPlan::plain(quiet.clone())),
            order: None,
            attempts: vec![AttemptPlan::plain(quiet)],
        }
    }

    fn draw(dice: &mut Dice) -> Self {
        let agents = [
            (30, Agent::One),
            (10, Agent::Stream),
            (20, Agent::Echo),
            (15, Agent::Two),
            (10, Agent::DeadFirst),
            (10, Agent::Named),
            (2, Agent::AllDead),
            (3, Agent::Nowhere),
        ];

        Self {
            start: dice.millis(0, 5_000),
            agent: weighed(dice, &agents),
            caller: CallerPlan::draw(dice),
            attempts: (0..3).map(|_| AttemptPlan::draw(dice)).collect(),
            order: OrderPlan::draw(dice),
            handover: HandoverPlan::draw(dice),
        }
    }
}

impl CallerPlan {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let identities = [
            (70, Identity::Good),
            (20, Identity::Trusted),
            (4, Identity::WrongPassword),
            (3, Identity::Unknown),
            (3, Identity::Stranger),
        ];

        let reliable = [
            (50, Reliable::Unknown),
            (40, Reliable::Supported),
            (10, Reliable::Required),
        ];

        let talk = Talk::draw(dice);
        let timers = talk.timers;
        Self {
            identity: weighed(dice, &identities),
            stream: dice.percent(20),
            login_after: dice.maybe(5, 29_000, 40_000).unwrap_or_default(),
            offers_late: dice.percent(25),
            has_parts: false,
            reliable: weighed(dice, &reliable),
            interval: timers.then(|| {
                let seconds = dice.pick(&[30, 90, 90, 120, 1800]);
                (seconds, dice.pick(&[None, Some("uac"), Some("uas")]))
            }),
            cancel_after: dice.maybe(15, 0, 12_000),
            bye_early: dice.maybe(3, 100, 6_000),
            byes_first_alone: false,
            update_early: dice.maybe(8, 100, 6_000),
            vanish_after: dice.maybe(4, 0, 20_000),
            never_acks: dice.percent(4),
            never_pracks: dice.percent(3),
            forgets_answer: dice.percent(4),
            talk,
        }
    }
}

impl AttemptPlan {
    /// It answers after a second.
    pub(crate) fn plain(talk: Talk) -> Self {
        Self {
            deaf: false,
            tries: true,
            rings: Vec::new(),
            finish: Finish::Answer {
                after: Duration::from_secs(1),
                fork: 0,
            },
            on_cancel: OnCancel::Obeys,
            second_fork: None,
            agrees_to_timer: false,
            flaw: None,
            update_early: None,
            talk,
        }
    }

    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let rings = dice.below(4) as usize;
        let cancels = [
            (80, OnCancel::Obeys),
            (12, OnCancel::AnswersAnyway),
            (8, OnCancel::Forgets),
        ];

        Self {
            deaf: dice.percent(5),
            tries: dice.percent(60),
            rings: (0..rings).map(|_| Ring::draw(dice)).collect(),
            finish: Finish::draw(dice),
            on_cancel: weighed(dice, &cancels),
            second_fork: dice.maybe(6, 0, 3_000),
            agrees_to_timer: dice.percent(70),
            flaw: None,
            update_early: None,
            talk: Talk::draw(dice),
        }
    }
}

impl Ring {
    fn draw(dice: &mut Dice) -> Self {
        Self {
            after: dice.millis(0, 4_000),
            status: dice.pick(&[180, 180, 183, 181]),
            fork: if dice.percent(15) { 1 } else { 0 },
            reliable: dice.percent(50),
            sdp: dice.percent(40),
        }
    }
}

impl Finish {
    fn draw(dice: &mut Dice) -> Self {
        let refusals = [
            486, 503, 408, 302, 305, 422, 404, 500, 603, 401, 488, 480, 420, 600,
        ];
        match dice.below(100) {
            0..75 => Self::Answer {
                after: dice.millis(0, 9_000),
                fork: if dice.percent(10) { 1 } else { 0 },
            },
            75..93 => Self::Refuse {
                after: dice.millis(0, 5_000),
                status: dice.pick(&refusals),
            },
            _ => Self::Never,
        }
    }
}

impl Talk {
    fn draw(dice: &mut Dice) -> Self {
        let long = if dice.percent(20) { 400_000 } else { 15_000 };
        let count = dice.below(4);
        let mut acts: Vec<_> = (0..count)
            .map(|_| {
                let act = Act::draw(dice);
                (dice.millis(0, long), act)
            })
            .collect();
        let end = if dice.percent(8) {
            Act::Vanish
        } else {
            Act::HangUp
        };

        acts.extend(dice.maybe(70, 0, long).map(|after| (after, end)));
        Self {
            acts,
            reaction: Reaction::draw(dice),
            updates: dice.percent(70),
            timers: dice.percent(50),
            keeps_promises: dice.percent(85),
            refuses_updates: None,
            moves: false,
            refers: ReferPlan::draw(dice),
        }
    }
}

impl Act {
    fn draw(dice: &mut Dice) -> Self {
        let acts = [
            (25, Self::Hold),
            (10, Self::OfferLate),
            (10, Self::HoldAndCancel),
            (15, Self::UpdateOffer),
            (8, Self::UpdateBare),
            (12, Self::Info),
            (5, Self::Options),
            (5, Self::OldCSeq),
            (5, Self::ForeignTag),
            (5, Self::Extension),
            (6, Self::Refer(0)),
            (6, Self::Refer(1)),
            (3, Self::Refer(2)),
        ];
        weighed(dice, &acts)
    }
}

impl Reaction {
    fn draw(dice: &mut Dice) -> Self {
        match dice.below(100) {
            0..60 => Self::Accept,
            60..75 => Self::Refuse(dice.pick(&[488, 486, 491, 500, 403, 481, 408, 422, 401])),
            75..95 => Self::Later(dice.millis(0, 8_000), dice.pick(&[200, 200, 200, 488])),
            _ => Self::Never,
        }
    }
}

fn weighed<T: Copy>(dice: &mut Dice, choices: &[(u64, T)]) -> T {
    let total = choices.iter().map(|(weight, _)| weight).sum();
    let mut at = dice.below(total);
    for (weight, choice) in choices {
        if at < *weight {
            return *choice;
        }
        at -= weight;
    }
    choices[0].1
}
