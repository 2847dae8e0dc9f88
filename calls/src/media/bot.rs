//! A bot as the agent of a call: it speaks over a WebSocket that this node opens, and the caller's audio flows by way of us. Here is when the
//! WebSocket is opened, what the bot learns of the call, and what follows where it can't be reached or closes. Its messages and its audio pass
//! outside of this crate.
//!
//! The built-in agent takes a bot's place: it needs no WebSocket. `flow::Machine` runs its flow, gets the events of the call, and requests actions that
//! are carried out here.

use std::net::SocketAddr;

use trunkline_model::address::Refusal;
use trunkline_model::attempt::AttemptLeg;
use trunkline_model::builtin::Key;
use trunkline_model::record::Direction;
use trunkline_model::settings::{OnClose, Runtime, Wake};
use trunkline_model::ws_url::WsUrl;
use trunkline_sip::dialog::sdp;
use trunkline_sip::fault::Fault;
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::flow::{Action, Builtin, Machine, TransferFailure};
use crate::invite::attempts::{AttemptOwner, AttemptResult, AttemptTarget, DnsFault};
use crate::leg::bot_state::{Bot, State};
use crate::leg::bridge::Bridge;
use crate::leg::call_end::CallRefusal;
use crate::leg::call_status::CallStatus;
use crate::leg::provisional_relay::{Delivery, Provisional};
use crate::leg::relay::Relay;
use crate::leg::runtime_chain::ChainStage;
use crate::leg::{LegPeer, LegState, LocalAgent, LocalMedia, Session, caller, runtime_invite};
use crate::media::local_media;
use crate::parts::crossing::own_headers;
use crate::parts::ids::{CallKey, CallRef, CallTimer};
use crate::parts::origin::OwnOrigin;
use crate::parts::refusal::Reason;
use crate::sdp_of;

pub use crate::core::effect::BotDial;
pub use crate::invite::attempts::BotGone;

/// Octets of all parameters of a call, names and values: what platforms let a stream carry. One that has no room is left out.
const PARAMETERS: usize = 500;

/// A bot's WebSocket that could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BotFailure {
    /// The address that was tried last.
    pub address: Option<SocketAddr>,
    /// The fault.
    pub fault: BotFault,
}

/// Reason why a bot's WebSocket isn't open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BotFault {
    /// The host's name led to no address.
    Unresolved(DnsFault),
    /// The address policy forbids the address.
    NotAllowed(Refusal),
    /// The connection wasn't opened, or broke.
    Broken(Fault),
    /// The handshake took too long.
    Silence,
    /// The handshake was answered with something else than 101.
    Handshake(Box<str>),
    /// This node has no room for another bot.
    Overloaded,
}

impl From<BotFault> for AttemptResult {
    fn from(fault: BotFault) -> Self {
        match fault {
            BotFault::Unresolved(fault) => Self::Unresolved(fault),
            BotFault::NotAllowed(refusal) => Self::NotAllowed(refusal),
            BotFault::Broken(fault) => Self::Broken(fault),
            BotFault::Silence => Self::Silence,
            BotFault::Handshake(what) => Self::Handshake(what),
            BotFault::Overloaded => Self::Overloaded,
        }
    }
}

/// The call of a bot, as the bot needs it.
pub(crate) struct BotCall<'c> {
    pub(crate) key: CallKey,
    pub(crate) ids: &'c CallRef,
    pub(crate) status: CallStatus,
    /// We have called the peer.
    pub(crate) is_outbound: bool,
    /// Our media are open.
    pub(crate) is_open: bool,
    pub(crate) answered: Option<Moment>,
}

impl BotCall<'_> {
    const fn attempt_owner(&self) -> AttemptOwner {
        AttemptOwner {
            call: self.ids.call,
            org: self.ids.org,
            leg: AttemptLeg::Runtime,
        }
    }
}

