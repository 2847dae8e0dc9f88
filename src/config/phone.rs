//! `[phone]`: agents, their voices and their default runtime.

use super::section::{ConfigEntry, Section};
use super::verification::{VerificationTrunk, prefix};
use figment::value::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_model::settings::{Runtime, is_web_socket};
use trunkline_model::ws_url::WsUrl;
use uuid::Uuid;

/// Defaults of telephony resources.
#[derive(Clone, Debug)]
pub struct Phone {
    /// Runtime of agents without one.
    pub default_runtime: DefaultRuntime,
    /// True if the operator has set the default runtime.
    pub names_default_runtime: bool,
    /// True if a number is verified as soon as an org adds it.
    pub auto_verify_numbers: bool,
    /// Prefixes of numbers that may be called; empty: any.
    pub outbound_prefixes: Vec<Box<str>>,
    /// Route of calls that speak a verification code.
    pub verification_trunk: Option<VerificationTrunk>,
    /// Voices that agents may have.
    pub voices: Vec<Voice>,
}

/// Runtime without fail-over, as one line of configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DefaultRuntime {
    /// The built-in agent that echoes audio.
    Echo,
    /// SIP URI, in which `{agent_id}` and `{org_id}` are replaced by the call's.
    Sip(Box<str>),
    /// URL of a bot's WebSocket, with the same placeholders.
    WebSocket(Box<str>),
}

impl DefaultRuntime {
    /// Returns a runtime without fallbacks.
    pub fn runtime(&self) -> Runtime {
        match self {
            Self::Echo => Runtime::Echo,
            Self::Sip(uri) => Runtime::sip(uri.clone()),
            Self::WebSocket(url) => Runtime::web_socket(url.clone()),
        }
    }
}

/// Voice for agents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Voice {
    /// Id, as used in `voice_id`.
    pub id: Box<str>,
    /// Display name.
    pub name: Box<str>,
    /// Language code.
    pub language: Option<Box<str>>,
    /// Gender in the operator's words.
    pub gender: Option<Box<str>>,
}

impl Phone {
    /// Returns whether calls may speak verification codes to some numbers.
    pub fn speaks_codes(&self) -> bool {
        let trunk = self.verification_trunk.as_ref();
        trunk.is_some_and(|trunk| !trunk.prefixes.is_empty())
    }

    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default_runtime = section.parsed("default_runtime");
        Self {
            names_default_runtime: default_runtime.is_some(),
            default_runtime: default_runtime.unwrap_or(DefaultRuntime::Echo),
            auto_verify_numbers: section.switch("auto_verify_numbers").unwrap_or(false),
            outbound_prefixes: section
                .list("outbound_prefixes", prefix)
                .unwrap_or_default(),
            verification_trunk: VerificationTrunk::of(section),
            voices: section.list("voices", voice).unwrap_or_default(),
        }
    }
}

impl std::str::FromStr for DefaultRuntime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "echo" {
            return Ok(Self::Echo);
        }

        if is_web_socket(text) {
            return match is_url_template(text) {
                true => Ok(Self::WebSocket(text.into())),
                false => Err("is not a WebSocket URL such as wss://bot.example.com/{agent_id}"),
            };
        }

        let host = text
            .strip_prefix("sips:")
            .or_else(|| text.strip_prefix("sip:"))
            .unwrap_or_default();
        if host.is_empty()
            || host.contains(|char: char| {
                char.is_whitespace() || char.is_control() || char == '<' || char == '>'
            })
        {
            return Err(
                "is none of \"echo\", a SIP URI such as sip:{agent_id}@runtime.example.com, and a URL such as wss://bot.example.com/ws",
            );
        }

        Ok(Self::Sip(text.into()))
    }
}

/// Returns whether a text is the URL of a WebSocket, in which `{agent_id}` and `{org_id}` may be used.
pub fn is_url_template(text: &str) -> bool {
    // As long as any id, since the URL's longest length holds for the filled one.
    let id = Uuid::nil().hyphenated().to_string();
    let filled = text.replace("{agent_id}", &id).replace("{org_id}", &id);
    WsUrl::parse(&filled).is_some()
}

/// Parses a table `{id, name, language, gender}`, or an id alone.
fn voice(entry: &ConfigEntry) -> Result<Voice, String> {
    let Value::Dict(_, fields) = &entry.value else {
        let id: Box<str> = entry.text()?.into();
        return Ok(Voice {
            name: id.clone(),
            id,
            language: None,
            gender: None,
        });
    };

    if let Some(key) = fields
        .keys()
        .find(|key| !["id", "name", "language", "gender"].contains(&key.as_str()))
    {
        return Err(format!(
            "{key:?} is not a field of a voice: use id, name, language and gender"
        ));
    }

    let field = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(value) => value
            .as_str()
            .map(|text| Some(Box::<str>::from(text)))
            .ok_or(format!("{name} must be text")),
    };
    let id = field("id")?.ok_or("a voice needs an id")?;
    Ok(Voice {
        name: field("name")?.unwrap_or_else(|| id.clone()),
        id,
        language: field("language")?,
        gender: field("gender")?,
    })
}
