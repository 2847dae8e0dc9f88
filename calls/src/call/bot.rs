//! The bot of the call, or its built-in agent: consequences of its inputs for the call, and the runtimes over SIP before and after it.

use trunkline_model::handoff::Report;
use trunkline_model::settings::Runtime;
use trunkline_model::view::OrgView;
use trunkline_sip::dialog::sdp;
use uuid::Uuid;

use super::Call;
use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::features::transfer::{DestinationChoice, TransferRequest};
use crate::flow::TransferFailure;
use crate::leg::bot_state::Bot;
use crate::leg::call_status::CallStatus;
use crate::leg::dial::Dialing;
use crate::leg::runtime_chain::RuntimeChain;
use crate::leg::runtime_invite::InvitedCall;
use crate::leg::{LegState, LocalAgent, LocalMedia, runtime_invite};
use crate::media::bot::{BotCall, BotProgress};
use crate::media::{bot, local_media};

impl Call {
    /// Gives the bot an input, and carries out the consequence for the call.
    pub(crate) fn with_bot(
        &mut self,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut Bot, &mut Cx<'_>, &BotCall<'_>) -> BotProgress,
    ) {
        let local = self.bridge.local();
        let of = BotCall {
            key: self.bridge.key,
            ids: &self.ids,
            status: self.bridge.status(),
            is_outbound: self.outbound.is_some(),
            is_open: local.is_some_and(|media| media.local.is_some()),
            answered: self.lifetime.answered(),
        };

        // A call without a bot ignores its inputs: another agent may have replaced it meanwhile.
        let Some(bot) = self.bridge.bot_mut() else {
            return;
        };

        match act(bot, cx, &of) {
            BotProgress::Nothing => {}
            BotProgress::Dial(mut dial) => {
                let (ids, direction) = (&self.ids, self.direction());
                let prefix = &cx.core.config.header_prefix;
                let parameters =
                    bot::parameters(&self.bridge, ids, self.contact, direction, prefix);
                dial.parameters = parameters;
                let call = self.bridge.key;
                cx.core.effects.push_back(Effect::DialBot { call, dial });
            }

            BotProgress::Attached => match self.bridge.status() {
                // The caller's 200 waits for the bot: before it, a runtime over SIP may still follow, or a refusal.
                CallStatus::SettingUp if self.bridge.incoming().is_some() => {
                    let progress = local_media::answer_with_media(&mut self.relay(), cx);
                    self.apply_answer(cx, progress);
                }

                // An outbound call is up before its bot is, and so is a call whose first bot has gone.
                CallStatus::Up => {
                    let kept = self.bridge.bot_mut().and_then(|bot| bot.kept.take());
                    local_media::update_media(&mut self.relay(), cx, kept);
                    self.with_bot(cx, bot::start);
                }
                // The callee still rings, or the caller's ACK is to come.
                CallStatus::SettingUp | CallStatus::Answered | CallStatus::Over => {}
            },

            // The destination of a transfer is being called, and a call dials one peer at a time.
            BotProgress::Sip(_) if self.transfer.goes_on() => self.agent_hangs_up(cx),
            BotProgress::Sip(runtime) => self.invite_in_place_of_bot(cx, runtime),
            // A transfer that was ordered meanwhile goes on.
            BotProgress::NoneLeft { .. } if self.transfer.goes_on() => self.agent_hangs_up(cx),

            BotProgress::NoneLeft { reason, has_spoken } => {
                // A callee that no agent has spoken with was never joined: its call has failed.
                if self.outbound.is_some() && !has_spoken {
                    // Disconnected, the call is in its set-up again, and `hang_up` records it as failed.
                    self.bridge.legs.disconnect();
                }
                self.hang_up(cx, reason);
            }
            BotProgress::HungUp => self.agent_hangs_up(cx),
        }
    }

    /// A runtime over SIP follows a bot that can't be reached: the caller's media go to it directly.
    fn invite_in_place_of_bot(&mut self, cx: &mut Cx<'_>, runtime: Runtime) {
        let Some((mut bot, local)) = bot::take_bot(&mut self.bridge) else {
            return;
        };
        bot.attempts.pass_on(cx);
        if let Some(outbound) = self.outbound.as_deref_mut() {
            outbound.follow(bot.chain, runtime, local);
            // A callee that hasn't answered yet is connected with the runtime once it does.
            if self.bridge.legs.disconnect() {
                // A set-up deadline takes the place of the longest duration until the runtime has answered.
                self.lifetime.stop(cx);
                let heard = bot::leave_media(&mut self.bridge, &self.ids, local);
                self.invite_runtime(cx, heard);
            }
            return;
        }

        cx.core
            .effects
            .push_back(local_media::closed_media(&self.bridge, &self.ids));

        let (caller, called) = bot.chain.parties();
        let (key, krisp) = (self.bridge.key, bot.chain.wants_krisp());
        let to = InvitedCall::new(key, &self.ids, [called, caller], krisp);
        let config = &cx.core.config;
        let invite = runtime_invite::invite(&runtime, bot.chain.namer(), config, &to);
        let Some(dialing) = invite.map(|(client, says)| Dialing::runtime(client, says)) else {
            return;
        };

        let dialing = dialing.following().leading_to(Some(bot.chain));
        let agent = self.bridge.agent_id();
        self.bridge
            .legs
            .set_state(agent, LegState::Dialing(dialing));
        self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
    }

    /// A bot follows runtimes over SIP that can't be reached.
    pub(super) fn return_to_bot(&mut self, cx: &mut Cx<'_>, chain: RuntimeChain) {
        let rules = chain.media_rules().clone();
        let agent = LocalAgent::Bot(Box::new(Bot::new(chain)));
        let mut media = LocalMedia::of(self.ids.call, agent, rules);
        let Some(outbound) = self.outbound.as_deref_mut() else {
            bot::set_local(&mut self.bridge, media);
            // Continued by `on_media_open`.
            return bot::open_media(&self.bridge, cx);
        };

        // The callee has answered, and has the SDP of our media.
        media.local = outbound.media.take();
        media.version = 1;
        bot::set_local(&mut self.bridge, media);
        self.joining.end();
        let (trunk, agent) = (self.bridge.trunk_id(), self.bridge.agent_id());
        self.bridge.legs.connect(trunk, agent);
        self.lifetime
            .limit(cx, self.bridge.key, self.outbound.as_deref());
        let offer = local_media::told_to_trunk(&self.bridge);
        let answer = self.bridge.trunk_sdp();
        let audio = answer.and_then(|answer| sdp::read_answer(&offer, answer));
        local_media::update_media(&mut self.relay(), cx, audio);
        self.with_bot(cx, bot::dial);
    }

    /// Begins the transfer that the built-in agent's flow has requested.
    pub(crate) fn hand_off(&mut self, cx: &mut Cx<'_>, org: Option<&OrgView>) {
        let builtin = self.bridge.bot_mut().and_then(Bot::builtin_mut);
        let Some(wanted) = builtin.and_then(|builtin| builtin.wanted.take()) else {
            return;
        };

        let begun = org.and_then(|org| {
            let chosen = match wanted {
                Some(name) => DestinationChoice::Name(name),
                None => DestinationChoice::Name(first(org, self.ids.agent)?),
            };
            let ask = TransferRequest {
                chosen,
                report: Report::default(),
            };
            self.transfer(cx, org, ask).ok()
        });
        // During a transfer the flow has no timer of its own (`Machine::due`), so it must learn that no transfer has begun.
        if begun.is_none() {
            self.with_bot(cx, |bot, cx, of| {
                bot::on_untransferred(bot, cx, of, TransferFailure::Failed)
            });
        }
    }
}

/// Name of the first destination of an agent.
fn first(org: &OrgView, agent: Uuid) -> Option<Box<str>> {
    let own = org.destinations.get(&agent)?;
    Some(own.first()?.name.clone())
}
