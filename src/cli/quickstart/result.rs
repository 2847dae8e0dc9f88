//! Result of `quickstart`.

use serde::Serialize;
use trunkline_routing::E164;
use uuid::Uuid;

/// Created objects, as `--json` prints them.
#[derive(Debug, Serialize)]
pub(super) struct QuickstartResult {
    pub(super) org_id: Uuid,
    pub(super) api_key: String,
    pub(super) partner_id: Uuid,
    pub(super) partner_key: String,
    pub(super) agent_id: Uuid,
    pub(super) phone_number: E164,
    pub(super) trunk: QuickstartTrunk,
    pub(super) http: String,
    /// Link that logs into the dashboard, once.
    pub(super) login_link: String,
    pub(super) sip: String,
}

#[derive(Debug, Serialize)]
pub(super) struct QuickstartTrunk {
    pub(super) sip_endpoint: String,
    pub(super) auth_username: String,
    pub(super) auth_password: String,
}
