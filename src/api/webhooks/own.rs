//! The caller's own webhook, which a path names.

use trunkline_store::{Kind, Webhook};

use crate::api::caller::Caller;
use crate::api::path::Named;
use crate::api::{Api, ApiError};

/// The scope that all of this needs.
pub(super) const SCOPE: &str = "webhooks:write";

pub(super) async fn find(api: &Api, caller: &Caller, named: &Named) -> Result<Webhook, ApiError> {
    let id = named.id("webhook_id", Kind::Webhook)?;
    let org = caller.org;
    let found = api.read_inline(move |tx| trunkline_store::webhooks::by_id(tx, org, id));
    Ok(found.await?)
}
