//! Calls that went wrong once, or easily could: each alone, in clear weather, with what has to become of it.

use std::time::Duration;

use trunkline_model::record::Fact;

use crate::caller::Outcome;
use crate::node::NODE;
use crate::plan::{
    Act, Agent, AttemptPlan, CallerPlan, Finish, Flaw, Identity, OnCancel, Plan, Reaction,
    Reliable, Ring,
};
use crate::verdict;
use crate::world::World;

/// One call and its end.
struct Case {
    name: &'static str,
    agent: Agent,
    /// Difference to a plain call.
    differs: fn(&mut CallerPlan, &mut Vec<AttemptPlan>),
    outcome: Outcome,
    /// Status, SIP code, reason, who ended it; nothing if there is no record.
    record: &'static str,
    /// Messages that the node has to send: kind, receiver, number.
    sends: &'static [(&'static str, &'static str, usize)],
}

const CALLER: &str = "198.51.101.10:5060";
pub(crate) const RUNTIME: &str = "192.0.2.1:5060";
pub(crate) const FALLBACK: &str = "192.0.2.2:5060";

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn refuses(status: u16) -> Finish {
    Finish::Refuse {
        after: Duration::from_millis(500),
        status,
    }
}

const fn answers_in(fork: usize) -> Finish {
    Finish::Answer {
        after: Duration::from_secs(1),
        fork,
    }
}

pub(crate) const fn rings(after: u64, reliable: bool, sdp: bool, fork: usize) -> Ring {
    Ring {
        after: Duration::from_millis(after),
        status: 180,
        fork,
        reliable,
        sdp,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = endings();
    cases.extend(attempts());
    cases.extend(early());
    cases.extend(changes());
    cases.extend(silences());
    cases
}

fn endings() -> Vec<Case> {
    vec![
        Case {
            name: "the caller hangs up",
            agent: Agent::One,
            differs: |_, _| {},
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[
                (CALLER, "SIP/2.0 100", 1),
                (CALLER, "SIP/2.0 200", 2),
                (RUNTIME, "INVITE", 1),
                (RUNTIME, "ACK", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "the echo agent is hung up on",
            agent: Agent::Echo,
            differs: |_, _| {},
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "SIP/2.0 200", 2)],
        },
        Case {
            name: "a stranger",
            agent: Agent::One,
            differs: |caller, _| caller.identity = Identity::WrongPassword,
            outcome: Outcome::Refused(401),
            record: "",
            sends: &[("198.51.100.10:5060", "SIP/2.0 401", 2)],
        },
        Case {
            name: "the caller gives up while it rings",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![rings(100, false, false, 0)];
                attempts[0].finish = Finish::Never;
                caller.cancel_after = Some(seconds(3));
            },
            outcome: Outcome::Refused(487),
            record: "canceled 487 caller_canceled caller",
            sends: &[(RUNTIME, "CANCEL", 1), (RUNTIME, "ACK", 1)],
        },
        Case {
            name: "the runtime answers an offer with no SDP",
            agent: Agent::One,
            differs: |_, attempts| attempts[0].flaw = Some(Flaw::NoSdp),
            outcome: Outcome::Refused(488),
            record: "failed 488 no_common_media platform",
            sends: &[
                (CALLER, "SIP/2.0 200", 0),
                (RUNTIME, "ACK", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "the route of the runtime's answer can't be read",
            agent: Agent::One,
            differs: |_, attempts| attempts[0].flaw = Some(Flaw::UnreadableRoute),
            outcome: Outcome::Refused(480),
            record: "failed 480 runtime_unreachable platform",
            sends: &[(RUNTIME, "ACK", 1), (RUNTIME, "BYE", 1)],
        },
        Case {
            name: "BYE in an early dialog",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![rings(100, false, false, 0)];
                attempts[0].finish = Finish::Never;
                caller.bye_early = Some(seconds(3));
            },
            outcome: Outcome::Refused(487),
            record: "canceled 487 caller_canceled caller",
            sends: &[(RUNTIME, "CANCEL", 1)],
        },
        Case {
            name: "the caller never acknowledges: BYE comes when its ACK is overdue",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.never_acks = true;
                caller.talk.acts.clear();
                attempts[0].talk.acts = vec![(seconds(3), Act::HangUp)];
            },
            outcome: Outcome::Up,
            record: "completed 200 - agent",
            sends: &[(CALLER, "BYE", 1), (RUNTIME, "BYE", 0)],
        },
        Case {
            name: "the answer to a late offer is forgotten",
            agent: Agent::One,
            differs: |caller, _| {
                caller.offers_late = true;
                caller.forgets_answer = true;
            },
            outcome: Outcome::Up,
            record: "completed 200 no_common_media platform",
            sends: &[(RUNTIME, "ACK", 1), (RUNTIME, "BYE", 1), (CALLER, "BYE", 1)],
        },
    ]
}

