//! Settings of agents, trunks and destinations that are more than a text or a number, as the API writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::E164;

use crate::builtin::{self, Flow};
use crate::runtime_headers::RuntimeHeaders;

/// The program that answers calls for an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Runtime {
    /// The built-in agent that echoes its caller.
    Echo,
    /// A SIP peer.
    Sip {
        /// Request-URI; may hold `{agent_id}` and `{org_id}`, and in its user part `{called}`, `{caller}` and `{session_id}`.
        uri: Box<str>,
        /// SIP URIs, URLs of WebSockets and [`builtin::ENTRY`], tried in order when `uri` can't be reached.
        #[serde(default)]
        fallbacks: Vec<Box<str>>,
        /// Answers after which the next target is tried, besides 408, 500, 502, 503 and 504.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failover_on: Vec<FailoverOn>,
        /// Headers of the INVITE; values may hold all placeholders. `***` in place of a value that the reader may not know.
        #[serde(default, skip_serializing_if = "RuntimeHeaders::is_empty")]
        #[schemars(with = "std::collections::BTreeMap<String, String>")]
        headers: RuntimeHeaders,
        /// The runtime gets the session token even if `sip.trusted_runtimes` doesn't list it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        session_token: bool,
        /// The user name with which the runtime's digest challenges are answered. The password is never shown.
        #[serde(rename = "username", default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        login: Option<RuntimeLogin>,
        /// Message format of the WebSockets in `fallbacks`.
        #[serde(default, skip_serializing_if = "is_default")]
        protocol: BotProtocol,
        /// Consequence of a WebSocket in `fallbacks` that its bot closes during a call.
        #[serde(default, skip_serializing_if = "is_default")]
        on_close: OnClose,
        /// Steps of the entry `builtin:` in `fallbacks`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flow: Option<Box<Flow>>,
    },
    /// A bot that speaks JSON over a WebSocket, which this node opens.
    #[serde(rename = "websocket")]
    WebSocket {
        /// URL; may hold `{agent_id}` and `{org_id}`.
        uri: Box<str>,
        /// Message format.
        #[serde(default)]
        protocol: BotProtocol,
        /// URLs of WebSockets and SIP URIs, tried in order when `uri` can't be reached.
        #[serde(default)]
        fallbacks: Vec<Box<str>>,
        /// Moment of an outbound call at which the WebSocket is opened.
        #[serde(default, skip_serializing_if = "is_default")]
        wake: Wake,
        /// Consequence of a WebSocket that the bot closes during a call.
        #[serde(default, skip_serializing_if = "is_default")]
        on_close: OnClose,
        /// URL to which the progress of the agent's calls is posted, as Twilio does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status_callback: Option<Box<str>>,
        /// Stages that are posted; none: the end alone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        status_callback_events: Vec<CallProgress>,
        /// Steps of the entry `builtin:` in `fallbacks`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flow: Option<Box<Flow>>,
    },
    /// A small agent that is data.
    Builtin {
        /// Its steps.
        flow: Box<Flow>,
        /// URLs of WebSockets and SIP URIs, in the order in which the step `next_runtime` goes to them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fallbacks: Vec<Box<str>>,
    },
}

/// Format of the messages between this node and a bot.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BotProtocol {
    /// Twilio Media Streams, bidirectional.
    #[default]
    Twilio,
    /// Telnyx media streaming: the same events under other names.
    Telnyx,
}

