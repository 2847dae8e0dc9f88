//! Settings of agents, trunks and destinations that are more than a text or a number, as the API writes them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::E164;

/// What answers for an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Runtime {
    /// The built-in agent that echoes its caller.
    Echo,
    /// A SIP peer.
    Sip {
        /// Where to; may hold `{agent_id}` and `{org_id}`, and in its user part `{called}`, `{caller}` and `{session_id}`.
        uri: Box<str>,
        /// Tried in order when `uri` can't be reached.
        #[serde(default)]
        fallbacks: Vec<Box<str>>,
        /// Answers after which the next target is tried, besides 408, 500, 502, 503 and 504.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failover_on: Vec<FailoverOn>,
        /// Headers of the INVITE; values may hold all placeholders.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// Whether it gets the session token though `sip.trusted_runtimes` doesn't list it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        session_token: bool,
        /// The user name that its digest challenges are answered with. The password is never shown.
        #[serde(rename = "username", default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        login: Option<RuntimeLogin>,
    },
}

/// What a runtime's challenges are answered with. As JSON it is the user name alone: the password is kept apart, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct RuntimeLogin {
    /// The user name.
    pub user: Box<str>,
    /// The password; empty where the runtime is only shown.
    pub password: Box<str>,
}

impl Runtime {
    /// What its challenges are answered with.
    pub const fn login(&self) -> Option<&RuntimeLogin> {
        match self {
            Self::Sip { login, .. } => login.as_ref(),
            Self::Echo => None,
        }
    }

    /// The same to be changed.
    pub const fn login_mut(&mut self) -> Option<&mut RuntimeLogin> {
        match self {
            Self::Sip { login, .. } => login.as_mut(),
            Self::Echo => None,
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

/// A final answer that says by itself that the runtime has decided, and that an agent may take for a failure of that target alone.
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
    /// All of them, by their name in the API.
    pub const ALL: [(&'static str, Self); 3] = [
        ("404", Self::NotFound),
        ("480", Self::Unavailable),
        ("3xx", Self::Redirect),
    ];
}

/// How `Refer-To` names a phone number: Asterisk refuses `tel:`, Twilio wants it.
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
    /// The name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sip => "sip",
            Self::Tel => "tel",
        }
    }
}

/// How callers are handed over: asked of the PBX by REFER, or done here.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransferWaySetting")]
pub enum TransferWay {
    /// REFER; bridged where the PBX refuses it.
    #[default]
    Refer,
    /// Trunkline calls the destination and connects the two; REFER only where nothing rings.
    Bridge,
    /// `bridge`, until the PBX is known to keep its caller when an accepted REFER fails.
    Auto,
}

impl TransferWay {
    /// The name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refer => "refer",
            Self::Bridge => "bridge",
            Self::Auto => "auto",
        }
    }
}

/// By which way a destination is called from here.
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
    /// The name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pbx => "pbx",
            Self::Trunk => "trunk",
        }
    }
}

/// Where a transfer leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferTarget {
    /// A telephone number.
    Phone(E164),
    /// A SIP URI.
    Sip(Box<str>),
}

impl TransferTarget {
    /// `phone` or `sip`, as the API and the database have it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Phone(_) => "phone",
            Self::Sip(_) => "sip",
        }
    }

    /// Whether it is this number.
    pub fn is_number(&self, number: &E164) -> bool {
        matches!(self, Self::Phone(own) if own == number)
    }

    /// The number or the URI.
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
        let cases = [
            (r#"{"type":"echo"}"#, Runtime::Echo),
            (
                r#"{"type":"sip","uri":"sip:a@b","fallbacks":["sip:c"]}"#,
                Runtime::Sip {
                    uri: "sip:a@b".into(),
                    fallbacks: vec!["sip:c".into()],
                    failover_on: Vec::new(),
                    headers: Default::default(),
                    session_token: false,
                    login: None,
                },
            ),
            (
                r#"{"type":"sip","uri":"sip:a@b","fallbacks":[],"failover_on":["404","3xx"]}"#,
                Runtime::Sip {
                    uri: "sip:a@b".into(),
                    fallbacks: Vec::new(),
                    failover_on: vec![FailoverOn::NotFound, FailoverOn::Redirect],
                    headers: Default::default(),
                    session_token: false,
                    login: None,
                },
            ),
            (
                r#"{"type":"sip","uri":"sip:a","fallbacks":[],"username":"u"}"#,
                Runtime::Sip {
                    uri: "sip:a".into(),
                    fallbacks: Vec::new(),
                    failover_on: Vec::new(),
                    headers: Default::default(),
                    session_token: false,
                    login: Some(RuntimeLogin {
                        user: "u".into(),
                        password: Box::default(),
                    }),
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
