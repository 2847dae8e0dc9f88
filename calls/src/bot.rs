//! A bot as the agent of a call: it speaks over a WebSocket that this node opens, and the caller's audio flows by way of us. Here is when the
//! WebSocket is opened, what the bot learns of the call, and what follows where it can't be reached or closes. Its messages and its audio pass
//! outside of this crate.

use std::net::SocketAddr;

use trunkline_model::address::Refusal;
use trunkline_model::attempt::AttemptLeg;
use trunkline_model::record::{Direction, Fact, HangupBy, Status};
use trunkline_model::settings::{OnClose, Runtime, Wake};
use trunkline_model::ws_url::WsUrl;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::fault::Fault;
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;

pub use super::attempts::BotGone;
use super::attempts::{AttemptOwner, AttemptResult, AttemptTarget, DnsFault};
use super::bot_state::{Bot, State};
use super::call::Call;
use super::call_status::CallStatus;
use super::context::Cx;
use super::crossing::own_headers;
use super::dial::Dialing;
pub use super::effect::BotDial;
use super::effect::Effect;
use super::flow::{Builtin, Machine};
use super::ids::CallKey;
use super::ids::TagOwner;
use super::leg::{ForkDialog, LegPeer, LegState, LocalAgent, LocalMedia, Session};
use super::provisional_relay::Provisional;
use super::refusal::Reason;
use super::runtime_chain::{ChainStage, RuntimeChain};
use super::{Calls, runtime_invite};

/// Octets of all parameters of a call, names and values: what platforms let a stream carry.
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

