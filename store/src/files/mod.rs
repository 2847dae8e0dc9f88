//! Files of a node's own: private ones, files written whole or not at all, and the priority of the threads that write.

pub mod priority;
pub mod private;
pub mod whole_file;