fn attempts() -> Vec<Case> {
    vec![
        Case {
            name: "the next target after 503",
            agent: Agent::Two,
            differs: |_, attempts| {
                attempts.push(attempts[0].clone());
                attempts[0].finish = refuses(503);
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 1), (FALLBACK, "INVITE", 1)],
        },
        Case {
            name: "no next target after 486",
            agent: Agent::Two,
            differs: |_, attempts| attempts[0].finish = refuses(486),
            outcome: Outcome::Refused(486),
            record: "busy 486 declined agent",
            sends: &[(RUNTIME, "INVITE", 1), (FALLBACK, "INVITE", 0)],
        },
        Case {
            name: "a redirection comes before the next target",
            agent: Agent::Two,
            differs: |_, attempts| {
                attempts.push(attempts[0].clone());
                attempts[0].finish = refuses(302);
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 2), (FALLBACK, "INVITE", 0)],
        },
        Case {
            name: "a redirection to elsewhere",
            agent: Agent::One,
            differs: |_, attempts| attempts[0].finish = refuses(305),
            outcome: Outcome::Refused(480),
            record: "failed 480 runtime_refused platform",
            sends: &[(RUNTIME, "INVITE", 1)],
        },
        Case {
            name: "nobody is at any address",
            agent: Agent::AllDead,
            differs: |_, _| {},
            outcome: Outcome::Refused(480),
            record: "failed 480 runtime_unreachable platform",
            sends: &[(RUNTIME, "INVITE", 0)],
        },
        Case {
            name: "what one attempt agreed on early says nothing about the next",
            agent: Agent::Two,
            differs: |caller, attempts| {
                caller.offers_late = true;
                attempts.push(attempts[0].clone());
                attempts[0].rings = vec![rings(100, true, true, 0)];
                attempts[0].finish = refuses(503);
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "PRACK", 1), (FALLBACK, "ACK", 1)],
        },
        Case {
            name: "two forks answer",
            agent: Agent::One,
            differs: |_, attempts| attempts[0].second_fork = Some(seconds(1)),
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[
                (RUNTIME, "ACK", 2),
                (RUNTIME, "BYE", 2),
                (CALLER, "SIP/2.0 200", 2),
            ],
        },
    ]
}