/// Consequence of a bot's input for its call.
#[derive(Debug)]
#[must_use]
pub(crate) enum BotProgress {
    /// None.
    Nothing,
    /// A WebSocket is to be opened, with the call's parameters.
    Dial(Box<BotDial>),
    /// The bot is there: it gets the call once the call is up.
    Attached,
    /// A runtime over SIP is next.
    Sip(Runtime),
    /// No runtime is left to try, for that reason.
    NoneLeft {
        reason: Reason,
        /// A bot of the list has had the call.
        has_spoken: bool,
    },
    /// The agent has hung up.
    HungUp,
}

/// Dials the bot, once our media are open.
pub(crate) fn dial(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>) -> BotProgress {
    match bot.state {
        State::Waiting if of.is_open => next(bot, cx, of),
        State::Waiting
        | State::Dialling(_)
        | State::Attached
        | State::Started
        | State::Builtin(_)
        | State::Over => BotProgress::Nothing,
    }
}

/// Dials the bot if it is to be woken as soon as the callee of an outbound call rings.
pub(crate) fn wake(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>) -> BotProgress {
    match bot.chain.wake() {
        Wake::Ringing => dial(bot, cx, of),
        Wake::Answer => BotProgress::Nothing,
    }
}

/// Goes to the next of the agent's runtimes.
pub(crate) fn next(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>) -> BotProgress {
    let (org, agent) = (of.ids.org, of.ids.agent);
    // The caller has our answer: a runtime over SIP would have to be given its media first.
    let bots_alone = !of.is_outbound && of.status != CallStatus::SettingUp;
    let stage = match bots_alone {
        true => bot.chain.next_bot(agent, org),
        false => bot.chain.next(agent, org),
    };
    match stage {
        Some(ChainStage::Bot(url)) => open_socket(bot, cx, of, url),
        Some(ChainStage::Builtin) => take_builtin(bot, cx, of),
        Some(ChainStage::Sip(runtime)) => BotProgress::Sip(runtime),
        None => BotProgress::NoneLeft {
            reason: match bot.attempts.are_forbidden() {
                true => Reason::PeerNotAllowed,
                false => Reason::RuntimeUnreachable,
            },
            has_spoken: bot.has_spoken,
        },
    }
}

fn open_socket(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>, url: Box<str>) -> BotProgress {
    let dial = BotDial {
        org: of.ids.org,
        session: of.ids.session,
        protocol: bot.chain.protocol(),
        named: bot.chain.named_by(&url),
        url: url.clone(),
        // Filled in by `Call::with_bot`, which knows the contact.
        parameters: Vec::new(),
    };
    bot.attempts.begin(cx);
    bot.state = State::Dialling(url);
    BotProgress::Dial(Box::new(dial))
}

/// The built-in agent is next: nothing has to be dialled for it.
fn take_builtin(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>) -> BotProgress {
    bot.attempts.pass_on(cx);
    match Builtin::of(bot.chain.runtime()) {
        Some(builtin) => {
            bot.state = State::Builtin(Box::new(builtin));
            BotProgress::Attached
        }
        // The list names the built-in agent and has no flow for it.
        None => next(bot, cx, of),
    }
}

/// The built-in agent makes room for the next runtime.
pub(crate) fn leave_builtin(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>) -> BotProgress {
    stop_builtin(bot, cx);
    if !bot.chain.has_bot() {
        return BotProgress::HungUp;
    }
    bot.state = State::Waiting;
    next(bot, cx, of)
}

/// Handles the result of dialling a bot; `None` if the call doesn't want it any more.
pub(crate) fn on_dialled(
    bot: &mut Bot,
    cx: &mut Cx<'_>,
    of: &BotCall<'_>,
    dialled: Result<SocketAddr, BotFailure>,
) -> Option<BotProgress> {
    let State::Dialling(url) = &bot.state else {
        return None;
    };
    if of.status == CallStatus::Over {
        return None;
    }

    let url = url.clone();
    let owner = of.attempt_owner();
    Some(match dialled {
        Ok(address) => {
            let tried = tried(&url, Some(address));
            bot.attempts.attached(cx, owner, tried);
            bot.state = State::Attached;
            bot.reached = Some((url, address));
            BotProgress::Attached
        }
        Err(BotFailure { address, fault }) => {
            let came = fault.into();
            let tried = tried(&url, address);
            bot.attempts.failed(cx, owner, tried, &came);
            next(bot, cx, of)
        }
    })
}

