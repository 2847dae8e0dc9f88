//! Batches of datagrams in one system call: recvmmsg, sendmmsg, their control messages and the error queue.
//!
//! Owns every unsafe block of the listeners, and the layout of the structures that the kernel reads and writes. Knows nothing of SIP, flows
//! or the executor beyond registering a descriptor. See recvmmsg(2), sendmmsg(2), cmsg(3), ip(7), ipv6(7).
#![expect(
    unsafe_code,
    reason = "batched datagrams with control messages have no safe interface that reuses its buffers"
)]

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use trunkline_sip::fault::Unreachable;

use super::datagram_errors::unreachable_by_icmp;

/// Most datagrams of one system call.
pub const BATCH: usize = 64;
/// Buffer size of one datagram: no UDP payload is longer, so none is ever truncated.
const ROOM: usize = 65_536;
/// Distance of two such buffers. At a power of two the datagrams of a batch would share a few sets of the caches, and displace each other.
const STRIDE: usize = ROOM + 17 * 64;

/// Buffer for the control messages of a received datagram: packet info (40 octets), a timestamp (32) and the overflow count (24), or an
/// extended error.
#[repr(C, align(8))]
#[derive(Copy, Clone)]
struct Control([u8; 128]);

const CONTROL: usize = size_of::<Control>();

/// Buffer for the one control message of a sent datagram: packet info.
type Source = [u64; 5];

/// Metadata of one received datagram.
#[derive(Copy, Clone, Debug)]
pub(super) struct Arrival {
    pub(super) peer: SocketAddr,
    /// Destination address of the packet, if the socket asks for it.
    pub(super) local: Option<IpAddr>,
    /// Time of arrival in the kernel, since the Unix epoch by the machine's wall clock.
    pub(super) stamped: Option<Duration>,
    length: usize,
}

/// Buffers for receiving, allocated at the first batch and reused. An empty value costs nothing, so it can take the place of one that is
/// lent out.
#[derive(Default)]
pub(super) struct Incoming {
    octets: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    headers: Headers,
    arrivals: Vec<Arrival>,
    overflowed: u32,
}

/// Headers that name the other buffers to the kernel. They are written once: a busy shard receives thousands of small batches a second. Neither
/// these nor the buffers are resized afterwards, since pointers lead to them.
#[derive(Default)]
struct Headers {
    iovecs: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers lead to buffers on the heap that belong to the same `Incoming`, and that only `Incoming::receive` has written to by them.
unsafe impl Send for Headers {}

impl Incoming {
    fn make_room(&mut self) {
        // The kernel maps zeroed pages lazily: only pages that long datagrams touch become resident.
        self.octets = vec![0; BATCH * STRIDE];
        // SAFETY: sockaddr_storage is plain integers, for which zero is valid.
        self.names = vec![unsafe { mem::zeroed() }; BATCH];
        self.controls = vec![Control([0; CONTROL]); BATCH];
        self.arrivals = Vec::with_capacity(BATCH);

        let (names, controls) = (self.names.as_mut_ptr(), self.controls.as_mut_ptr());
        let rooms = self.octets.chunks_exact_mut(STRIDE);
        self.headers.iovecs = rooms
            .map(|room| libc::iovec {
                iov_base: room.as_mut_ptr().cast(),
                iov_len: ROOM,
            })
            .collect();
        let iovecs = self.headers.iovecs.as_mut_ptr();
        let message = |at| {
            // SAFETY: zero is a valid mmsghdr (null pointers and zero lengths).
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            message.msg_hdr.msg_name = names.wrapping_add(at).cast();
            message.msg_hdr.msg_iov = iovecs.wrapping_add(at);
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = controls.wrapping_add(at).cast();
            set_room(&mut message.msg_hdr);
            message
        };
        self.headers.messages = (0..BATCH).map(message).collect();
    }

    /// Returns the datagrams of the last batch, in order of arrival.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = (&Arrival, &[u8])> {
        self.arrivals
            .iter()
            .zip(self.octets.chunks_exact(STRIDE))
            .map(|(arrival, room)| (arrival, &room[..arrival.length]))
    }

    pub(super) fn clear(&mut self) {
        self.arrivals.clear();
    }

