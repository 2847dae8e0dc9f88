//! An hour's call over a network that loses 5 %, delays unevenly by 30 ms, reorders and duplicates: without sockets, by a clock that jumps.

use super::super::inbound::Inbound;
use super::super::playout::{Played, Playout};
use super::super::reception::Reception;
use super::super::rtp::{self, Header, Packet};
use super::super::session::Session;
use super::super::statistics::{Figures, Shared};
use super::super::{audio_budget::AudioShare, g711};
use super::*;
use crate::bot::wire::FRAME;

const HOUR: u64 = 3_600_000_000;
const SLOT: u64 = 20_000;
/// Delay of one way in microseconds, and the most that jitter adds or takes, evenly spread. Packets 20 ms apart overtake each other.
const DELAY: u64 = 60_000;
const JITTER: u64 = 30_000;
const CALLER: &str = "192.0.2.1:4000";

/// Pseudorandom numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Returns the caller's voice for an hour and a little more: noise whose loudness changes as syllables do, so that no stretch resembles another,
/// with a pause of 400 ms each four seconds.
fn voice() -> &'static [u8] {
    static VOICE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    VOICE.get_or_init(|| voiced((HOUR / SLOT + 100) as usize * FRAME))
}

fn voiced(samples: usize) -> Vec<u8> {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let mut low = 0.0;
    let voice = (0..samples).map(|at| {
        let noise = dice.below(65_536) as f32 - 32_768.0;
        low += (noise - low) * 0.4;
        let loudness = 0.55 + 0.45 * (at as f32 * std::f32::consts::TAU / 2_311.0).sin();
        match at % 32_000 {
            0..3_200 => g711::SILENCE,
            _ => g711::mu_law((low * loudness * 0.5) as i16),
        }
    });
    voice.collect()
}

/// Returns the packets that arrive, each with its time of arrival in microseconds and its number, and the number of packets lost.
fn network(packets: u64, slot: u64) -> (Vec<(u64, u64)>, u64) {
    let mut dice = Dice(0x0bad_cafe_dead_beef);
    let (mut on_their_way, mut lost) = (Vec::new(), 0);
    for number in 0..packets {
        // The first packets of a call pass, since they alone say whose address is the caller's.
        if number >= 10 && dice.below(100) < 5 {
            lost += 1;
            continue;
        }
        let mut arrives = || number * slot + DELAY - JITTER + dice.below(2 * JITTER);
        on_their_way.push((arrives(), number));
        if number % 100 == 7 {
            on_their_way.push((arrives(), number));
        }
    }

    on_their_way.sort_unstable();
    (on_their_way, lost)
}

/// An hour as the bot and the record see it.
struct Heard {
    /// All frames, one after the other.
    audio: Vec<u8>,
    /// The most and the fewest slots that the frames were ahead of the clock.
    ahead: (i64, i64),
    figures: Figures,
    lost: u64,
    /// Jitter by the formula of RFC 3550 §A.8, computed by the test.
    jitter: f64,
}

/// Receives the voice for an hour, in packets that follow each other after `slot` microseconds by our clock.
fn hear(voice: &[u8], slot: u64) -> Heard {
    let mut session = Session::new(7);
    let start = Moment::from_secs(1_000);
    let remote: SocketAddr = CALLER.parse().unwrap();
    session.negotiate(
        NegotiatedMedia {
            payload: AudioPayload::PCMU,
            received: PayloadTypes::of(AudioPayload::PCMU, None),
            ..agreed(remote, None)
        },
        start,
    );
    let (mut reception, mut inbound) = (Reception::default(), Inbound::default());
    inbound.start(start);

    let (packets, lost) = network(HOUR / slot, slot);
    let mut packets = packets.into_iter().peekable();
    let (mut audio, mut received) = (Vec::new(), 0);
    let (mut ahead, mut transit, mut jitter) = ((i64::MIN, i64::MAX), None, 0.0);
    let mut octets = [0; 200];
    // Ticks come 10 ms after the beginning of a slot.
    for tick in (SLOT / 2..HOUR).step_by(SLOT as usize) {
        while let Some((arrived, number)) = packets.next_if(|(arrived, _)| *arrived <= tick) {
            let header = Header {
                marker: false,
                payload_type: 0,
                sequence: number as u16,
                timestamp: (number * FRAME as u64) as u32,
                ssrc: 9,
            };
            let at = number as usize * FRAME;
            let sent = rtp::write(&mut octets, &header, &voice[at..at + FRAME]);
            let sent = sent.expect("it has room").to_vec();
            let now = start + Duration::from_micros(arrived);
            let Some(packet) = session.accept(&sent, remote, |_| false, now) else {
                continue;
            };
            reception.hear(&packet.header, true, now);
            received += 1;

            let late = arrived as f64 / 125.0 - (number * FRAME as u64) as f64;
            if let Some(before) = transit.replace(late) {
                let difference: f64 = late - before;
                jitter += (difference.abs() - jitter) / 16.0;
            }
            inbound.hear(&packet.header, packet.payload(&sent), now, |frame| {
                audio.extend_from_slice(frame);
            });
        }
        let now = start + Duration::from_micros(tick);
        inbound.tick(now, |frame| audio.extend_from_slice(frame));

        let due = (tick / SLOT) as i64;
        let is = (audio.len() / FRAME) as i64 - due;
        ahead = (ahead.0.max(is), ahead.1.min(is));
    }

    let figures = Figures {
        packets_received: received,
        packets_expected: reception.expected(),
        packets_lost: reception.lost(),
        jitter: reception.jitter(),
        round_trip: Some(Duration::from_millis(120)),
        has_concealment: true,
        ..Figures::default()
    };
    Heard {
        audio,
        ahead,
        figures,
        lost,
        jitter: jitter * 0.125,
    }
}