/// Gives the bot the call, which is up.
pub(crate) fn start(bot: &mut Bot, cx: &mut Cx<'_>, of: &BotCall<'_>) -> BotProgress {
    match bot.state {
        State::Attached => {
            bot.state = State::Started;
            bot.has_spoken = true;
            cx.core.effects.push_back(Effect::StartBot {
                call: of.key,
                answered_at: of.answered.unwrap_or(cx.now),
            });
            BotProgress::Nothing
        }
        State::Builtin(_) => {
            bot.has_spoken = true;
            run_builtin(bot, cx, of, Machine::handle_start)
        }
        State::Waiting | State::Dialling(_) | State::Started | State::Over => BotProgress::Nothing,
    }
}

/// Handles the end of the bot's WebSocket.
pub(crate) fn on_closed(
    bot: &mut Bot,
    cx: &mut Cx<'_>,
    of: &BotCall<'_>,
    how: BotGone,
) -> BotProgress {
    let was_open = matches!(bot.state, State::Attached | State::Started);
    if !was_open || of.status == CallStatus::Over {
        return BotProgress::Nothing;
    }
    // Before the call is up, a bot that leaves is one that can't be reached.
    let is_up = of.status != CallStatus::SettingUp;
    let ends = is_up && (bot.chain.on_close() == OnClose::HangUp || !bot.chain.has_bot());
    // A bot that closes, with none after it, has hung up. Any other bot that goes has failed its call.
    let reached = bot.reached.take();
    if let Some((url, address)) = reached.filter(|_| !ends || how != BotGone::Closed) {
        let (owner, tried) = (of.attempt_owner(), tried(&url, Some(address)));
        let came = AttemptResult::Gone(how);
        bot.attempts.failed(cx, owner, tried, &came);
    }

    if ends {
        bot.state = State::Over;
        return BotProgress::HungUp;
    }
    bot.state = State::Waiting;
    next(bot, cx, of)
}

/// Sends the caller 180, or 183 if it is to hear no ringing; false if its INVITE can't begin a dialog.
pub(crate) fn ring(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    ids: &CallRef,
    status: u16,
    delivery: Delivery,
) -> bool {
    if !local_media::begin_local_dialog(bridge, cx, ids.slot) {
        return false;
    }

    if status == 180 {
        cx.note_ringing(ids);
    }
    let ringing = Provisional {
        status,
        has_sdp: false,
        head: Box::default(),
        body: Box::default(),
    };
    if let Some(mut leg) = bridge.at(bridge.trunk_id()) {
        caller::tell_caller(&mut leg, cx, runtime_invite::FIRST_FORK, delivery, ringing);
    }
    true
}

/// Facts of the call as its bot gets them. The caller's own headers come last, as far as there is room.
pub(crate) fn parameters(
    bridge: &Bridge,
    ids: &CallRef,
    contact: Option<Uuid>,
    direction: Direction,
    prefix: &str,
) -> Vec<(Box<str>, Box<str>)> {
    let mut parameters: Vec<(Box<str>, Box<str>)> = Vec::new();
    let Some(bot) = bridge.bot() else {
        return parameters;
    };
    let (caller, called) = bot.chain.parties();
    let mut room = PARAMETERS;
    let mut add = |name: &str, value: &str| {
        if let Some(left) = room.checked_sub(name.len() + value.len()) {
            room = left;
            parameters.push((name.into(), value.into()));
        }
    };

    add("direction", direction.as_str());
    add("session_id", &ids.session.to_string());
    add("agent_id", &ids.agent.to_string());
    if let Some(contact) = contact {
        add("contact_id", &contact.to_string());
    }
    add("from_number", caller);
    add("to_number", called);
    if let Some(incoming) = bridge.incoming() {
        for (name, value) in own_headers(incoming.invite(), prefix) {
            add(&name, &value);
        }
    }
    parameters
}

