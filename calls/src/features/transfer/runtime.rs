//! REFER from the agent's runtime: limited to the agent's destinations, carried out like any transfer, with true NOTIFYs (RFC 3515, RFC 4488).

use trunkline_model::destinations::Destination;
use trunkline_model::handoff::Report;
use trunkline_model::settings::{ReferFormat, TransferTarget, Via};
use trunkline_model::view::OrgView;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::refer_to::ReferTo;
use trunkline_sip::header::replaces::Replaces;
use trunkline_sip::wire::print::{Head, reason_phrase};
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::event::{NewTransfer, Requester, Subscription};
use super::last::LastTransfer;
use super::order::Meant;
use super::own::route_to_own;
use super::plan::Plan;
use super::request::TransferError;
use super::transferee::Transferee;
use crate::core::context::Cx;
use crate::leg::NewRequest;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::Purpose;
use crate::parts::ids::LegId;
use crate::parts::role::LegRole;

/// Duration of the subscription that a REFER begins, in seconds: longer than a transfer usually takes, since SUBSCRIBE, which would extend
/// it, isn't served.
const EXPIRES: u32 = 600;

/// Reason for which a runtime's REFER is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ReferRefusal {
    Unreadable,
    /// The dialog to replace is one with us, which no other host knows, and it can't be reached from here.
    Ours,
    /// The trunk names phone numbers by `tel:`, which can't name a dialog.
    TelAlone,
    TransferError(TransferError),
}

impl ReferRefusal {
    const fn status(self) -> u16 {
        match self {
            Self::Unreadable => 400,
            Self::Ours
            | Self::TelAlone
            | Self::TransferError(
                TransferError::NotAssigned | TransferError::NotAllowed | TransferError::NotAnswered,
            ) => 403,
            Self::TransferError(TransferError::NotUp) => 481,
            Self::TransferError(TransferError::UnderWay) => 491,
        }
    }
}

impl std::fmt::Display for ReferRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable => f.write_str("one Refer-To with a URI that can be called is needed"),
            Self::Ours => f.write_str("that dialog can't be replaced from here"),
            Self::TelAlone => f.write_str("a tel URI can't carry Replaces"),
            Self::TransferError(unable) => unable.fmt(f),
        }
    }
}

/// REFER inside a call.
#[derive(Copy, Clone)]
pub(crate) struct ReferRequest<'r> {
    pub(crate) leg: LegId,
    pub(crate) fork: u8,
    pub(crate) server: ServerTx,
    pub(crate) message: &'r Message<'r>,
    /// The call's org; `None` if it is gone.
    pub(crate) org: Option<&'r OrgView>,
}

impl LastTransfer {
    /// Answers a REFER inside the call. Returns the transfer that it begins.
    pub(crate) fn on_refer(
        &self,
        bridge: &Bridge,
        cx: &mut Cx<'_>,
        of: &Transferee<'_>,
        refer: &ReferRequest<'_>,
    ) -> Option<NewTransfer> {
        let (server, message) = (refer.server, refer.message);

        // A peer that has replaced the agent is no runtime.
        let org = refer
            .org
            .filter(|_| bridge.role(refer.leg) == LegRole::Agent);
        let meant = org.ok_or(TransferError::NotAssigned).and_then(|org| {
            self.may_begin(bridge)?;
            Ok(org)
        });
        let meant = meant.map_err(ReferRefusal::TransferError);
        let meant = meant.and_then(|org| Ok((org, of.meant_by(cx, org, message)?)));

        let (org, meant) = match meant {
            Ok(meant) => meant,
            Err(refused) => {
                refuse(cx, server, refused);
                return None;
            }
        };

        let wants_news = !is_false(message.first(HeaderName::ReferSub));
        let leg = bridge.legs.sip(refer.leg);
        let contact = leg.map(|leg| cx.contact(&leg.flow, leg.is_sips));
        let contact = contact.unwrap_or_default();
        let lines = |head: &mut Head<'_>| {
            head.line("Contact", contact.as_bytes());
            if !wants_news {
                head.line("Refer-Sub", b"false");
            }
        };
        // The 202 goes first: the transfer begins with a NOTIFY in this dialog.
        cx.respond(server, 202, None, lines, b"");

        let subscription = Subscription {
            fork: refer.fork,
            // A second subscription in one dialog needs an id (RFC 3515 §2.4.6).
            id: (self.referrals() > 0).then_some(message.cseq().number),
        };
        let requester = Requester::Runtime(wants_news.then_some(subscription));
        Some(of.transfer_to(cx, org, meant, Report::default(), requester))
    }
}