    /// Returns the number of datagrams dropped since the socket was created because its buffer was full (wraps around).
    pub(super) const fn overflowed(&self) -> u32 {
        self.overflowed
    }

    /// Receives waiting datagrams, never blocking. Returns their number.
    pub(super) fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.arrivals.clear();
        if self.octets.is_empty() {
            self.make_room();
        }

        // SAFETY: each header points to buffers of the stated lengths that live past the call; no timeout is given.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };

        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for at in 0..count {
            let header = self.headers.messages[at];
            let arrival = self.arrival(at, &header);
            self.arrivals.push(arrival);
            set_room(&mut self.headers.messages[at].msg_hdr);
        }

        Ok(count)
    }

    fn arrival(&mut self, at: usize, header: &libc::mmsghdr) -> Arrival {
        let unspecified = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let mut arrival = Arrival {
            peer: address(&self.names[at]).unwrap_or(unspecified),
            local: None,
            stamped: None,
            length: header.msg_len as usize,
        };
        for control in controls(&header.msg_hdr) {
            match control {
                ControlMessage::Destination(local) => arrival.local = Some(local),
                ControlMessage::Stamp(since_epoch) => arrival.stamped = Some(since_epoch),
                ControlMessage::Overflow(total) => self.overflowed = total,
                ControlMessage::Unreachable(_) | ControlMessage::Other => {}
            }
        }

        arrival
    }
}

/// A row for one entry per datagram of a batch, on the stack. Only what is added is written: a busy shard sends thousands of small batches a second.
type Row<T> = SmallVec<[T; BATCH]>;

/// Offers the kernel the whole room for a peer's address and for control messages. It writes there how much it has used.
const fn set_room(header: &mut libc::msghdr) {
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_controllen = CONTROL;
}

/// Datagrams to be sent by one system call.
#[derive(Default)]
pub(super) struct Outgoing<'a> {
    iovecs: Row<libc::iovec>,
    names: Row<Name>,
    sources: Row<(Source, usize)>,
    octets: PhantomData<&'a [u8]>,
}

#[derive(Copy, Clone)]
#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl<'a> Outgoing<'a> {
    pub(super) fn len(&self) -> usize {
        self.iovecs.len()
    }

    pub(super) fn clear(&mut self) {
        self.iovecs.clear();
        self.names.clear();
        self.sources.clear();
    }

    /// Adds a datagram, sent from `source` if the socket is bound to a wildcard address. The batch must have fewer than [`BATCH`]
    /// datagrams.
    pub(super) fn push(&mut self, octets: &'a [u8], peer: SocketAddr, source: Option<IpAddr>) {
        self.iovecs.push(libc::iovec {
            iov_base: octets.as_ptr().cast_mut().cast(),
            iov_len: octets.len(),
        });

        self.names.push(match peer {
            SocketAddr::V4(peer) => Name {
                v4: sockaddr_v4(peer),
            },
            SocketAddr::V6(peer) => Name {
                v6: sockaddr_v6(peer),
            },
        });

        let mut control = Source::default();
        let length = match source {
            None => 0,
            Some(IpAddr::V4(source)) => packet_info_v4(&mut control, source),
            Some(IpAddr::V6(source)) => packet_info_v6(&mut control, source),
        };
        self.sources.push((control, length));
    }

    /// Sends from the `from`th datagram on, never blocking. Returns the number sent. An error concerns the `from`th datagram, or an earlier
    /// one to which an ICMP message has come meanwhile.
    pub(super) fn send(&mut self, socket: &UdpSocket, from: usize) -> io::Result<usize> {
        let mut headers = Row::<libc::mmsghdr>::new();
        for at in from..self.len() {
            // SAFETY: zero is a valid mmsghdr (null pointers and zero lengths).
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            let header = &mut message.msg_hdr;
            header.msg_name = (&raw mut self.names[at]).cast();
            header.msg_namelen = self.names[at].length();
            header.msg_iov = &raw mut self.iovecs[at];
            header.msg_iovlen = 1;
            header.msg_controllen = self.sources[at].1;
            header.msg_control = match self.sources[at].1 {
                0 => ptr::null_mut(),
                _ => (&raw mut self.sources[at].0).cast(),
            };
            headers.push(message);
        }

        let (first, count) = (headers.as_mut_ptr(), headers.len());
        // SAFETY: `count` headers from `first` on point to buffers of the stated lengths; the datagrams' octets are
        // borrowed for 'a, and the kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                first,
                count as u32,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };

        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Name {
    fn length(&self) -> libc::socklen_t {
        // SAFETY: the family is the first field of both, and all bit patterns are valid.
        let family = unsafe { self.v4.sin_family };
        let length = if family == libc::AF_INET as u16 {
            size_of::<libc::sockaddr_in>()
        } else {
            size_of::<libc::sockaddr_in6>()
        };
        length as libc::socklen_t
    }
}

