//! The built-in agent of a call: gives the machine that runs its flow what happens in the call, and carries out the actions that it asks for.

use trunkline_model::builtin::Key;
use trunkline_model::handoff::Report;
use trunkline_model::view::{OrgView, View};
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Calls;
use super::bridge::CallStatus;
use super::call::Call;
use super::context::Cx;
use super::effect::Effect;
use super::flow::{Action, Builtin, Machine, Untransferred};
use super::ids::{CallKey, CallTimer};
use super::leg::LocalAgent;
use super::transfer::{Chosen, TransferRequest};

impl Calls {
    /// A sound of the built-in agent has ended, or could not be played.
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

    /// The answer to [`Effect::HandOff`].
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
    fn builtin_mut(&mut self) -> Option<&mut Builtin> {
        match &mut self.bridge.local_mut()?.agent {
            LocalAgent::Bot(bot) => bot.builtin_mut(),
            LocalAgent::Echo | LocalAgent::Code(_) => None,
        }
    }

    /// The call is up.
    pub(crate) fn start_builtin(&mut self, cx: &mut Cx<'_>) {
        self.run_builtin(cx, Machine::handle_start);
    }

    /// The peer has pressed a key; false where no built-in agent hears it.
    pub(crate) fn press_builtin(&mut self, cx: &mut Cx<'_>, event: u8) -> bool {
        let is_heard = self.builtin_mut().is_some();
        if let Some(key) = Key::of_event(event) {
            self.run_builtin(cx, |machine, now| machine.handle_key(key, now));
        }
        is_heard
    }

    pub(crate) fn on_builtin_timer(&mut self, cx: &mut Cx<'_>) {
        if let Some(builtin) = self.builtin_mut() {
            builtin.timer = None;
        }
        self.run_builtin(cx, Machine::handle_timeout);
    }

    /// A transfer of the caller has ended without it.
    pub(crate) fn tell_builtin(&mut self, cx: &mut Cx<'_>, why: Untransferred) {
        self.run_builtin(cx, |machine, now| machine.handle_untransferred(why, now));
    }

    /// Gives the machine an input, and carries out what it asks for.
    fn run_builtin(&mut self, cx: &mut Cx<'_>, input: impl FnOnce(&mut Machine, Moment)) {
        if self.bridge.status() == CallStatus::Over {
            // Our BYE has no answer yet: nobody hears the flow any more.
            return self.stop_builtin(cx);
        }
        let Some(builtin) = self.builtin_mut() else {
            return;
        };
        input(&mut builtin.machine, cx.now);

        // An action may end the agent's part in the call.
        while let Some(builtin) = self.builtin_mut()
            && let Some(action) = builtin.machine.poll_action()
        {
            self.act(cx, action);
        }
        self.set_builtin_timer(cx);
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
                if let Some(builtin) = self.builtin_mut() {
                    builtin.wanted = Some(destination);
                    cx.core.effects.push_back(Effect::HandOff { call });
                }
            }
            Action::NextRuntime => self.leave_builtin(cx),
            Action::HangUp => self.agent_hangs_up(cx),
        }
    }

    fn set_builtin_timer(&mut self, cx: &mut Cx<'_>) {
        let key = self.bridge.key;
        let Some(builtin) = self.builtin_mut() else {
            return;
        };
        let due = builtin.machine.due();
        if builtin.timer.map(|(_, due)| due) == due {
            return;
        }
        if let Some((timer, _)) = builtin.timer.take() {
            cx.cancel_timer(&mut Some(timer));
        }
        builtin.timer = due.map(|due| {
            let timer = cx.schedule(key, due.since(cx.now), CallTimer::Builtin);
            (timer, due)
        });
    }

    /// Stops the agent's timer: another runtime follows, or nobody.
    pub(crate) fn stop_builtin(&mut self, cx: &mut Cx<'_>) {
        if let Some(builtin) = self.builtin_mut()
            && let Some((timer, _)) = builtin.timer.take()
        {
            cx.cancel_timer(&mut Some(timer));
        }
    }

    /// Begins the transfer that the machine has asked for.
    fn hand_off(&mut self, cx: &mut Cx<'_>, org: Option<&OrgView>) {
        let wanted = self.builtin_mut().and_then(|builtin| builtin.wanted.take());
        let Some(wanted) = wanted else { return };

        let begun = org.and_then(|org| {
            let chosen = match wanted {
                Some(name) => Chosen::Name(name),
                None => Chosen::Name(first(org, self.agent)?),
            };
            let ask = TransferRequest {
                chosen,
                report: Report::default(),
            };
            self.transfer(cx, org, ask).ok()
        });
        if begun.is_none() {
            self.tell_builtin(cx, Untransferred::Failed);
        }
    }
}

/// Name of the first destination of an agent.
fn first(org: &OrgView, agent: Uuid) -> Option<Box<str>> {
    let own = org.destinations.get(&agent)?;
    Some(own.first()?.name.clone())
}