impl BotProtocol {
    /// All variants, by their name in the API.
    pub const ALL: [(&'static str, Self); 2] = [("twilio", Self::Twilio), ("telnyx", Self::Telnyx)];
}

/// Moment of an outbound call at which the bot's WebSocket is opened.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// The callee rings: a bot that can't be reached ends the call before it is answered.
    #[default]
    Ringing,
    /// The callee answers.
    Answer,
}

impl Wake {
    /// All variants, by their name in the API.
    pub const ALL: [(&'static str, Self); 2] =
        [("ringing", Self::Ringing), ("answer", Self::Answer)];
}

/// Stage of a call, in the words of Twilio's status callbacks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallProgress {
    /// The call has begun.
    Initiated,
    /// The called side rings.
    Ringing,
    /// The call was answered.
    Answered,
    /// The call is over.
    Completed,
}

impl CallProgress {
    /// All variants, by their name in the API.
    pub const ALL: [(&'static str, Self); 4] = [
        ("initiated", Self::Initiated),
        ("ringing", Self::Ringing),
        ("answered", Self::Answered),
        ("completed", Self::Completed),
    ];
}

/// Consequence of a WebSocket that the bot closes during a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnClose {
    /// The call ends.
    #[default]
    HangUp,
    /// The next WebSocket of the list is opened; without one the call ends.
    NextRuntime,
}

impl OnClose {
    /// All variants, by their name in the API.
    pub const ALL: [(&'static str, Self); 2] = [
        ("hang_up", Self::HangUp),
        ("next_runtime", Self::NextRuntime),
    ];
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Credentials with which a runtime's digest challenges are answered. JSON shows the user name alone; the password is stored apart, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct RuntimeLogin {
    /// The user name.
    pub user: Box<str>,
    /// The password; empty in a runtime that is only shown.
    pub password: Box<str>,
}

impl Runtime {
    /// A bot at this URL, in Twilio's format and without fallbacks.
    pub fn web_socket(uri: Box<str>) -> Self {
        Self::WebSocket {
            uri,
            protocol: BotProtocol::default(),
            fallbacks: Vec::new(),
            wake: Wake::default(),
            on_close: OnClose::default(),
            status_callback: None,
            status_callback_events: Vec::new(),
            flow: None,
        }
    }

    /// A SIP peer at this URI, without fallbacks or credentials.
    pub fn sip(uri: Box<str>) -> Self {
        Self::Sip {
            uri,
            fallbacks: Vec::new(),
            failover_on: Vec::new(),
            headers: RuntimeHeaders::default(),
            session_token: false,
            login: None,
            protocol: BotProtocol::default(),
            on_close: OnClose::default(),
            flow: None,
        }
    }

    /// Returns the URIs of SIP peers that the runtime names, fallbacks included.
    pub fn sip_uris(&self) -> impl Iterator<Item = &str> {
        self.entries().filter(|entry| is_over_sip(entry))
    }

    /// Returns the URLs of WebSockets that the runtime names, fallbacks included.
    pub fn web_sockets(&self) -> impl Iterator<Item = &str> {
        self.uris().filter(|uri| is_web_socket(uri))
    }

    /// Returns all URIs that the runtime names, in the order in which they are tried.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.entries().filter(|entry| !is_builtin(entry))
    }

    /// Returns all entries in the order in which they are tried: URIs, and [`builtin::ENTRY`] for the flow.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        let (uri, fallbacks) = match self {
            Self::Sip { uri, fallbacks, .. } | Self::WebSocket { uri, fallbacks, .. } => {
                (Some(&**uri), &fallbacks[..])
            }
            Self::Builtin { fallbacks, .. } => (Some(builtin::ENTRY), &fallbacks[..]),
            Self::Echo => (None, &[][..]),
        };
        uri.into_iter().chain(fallbacks.iter().map(|uri| &**uri))
    }

    /// Returns the URL to which the progress of calls is posted, and the stages that are posted: the end alone if none is set.
    pub fn status_callback(&self) -> Option<(&str, &[CallProgress])> {
        match self {
            Self::WebSocket {
                status_callback,
                status_callback_events: events,
                ..
            } => {
                let events = match events.is_empty() {
                    true => &[CallProgress::Completed][..],
                    false => events,
                };
                Some((status_callback.as_deref()?, events))
            }
            Self::Echo | Self::Sip { .. } | Self::Builtin { .. } => None,
        }
    }

    /// Returns the steps of the built-in agent among the runtimes.
    pub const fn flow(&self) -> Option<&Flow> {
        match self {
            Self::Builtin { flow, .. } => Some(flow),
            Self::Sip { flow, .. } | Self::WebSocket { flow, .. } => match flow {
                Some(flow) => Some(flow),
                None => None,
            },
            Self::Echo => None,
        }
    }

