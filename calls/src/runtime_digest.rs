//! A runtime that challenges the INVITE: it is sent again with the user name and password of the agent's runtime, within the same
//! Call-ID (RFC 3261 §22.2). What its dialog may be answered with afterwards is the leg's ([`LegCredentials`]).

use std::net::IpAddr;
use std::sync::Arc;

use trunkline_model::settings::RuntimeLogin;
use trunkline_model::view::PeerLogin;
use trunkline_sip::auth::client::Asking;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::slot::CallId;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::attempt::ATTEMPT_PATIENCE;
use super::call::{Call, Setup, Side, Speaker};
use super::context::{CallTimer, Cx};
use super::credentials::{LegCredentials, PeerAddresses, Stage};
use super::large::{Datagram, InviteSent};
use super::proofs::Proofs;
use super::provisional_relay::ProvisionalRelay;
use super::target::Target;

/// INVITEs to one target: the first, and those with credentials.
const MAX_REQUESTS: u8 = 5;

/// The credentials of a runtime while it is being called.
#[derive(Debug)]
pub(crate) struct RuntimeDigest {
    credentials: LegCredentials,
    /// Of the target that is being tried.
    call_id: Option<CallId>,
    requests: u8,
    proofs: Proofs,
    addresses: PeerAddresses,
}

impl RuntimeDigest {
    pub(crate) fn new(login: &RuntimeLogin) -> Box<Self> {
        let login = PeerLogin {
            user: login.user.clone(),
            password: login.password.clone(),
        };
        Box::new(Self {
            credentials: LegCredentials::of_runtime(Arc::new(login)),
            call_id: None,
            requests: 0,
            proofs: Proofs::default(),
            addresses: PeerAddresses::default(),
        })
    }

    /// Another target is tried, by a call of its own; it and those after it came of one look-up.
    pub(crate) fn begin<'t>(&mut self, call_id: CallId, targets: impl Iterator<Item = &'t Target>) {
        (self.call_id, self.requests, self.proofs) = (Some(call_id), 1, Proofs::default());
        self.addresses = PeerAddresses::default();
        targets.for_each(|target| self.addresses.add(target.address.ip()));
    }

    /// The runtime answers from there.
    pub(crate) fn heard(&mut self, address: IpAddr) {
        self.addresses.add(address);
    }

    /// The Call-ID of the target that is being tried.
    pub(crate) const fn call_id(&self) -> Option<CallId> {
        self.call_id
    }

    /// Authorization and Proxy-Authorization of the next INVITE.
    pub(crate) fn lines(&self, head: &mut Head<'_>) {
        self.proofs.lines(head);
    }
}

impl Call {
    /// Sends the INVITE again with the answer to the runtime's challenge; false if it isn't answered.
    pub(crate) fn prove_to_runtime(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) -> bool {
        let Some(setup) = self.setup.as_deref_mut() else {
            return false;
        };
        let (Some(mut digest), Some(target)) = (setup.digest.take(), setup.current.clone()) else {
            return false;
        };
        let body = setup.invite().body();
        let asking = Asking {
            method: "INVITE",
            uri: target.uri.as_bytes(),
            body,
        };
        let at = (Stage::Initial, target.address.ip());
        let RuntimeDigest {
            credentials,
            proofs,
            requests,
            ..
        } = &mut *digest;
        let answered = *requests < MAX_REQUESTS
            && credentials.answer(cx, proofs, message, &asking, at).is_ok();
        *requests += 1;
        let cseq = *requests;
        setup.digest = Some(digest);
        let flow = cx.flow_to(&target).ok().filter(|_| answered);
        let Some(flow) = flow else {
            return false;
        };

        // Early dialogs are over with the refusal (§12.3).
        setup
            .relay
            .iter_mut()
            .for_each(ProvisionalRelay::drop_queued);
        cx.cancel_timer(&mut setup.attempt_timer);
        if let Speaker::Runtime(leg) = &mut self.speaker {
            leg.dialogs.clear();
        }
        self.runtime_cseq = cseq;
        setup.client = None;
        setup.datagram = Datagram::Excluded;
        let sent = self.send_invite(cx, flow, &target);
        let more = self.more_targets();
        let Some(setup) = self.setup.as_deref_mut() else {
            return false;
        };
        match sent {
            InviteSent::Invite(client) => {
                setup.client = Some(client);
                if more {
                    let timer = cx.schedule(self.key, ATTEMPT_PATIENCE, CallTimer::Attempt);
                    setup.attempt_timer = Some(timer);
                }
            }
            // With the credentials it is too large for a datagram: the target begins anew, by a connection.
            InviteSent::Connecting => {
                setup.datagram = Datagram::of(&target, flow);
                setup.resolving = Some(target.uri);
            }
            InviteSent::Nothing => self.advance(cx),
        }
        true
    }

    /// The runtime has answered: inside the dialog its challenges are answered where all of the way is its own.
    pub(crate) fn keep_runtime_credentials(&mut self, setup: &Setup) {
        let (Some(digest), Speaker::Runtime(leg)) = (setup.digest.as_deref(), &mut self.speaker)
        else {
            return;
        };
        let addresses = digest.addresses.as_slice();
        let held = digest.credentials.answered_at(&setup.hosts, addresses);
        leg.credentials = Some(Box::new(held));
    }

    /// What the ACK repeats of the INVITE's credentials (§13.2.2.4), where they may go.
    pub(crate) fn runtime_ack_lines(
        &mut self,
        cx: &mut Cx<'_>,
        fork: u8,
        setup: &Setup,
    ) -> Vec<u8> {
        let mut lines = Vec::new();
        let Some(digest) = setup.digest.as_deref() else {
            return lines;
        };
        let destination = self.next_hop(cx, Side::Agent, fork);
        let (Some(destination), Speaker::Runtime(leg)) = (destination, &self.speaker) else {
            return lines;
        };
        let addresses = digest.addresses.as_slice();
        let held = digest.credentials.answered_at(&setup.hosts, addresses);
        let dialog = leg.dialog_ref(fork);
        if dialog.is_some_and(|dialog| held.lead_home(dialog, destination)) {
            digest.lines(&mut Head::new(&mut lines));
        }
        lines
    }

    /// ACK to the runtime's 2xx while the call is being set up.
    pub(crate) fn acknowledge_runtime(&mut self, cx: &mut Cx<'_>, fork: u8, client: ClientTx) {
        let setup = self.setup.take();
        let lines = setup
            .as_deref()
            .map(|setup| self.runtime_ack_lines(cx, fork, setup));
        self.setup = setup;
        let (cseq, lines) = (u32::from(self.runtime_cseq), lines.unwrap_or_default());
        self.send_ack(cx, Side::Agent, fork, client, cseq, Some((&lines, b"")));
    }
}
