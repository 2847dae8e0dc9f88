//! Glare on each leg: the owner of the Call-ID waits from 2.1 to 4 s before it asks again, the other up to 2 s (RFC 3261 §14.1).

use std::time::Duration;

use crate::cases::{RUNTIME, record, seconds, sent};
use crate::handover::ReferPlan;
use crate::network::Sent;
use crate::orders::OrderPlan;
use crate::plan::{Act, Agent, CallPlan, Plan, Reaction};
use crate::verdict;
use crate::world::World;

const CALLER: &str = "198.51.101.10:5060";
const SUCCESSOR: &str = "198.51.101.110:5060";
const CARRIER: &str = "192.0.2.40:5060";
/// The places in the list of destinations.
const NUMBER: usize = 0;
const AT_DESK: usize = 1;

/// Owner of the Call-ID.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Owner {
    Node,
    Peer,
}

const GLARE: Reaction = Reaction::Refuse(491);

fn bridges(call: &mut CallPlan) {
    call.handover.asked.push((seconds(3), AT_DESK));
    call.caller.talk.refers = ReferPlan::refuses(405);
}

fn order(call: &mut CallPlan) {
    let callee = call.attempts[0].clone();
    call.order = Some(OrderPlan::plain(callee));
    call.attempts[0].talk.acts = vec![(seconds(60), Act::HangUp)];
}

/// Returns the time between each 491 of a peer to a method and the next request of it.
fn waits(sent: &[Sent], peer: &str, method: &str) -> Vec<Duration> {
    let (cseq, start) = (format!(" {method}\r\n"), format!("{method} "));
    let mut refused = None;
    let mut waits = Vec::new();
    for message in sent {
        let datagram = &message.datagram;
        let text = String::from_utf8_lossy(&datagram.octets);
        let is_refusal = text.starts_with("SIP/2.0 491") && text.contains(&cseq);
        if datagram.from.to_string() == peer && is_refusal {
            refused = Some(message.after);
        }
        if datagram.to.to_string() == peer
            && text.starts_with(&start)
            && let Some(refused) = refused.take()
        {
            waits.push(message.after - refused);
        }
    }

    waits
}

/// Nothing has been agreed to by then.
#[test]
fn a_hold_that_waits_is_struck_out_by_a_resume() {
    let mut plan = Plan::plain(Agent::One);
    let call = &mut plan.calls[0];
    call.caller.talk.acts = vec![(seconds(60), Act::HangUp)];
    call.attempts[0].talk.reaction = GLARE;
    let [held, resumed] = [(seconds(3), true), (Duration::from_millis(3_500), false)];
    call.handover.held = vec![held, resumed];
    let mut world = World::new(plan, true);
    world.run();
    assert_eq!(verdict::faults(&world), Vec::<String>::new());
    let invites = [RUNTIME, CALLER].map(|to| sent(&world, to, "INVITE"));
    assert_eq!(
        invites,
        [2, 0],
        "the first INVITE, and the hold that met glare"
    );
}

#[test]
fn the_owner_of_the_call_id_waits_longer() {
    type Row = (
        &'static str,
        fn(&mut CallPlan),
        &'static str,
        &'static str,
        Owner,
    );
    let rows: [Row; 7] = [
        (
            "the caller, bridged",
            |call| {
                bridges(call);
                call.caller.talk.reaction = GLARE;
            },
            CALLER,
            "INVITE",
            Owner::Peer,
        ),
        (
            "the caller, referred",
            |call| {
                call.handover.asked.push((seconds(3), NUMBER));
                let answers = [491, 491, 491, 202].map(|status| (Duration::ZERO, status));
                call.caller.talk.refers.answers = answers.to_vec();
            },
            CALLER,
            "REFER",
            Owner::Peer,
        ),
        (
            "the runtime, held",
            |call| {
                call.handover.held.push((seconds(3), true));
                call.attempts[0].talk.reaction = GLARE;
            },
            RUNTIME,
            "INVITE",
            Owner::Node,
        ),
        (
            "a callee, joined",
            |call| {
                order(call);
                let order = call.order.as_mut().expect("an order");
                order.callees[0].talk.reaction = GLARE;
            },
            CARRIER,
            "INVITE",
            Owner::Node,
        ),
        (
            "a callee, referred",
            |call| {
                order(call);
                call.handover.asked.push((seconds(5), NUMBER));
                let order = call.order.as_mut().expect("an order");
                let answers = [491, 491, 491, 202].map(|status| (Duration::ZERO, status));
                order.callees[0].talk.refers.answers = answers.to_vec();
            },
            CARRIER,
            "REFER",
            Owner::Node,
        ),
        (
            "a new leg of the PBX, bridged",
            |call| {
                let mut plan = call.caller.clone();
                plan.talk.refers = ReferPlan::refuses(405);
                plan.talk.reaction = GLARE;
                plan.talk.acts = vec![(seconds(60), Act::HangUp)];
                call.caller.talk.acts.clear();
                call.handover.taken_over = Some((seconds(4), plan));
                call.handover.asked.push((seconds(6), AT_DESK));
            },
            SUCCESSOR,
            "INVITE",
            Owner::Peer,
        ),
        (
            "the runtime of an outbound call, held",
            |call| {
                order(call);
                call.handover.held.push((seconds(5), true));
                call.attempts[0].talk.reaction = GLARE;
            },
            RUNTIME,
            "INVITE",
            Owner::Node,
        ),
    ];

    for (case, differs, peer, method, owner) in rows {
        let mut plan = Plan::plain(Agent::One);
        let call = &mut plan.calls[0];
        call.caller.talk.acts = vec![(seconds(60), Act::HangUp)];
        differs(call);

        let mut world = World::new(plan, false).recorded();
        world.run();
        assert_eq!(verdict::faults(&world), Vec::<String>::new(), "{case}");
        let sent = world.sent.as_deref().expect("it is recorded");

        let waits = waits(sent, peer, method);
        // On the wire an answer takes 10 ms, and timers fire by tens.
        let (least, most) = match owner {
            Owner::Node => (Duration::from_millis(2_100), Duration::from_millis(4_040)),
            Owner::Peer => (Duration::ZERO, Duration::from_millis(2_040)),
        };

        assert!(waits.len() >= 3, "{case}: {waits:?}");
        // However often it comes: nobody is hung up on for it.
        let record = record(&world);
        assert!(!record.contains("join_refused"), "{case}: {record}");
        let is_joined = peer != RUNTIME && method == "INVITE";
        assert!(!is_joined || waits.len() > 8, "{case}: {waits:?}");
        let are_right = waits.iter().all(|wait| *wait >= least && *wait <= most);
        assert!(are_right, "{case}: {waits:?}");
    }
}
