//! What the declarations of these operations have in common.

use crate::api::caller::Provisioner;
use crate::api::idempotency::{Idempotent, once_for};
use crate::api::operations::Audience;

/// Wraps a handler that takes `Idempotency-Key`.
pub(super) const fn once<H>(handler: H) -> Idempotent<Provisioner, H> {
    once_for(handler)
}

/// Tag of the operations in the document.
pub(super) const fn tag(by: Audience) -> &'static str {
    if matches!(by, Audience::Operator) {
        "Operator"
    } else {
        "Partner provisioning"
    }
}
