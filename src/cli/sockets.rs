//! Binds every address that the daemon listens on before anything else starts, so that a taken port has no side
//! effects.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use trunkline_net::listener::{tcp, udp};
use trunkline_sip::flow::Transport;

use super::Failure;
use crate::config::{Config, Listener};
use crate::engine::{BoundListener, ListenerSockets};

/// Bound sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    /// Socket of the API.
    pub(super) http: TcpListener,
    /// Socket of `http.health_listen`.
    pub(super) health: Option<TcpListener>,
    /// Sockets of SIP, in the order of `sip.listeners`.
    pub(super) sip: Vec<BoundListener>,
}

impl Sockets {
    pub(super) fn bind(config: &Config) -> Result<Self, Failure> {
        let http = tcp::bind(config.http.listen)
            .map_err(|error| taken("http.listen", config.http.listen, &error))?;
        let health = config.http.health_listen.map(|address| {
            tcp::bind(address).map_err(|error| taken("http.health_listen", address, &error))
        });
        let bind = |listener: &Listener| {
            let key = format!("sip.{}", listener.transport);
            bind(listener, config.sip.shards).map_err(|error| taken(&key, listener.address, &error))
        };

        Ok(Self {
            http,
            health: health.transpose()?,
            sip: config
                .sip
                .listeners
                .iter()
                .map(bind)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn bind(listener: &Listener, shards: usize) -> io::Result<BoundListener> {
    let (address, sockets) = match listener.transport {
        Transport::Udp => {
            let sockets = shared_udp(listener.address, shards)?;
            (sockets[0].local_addr()?, ListenerSockets::Udp(sockets))
        }
        Transport::Tcp => {
            let socket = tcp::bind(listener.address)?;
            (socket.local_addr()?, ListenerSockets::Tcp(socket))
        }
        Transport::Tls => {
            let socket = tcp::bind(listener.address)?;
            (socket.local_addr()?, ListenerSockets::Tls(socket))
        }
    };
    Ok(BoundListener { address, sockets })
}

/// Binds one socket per shard to one port. Sockets with SO_REUSEPORT don't notice another process on the port, so it is
/// first bound without.
fn shared_udp(address: SocketAddr, shards: usize) -> io::Result<Vec<UdpSocket>> {
    // The socket is closed again with this statement. Its address names the port that the system has chosen for port 0.
    let alone = udp::bind(address, false)?.local_addr()?;
    (0..shards.max(1)).map(|_| udp::bind(alone, true)).collect()
}

/// Address at which this machine reaches one of its listeners.
pub(super) fn near(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn taken(key: &str, address: SocketAddr, error: &io::Error) -> Failure {
    let (kind, rest) = (error.kind(), format!("set {key} to another"));
    let advice = if kind == io::ErrorKind::AddrInUse {
        format!("the port is taken: end the program that holds it, or {rest} address")
    } else if kind == io::ErrorKind::AddrNotAvailable {
        format!("this machine has no such address: set {key} to one that it has")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("ports below 1024 need a privilege: {rest} port")
    } else {
        format!("{error}: {rest} address")
    };
    Failure::Startup(format!("can't listen on {address}: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Override, Sources};

    fn config(settings: &[(&str, &str)]) -> Config {
        let given = |(key, value): &(&str, &str)| Override {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            flag: String::new(),
        };

        let flags = [
            ("http.listen", "127.0.0.1:0"),
            ("sip.udp", "127.0.0.1:0"),
            ("sip.tcp", "127.0.0.1:0"),
            ("sip.shards", "2"),
        ];

        let flags = flags.iter().chain(settings).map(given).collect();
        Config::load(&Sources {
            flags,
            ..Sources::default()
        })
        .unwrap()
    }

    #[test]
    fn a_shard_has_a_socket_of_its_own_on_the_same_port() {
        let sockets = Sockets::bind(&config(&[])).unwrap();
        let ListenerSockets::Udp(shared) = &sockets.sip[0].sockets else {
            panic!("UDP comes first")
        };
        assert_eq!(shared.len(), 2);
        assert!(
            shared
                .iter()
                .all(|socket| socket.local_addr().unwrap() == sockets.sip[0].address)
        );
        assert_ne!(sockets.sip[0].address.port(), 0);
    }

    #[test]
    fn a_taken_port_is_exit_code_2_and_a_sentence() {
        let first = Sockets::bind(&config(&[])).unwrap();
        let (udp, http) = (
            first.sip[0].address.to_string(),
            first.http.local_addr().unwrap().to_string(),
        );
        for (key, address) in [("sip.udp", udp), ("http.listen", http)] {
            let failure = Sockets::bind(&config(&[(key, &address)])).unwrap_err();
            assert_eq!(failure.code(), 2);
            let said = format!(
                "can't listen on {address}: the port is taken: end the program that holds it, or set {key} to another address"
            );
            assert_eq!(failure.to_string(), said);
        }
    }
}
