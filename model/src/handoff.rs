//! Report of a hand-off: the reasons why an agent gave a conversation to a human, and the caller's sentiment.

use serde::{Deserialize, Serialize};

/// Reason why an agent handed off.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
#[schemars(rename = "HandoffReason")]
pub enum Reason {
    AiImpliedHandoff,
    BasedOnInstructions,
    InstructionsNotClear,
    InsufficientKnowledge,
    InsufficientTools,
    ProhibitedTopic,
    UserRequestedHumanAssistance,
}

/// Sentiment of the caller.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Sentiment {
    Angry,
    Happy,
    Neutral,
}

impl Reason {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AiImpliedHandoff => "ai_implied_handoff",
            Self::BasedOnInstructions => "based_on_instructions",
            Self::InstructionsNotClear => "instructions_not_clear",
            Self::InsufficientKnowledge => "insufficient_knowledge",
            Self::InsufficientTools => "insufficient_tools",
            Self::ProhibitedTopic => "prohibited_topic",
            Self::UserRequestedHumanAssistance => "user_requested_human_assistance",
        }
    }
}

impl Sentiment {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Angry => "angry",
            Self::Happy => "happy",
            Self::Neutral => "neutral",
        }
    }
}

/// Report that an agent sends with a transfer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Reasons; an empty list counts as [`Reason::AiImpliedHandoff`].
    pub reasons: Vec<Reason>,
    /// Summary of the call.
    pub summary: Box<str>,
    /// Reason in the agent's own words.
    pub explanation: Option<Box<str>>,
    /// Sentiment of the caller.
    pub sentiment: Option<Sentiment>,
}
