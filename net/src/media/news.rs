//! News that media has of a call.

/// What the media has to tell of a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// It has not been heard for [`Settings::silence`](super::Settings::silence); told once until it is heard again.
    Silent,
    /// Its peer presses this digit (RFC 4733).
    Digit(u8),
    /// All was said that it was to hear, or nobody was there to hear it.
    Spoken,
}
