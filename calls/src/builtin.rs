//! The built-in agent of a call: gives the machine that runs its flow the events of the call, and carries out the actions that it requests.

use trunkline_model::builtin::Key;
use trunkline_model::handoff::Report;
use trunkline_model::view::{OrgView, View};
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Calls;
use super::bot_state::Bot;
use super::call::Call;
use super::call_status::CallStatus;
use super::context::Cx;
use super::effect::Effect;
use super::flow::{Action, Builtin, Machine, TransferFailure};
use super::ids::{CallKey, CallTimer};
use super::transfer::{DestinationChoice, TransferRequest};

impl Calls {
    /// Handles the end of a sound of the built-in agent, or that it could not be played.
    pub fn handle_played(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        serial: u32,
        now: Moment,
    ) {
        self.with(key, endpoint, now, |call, cx| {
            call.run_builtin(cx, |machine, now| machine.handle_played(serial, now));
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
        let slot = self.slab.get(key.index as usize);
        let org = slot.and_then(|slot| view.org(slot.call.org));
        self.with(key, endpoint, now, |call, cx| {
            call.hand_off(cx, org.map(|org| &**org));
        });
    }
}

impl Call {
    /// Passes a key of the peer to the built-in agent; false if there is none.
    pub(crate) fn press_builtin(&mut self, cx: &mut Cx<'_>, event: u8) -> bool {
        let is_heard = self.bridge.bot_mut().and_then(Bot::builtin_mut).is_some();
        if let Some(key) = Key::of_event(event) {
            self.run_builtin(cx, |machine, now| machine.handle_key(key, now));
        }
        is_heard
    }

    /// Gives the machine an input, and carries out the actions that it requests.
    pub(crate) fn run_builtin(
        &mut self,
        cx: &mut Cx<'_>,
        input: impl FnOnce(&mut Machine, Moment),
    ) {
        if self.bridge.status() == CallStatus::Over {
            // Our BYE has no answer yet: the peer doesn't hear the flow any more.
            if let Some(bot) = self.bridge.bot_mut() {
                bot.stop_builtin(cx);
            }
            return;
        }
        let Some(builtin) = self.bridge.bot_mut().and_then(Bot::builtin_mut) else {
            return;
        };
        input(&mut builtin.machine, cx.now);

        // An action may end the agent's part in the call.
        while let Some(builtin) = self.bridge.bot_mut().and_then(Bot::builtin_mut)
            && let Some(action) = builtin.machine.poll_action()
        {
            self.act(cx, action);
        }
        let key = self.bridge.key;
        if let Some(builtin) = self.bridge.bot_mut().and_then(Bot::builtin_mut) {
            builtin.set_timer(cx, key);
        }
    }

    fn act(&mut self, cx: &mut Cx<'_>, action: Action) {
        let (call, org) = (self.bridge.key, self.org);
        match action {
            Action::Play { serial, sound } => cx.core.effects.push_back(Effect::PlaySound {
                call,
                org,
                serial,
                sound,
            }),
            Action::Transfer(destination) => {
                if let Some(builtin) = self.bridge.bot_mut().and_then(Bot::builtin_mut) {
                    builtin.wanted = Some(destination);
                    cx.core.effects.push_back(Effect::HandOff { call });
                }
            }
            Action::NextRuntime => self.leave_builtin(cx),
            Action::HangUp => self.agent_hangs_up(cx),
        }
    }

    /// Begins the transfer that the machine has requested.
    fn hand_off(&mut self, cx: &mut Cx<'_>, org: Option<&OrgView>) {
        let wanted = self
            .bridge
            .bot_mut()
            .and_then(Bot::builtin_mut)
            .and_then(|builtin| builtin.wanted.take());
        let Some(wanted) = wanted else { return };

        let begun = org.and_then(|org| {
            let chosen = match wanted {
                Some(name) => DestinationChoice::Name(name),
                None => DestinationChoice::Name(first(org, self.agent)?),
            };
            let ask = TransferRequest {
                chosen,
                report: Report::default(),
            };
            self.transfer(cx, org, ask).ok()
        });
        if begun.is_none() {
            self.run_builtin(cx, |machine, now| {
                machine.handle_transfer_failed(TransferFailure::Failed, now);
            });
        }
    }
}

impl Bot {
    /// Stops the built-in agent: another runtime follows, or none.
    pub(crate) fn stop_builtin(&mut self, cx: &mut Cx<'_>) {
        if let Some(builtin) = self.builtin_mut() {
            builtin.stop_timer(cx);
        }
    }
}

impl Builtin {
    /// Sets the timer to what the machine waits for.
    fn set_timer(&mut self, cx: &mut Cx<'_>, call: CallKey) {
        let due = self.machine.due();
        if self.timer.map(|(_, due)| due) == due {
            return;
        }
        self.stop_timer(cx);
        self.timer = due.map(|due| {
            let timer = cx.schedule(call, due.since(cx.now), CallTimer::Builtin);
            (timer, due)
        });
    }

    fn stop_timer(&mut self, cx: &mut Cx<'_>) {
        if let Some((timer, _)) = self.timer.take() {
            cx.cancel_timer(&mut Some(timer));
        }
    }
}

/// Name of the first destination of an agent.
fn first(org: &OrgView, agent: Uuid) -> Option<Box<str>> {
    let own = org.destinations.get(&agent)?;
    Some(own.first()?.name.clone())
}
