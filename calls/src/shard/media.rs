//! Inputs of media of our own, each brought to its call: ports, silence and keys of the audio, WebSockets of bots, sounds of the built-in agent, the
//! end of a spoken code.

use std::net::SocketAddr;

use trunkline_bounds::NoShare;
use trunkline_model::view::View;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;

use super::Calls;
use crate::core::effect::Effect;
use crate::invite::attempts::BotGone;
use crate::media::bot;
use crate::media::bot::{BotFailure, BotProgress};
use crate::parts::ids::CallKey;
use crate::parts::refusal::Reason;
use crate::session;

impl Calls {
    /// Handles the result of [`Effect::OpenMedia`]: our RTP address, if there was a port for the call's org.
    pub fn handle_media_open(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        local: Result<SocketAddr, NoShare>,
        now: Moment,
    ) {
        let is_known = self.with(key, endpoint, now, |call, cx| call.on_media_open(cx, local));
        // A known call that ended in this very step has closed the port itself.
        if !is_known && local.is_ok() {
            self.core.effects.push_back(Effect::CloseMedia {
                call: key,
                record: None,
            });
        }
    }

    /// Handles silence of the caller's media: the caller is asked whether it is still there, since it may be muted.
    pub fn handle_media_silent(&mut self, endpoint: &mut Endpoint, key: CallKey, now: Moment) {
        self.with(key, endpoint, now, |call, cx| {
            // Media of ours may have been replaced by a runtime's while this input was on its way.
            if call.bridge.is_local() {
                session::doubt_silent(&mut call.bridge, cx);
            }
        });
    }

    /// Handles the end of a silence that was reported: the caller is there, whatever its answers to requests were.
    pub fn handle_media_heard(&mut self, endpoint: &mut Endpoint, key: CallKey, now: Moment) {
        self.with(key, endpoint, now, |call, cx| {
            session::trust_heard(&mut call.bridge, cx)
        });
    }

    /// Handles the answer to [`Effect::DialBot`]; false if the call doesn't want the bot any more.
    pub fn handle_bot(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        dialled: Result<SocketAddr, BotFailure>,
        now: Moment,
    ) -> bool {
        // Stays false if the call is gone: the engine then closes the WebSocket.
        let mut is_wanted = false;
        self.with(key, endpoint, now, |call, cx| {
            call.with_bot(cx, |bot, cx, of| {
                let progress = bot::on_dialled(bot, cx, of, dialled);
                is_wanted = progress.is_some();
                progress.unwrap_or(BotProgress::Nothing)
            });
        });
        is_wanted
    }

    /// Handles a bot that has closed its WebSocket, or broken its protocol.
    pub fn handle_bot_closed(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        how: BotGone,
        now: Moment,
    ) {
        self.with(key, endpoint, now, |call, cx| {
            call.with_bot(cx, |bot, cx, of| bot::on_closed(bot, cx, of, how));
        });
    }

    /// Handles the end of a sound of the built-in agent, or that it could not be played.
    pub fn handle_played(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        serial: u32,
        now: Moment,
    ) {
        self.with(key, endpoint, now, |call, cx| {
            call.with_bot(cx, |bot, cx, of| {
                bot::run_builtin(bot, cx, of, |machine, now| {
                    machine.handle_played(serial, now)
                })
            });
        });
    }

    /// Handles the answer to [`Effect::HandOff`].
    pub fn handle_hand_off(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        key: CallKey,
        now: Moment,
    ) {
        let call = self.table.get(key);
        let org = call.and_then(|call| view.org(call.ids.org));
        self.with(key, endpoint, now, |call, cx| {
            call.hand_off(cx, org.map(|org| &**org));
        });
    }

    /// Handles a key in the caller's audio (RFC 4733), for the built-in agent or the echo agent.
    pub fn handle_media_digit(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        key: CallKey,
        digit: u8,
        now: Moment,
    ) {
        let call = self.table.get(key);
        let org = call.and_then(|call| view.org(call.ids.org));
        self.with(key, endpoint, now, |call, cx| {
            call.press(cx, org.map(|org| &**org), digit);
        });
    }

    /// Ends a verification call once its code has been spoken.
    pub fn handle_spoken(&mut self, endpoint: &mut Endpoint, key: CallKey, now: Moment) {
        self.with(key, endpoint, now, |call, cx| {
            call.hang_up(cx, Reason::Operator);
        });
    }
}
