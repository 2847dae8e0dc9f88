//! The REFER: where it leads, what it says, and the PBX's answer to it (RFC 3515 §2.4, RFC 3892, RFC 4488).

use std::fmt::Write as _;
use std::time::Duration;

use trunkline_model::settings::{ReferFormat, TransferTarget};
use trunkline_model::transfer::{State, Way};
use trunkline_model::view::{OrgView, OutboundRoute};
use trunkline_sip::auth::client::Asking;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::header::uri::{Escaped, Uri};
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::Wait;
use crate::call::Call;
use crate::context::Cx;
use crate::credentials::{Stage, Unanswerable};
use crate::own_request::{Pending, Purpose};
use crate::proofs::Proofs;
use crate::refusal::Reason;
use crate::request_origin::RequestOrigin;

/// REFERs of one transfer: glare, a lost connection and a challenge ask for another one.
const MOST_REFERS: u8 = 5;
/// Longest time from the acceptance of a REFER to its first NOTIFY (Timer N, RFC 6665 §4.1.2.4).
const FIRST_NOTIFY: Duration = Duration::from_secs(32);

impl Call {
    /// The value of Refer-To: a phone number as the trunk wants it named, a SIP URI as given, with the dialog that is to be replaced
    /// there, and with the context inside.
    pub(super) fn refer_to(
        &self,
        target: &TransferTarget,
        replaces: Option<&str>,
        org: &OrgView,
        prefix: &str,
    ) -> String {
        let trunk = org.trunk.as_ref();
        let format = trunk.map(|trunk| trunk.refer_to).unwrap_or_default();
        let mut value = match (target, format) {
            (TransferTarget::Sip(uri), _) => format!("<{uri}"),
            (TransferTarget::Phone(number), ReferFormat::Tel) => return format!("<tel:{number}>"),
            (TransferTarget::Phone(number), ReferFormat::Sip) => {
                let set = trunk.and_then(|trunk| trunk.refer_host.as_deref());
                let host = set.map_or_else(|| self.peer_host(org), str::to_owned);
                format!("<sip:{number}@{host}")
            }
        };
        let mut separator = if has_headers(&value[1..]) { '&' } else { '?' };

        if let Some(replaces) = replaces {
            let _ = write!(
                value,
                "{separator}Replaces={}",
                Escaped(replaces.as_bytes())
            );
            separator = '&';
        }

        if trunk.is_none_or(|trunk| trunk.refer_headers_in_uri) {
            for (name, id) in self.context() {
                let name = Escaped(name.as_bytes());
                let _ = write!(value, "{separator}{prefix}-{name}={id}");
                separator = '&';
            }
        }

        value.push('>');
        value
    }

    /// Context that a transfer carries to its destination.
    pub(super) fn context(&self) -> impl Iterator<Item = (&'static str, uuid::Uuid)> {
        let contact = self.contact.map(|contact| ("CONTACT-ID", contact));
        [("SESSION-ID", self.session), ("AGENT-ID", self.agent)]
            .into_iter()
            .chain(contact)
    }

    /// Host and port of the peer's Contact, or of the trunk that the call went out by.
    pub(super) fn peer_host(&self, org: &OrgView) -> String {
        let peer = self.outbound_route(org).and_then(|way| way.peer.as_ref());
        if let Some((host, port)) = peer {
            return format!("{host}:{port}");
        }
        let Some(trunk) = self.trunk() else {
            return String::new();
        };
        let contact = trunk.first_dialog().map(Dialog::remote_target);
        let uri = contact.and_then(|contact| Uri::parse(contact).ok());
        uri.map_or_else(
            || trunk.flow.peer.to_string(),
            |uri| match uri.port {
                Some(port) => format!("{}:{port}", uri.host),
                None => uri.host.to_string(),
            },
        )
    }

