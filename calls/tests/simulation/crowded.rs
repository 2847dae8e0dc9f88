//! A node without room for another request of its own.

use trunkline_sip::endpoint::{Owner, Request};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Method;

use crate::cases::{RUNTIME, record, seconds, sent};
use crate::node::{CARRIER, Node, address, flow_of};
use crate::plan::{Act, Agent, Plan};
use crate::verdict;
use crate::world::{Occasion, World};

const CALLER: &str = "198.51.101.10:5060";

impl Node {
    /// Fills the table of client transactions with requests that nobody receives, until timer F ends them after 32 seconds.
    pub(crate) fn fill_clients(&mut self, now: Moment) {
        let request = Request {
            method: Method::Options,
            token: "OPTIONS",
            uri: b"sip:192.0.2.40",
            head:
                b"From: <sip:a@b>;tag=a\r\nTo: <sip:b@c>\r\nCall-ID: crowd\r\nCSeq: 1 OPTIONS\r\n",
            body: b"",
        };
        let (flow, nobody) = (flow_of(address(CARRIER), Some(1)), Owner(u64::MAX));
        while self.endpoint.request(flow, &request, nobody, now).is_ok() {}
        self.transmits();
    }
}

/// A 481 would have the caller end its dialog (RFC 3261 §12.2.1.2).
#[test]
fn a_key_that_has_no_room_is_refused_and_the_call_goes_on() {
    let mut plan = Plan::plain(Agent::One);
    plan.calls[0].caller.talk.acts = vec![
        (seconds(3), Act::Info),
        (seconds(50), Act::Info),
        (seconds(60), Act::HangUp),
    ];
    let mut world = World::new(plan, true);
    world.schedule(seconds(3), Occasion::Crowd);
    world.run();

    assert_eq!(verdict::faults(&world), Vec::<String>::new());
    assert_eq!(record(&world), "completed 200 - caller");
    let refused = ["SIP/2.0 503", "SIP/2.0 481"].map(|what| sent(&world, CALLER, what));
    assert_eq!((refused, sent(&world, RUNTIME, "INFO")), ([1, 0], 1));
}
