//! `trunkline number`: phone numbers of an org. The operator decides which are verified.

use serde::Serialize;
use trunkline_routing::E164;
use trunkline_store::{Error, Number, Tx, numbers};
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, Tabular, or_dash, time};
use super::{Failure, e164, now, startup};
use crate::api;
use crate::config::Config;

/// Phone numbers of an org.
///
/// Only verified numbers are routed. The operator verifies one here. An org verifies its own by a code that a call to the number speaks
/// (POST /phone/numbers/{number_id}/verify), where the configuration has phone.verification_trunk.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Adds a number to an org.
    #[command(
        after_help = "Examples:\n  trunkline number add +442071838750 --org Acme --verified\n  trunkline number add +442071838750 --org Acme --json"
    )]
    Add {
        #[command(flatten)]
        of: OfNumber,
        /// The org has proved that it holds the number.
        #[arg(long)]
        verified: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the org's numbers, newest first.
    List {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Marks a number as verified, on the operator's word; no call is placed.
    Verify {
        #[command(flatten)]
        of: OfNumber,
        #[command(flatten)]
        output: Output,
    },
    /// Ends the verification, and the number's assignment.
    Unverify {
        #[command(flatten)]
        of: OfNumber,
        #[command(flatten)]
        output: Output,
    },
    /// Assigns a verified number to an agent, beside those that it has.
    #[command(
        after_help = "Example:\n  trunkline number assign +442071838750 --org Acme --agent 0198c0de-0000-7000-8000-000000000001"
    )]
    Assign {
        #[command(flatten)]
        of: OfNumber,
        /// The agent's id.
        #[arg(long, value_parser = api::id_of)]
        agent: Uuid,
        #[command(flatten)]
        output: Output,
    },
    /// Takes a number from its agent.
    Unassign {
        #[command(flatten)]
        of: OfNumber,
        #[command(flatten)]
        output: Output,
    },
    /// Removes a number from the org.
    Remove {
        #[command(flatten)]
        of: OfNumber,
        #[command(flatten)]
        output: Output,
    },
}

/// Number and org.
#[derive(Debug, clap::Args)]
pub(super) struct OfNumber {
    /// The number as E.164: + and 7 to 15 digits.
    #[arg(value_parser = e164)]
    number: E164,
    #[command(flatten)]
    org: OfOrg,
}

#[derive(Debug, Serialize)]
struct NumberView {
    id: Uuid,
    phone_number: E164,
    verified: bool,
    agent_id: Option<Uuid>,
    created_at: String,
}

impl From<Number> for NumberView {
    fn from(number: Number) -> Self {
        Self {
            id: number.id,
            phone_number: number.number,
            verified: number.verified_at.is_some(),
            agent_id: number.agent_id,
            created_at: time(number.created_at),
        }
    }
}

impl Tabular for NumberView {
    const COLUMNS: &'static [&'static str] = &["id", "number", "verified", "agent", "created"];

    fn cells(&self) -> Vec<String> {
        let verified = if self.verified { "yes" } else { "no" };
        vec![
            self.id.to_string(),
            self.phone_number.as_str().to_owned(),
            verified.to_owned(),
            or_dash(self.agent_id),
            self.created_at.clone(),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        let (number, output) = match self {
            Self::List { org, output } => {
                let org = org.id(&store).await?;
                let listed = store.read(move |tx| numbers::list(tx, org)).await?;
                output.list(&listed.into_iter().map(NumberView::from).collect::<Vec<_>>());
                return Ok(());
            }
            Self::Remove { of, output } => {
                let org = of.org.id(&store).await?;
                let removed = store.write(move |tx| {
                    let id = numbers::by_number(tx, org, &of.number)?.id;
                    numbers::delete(tx, org, id, now())
                });
                removed.await?;
                output.done("The number is removed.");
                return Ok(());
            }
            Self::Add {
                of,
                verified,
                output,
            } => {
                let verified = verified || config.phone.auto_verify_numbers;
                let org = of.org.id(&store).await?;
                let added =
                    store.write(move |tx| numbers::create(tx, org, of.number, verified, now()));
                (added.await?, output)
            }
            Self::Verify { of, output } => {
                let org = of.org.id(&store).await?;
                let verified = store.write(move |tx| {
                    let id = numbers::by_number(tx, org, &of.number)?.id;
                    numbers::verify(tx, org, id, now())
                });
                (verified.await?, output)
            }
            Self::Unverify { of, output } => {
                let org = of.org.id(&store).await?;
                let unverified = store.write(move |tx| {
                    let id = numbers::by_number(tx, org, &of.number)?.id;
                    numbers::unverify(tx, org, id, now())
                });
                (unverified.await?, output)
            }
            Self::Assign { of, agent, output } => {
                let org = of.org.id(&store).await?;
                let assigned = store.write(move |tx| assign(tx, org, &of.number, agent));
                (assigned.await?, output)
            }
            Self::Unassign { of, output } => {
                let org = of.org.id(&store).await?;
                let unassigned = store.write(move |tx| unassign(tx, org, &of.number));
                (unassigned.await?, output)
            }
        };

        output.one(&NumberView::from(number));
        Ok(())
    }
}

/// Assigns the number to `agent`, beside those that it has.
pub(super) fn assign(tx: &mut Tx, org: Uuid, number: &E164, agent: Uuid) -> Result<Number, Error> {
    let id = numbers::by_number(tx, org, number)?.id;
    let held = numbers::of_agent(tx, org, agent)?;
    let mut ids: Vec<Uuid> = held.iter().map(|held| held.id).collect();
    if !ids.contains(&id) {
        ids.push(id);
    }
    numbers::assign(tx, org, agent, &ids, now())?;
    numbers::by_id(tx, org, id)
}

fn unassign(tx: &mut Tx, org: Uuid, number: &E164) -> Result<Number, Error> {
    let number = numbers::by_number(tx, org, number)?;
    let Some(agent) = number.agent_id else {
        return Ok(number);
    };
    let held = numbers::of_agent(tx, org, agent)?.into_iter();
    let rest: Vec<Uuid> = held
        .map(|held| held.id)
        .filter(|id| *id != number.id)
        .collect();
    numbers::assign(tx, org, agent, &rest, now())?;
    numbers::by_id(tx, org, number.id)
}
