//! slot