impl Transferee<'_> {
    /// Returns the destination, and the dialog to replace there: the runtime's own, with a destination that it has consulted.
    fn meant_by(
        &self,
        cx: &Cx<'_>,
        org: &OrgView,
        message: &Message<'_>,
    ) -> Result<Meant, ReferRefusal> {
        let mut values = message.all(HeaderName::ReferTo);
        // RFC 3515 §2.4.2: "zero or more than one Refer-To header field values" are 400.
        let value = values.next().filter(|_| values.next().is_none());
        let refer_to = value
            .and_then(ReferTo::parse)
            .ok_or(ReferRefusal::Unreadable)?;
        if refer_to.method() != b"INVITE" {
            return Err(ReferRefusal::Unreadable);
        }
        // Before the agent's destinations: a dialog with us is at no host that these could name.
        if let Some(value) = refer_to.replaces()
            && let Some(meant) = self.own_meant(cx, &refer_to, &value)?
        {
            return Ok(meant);
        }

        let own = org.destinations.get(&self.ids.agent);
        let own = own.map(|own| &**own).unwrap_or_default();
        let country = org
            .routing
            .trunk
            .as_ref()
            .and_then(|trunk| trunk.default_country);

        // A runtime reaches no more than the API would let its agent reach.
        let destination = Destination::meant(own, &refer_to.uri, country)
            .ok_or(ReferRefusal::TransferError(TransferError::NotAssigned))?;
        let replaces = match refer_to.replaces() {
            Some(value) => Some(replaced(org, &destination.target, &value)?),
            None => None,
        };
        let plan = self
            .plan(cx, org, destination, replaces.as_deref())
            .map_err(ReferRefusal::TransferError)?;

        Ok(Meant {
            destination: destination.clone(),
            replaces,
            plan,
        })
    }

    /// Returns the far end of another call, if the dialog is the runtime's with us. `None` for a dialog with another host.
    fn own_meant(
        &self,
        cx: &Cx<'_>,
        refer_to: &ReferTo<'_>,
        value: &[u8],
    ) -> Result<Option<Meant>, ReferRefusal> {
        let replaces = plain(value).ok_or(ReferRefusal::Unreadable)?;
        let minter = &cx.core.minter;
        let is_from_ours = minter.read_tag(replaces.from_tag).is_some();
        let Some(place) = minter.read_tag(replaces.to_tag) else {
            return if is_from_ours {
                Err(ReferRefusal::Ours)
            } else {
                Ok(None)
            };
        };

        // The INVITE goes to a listener of this node, so a dialog of another node is out of reach.
        let is_here = place.node == minter.node() && !is_from_ours && !replaces.early_only;
        let own = route_to_own(cx, self.ids.org, &replaces).filter(|_| is_here);
        let own = own.ok_or(ReferRefusal::Ours)?;
        let uri = String::from_utf8_lossy(refer_to.name_addr.uri);
        let (uri, _) = uri.split_once('?').unwrap_or((&*uri, ""));

        Ok(Some(Meant {
            destination: Destination {
                id: None,
                name: "another call".into(),
                target: TransferTarget::Sip(uri.into()),
                via: Via::default(),
            },
            // The route's own INVITE has Replaces, and no REFER is sent.
            replaces: None,
            plan: Plan::own(Box::new(own)),
        }))
    }
}

/// Sends a runtime that has sent REFER the destination's status.
pub(crate) fn notify_runtime(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    subscription: Subscription,
    status: u16,
    is_last: bool,
) {
    // Its subscription ends with the call.
    if bridge.status() == CallStatus::Over {
        return;
    }

    let Subscription { fork, id } = subscription;
    let fragment = format!("SIP/2.0 {status} {}\r\n", reason_phrase(status));
    let event = id.map_or_else(|| "refer".to_owned(), |id| format!("refer;id={id}"));
    let notify = NewRequest {
        body: fragment.as_bytes(),
        ..NewRequest::bare(fork, Method::Notify, Purpose::Own)
    };
    let lines = |head: &mut Head<'_>| {
        head.line("Event", event.as_bytes());
        if is_last {
            head.line("Subscription-State", b"terminated;reason=noresource");
        } else {
            head.fmt(
                "Subscription-State",
                format_args!("active;expires={EXPIRES}"),
            );
        }
        head.line("Content-Type", b"message/sipfrag;version=2.0");
    };
    let agent = bridge.agent_id();
    // A NOTIFY that can't be sent is lost: the runtime's subscription then ends with its time or its dialog.
    bridge.send(cx, agent, &notify, lines);
}

/// Returns a value of Replaces that can be written again.
fn plain(value: &[u8]) -> Option<Replaces<'_>> {
    let is_plain = value.iter().all(u8::is_ascii_graphic);
    Replaces::parse(value).filter(|_| is_plain)
}

/// Returns the value of Replaces, if it can be passed to the destination.
fn replaced(org: &OrgView, target: &TransferTarget, value: &[u8]) -> Result<String, ReferRefusal> {
    let replaces = plain(value).ok_or(ReferRefusal::Unreadable)?;
    let format = org.trunk.as_ref().map(|trunk| trunk.refer_to);
    match (target, format.unwrap_or_default()) {
        (TransferTarget::Phone(_), ReferFormat::Tel) => Err(ReferRefusal::TelAlone),
        (TransferTarget::Phone(_), ReferFormat::Sip) | (TransferTarget::Sip(_), _) => {
            Ok(replaces.to_string())
        }
    }
}

fn refuse(cx: &mut Cx<'_>, server: ServerTx, refused: ReferRefusal) {
    let warning = |head: &mut Head<'_>| {
        head.fmt("Warning", format_args!("399 trunkline \"{refused}\""));
    };
    cx.respond(server, refused.status(), None, warning, b"");
}

fn is_false(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"false"))
}
