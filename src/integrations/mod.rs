//! Clients for services of third parties. Must not know orgs, the database or our own HTTP API.

mod booking;

pub use booking::{BookingFault, BookingPlatform, Keys};