    /// The trunk by which the call went out.
    pub(super) fn outbound_route<'o>(&self, org: &'o OrgView) -> Option<&'o OutboundRoute> {
        self.outbound.as_deref()?;
        org.outbound_routes.get(&self.agent).map(|way| &**way)
    }

    /// Asks the PBX; with the answers to its challenges, if it has made any.
    pub(super) fn send_refer(&mut self, cx: &mut Cx<'_>) {
        let Some(fork) = self.fork() else {
            return;
        };

        // By now the peer may be at another address.
        let destination = self.next_hop(cx, self.trunk_id(), fork);
        let (Some(transfer), Some(trunk)) = (self.transfer.as_deref(), self.trunk()) else {
            return;
        };
        let Some(dialog) = trunk.first_dialog() else {
            return;
        };

        let credentials = trunk.credentials.as_ref().zip(destination);
        let proves = credentials
            .is_some_and(|(credentials, destination)| credentials.lead_home(dialog, destination));
        let prefix = &cx.core.config.header_prefix;
        let mut lines = Vec::new();
        let mut head = Head::new(&mut lines);

        head.line("Refer-To", transfer.refer_to.as_bytes());
        head.line("Referred-By", dialog.local_address());
        for (name, id) in self.context() {
            head.fmt(&format!("{prefix}-{name}"), format_args!("{id}"));
        }

        if proves {
            transfer.proofs.lines(&mut head);
        }

        let sent = transfer.sent < MOST_REFERS
            && self.send_on_leg(
                cx,
                self.trunk_id(),
                fork,
                (Method::Refer, "REFER"),
                (Purpose::Transfer, false, RequestOrigin::Ours),
                b"",
                |head| head.raw(&lines),
            );

        let cseq = self.pending.last().map_or(0, |pending| pending.cseq);
        match self.transfer.as_deref_mut() {
            Some(transfer) if sent => {
                transfer.sent += 1;
                transfer.cseq = cseq;
                self.wait_for(cx, Wait::Answer, None);
            }
            Some(_) => self.refer_refused(cx, 503),
            None => {}
        }
    }

    /// The PBX's final answer to the REFER.
    pub(crate) fn on_refer_answer(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let Some(transfer) = self.transfer.as_deref() else {
            return;
        };

        if pending.cseq != transfer.cseq || !transfer.is_open() {
            return;
        }

        let parting = transfer.wait == Wait::Parting;
        match message.status() {
            200..=299 => {
                self.refer_accepted(cx);
                // It will say nothing (RFC 4488 §4).
                if is_without_news(message) {
                    self.settle(cx, State::Unknown, None);
                }
            }
            401 | 407 if !parting && self.answers(cx, pending, message) => self.send_refer(cx),
            491 if !parting => {
                let wait = self.glare_wait(cx, self.trunk_id(), pending.fork);
                self.wait_for(cx, Wait::Again, Some(wait));
            }
            400.. if !parting && message.status() != 481 && self.bridges_after(cx, message) => {}
            status => {
                self.refer_refused(cx, status);
                // Nothing is left of the dialog (RFC 5057 §5.1).
                if status == 481 {
                    self.hang_up(cx, Reason::DialogGone);
                }
            }
        }
    }

    /// The PBX won't: the destination is called from here, if that is wanted then and can be.
    fn bridges_after(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) -> bool {
        let plan = self.transfer.as_deref().map(|transfer| &transfer.plan);
        plan.is_some_and(|plan| plan.bridges_after(message.status())) && self.begin_bridge(cx)
    }

    /// The REFER was never answered, or its way broke.
    pub(crate) fn on_refer_unanswered(&mut self, cx: &mut Cx<'_>, pending: &Pending, status: u16) {
        let Some(transfer) = self.transfer.as_deref() else {
            return;
        };
        if pending.cseq != transfer.cseq || transfer.wait != Wait::Answer {
            return;
        }
        if status == 503 && pending.connected {
            return self.refer_anew(cx);
        }
        self.refer_refused(cx, status);
    }

    /// The PBX takes no REFER. After a bridge the outcome is that of the bridge: its status says why the destination wasn't reached, the
    /// refusal only that there is no other way.
    fn refer_refused(&mut self, cx: &mut Cx<'_>, status: u16) {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        if transfer.bridge_failure.is_some() && transfer.is_open() {
            transfer.record.way = Way::Bridge;
        }
        let status = transfer.bridge_failure.unwrap_or(status);

        self.settle(cx, State::Failed, Some(status));
    }

    /// Over another connection, where the PBX may challenge it as if it were the first.
    fn refer_anew(&mut self, cx: &mut Cx<'_>) {
        if let Some(transfer) = self.transfer.as_deref_mut() {
            transfer.proofs = Proofs::default();
        }
        self.send_refer(cx);
    }

    /// 202, or a NOTIFY that has overtaken it.
    pub(super) fn refer_accepted(&mut self, cx: &mut Cx<'_>) {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        if transfer.record.state != State::Requested {
            return;
        }
        transfer.record.state = State::Accepted;
        transfer.record.accepted_at = Some(cx.now);
        if transfer.wait != Wait::Parting {
            self.wait_for(cx, Wait::Notify, Some(FIRST_NOTIFY));
        }
        self.tell_transfer(cx);
    }

    /// Whether a challenge is answered, by the credentials of the leg.
    fn answers(&mut self, cx: &mut Cx<'_>, pending: &Pending, message: &Message<'_>) -> bool {
        let destination = self.next_hop(cx, self.trunk_id(), pending.fork);
        let Some(trunk) = self.legs.sip(self.trunk_id()) else {
            return false;
        };

        let dialog = trunk.dialog_ref(pending.fork);
        let (Some(transfer), Some(dialog), Some(destination)) =
            (self.transfer.as_deref_mut(), dialog, destination)
        else {
            return false;
        };

        let asking = Asking {
            method: "REFER",
            uri: dialog.request_uri(),
            body: b"",
        };

        let at = (Stage::InDialog(dialog), destination);
        let answered = match &trunk.credentials {
            Some(held) => held.answer(cx, &mut transfer.proofs, message, &asking, at),
            None => Err(Unanswerable::NoPair),
        };
        if let Err(why) = answered {
            self.unanswered(cx, self.trunk_id(), (why, destination), message);
        }

        answered.is_ok()
    }
}

fn is_without_news(message: &Message<'_>) -> bool {
    let told = message.first(HeaderName::ReferSub);
    told.is_some_and(|told| told.trim_ascii().eq_ignore_ascii_case(b"false"))
}

/// Whether a URI has headers. A user part may hold a question mark.
fn has_headers(uri: &str) -> bool {
    Uri::parse(uri.as_bytes()).is_ok_and(|uri| !uri.headers.is_empty())
}
