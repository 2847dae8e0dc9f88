//! Steps of a call's media as rows of its ladder.

use trunkline_sip::moment::Moment;
use trunkline_store::{Call, calls};

use crate::api::{Api, ApiError};

/// Returns the steps of the call's media with their times; empty until it is over, or where it passed directly.
pub(super) async fn media_rows(api: &Api, call: &Call) -> Result<Vec<(Moment, String)>, ApiError> {
    let (org, id) = (call.org_id, call.id);
    let steps = match api.live().one(org, id).and_then(|live| live.media) {
        Some(media) => media.steps.clone(),
        None => {
            api.read_inline(move |tx| calls::media_steps(tx, org, id))
                .await?
        }
    };
    let rows = steps.iter().map(|step| (step.at, step.kind.to_string()));
    Ok(rows.collect())
}
