//! `trunkline key`: keys that sign tokens and seal secrets. These commands change the store and the file of the keys
//! themselves, so they need no daemon; running daemons follow. The verbs for an org's API keys are in `resource`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use trunkline_store::{OpenFault, SignedKeys, Store, TokenKind, org_keys};
use uuid::Uuid;

use super::output::{Output, Tabular};
use super::{Failure, now, startup};
use crate::config::{Config, Secret};

/// API keys of an org, and the keys that sign and seal.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Makes another key that signs API keys, or widget tokens. Running daemons sign with it within a second; older tokens
    /// stay valid until the key that signed them is retired.
    RotateSigning {
        /// Makes one for widget tokens.
        #[arg(long)]
        widget: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the keys that sign API keys and widget tokens: of each kind the current one, those whose tokens are valid, and
    /// those that are retired.
    ListSigning {
        #[command(flatten)]
        output: Output,
    },
    /// Retires a key that signed tokens: running daemons refuse its tokens within a second. Widget tokens end; API keys
    /// stay valid, because the hashes of their tokens are stored. Widget tokens from before they had keys of their own
    /// end with the key that signed them, too.
    #[command(
        after_help = "Examples:\n  trunkline key retire-signing 5f1c2d3e4a5b6c7d\n  trunkline key retire-signing 5f1c2d3e4a5b6c7d --api-keys\n  trunkline key retire-signing 5f1c2d3e4a5b6c7d --api-keys --yes"
    )]
    RetireSigning {
        /// The key's id, as list-signing shows it.
        kid: String,
        /// Also revokes the API keys that it signed; without --yes lists how many each org has, and changes nothing.
        #[arg(long)]
        api_keys: bool,
        /// Retire the key and revoke its API keys, instead of listing them.
        #[arg(long, requires = "api_keys")]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Makes another key that seals passwords and credentials, and seals everything stored with it. It waits some
    /// seconds for running daemons to follow. If it is interrupted, run it again.
    RotateSealing {
        #[command(flatten)]
        output: Output,
    },
    /// Drops the sealing keys from before a rotation, once nothing needs them.
    RetireSealing {
        #[command(flatten)]
        output: Output,
    },
    /// Seals the keys in a PostgreSQL database under another master key. Then set secrets.master_key to the new one on
    /// every node, and restart each. Until its restart a node works, but learns of no new key.
    #[command(
        after_help = "Example:\n  openssl rand -base64 32 > new.key\n  trunkline key rotate-master --new-key-file new.key"
    )]
    RotateMaster {
        /// A file that holds the new master key, of at least 32 characters.
        #[arg(long, value_name = "FILE")]
        new_key_file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

/// Key that signs tokens of one kind now.
#[derive(Debug, Serialize)]
struct SigningView {
    kid: String,
    /// Number of keys whose tokens are valid.
    published: usize,
}

impl Tabular for SigningView {
    const COLUMNS: &'static [&'static str] = &["kid", "published"];

    fn cells(&self) -> Vec<String> {
        vec![self.kid.clone(), self.published.to_string()]
    }
}

/// Key that signs or has signed tokens.
#[derive(Debug, Serialize)]
struct SignerView {
    kid: String,
    /// Tokens that it signs: `api_key` or `widget_contact`.
    tokens: &'static str,
    /// `signs`, `good` (its tokens are valid) or `retired`.
    status: &'static str,
}

impl Tabular for SignerView {
    const COLUMNS: &'static [&'static str] = &["kid", "tokens", "status"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.kid.clone(),
            self.tokens.to_owned(),
            self.status.to_owned(),
        ]
    }
}

/// Number of API keys of an org that a signing key signed.
#[derive(Debug, Serialize)]
struct SignedView {
    org_id: Uuid,
    name: String,
    api_keys: u32,
}

impl Tabular for SignedView {
    const COLUMNS: &'static [&'static str] = &["org_id", "name", "api_keys"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.org_id.to_string(),
            self.name.clone(),
            self.api_keys.to_string(),
        ]
    }
}

