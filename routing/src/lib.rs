//! Routing, pure.
