//! Choice of the socket for a datagram where several shards share an address: a program that the kernel runs for each datagram (classic BPF,
//! socket(7), `SO_ATTACH_REUSEPORT_CBPF`).
//!
//! Left to itself the kernel chooses by addresses. It gives a message of a call to the shard of that call by chance only, and the other shard
//! has to copy the message, pass it on and wake its owner. Our tokens name the slot, and so the shard: the program looks for the branch of a
//! response and for the To-tag of a request. What it doesn't find, such as a new INVITE, goes where the kernel would have put it. A wrong
//! choice costs a message passed on, nothing else: the program need not understand SIP, and trusts nothing. Any sender can aim at one shard by it,
//! as each sender's address always did.
//!
//! The language has no loops, so each position is compared by instructions of its own.
#![expect(
    unsafe_code,
    reason = "no crate that we use attaches a program to a group of sockets"
)]

use std::io;
use std::net::UdpSocket;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

use trunkline_sip::slot::{BRANCH_COOKIE, SLOT_DIGITS, TOKEN_LENGTH};

/// Beginning of every response.
const RESPONSE: u32 = word(b"SIP/");
/// Beginning of a branch, and the positions at which the first one of a response is looked for: behind the shortest status line, and up to a
/// Via with a long host.
const BRANCH: u32 = word(b"z9hG");
const BRANCHES: Range<u32> = 24..150;
/// Header line of a request, and the positions at which it is looked for: most requests have few lines before it.
const TO: u32 = word(b"\nTo:");
const TOS: Range<u32> = 48..432;
/// Parameter of a tag, and its positions behind those of the line.
const TAG: u32 = word(b";tag");
const TAGS: Range<u32> = 8..104;
const TAG_LENGTH: u32 = ";tag=".len() as u32;

/// Positions between two checks of the datagram's length. A load beyond its end would end the program with the first socket.
const CHECKED: u32 = 32;
/// No index of a socket: the kernel then chooses by addresses.
const BY_ADDRESS: u32 = u32::MAX;

/// Four octets as the kernel loads them.
const fn word(octets: &[u8; 4]) -> u32 {
    u32::from_be_bytes(*octets)
}

/// Has the kernel give each datagram of a call to the socket of its shard. `sockets` share one address, in the order of their shards.
///
/// # Errors
/// The kernel takes no such program; datagrams then come by addresses alone. Kernels before 6.7 have room for a program that reads responses
/// only, which is tried then.
pub fn steer(sockets: &[UdpSocket]) -> io::Result<()> {
    let (Some(socket), Ok(shards)) = (sockets.first(), u32::try_from(sockets.len())) else {
        return Ok(());
    };
    let whole = Program::new(shards, &TOS);
    attach(socket, &whole).or_else(|_| attach(socket, &Program::new(shards, &(0..0))))
}

