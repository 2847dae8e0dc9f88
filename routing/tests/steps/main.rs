//! The four steps from outside the crate: case by case, and against a reference.

mod cases;
mod examples;
mod model;
mod world;