/// Takes the bot, and the address of our media, from the agent's leg, which a runtime over SIP gets.
pub(crate) fn take_bot(bridge: &mut Bridge) -> Option<(Box<Bot>, Option<SocketAddr>)> {
    let leg = bridge.legs.get_mut(bridge.agent_id())?;
    match std::mem::replace(&mut leg.peer, LegPeer::Unknown) {
        LegPeer::Media(LocalMedia {
            agent: LocalAgent::Bot(bot),
            local,
            ..
        }) => {
            leg.state = LegState::Gone;
            Some((bot, local))
        }
        LegPeer::Unknown | LegPeer::Sip(_) | LegPeer::Media(_) => None,
    }
}

/// Opens media of our own for the caller.
pub(crate) fn open_media(bridge: &Bridge, cx: &mut Cx<'_>) {
    let Some(flow) = bridge.trunk().map(|trunk| trunk.flow) else {
        return;
    };
    let near = flow.local.ip();
    let offer = bridge.incoming().map(|incoming| incoming.invite().body());
    let offer = offer.map(sdp_of).filter(|offer| !offer.is_empty());
    cx.core.effects.push_back(Effect::OpenMedia {
        call: bridge.key,
        listener: Some(flow.listener),
        near,
        version: offer.map(|offer| sdp::version_for(offer, near)),
    });
}

/// Keeps the origin of our SDP for the peer on the trunk, whose next SDP is a runtime's. Returns the peer's own.
pub(crate) fn leave_media(
    bridge: &mut Bridge,
    ids: &CallRef,
    local: Option<SocketAddr>,
) -> Box<[u8]> {
    let Some(trunk) = bridge.trunk_mut() else {
        return Box::default();
    };
    let origin = local.map(|local| OwnOrigin::of_call(ids.call, local));
    trunk.origin = origin.map(Box::new);
    trunk.remote_sdp.as_deref().unwrap_or_default().into()
}

/// Gives the agent's leg media of our own.
pub(crate) fn set_local(bridge: &mut Bridge, media: LocalMedia) {
    if let Some(leg) = bridge.legs.get_mut(bridge.agent_id()) {
        leg.peer = LegPeer::Media(media);
        leg.state = LegState::Ready(Session::default());
    }
}

/// Rings at the caller, whose bot is dialled next: our media are open.
///
/// # Errors
/// The caller's INVITE is to be refused.
pub(crate) fn ring_for_bot(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
) -> Result<(), CallRefusal<'static>> {
    // An offer that can't be met is refused before a bot is dialled for it.
    if local_media::agree_on_media(relay)?.is_none() {
        return Ok(());
    }

    let (bot, trunk) = (relay.bridge.bot(), relay.bridge.trunk());
    let is_dialled = bot.is_some_and(|bot| !bot.chain.is_builtin_next());
    // A bot that follows another one finds the caller ringing.
    let is_first = trunk.is_some_and(|trunk| trunk.dialogs.is_empty());
    // An outbound call has no caller to ring at.
    let Some(incoming) = relay.bridge.incoming().filter(|_| is_dialled && is_first) else {
        return Ok(());
    };

    let delivery = incoming.relay.delivery(None);
    match ring(relay.bridge, cx, relay.ids, 180, delivery) {
        true => Ok(()),
        false => Err(Reason::BadRequest.into()),
    }
}

fn tried(url: &str, address: Option<SocketAddr>) -> AttemptTarget<'_> {
    let is_secure = WsUrl::parse(url).is_some_and(|url| url.is_secure);
    let transport = match is_secure {
        true => Transport::Tls,
        false => Transport::Tcp,
    };
    AttemptTarget::url(url, transport, address)
}

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
            Action::NextRuntime => return leave_builtin(bot, cx, of),
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
