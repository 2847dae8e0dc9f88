//! The runtimes of an agent whose list holds WebSockets or the built-in agent, in the order in which they are tried. SIP URIs next to each other
//! are one stage: a single INVITE client tries them.

use std::sync::Arc;

use trunkline_model::address::NamedBy;
use trunkline_model::settings::{
    BotProtocol, OnClose, Runtime, Wake, is_builtin, is_over_sip, is_web_socket,
};
use trunkline_model::tied::Namer;
use trunkline_model::ws_url::WsUrl;
use uuid::Uuid;

use super::media_rules::MediaRules;
use crate::core::context::Config;
use crate::parts::target::fill;

/// The runtimes of one call, and what each learns of it.
#[derive(Debug)]
pub(crate) struct RuntimeChain {
    runtime: Arc<Runtime>,
    namer: Namer,
    /// The number that was called, and the caller; empty where that isn't to be known.
    called: Box<str>,
    caller: Box<str>,
    krisp: bool,
    media: MediaRules,
    /// Place in the list of the runtime that is tried next.
    next: usize,
}

/// The next runtime.
#[derive(Debug)]
pub(crate) enum ChainStage {
    /// The URL of a bot.
    Bot(Box<str>),
    /// The built-in agent.
    Builtin,
    /// A runtime over SIP.
    Sip(Runtime),
}

/// The runtime that a call begins with.
#[derive(Debug)]
pub(crate) enum First {
    /// The built-in agent that echoes its caller.
    Echo,
    /// The first of these, whose audio passes through us.
    Bot(RuntimeChain),
    /// A runtime over SIP, and the runtimes after it if a bot is among them.
    Sip(Arc<Runtime>, Option<RuntimeChain>),
}

/// Parts of a new chain.
#[derive(Debug)]
pub(crate) struct NewChain<'a> {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) namer: Namer,
    pub(crate) called: &'a str,
    pub(crate) caller: &'a str,
    pub(crate) krisp: bool,
    pub(crate) media: MediaRules,
}

impl First {
    /// Takes the first runtime of an agent.
    pub(crate) fn of(of: NewChain<'_>, agent: Uuid, org: Uuid, config: &Config) -> Self {
        match &*of.runtime {
            Runtime::Echo => return Self::Echo,
            listed if listed.entries().all(is_over_sip) => return Self::Sip(of.runtime, None),
            Runtime::Sip { .. } | Runtime::WebSocket { .. } | Runtime::Builtin { .. } => {}
        }

        let is_sip_first = of.runtime.entries().next().is_some_and(is_over_sip);
        let mut chain = RuntimeChain::new(of, config);
        if is_sip_first && let Some(ChainStage::Sip(runtime)) = chain.next(agent, org) {
            return Self::Sip(Arc::new(runtime), Some(chain));
        }
        Self::Bot(chain)
    }
}

impl RuntimeChain {
    /// All runtimes, none of which has been tried.
    pub(crate) fn new(of: NewChain<'_>, config: &Config) -> Self {
        // The default is the operator's choice: the rule for tenants' addresses doesn't apply to it.
        let namer = match *of.runtime == *config.default_runtime {
            true => Namer::Operator,
            false => of.namer,
        };
        Self {
            runtime: of.runtime,
            namer,
            called: of.called.into(),
            caller: of.caller.into(),
            krisp: of.krisp,
            media: of.media,
            next: 0,
        }
    }

    /// Takes the next runtime.
    pub(crate) fn next(&mut self, agent: Uuid, org: Uuid) -> Option<ChainStage> {
        let mut left = self.runtime.entries().skip(self.next).peekable();
        let first = left.next()?;
        if is_builtin(first) {
            self.next += 1;
            return Some(ChainStage::Builtin);
        }
        if is_web_socket(first) {
            let url = fill(first, agent, org);
            self.next += 1;
            return Some(ChainStage::Bot(url));
        }

        let mut fallbacks: Vec<Box<str>> = Vec::new();
        while let Some(uri) = left.next_if(|uri| is_over_sip(uri)) {
            fallbacks.push(uri.into());
        }
        let sip = self.over_sip(first, fallbacks);
        self.next += sip.entries().count();
        Some(ChainStage::Sip(sip))
    }

    /// A runtime at these URIs with the settings that the list has for SIP.
    fn over_sip(&self, first: &str, others: Vec<Box<str>>) -> Runtime {
        let mut sip = match &*self.runtime {
            listed @ Runtime::Sip { .. } => listed.clone(),
            Runtime::Echo | Runtime::WebSocket { .. } | Runtime::Builtin { .. } => {
                Runtime::sip(Box::default())
            }
        };
        if let Runtime::Sip {
            uri,
            fallbacks,
            flow,
            ..
        } = &mut sip
        {
            *uri = first.into();
            *fallbacks = others;
            // The flow is that of the built-in agent, which is no entry of this stage.
            *flow = None;
        }
        sip
    }

    /// Takes the next WebSocket or built-in agent, and passes over SIP URIs before it.
    pub(crate) fn next_bot(&mut self, agent: Uuid, org: Uuid) -> Option<ChainStage> {
        loop {
            match self.next(agent, org)? {
                bot @ (ChainStage::Bot(_) | ChainStage::Builtin) => return Some(bot),
                ChainStage::Sip(_) => {}
            }
        }
    }

