//! Cases of callers who are handed over, and of calls that the node begins, each in clear weather.

use std::time::Duration;

use trunkline_model::record::Fact;

use crate::cases::{FALLBACK, RUNTIME, record, refuses, rings, seconds, sent};
use crate::handover::{News, ReferPlan};
use crate::orders::OrderPlan;
use crate::plan::{Act, Agent, CallPlan, Finish, OnCancel, Plan, Reaction};
use crate::verdict;
use crate::world::World;

const CALLER: &str = "198.51.101.10:5060";
const SUCCESSOR: &str = "198.51.101.110:5060";
const CARRIER: &str = "192.0.2.40:5060";
const DESK: &str = "192.0.2.50:5060";

/// The places in the list of destinations.
const NUMBER: usize = 0;
const AT_DESK: usize = 1;

struct Case {
    name: &'static str,
    agent: Agent,
    /// To where the caller is handed over, three seconds after the call began.
    asked: Option<usize>,
    differs: fn(&mut CallPlan),
    record: &'static str,
    transfer: &'static str,
    /// Number of different messages of that kind that the node sends there.
    sends: &'static [(&'static str, &'static str, usize)],
}

fn unknown(call: &mut CallPlan) {
    call.caller.talk.refers = ReferPlan::refuses(405);
}

fn cases() -> Vec<Case> {
    [referred(), bridged(), crossed(), taken_over(), ordered()]
        .into_iter()
        .flatten()
        .collect()
}

