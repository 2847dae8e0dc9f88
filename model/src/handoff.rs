//! What is said of a handoff: why an agent gave a conversation to a human, and how the person felt.

use serde::{Deserialize, Serialize};

/// Why an agent handed off.
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

/// How the person felt.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Sentiment {
    Angry,
    Happy,
    Neutral,
}

impl Reason {
    /// As it is written.
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
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Angry => "angry",
            Self::Happy => "happy",
            Self::Neutral => "neutral",
        }
    }
}

/// What the agent reports with a transfer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Why; none counts as implied by the agent.
    pub reasons: Vec<Reason>,
    /// What the call was about.
    pub summary: Box<str>,
    /// Why it is handed off, in the agent's words.
    pub explanation: Option<Box<str>>,
    /// How the person feels.
    pub sentiment: Option<Sentiment>,
}
