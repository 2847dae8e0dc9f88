//! Additions of the configuration to the rows.

use trunkline_model::address::AddressPolicy;
use trunkline_model::settings::Runtime;

/// What the configuration adds to the rows.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The digest realm, which passwords are hashed with.
    pub realm: String,
    /// The runtime of agents without one.
    pub runtime: Runtime,
    /// Which sources of calls a trunk may trust.
    pub addresses: AddressPolicy,
}