fn referred() -> Vec<Case> {
    vec![
        Case {
            name: "the PBX takes the caller, and says BYE itself",
            agent: Agent::One,
            asked: Some(NUMBER),
            differs: |_| {},
            record: "transferred 200 - caller",
            transfer: "refer completed -",
            sends: &[
                (CALLER, "REFER", 1),
                (CALLER, "BYE", 0),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "the PBX takes the caller, and leaves the BYE to us",
            agent: Agent::One,
            asked: Some(NUMBER),
            differs: |call| call.caller.talk.acts.clear(),
            record: "transferred 200 - platform",
            transfer: "refer completed -",
            sends: &[
                (CALLER, "REFER", 1),
                (CALLER, "BYE", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "the runtime refers, and hears of it",
            agent: Agent::One,
            asked: None,
            differs: |call| call.attempts[0].talk.acts = vec![(seconds(1), Act::Refer(NUMBER))],
            record: "transferred 200 - platform",
            transfer: "refer completed -",
            sends: &[
                (CALLER, "REFER", 1),
                (RUNTIME, "NOTIFY", 3),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "the runtime refers to somebody else's",
            agent: Agent::One,
            asked: None,
            differs: |call| call.attempts[0].talk.acts = vec![(seconds(1), Act::Refer(7))],
            record: "completed 200 - caller",
            transfer: "",
            sends: &[(CALLER, "REFER", 0), (RUNTIME, "SIP/2.0 403", 1)],
        },
        Case {
            // The last NOTIFY may be on its way for another 32 s.
            name: "the PBX tells of the destination after the time that it has named",
            agent: Agent::One,
            asked: Some(NUMBER),
            differs: |call| {
                call.caller.talk.acts = vec![(seconds(100), Act::HangUp)];
                call.caller.talk.refers.expires = 5;
                call.caller.talk.refers.news[1].after = seconds(50);
            },
            record: "completed 200 transfer_unconfirmed caller",
            transfer: "refer unknown -",
            sends: &[(CALLER, "REFER", 1)],
        },
        Case {
            name: "glare comes before the acceptance",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                call.caller.talk.acts.clear();
                let answers = [491, 202].map(|status| (Duration::ZERO, status));
                call.caller.talk.refers.answers = answers.to_vec();
            },
            record: "transferred 200 - platform",
            transfer: "refer completed -",
            sends: &[(CALLER, "REFER", 2)],
        },
        Case {
            // It has proven no password by its INVITE, so it gets no digest.
            name: "the PBX challenges the REFER, and was admitted by its address",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                call.caller.talk.acts.clear();
                call.caller.talk.refers.answers = vec![(Duration::ZERO, 401)];
            },
            record: "transferred 200 max_duration platform",
            transfer: "bridge completed -",
            sends: &[(CALLER, "REFER", 1), (DESK, "INVITE", 1)],
        },
        Case {
            // What answers OPTIONS agrees on no session interval, and ends none.
            name: "the PBX is asked by OPTIONS whether it knows the call, and its session is refreshed",
            agent: Agent::One,
            asked: Some(NUMBER),
            differs: |call| {
                let talk = &mut call.caller.talk;
                (talk.timers, talk.updates) = (true, false);
                talk.acts = vec![(seconds(200), Act::HangUp)];
                talk.refers.news.truncate(1);
                talk.refers.news[0] = News {
                    after: seconds(1),
                    status: 404,
                    last: true,
                };
                call.caller.interval = Some((90, Some("uas")));
                call.handover.destinations[0].finish = refuses(486);
            },
            record: "completed 200 - caller",
            transfer: "bridge failed 486",
            sends: &[(CALLER, "OPTIONS", 1), (CALLER, "INVITE", 4)],
        },
        Case {
            name: "the PBX never answers the REFER",
            agent: Agent::One,
            asked: Some(NUMBER),
            differs: |call| {
                call.caller.talk.acts = vec![(seconds(60), Act::HangUp)];
                call.caller.talk.refers = ReferPlan::refuses(0);
            },
            record: "completed 200 - caller",
            transfer: "refer failed 408",
            sends: &[(CALLER, "REFER", 1), (RUNTIME, "BYE", 1)],
        },
    ]
}

fn bridged() -> Vec<Case> {
    vec![
        Case {
            name: "the PBX knows no REFER",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: unknown,
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[
                (CALLER, "REFER", 1),
                (CALLER, "INVITE", 1),
                (DESK, "INVITE", 1),
                (DESK, "ACK", 1),
                (DESK, "BYE", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "the PBX has said so beforehand",
            agent: Agent::One,
            asked: Some(NUMBER),
            differs: |call| call.caller.talk.refers.is_known = false,
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[
                (CALLER, "REFER", 0),
                (CARRIER, "INVITE", 1),
                (CARRIER, "BYE", 1),
            ],
        },
        Case {
            name: "without a trunk the number is called at the PBX",
            agent: Agent::DeadFirst,
            asked: Some(NUMBER),
            differs: unknown,
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[
                (CALLER, "INVITE", 2),
                (CARRIER, "INVITE", 0),
                (FALLBACK, "BYE", 1),
            ],
        },
        Case {
            name: "the echo agent hands over",
            agent: Agent::Echo,
            asked: Some(NUMBER),
            differs: unknown,
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[(CALLER, "INVITE", 1), (CARRIER, "INVITE", 1)],
        },
        Case {
            name: "the caller had offered nothing at first",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.caller.offers_late = true;
            },
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[(CALLER, "INVITE", 1), (DESK, "INVITE", 1)],
        },
        Case {
            name: "the destination is busy",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.handover.destinations[0].finish = refuses(486);
            },
            record: "completed 200 - caller",
            transfer: "bridge failed 486",
            sends: &[
                (CALLER, "INVITE", 0),
                (DESK, "INVITE", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "the destination hangs up",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.caller.talk.acts.clear();
                call.handover.destinations[0].talk.acts = vec![(seconds(5), Act::HangUp)];
            },
            record: "transferred 200 - agent",
            transfer: "bridge completed -",
            sends: &[(CALLER, "BYE", 1), (DESK, "BYE", 0)],
        },
        Case {
            name: "the caller doesn't take the destination's media",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.caller.talk.reaction = Reaction::Refuse(488);
            },
            record: "completed 200 - caller",
            transfer: "bridge failed 488",
            sends: &[(CALLER, "BYE", 0), (DESK, "BYE", 1), (RUNTIME, "BYE", 1)],
        },
        Case {
            // The refresh of the destination's session comes while the caller puts its media off.
            name: "the destination has lost its dialog before the caller takes its media",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                waits_for_caller(call);
                call.handover.destinations[0].talk.refuses_updates = Some(481);
            },
            record: "completed 200 - caller",
            transfer: "bridge failed 481",
            sends: &[(CALLER, "BYE", 0), (DESK, "BYE", 1), (RUNTIME, "BYE", 1)],
        },
        Case {
            name: "the destination vanishes before the caller takes its media",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                waits_for_caller(call);
                call.handover.destinations[0].talk.acts = vec![(seconds(5), Act::Vanish)];
            },
            record: "completed 200 - caller",
            transfer: "bridge failed 408",
            sends: &[(CALLER, "BYE", 0), (DESK, "BYE", 1), (RUNTIME, "BYE", 1)],
        },
        Case {
            name: "the destination has lost its dialog, and the agent has hung up",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                waits_for_caller(call);
                call.attempts[0].talk.acts = vec![(seconds(20), Act::HangUp)];
                call.handover.destinations[0].talk.refuses_updates = Some(481);
            },
            record: "completed 200 - agent",
            transfer: "bridge failed 481",
            sends: &[(CALLER, "BYE", 1), (DESK, "BYE", 1), (RUNTIME, "BYE", 0)],
        },
    ]
}

