//! Rules that must hold once a run is over.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use trunkline_model::record::{Direction, Ended, Fact, Status};
use trunkline_model::transfer::{State as TransferState, Transfer};
use uuid::Uuid;

use crate::caller::{Caller, Outcome};
use crate::party::Party;
use crate::plan::{Agent, AttemptPlan, Finish, Flaw, Identity, Reaction};
use crate::session::Stage;
use crate::world::World;

/// Everything is gone this long after the last message came or the last call ended.
const QUIET: Duration = Duration::from_secs(70);

/// A transfer has its outcome by then: five REFERs, or what the PBX tells, or a destination that rings.
const OUTCOME: Duration = Duration::from_secs(400);

/// Returns the faults; empty if all is well.
pub(crate) fn faults(world: &World) -> Vec<String> {
    let mut faults = world.tap.faults.clone();
    faults.extend(world.node.faults.clone());
    faults.extend(world.tap.unanswered());
    faults.extend(left_over(world));
    faults.extend(records(world));
    for party in parties(world) {
        faults.extend(
            party
                .faults
                .iter()
                .filter(|fault| counts(world, fault))
                .cloned(),
        );
        faults.extend(unended(world, party));
    }

    for caller in &world.callers {
        faults.extend(outcome(world, caller));
    }
    faults
}

/// A copy of an INVITE that comes only after a restart begins a call anew.
fn counts(world: &World, fault: &str) -> bool {
    world.restarted.is_none() || !fault.ends_with("a second 200 with another To-tag")
}

pub(crate) fn parties(world: &World) -> impl Iterator<Item = &Party> {
    let callers = world.callers.iter().map(|caller| &caller.party);
    callers.chain(world.runtimes.iter().map(|runtime| &runtime.party))
}

fn left_over(world: &World) -> Vec<String> {
    let left = world.node.left_over();
    if !left.is_empty() {
        return vec![format!("left over: {}", left.join(", "))];
    }
    let quiet = world
        .empty_since
        .map_or(Duration::ZERO, |since| since.since(world.last_stir));
    if quiet > QUIET {
        vec![format!(
            "something was left {} s after the end",
            quiet.as_secs()
        )]
    } else {
        Vec::new()
    }
}

/// Each call is begun once, ended once, and what is between is in order.
fn records(world: &World) -> Vec<String> {
    let mut faults = Vec::new();
    let mut by_call: BTreeMap<Uuid, Vec<&Fact>> = BTreeMap::new();
    for fact in &world.node.facts {
        by_call.entry(fact.call()).or_default().push(fact);
    }
    for (call, facts) in &by_call {
        faults.extend(record(facts).map(|what| format!("{call}: {what}: {facts:?}")));
    }

    let mut cut: BTreeMap<Uuid, Vec<&Fact>> = BTreeMap::new();
    for fact in &world.earlier {
        cut.entry(fact.call()).or_default().push(fact);
    }
    for (call, facts) in &cut {
        if !matches!(facts[0], Fact::Started(_)) || by_call.contains_key(call) {
            faults.push(format!("{call}: not one call of one boot"));
        }
    }

    faults
}

fn record(all: &[&Fact]) -> Option<&'static str> {
    // Targets may be tried at any time.
    let is_attempt = |fact: &&&Fact| matches!(fact, Fact::Attempt(_));
    let numbers = all.iter().filter_map(|fact| {
        let Fact::Attempt(attempt) = fact else {
            return None;
        };
        Some(attempt.number)
    });

    if !numbers.eq(1..=u8::try_from(all.iter().filter(is_attempt).count()).unwrap_or(0)) {
        return Some("attempts aren't counted in their order");
    }
    if matches!(all.last(), Some(Fact::Attempt(_))) {
        return Some("an attempt after the end");
    }

    let facts: Vec<&Fact> = all
        .iter()
        .filter(|fact| !is_attempt(fact))
        .copied()
        .collect();
    let facts = &facts[..];

    let rank = |fact: &Fact| match fact {
        Fact::Started(_) => 0,
        Fact::Contact { .. } | Fact::Ringing { .. } => 1,
        Fact::Answered { .. } => 2,
        Fact::Joined { .. } => 3,
        Fact::Transfer(_) | Fact::Held { .. } | Fact::Attempt(_) | Fact::Media(_) => 4,
        Fact::Ended(_) => 5,
    };

    // There is a fact for each state of a transfer, and for each beginning and end of a hold.
    let once: Vec<_> = facts.iter().filter(|fact| rank(fact) != 4).collect();
    let kinds: HashSet<_> = once
        .iter()
        .map(|fact| std::mem::discriminant::<Fact>(fact))
        .collect();

    if rank(facts[0]) != 0 {
        return Some("doesn't start");
    }
    if facts.last().map(|fact| rank(fact)) != Some(5) {
        return Some("doesn't end");
    }

    // The contact may be found late.
    let in_order = facts
        .iter()
        .filter(|fact| !matches!(fact, Fact::Contact { .. }));
    if !in_order.is_sorted_by_key(|fact| rank(fact)) {
        return Some("out of order");
    }
    if kinds.len() < once.len() {
        return Some("a fact twice");
    }

    let mut was_held = false;
    for fact in facts {
        if let Fact::Held { held, .. } = fact {
            if *held == was_held {
                return Some("a hold told of twice");
            }
            was_held = *held;
        }
    }

    let answered = facts.iter().any(|fact| rank(fact) == 2);
    let Some(Fact::Ended(ended)) = facts.last() else {
        return Some("doesn't end");
    };

    if let Some(wrong) = handed_over(facts, ended) {
        return Some(wrong);
    }

    // An agent that fails a callee who has answered leaves its own code.
    let outbound =
        matches!(facts[0], Fact::Started(started) if started.direction == Direction::Outbound);
    let fits = match (answered, outbound) {
        (true, true) => true,
        (answered, _) => answered == (ended.sip_code == 200),
    };
    (!fits).then_some("a code that isn't the outcome's")
}