fn attach(socket: &UdpSocket, program: &Program) -> io::Result<()> {
    let length = u16::try_from(program.code.len());
    let program = libc::sock_fprog {
        len: length.map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.code.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, and reads no more than `len` instructions of it, which live past the call.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Instructions. A holds what is compared, X the position of what was found.
#[derive(Debug, Default)]
struct Program {
    code: Vec<libc::sock_filter>,
}

/// Jumps to a place that isn't known yet.
#[derive(Debug, Default)]
struct Jumps(Vec<usize>);

impl Program {
    /// Makes the program for so many sockets, which looks for the To of requests at these positions, if there are any.
    fn new(shards: u32, tos: &Range<u32>) -> Self {
        let mut program = Self::default();
        let (mut unknown, mut branch, mut to, mut token) = Default::default();

        // A datagram shorter than a word has no message.
        program.needs(4, &mut unknown);
        program.load_word(0);
        program.skip_unless(RESPONSE, 1);
        let mut response = Jumps::default();
        program.jump(&mut response);
        program.find(TO, tos, &mut to, &mut unknown);
        program.jump(&mut unknown);

        program.land(response);
        program.find(BRANCH, &BRANCHES, &mut branch, &mut unknown);
        program.jump(&mut unknown);

        program.land(branch);
        program.advance(BRANCH_COOKIE.len() as u32);
        program.jump(&mut token);

        if !tos.is_empty() {
            program.land(to);
            program.find_tag(&mut token, &mut unknown);
            program.jump(&mut unknown);
        }

        program.land(token);
        program.needs_behind_x(TOKEN_LENGTH as u32, &mut unknown);
        program.choose(shards);

        program.land(unknown);
        program.push(libc::BPF_RET | libc::BPF_K, BY_ADDRESS);
        program
    }

    fn push(&mut self, code: u32, k: u32) {
        self.branch(code, k, 0, 0);
    }

    /// Adds an instruction that skips `jt` or `jf` of those behind it.
    fn branch(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        let code = code as u16;
        self.code.push(libc::sock_filter { code, jt, jf, k });
    }

    fn load_word(&mut self, at: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    }

    /// Skips the instructions behind it unless A is this word.
    fn skip_unless(&mut self, word: u32, instructions: u8) {
        let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        self.branch(code, word, 0, instructions);
    }

    fn jump(&mut self, to: &mut Jumps) {
        to.0.push(self.code.len());
        self.push(libc::BPF_JMP | libc::BPF_JA, 0);
    }

    /// Lets these jumps end at the next instruction.
    fn land(&mut self, jumps: Jumps) {
        let here = self.code.len();
        for at in jumps.0 {
            self.code[at].k = (here - at - 1) as u32;
        }
    }

    /// Ends with `unknown` unless the datagram has so many octets.
    fn needs(&mut self, octets: u32, unknown: &mut Jumps) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
        self.is_at_least(octets, unknown);
    }

    /// Ends with `unknown` unless so many octets are left from X on.
    fn needs_behind_x(&mut self, octets: u32, unknown: &mut Jumps) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
        self.push(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X, 0);
        self.is_at_least(octets, unknown);
    }

    fn is_at_least(&mut self, least: u32, unknown: &mut Jumps) {
        self.branch(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, least, 1, 0);
        self.jump(unknown);
    }

    /// Looks for a word, and goes on at `found` with its position in X.
    fn find(&mut self, word: u32, places: &Range<u32>, found: &mut Jumps, unknown: &mut Jumps) {
        for at in places.clone() {
            if (at - places.start).is_multiple_of(CHECKED) {
                self.needs(at + CHECKED + 4, unknown);
            }
            self.load_word(at);
            self.skip_unless(word, 2);
            self.push(libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM, at);
            self.jump(found);
        }
    }

    /// Looks for a tag behind X, and goes on at `found` with the position of its token in X.
    fn find_tag(&mut self, found: &mut Jumps, unknown: &mut Jumps) {
        for at in TAGS {
            if (at - TAGS.start).is_multiple_of(CHECKED) {
                self.needs_behind_x(at + CHECKED + 4, unknown);
            }
            self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, at);
            self.skip_unless(TAG, 4);
            self.advance(at + TAG_LENGTH);
            self.jump(found);
        }
    }

    /// Adds to X, by three instructions.
    fn advance(&mut self, octets: u32) {
        self.push(libc::BPF_MISC | libc::BPF_TXA, 0);
        self.push(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, octets);
        self.push(libc::BPF_MISC | libc::BPF_TAX, 0);
    }

    /// Returns the shard of the token at X: its slot modulo the number of shards.
    fn choose(&mut self, shards: u32) {
        let digits = (0..).zip(SLOT_DIGITS);
        for (place, at) in digits.clone() {
            self.push(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, at as u32);
            // A letter or a figure. What is neither gives some other number, and so some shard.
            let code = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
            self.branch(code, u32::from(b'a'), 0, 2);
            self.push(
                libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K,
                u32::from(b'a') - 10,
            );
            self.push(libc::BPF_JMP | libc::BPF_JA, 1);
            self.push(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, u32::from(b'0'));
            self.push(libc::BPF_ST, place);
        }

        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_IMM, 0);
        for (place, _) in digits {
            self.push(libc::BPF_LDX | libc::BPF_W | libc::BPF_MEM, place);
            self.push(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 4);
            self.push(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0);
        }
        self.push(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, shards);
        self.push(libc::BPF_RET | libc::BPF_A, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use trunkline_sip::entropy::Entropy;
    use trunkline_sip::slot::{Minter, Node, Slot};

    use super::*;
    use crate::listener::udp;

    const SHARDS: usize = 3;

    /// Sockets of three shards, in their order, and the address that they share.
    fn group() -> Vec<UdpSocket> {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let first = udp::bind(any, true).unwrap();
        let shared = first.local_addr().unwrap();
        let others = (1..SHARDS).map(|_| udp::bind(shared, true).unwrap());
        std::iter::once(first).chain(others).collect()
    }

    /// Sends a datagram and returns the index of the socket that got it.
    fn receiver(sockets: &[UdpSocket], sender: &UdpSocket, octets: &[u8]) -> usize {
        let to = sockets[0].local_addr().unwrap();
        sender.send_to(octets, to).unwrap();
        let mut buffer = [0; 2_048];
        // Loopback delivers before `send_to` returns, or soon after on a busy machine.
        for _ in 0..10_000 {
            for (index, socket) in sockets.iter().enumerate() {
                if socket.recv_from(&mut buffer).is_ok() {
                    return index;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no socket has got it");
    }

    fn sender() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    #[test]
    fn messages_of_a_call_come_to_the_socket_of_its_shard() {
        let sockets = group();
        steer(&sockets).expect("the kernel takes the program");

        let minter = Minter::new(Node(1), [7; 16]);
        let mut entropy = Entropy::from_seed([1; 32]);
        for slot in [0, 1, 2, 3, 0x0ab, 0x3ff] {
            let slot = Slot::new(slot).unwrap();
            let expected = usize::from(slot.index()) % SHARDS;
            let (branch, tag) = (
                minter.branch(slot, &mut entropy),
                minter.tag(slot, &mut entropy),
            );

            let messages = [
                format!(
                    "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.1;branch={branch}\r\nFrom: <sip:a@b>;tag=x\r\nTo: <sip:c@d>;tag=y\r\n\r\n"
                ),
                format!(
                    "SIP/2.0 183 Session Progress\r\nv: SIP/2.0/UDP a-host-with-a-long-name.example.com:5060;rport=5060;branch={branch}\r\nCall-ID: 1\r\n\r\n"
                ),
                format!(
                    "BYE sip:trunkline@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK-5\r\nFrom: <sip:a@b>;tag=x\r\nTo: \"Somebody\" <sip:c@d.example.com>;tag={tag}\r\nCall-ID: 1\r\nCSeq: 2 BYE\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
                ),
            ];
            for message in messages {
                // Whatever the address: by that alone these would be spread.
                for _ in 0..4 {
                    let came = receiver(&sockets, &sender(), message.as_bytes());
                    assert_eq!(came, expected, "{slot:?}: {message}");
                }
            }
        }
    }

    #[test]
    fn other_datagrams_come_by_their_addresses() {
        const OTHERS: [&[u8]; 6] = [
            b"\r\n",
            b"SIP",
            b"SIP/2.0 200 OK\r\n\r\n",
            b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK",
            b"INVITE sip:b@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK-5\r\nMax-Forwards: 70\r\nFrom: <sip:a@b>;tag=x\r\nTo: <sip:b@192.0.2.1>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n",
            b"BYE sip:b@192.0.2.1 SIP/2.0\r\nFrom: <sip:a@b>;tag=x\r\nTo: <sip:b@192.0.2.1>;tag=1",
        ];
        let (plain, steered) = (group(), group());
        steer(&steered).expect("the kernel takes the program");

        for octets in OTHERS {
            // Each group has an address of its own, so one sender may come to another socket of each. Of many senders each socket gets some.
            for sockets in [&plain, &steered] {
                let came: std::collections::BTreeSet<usize> = (0..64)
                    .map(|_| receiver(sockets, &sender(), octets))
                    .collect();
                assert_eq!(came.len(), SHARDS, "{}", octets.escape_ascii());
            }
        }
    }

    #[test]
    fn one_socket_needs_no_program_and_gets_all() {
        let sockets = &group()[..1];
        steer(sockets).expect("the kernel takes the program");
        steer(&[]).expect("nothing to do");
    }

    /// `net.core.optmem_max` bounds a program. Kernels before 6.7 have 20 kB, for some 2,500 instructions after the kernel has made a load into
    /// up to nine.
    #[test]
    fn the_smaller_program_fits_into_old_kernels() {
        let program = Program::new(2, &(0..0));
        let loads = program.code.iter().filter(|step| step.code & 0x07 == 0);
        assert!(program.code.len() + 8 * loads.count() < 2_500);
        assert!(Program::new(2, &TOS).code.len() < 4_096, "the most of all");
    }
}
