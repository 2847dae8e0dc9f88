//! The code that a verification call speaks.

use std::fmt;

/// The digits of a code in ASCII. `Debug` shows none of them.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct SpokenCode(pub [u8; 6]);

impl fmt::Debug for SpokenCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[code]")
    }
}