/// Transfers come one after the other, each from one state to the next until it has its outcome; and the call is recorded as
/// what they made of it.
fn handed_over(facts: &[&Fact], ended: &Ended) -> Option<&'static str> {
    let mut last: Option<&Transfer> = None;
    let mut gone = false;
    for fact in facts {
        let Fact::Transfer(transfer) = fact else {
            continue;
        };
        match last.filter(|last| last.id == transfer.id) {
            Some(last) if goes_back(last, transfer) => return Some("a transfer goes back"),
            Some(_) => {}
            None if last.is_some_and(|last| last.state.is_open()) => {
                return Some("two transfers at once");
            }
            None if transfer.state != TransferState::Requested => {
                return Some("a transfer that nobody asked for");
            }
            None => {}
        }
        gone |= transfer.handed_over;
        last = Some(transfer);
    }
    if last.is_some_and(|last| last.state.is_open()) {
        return Some("a transfer without an outcome");
    }
    let slow = |last: &Transfer| {
        let ended = last.ended_at.unwrap_or(last.requested_at);
        ended.since(last.requested_at) > OUTCOME
    };
    if last.is_some_and(slow) {
        return Some("a transfer that nobody decides");
    }
    if ended.status == Status::Transferred && !gone {
        return Some("transferred to nobody");
    }
    let completed = ended.status == Status::Completed;
    let confirmed = last.is_some_and(|last| last.answer_confirmed == Some(true));
    if completed && gone && confirmed {
        return Some("handed over, and not recorded");
    }
    let reason = ended.reason.as_deref();
    let unconfirmed = reason == Some("transfer_unconfirmed");
    if completed && gone && reason.is_none() {
        return Some("handed over without a word on who answered");
    }
    (unconfirmed && (!completed || !gone || confirmed)).then_some("said to be unconfirmed")
}

/// Returns whether a transfer leaves the outcome that it had, or returns to an earlier state. A transfer that changes from REFER to bridge,
/// or from bridge to REFER, passes the states of its second way from the first one on.
fn goes_back(last: &Transfer, next: &Transfer) -> bool {
    let takes_the_other_way = last.way != next.way && last.state.is_open();

    last.handed_over || (last.state > next.state && !takes_the_other_way)
}

/// Checks that every session of a peer that is still there has ended, and not because the peer lost its patience. Excepts peers to which
/// the node sent a BYE that the network lost each time.
fn unended(world: &World, party: &Party) -> Vec<String> {
    let mut faults = Vec::new();
    if party.gone {
        return faults;
    }

    let name = &party.name;
    for session in &party.sessions {
        let up = matches!(session.stage, Stage::Confirmed | Stage::Leaving);
        let told = world.tap.was_told(&session.call_id, &session.local_tag);
        // After a restart a peer ends what it remembers by itself, or never.
        if up && !told && world.restarted.is_none() {
            faults.push(format!("{name}: a session that never ended"));
        }
    }

    let forgotten = party.seen.contains(&"outlived")
        && !world.tap.was_told(
            &party.sessions[party.main].call_id,
            &party.sessions[party.main].local_tag,
        );
    if forgotten && world.restarted.is_none() {
        faults.push(format!("{name}: was never told of the end"));
    }

    // A BYE for an early dialog that crosses the 2xx ends the call for the node; the peer waits in the session that it has just confirmed.
    let crossed = party.seen.contains(&"hangs up early");
    let neglected = party.seen.contains(&"expired")
        && !crossed
        && party.talk.reaction == Reaction::Accept
        && world.plan.weather.is_clear()
        && world.restarted.is_none();
    if neglected {
        faults.push(format!("{name}: the node did not refresh the session"));
    }

    faults
}

