//! RTP sockets: bound to the first free port of a list, and emptied before their next call.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

use crate::listener::{next_unreachable, report_unreachable};

/// Most stale packets that are discarded from a socket before its next call. That call reads any that are left.
const STALE: usize = 256;

/// Binds the first of these ports that is free at `ip`, after at most `attempts`, and removes it from the list. Ports that another program
/// holds go to the end, and are noted.
///
/// # Errors
/// The address isn't this machine's, or the machine refuses more sockets.
pub(super) fn bind_first(
    ports: &mut VecDeque<u16>,
    foreign: &mut BTreeSet<u16>,
    ip: IpAddr,
    attempts: usize,
) -> io::Result<Option<(u16, UdpSocket)>> {
    let socket = Socket::new(Domain::for_address((ip, 0).into()), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;

    if ip.is_ipv6() {
        socket.set_only_v6(true)?;
    }

    // A kernel without it leaves a stream to a closed port running.
    let _ = report_unreachable(&socket, ip);

    for _ in 0..attempts.min(ports.len()) {
        let Some(port) = ports.pop_front() else { break };
        match socket.bind(&SocketAddr::new(ip, port).into()) {
            Ok(()) => {
                foreign.remove(&port);
                return Ok(Some((port, socket.into())));
            }
            Err(error) => {
                // Before the error may end the search, so that the port isn't lost to later calls.
                ports.push_back(port);
                if error.kind() != io::ErrorKind::AddrInUse {
                    return Err(error);
                }
                foreign.insert(port);
            }
        }
    }

    Ok(None)
}

/// Discards packets that came while the socket had no call.
pub(super) fn discard_stale(socket: &UdpSocket) {
    // Errors of the last call's packets.
    while let Ok(Some(_)) = next_unreachable(socket) {}
    for _ in 0..STALE {
        // One octet is room enough: the kernel discards the rest of the datagram.
        let received = socket.recv_from(&mut [0; 1]);
        if received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            return;
        }
    }
}