impl Calls {
    /// Handles the answer to [`Effect::DialBot`]; false if the call doesn't want the bot any more.
    pub fn handle_bot(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        dialled: Result<SocketAddr, BotFailure>,
        now: Moment,
    ) -> bool {
        let mut is_wanted = false;
        self.with(key, endpoint, now, |call, cx| {
            is_wanted = call.on_bot_dialled(cx, dialled);
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
        self.with(key, endpoint, now, |call, cx| call.on_bot_closed(cx, how));
    }
}

impl Call {
    /// Our media are open: the caller hears that it rings, and the bot is dialled.
    pub(crate) fn ring_for_bot(&mut self, cx: &mut Cx<'_>) {
        // An offer that can't be met is refused before a bot is dialled for it.
        if self.agree_on_media(cx).is_none() {
            return;
        }
        let is_dialled = self
            .bridge
            .bot()
            .is_some_and(|bot| !bot.chain.is_builtin_next());
        if is_dialled
            && self
                .bridge
                .trunk()
                .is_some_and(|trunk| trunk.dialogs.is_empty())
        {
            self.send_ringing(cx);
        }
        self.begin_runtime(cx);
    }

    fn send_ringing(&mut self, cx: &mut Cx<'_>) {
        let Some(incoming) = self.bridge.incoming() else {
            return;
        };

        let delivery = incoming.relay.delivery(None);
        if !self.begin_local_dialog(cx) {
            return self.refuse(cx, Reason::BadRequest);
        }

        cx.core.fact(Fact::Ringing {
            call: self.id,
            org: self.org,
            at: cx.now,
        });

        let ringing = Provisional {
            status: 180,
            has_sdp: false,
            head: Box::default(),
            body: Box::default(),
        };
        let trunk = self.bridge.trunk_id();
        if let Some(mut leg) = self.bridge.at(trunk) {
            leg.tell_caller(cx, runtime_invite::FIRST_FORK, delivery, ringing);
        }
    }

    /// Begins the dialog with the caller in which we answer ourselves; true if it exists.
    pub(crate) fn begin_local_dialog(&mut self, cx: &mut Cx<'_>) -> bool {
        let (id, fork) = (self.bridge.trunk_id(), runtime_invite::FIRST_FORK);
        if self
            .bridge
            .trunk()
            .is_some_and(|trunk| trunk.dialog_ref(fork).is_some())
        {
            return true;
        }

        let owner = TagOwner {
            key: self.bridge.key,
            leg: id,
        };
        let tag = cx.mint_tag(self.slot, owner);
        self.tags.push(tag.bits());

        let dialog = self
            .bridge
            .incoming()
            .and_then(|incoming| incoming.dialog(&tag));
        let (Some(dialog), Some(trunk)) = (dialog, self.bridge.legs.sip_mut(id)) else {
            return false;
        };

        trunk.dialogs.push(ForkDialog::new(fork, dialog, None));
        true
    }

    /// Dials the bot, once our media are open.
    pub(crate) fn dial_bot(&mut self, cx: &mut Cx<'_>) {
        let is_open = self
            .bridge
            .local()
            .is_some_and(|media| media.local.is_some());
        let waits = |bot: &Bot| matches!(bot.state, State::Waiting);
        if is_open && self.bridge.bot().is_some_and(waits) {
            self.next_runtime(cx);
        }
    }

    /// The callee of an outbound call rings.
    pub(crate) fn wake_bot(&mut self, cx: &mut Cx<'_>) {
        if self
            .bridge
            .bot()
            .is_some_and(|bot| bot.chain.wake() == Wake::Ringing)
        {
            self.dial_bot(cx);
        }
    }

    /// Dials the next of the agent's runtimes, or gives the call up.
    fn next_runtime(&mut self, cx: &mut Cx<'_>) {
        let (org, agent) = (self.org, self.agent);
        // The caller has our answer: a runtime over SIP would have to be given its media first.
        let bots_alone = self.outbound.is_none() && self.bridge.status() != CallStatus::SettingUp;
        let is_transferred = self.transfer.goes_on();
        let Some(bot) = self.bridge.bot_mut() else {
            return;
        };
        let stage = match bots_alone {
            true => bot.chain.next_bot(agent, org),
            false => bot.chain.next(agent, org),
        };
        match stage {
            Some(ChainStage::Bot(url)) => self.open_socket(cx, url),
            Some(ChainStage::Builtin) => self.take_builtin(cx),
            // The destination of a transfer is being called, and a call dials one peer at a time.
            Some(ChainStage::Sip(_)) if is_transferred => self.agent_hangs_up(cx),
            Some(ChainStage::Sip(runtime)) => {
                bot.attempts.pass_on(cx);
                self.invite_in_place_of_bot(cx, runtime);
            }
            None => self.on_no_runtime_left(cx),
        }
    }

    /// The built-in agent is next: nothing has to be dialled for it.
    fn take_builtin(&mut self, cx: &mut Cx<'_>) {
        let Some(bot) = self.bridge.bot_mut() else {
            return;
        };
        bot.attempts.pass_on(cx);
        match Builtin::of(bot.chain.runtime()) {
            Some(builtin) => {
                bot.state = State::Builtin(Box::new(builtin));
                self.on_bot_attached(cx);
            }
            None => self.next_runtime(cx),
        }
    }

    /// The built-in agent makes room for the next runtime.
    pub(crate) fn leave_builtin(&mut self, cx: &mut Cx<'_>) {
        let Some(bot) = self.bridge.bot_mut() else {
            return;
        };
        bot.stop_builtin(cx);
        if !bot.chain.has_bot() {
            return self.agent_hangs_up(cx);
        }
        bot.state = State::Waiting;
        self.next_runtime(cx);
    }

    fn open_socket(&mut self, cx: &mut Cx<'_>, url: Box<str>) {
        let parameters = self.parameters(&cx.core.config.header_prefix);
        let (org, session) = (self.org, self.session);
        let Some(bot) = self.bridge.bot_mut() else {
            return;
        };

        let dial = BotDial {
            org,
            session,
            protocol: bot.chain.protocol(),
            named: bot.chain.named_by(&url),
            url: url.clone(),
            parameters,
        };

        bot.attempts.begin(cx);
        bot.state = State::Dialling(url);
        cx.core.effects.push_back(Effect::DialBot {
            call: self.bridge.key,
            dial: Box::new(dial),
        });
    }

    /// Facts of the call as its bot gets them. The caller's own headers come last, as far as there is room.
    fn parameters(&self, prefix: &str) -> Vec<(Box<str>, Box<str>)> {
        let mut parameters: Vec<(Box<str>, Box<str>)> = Vec::new();
        let Some(bot) = self.bridge.bot() else {
            return parameters;
        };
        let (caller, called) = bot.chain.parties();
        let direction = match self.outbound.is_some() {
            true => Direction::Outbound,
            false => Direction::Inbound,
        };
        let mut room = PARAMETERS;
        let mut add = |name: &str, value: &str| {
            if let Some(left) = room.checked_sub(name.len() + value.len()) {
                room = left;
                parameters.push((name.into(), value.into()));
            }
        };

        add("direction", direction.as_str());
        add("session_id", &self.session.to_string());
        add("agent_id", &self.agent.to_string());
        if let Some(contact) = self.contact {
            add("contact_id", &contact.to_string());
        }
        add("from_number", caller);
        add("to_number", called);
        if let Some(incoming) = self.bridge.incoming() {
            for (name, value) in own_headers(incoming.invite(), prefix) {
                add(&name, &value);
            }
        }
        parameters
    }

    fn bot_attempt_owner(&self) -> AttemptOwner {
        AttemptOwner {
            call: self.id,
            org: self.org,
            leg: AttemptLeg::Runtime,
        }
    }

    /// Handles the result of dialling a bot; true if the call still wants it.
    fn on_bot_dialled(&mut self, cx: &mut Cx<'_>, dialled: Result<SocketAddr, BotFailure>) -> bool {
        let (owner, status) = (self.bot_attempt_owner(), self.bridge.status());
        let Some(bot) = self.bridge.bot_mut() else {
            return false;
        };
        let State::Dialling(url) = &bot.state else {
            return false;
        };

        let url = url.clone();
        if status == CallStatus::Over {
            return false;
        }

        match dialled {
            Ok(address) => {
                bot.attempts.attached(cx, owner, tried(&url, Some(address)));
                bot.state = State::Attached;
                bot.reached = Some((url, address));
                self.on_bot_attached(cx);
            }
            Err(BotFailure { address, fault }) => {
                let came = fault.into();
                bot.attempts.failed(cx, owner, tried(&url, address), &came);
                self.next_runtime(cx);
            }
        }

        true
    }

    fn on_bot_attached(&mut self, cx: &mut Cx<'_>) {
        match self.bridge.status() {
            CallStatus::SettingUp if self.bridge.incoming().is_some() => self.answer_with_media(cx),
            CallStatus::Up => {
                let kept = self.bridge.bot_mut().and_then(|bot| bot.kept.take());
                self.update_media(cx, kept);
                self.start_bot(cx);
            }
            // The callee still rings, or the caller's ACK is to come.
            CallStatus::SettingUp | CallStatus::Answered | CallStatus::Over => {}
        }
    }

    /// Gives the bot the call, which is up.
    pub(crate) fn start_bot(&mut self, cx: &mut Cx<'_>) {
        let (key, answered_at) = (self.bridge.key, self.answered.unwrap_or(cx.now));
        let Some(bot) = self.bridge.bot_mut() else {
            return;
        };
        match bot.state {
            State::Attached => {
                bot.state = State::Started;
                bot.has_spoken = true;
                cx.core.effects.push_back(Effect::StartBot {
                    call: key,
                    answered_at,
                });
            }
            State::Builtin(_) => {
                bot.has_spoken = true;
                self.run_builtin(cx, Machine::handle_start);
            }
            State::Waiting | State::Dialling(_) | State::Started | State::Over => {}
        }
    }

    fn on_bot_closed(&mut self, cx: &mut Cx<'_>, how: BotGone) {
        let (owner, status) = (self.bot_attempt_owner(), self.bridge.status());
        let Some(bot) = self.bridge.bot_mut() else {
            return;
        };
        let was_open = matches!(bot.state, State::Attached | State::Started);
        if !was_open || status == CallStatus::Over {
            return;
        }
        // Before the call is up, a bot that leaves is one that can't be reached.
        let is_up = status != CallStatus::SettingUp;
        let ends = is_up && (bot.chain.on_close() == OnClose::HangUp || !bot.chain.has_bot());
        // A bot that closes, with none after it, has hung up. Any other one has failed its call.
        let reached = bot.reached.take();
        if let Some((url, address)) = reached.filter(|_| !ends || how != BotGone::Closed) {
            let came = AttemptResult::Gone(how);
            bot.attempts
                .failed(cx, owner, tried(&url, Some(address)), &came);
        }

        if ends {
            bot.state = State::Over;
            return self.agent_hangs_up(cx);
        }
        bot.state = State::Waiting;
        self.next_runtime(cx);
    }

    /// Handles the agent's request to end the call, made outside its WebSocket.
    pub(crate) fn on_agent_request(&mut self, cx: &mut Cx<'_>) {
        match self.bridge.status() {
            CallStatus::SettingUp => self.refuse(cx, Reason::RuntimeRefused),
            CallStatus::Answered | CallStatus::Up => self.agent_hangs_up(cx),
            CallStatus::Over => {}
        }
    }

    /// The agent has hung up. A transfer of its caller goes on without it.
    pub(crate) fn agent_hangs_up(&mut self, cx: &mut Cx<'_>) {
        match self.transfer.goes_on() {
            true => self.on_agent_bye(cx, self.bridge.agent_id()),
            false => self.leave(cx, Status::Completed, HangupBy::Agent),
        }
    }

    /// No runtime is left to try. A transfer that was ordered meanwhile goes on.
    fn on_no_runtime_left(&mut self, cx: &mut Cx<'_>) {
        if self.transfer.goes_on() {
            return self.agent_hangs_up(cx);
        }

        let is_forbidden = self
            .bridge
            .bot()
            .is_some_and(|bot| bot.attempts.are_forbidden());
        let reason = match is_forbidden {
            true => Reason::PeerNotAllowed,
            false => Reason::RuntimeUnreachable,
        };

        match self.bridge.status() {
            CallStatus::SettingUp => self.refuse(cx, reason),
            CallStatus::Answered | CallStatus::Up => {
                self.fail_outbound(cx);
                match self.bridge.status() {
                    CallStatus::SettingUp => self.refuse(cx, reason),
                    CallStatus::Answered | CallStatus::Up | CallStatus::Over => {
                        self.hang_up(cx, reason);
                    }
                }
            }
            CallStatus::Over => {}
        }
    }

    /// A callee that no agent has spoken with was never joined: its call has failed.
    fn fail_outbound(&mut self, cx: &mut Cx<'_>) {
        let has_spoken = self.bridge.bot().is_none_or(|bot| bot.has_spoken);
        if self.outbound.is_some() && !has_spoken {
            self.bridge.legs.disconnect();
            let mut deadline = self.deadline.take();
            cx.cancel_timer(&mut deadline);
        }
    }

    /// A runtime over SIP follows a bot that can't be reached: the caller's media go to it directly.
    fn invite_in_place_of_bot(&mut self, cx: &mut Cx<'_>, runtime: Runtime) {
        let agent = self.bridge.agent_id();
        let Some(leg) = self.bridge.legs.get_mut(agent) else {
            return;
        };
        let LegPeer::Media(media) = std::mem::replace(&mut leg.peer, LegPeer::Unknown) else {
            return;
        };

        leg.state = LegState::Gone;
        let LocalAgent::Bot(bot) = media.agent else {
            return;
        };

        if self.outbound.is_some() {
            return self.invite_callee_runtime(cx, (bot.chain, runtime), media.local);
        }

        cx.core.effects.push_back(self.closed_media());

        let (caller, called) = bot.chain.parties();
        let to = self.invited_call([called, caller], bot.chain.wants_krisp());
        let runtime = (&runtime, bot.chain.namer());
        let invite = runtime_invite::invite(runtime, &cx.core.config, &to);
        let Some(dialing) = invite.map(Dialing::runtime) else {
            return;
        };

        let dialing = dialing.following().leading_to(Some(bot.chain));
        self.bridge
            .legs
            .set_state(agent, LegState::Dialing(dialing));
        self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
    }

    /// A bot follows runtimes over SIP that can't be reached.
    pub(crate) fn return_to_bot(&mut self, cx: &mut Cx<'_>, chain: RuntimeChain) {
        let from_any = chain.takes_rtp_from_any();
        let bot = Bot::new(chain);
        let media = LocalMedia::of(self.id, LocalAgent::Bot(Box::new(bot)), from_any);
        if self.outbound.is_some() {
            return self.return_callee_to_bot(cx, media);
        }

        let agent = self.bridge.agent_id();
        if let Some(leg) = self.bridge.legs.get_mut(agent) {
            leg.peer = LegPeer::Media(media);
            leg.state = LegState::Ready(Session::default());
        }

        let Some(flow) = self.bridge.trunk().map(|trunk| trunk.flow) else {
            return;
        };

        cx.core.effects.push_back(Effect::OpenMedia {
            call: self.bridge.key,
            listener: Some(flow.listener),
            near: flow.local.ip(),
        });
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
