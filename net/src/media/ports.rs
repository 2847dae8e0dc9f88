//! The RTP sockets: bound when a call needs one, kept for a while after the call, and assigned to calls and their threads.
//!
//! A released port goes to the end of the queue, so that a late packet of its old call meets no new call.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trunkline_bounds::{Descriptor, Descriptors, Holder, NoShare, Share, Shares};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;

use crate::bot::Bot;
use crate::shortage;

use super::audio_budget::AudioBudget;
use super::beats::Beats;
use super::browser_leg::{BrowserAudio, BrowserLeg};
use super::clip::Sound;
use super::command::{Command, Mailbox};
use super::known_ips::KnownIps;
use super::negotiated::NegotiatedMedia;
use super::outages::Outages;
use super::rtp_socket::{bind_first, discard_stale};
use super::settings::MediaSettings;
use super::speech::Speech;
use super::statistics::{MediaStatistics, Shared};
use super::timeline::MediaStepKind;

/// Sockets without a call that stay bound for the next calls; further ones are closed over time.
pub(super) const KEPT: usize = 32;

/// Most ports that are tried for one call, and as many again if a free socket at another address was closed for it; then the call gets
/// none. The call's shard waits for the search, so the number is bounded.
const ATTEMPTS: usize = 128;

/// Ports that are the least share of an org or a partner.
const LEAST: u32 = 20;

/// Bots, by account and URL, whose hold ([`super::playout`]) is remembered. With one more, all are forgotten.
const MAX_HOLDS: usize = 1_024;

/// All ports of the range.
pub(super) struct Ports {
    first: u16,
    /// First address that sockets are bound to.
    ip: Option<IpAddr>,
    /// Ports that have a socket, readable without a lock.
    is_bound: Box<[AtomicBool]>,
    /// Addresses of this machine.
    own: Vec<IpAddr>,
    /// Bound addresses of SIP and HTTP.
    listeners: Vec<SocketAddr>,
    stock: Mutex<Stock>,
    /// Shares of the ports that aren't another program's.
    shares: Arc<Shares>,
    descriptors: Arc<Descriptors>,
    budget: AudioBudget,
    /// IP addresses that were learnt.
    pub(super) known_ips: KnownIps,
    /// Networks that fail.
    pub(super) outages: Outages,
    pub(super) beats: Beats,
    /// Media threads, by the remainder of half a port.
    threads: Vec<Mailbox>,
    is_stopped: AtomicBool,
}

/// A bound socket. A thread that still serves its last call keeps it open for a moment longer than it is counted.
struct Rtp {
    socket: Arc<UdpSocket>,
    _descriptor: Descriptor,
}

/// Port of a call.
struct Held {
    address: SocketAddr,
    rtp: Rtp,
    statistics: Arc<Shared>,
    /// Account and URL of the bot that was attached last: the key of its hold in [`Stock::holds`].
    bot: Option<Box<str>>,
    /// Socket of RTCP, which calls with a bot have, and others while most ports are free.
    rtcp: Option<Rtcp>,
    /// The port of RTP in the share of the call's org.
    share: Share,
}

/// Port of a call's RTCP.
struct Rtcp {
    rtp: Rtp,
    /// Counted until it is dropped.
    _share: Share,
}

/// Assignment of ports to calls. Locked when a call begins, changes or ends, never for a packet.
struct Stock {
    /// Bound sockets without a call, the one that has been free longest at the front.
    free: VecDeque<(SocketAddr, Rtp)>,
    /// Unbound ports: even ones first (RFC 3550 §11), odd ones once all even ones are in use.
    unbound: VecDeque<u16>,
    /// Unbound ports that another program held when they were last tried.
    foreign: BTreeSet<u16>,
    /// Port of these that was retried last. The next ones follow it, so that all have their turn.
    retried: u16,
    held: HashMap<u64, Held>,
    /// Hold learnt for the audio of bots, by account and URL.
    holds: HashMap<Box<str>, Duration>,
    entropy: Entropy,
}

