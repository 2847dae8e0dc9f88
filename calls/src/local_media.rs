//! Our own media on the agent's side: echo, spoken code, bots. Answers with G.711 and accepts every change of the caller that it can.

use std::net::SocketAddr;
use std::sync::Arc;

use trunkline_model::record::HangupBy;
use trunkline_sip::dialog::sdp::{self, Audio};
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::bridge::Bridge;
use super::call::Call;
use super::call_status::CallStatus;
use super::context::Cx;
use super::dial_failure::refusal_lines;
use super::effect::{AgreedMedia, Effect, MediaRecord};
use super::hangup::CallEnd;
use super::has_sdp;
use super::hold::Hold;
use super::ids::CallRef;
use super::leg::{ForkDialog, Leg, LegState, LocalMedia, SipPeer};
use super::refusal::Reason;
use super::relay::Relay;
use super::runtime_invite::FIRST_FORK;

mod media_peer;

/// Reason why our media can't accept a body.
#[derive(Debug)]
pub(crate) enum UnacceptableBody {
    /// It isn't SDP.
    OtherType,
    /// It has a content coding.
    Encoded,
    /// Its offer can't be met.
    NoCommonMedia(String),
}

impl UnacceptableBody {
    const fn status(&self) -> u16 {
        match self {
            Self::OtherType | Self::Encoded => 415,
            Self::NoCommonMedia(_) => 488,
        }
    }

    /// End of a call whose first offer it is.
    const fn end(&self) -> CallEnd {
        let reason = Reason::NoCommonMedia;
        CallEnd {
            status: reason.unanswered(),
            sip_code: self.status(),
            reason: Some(reason),
            by: HangupBy::Platform,
            cause: None,
        }
    }

    /// Writes the cause, and for a 415 the bodies that are accepted (RFC 3261 §21.4.13).
    fn lines(&self, head: &mut Head<'_>) {
        let (warning, cause) = match self {
            Self::OtherType => (399, "Only a body of type application/sdp is accepted here"),
            Self::Encoded => (399, "Only a body without Content-Encoding is accepted here"),
            Self::NoCommonMedia(cause) => (304, cause.as_str()),
        };
        if self.status() == 415 {
            head.line("Accept", b"application/sdp");
            head.line("Accept-Encoding", b"identity");
        }
        head.fmt("Warning", format_args!("{warning} trunkline \"{cause}\""));
    }

    /// Refuses the change that came with it.
    pub(crate) fn reject(&self, cx: &mut Cx<'_>, server: ServerTx) {
        cx.respond(server, self.status(), None, |head| self.lines(head), b"");
    }

    /// A body that isn't SDP and must not be ignored (RFC 3261 §8.2.3).
    fn of(message: &Message<'_>) -> Option<Self> {
        let value = |name| message.first(name).map(str::from_utf8);
        let is_optional = value(HeaderName::ContentDisposition).is_some_and(|disposition| {
            disposition.is_ok_and(|it| it.to_ascii_lowercase().contains("handling=optional"))
        });
        if message.body().is_empty() || is_optional {
            return None;
        }
        let is_encoded = value(HeaderName::ContentEncoding)
            .is_some_and(|coding| coding.is_ok_and(|it| !it.eq_ignore_ascii_case("identity")));
        if is_encoded {
            Some(Self::Encoded)
        } else {
            (!has_sdp(message)).then_some(Self::OtherType)
        }
    }
}

impl LocalMedia {
    /// Our SDP for a message: an answer to its offer, or an offer of ours if it has none. `before` is the SDP that the peer has of us.
    fn body(
        &mut self,
        hold: &Hold,
        before: &[u8],
        message: &Message<'_>,
    ) -> Result<(Vec<u8>, Option<Audio>), UnacceptableBody> {
        if let Some(no) = UnacceptableBody::of(message) {
            return Err(no);
        }

        let Some(local) = self.local else {
            return Err(UnacceptableBody::NoCommonMedia("no media".into()));
        };
        if !has_sdp(message) {
            self.offered = true;
            let offer = self.offer_at(local, before);
            return Ok((hold.crossing_sdp(&offer).into_owned(), None));
        }

        // An offer that is refused uses up no version (RFC 3264 §8).
        let (session, version) = (self.session, self.version + 1);
        let answer = sdp::answer_audio(message.body(), local, session, version)
            .map_err(|no| UnacceptableBody::NoCommonMedia(no.to_string()))?;
        self.version = version;
        let body = hold.crossing_sdp(&answer.body).into_owned();
        Ok((body, answer.audio))
    }

