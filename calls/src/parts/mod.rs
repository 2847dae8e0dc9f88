//! Small parts that stand alone: ids, tables and rules which several rooms use.

pub(crate) mod allow;
pub(crate) mod bye;
pub(crate) mod crossing;
pub(crate) mod dial_failure;
pub mod flow_choice;
pub(crate) mod ids;
pub(crate) mod ip_family;
pub(crate) mod origin;
pub mod pbx;
pub(crate) mod preloaded_route;
pub(crate) mod privacy;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod request_origin;
pub(crate) mod role;
pub(crate) mod sips;
pub(crate) mod spoken_code;
pub mod target;
pub mod wall_clock;