/// The destination answers, with a session timer, and the caller refuses its media again and again with 491.
fn waits_for_caller(call: &mut CallPlan) {
    unknown(call);
    call.caller.talk.reaction = Reaction::Refuse(491);
    call.caller.talk.acts = vec![(seconds(115), Act::HangUp)];
    call.handover.destinations[0].agrees_to_timer = true;
    call.handover.destinations[0].talk.timers = true;
}

fn crossed() -> Vec<Case> {
    vec![
        Case {
            name: "the agent hangs up while the destination rings",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.caller.talk.acts = vec![(seconds(20), Act::HangUp)];
                call.attempts[0].talk.acts = vec![(seconds(4), Act::HangUp)];
                call.handover.destinations[0].finish = answers(seconds(8));
            },
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[(RUNTIME, "BYE", 0), (CALLER, "INVITE", 1), (DESK, "BYE", 1)],
        },
        Case {
            name: "the agent has hung up, and the destination is busy",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.caller.talk.acts.clear();
                call.attempts[0].talk.acts = vec![(seconds(4), Act::HangUp)];
                call.handover.destinations[0].finish = Finish::Refuse {
                    after: seconds(8),
                    status: 486,
                };
            },
            record: "completed 200 - agent",
            transfer: "bridge failed 486",
            sends: &[(CALLER, "BYE", 1)],
        },
        Case {
            name: "the caller hangs up while the destination rings, which answers all the same",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.handover.destinations[0].rings = vec![rings(100, false, false, 0)];
                call.handover.destinations[0].finish = Finish::Never;
                call.handover.destinations[0].on_cancel = OnCancel::AnswersAnyway;
            },
            record: "completed 200 - caller",
            transfer: "bridge failed 487",
            sends: &[
                (DESK, "CANCEL", 1),
                (DESK, "ACK", 1),
                (DESK, "BYE", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "a change of the caller's is under way with the agent",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.attempts[0].talk.reaction = Reaction::Never;
                call.caller.talk.acts = vec![(seconds(3), Act::Hold), (seconds(60), Act::HangUp)];
                call.handover.destinations[0].finish = answers(seconds(4));
            },
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[
                (CALLER, "SIP/2.0 487", 1),
                (CALLER, "INVITE", 1),
                (RUNTIME, "CANCEL", 1),
                (RUNTIME, "BYE", 1),
                (DESK, "BYE", 1),
            ],
        },
        Case {
            name: "two destinations answer",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                unknown(call);
                call.caller.talk.acts = vec![(seconds(20), Act::HangUp)];
                call.handover.destinations[0].second_fork = Some(seconds(1));
            },
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[(DESK, "ACK", 2), (DESK, "BYE", 2)],
        },
    ]
}

