//! Requests in early dialogs of our own INVITEs: of a callee, of a destination, or of the runtime of an outbound call (RFC 3261 §12.1, §12.2.2).
//!
//! No request is relayed between such a dialog and the other leg, and the 2xx to the INVITE brings all that the call needs. So the call
//! keeps no early dialog, and requests in one are answered at once.

use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::Calls;
use super::table::CallTable;
use crate::core::context::{Core, Cx};
use crate::dialog::in_dialog::busy;
use crate::has_sdp;
use crate::invite::invite_client::OurOffer;
use crate::limits::attempt_counter::AttemptCounter;
use crate::parts::allow::{capabilities, own_lines, to_peer};
use crate::parts::crossing::lacking_options;
use crate::parts::ids::{CallKey, LegId, owner_of};
use crate::parts::sips::is_sips;

/// Facts about an early dialog of an INVITE of ours that the answer to a request in it needs.
struct EarlyDialogFacts {
    key: CallKey,
    leg: LegId,
    offer: OurOffer,
    is_sips: bool,
    methods: &'static [u8],
}

impl Calls {
    /// Answers a request in an early dialog of an INVITE of ours. False if there is no such dialog, or the request comes from an address that the peer
    /// isn't known to have.
    pub(super) fn answer_early(
        &mut self,
        endpoint: &mut Endpoint,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) -> bool {
        let Some(dialog) = early_dialog(&self.table, &self.core, &flow, message) else {
            return false;
        };

        let method = message.method();
        let leg = self
            .table
            .get_mut(dialog.key)
            .and_then(|call| call.bridge.legs.get_mut(dialog.leg));
        // Counted before a transaction is made, whose answer would stay in a table that all calls share.
        let may_ask = leg.is_some_and(|leg| leg.allowance.take(method, now));

        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now,
        };
        if !may_ask {
            busy(&mut cx, flow, message);
            return true;
        }
        let contact = cx.contact(&flow, dialog.is_sips);
        // A transaction repeats the answer, also once the dialog is confirmed and the call would give another.
        let owner = owner_of(Some(dialog.key));
        let Ok(server) = cx.endpoint.accept(message, flow, owner, now) else {
            busy(&mut cx, flow, message);
            return true;
        };
        // RFC 3261 §14.2: Retry-After of a 500 is "a randomly chosen value of between 0 and 10 seconds".
        let seconds = cx.endpoint.chance().bits64() % 11;

        let lacking = lacking_options(message);
        let status = match lacking {
            Some(_) => 420,
            None => status_of(message, dialog.offer),
        };
        let write = |head: &mut Head<'_>| match (status, message.method()) {
            (200, Method::Update) => own_lines(head, &contact, dialog.methods),
            (200, Method::Options) => capabilities(head, dialog.methods),
            (405 | 501, _) => head.line("Allow", dialog.methods),
            (420, _) => head.line("Unsupported", &lacking.unwrap_or_default()),
            (500, _) => head.number("Retry-After", seconds),
            (_, _) => {}
        };
        cx.respond(server, status, None, write, b"");
        true
    }
}

/// Finds the early dialog of a request that comes from a known address of the peer.
fn early_dialog(
    table: &CallTable,
    core: &Core,
    flow: &Flow,
    message: &Message<'_>,
) -> Option<EarlyDialogFacts> {
    let tag = core.minter.read_tag(message.to_tag()?)?;
    let found = core.tags.get(&tag.bits)?;
    let bridge = &table.get(found.key)?.bridge;
    let client = &bridge.dialing()?.client;
    let is_meant = client.invites_as(tag.bits) && client.knows(flow.peer.ip());
    let offer = client.early_offer(message).filter(|_| is_meant)?;
    Some(EarlyDialogFacts {
        key: found.key,
        leg: found.leg,
        offer,
        is_sips: client
            .sent()
            .is_some_and(|sent| is_sips(sent.uri.as_bytes())),
        methods: to_peer(bridge.role(found.leg)),
    })
}

/// Returns the status of the answer.
fn status_of(message: &Message<'_>, offer: OurOffer) -> u16 {
    match message.method() {
        Method::Update if !has_sdp(message) => 200,
        // RFC 3311 §5.2: 491 while our own offer is unanswered. No answer to another offer is known before the other side has answered.
        Method::Update => match offer {
            OurOffer::Open => 491,
            OurOffer::Answered => 500,
        },
        // RFC 3261 §14.2.
        Method::Invite => 491,
        // A BYE ends the early dialog alone: the INVITE has its own final answer (§15).
        Method::Info | Method::Options | Method::Bye => 200,
        // Neither agent nor destination is there to read it, and the dialog goes on.
        Method::Message => 480,
        // REFER is accepted once the call is up.
        Method::Refer => 403,
        Method::Prack | Method::Cancel | Method::Ack | Method::Notify => 481,
        Method::Subscribe | Method::Publish | Method::Register => 405,
        Method::Other => 501,
    }
}
