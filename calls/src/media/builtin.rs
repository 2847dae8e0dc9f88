//! The built-in agent of a call: gives the machine that runs its flow the events of the call, and carries out the actions that it requests.

use trunkline_model::builtin::Key;
use trunkline_sip::moment::Moment;

use super::bot::{BotCall, BotProgress};
use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::flow::{Action, Builtin, Machine, TransferFailure};
use crate::leg::bot_state::Bot;
use crate::leg::call_status::CallStatus;
use crate::media::bot;
use crate::parts::ids::{CallKey, CallTimer};

/// Passes a key of the peer to the built-in agent.
pub(crate) fn on_key(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>, event: u8) -> BotProgress {
    match Key::of_event(event) {
        Some(key) => run_builtin(bot, cx, of, |machine, now| machine.handle_key(key, now)),
        None => BotProgress::Nothing,
    }
}

/// Handles the timer of the built-in agent.
pub(crate) fn on_builtin_timer(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>) -> BotProgress {
    if let Some(builtin) = bot.builtin_mut() {
        builtin.timer = None;
    }
    run_builtin(bot, cx, of, Machine::handle_timeout)
}

/// Handles a transfer that the flow has requested and that has failed, or whose outcome is unknown.
pub(crate) fn on_untransferred(
    bot: &mut Bot,
    cx: &mut Cx<'_>,
    of: &BotCall<'_>,
    why: TransferFailure,
) -> BotProgress {
    run_builtin(bot, cx, of, |machine, now| {
        machine.handle_transfer_failed(why, now)
    })
}

/// Gives the machine an input, and carries out the actions that it requests.
pub(crate) fn run_builtin(
    bot: &mut Bot,
    cx: &mut Cx<'_>,
    of: &BotCall<'_>,
    input: impl FnOnce(&mut Machine, Moment),
) -> BotProgress {
    if of.status == CallStatus::Over {
        // Our BYE has no answer yet: the peer doesn't hear the flow any more.
        stop_builtin(bot, cx);
        return BotProgress::Nothing;
    }

    let Some(builtin) = bot.builtin_mut() else {
        return BotProgress::Nothing;
    };
    input(&mut builtin.machine, cx.now);

    let (call, org) = (of.key, of.ids.org);
    while let Some(action) = builtin.machine.poll_action() {
        match action {
            Action::Play { serial, sound } => cx.core.effects.push_back(Effect::PlaySound {
                call,
                org,
                serial,
                sound,
            }),
            Action::Transfer(destination) => {
                builtin.wanted = Some(destination);
                cx.core.effects.push_back(Effect::HandOff { call });
            }
            // Either one is the machine's last action.
            Action::NextRuntime => return bot::leave_builtin(bot, cx, of),
            Action::HangUp => {
                stop_timer(builtin, cx);
                return BotProgress::HungUp;
            }
        }
    }

    set_timer(builtin, cx, call);
    BotProgress::Nothing
}

/// Stops the built-in agent: another runtime follows, or none.
pub(crate) fn stop_builtin(bot: &mut Bot, cx: &mut Cx<'_>) {
    if let Some(builtin) = bot.builtin_mut() {
        stop_timer(builtin, cx);
    }
}

/// Sets the timer to what the machine waits for.
fn set_timer(builtin: &mut Builtin, cx: &mut Cx<'_>, call: CallKey) {
    let due = builtin.machine.due();
    if builtin.timer.map(|(_, due)| due) == due {
        return;
    }
    stop_timer(builtin, cx);
    builtin.timer = due.map(|due| {
        let timer = cx.schedule(call, due.since(cx.now), CallTimer::Builtin);
        (timer, due)
    });
}

fn stop_timer(builtin: &mut Builtin, cx: &mut Cx<'_>) {
    if let Some((timer, _)) = builtin.timer.take() {
        cx.cancel_timer(&mut Some(timer));
    }
}