/// Takes one entry of the error queue: the peer that an ICMP message reports as unreachable; `Some(None)` for an entry that reports no
/// loss (RFC 3261 §18.4 ignores those); `None` if the queue is empty.
pub(crate) fn next_unreachable(
    socket: &UdpSocket,
) -> io::Result<Option<Option<(SocketAddr, Unreachable)>>> {
    let mut control = Control([0; CONTROL]);
    let mut octets = [0_u8; 1];

    // SAFETY: zero is valid for these integers and pointers.
    let (mut name, mut header): (libc::sockaddr_storage, libc::msghdr) = unsafe { mem::zeroed() };
    let mut iovec = libc::iovec {
        iov_base: octets.as_mut_ptr().cast(),
        iov_len: octets.len(),
    };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL;

    // SAFETY: the header points to buffers of the stated lengths that live past the call.
    let result = unsafe {
        libc::recvmsg(
            socket.as_raw_fd(),
            &raw mut header,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    if result < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock {
            Ok(None)
        } else {
            Err(error)
        };
    }

    let what = controls(&header).find_map(|control| match control {
        ControlMessage::Unreachable(what) => what,
        ControlMessage::Destination(_)
        | ControlMessage::Stamp(_)
        | ControlMessage::Overflow(_)
        | ControlMessage::Other => None,
    });

    Ok(Some(address(&name).zip(what)))
}

/// A parsed control message.
enum ControlMessage {
    Destination(IpAddr),
    Stamp(Duration),
    Overflow(u32),
    /// An extended error; the kind of unreachability, if it reports one.
    Unreachable(Option<Unreachable>),
    Other,
}

/// Returns the control messages that the kernel wrote for `header`, whose buffer must be alive.
fn controls(header: &libc::msghdr) -> impl Iterator<Item = ControlMessage> {
    // SAFETY: the header was filled by the kernel, and its control buffer outlives the iteration (see callers).
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole control message within the buffer.
        let message = unsafe { read_control(next) };
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
        Some(message)
    })
}

/// Parses a control message.
///
/// # Safety
/// `at` points to a whole control message in a buffer that is alive.
unsafe fn read_control(at: *const libc::cmsghdr) -> ControlMessage {
    // SAFETY: the caller promises a whole message. Behind its header is the type that level and kind name, perhaps unaligned.
    unsafe {
        let data = libc::CMSG_DATA(at);
        match ((*at).cmsg_level, (*at).cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info: libc::in_pktinfo = ptr::read_unaligned(data.cast());
                ControlMessage::Destination(IpAddr::V4(Ipv4Addr::from(u32::from_be(
                    info.ipi_addr.s_addr,
                ))))
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let info: libc::in6_pktinfo = ptr::read_unaligned(data.cast());
                ControlMessage::Destination(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)))
            }

            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                let stamp: libc::timespec = ptr::read_unaligned(data.cast());
                let seconds = u64::try_from(stamp.tv_sec).unwrap_or(0);
                ControlMessage::Stamp(Duration::new(
                    seconds,
                    u32::try_from(stamp.tv_nsec).unwrap_or(0),
                ))
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                ControlMessage::Overflow(ptr::read_unaligned(data.cast()))
            }

            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                ControlMessage::Unreachable(unreachable_by_icmp(&ptr::read_unaligned(data.cast())))
            }
            _ => ControlMessage::Other,
        }
    }
}

