//! Calls that the node begins: what is ordered, and who is called.

use std::time::Duration;

use trunkline_calls::dial::outbound::NewOutboundCall;
use trunkline_model::record::{Direction, Started};
use trunkline_routing::E164;
use trunkline_sip::wire::Message;

use crate::cases::{record, sent};
use crate::dice::Dice;
use crate::node;
use crate::plan::{Agent, AttemptPlan, Flaw, Plan};
use crate::verdict;
use crate::world::World;

/// An order of an outbound call, and the behaviour of those who are called.
#[derive(Clone, Debug)]
pub(crate) struct OrderPlan {
    pub(crate) ringing_timeout: Duration,
    pub(crate) max_duration: Duration,
    /// Behaviour of each place that is tried; the last one's again for all further ones.
    pub(crate) callees: Vec<AttemptPlan>,
    /// Time after the order at which the API ends the call.
    pub(crate) hung_up: Option<Duration>,
}

impl OrderPlan {
    pub(crate) fn plain(callee: AttemptPlan) -> Self {
        Self {
            ringing_timeout: Duration::from_secs(45),
            max_duration: Duration::from_secs(600),
            callees: vec![callee],
            hung_up: None,
        }
    }

    pub(crate) fn draw(dice: &mut Dice) -> Option<Self> {
        let plan = Self {
            ringing_timeout: dice.pick(&[3, 20, 45, 45]) * Duration::from_secs(1),
            max_duration: dice.pick(&[10, 600, 600]) * Duration::from_secs(1),
            callees: (0..2).map(|_| AttemptPlan::draw(dice)).collect(),
            hung_up: dice.maybe(15, 0, 30_000),
        };
        dice.percent(30).then_some(plan)
    }

    pub(crate) fn order(&self, call: usize, agent: Agent) -> NewOutboundCall {
        NewOutboundCall {
            org: node::ORG,
            agent: node::agent_id(agent),
            number: number_of(call),
            ringing_timeout: self.ringing_timeout,
            max_duration: self.max_duration,
            metadata: None,
        }
    }
}

/// The number of the call that a record is about.
pub(crate) fn number_of_record(started: &Started) -> Option<usize> {
    match started.direction {
        Direction::Inbound => {
            let call_id = started.caller_call_id.strip_prefix("call-")?;
            call_id.split('@').next()?.parse().ok()
        }
        Direction::Outbound => started.to.strip_prefix("+1415555")?.parse().ok(),
    }
}

/// The number that is called in a call.
fn number_of(call: usize) -> E164 {
    E164::parse(&format!("+1415555{call:04}")).expect("a number")
}

/// The call that an INVITE to such a number is about.
pub(crate) fn call_of(message: &Message<'_>) -> Option<usize> {
    let uri = std::str::from_utf8(message.request_uri()).ok()?;
    let number = uri.strip_prefix("sip:+1415555")?.get(..4)?;
    number.parse().ok()
}

/// Media of ours and a runtime over SIP alike.
#[test]
fn a_callee_that_answers_without_audio_fails_the_call() {
    for agent in [Agent::Echo, Agent::Bot, Agent::One] {
        let mut plan = Plan::plain(agent);
        let call = &mut plan.calls[0];
        let callee = AttemptPlan {
            flaw: Some(Flaw::NoSdp),
            ..call.attempts[0].clone()
        };
        call.order = Some(OrderPlan::plain(callee));

        let mut world = World::new(plan, true);
        world.run();
        assert_eq!(verdict::faults(&world), Vec::<String>::new(), "{agent:?}");
        let expected = "failed 488 no_common_media platform";
        assert_eq!(record(&world), expected, "{agent:?}");
        let ends = ["INVITE", "ACK", "BYE"].map(|method| sent(&world, node::CARRIER, method));
        assert_eq!(ends, [1, 1, 1], "{agent:?}");
    }
}
