//! Values of the configuration that the directory needs beside the rows.

use trunkline_model::address::AddressPolicy;
use trunkline_model::settings::Runtime;

/// Values of the configuration.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Digest realm, part of the hashes of passwords.
    pub realm: String,
    /// The runtime of agents without one.
    pub runtime: Runtime,
    /// Policy on sources that a trunk may trust.
    pub addresses: AddressPolicy,
}