fn early() -> Vec<Case> {
    vec![
        Case {
            name: "each fork counts its reliable answers by itself",
            agent: Agent::One,
            differs: |_, attempts| {
                attempts[0].rings = vec![
                    rings(100, true, false, 0),
                    rings(300, true, false, 1),
                    rings(500, true, false, 0),
                ];
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "PRACK", 3)],
        },
        Case {
            name: "a 200 that crosses a CANCEL ends by a BYE with a number of its own",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![rings(100, true, false, 0)];
                attempts[0].finish = Finish::Never;
                attempts[0].on_cancel = OnCancel::AnswersAnyway;
                caller.cancel_after = Some(seconds(3));
            },
            outcome: Outcome::Refused(487),
            record: "canceled 487 caller_canceled caller",
            sends: &[(RUNTIME, "PRACK", 1), (RUNTIME, "BYE", 1)],
        },
        Case {
            name: "a 200 waits for the PRACK that never comes, and is acknowledged all the same",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.reliable = Reliable::Required;
                caller.never_pracks = true;
                attempts[0].rings = vec![rings(100, false, true, 0)];
            },
            outcome: Outcome::Refused(504),
            record: "failed 504 no_ack platform",
            sends: &[(RUNTIME, "ACK", 1), (RUNTIME, "BYE", 1)],
        },
        Case {
            name: "a 200 waits for no PRACK of an 18x without SDP",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.reliable = Reliable::Required;
                caller.never_pracks = true;
                attempts[0].rings = vec![rings(100, false, false, 0)];
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "SIP/2.0 200", 2), (RUNTIME, "ACK", 1)],
        },
        Case {
            name: "a 200 waits for no PRACK of another fork",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.reliable = Reliable::Required;
                caller.never_pracks = true;
                attempts[0].rings = vec![rings(100, false, true, 0)];
                attempts[0].finish = answers_in(1);
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "SIP/2.0 200", 2), (RUNTIME, "ACK", 1)],
        },
        Case {
            name: "what a failed attempt said and nobody acknowledged ends nothing",
            agent: Agent::Two,
            differs: |caller, attempts| {
                caller.reliable = Reliable::Required;
                caller.never_pracks = true;
                attempts.push(attempts[0].clone());
                attempts[0].rings = vec![rings(100, false, false, 0)];
                attempts[0].finish = refuses(503);
                attempts[1].rings.clear();
                attempts[1].finish = Finish::Answer {
                    after: seconds(40),
                    fork: 0,
                };
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(FALLBACK, "ACK", 1)],
        },
        Case {
            name: "an 18x waits for no PRACK of another fork",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.reliable = Reliable::Required;
                caller.never_pracks = true;
                attempts[0].rings = vec![rings(100, false, false, 0), rings(200, false, false, 1)];
                attempts[0].finish = Finish::Never;
                caller.cancel_after = Some(Duration::from_millis(400));
            },
            outcome: Outcome::Refused(487),
            record: "canceled 487 caller_canceled caller",
            sends: &[(CALLER, "SIP/2.0 180", 2)],
        },
        Case {
            name: "the runtime hangs up while its 200 waits",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.reliable = Reliable::Required;
                caller.never_pracks = true;
                attempts[0].rings = vec![rings(100, false, true, 0)];
                attempts[0].talk.acts = vec![(seconds(2), Act::HangUp)];
            },
            outcome: Outcome::Refused(480),
            record: "failed 480 runtime_refused platform",
            sends: &[(RUNTIME, "ACK", 1), (RUNTIME, "BYE", 0)],
        },
        Case {
            name: "BYE in one of two early dialogs ends that one",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![
                    rings(100, false, false, 0),
                    rings(200, false, false, 1),
                    rings(800, false, false, 0),
                ];
                attempts[0].finish = answers_in(1);
                caller.bye_early = Some(Duration::from_millis(500));
                caller.byes_first_alone = true;
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[
                (CALLER, "SIP/2.0 180", 2),
                (CALLER, "SIP/2.0 200", 3),
                (RUNTIME, "CANCEL", 0),
                (RUNTIME, "BYE", 2),
            ],
        },
        Case {
            name: "BYE in each of two early dialogs ends the call",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![rings(100, false, false, 0), rings(200, true, false, 1)];
                attempts[0].finish = Finish::Never;
                caller.bye_early = Some(Duration::from_millis(500));
            },
            outcome: Outcome::Refused(487),
            record: "canceled 487 caller_canceled caller",
            sends: &[
                (CALLER, "SIP/2.0 200", 3),
                (RUNTIME, "BYE", 1),
                (RUNTIME, "CANCEL", 1),
            ],
        },
        Case {
            name: "a 200 that crosses the BYE in its early dialog",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![rings(100, false, false, 0), rings(200, false, false, 1)];
                attempts[0].finish = answers_in(0);
                caller.bye_early = Some(Duration::from_millis(500));
                caller.byes_first_alone = true;
            },
            outcome: Outcome::Refused(487),
            record: "canceled 487 caller_canceled caller",
            sends: &[
                (CALLER, "SIP/2.0 200", 1),
                (RUNTIME, "ACK", 1),
                (RUNTIME, "BYE", 2),
            ],
        },
        Case {
            name: "an early offer while the first has no answer",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![rings(100, false, false, 0)];
                caller.update_early = Some(Duration::from_millis(500));
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "SIP/2.0 500", 1), (RUNTIME, "UPDATE", 0)],
        },
        Case {
            name: "an early offer once the first has its answer",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].rings = vec![rings(100, true, true, 0)];
                caller.update_early = Some(Duration::from_millis(500));
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "SIP/2.0 500", 0), (RUNTIME, "UPDATE", 1)],
        },
    ]
}

