//! The runs: each loads something and reports on it.

mod bench;
mod bots;
mod console;
mod directory;
mod held;
mod hostile;
mod instructions;
mod leftover;
mod line;
mod list;
mod loopback;
mod registrations;

pub use bench::{Fault, Measured, Setting, drain, run};
pub use bots::{MOST_CALLS, Talk, bots};
pub use console::{Pages, call_list, live_pages};
pub use directory::{Size, directory};
pub use held::Phase;
pub use hostile::{Attack, hostile};
pub use instructions::{Counted, instructions};
pub use line::{Shape, line};
pub use list::list;
pub use loopback::loopback;
pub use registrations::{Fleet, registrations};