    /// An offer of ours, inside the call, to a peer that has `before` of us.
    fn offer(&mut self, before: &[u8]) -> Option<Vec<u8>> {
        Some(self.offer_at(self.local?, before))
    }

    fn offer_at(&mut self, local: SocketAddr, before: &[u8]) -> Vec<u8> {
        self.version += 1;
        sdp::offer_audio_after(before, local, self.session, self.version)
    }
}

impl Bridge {
    /// The SDP for a message of media of our own.
    pub(crate) fn local_body(
        &mut self,
        hold: &Hold,
        message: &Message<'_>,
    ) -> Result<(Vec<u8>, Option<Audio>), UnacceptableBody> {
        let before = self.told_to_trunk();
        match self.local_mut() {
            Some(media) => media.body(hold, &before, message),
            None => Err(UnacceptableBody::NoCommonMedia("no media of ours".into())),
        }
    }

    /// An offer of media of our own, inside the call.
    pub(crate) fn local_offer(&mut self) -> Option<Vec<u8>> {
        let before = self.told_to_trunk();
        self.local_mut()?.offer(&before)
    }

    /// Closes our media on the agent's side: the call is over, even if answers are still missing.
    pub(crate) fn close_media(&mut self, cx: &mut Cx<'_>, ids: &CallRef) {
        let closed = self.closed_media(ids);
        let local = self.legs.iter_mut().filter_map(Leg::local_mut);
        let is_open = local.filter_map(|media| media.local.take()).count() > 0;
        if is_open {
            cx.core.effects.push_back(closed);
        }
    }

    /// Effect that closes our media; its figures go to the call's record.
    pub(crate) const fn closed_media(&self, ids: &CallRef) -> Effect {
        Effect::CloseMedia {
            call: self.key,
            record: Some(MediaRecord {
                call: ids.call,
                org: ids.org,
            }),
        }
    }

    /// Begins the dialog with the caller in which we answer ourselves; true if it exists.
    pub(crate) fn begin_local_dialog(&mut self, cx: &mut Cx<'_>, slot: Slot) -> bool {
        let id = self.trunk_id();
        if self.has_fork(id, FIRST_FORK) {
            return true;
        }

        let tag = self.mint_tag(cx, slot, id);
        let incoming = self.incoming();
        let dialog = incoming.and_then(|incoming| incoming.dialog(&tag));
        let (Some(dialog), Some(trunk)) = (dialog, self.legs.sip_mut(id)) else {
            return false;
        };

        trunk
            .dialogs
            .push(ForkDialog::new(FIRST_FORK, dialog, None));
        true
    }

    /// The SDP that the peer on the trunk has of us; empty before the first.
    fn told_to_trunk(&self) -> Arc<[u8]> {
        let told = self.trunk().and_then(SipPeer::shared_local_sdp);
        told.map_or_else(Arc::default, Arc::clone)
    }
}

impl Relay<'_> {
    /// Sets address and codec of our media's peer, unless the audio is kept for a bot that isn't attached yet.
    pub(crate) fn update_media(&mut self, cx: &mut Cx<'_>, audio: Option<Audio>) {
        // A peer acknowledges its last INVITE after our BYE too, with an SDP if we made the offer; our media are closed by then.
        let Some(audio) = audio.filter(|_| self.bridge.status() != CallStatus::Over) else {
            return;
        };

        // The callee of an outbound call has answered before the bot: until the bot is attached, the callee would hear an echo.
        if self.bridge.bot_mut().is_some_and(|bot| bot.keeps(audio)) {
            return;
        }

        let mut remote = audio.remote;
        let Some(signalling) = self.bridge.trunk().map(|trunk| trunk.flow.peer) else {
            return;
        };

        let sources = media_peer::sources(&cx.core.config.addresses, remote, signalling);
        if let Err(refusal) = sources {
            let (call, org) = (self.ids.call, self.ids.org);
            tracing::info!(call.id = %call, org.id = %org, peer = %remote, reason = refusal.code(), "no RTP is sent to what the SDP names");
        }

        if self.holding.hold.is_closed() || sources.is_err() {
            // Port 0 disables the echo, and no silence is detected.
            remote.set_port(0);
        }

        let sources = sources.unwrap_or([signalling.ip(); 2]);
        let may_differ = self.bridge.local().is_some_and(|media| media.from_any);
        let from_any = may_differ && media_peer::is_elsewhere(audio.remote.ip(), sources);
        let media = AgreedMedia {
            remote,
            payload: audio.payload,
            telephone_event: audio.telephone_event,
            direction: audio.direction,
            sources,
            from_any,
        };

        cx.core.effects.push_back(Effect::UpdateMedia {
            call: self.bridge.key,
            media,
        });
    }

    /// Takes the caller's change of media, Contact and session timer. Returns our SDP for the 200.
    fn take_change(
        &mut self,
        cx: &mut Cx<'_>,
        renewal: Option<SessionTimer>,
        message: &Message<'_>,
    ) -> Result<Vec<u8>, UnacceptableBody> {
        let (body, audio) = self.bridge.local_body(&self.holding.hold, message)?;

        let trunk = self.bridge.trunk_mut();
        if let Some(held) = trunk.and_then(|trunk| trunk.dialogs.first_mut()) {
            held.dialog.refresh_target(message);
        }
        self.update_media(cx, audio);
        if let Some(mut leg) = self.bridge.at(self.bridge.trunk_id()) {
            leg.take_renewal(cx, renewal);
        }
        self.bridge
            .legs
            .remember_sdp(self.bridge.trunk_id(), 0, &body);
        Ok(body)
    }

    /// Answers a re-INVITE or UPDATE of the caller here.
    pub(crate) fn answer_change(
        &mut self,
        cx: &mut Cx<'_>,
        renewal: Option<SessionTimer>,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        let body = match self.take_change(cx, renewal, message) {
            Ok(body) => body,
            Err(no) => return no.reject(cx, server),
        };

        let trunk = self.bridge.trunk_id();
        self.holding.hear_proposed(self.bridge, trunk);
        let Some(leg) = self.bridge.legs.get_mut(trunk) else {
            return;
        };
        let content = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
        let cseq = message.cseq().number;
        match message.method() == Method::Update {
            true => leg.accept_change(cx, server, &body, content),
            false => leg.accept_reinvite(cx, (server, cseq), &body, None, content),
        }
    }
}