/// Checks that the record agrees with what the caller saw.
fn outcome(world: &World, caller: &Caller) -> Option<String> {
    if world.restarted.is_some() || caller.party.gone {
        return None;
    }

    let name = &caller.party.name;
    let facts: Vec<&Fact> = world
        .node
        .facts
        .iter()
        .filter(|fact| {
            matches!(fact, Fact::Started(started) if *started.caller_call_id == *caller.call_id())
        })
        .collect();

    let strange = matches!(
        caller.plan.identity,
        Identity::Stranger | Identity::Unknown | Identity::WrongPassword
    );
    if strange && !facts.is_empty() {
        return Some(format!("{name}: a stranger's call was recorded"));
    }

    if facts.len() > 1 {
        return Some(format!("{name}: {} calls of one INVITE", facts.len()));
    }

    let heard = world.plan.weather.is_clear() && world.plan.cut.is_none();
    if caller.outcome == Outcome::Silence && heard {
        return Some(format!("{name}: no final answer in clear weather"));
    }

    let ordinary = !caller.is_successor();
    let due = ordinary.then(|| expected(world, caller)).flatten();
    if let Some(expected) = due.filter(|expected| *expected != caller.outcome) {
        let outcome = caller.outcome;
        return Some(format!("{name}: {outcome:?} where {expected:?} is due"));
    }

    let call = facts.first()?.call();
    let code = world.node.facts.iter().find_map(|fact| match fact {
        Fact::Ended(ended) if ended.call == call => Some(ended.sip_code),
        Fact::Started(_)
        | Fact::Contact { .. }
        | Fact::Joined { .. }
        | Fact::Ringing { .. }
        | Fact::Answered { .. }
        | Fact::Held { .. }
        | Fact::Transfer(_)
        | Fact::Attempt(_)
        | Fact::Media(_)
        | Fact::Ended(_) => None,
    })?;

    let agrees = match caller.outcome {
        Outcome::Up => code == 200,
        Outcome::Refused(status) => code == status,
        Outcome::Dialling | Outcome::Silence => true,
    };
    (!agrees).then(|| format!("{name}: {:?}, recorded as {code}", caller.outcome))
}

/// Expected outcome of a call with which nothing interferes.
fn expected(world: &World, caller: &Caller) -> Option<Outcome> {
    let (world, call) = (&world.plan, &world.plan.calls[caller.number()]);
    let calm = world.weather.is_clear()
        && !world.no_media
        && world.agent_limit.is_none()
        && [
            world.restart,
            world.drain,
            world.cut,
            world.hang_up_all,
            world.silence,
        ] == [None; 5];

    let plan = &call.caller;
    let patient = [plan.cancel_after, plan.bye_early, plan.vanish_after] == [None; 3];
    let known = match plan.identity {
        Identity::Good => plan.login_after.is_zero(),
        Identity::Trusted => true,
        Identity::WrongPassword | Identity::Unknown | Identity::Stranger => false,
    };

    let brief = plan.interval.is_some_and(|(seconds, _)| seconds < 90);
    if !calm || !patient || !known || plan.never_pracks {
        return None;
    }

    if brief {
        return Some(Outcome::Refused(422));
    }

    match call.agent {
        Agent::Echo => Some(Outcome::Up),
        Agent::AllDead | Agent::Nowhere => Some(Outcome::Refused(480)),
        Agent::One | Agent::Stream | Agent::DeadFirst => attempted(&call.attempts[0]),
        Agent::FlowThenBot | Agent::DeadThenFlow => Some(Outcome::Up),
        Agent::Two
        | Agent::Named
        | Agent::Bot
        | Agent::BotThenSip
        | Agent::BotThenFlow
        | Agent::SipThenBot => None,
    }
}

fn attempted(attempt: &AttemptPlan) -> Option<Outcome> {
    if attempt.deaf {
        return Some(Outcome::Refused(480));
    }

    match attempt.finish {
        Finish::Answer { .. } => Some(match attempt.flaw {
            None => Outcome::Up,
            Some(Flaw::NoSdp) => Outcome::Refused(488),
            Some(Flaw::UnreadableRoute) => Outcome::Refused(480),
        }),
        Finish::Never => Some(Outcome::Refused(480)),
        // Tried once more, by another plan.
        Finish::Refuse {
            status: 302 | 422, ..
        } => None,
        Finish::Refuse { status, .. } => match status {
            480 | 486 | 488 | 600 | 603 => Some(Outcome::Refused(status)),
            _ => Some(Outcome::Refused(480)),
        },
    }
}