fn taken_over() -> Vec<Case> {
    fn successor(call: &mut CallPlan) {
        let plan = call.caller.clone();
        call.caller.talk.acts.clear();
        call.handover.taken_over = Some((seconds(4), plan));
    }
    vec![
        Case {
            name: "a new leg takes the caller's place",
            agent: Agent::One,
            asked: None,
            differs: successor,
            record: "completed 200 - caller",
            transfer: "",
            sends: &[
                (CALLER, "BYE", 1),
                (RUNTIME, "INVITE", 2),
                (RUNTIME, "BYE", 1),
                (SUCCESSOR, "SIP/2.0 200", 2),
            ],
        },
        Case {
            name: "a new leg of the echo agent's caller",
            agent: Agent::Echo,
            asked: None,
            differs: successor,
            record: "completed 200 - caller",
            transfer: "",
            sends: &[(CALLER, "BYE", 1), (SUCCESSOR, "SIP/2.0 200", 2)],
        },
        Case {
            name: "a new leg that offers nothing",
            agent: Agent::One,
            asked: None,
            differs: |call| {
                successor(call);
                if let Some((_, plan)) = &mut call.handover.taken_over {
                    plan.offers_late = true;
                }
            },
            record: "completed 200 - caller",
            transfer: "",
            sends: &[
                (CALLER, "BYE", 1),
                (RUNTIME, "ACK", 2),
                (SUCCESSOR, "SIP/2.0 200", 2),
            ],
        },
        Case {
            name: "the runtime doesn't take the new leg's media",
            agent: Agent::One,
            asked: None,
            differs: |call| {
                successor(call);
                call.attempts[0].talk.reaction = Reaction::Refuse(488);
                call.attempts[0].talk.acts = vec![(seconds(9), Act::HangUp)];
            },
            record: "completed 200 - agent",
            transfer: "",
            sends: &[(CALLER, "BYE", 1), (SUCCESSOR, "SIP/2.0 488", 1)],
        },
        Case {
            // Once the new leg is there, nobody would hear what became of the old one's REFER.
            name: "a transfer is asked for while the runtime is asked about the new leg",
            agent: Agent::One,
            asked: None,
            differs: |call| {
                successor(call);
                call.attempts[0].talk.reaction = Reaction::Later(seconds(3), 200);
                call.handover.asked.push((seconds(6), NUMBER));
            },
            record: "completed 200 - caller",
            transfer: "",
            sends: &[(CALLER, "REFER", 0), (SUCCESSOR, "SIP/2.0 200", 2)],
        },
        Case {
            name: "the runtime refers while it is asked about the new leg",
            agent: Agent::One,
            asked: None,
            differs: |call| {
                successor(call);
                call.attempts[0].talk.reaction = Reaction::Later(seconds(3), 200);
                call.attempts[0].talk.acts = vec![(seconds(5), Act::Refer(NUMBER))];
            },
            record: "completed 200 - caller",
            transfer: "",
            sends: &[
                (CALLER, "REFER", 0),
                (RUNTIME, "SIP/2.0 491", 1),
                (SUCCESSOR, "SIP/2.0 200", 2),
            ],
        },
        Case {
            name: "the caller hangs up while the runtime is asked about the new leg",
            agent: Agent::One,
            asked: None,
            differs: |call| {
                successor(call);
                call.attempts[0].talk.reaction = Reaction::Never;
                call.caller.talk.acts = vec![(seconds(5), Act::HangUp)];
            },
            record: "completed 200 - caller",
            transfer: "",
            sends: &[(RUNTIME, "CANCEL", 1), (SUCCESSOR, "SIP/2.0 487", 1)],
        },
        Case {
            name: "the new leg is handed over in its turn",
            agent: Agent::One,
            asked: None,
            differs: |call| {
                successor(call);
                call.handover.asked.push((seconds(6), AT_DESK));
                if let Some((_, plan)) = &mut call.handover.taken_over {
                    plan.talk.refers = ReferPlan::refuses(405);
                }
            },
            record: "transferred 200 - caller",
            transfer: "bridge completed -",
            sends: &[
                (CALLER, "REFER", 0),
                (SUCCESSOR, "REFER", 1),
                (DESK, "BYE", 1),
            ],
        },
    ]
}

