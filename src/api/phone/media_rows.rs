//! Steps of a call's media as rows of its ladder.

use trunkline_model::media::MediaStep;
use trunkline_sip::moment::Moment;
use trunkline_store::{Call, calls};

use crate::api::{Api, ApiError};

/// Returns the steps of the call's media with their times, also while the media are in use; none if the media passed directly.
pub(super) async fn media_rows(api: &Api, call: &Call) -> Result<Vec<(Moment, String)>, ApiError> {
    let (org, id) = (call.org_id, call.id);
    let steps = match steps_here(api, call) {
        Some(steps) => steps,
        None => {
            api.read_inline(move |tx| calls::media_steps(tx, org, id))
                .await?
        }
    };
    let rows = steps.iter().map(|step| (step.at, step.kind.to_string()));
    Ok(rows.collect())
}

/// Returns the steps as this process has them: those that are recorded, and those of media in use. `None` if the call isn't live here.
fn steps_here(api: &Api, call: &Call) -> Option<Vec<MediaStep>> {
    let live = api.live().one(call.org_id, call.id)?;
    let mut steps = live
        .media
        .map_or_else(Vec::new, |media| media.steps.clone());
    if let (Some(engine), Some(key)) = (api.engine(), live.media_key) {
        steps.extend(engine.media_steps(call.id, key));
    }
    Some(steps)
}
