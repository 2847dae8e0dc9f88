//! The runs: each loads something and reports on it.

mod api;
mod bench;
mod bots;
mod calls;
mod console;
mod directory;
mod hold;
mod hostile;
mod leftover;
mod line;
mod loopback;
mod options;
mod overload;
mod registrations;
mod tracing;

pub use api::{Scale, api};
pub use bench::{Bench, Fault, Measured, Setting, drain, run};
pub use bots::{MOST_CALLS, Talk, bots};
pub use calls::{Load, calls};
pub use console::{Pages, call_list, live_pages};
pub use directory::{Size, directory};
pub use hold::{Phase, hold};
pub use hostile::{Attack, hostile};
pub use line::{Shape, line, list};
pub use loopback::loopback;
pub use options::options;
pub use overload::overload;
pub use registrations::{Fleet, registrations};
pub use tracing::tracing;
