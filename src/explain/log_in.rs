//! Explanation of failed log-ins for the people of the org. None of it is sent in SIP.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use trunkline_model::invite_facts::{InviteFacts, Proof};

/// Sentence for a wrong part of the credentials, with the fix.
pub fn sentence(part: &str) -> &'static str {
    match part {
        "password" => {
            "The password is wrong, or the PBX keeps a hash (HA1) that was made with another user name or realm: enter auth_username and auth_password of the trunk again."
        }
        "user" => {
            "There is no such user name: set the PBX's authentication user to the trunk's auth_username, without a domain."
        }
        "expired" => {
            "These credentials were replaced by a rotation and their 24 hours are over: enter the trunk's new ones."
        }
        "nonce" => {
            "The PBX answers with an expired nonce and ignores the new one, as if it kept an old challenge: make it answer each new challenge, and check whether its clock is wrong or a proxy between delays messages."
        }
        "realm" => {
            "The answer was made for another realm than the challenge named: leave the realm empty in the PBX, or set it to the one in the challenge."
        }
        "uri" => {
            "The answer was made for another number than the request asks for: something between the PBX and here rewrites the Request-URI after it was signed."
        }
        "algorithm" => {
            "The answer uses an algorithm that wasn't offered: let the PBX use MD5, or SHA-256 if sip.digest_sha256 is on."
        }
        "malformed" => {
            "The answer lacks qop, nc or cnonce, or can't be read: let the PBX answer qop=\"auth\"."
        }
        "address" => {
            "A call to a number of this org came without credentials from an address that isn't allowed, or that didn't answer an OPTIONS, and the challenge wasn't answered: enter the trunk's credentials in the PBX, or add the address to the trunk's allowed_addresses."
        }
        "number" => {
            "A call came without credentials from an address that the trunk allows, for a number of this org that isn't on the trunk's list, and the challenge wasn't answered: add the number to the trunk, or enter its credentials in the PBX."
        }
        _ => "The log-in was refused.",
    }
}

/// User name of the attempt, as part of a sentence.
pub fn as_whom(username: &str) -> String {
    match username {
        "" => "without credentials".to_owned(),
        username => format!("as {username:?}"),
    }
}

/// Authentication of a caller.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallerLogin")]
pub struct LogInView {
    /// Method.
    by: Proof,
    /// Source of the INVITE.
    pub source: String,
    pub transport: String,
    pub user_agent: Option<String>,
    /// Log-ins of the same Call-ID that failed before, oldest first.
    failures: Vec<FailureView>,
}

/// A failed log-in.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LoginFailure")]
pub struct FailureView {
    /// Time of the attempt.
    pub at: String,
    /// Wrong part of the credentials.
    pub part: String,
    /// Explanation, with the fix.
    pub explanation: Cow<'static, str>,
}

impl LogInView {
    /// Makes the view from the facts of an INVITE.
    pub fn new(asked: &InviteFacts, failures: Vec<FailureView>) -> Self {
        Self {
            by: asked.proof,
            source: asked.source.to_string(),
            transport: asked.transport.to_string(),
            user_agent: asked.user_agent.as_deref().map(str::to_owned),
            failures,
        }
    }
}

/// Counts log-ins when at most `most` were searched.
pub fn counted(count: usize, most: u32) -> String {
    let more = usize::try_from(most).is_ok_and(|most| count >= most);
    match (count, more) {
        (1, false) => "1 log-in".into(),
        (count, false) => format!("{count} log-ins"),
        (count, true) => format!("{count} or more log-ins"),
    }
}

/// Caller's authentication as a sentence.
pub fn proof(asked: &InviteFacts) -> String {
    let source = asked.source.ip();
    match asked.proof {
        Proof::Digest => format!("The caller at {source} logged in with the trunk's credentials."),
        Proof::DedicatedAddress => {
            format!("The caller's address {source} is dedicated to this org.")
        }
        Proof::Session => {
            "A person called from the console's page; no trunk is involved.".to_owned()
        }
        Proof::AllowedAddress => format!(
            "The caller's address {source} is among the trunk's allowed_addresses, and the number is on the trunk's list."
        ),
    }
}