impl Call {
    /// Handles our RTP address: the callee is called, or the caller answered; refuses the call if no port was free.
    pub(crate) fn on_media_open(&mut self, cx: &mut Cx<'_>, local: Option<SocketAddr>) {
        match self.bridge.status() {
            CallStatus::Over if local.is_some() => {
                let closed = self.bridge.closed_media(&self.ids);
                return cx.core.effects.push_back(closed);
            }
            CallStatus::Over | CallStatus::Answered | CallStatus::Up => return,
            CallStatus::SettingUp => {}
        }

        let Some(local) = local else {
            return self.refuse(cx, Reason::NoMediaPort);
        };
        let media = self.bridge.local_mut();
        if let Some(outbound) = self.outbound.as_deref_mut() {
            let (offer, patience) = (
                outbound.offer(self.ids.call, media, local),
                outbound.ringing_timeout,
            );
            self.bridge.set_offer(cx, offer, patience);
            return self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
        }

        let Some(media) = media else {
            return;
        };
        media.local = Some(local);
        match self.bridge.bot().is_some() {
            true => self.ring_for_bot(cx),
            false => self.answer_with_media(cx),
        }
    }

    /// Answers the caller with media of our own.
    pub(crate) fn answer_with_media(&mut self, cx: &mut Cx<'_>) {
        let id = self.bridge.trunk_id();
        let Some((body, audio)) = self.agree_on_media(cx) else {
            return;
        };

        self.relaying().update_media(cx, audio);
        if !self.bridge.begin_local_dialog(cx, self.ids.slot) {
            return self.refuse(cx, Reason::BadRequest);
        }

        let Some(incoming) = self.bridge.legs.take_incoming(id) else {
            return;
        };

        self.bridge.keep_only(cx, FIRST_FORK);
        cx.release_incoming(&incoming);

        let content = |head: &mut Head<'_>, _: &str| head.line("Content-Type", b"application/sdp");
        let mut relay = self.relaying();
        if relay.accept_caller(cx, FIRST_FORK, &incoming, &body, None, content) {
            self.on_answered(cx, Box::default());
        }
    }

    /// Returns our SDP for the caller's INVITE; `None` if its offer can't be met and was refused.
    pub(crate) fn agree_on_media(&mut self, cx: &mut Cx<'_>) -> Option<(Vec<u8>, Option<Audio>)> {
        let id = self.bridge.trunk_id();
        let incoming = self.bridge.legs.take_incoming(id)?;
        let agreed = self
            .bridge
            .local_body(&self.holding.hold, incoming.invite());
        self.bridge.legs.set_state(id, LegState::Incoming(incoming));
        match agreed {
            Ok(agreed) => Some(agreed),
            Err(no) => {
                let lines = |head: &mut Head<'_>| {
                    no.lines(head);
                    refusal_lines(head, Reason::NoCommonMedia);
                };
                self.refuse_with(cx, no.end(), None, lines, b"");
                None
            }
        }
    }
}
