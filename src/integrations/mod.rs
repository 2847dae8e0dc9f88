//! Services of third parties: how they are asked. Knows no org, no database and no HTTP of ours.

mod booking;

pub use booking::{BookingFault, BookingPlatform, Keys};