    /// Returns the credentials for the runtime's digest challenges.
    pub const fn login(&self) -> Option<&RuntimeLogin> {
        match self {
            Self::Sip { login, .. } => login.as_ref(),
            Self::Echo | Self::WebSocket { .. } | Self::Builtin { .. } => None,
        }
    }

    /// Returns the headers of the INVITE to a SIP peer, if the runtime is one.
    pub const fn headers(&self) -> Option<&RuntimeHeaders> {
        match self {
            Self::Sip { headers, .. } => Some(headers),
            Self::Echo | Self::WebSocket { .. } | Self::Builtin { .. } => None,
        }
    }

    /// Returns the headers mutably.
    pub const fn headers_mut(&mut self) -> Option<&mut RuntimeHeaders> {
        match self {
            Self::Sip { headers, .. } => Some(headers),
            Self::Echo | Self::WebSocket { .. } | Self::Builtin { .. } => None,
        }
    }

    /// Returns the credentials mutably.
    pub const fn login_mut(&mut self) -> Option<&mut RuntimeLogin> {
        match self {
            Self::Sip { login, .. } => login.as_mut(),
            Self::Echo | Self::WebSocket { .. } | Self::Builtin { .. } => None,
        }
    }
}

impl Serialize for RuntimeLogin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.user)
    }
}

impl<'de> Deserialize<'de> for RuntimeLogin {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let user = Box::deserialize(deserializer)?;
        let password = Box::default();
        Ok(Self { user, password })
    }
}

impl std::fmt::Debug for RuntimeLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeLogin")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Returns whether a URI of a runtime is a WebSocket's.
pub fn is_web_socket(uri: &str) -> bool {
    uri.starts_with("wss:") || uri.starts_with("ws:")
}

/// Returns whether an entry of a list of runtimes is the built-in agent.
pub fn is_builtin(uri: &str) -> bool {
    uri == builtin::ENTRY
}

/// Returns whether an entry of a list of runtimes is the URI of a SIP peer.
pub fn is_over_sip(uri: &str) -> bool {
    !is_web_socket(uri) && !is_builtin(uri)
}

/// A final response that normally means that the runtime has decided, but that an agent may treat as a failure of one target.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum FailoverOn {
    /// 404 Not Found.
    #[serde(rename = "404")]
    NotFound,
    /// 480 Temporarily Unavailable.
    #[serde(rename = "480")]
    Unavailable,
    /// A redirection that leads to another host than the runtime's own.
    #[serde(rename = "3xx")]
    Redirect,
}

impl FailoverOn {
    /// All variants, by their name in the API.
    pub const ALL: [(&'static str, Self); 3] = [
        ("404", Self::NotFound),
        ("480", Self::Unavailable),
        ("3xx", Self::Redirect),
    ];
}

/// Form in which `Refer-To` names a phone number. Asterisk refuses `tel:`, Twilio requires it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReferFormat {
    /// `sip:+E164@host`.
    #[default]
    Sip,
    /// `tel:+E164`.
    Tel,
}

impl ReferFormat {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sip => "sip",
            Self::Tel => "tel",
        }
    }
}

/// Method by which callers are transferred: REFER to the PBX, or a bridge in Trunkline.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransferWaySetting")]
pub enum TransferWay {
    /// REFER; a bridge where the PBX refuses it.
    #[default]
    Refer,
    /// Trunkline calls the destination and connects the two; REFER only where the destination can't be called.
    Bridge,
    /// `bridge`, until the PBX is known to keep its caller when an accepted REFER fails.
    Auto,
}

impl TransferWay {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refer => "refer",
            Self::Bridge => "bridge",
            Self::Auto => "auto",
        }
    }
}

/// Trunk over which Trunkline calls a destination.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// The PBX that called.
    #[default]
    Pbx,
    /// The agent's outbound trunk.
    Trunk,
}

impl Via {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pbx => "pbx",
            Self::Trunk => "trunk",
        }
    }
}

/// Target of a transfer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferTarget {
    /// A telephone number.
    Phone(E164),
    /// A SIP URI.
    Sip(Box<str>),
}

