//! Calls that a member of an org makes from the console's page. Its user agent runs in this process, so that routing, limits, records and transfers
//! are the same as for a PBX. The console's session replaces the digest.

use std::sync::Arc;

use trunkline_model::view::View;
use trunkline_sip::endpoint::{Endpoint, Received};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Method;
use uuid::Uuid;

use super::Calls;
use crate::inbound::admission;

/// A member's user agent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MemberCaller {
    /// Its connection.
    pub flow: Flow,
    /// The org of the session.
    pub org: Uuid,
}

impl Calls {
    /// Handles the first message of a member's user agent: the INVITE begins a call of the org. Later messages are handled like any peer's.
    pub fn handle_member(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        caller: MemberCaller,
        received: Received<'_>,
        now: Moment,
    ) {
        let MemberCaller { flow, org } = caller;
        let Received::Request(message) = &received else {
            return self.handle(endpoint, view, flow, received, now);
        };
        if message.method() != Method::Invite || message.to_tag().is_some() {
            return self.handle(endpoint, view, flow, received, now);
        }

        self.core.sees(view);
        let admitted = admission::admit_member(&mut self.core, endpoint, view, flow, org, message);
        if let Some(admitted) = admitted {
            self.set_up(endpoint, admitted, now);
        }
    }
}
