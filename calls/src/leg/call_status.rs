//! Status of a call, computed from its legs.

/// Status of a call, as its legs have it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum CallStatus {
    /// One of the two legs has not been accepted yet.
    SettingUp,
    /// Our 2xx is out, the caller's ACK is not in. Without one in 64*T1 the call ends.
    Answered,
    /// The 2xx that answered the call is acknowledged.
    Up,
    /// Over; what is left waits for the answers to our BYEs.
    Over,
}
