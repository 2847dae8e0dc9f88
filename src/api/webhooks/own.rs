//! Webhook of the requesting org that the path names.

use trunkline_store::{Kind, Webhook};

use crate::api::caller::Caller;
use crate::api::operations::Audience;
use crate::api::path::Named;
use crate::api::{Api, ApiError};

/// Scope that every endpoint here requires.
const SCOPE: &str = "webhooks:write";
/// Tag of the operations in the document.
pub(super) const TAG: &str = "Webhooks";
/// Operations on webhooks.
pub(super) const OF_ORG: Audience = Audience::Org {
    read: &[SCOPE],
    write: &[SCOPE],
};

pub(super) async fn find(api: &Api, caller: &Caller, named: &Named) -> Result<Webhook, ApiError> {
    let id = named.id("webhook_id", Kind::Webhook)?;
    let org = caller.org;
    let found = api.read_inline(move |tx| trunkline_store::webhooks::by_id(tx, org, id));
    Ok(found.await?)
}
