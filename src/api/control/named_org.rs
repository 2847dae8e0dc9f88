//! Org that the path of an operator's request names.

use trunkline_store::{Acting, Kind, Org};

use crate::api::path::Named;
use crate::api::{Api, ApiError};

/// Returns the org in the path, and names it for the audit log's entry.
///
/// # Errors
/// 404.
pub(super) async fn org_in(api: &Api, named: &Named) -> Result<Org, ApiError> {
    let id = named.id("orgId", Kind::Org)?;
    let org = api.read_inline(move |tx| trunkline_store::orgs::by_id(tx, id));
    let org = org.await?;
    Acting::of_org(org.id);
    Ok(org)
}
