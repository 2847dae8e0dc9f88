//! Calls of people's browsers: a user agent in this process calls this node, and its media go to a browser instead of a socket.
//!
//! Knows neither WebSocket nor session (`console` does). Dropping a call hangs it up.

mod call;
mod line;
mod order;
mod user_agent;

pub(super) use call::Wires;
pub(super) use line::BrowserLine;
pub use order::{BrowserCall, BrowserCallee, BrowserCommand, BrowserEvent, BrowserOrder};
