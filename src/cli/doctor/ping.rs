//! Sends one OPTIONS to an address, and reports whether a SIP answer comes in time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use trunkline_sip::flow::Transport;

/// Time for the whole probe.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Number of times that a datagram is sent; each waits for its share of the time.
const ATTEMPTS: u32 = 3;

/// Outcome of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PingAnswer {
    /// SIP response with this status.
    Status(u16),
    /// Open connection, on which nothing was sent.
    Connected,
    /// No answer, or one that isn't SIP.
    Silence,
    /// Network error.
    Refused(String),
}

impl PingAnswer {
    pub(super) const fn is_alive(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Connected)
    }
}

/// Probes a peer.
pub(super) async fn ping(transport: Transport, peer: SocketAddr) -> PingAnswer {
    let asked = async {
        match transport {
            Transport::Udp => udp(peer).await,
            Transport::Tcp => tcp(peer).await,
            Transport::Tls => TcpStream::connect(peer)
                .await
                .map(|_| PingAnswer::Connected),
        }
    };

    match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => PingAnswer::Refused(error.to_string()),
        Err(_) => PingAnswer::Silence,
    }
}

async fn udp(peer: SocketAddr) -> std::io::Result<PingAnswer> {
    let any: IpAddr = if peer.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };

    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    // A connected socket reports an ICMP error as an error of `recv`, and takes no datagram from another address.
    socket.connect(peer).await?;
    let request = options("UDP", socket.local_addr()?, peer);
    let mut buffer = vec![0; 4_096];
    for _ in 0..ATTEMPTS {
        // The same octets each time, so that to the peer it is a retransmission (RFC 3261 §17.2.2).
        socket.send(request.as_bytes()).await?;
        let received = tokio::time::timeout(TIMEOUT / ATTEMPTS, socket.recv(&mut buffer)).await;
        if let Ok(length) = received {
            return Ok(read(&buffer[..length?]));
        }
    }

    Ok(PingAnswer::Silence)
}

async fn tcp(peer: SocketAddr) -> std::io::Result<PingAnswer> {
    let mut stream = TcpStream::connect(peer).await?;
    let request = options("TCP", stream.local_addr()?, peer);
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; 4_096];
    // One read is enough for the status line, which is all that counts.
    let length = stream.read(&mut buffer).await?;
    Ok(read(&buffer[..length]))
}

fn read(octets: &[u8]) -> PingAnswer {
    let status = octets
        .strip_prefix(b"SIP/2.0 ")
        .and_then(|rest| std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok());
    status.map_or(PingAnswer::Silence, PingAnswer::Status)
}

fn options(transport: &str, own: SocketAddr, peer: SocketAddr) -> String {
    let unique = uuid::Uuid::new_v4().simple();
    format!(
        "OPTIONS sip:{peer} SIP/2.0\r\nVia: SIP/2.0/{transport} {own};branch=z9hG4bK{unique};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:doctor@{own}>;tag={unique}\r\nTo: <sip:{peer}>\r\nCall-ID: {unique}\r\nCSeq: 1 OPTIONS\r\n\
         Contact: <sip:doctor@{own}>\r\nContent-Length: 0\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sip_counts_as_an_answer() {
        for (octets, expected) in [
            (&b"SIP/2.0 200 OK\r\n"[..], PingAnswer::Status(200)),
            (b"SIP/2.0 405 No\r\n", PingAnswer::Status(405)),
            (b"HTTP/1.1 400 Bad Request\r\n", PingAnswer::Silence),
            (b"SIP/2.0 x", PingAnswer::Silence),
            (b"", PingAnswer::Silence),
        ] {
            assert_eq!(read(octets), expected, "{}", octets.escape_ascii());
        }
    }
}
