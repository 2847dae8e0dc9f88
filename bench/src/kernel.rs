//! The only unsafe module: kernel interfaces that std doesn't offer. Many datagrams per system call, waiting on two sockets,
//! choosing a core, the length of a clock tick.
#![expect(
    unsafe_code,
    reason = "std has no safe interface for recvmmsg, sendmmsg, ppoll, sched_setaffinity and sched_setscheduler"
)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use crate::outbox::Outbox;

/// Most datagrams that one system call reads; the next call reads the others.
const BATCH: usize = 64;
/// Longest datagram that is read whole; a longer one is cut off there.
const ROOM: usize = 8 * 1024;

/// Buffers that one `recvmmsg` fills. Boxed, so that the kernel's pointers stay valid when the struct moves.
pub struct Receiver {
    buffers: Box<[u8]>,
    names: Box<[libc::sockaddr_in]>,
    _vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver")
    }
}

impl Default for Receiver {
    fn default() -> Self {
        let mut buffers = vec![0_u8; BATCH * ROOM].into_boxed_slice();

        // SAFETY: these are plain C structures for which all-zero octets are a valid value.
        let (mut names, mut vectors, mut headers): (
            Vec<libc::sockaddr_in>,
            Vec<libc::iovec>,
            Vec<libc::mmsghdr>,
        ) = unsafe {
            (
                vec![zeroed(); BATCH],
                vec![zeroed(); BATCH],
                vec![zeroed(); BATCH],
            )
        };
        for (at, buffer) in buffers.chunks_exact_mut(ROOM).enumerate() {
            vectors[at] = libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: ROOM,
            };
            headers[at].msg_hdr.msg_iov = &raw mut vectors[at];
            headers[at].msg_hdr.msg_iovlen = 1;
            headers[at].msg_hdr.msg_name = (&raw mut names[at]).cast();
        }

        Self {
            buffers,
            names: names.into(),
            _vectors: vectors.into(),
            headers: headers.into(),
        }
    }
}

impl Receiver {
    /// Reads waiting datagrams without blocking, at most `BATCH`; returns their number.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        for header in &mut self.headers {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        }

        // SAFETY: each header points at one vector, one name and one buffer of this struct, all alive and of the stated lengths.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                null_mut(),
            )
        };

        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                error => Err(error),
            },
        }
    }

    /// One of the datagrams read last, and its source.
    pub fn datagram(&self, at: usize) -> (&[u8], SocketAddrV4) {
        let length = (self.headers[at].msg_len as usize).min(ROOM);
        let name = &self.names[at];
        let source = SocketAddrV4::new(
            Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)),
            u16::from_be(name.sin_port),
        );
        (&self.buffers[at * ROOM..at * ROOM + length], source)
    }
}

/// Arguments of one `sendmmsg`.
pub struct Sender {
    names: Vec<libc::sockaddr_in>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            names: Vec::with_capacity(1024),
            vectors: Vec::with_capacity(1024),
            headers: Vec::with_capacity(1024),
        }
    }
}

impl Sender {
    /// Sends all messages and empties the outbox; returns how many were not sent.
    pub fn send(&mut self, socket: &UdpSocket, outbox: &mut Outbox) -> u64 {
        self.prepare(outbox);
        let (mut sent, mut lost) = (0, 0);
        while sent < self.headers.len() {
            let rest = &mut self.headers[sent..];
            // SAFETY: the headers point at names and vectors of this struct, and the vectors at octets of the outbox. All of them stay
            // untouched until the call returns.
            let count = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };

            // An error concerns the first message, or is an ICMP error that an earlier message caused. In both cases the first counts as
            // not sent.
            let passed = usize::try_from(count).unwrap_or(0);
            lost += u64::from(passed == 0);
            sent += passed.max(1);
        }
        outbox.clear();
        lost
    }

    fn prepare(&mut self, outbox: &Outbox) {
        self.names.clear();
        self.vectors.clear();
        self.headers.clear();
        for (octets, to) in outbox.messages() {
            self.names.push(name_of(to));
            self.vectors.push(libc::iovec {
                iov_base: octets.as_ptr().cast_mut().cast(),
                iov_len: octets.len(),
            });
        }

        for (name, vector) in self.names.iter_mut().zip(&mut self.vectors) {
            // SAFETY: a plain C structure for which all-zero octets are a valid value.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_name = (&raw mut *name).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            header.msg_hdr.msg_iov = &raw mut *vector;
            header.msg_hdr.msg_iovlen = 1;
            self.headers.push(header);
        }
    }
}