fn ordered() -> Vec<Case> {
    fn order(call: &mut CallPlan) {
        let callee = call.attempts[0].clone();
        call.order = Some(OrderPlan::plain(callee));
        call.attempts[0].talk.acts = vec![(seconds(10), Act::HangUp)];
    }
    vec![
        Case {
            name: "a call that the node begins",
            agent: Agent::One,
            asked: None,
            differs: order,
            record: "completed 200 - agent",
            transfer: "",
            sends: &[
                (CARRIER, "INVITE", 2),
                (RUNTIME, "INVITE", 1),
                (CARRIER, "BYE", 1),
            ],
        },
        Case {
            name: "whom the node has called is handed over by REFER, which is challenged",
            agent: Agent::One,
            asked: Some(NUMBER),
            differs: |call| {
                order(call);
                let order = call.order.as_mut().expect("an order");
                let answers = [407, 202].map(|status| (Duration::ZERO, status));
                order.callees[0].talk.refers.answers = answers.to_vec();
            },
            record: "transferred 200 - platform",
            transfer: "refer completed -",
            sends: &[
                (CARRIER, "REFER", 2),
                (CARRIER, "BYE", 1),
                (RUNTIME, "BYE", 1),
            ],
        },
        Case {
            name: "whom the node has called is bridged",
            agent: Agent::One,
            asked: Some(AT_DESK),
            differs: |call| {
                order(call);
                let order = call.order.as_mut().expect("an order");
                order.callees[0].talk.refers = ReferPlan::refuses(501);
                order.callees[0].talk.acts = vec![(seconds(12), Act::HangUp)];
            },
            record: "transferred 200 - callee",
            transfer: "bridge completed -",
            sends: &[(RUNTIME, "BYE", 1), (DESK, "INVITE", 1), (DESK, "BYE", 1)],
        },
    ]
}

const fn answers(after: Duration) -> Finish {
    Finish::Answer { after, fork: 0 }
}

/// Way, state and code of the last transfer.
fn transfer(world: &World) -> String {
    let mut transfers = world.node.facts.iter().filter_map(|fact| match fact {
        Fact::Transfer(transfer) => Some(transfer),
        Fact::Started(_)
        | Fact::Contact { .. }
        | Fact::Ringing { .. }
        | Fact::Joined { .. }
        | Fact::Held { .. }
        | Fact::Media(_)
        | Fact::Answered { .. }
        | Fact::Attempt(_)
        | Fact::Ended(_) => None,
    });

    transfers.next_back().map_or(String::new(), |transfer| {
        let code = transfer
            .sip_code
            .map_or("-".into(), |code| code.to_string());
        format!(
            "{} {} {code}",
            transfer.way.as_str(),
            transfer.state.as_str()
        )
    })
}