    /// Returns whether none has been tried.
    pub(crate) const fn is_untried(&self) -> bool {
        self.next == 0
    }

    /// Returns whether a WebSocket, or the built-in agent, is left.
    pub(crate) fn has_bot(&self) -> bool {
        let mut left = self.runtime.entries().skip(self.next);
        left.any(|uri| !is_over_sip(uri))
    }

    /// Returns whether the built-in agent is next.
    pub(crate) fn is_builtin_next(&self) -> bool {
        self.runtime
            .entries()
            .nth(self.next)
            .is_some_and(is_builtin)
    }

    pub(crate) const fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    pub(crate) fn protocol(&self) -> BotProtocol {
        match &*self.runtime {
            Runtime::Sip { protocol, .. } | Runtime::WebSocket { protocol, .. } => *protocol,
            Runtime::Echo | Runtime::Builtin { .. } => BotProtocol::default(),
        }
    }

    pub(crate) fn wake(&self) -> Wake {
        match &*self.runtime {
            Runtime::WebSocket { wake, .. } => *wake,
            Runtime::Echo | Runtime::Sip { .. } | Runtime::Builtin { .. } => Wake::default(),
        }
    }

    pub(crate) fn on_close(&self) -> OnClose {
        match &*self.runtime {
            Runtime::Sip { on_close, .. } | Runtime::WebSocket { on_close, .. } => *on_close,
            Runtime::Echo | Runtime::Builtin { .. } => OnClose::default(),
        }
    }

    pub(crate) const fn media_rules(&self) -> &MediaRules {
        &self.media
    }

    pub(crate) const fn namer(&self) -> &Namer {
        &self.namer
    }

    /// The caller and the number that was called.
    pub(crate) const fn parties(&self) -> (&str, &str) {
        (&self.caller, &self.called)
    }

    /// The trunk asks for noise suppression.
    pub(crate) const fn wants_krisp(&self) -> bool {
        self.krisp
    }

    /// The party that named the host of a URL.
    pub(crate) fn named_by(&self, url: &str) -> NamedBy {
        match &self.namer {
            Namer::Operator => NamedBy::Operator,
            Namer::Org(tied) => {
                WsUrl::parse(url).map_or(NamedBy::Tenant, |url| tied.namer_of(url.host))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(uri: &str, fallbacks: &[&str]) -> RuntimeChain {
        RuntimeChain {
            runtime: Arc::new(Runtime::WebSocket {
                uri: uri.into(),
                protocol: BotProtocol::Twilio,
                fallbacks: fallbacks.iter().map(|uri| (*uri).into()).collect(),
                wake: Wake::Ringing,
                on_close: OnClose::NextRuntime,
                status_callback: None,
                status_callback_events: Vec::new(),
                flow: None,
            }),
            namer: Namer::Operator,
            called: "1".into(),
            caller: "2".into(),
            krisp: false,
            media: MediaRules::default(),
            next: 0,
        }
    }

    /// The stages as their URIs.
    fn stages(mut chain: RuntimeChain) -> Vec<String> {
        let agent = Uuid::nil();
        std::iter::from_fn(|| {
            Some(match chain.next(agent, agent)? {
                ChainStage::Bot(url) => url.into(),
                ChainStage::Builtin => "builtin".to_owned(),
                ChainStage::Sip(runtime) => runtime.uris().collect::<Vec<_>>().join(" "),
            })
        })
        .collect()
    }

    #[test]
    fn sip_uris_side_by_side_are_one_stage() {
        for (case, uri, fallbacks, expected) in [
            ("a bot alone", "wss://a", &[][..], &["wss://a"][..]),
            (
                "SIP last",
                "wss://a/{agent_id}",
                &["sip:b", "sip:c"],
                &[
                    "wss://a/00000000-0000-0000-0000-000000000000",
                    "sip:b sip:c",
                ],
            ),
            (
                "SIP in between",
                "wss://a",
                &["sip:b", "wss://c", "sips:d"],
                &["wss://a", "sip:b", "wss://c", "sips:d"],
            ),
            (
                "the built-in agent in between",
                "wss://a",
                &["sip:b", "builtin:", "sip:c"],
                &["wss://a", "sip:b", "builtin", "sip:c"],
            ),
        ] {
            assert_eq!(stages(chain(uri, fallbacks)), expected, "{case}");
        }
    }

    #[test]
    fn a_bot_is_found_behind_sip() {
        let mut chain = chain("wss://a", &["sip:b", "builtin:", "wss://c", "sip:d"]);
        let agent = Uuid::nil();
        let mut next = || match chain.next_bot(agent, agent)? {
            ChainStage::Bot(url) => Some(url),
            ChainStage::Builtin => Some("builtin".into()),
            ChainStage::Sip(_) => None,
        };
        assert_eq!(
            [next(), next(), next(), next()],
            [
                Some("wss://a".into()),
                Some("builtin".into()),
                Some("wss://c".into()),
                None
            ]
        );
    }
}