fn changes() -> Vec<Case> {
    vec![
        Case {
            name: "a re-INVITE that nobody answers is cancelled",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].talk.reaction = Reaction::Never;
                caller.talk.acts = vec![(seconds(1), Act::Hold), (seconds(50), Act::HangUp)];
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[
                (RUNTIME, "CANCEL", 1),
                (CALLER, "SIP/2.0 487", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "BYE behind a re-INVITE that is under way",
            agent: Agent::One,
            differs: |caller, attempts| {
                attempts[0].talk.reaction = Reaction::Never;
                caller.talk.acts = vec![(seconds(1), Act::Hold), (seconds(3), Act::HangUp)];
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[
                (RUNTIME, "CANCEL", 1),
                (CALLER, "SIP/2.0 487", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "both sides ask at once",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts.insert(0, (seconds(2), Act::Hold));
                attempts[0].talk.acts = vec![(seconds(2), Act::Hold)];
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "SIP/2.0 491", 1), (RUNTIME, "SIP/2.0 491", 1)],
        },
        Case {
            name: "an offer comes back in the ACK",
            agent: Agent::One,
            differs: |caller, _| caller.talk.acts.insert(0, (seconds(2), Act::OfferLate)),
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 2), (RUNTIME, "ACK", 2)],
        },
        Case {
            name: "nobody refreshes",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts.clear();
                caller.talk.timers = true;
                caller.talk.keeps_promises = false;
                caller.interval = Some((90, Some("uac")));
                attempts[0].agrees_to_timer = true;
                attempts[0].talk.timers = true;
            },
            outcome: Outcome::Up,
            record: "completed 200 session_expired platform",
            sends: &[(CALLER, "BYE", 1), (RUNTIME, "BYE", 1)],
        },
        Case {
            name: "the node refreshes, with a re-INVITE where UPDATE isn't known",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(200), Act::HangUp)];
                attempts[0].agrees_to_timer = true;
                attempts[0].talk.timers = true;
                attempts[0].talk.updates = false;
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 4), (RUNTIME, "UPDATE", 0)],
        },
        Case {
            name: "media that the runtime moves with its answer to a refresh are offered to the caller",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(200), Act::HangUp)];
                attempts[0].agrees_to_timer = true;
                attempts[0].talk.timers = true;
                attempts[0].talk.updates = false;
                attempts[0].talk.moves = true;
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 4), (CALLER, "INVITE", 3)],
        },
        Case {
            name: "media that the caller moves with its answer to a probe are offered to the runtime",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(400), Act::HangUp)];
                caller.talk.updates = false;
                caller.talk.moves = true;
                attempts[0].talk.updates = true;
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "INVITE", 1), (RUNTIME, "INVITE", 2)],
        },
        Case {
            name: "a caller that refuses the runtime's moved media keeps its call",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(100), Act::HangUp)];
                caller.talk.reaction = Reaction::Refuse(488);
                attempts[0].agrees_to_timer = true;
                attempts[0].talk.timers = true;
                attempts[0].talk.updates = false;
                attempts[0].talk.moves = true;
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 2), (CALLER, "INVITE", 1)],
        },
        Case {
            name: "a refresh that the runtime refuses by re-INVITE is taken by UPDATE, which goes on",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(200), Act::HangUp)];
                attempts[0].agrees_to_timer = true;
                attempts[0].talk.timers = true;
                attempts[0].talk.updates = false;
                attempts[0].talk.reaction = Reaction::Refuse(488);
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 2), (RUNTIME, "UPDATE", 3)],
        },
        Case {
            name: "a refresh that the runtime refuses by UPDATE is taken by re-INVITE",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(100), Act::HangUp)];
                attempts[0].agrees_to_timer = true;
                attempts[0].talk.timers = true;
                attempts[0].talk.refuses_updates = Some(488);
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(RUNTIME, "INVITE", 2), (RUNTIME, "UPDATE", 1)],
        },
        Case {
            name: "a session that the runtime refreshes by nothing comes to its end",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(300), Act::HangUp)];
                attempts[0].agrees_to_timer = true;
                attempts[0].talk.timers = true;
                attempts[0].talk.reaction = Reaction::Refuse(488);
                attempts[0].talk.refuses_updates = Some(488);
            },
            outcome: Outcome::Up,
            record: "completed 200 session_expired platform",
            sends: &[(CALLER, "BYE", 1), (RUNTIME, "BYE", 1)],
        },
    ]
}

/// Peers that say nothing in a call for minutes.
fn silences() -> Vec<Case> {
    vec![
        Case {
            name: "a caller that has gone is asked twice",
            agent: Agent::One,
            differs: |caller, _| {
                caller.talk.acts.clear();
                caller.talk.updates = true;
                caller.vanish_after = Some(seconds(20));
            },
            outcome: Outcome::Up,
            record: "completed 200 dialog_gone platform",
            sends: &[(CALLER, "UPDATE", 2), (RUNTIME, "BYE", 1)],
        },
        Case {
            name: "peers that are only quiet are asked once in five minutes",
            agent: Agent::One,
            differs: |caller, attempts| {
                caller.talk.acts = vec![(seconds(700), Act::HangUp)];
                caller.talk.updates = false;
                attempts[0].talk.updates = true;
            },
            outcome: Outcome::Up,
            record: "completed 200 - caller",
            sends: &[(CALLER, "INVITE", 2), (RUNTIME, "UPDATE", 2)],
        },
    ]
}