impl From<SignedKeys> for SignedView {
    fn from(signed: SignedKeys) -> Self {
        Self {
            org_id: signed.org_id,
            name: signed.name,
            api_keys: signed.keys,
        }
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;

        match self {
            Self::RotateSigning { widget, output } => {
                let kind = match widget {
                    true => TokenKind::Widget,
                    false => TokenKind::ApiKey,
                };
                let rotated = store.rotate_signing_key_of(kind, now()).await;
                rotated.map_err(|fault| Failure::Command(fault.to_string()))?;
                let keys = store.keyring().signing_keys_of(kind);
                output.one(&SigningView {
                    kid: keys[0].id().to_owned(),
                    published: keys.len(),
                });
            }

            Self::ListSigning { output } => output.list(&signers(&store)),
            Self::RetireSigning {
                kid,
                api_keys,
                yes,
                output,
            } => retire(&store, &kid, api_keys, yes, output).await?,
            Self::RotateSealing { output } => rotate_sealing(&store, output).await?,

            Self::RetireSealing { output } => {
                let retired = store.retire_sealing_keys(now()).await;
                retired.map_err(|fault| Failure::Command(fault.to_string()))?;
                output.done("The old sealing keys are gone.");
            }

            Self::RotateMaster {
                new_key_file,
                output,
            } => {
                let new = Secret::of_file(&new_key_file).map_err(Failure::Command)?;
                let rotated = store.rotate_master_key(new.expose(), now()).await;
                rotated.map_err(|fault| Failure::Command(fault.to_string()))?;
                output.done(
                    "The keys are sealed under the new master key: set secrets.master_key to it on every node, and restart each.",
                );
            }
        }

        Ok(())
    }
}

/// Returns all signing keys: those of API keys, then those of widget tokens, of each kind the current one first.
fn signers(store: &Store) -> Vec<SignerView> {
    let kinds = [
        (TokenKind::ApiKey, "api_key"),
        (TokenKind::Widget, "widget_contact"),
    ];
    let mut signers = Vec::new();
    for (kind, tokens) in kinds {
        let (good, retired) = (
            store.keyring().signing_keys_of(kind),
            store.keyring().retired_keys(kind),
        );

        signers.extend(good.iter().enumerate().map(|(index, pair)| SignerView {
            kid: pair.id().to_owned(),
            tokens,
            status: if index == 0 { "signs" } else { "good" },
        }));
        signers.extend(retired.iter().map(|key| SignerView {
            kid: key.id().to_owned(),
            tokens,
            status: "retired",
        }));
    }
    signers
}

/// Retires a signing key. With `api_keys` its API keys are revoked too, once `yes` confirms it.
async fn retire(
    store: &Store,
    kid: &str,
    api_keys: bool,
    yes: bool,
    output: Output,
) -> Result<(), Failure> {
    if api_keys && !yes {
        if !signers(store).iter().any(|signer| signer.kid == kid) {
            let unknown = OpenFault::NoSigningKey(kid.to_owned());
            return Err(Failure::Command(unknown.to_string()));
        }

        let kid = kid.to_owned();
        let signed = store.read(move |tx| org_keys::signed_with(tx, &kid));
        let signed = signed.await?;
        output.list(&signed.into_iter().map(SignedView::from).collect::<Vec<_>>());
        return Err(Failure::Command(
            "nothing was changed: add --yes to retire the signing key and revoke these API keys"
                .to_owned(),
        ));
    }

    // If the process dies between the two steps, the same command completes them: a retired key can be retired again.
    let retired = store.retire_signing_key(kid, now()).await;
    retired.map_err(|fault| Failure::Command(fault.to_string()))?;

    let revoked = match api_keys {
        true => {
            let kid = kid.to_owned();
            let revoked = store.write(move |tx| org_keys::revoke_signed_with(tx, &kid, now()));
            revoked.await?
        }
        false => 0,
    };

    output.done(&format!(
        "The key is retired; running daemons refuse what it signed within a second. API keys revoked: {revoked}."
    ));

    Ok(())
}

/// Rotates the sealing key in steps with pauses between them: every node must be able to unseal with the new key before one seals with it.
async fn rotate_sealing(store: &Store, output: Output) -> Result<(), Failure> {
    /// Time for daemons to follow. Usually they take a second; a busy one may take longer.
    const FOLLOW_TIME: Duration = Duration::from_secs(3);

    let failed = |fault: OpenFault| Failure::Command(fault.to_string());
    let staged = store.stage_sealing_key(now()).await.map_err(failed)?;
    tokio::time::sleep(FOLLOW_TIME).await;

    let used = store.use_staged_sealing_key(staged, now()).await;
    used.map_err(failed)?;
    // A daemon that hasn't followed yet still seals with the old key. A value that it writes behind the pass below
    // would keep that key from being retired.
    tokio::time::sleep(FOLLOW_TIME).await;

    let count = store.reseal().await.map_err(failed)?;
    output.done(&format!(
        "The new key seals; values sealed anew: {count}. Drop the old key: trunkline key retire-sealing"
    ));
    Ok(())
}