impl TransferTarget {
    /// Returns `phone` or `sip`, as the API and the database have it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Phone(_) => "phone",
            Self::Sip(_) => "sip",
        }
    }

    /// Returns whether the target is this number.
    pub fn is_number(&self, number: &E164) -> bool {
        matches!(self, Self::Phone(own) if own == number)
    }

    /// Returns the number or the URI as text.
    pub fn value(&self) -> &str {
        match self {
            Self::Phone(number) => number.as_str(),
            Self::Sip(uri) => uri,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_written_as_the_api_has_it() {
        let sip = |uri: &str, others: &[&str], listed: &[FailoverOn], user: Option<&str>| {
            let mut runtime = Runtime::sip(uri.into());
            if let Runtime::Sip {
                fallbacks,
                failover_on,
                login,
                ..
            } = &mut runtime
            {
                fallbacks.extend(others.iter().map(|uri| Box::from(*uri)));
                failover_on.extend(listed);
                *login = user.map(|user| RuntimeLogin {
                    user: user.into(),
                    password: Box::default(),
                });
            }
            runtime
        };

        let cases = [
            (r#"{"type":"echo"}"#, Runtime::Echo),
            (
                r#"{"type":"sip","uri":"sip:a@b","fallbacks":["sip:c"]}"#,
                sip("sip:a@b", &["sip:c"], &[], None),
            ),
            (
                r#"{"type":"sip","uri":"sip:a@b","fallbacks":[],"failover_on":["404","3xx"]}"#,
                sip(
                    "sip:a@b",
                    &[],
                    &[FailoverOn::NotFound, FailoverOn::Redirect],
                    None,
                ),
            ),
            (
                r#"{"type":"sip","uri":"sip:a","fallbacks":[],"username":"u"}"#,
                sip("sip:a", &[], &[], Some("u")),
            ),
            (
                r#"{"type":"sip","uri":"sip:a","fallbacks":["wss://b"],"protocol":"telnyx","on_close":"next_runtime"}"#,
                Runtime::Sip {
                    uri: "sip:a".into(),
                    fallbacks: vec!["wss://b".into()],
                    failover_on: Vec::new(),
                    headers: RuntimeHeaders::default(),
                    session_token: false,
                    login: None,
                    protocol: BotProtocol::Telnyx,
                    on_close: OnClose::NextRuntime,
                    flow: None,
                },
            ),
            (
                r#"{"type":"websocket","uri":"wss://a/b","protocol":"twilio","fallbacks":[]}"#,
                Runtime::web_socket("wss://a/b".into()),
            ),
            (
                r#"{"type":"websocket","uri":"wss://a","protocol":"telnyx","fallbacks":["sip:b"],"wake":"answer","on_close":"next_runtime"}"#,
                Runtime::WebSocket {
                    uri: "wss://a".into(),
                    protocol: BotProtocol::Telnyx,
                    fallbacks: vec!["sip:b".into()],
                    wake: Wake::Answer,
                    on_close: OnClose::NextRuntime,
                    status_callback: None,
                    status_callback_events: Vec::new(),
                    flow: None,
                },
            ),
            (
                r#"{"type":"websocket","uri":"wss://a","protocol":"twilio","fallbacks":[],"status_callback":"https://c","status_callback_events":["ringing"]}"#,
                Runtime::WebSocket {
                    uri: "wss://a".into(),
                    protocol: BotProtocol::Twilio,
                    fallbacks: Vec::new(),
                    wake: Wake::Ringing,
                    on_close: OnClose::HangUp,
                    status_callback: Some("https://c".into()),
                    status_callback_events: vec![CallProgress::Ringing],
                    flow: None,
                },
            ),
        ];

        for (json, runtime) in cases {
            assert_eq!(serde_json::from_str::<Runtime>(json).expect(json), runtime);
            assert_eq!(serde_json::to_string(&runtime).expect(json), json);
        }

        assert!(
            serde_json::from_str::<Runtime>(r#"{"type":"sip","uri":"sip:a","fallback":[]}"#)
                .is_err()
        );
    }
}
