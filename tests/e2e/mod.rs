//! The built daemon as a whole: two of them on one database, secrets in its output, and the examples of its documents.

mod away;
mod changes;
mod clocks;
mod control;
mod damaged;
mod deleted;
mod doctor;
mod ending;
mod enrolment;
mod examples;
mod kinds;
mod node;
mod nodes;
mod privacy;
mod proxy;
mod registered;
mod released;
mod secrets;
mod silent;
mod supervised;
mod talk;
mod widget;
