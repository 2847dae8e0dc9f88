//! Calls of people's browsers: a user agent of this process calls this node, and its media's other side is a browser instead of a socket.
//!
//! Knows neither WebSocket nor session: `api::dashboard` has these. A call that is dropped there hangs up.

mod call;
mod line;
mod order;
mod user_agent;

pub(super) use call::Wires;
pub(super) use line::BrowserLine;
pub use order::{BrowserCall, BrowserCallee, BrowserCommand, BrowserEvent, BrowserOrder, NoPort};