/// Sets the options that [`Incoming`] relies on, for a socket to be bound to `address`: destination addresses if it is a wildcard,
/// timestamps, overflow counts and, through the error queue, ICMP messages. Permits IP fragmentation, since a datagram can't be sent
/// again in pieces.
pub(super) fn prepare(
    socket: &UdpSocket,
    address: SocketAddr,
    buffer_octets: i32,
) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let wants_destination = i32::from(address.ip().is_unspecified());

    let (level, destination, discovery, none) = match address {
        SocketAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        ),
        SocketAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVPKTINFO,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
    };
    set_option(fd, level, destination, wants_destination)?;
    set_option(fd, level, discovery, none)?;
    report_unreachable(socket, address.ip())?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;

    // Only a privileged process may exceed net.core.rmem_max; any other gets net.core.rmem_max.
    for (forced, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        set_option(fd, libc::SOL_SOCKET, forced, buffer_octets)
            .or_else(|_| set_option(fd, libc::SOL_SOCKET, plain, buffer_octets))?;
    }

    Ok(())
}

/// Has the kernel queue ICMP messages for [`next_unreachable`], for a socket to be bound at `ip`.
pub(crate) fn report_unreachable(socket: &impl AsRawFd, ip: IpAddr) -> io::Result<()> {
    let (level, name) = match ip {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set_option(socket.as_raw_fd(), level, name, 1)
}

fn set_option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is an int of the stated size, which each of these options takes.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };

    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Registers the socket for reading and errors only: interest in writing would wake the loop at each packet sent. Must be called within
/// a runtime.
pub(super) fn register(socket: UdpSocket) -> io::Result<AsyncFd<UdpSocket>> {
    // SAFETY: the socket is owned by the AsyncFd, which gives it out by shared reference alone, so that its
    // descriptor stays open and the same.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE | Interest::ERROR) }
        .map_err(io::Error::from)
}

/// Waits at most `patience` for room in the socket's send buffer.
pub(super) fn await_room(socket: &UdpSocket, patience: Duration) {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one pollfd, alive during the call. A failure means no room, which the next send reports.
    unsafe {
        libc::poll(
            &raw mut poll,
            1,
            i32::try_from(patience.as_millis()).unwrap_or(i32::MAX),
        )
    };
}

fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what the storage holds, and it is large and aligned enough for both.
            let v4 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(
                ip,
                u16::from_be(v4.sin_port),
            )))
        }

        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(
                ip,
                u16::from_be(v6.sin6_port),
                0,
                v6.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

fn sockaddr_v4(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: in_addr(*address.ip()),
        sin_zero: [0; 8],
    }
}

fn sockaddr_v6(address: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as u16,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: address.ip().octets(),
        },
        sin6_scope_id: address.scope_id(),
    }
}

fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from(ip).to_be(),
    }
}

fn packet_info_v4(control: &mut Source, source: Ipv4Addr) -> usize {
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: in_addr(source),
        ipi_addr: in_addr(Ipv4Addr::UNSPECIFIED),
    };
    write_control(control, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
}

fn packet_info_v6(control: &mut Source, source: Ipv6Addr) -> usize {
    let info = libc::in6_pktinfo {
        ipi6_addr: libc::in6_addr {
            s6_addr: source.octets(),
        },
        ipi6_ifindex: 0,
    };
    write_control(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
}

/// Writes one control message and returns its length in octets.
fn write_control<T: Copy>(control: &mut Source, level: i32, kind: i32, data: T) -> usize {
    const {
        assert!(
            size_of::<libc::cmsghdr>() + size_of::<T>() <= size_of::<Source>(),
            "it fits"
        )
    };

    // SAFETY: CMSG_LEN and CMSG_SPACE only compute.
    let (length, space) = unsafe {
        (
            libc::CMSG_LEN(size_of::<T>() as u32),
            libc::CMSG_SPACE(size_of::<T>() as u32),
        )
    };

    let at: *mut libc::cmsghdr = ptr::from_mut(control).cast();

    // SAFETY: the buffer is aligned for a cmsghdr and has room for it and the data, as asserted above.
    unsafe {
        (*at).cmsg_level = level;
        (*at).cmsg_type = kind;
        (*at).cmsg_len = length as usize;
        ptr::write_unaligned(libc::CMSG_DATA(at).cast(), data);
    }

    space as usize
}