impl Ports {
    /// Creates the table; no port is bound yet.
    ///
    /// # Errors
    /// The address isn't this machine's, other programs hold all ports, or the machine refuses sockets.
    pub(super) fn new(
        settings: &MediaSettings,
        threads: Vec<Mailbox>,
        entropy: Entropy,
    ) -> io::Result<Self> {
        let (first, last) = (*settings.ports.start(), *settings.ports.end());
        let in_range = || first.max(1)..=last;
        let mut unbound: VecDeque<u16> = in_range()
            .filter(|port| port.is_multiple_of(2))
            .chain(in_range().filter(|port| !port.is_multiple_of(2)))
            .collect();

        let mut foreign = BTreeSet::new();
        for ip in &settings.ips {
            let bound = bind_first(&mut unbound, &mut foreign, *ip, usize::MAX)?;
            let (port, _) = bound.ok_or_else(|| {
                let taken = format!("no port of media.rtp_ports is free at {ip}");
                io::Error::new(io::ErrorKind::AddrInUse, taken)
            })?;
            // Closed again: binding one only shows at startup that the range is usable at this address.
            unbound.push_front(port);
        }

        let shares = Shares::new((first..=last).len() - foreign.len(), LEAST);
        Ok(Self {
            first,
            ip: settings.ips.first().copied(),
            is_bound: (first..=last).map(|_| AtomicBool::default()).collect(),
            own: settings.own.clone(),
            listeners: settings.listeners.clone(),
            stock: Mutex::new(Stock {
                free: VecDeque::new(),
                unbound,
                foreign,
                retried: 0,
                held: HashMap::new(),
                holds: HashMap::new(),
                entropy,
            }),
            shares,
            descriptors: Arc::clone(&settings.descriptors),
            budget: AudioBudget::default(),
            known_ips: KnownIps::default(),
            outages: Outages::new(threads.len()),
            beats: Beats::new(threads.len()),
            threads,
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Assigns a port at `ip` to a call of `holder`.
    pub(super) fn open(&self, key: u64, ip: IpAddr, holder: Holder) -> Result<SocketAddr, NoShare> {
        let mut stock = self.stock();
        if let Some(held) = stock.held.get(&key) {
            return Ok(held.address);
        }
        // Before a port is looked for, which takes long when few are left.
        let share = match self.shares.take(holder) {
            Err(NoShare::Full) if self.find_freed(&mut stock, ip, ATTEMPTS) => {
                self.shares.take(holder)
            }
            share => share,
        }?;
        let free = stock.take_free(ip).or_else(|| self.bind(&mut stock, ip));
        let (address, rtp) = free.ok_or(NoShare::Full)?;

        let socket = Arc::clone(&rtp.socket);
        let statistics = Arc::new(Shared::default());
        let seed = stock.entropy.bits64();
        stock.held.insert(
            key,
            Held {
                address,
                rtp,
                statistics: Arc::clone(&statistics),
                bot: None,
                rtcp: None,
                share,
            },
        );
        self.thread(address.port()).send(Command::Open {
            key,
            socket,
            statistics,
            seed,
        });

        Ok(address)
    }

    /// Returns the shares of the ports.
    pub(super) const fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// Releases the port of a call, and returns the figures of its media.
    pub(super) fn close(&self, key: u64, now: Moment) -> Option<MediaStatistics> {
        let mut stock = self.stock();
        let held = stock.held.remove(&key)?;
        held.statistics.note(MediaStepKind::Closed, now);
        // The thread isn't waited for: these are the figures of its last turn.
        let figures = held.statistics.read();
        if held.rtcp.is_some() {
            let port = held.address.port() + 1;
            // The thread closes the socket when it handles the command. A bind before that tries another port.
            self.mark(port, false);
            stock.return_unbound(port);
        }
        stock.free.push_back((held.address, held.rtp));
        // Sent with the lock held, so that commands of the port's next call come after it.
        self.thread(held.address.port())
            .send(Command::Close { key });
        Some(figures)
    }

    /// Remembers a hold that a call's bot needs. Called while that call goes on, since calls that begin meanwhile need the hold as well.
    pub(super) fn learn(&self, key: u64, hold: Duration) {
        let mut stock = self.stock();
        let bot = stock.held.get(&key).and_then(|held| held.bot.clone());
        if let Some(bot) = bot {
            stock.learn(bot, hold);
        }
    }

    /// Returns the hold that is remembered for a call's bot.
    #[cfg(test)]
    pub(super) fn learnt(&self, key: u64) -> Option<Duration> {
        let stock = self.stock();
        let bot = stock.held.get(&key)?.bot.as_ref()?;
        stock.holds.get(bot).copied()
    }

    /// Returns the figures of a call's media so far.
    pub(super) fn statistics(&self, key: u64) -> Option<MediaStatistics> {
        Some(self.stock().held.get(&key)?.statistics.read())
    }

    /// Returns whether a call's silence was reported and goes on.
    pub(super) fn is_silent(&self, key: u64) -> bool {
        let stock = self.stock();
        let held = stock.held.get(&key);
        held.is_some_and(|held| held.statistics.is_silent())
    }

    pub(super) fn update(&self, key: u64, agreed: NegotiatedMedia, now: Moment) {
        self.command(key, |held, stock| {
            // RTCP takes a port of its own, so that calls without a bot do without it once half of the ports are in use.
            let is_plenty = stock.unbound.len() > self.is_bound.len() / 2;
            if held.rtcp.is_none() && is_plenty {
                held.rtcp = self.bind_rtcp(stock, held);
            }
            let rtcp = held.rtcp_socket();
            Command::Update {
                key,
                agreed,
                rtcp,
                now,
            }
        });
    }

    pub(super) fn prove(&self, key: u64) {
        self.command(key, |_, _| Command::Prove { key });
    }

    pub(super) fn speak(&self, key: u64, speech: Speech) {
        self.command(key, |_, _| Command::Speak { key, speech });
    }

    pub(super) fn start(&self, key: u64, answered_at: Moment) {
        self.command(key, |_, _| Command::Start { key, answered_at });
    }

    pub(super) fn pass_key(&self, key: u64, pressed: char) {
        self.command(key, |_, _| Command::PassKey { key, pressed });
    }

    pub(super) fn play(&self, key: u64, serial: u32, sound: Sound) {
        self.command(key, |_, _| Command::Play { key, serial, sound });
    }

    pub(super) fn attach(&self, key: u64, bot: Bot) {
        let share = self.budget.share(bot.account());
        self.command(key, |held, stock| {
            // By account too, so that no tenant's bot changes the hold of another tenant's at the same URL.
            let learner: Box<str> = format!("{} {}", bot.account(), bot.url()).into();
            let hold = stock.holds.get(&learner).copied().unwrap_or_default();
            held.bot = Some(learner);

            if held.rtcp.is_none() {
                held.rtcp = self.bind_rtcp(stock, held);
            }

            Command::Attach {
                key,
                bot: Box::new(bot),
                rtcp: held.rtcp_socket(),
                hold,
                share,
                entropy: Box::new(stock.entropy.split()),
            }
        });
    }

    /// Attaches a browser; its queues are closed at once if the call has no port.
    pub(super) fn attach_browser(&self, key: u64) -> BrowserAudio {
        let (leg, audio) = BrowserLeg::new();
        let browser = Box::new(leg);
        self.command(key, |_, _| Command::AttachBrowser { key, browser });
        audio
    }

    pub(super) fn press(&self, key: u64, keys: &[u8]) {
        let keys = keys.into();
        self.command(key, |_, _| Command::Press { key, keys });
    }

    /// Sends a command to the thread of a call; none if the call has no port.
    fn command(&self, key: u64, make: impl FnOnce(&mut Held, &mut Stock) -> Command) {
        let mut stock = self.stock();
        // Taken out meanwhile, so that `make` may take a port for RTCP from the same stock.
        let Some(mut held) = stock.held.remove(&key) else {
            return;
        };
        let command = make(&mut held, &mut stock);
        self.thread(held.address.port()).send(command);
        stock.held.insert(key, held);
    }

    pub(super) fn open_calls(&self) -> usize {
        self.stock().held.len()
    }

    /// Returns whether an address is an RTP port of this node.
    pub(super) fn is_ours(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let is_here = ip.is_loopback() || self.own.contains(&ip);
        let at = address.port().checked_sub(self.first).map(usize::from);
        let is_bound = || {
            at.and_then(|at| self.is_bound.get(at))
                .is_some_and(|bound| bound.load(Ordering::Relaxed))
        };
        is_here && is_bound()
    }

    /// Completes what is known of a call's peer: an IP address that was learnt in another call of the trunk is proven, and a port of this node is
    /// not to be spoken to before it speaks.
    pub(super) fn look_up(&self, agreed: &mut NegotiatedMedia, now: Moment) {
        let (remote, trunk) = (agreed.remote, agreed.peer.trunk);
        if agreed
            .peer
            .claimed
            .is_some_and(|claimed| self.is_ours(claimed))
        {
            agreed.peer.claimed = None;
        }
        let is_free = agreed.peer.claimed.is_none() && !self.is_ours(remote);
        if is_free && agreed.expects(remote.ip()) && self.known_ips.knows(trunk, remote.ip(), now) {
            (agreed.peer.claimed, agreed.peer.is_proven) = (Some(remote), true);
        }
    }

    /// Returns whether an address is a listener of this node for SIP or HTTP. A packet from there is forged.
    pub(super) fn is_listener(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.listeners.iter().any(|listener| {
            let bound = listener.ip().to_canonical();
            let is_here = || ip.is_loopback() || self.own.contains(&ip);
            listener.port() == address.port()
                && (bound == ip || (bound.is_unspecified() && is_here()))
        })
    }

    /// Closes some of the free sockets beyond [`KEPT`], so that few remain after a burst of calls. Also tries a port that another program held, so
    /// that the shares learn of it once it is free.
    pub(super) fn shrink(&self) {
        let mut stock = self.stock();
        let excess = stock.free.len().saturating_sub(KEPT);
        for _ in 0..excess.div_ceil(8) {
            self.give_back_one(&mut stock);
        }
        if let Some(ip) = self.ip {
            self.find_freed(&mut stock, ip, 1);
        }
    }

    /// Returns the number of bound sockets, assigned or free.
    pub(super) fn bound(&self) -> usize {
        let stock = self.stock();
        stock.free.len() + stock.held.len()
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        for thread in &self.threads {
            thread.wake();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Binds a port at `ip`. If none is left, or no descriptor, a free one at another address is closed first.
    fn bind(&self, stock: &mut Stock, ip: IpAddr) -> Option<(SocketAddr, Rtp)> {
        let mut bound = self.try_bind(stock, ip);
        if bound.is_none() && self.give_back_one(stock) {
            bound = self.try_bind(stock, ip);
        }
        if bound.is_none() && self.descriptors.is_used_up() {
            shortage::report(&self.descriptors);
        }
        bound
    }

    fn try_bind(&self, stock: &mut Stock, ip: IpAddr) -> Option<(SocketAddr, Rtp)> {
        let descriptor = self.descriptors.take()?;
        let bound = bind_first(&mut stock.unbound, &mut stock.foreign, ip, ATTEMPTS);
        self.count_ports(stock);
        match bound {
            Ok(Some((port, socket))) => {
                self.mark(port, true);
                let rtp = Rtp {
                    socket: Arc::new(socket),
                    _descriptor: descriptor,
                };
                Some((SocketAddr::new(ip, port), rtp))
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, media.ip = %ip, "an RTP socket can't be bound");
                None
            }
        }
    }

    /// Tries some of the ports that another program held; true if one is free now.
    fn find_freed(&self, stock: &mut Stock, ip: IpAddr, attempts: usize) -> bool {
        let after = (stock.foreign).range((Bound::Excluded(stock.retried), Bound::Unbounded));
        let before = stock.foreign.range(..=stock.retried);
        let mut tried: VecDeque<u16> = after.chain(before).copied().take(attempts).collect();
        stock.retried = tried.back().copied().unwrap_or_default();
        let mut is_found = false;
        while let Ok(Some(_)) = bind_first(&mut tried, &mut stock.foreign, ip, attempts) {
            is_found = true;
        }
        self.count_ports(stock);
        is_found
    }

    /// Tells the shares how many ports there are.
    fn count_ports(&self, stock: &Stock) {
        self.shares
            .set_capacity(self.is_bound.len() - stock.foreign.len());
    }

    /// Binds the port of RTCP for an even port of RTP (RFC 3550 §11). `None` if that port is in use: reports are then sent from the RTP port.
    fn bind_rtcp(&self, stock: &mut Stock, held: &Held) -> Option<Rtcp> {
        let rtp = held.address;
        let port = rtp.port().is_multiple_of(2).then(|| rtp.port() + 1)?;
        let at = stock.unbound.iter().position(|unbound| *unbound == port)?;
        let share = held.share.another()?;
        let descriptor = self.descriptors.take()?;
        let mut only = VecDeque::from([port]);
        // A port in use may be one of ours that a thread is about to close: nothing is concluded from it.
        let (_, socket) = bind_first(&mut only, &mut BTreeSet::new(), rtp.ip(), 1).ok()??;
        stock.unbound.remove(at);
        self.mark(port, true);
        let rtp = Rtp {
            socket: Arc::new(socket),
            _descriptor: descriptor,
        };
        Some(Rtcp { rtp, _share: share })
    }

    fn give_back_one(&self, stock: &mut Stock) -> bool {
        let Some((address, _)) = stock.free.pop_front() else {
            return false;
        };
        let port = address.port();
        self.mark(port, false);
        stock.return_unbound(port);
        true
    }

    fn mark(&self, port: u16, is_bound: bool) {
        self.is_bound[usize::from(port - self.first)].store(is_bound, Ordering::Relaxed);
    }

    fn thread(&self, port: u16) -> &Mailbox {
        // RTP uses even ports while there are any, so half the number spreads calls over all threads.
        &self.threads[usize::from(port / 2) % self.threads.len()]
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn rtcp_socket(&self) -> Option<Arc<UdpSocket>> {
        self.rtcp.as_ref().map(|rtcp| Arc::clone(&rtcp.rtp.socket))
    }
}

impl Stock {
    fn take_free(&mut self, ip: IpAddr) -> Option<(SocketAddr, Rtp)> {
        let at = self.free.iter().position(|(free, _)| free.ip() == ip)?;
        let (address, rtp) = self.free.remove(at)?;
        discard_stale(&rtp.socket);
        Some((address, rtp))
    }

    /// Remembers the longest hold that a bot needed. With all places taken, all is forgotten: a hold is learnt again within a call.
    fn learn(&mut self, bot: Box<str>, hold: Duration) {
        if self.holds.len() == MAX_HOLDS && !self.holds.contains_key(&bot) {
            self.holds.clear();
        }
        let known = self.holds.entry(bot).or_default();
        *known = hold.max(*known);
    }

    fn return_unbound(&mut self, port: u16) {
        if port.is_multiple_of(2) {
            self.unbound.push_front(port)
        } else {
            self.unbound.push_back(port)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn all_ports_of_other_programs_are_retried_in_turn() {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let ip = IpAddr::V4(Ipv4Addr::new(127, high | 0x80, low, 200));
        let [first, second, third, fourth] = [20_000_u16, 20_002, 20_004, 20_006]
            .map(|port| UdpSocket::bind((ip, port)).expect("a free port"));
        let settings = MediaSettings {
            ports: 20_000..=20_007,
            ips: vec![ip],
            own: Vec::new(),
            listeners: Vec::new(),
            workers: 1,
            descriptors: std::sync::Arc::default(),
        };
        let ports =
            Ports::new(&settings, Vec::new(), Entropy::from_seed([7; 32])).expect("a free port");
        let foreign = || -> Vec<u16> { ports.stock().foreign.iter().copied().collect() };
        assert_eq!(foreign(), [20_000, 20_002, 20_004, 20_006]);

        drop(fourth);
        for _ in 0..4 {
            ports.shrink();
        }
        assert_eq!(foreign(), [20_000, 20_002, 20_004]);
        drop(second);
        for _ in 0..3 {
            ports.shrink();
        }
        assert_eq!(foreign(), [20_000, 20_004]);
        drop((first, third));
    }
}
