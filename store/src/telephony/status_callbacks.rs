//! Status callbacks of agents: webhooks that belong to an agent, not to the org's list, and get the progress of that agent's calls alone.

use trunkline_model::settings::{CallProgress, Runtime};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::to_json;
use crate::driver::error::Error;
use crate::driver::event::EventType;
use crate::driver::ids::new_id;
use crate::driver::tx::Tx;
use crate::tenants::password::Password;
use crate::tenants::webhooks::owner;

/// Sets the callback of an agent to that of its runtime. Enables a callback that was disabled after a 410.
pub(crate) fn follow(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    runtime: Option<&Runtime>,
    now: Moment,
) -> Result<(), Error> {
    let Some((url, progress)) = runtime.and_then(Runtime::status_callback) else {
        return forget(tx, org, agent);
    };

    let types = to_json(&types_of(progress));
    let sql = "UPDATE webhooks SET url = $3, types = $4, enabled = TRUE, disabled_reason = NULL, updated_at = $5
               WHERE org_id = $1 AND agent_id = $2";
    if tx.run(sql, &[&org, &agent, &url, &types, &now])? == 1 {
        return Ok(());
    }

    let id = new_id(now);
    // The secret is empty: deliveries are signed with the org's bot token, as it is when they are sent.
    let secret = Password::new("").seal(&tx.keyring(), &owner(id));
    tx.run(
        "INSERT INTO webhooks (id, org_id, agent_id, url, types, secret, enabled, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, TRUE, $7, $7)",
        &[&id, &org, &agent, &url, &types, &secret, &now],
    )?;
    Ok(())
}

/// Deletes the callback of an agent, with its deliveries.
pub(crate) fn forget(tx: &mut Tx, org: Uuid, agent: Uuid) -> Result<(), Error> {
    let sql = "DELETE FROM webhooks WHERE org_id = $1 AND agent_id = $2";
    tx.run(sql, &[&org, &agent])?;
    Ok(())
}

fn types_of(progress: &[CallProgress]) -> Vec<EventType> {
    let types = progress.iter().flat_map(|stage| match stage {
        CallProgress::Initiated => &[EventType::CallStarted][..],
        CallProgress::Ringing => &[EventType::CallRinging],
        CallProgress::Answered => &[EventType::CallAnswered],
        CallProgress::Completed => &[EventType::CallEnded, EventType::CallRefused],
    });
    types.copied().collect()
}
