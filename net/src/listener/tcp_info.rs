//! State of a TCP connection as the kernel has it (`TCP_INFO`, tcp(7)). Owns the unsafe call that reads it.
#![expect(unsafe_code, reason = "no crate that we use reads TCP_INFO")]

use std::mem;
use std::os::fd::AsRawFd;

/// Returns whether the peer of a TCP connection leaves octets unacknowledged although they were sent again and again, as one that has vanished
/// does. A peer that merely doesn't read acknowledges what its kernel has taken.
pub(crate) fn is_unacknowledged(connection: &impl AsRawFd) -> bool {
    const RESENT: u8 = 2;

    // SAFETY: tcp_info is plain integers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` octets to `info`, which lives past the call.
    let failed = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };

    failed == 0 && info.tcpi_unacked > 0 && info.tcpi_retransmits >= RESENT
}