/// Samples of a stretch to find: a second, about a tenth of which was lost or came too late.
const STRETCH: usize = 8_000;
/// Most samples that a stretch may be late.
const FURTHEST: usize = 2_400;
/// One sample in so many is compared.
const STRIDE: usize = 5;

/// Finds a stretch of what was heard in the voice. Returns the delay in samples, and the similarity: 1 if both are the same.
fn found(voice: &[u8], heard: &[u8]) -> (usize, f32) {
    let linear = |octets: &[u8]| -> Vec<f32> {
        octets
            .iter()
            .map(|octet| f32::from(g711::linear(*octet)))
            .collect()
    };
    let (is, was) = (linear(&heard[FURTHEST..]), linear(voice));
    let product = |one: &[f32], other: &[f32]| -> f32 {
        let pairs = one.iter().zip(other).step_by(STRIDE);
        pairs.map(|(one, other)| one * other).sum()
    };

    let energy = product(&is, &is);
    let alike = |delay: usize| {
        let was = &was[FURTHEST - delay..][..STRETCH];
        product(&is, was) / (energy * product(was, was)).sqrt()
    };
    (0..=FURTHEST)
        .map(|delay| (delay, alike(delay)))
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap()
}

#[test]
fn an_hour_of_losses_and_jitter_is_heard_without_a_drift() {
    let voice = voice();
    // The caller's clock: as ours, and a ten-thousandth fast and slow, which makes 360 ms in an hour.
    for (case, slot) in [("exact", SLOT), ("fast", SLOT - 2), ("slow", SLOT + 2)] {
        let heard = hear(voice, slot);
        let frames = heard.audio.len() / FRAME;
        assert!(
            (180_000 - 3..=180_000 + 5).contains(&frames),
            "{case}: {frames} frames"
        );
        assert!(
            heard.ahead.0 <= 5 && heard.ahead.1 >= -3,
            "{case}: {:?} slots ahead",
            heard.ahead
        );

        // Five places, ten minutes apart. A clock that is fast or slow gains or loses a frame every 200 s, and that cuts a stretch of the voice: each
        // place is 100 s away from such a slip.
        let delays: Vec<(i64, f32)> = (1..6)
            .map(|place| {
                let at = (place * 600 + 100) * 8_000;
                let moved = (slot as i64 - SLOT as i64) * (at / FRAME) as i64 / 125;
                let around = usize::try_from(at as i64 - moved).unwrap();
                let shifted = &voice[around - FURTHEST..around + STRETCH];
                let window = &heard.audio[at - FURTHEST..at + STRETCH];
                let (delay, alike) = found(shifted, window);
                (delay as i64, alike)
            })
            .collect();
        for (delay, alike) in &delays {
            assert!(*alike > 0.8, "{case}: {delays:?}");
            // 30 to 90 ms on the way, and what the slots ahead add.
            assert!((200..=1_700).contains(delay), "{case}: {delays:?}");
        }
        let spread = |each: fn(&[i64]) -> i64| {
            each(&delays.iter().map(|(delay, _)| *delay).collect::<Vec<_>>())
        };
        let (most, least) = (
            spread(|all| all.iter().copied().max().unwrap()),
            spread(|all| all.iter().copied().min().unwrap()),
        );
        assert!(most - least <= 800, "{case}: {delays:?}");
    }
}

/// Computes the score by the formulas of G.107, with their constants written out so that a reader can follow it by hand.
fn score(delay_ms: f64, percent_lost: f64) -> f64 {
    let id = 0.024 * delay_ms
        + if delay_ms > 177.3 {
            0.11 * (delay_ms - 177.3)
        } else {
            0.0
        };
    let ie = 95.0 * percent_lost / (percent_lost + 25.1);
    let r = 93.2 - id - ie;
    1.0 + 0.035 * r + 7e-6 * r * (r - 60.0) * (100.0 - r)
}