fn name_of(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// Sets the size of a socket's buffers, beyond the system's cap if permitted.
pub fn widen(socket: &UdpSocket, octets: i32) {
    for (force, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        let set = |option| {
            // SAFETY: the value is a live c_int and its length is given.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const octets).cast(),
                    size_of::<i32>() as u32,
                )
            }
        };
        // The forced options need CAP_NET_ADMIN. Without it the system's cap applies, and the run goes on.
        if set(force) != 0 {
            set(plain);
        }
    }
}

/// Waits until one of the sockets can be read or `micros` have passed.
pub fn wait(sockets: [&UdpSocket; 2], micros: u64) {
    let mut waited = sockets.map(|socket| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = libc::timespec {
        tv_sec: (micros / 1_000_000) as i64,
        tv_nsec: (micros % 1_000_000 * 1_000) as i64,
    };
    // The result doesn't matter: the caller reads both sockets without blocking, whatever has ended the wait.
    // SAFETY: two live descriptions of sockets and a live timeout; no signal mask.
    unsafe { libc::ppoll(waited.as_mut_ptr(), 2, &raw const timeout, std::ptr::null()) };
}

/// Pins the calling thread, and the threads and processes that it starts from now on, to one core.
pub fn pin_to(core: usize) -> io::Result<()> {
    // SAFETY: the set is a plain C structure; CPU_SET checks the core's number against its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets the calling thread run only while nothing else wants its core.
pub fn give_way() -> io::Result<()> {
    // SAFETY: a live parameter, whose priority has to be 0 for this policy.
    let result = unsafe {
        let parameter: libc::sched_param = zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Clock ticks per second, the unit of CPU times in /proc.
pub fn ticks_per_second() -> f64 {
    // SAFETY: reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

/// Sends SIGTERM to a process.
pub fn terminate(pid: u32) {
    // SAFETY: a signal to a child of ours that hasn't been waited for, so that its number can't be another's.
    unsafe { libc::kill(pid as i32, libc::SIGTERM) };
}

/// Sends SIGINT to a process.
pub fn interrupt(pid: u32) {
    // SAFETY: as in `terminate`.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_arrive_in_order_and_name_their_sender() {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("loopback"));
        let [from, to] = [0, 1].map(|at| match sockets[at].local_addr().expect("bound") {
            std::net::SocketAddr::V4(address) => address,
            std::net::SocketAddr::V6(address) => panic!("{address} on an IPv4 socket"),
        });
        let mut outbox = Outbox::default();
        for number in 0..40 {
            outbox.put_decimal(number);
            outbox.end(to);
        }
        assert_eq!(Sender::default().send(&sockets[0], &mut outbox), 0);

        let mut receiver = Receiver::default();
        wait([&sockets[0], &sockets[1]], 5_000_000);

        let count = receiver.receive(&sockets[1]).expect("readable");
        let got: Vec<_> = (0..count)
            .map(|at| (receiver.datagram(at).0.to_vec(), receiver.datagram(at).1))
            .collect();
        assert_eq!(
            got,
            (0..40)
                .map(|number: u32| (number.to_string().into_bytes(), from))
                .collect::<Vec<_>>()
        );
        assert_eq!(receiver.receive(&sockets[1]).expect("empty"), 0);
    }
}
