//! dialog