#[test]
fn the_score_of_the_hour_is_the_one_computed_by_hand() {
    // Delay in milliseconds, percent lost, and the score, from a pocket calculator:
    // 120 ms, 5 %: Id 2.88, Ie 15.781, R 74.539.
    // 200 ms, 5 %: Id 4.8 + 2.497, R 70.122.
    // 100 ms, 10 %: Id 2.4, Ie 27.066, R 63.734.
    for (delay, lost, expected) in [
        (120.0, 5.0, 3.802),
        (200.0, 5.0, 3.603),
        (100.0, 10.0, 3.291),
    ] {
        let by_hand = score(delay, lost);
        assert!(
            (by_hand - expected).abs() < 0.002,
            "{delay} {lost}: {by_hand}"
        );
        let concealed = super::super::quality::Concealed::Yes;
        let ours = super::super::quality::mos(
            Duration::from_micros((delay * 1_000.0) as u64),
            lost / 100.0,
            concealed,
        );
        assert!((ours - expected).abs() < 0.002, "{delay} {lost}: {ours}");
    }

    let Heard {
        figures,
        lost,
        jitter,
        ..
    } = hear(voice(), SLOT);
    // Every hundredth packet came twice, and a packet that comes twice makes up for one that was lost (RFC 3550 §A.3).
    let twice = figures.packets_received + lost - figures.packets_expected;
    assert!((1_500..=1_900).contains(&twice), "{twice}");
    let counted = figures.packets_lost;
    assert_eq!(counted, lost - twice, "of {}", figures.packets_expected);
    // The mean difference of two evenly spread delays is a third of their range of 60 ms.
    let shown = figures.jitter.as_secs_f64() * 1_000.0;
    assert!((shown - jitter).abs() < 0.3, "{shown} ms, by hand {jitter}");
    assert!((14.0..26.0).contains(&shown), "{shown} ms");

    let shared = Shared::default();
    shared.write(&figures);
    let percent = counted as f64 / figures.packets_expected as f64 * 100.0;
    let delay = 120.0 / 2.0 + 20.0 + 2.0 * shown;
    let expected = score(delay, percent);
    let shown = shared.read().mos.unwrap();
    assert!(
        (shown - expected).abs() < 0.001,
        "{shown}, by hand {expected}"
    );
}

/// A pipeline of 24 kHz sends 1,100 octets every 137.5 ms. The caller gets one stream without a seam.
#[test]
fn an_hour_of_a_bot_reaches_the_caller_whole() {
    const MESSAGE: usize = 1_100;
    const EVERY: u64 = 137_500;
    let start = Moment::from_secs(1_000);
    let remote: SocketAddr = CALLER.parse().unwrap();
    let mut session = Session::new(7);
    let agreed = NegotiatedMedia {
        payload: AudioPayload::PCMU,
        received: PayloadTypes::of(AudioPayload::PCMU, None),
        ..agreed(remote, None)
    };
    session.negotiate(agreed, start);
    for sequence in 0..4 {
        let mut octets = [0; 200];
        let header = Header {
            marker: false,
            payload_type: 0,
            sequence,
            timestamp: u32::from(sequence) * 160,
            ssrc: 9,
        };
        let sent = rtp::write(&mut octets, &header, &[0xff; 160]).unwrap();
        session.accept(sent, remote, |_| false, start);
    }

    let mut playout = Playout::new(Duration::ZERO, AudioShare::default());
    let mut dice = Dice(0x0bad_cafe_dead_beef);
    let (mut said, mut heard, mut came) = (0_usize, 0_usize, 0);
    let mut last: Option<Header> = None;
    for tick in (0..HOUR).step_by(SLOT as usize) {
        while came <= tick {
            let audio: Vec<u8> = (said..said + MESSAGE).map(|at| (at % 251) as u8).collect();
            playout.push(&audio, start + Duration::from_micros(came));
            said += MESSAGE;
            // The bot's event loop is late now and then.
            came = (said / MESSAGE) as u64 * EVERY + dice.below(8_000);
        }
        let (mut frame, mut octets) = ([0; FRAME], [0; 200]);
        let now = start + Duration::from_micros(tick);
        let played = playout.play(&mut frame, now);
        let (to, sent) = session
            .frame(&mut octets, &frame, false, now)
            .expect("a peer");
        assert_eq!(to, remote);

        let sent = sent.iter().next().expect("a packet");
        let header = Packet::read(sent).unwrap().header;
        if let Some(before) = last.replace(header) {
            assert_eq!(header.sequence, before.sequence.wrapping_add(1));
            assert_eq!(header.timestamp, before.timestamp.wrapping_add(160));
            assert_eq!(header.ssrc, before.ssrc);
        }
        if played == Played::Audio {
            let expected = (heard..heard + FRAME).map(|at| (at % 251) as u8);
            let differ = frame
                .into_iter()
                .zip(expected)
                .filter(|(is, was)| is != was);
            // The first frame behind a hole is blended with what filled that.
            let blended = differ.count();
            assert!(
                blended == 0 || tick < 1_000_000,
                "{blended} octets at {tick}"
            );
            heard += FRAME;
        }
    }
    assert!(playout.counts().underruns <= 2, "{:?}", playout.counts());
    let waiting = said - heard;
    assert!(
        waiting < 3 * MESSAGE,
        "{waiting} octets wait: the delay has grown"
    );
}