/// The record of the only call.
pub(crate) fn record(world: &World) -> String {
    let ended = world.node.facts.iter().find_map(|fact| match fact {
        Fact::Ended(ended) => Some(ended),
        Fact::Started(_)
        | Fact::Contact { .. }
        | Fact::Ringing { .. }
        | Fact::Joined { .. }
        | Fact::Held { .. }
        | Fact::Media(_)
        | Fact::Answered { .. }
        | Fact::Attempt(_)
        | Fact::Transfer(_) => None,
    });

    ended.map_or(String::new(), |ended| {
        format!(
            "{} {} {} {}",
            ended.status.as_str(),
            ended.sip_code,
            ended.reason.as_deref().unwrap_or("-"),
            ended.hangup_by.as_str()
        )
    })
}

/// Counts the different messages of that kind that the node sent there, by first line, CSeq and tags.
pub(crate) fn sent(world: &World, to: &str, what: &str) -> usize {
    let path = format!("{NODE} > {to}");
    let mut lines: Vec<&str> = world
        .trace
        .iter()
        .flatten()
        .filter_map(|line| Some(line.split_once(&path)?.1.trim_start()))
        .filter(|line| line.starts_with(what))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines.len()
}

#[test]
fn calls_that_went_wrong_once_go_right() {
    let mut wrong = Vec::new();
    for case in cases() {
        let mut plan = Plan::plain(case.agent);
        let call = &mut plan.calls[0];
        (case.differs)(&mut call.caller, &mut call.attempts);
        let mut world = World::new(plan, true);
        world.run();
        let mut faults = verdict::faults(&world);
        let outcome = world.callers[0].outcome;
        if (outcome, &*record(&world)) != (case.outcome, case.record) {
            faults.push(format!("{outcome:?}, {}", record(&world)));
        }
        for (to, what, times) in case.sends {
            let sent = sent(&world, to, what);
            if sent != *times {
                faults.push(format!("{what} went {sent} times to {to}, not {times}"));
            }
        }
        if !faults.is_empty() {
            let trace = world.trace.unwrap_or_default().join("\n");
            wrong.push(format!("{}: {}\n{trace}", case.name, faults.join("; ")));
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The runtime's connection ends while the INVITE is on its way: it comes once more by another one, as the next request of the same call.
#[test]
fn an_invite_outlives_its_connection_once() {
    let mut plan = Plan::plain(Agent::Stream);
    plan.cut = Some(Duration::from_millis(500));
    plan.calls[0].attempts[0].tries = false;
    let mut world = World::new(plan, true);
    world.run();
    let faults = verdict::faults(&world);
    let (invites, record) = (sent(&world, RUNTIME, "INVITE"), record(&world));
    let trace = world.trace.unwrap_or_default().join("\n");
    assert!(
        faults.is_empty() && invites == 2 && record == "completed 200 - caller",
        "{record}: {faults:?}\n{trace}"
    );
}

/// Both sides come over TCP, and all connections break while nothing is under way: who is hung up on hears of it all the same.
#[test]
fn a_call_outlives_its_connections() {
    for (side, hears) in [("caller", RUNTIME), ("runtime", CALLER)] {
        let mut plan = Plan::plain(Agent::Stream);
        plan.cut = Some(seconds(3));
        let call = &mut plan.calls[0];
        call.caller.stream = true;
        if side == "runtime" {
            std::mem::swap(&mut call.caller.talk.acts, &mut call.attempts[0].talk.acts);
        }
        let mut world = World::new(plan, true);
        world.run();
        let faults = verdict::faults(&world);
        let told = sent(&world, hears, "BYE");
        let trace = world.trace.unwrap_or_default().join("\n");
        assert!(
            faults.is_empty() && told == 1,
            "{side} hangs up: {faults:?}\n{trace}"
        );
    }
}

/// The phone system offers to send only, and that is taken; by its end the call isn't held any more.
#[test]
fn a_hold_by_the_phone_system_is_told() {
    let mut plan = Plan::plain(Agent::One);
    let acts = &mut plan.calls[0].caller.talk.acts;
    acts.insert(0, (seconds(2), Act::Hold));

    let mut world = World::new(plan, true);
    world.run();
    assert_eq!(verdict::faults(&world), Vec::<String>::new());

    let held = |fact: &Fact| match fact {
        Fact::Held { held, .. } => Some(*held),
        Fact::Started(_)
        | Fact::Contact { .. }
        | Fact::Ringing { .. }
        | Fact::Joined { .. }
        | Fact::Transfer(_)
        | Fact::Answered { .. }
        | Fact::Media(_)
        | Fact::Attempt(_)
        | Fact::Ended(_) => None,
    };

    let told: Vec<bool> = world.node.facts.iter().filter_map(held).collect();
    assert_eq!(told, [true, false]);
}