#[test]
fn callers_are_handed_over_as_the_pbx_has_it() {
    let mut wrong = Vec::new();
    for case in cases() {
        let mut plan = Plan::plain(case.agent);
        let call = &mut plan.calls[0];
        let asked = case.asked.map(|destination| (seconds(3), destination));
        call.handover.asked.extend(asked);
        (case.differs)(call);
        let mut world = World::new(plan, true);
        world.run();
        let mut faults = verdict::faults(&world);
        let came = (record(&world), transfer(&world));
        if (&*came.0, &*came.1) != (case.record, case.transfer) {
            faults.push(format!("{came:?}"));
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

/// The call is over before the look-up of the callee is: what that finds is nobody's.
#[test]
fn nothing_is_recorded_after_the_end() {
    let mut plan = Plan::plain(Agent::AllDead);
    plan.contact = seconds(5);
    let mut callee = plan.calls[0].attempts[0].clone();
    // Until its BYE is given up, the call is kept.
    callee.talk.acts = vec![(Duration::ZERO, Act::Vanish)];
    plan.calls[0].order = Some(OrderPlan::plain(callee));
    let mut world = World::new(plan, false);
    world.run();
    assert_eq!(verdict::faults(&world), Vec::<String>::new());
    assert_eq!(record(&world), "failed 480 runtime_unreachable platform");
}

/// A refresh repeats the last description that the runtime got, however early that was.
#[test]
fn a_refresh_repeats_what_an_early_dialog_has_agreed_on() {
    for (case, offers_late, update_early, told) in [
        ("the answer in a PRACK", true, None, "caller0-1"),
        ("the answer to an UPDATE", true, Some(1), "caller0-2"),
        (
            "the answer to an UPDATE, behind an offer",
            false,
            Some(1),
            "caller0-2",
        ),
    ] {
        let mut plan = Plan::plain(Agent::One);
        let call = &mut plan.calls[0];
        call.caller.offers_late = offers_late;
        call.caller.talk.acts = vec![(seconds(100), Act::HangUp)];
        let attempt = &mut call.attempts[0];
        attempt.rings = vec![rings(100, true, true, 0)];
        attempt.update_early = update_early.map(seconds);
        attempt.finish = answers(seconds(3));
        attempt.agrees_to_timer = true;
        (attempt.talk.timers, attempt.talk.updates) = (true, false);
        let mut world = World::new(plan, false).recorded();
        world.run();
        assert_eq!(verdict::faults(&world), Vec::<String>::new(), "{case}");
        let sent = world.sent.as_deref().expect("it is recorded");
        let is_refresh = |message: &&crate::network::Sent| {
            let octets = &message.datagram.octets;
            message.datagram.to.to_string() == RUNTIME && octets.starts_with(b"INVITE sip:runtime")
        };
        let refresh = sent.iter().find(is_refresh).expect(case);
        let refresh = String::from_utf8_lossy(&refresh.datagram.octets);
        assert!(refresh.contains(told), "{case}: {refresh}");
    }
}

/// The caller's INVITE has an SDP and another part. What we build of it ourselves has the SDP alone: the INVITE to the destination,
/// and the re-INVITE that refreshes the runtime's session.
#[test]
fn of_several_parts_the_sdp_goes_on() {
    for (case, to, differs) in [
        (
            "the destination",
            DESK,
            (|call| {
                unknown(call);
                call.handover.asked.push((seconds(3), AT_DESK));
            }) as fn(&mut CallPlan),
        ),
        ("the runtime, refreshed", RUNTIME, |call| {
            call.caller.talk.acts = vec![(seconds(100), Act::HangUp)];
            call.attempts[0].agrees_to_timer = true;
            call.attempts[0].talk.timers = true;
            call.attempts[0].talk.updates = false;
        }),
    ] {
        let mut plan = Plan::plain(Agent::One);
        let call = &mut plan.calls[0];
        call.caller.has_parts = true;
        differs(call);
        let mut world = World::new(plan, false).recorded();
        world.run();
        assert_eq!(verdict::faults(&world), Vec::<String>::new(), "{case}");
        let sent = world.sent.as_deref().expect("it is recorded");
        let is_ours = |message: &&crate::network::Sent| {
            let octets = &message.datagram.octets;
            message.datagram.to.to_string() == to && octets.starts_with(b"INVITE ")
        };
        let last = sent.iter().rfind(is_ours).expect(case);
        let last = String::from_utf8_lossy(&last.datagram.octets);
        assert!(
            last.contains("Content-Type: application/sdp\r\n"),
            "{case}: {last}"
        );
        assert!(
            last.contains("\r\n\r\nv=0\r\n") && !last.contains("--b"),
            "{case}: {last}"
        );
    }
}
