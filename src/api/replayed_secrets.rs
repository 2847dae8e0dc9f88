//! Secrets in kept answers: a repetition with the same `Idempotency-Key` shows one only while it is good for something.

use serde_json::Value;
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, OrgKey, Password, RequestKey, StoredAnswer, Tx, Wrong};
use trunkline_store::{bot_tokens, inbound_trunks, old_pairs, org_keys, webhooks};
use uuid::Uuid;

use super::{Api, ApiError};

/// Old pairs of a trunk that work, at most.
const OLD_PAIRS: u32 = 10;

/// Refuses to show a kept answer with a secret that was revoked or replaced since.
///
/// # Errors
/// 409 `secret_revoked`.
pub(super) async fn must_be_good(
    api: &Api,
    asked: &RequestKey,
    kept: &StoredAnswer,
) -> Result<(), ApiError> {
    let org = asked.org.or_else(|| org_of(&asked.path));
    let shown: Option<Value> = (!kept.refusal)
        .then(|| serde_json::from_str(&kept.text).ok())
        .flatten();
    let Some(secret) = shown.as_ref().and_then(ShownSecret::of) else {
        return Ok(());
    };

    let now = api.now();
    let is_good = match org {
        Some(org) => {
            let read = api.read_inline(move |tx| match secret.is_good(tx, org, now) {
                // The object went with its secret, or the org.
                Err(Error::Wrong(Wrong::Absent(_))) => Ok(false),
                found => found,
            });
            read.await?
        }
        // The path names the org in a way that can't be read here, such as percent-encoded: the secret can't be judged.
        None => false,
    };
    match is_good {
        true => Ok(()),
        false => {
            let message = "The answer to this Idempotency-Key showed a secret that has been revoked or replaced since: use another key";
            Err(ApiError::Conflict(message.to_owned()).with_code("secret_revoked"))
        }
    }
}

/// Returns the org in the path of a partner's request.
fn org_of(path: &str) -> Option<Uuid> {
    let (_, behind) = path.split_once("/orgs/")?;
    behind.split('/').next()?.parse().ok()
}

/// Secret in an answer, known by the names of its fields.
enum ShownSecret {
    ApiKey(Uuid),
    Trunk { username: String },
    Webhook { id: Uuid, secret: Password },
    BotToken(Password),
}

impl ShownSecret {
    fn of(shown: &Value) -> Option<Self> {
        let text = |name: &str| shown[name].as_str();
        let id = |name: &str| text(name)?.parse().ok();
        if text("api_key").is_some() {
            return Some(Self::ApiKey(id("api_key_id")?));
        }
        if text("auth_password").is_some() {
            let username = text("auth_username")?.to_owned();
            return Some(Self::Trunk { username });
        }
        if let Some(token) = text("auth_token") {
            return Some(Self::BotToken(Password::new(token)));
        }
        let secret = Password::new(text("secret")?);
        let id = id("id")?;
        Some(Self::Webhook { id, secret })
    }

    fn is_good(&self, tx: &mut Tx, org: Uuid, now: Moment) -> Result<bool, Error> {
        let is_old = |old: &Option<(Password, Moment)>, shown: &Password| {
            old.as_ref()
                .is_some_and(|(old, until)| old == shown && now < *until)
        };
        match self {
            Self::ApiKey(key) => {
                let known = org_keys::by_id(tx, org, *key)?;
                let is_good = |key: OrgKey| key.expires_at.is_none_or(|until| now < until);
                Ok(known.is_some_and(is_good))
            }
            Self::Trunk { username } => {
                let trunk = inbound_trunks::of_org(tx, org)?;
                let old = old_pairs::page(tx, org, now, None, OLD_PAIRS)?;
                let mut old = old.items.iter();
                Ok(trunk.username == *username || old.any(|pair| pair.username == *username))
            }
            Self::Webhook { id, secret } => {
                let webhook = webhooks::by_id(tx, org, *id)?;
                Ok(webhook.secret == *secret || is_old(&webhook.old_secret, secret))
            }
            Self::BotToken(token) => {
                let known = bot_tokens::of_org(tx, org)?;
                let next = known.next.as_ref();
                let is_next = next.is_some_and(|(next, _)| next == token);
                Ok(known.token == *token || is_next || is_old(&known.old, token))
            }
        }
    }
}
