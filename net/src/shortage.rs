//! Reports that no descriptor is left for peers and calls.

use trunkline_bounds::Descriptors;

/// Logs that no descriptor is left, once for each shortage.
pub fn report(descriptors: &Descriptors) {
    if descriptors.begins_shortage() {
        tracing::warn!(
            held = descriptors.held(),
            "SIP connections and calls' sockets have taken all descriptors but those in reserve, and further ones are refused: raise the limit on open files (LimitNOFILE, ulimit -n)"
        );
    }
}
