//! Offers as phones and gateways send them, and octets at random.

use proptest::prelude::*;

use super::*;

const LOCAL: &str = "203.0.113.7:20000";

fn local() -> SocketAddr {
    LOCAL.parse().unwrap()
}

fn answer(offer: &str) -> Result<AudioAnswer, NoMatch> {
    answer_audio(offer.as_bytes(), local(), 17, 3)
}

fn audio(remote: &str, payload: u8, telephone_event: Option<u8>, direction: Direction) -> Audio {
    let payload = AudioPayload::of_static(payload).unwrap();
    Audio {
        remote: remote.parse().unwrap(),
        payload,
        telephone_event,
        received: PayloadTypes::of(payload, telephone_event),
        direction,
        packet_time: PacketTime::Ms20,
        rtcp: None,
    }
}

/// An audio stream whose peer may send both kinds of G.711.
fn with_both(audio: Audio) -> Audio {
    let received = audio
        .received
        .with(0, Format::Audio(Codec::Pcmu))
        .with(8, Format::Audio(Codec::Pcma));
    Audio { received, ..audio }
}

const HEAD: &str =
    "v=0\r\no=alice 1 1 IN IP4 192.0.2.1\r\ns=call\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n";

#[test]
fn a_line_that_cannot_be_read_is_named() {
    let media = "m=audio 10500 RTP/AVP 0\r\n";
    for (case, offer, what) in [
        (
            "an address in brackets",
            format!("v=0\r\no=a 1 1 IN IP4 h\r\ns=-\r\nc=IN IP6 [::1]\r\nt=0 0\r\n{media}"),
            "Line 4 of the offer (c=) can't be read",
        ),
        (
            "a line of the stream",
            format!("{HEAD}{media}c=in ip4 192.0.2.1\r\n"),
            "Line 7 of the offer (c=) can't be read",
        ),
        (
            "a media line",
            format!("{HEAD}m=audio 10500\r\n"),
            "Line 6 of the offer (m=) can't be read",
        ),
        (
            "another codec",
            format!("{HEAD}m=audio 10500 RTP/AVP 18\r\n"),
            "The offer holds no G.711 (PCMU or PCMA) over plain RTP",
        ),
        (
            "a stream that is off",
            format!("{HEAD}m=audio 0 RTP/AVP 0\r\nc=IN IP6 [::1]\r\nm=audio 9 RTP/AVP 18\r\n"),
            "The offer holds no G.711 (PCMU or PCMA) over plain RTP",
        ),
    ] {
        let refused = answer(&offer).expect_err(case);
        assert_eq!(refused.to_string(), what, "{case}");
    }
}

#[test]
fn an_offer_of_asterisk_is_answered_in_full() {
    let offer = format!(
        "{HEAD}m=audio 10500 RTP/AVP 8 0 101\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:0 PCMU/8000\r\n\
         a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\na=ptime:20\r\na=maxptime:150\r\na=sendrecv\r\n"
    );
    let answer = answer(&offer).unwrap();
    assert_eq!(
        answer.audio.unwrap(),
        with_both(audio("192.0.2.1:10500", 8, Some(101), Direction::SendRecv))
    );

    assert_eq!(
        String::from_utf8(answer.body).unwrap(),
        "v=0\r\no=- 17 3 IN IP4 203.0.113.7\r\ns=-\r\nc=IN IP4 203.0.113.7\r\nt=0 0\r\n\
         m=audio 20000 RTP/AVP 8 101\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:101 telephone-event/8000\r\n\
         a=fmtp:101 0-15\r\na=sendrecv\r\n"
    );
}

#[test]
fn streams_that_cannot_be_echoed_are_switched_off_in_their_place() {
    let offer = format!(
        "{HEAD}m=video 5002 RTP/AVP 96\r\nm=audio 6000/2 RTP/SAVP 0\r\nm=audio 5000 RTP/AVPF 18 0\r\nc=IN IP4 192.0.2.9\r\n\
         a=rtpmap:97 telephone-event/8000\r\nm=audio 5004 RTP/AVP 0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"
    );
    let answer = answer(&offer).unwrap();
    // 97 isn't among the formats of its line.
    assert_eq!(
        answer.audio,
        Some(audio("192.0.2.9:5000", 0, None, Direction::SendRecv))
    );
    let body = String::from_utf8(answer.body).unwrap();
    let lines: Vec<_> = body.lines().filter(|line| line.starts_with("m=")).collect();

    assert_eq!(
        lines,
        [
            "m=video 0 RTP/AVP 96",
            "m=audio 0 RTP/SAVP 0",
            "m=audio 20000 RTP/AVPF 0",
            "m=audio 0 RTP/AVP 0",
            "m=application 0 UDP/DTLS/SCTP webrtc-datachannel",
        ]
    );
}

#[test]
fn directions_are_mirrored() {
    for (name, session, media, direction) in [
        ("unsaid", "", "", Direction::SendRecv),
        ("hold", "", "a=sendonly\r\n", Direction::RecvOnly),
        (
            "hold for the session",
            "a=sendonly\r\n",
            "",
            Direction::RecvOnly,
        ),
        (
            "the section has the last word",
            "a=sendonly\r\n",
            "a=sendrecv\r\n",
            Direction::SendRecv,
        ),
        ("listening", "", "a=recvonly\r\n", Direction::SendOnly),
        ("inactive", "", "a=inactive\r\n", Direction::Inactive),
        (
            "hold of old",
            "",
            "c=IN IP4 0.0.0.0\r\n",
            Direction::RecvOnly,
        ),
        (
            "both ways of hold",
            "",
            "c=IN IP4 0.0.0.0\r\na=sendonly\r\n",
            Direction::RecvOnly,
        ),
        (
            "held and listening",
            "",
            "c=IN IP4 0.0.0.0\r\na=recvonly\r\n",
            Direction::Inactive,
        ),
    ] {
        let answer = answer(&format!("{HEAD}{session}m=audio 5000 RTP/AVP 0\r\n{media}")).unwrap();
        assert_eq!(answer.audio.unwrap().direction, direction, "{name}");
        let line = format!("a={}\r\n", direction.as_str());
        assert!(
            String::from_utf8(answer.body).unwrap().ends_with(&line),
            "{name}"
        );

        assert_eq!(
            direction.sends(),
            matches!(direction, Direction::SendRecv | Direction::SendOnly)
        );
        assert_eq!(
            direction.receives(),
            matches!(direction, Direction::SendRecv | Direction::RecvOnly)
        );
    }
}

#[test]
fn a_number_is_g711_by_its_map_or_by_rfc_3551() {
    use Codec::{Pcma, Pcmu};

    for (name, formats, maps, chosen) in [
        ("static", "8 0", &[][..], Some((8, Pcma))),
        (
            "static and mapped",
            "8",
            &["8 pcma/8000/1"],
            Some((8, Pcma)),
        ),
        ("dynamic", "96", &["96 PCMU/8000"], Some((96, Pcmu))),
        (
            "in any letters",
            "127",
            &["127 pCMa/8000"],
            Some((127, Pcma)),
        ),
        ("one channel", "96", &["96 PCMU/8000/1"], Some((96, Pcmu))),
        ("unassigned", "35", &["35 PCMU/8000"], Some((35, Pcmu))),
        ("static first", "96 0", &["96 PCMA/8000"], Some((0, Pcmu))),
        (
            "in the offer's order",
            "98 97",
            &["97 PCMU/8000", "98 PCMA/8000"],
            Some((98, Pcma)),
        ),
        (
            "the first map counts",
            "96",
            &["96 PCMA/8000", "96 PCMU/8000"],
            Some((96, Pcma)),
        ),
        // Numbers that are no G.711 of 8 kHz and one channel.
        ("unmapped", "96", &[], None),
        ("not in the line", "18", &["96 PCMU/8000"], None),
        ("stereo", "96", &["96 PCMU/8000/2"], None),
        ("16 kHz", "96", &["96 PCMU/16000"], None),
        ("0 is another codec", "0", &["0 opus/48000/2"], None),
        ("0 is the other law", "0", &["0 PCMA/8000"], None),
        ("0 is events", "0", &["0 telephone-event/8000"], None),
        ("static of another", "18", &["18 PCMU/8000"], None),
        ("kept for another", "34", &["34 PCMU/8000"], None),
        (
            "eight bits",
            "128 200",
            &["128 PCMU/8000", "200 PCMU/8000"],
            None,
        ),
        (
            "0 is another codec, 96 its own",
            "0 96",
            &["0 G726-32/8000", "96 PCMU/8000"],
            Some((96, Pcmu)),
        ),
    ] {
        let maps: String = maps
            .iter()
            .map(|map| format!("a=rtpmap:{map}\r\n"))
            .collect();
        let offer = format!("{HEAD}m=audio 5000 RTP/AVP {formats}\r\n{maps}");
        let answer = answer(&offer).ok();
        let payload = answer.as_ref().and_then(|answer| answer.audio);
        let payload = payload.map(|audio| (audio.payload.number, audio.payload.codec));
        assert_eq!(payload, chosen, "{name}");

        let Some((number, codec)) = chosen else {
            continue;
        };
        let body = String::from_utf8(answer.unwrap().body).unwrap();
        let codec = codec.as_str();
        let line = format!("m=audio 20000 RTP/AVP {number}\r\na=rtpmap:{number} {codec}/8000\r\n");
        assert!(body.contains(&line), "{name}: {body}");
    }
}

#[test]
fn dynamic_numbers_keep_their_meaning_in_a_further_offer_of_ours() {
    for (name, before, formats) in [
        ("static", "0 101;101 telephone-event/8000", "0 8 101"),
        ("events", "0 96;96 telephone-event/8000", "0 8 96"),
        ("audio", "96;96 PCMA/8000", "96 0 8 101"),
        ("audio at 101", "101;101 PCMU/8000", "101 0 8 102"),
        (
            "both",
            "97 98;97 PCMU/8000;98 telephone-event/8000",
            "97 0 8 98",
        ),
    ] {
        let mut parts = before.split(';');
        let line = parts.next().unwrap();
        let maps: String = parts.map(|map| format!("a=rtpmap:{map}\r\n")).collect();
        let before = format!("{HEAD}m=audio 9 RTP/AVP {line}\r\n{maps}");
        let offer = offer_audio_after(before.as_bytes(), local(), 5, 2);
        let offer = String::from_utf8(offer).unwrap();
        let media = format!("m=audio 20000 RTP/AVP {formats}\r\n");
        assert!(offer.contains(&media), "{name}: {offer}");
        for map in maps.split_inclusive('\n') {
            assert!(offer.contains(map), "{name}: {offer}");
        }
        let count = offer.matches("a=rtpmap:").count();
        assert_eq!(count, formats.split(' ').count(), "{name}: {offer}");
    }
}

#[test]
fn events_get_a_number_that_no_other_codec_had() {
    for (formats, number) in [("0 101", 102), ("0 101 102", 103), ("101", 102)] {
        let before = format!("{HEAD}m=audio 9 RTP/AVP {formats}\r\na=rtpmap:101 opus/48000/2\r\n");
        let offer = offer_audio_after(before.as_bytes(), local(), 5, 2);
        let offer = String::from_utf8(offer).unwrap();
        let map = format!("a=rtpmap:{number} telephone-event/8000\r\n");
        assert!(offer.contains(&map), "{formats}: {offer}");
    }
}

#[test]
fn an_offer_without_what_we_speak_is_refused() {
    for (name, offer) in [
        ("G.729 alone", format!("{HEAD}m=audio 5000 RTP/AVP 18\r\n")),
        ("SRTP alone", format!("{HEAD}m=audio 5000 RTP/SAVP 0\r\n")),
        ("video alone", format!("{HEAD}m=video 5000 RTP/AVP 0\r\n")),
        ("no address", "v=0\r\nm=audio 5000 RTP/AVP 0\r\n".into()),
        (
            "a host name",
            "v=0\r\nc=IN IP4 phone.example.com\r\nm=audio 5000 RTP/AVP 0\r\n".into(),
        ),
        (
            "the other family",
            "v=0\r\nc=IN IP6 2001:db8::1\r\nm=audio 5000 RTP/AVP 0\r\n".into(),
        ),
        (
            "a port that is none",
            format!("{HEAD}m=audio 65536 RTP/AVP 0\r\n"),
        ),
        ("a line cut short", format!("{HEAD}m=audio 5000\r\n")),
        (
            "too many streams",
            format!("{HEAD}{}", "m=audio 5000 RTP/AVP 0\r\n".repeat(33)),
        ),
    ] {
        assert!(answer(&offer).is_err(), "{name}");
    }

    let most = format!("{HEAD}{}", "m=audio 5000 RTP/AVP 0\r\n".repeat(32));
    assert!(answer(&most).is_ok());
}

#[test]
fn a_refusal_names_what_is_missing() {
    let opus = "m=audio 5000 RTP/AVP 96\r\na=rtpmap:96 opus/48000/2\r\n";
    for (name, offer, said) in [
        ("opus", format!("{HEAD}{opus}"), "no G.711"),
        (
            "G.722",
            format!("{HEAD}m=audio 5000 RTP/AVP 9\r\n"),
            "no G.711",
        ),
        (
            "SDES",
            format!("{HEAD}m=audio 5000 RTP/SAVP 0\r\n"),
            "encrypted",
        ),
        (
            "DTLS",
            format!("{HEAD}m=audio 5000 UDP/TLS/RTP/SAVPF 0\r\n"),
            "encrypted",
        ),
        (
            "encrypted, or plain without G.711",
            format!("{HEAD}m=audio 5000 RTP/SAVP 0\r\n{opus}"),
            "no G.711",
        ),
        (
            "video",
            format!("{HEAD}m=video 5000 RTP/AVP 0\r\n"),
            "no audio",
        ),
        (
            "IPv6",
            "v=0\r\nc=IN IP6 2001:db8::1\r\nm=audio 5000 RTP/AVP 0\r\n".into(),
            "another IP version",
        ),
    ] {
        let refused = answer(&offer).expect_err(name);
        assert!(refused.what.contains(said), "{name}: {refused}");
    }
}

#[test]
fn media_are_of_the_ip_version_of_the_offer() {
    use IpVersion::{V4, V6};
    let [v4, v6] = ["IP4 192.0.2.1", "IP6 2001:db8::1"]
        .map(|at| format!("m=audio 5000 RTP/AVP 0\r\nc=IN {at}\r\n"));
    let srtp = "m=audio 5000 RTP/SAVP 0\r\nc=IN IP4 192.0.2.1\r\n";
    for (name, streams, near, expected) in [
        ("the same", v4.clone(), "192.0.2.9", V4),
        ("IPv4 media", v4.clone(), "2001:db8::9", V4),
        ("IPv6 media", v6.clone(), "192.0.2.9", V6),
        ("both", format!("{v4}{v6}"), "2001:db8::9", V6),
        ("the usable one", format!("{srtp}{v6}"), "192.0.2.9", V6),
        ("none usable", srtp.to_owned(), "2001:db8::9", V6),
        ("a mapped address", v4.clone(), "::ffff:192.0.2.9", V4),
    ] {
        let offer = format!("v=0\r\n{streams}");
        let near = near.parse().expect("an address");
        assert_eq!(version_for(offer.as_bytes(), near), expected, "{name}");
    }
}

#[test]
fn streams_switched_off_by_the_peer_stay_so() {
    let answer = answer(&format!("{HEAD}m=audio 0 RTP/AVP 0\r\n")).unwrap();
    assert_eq!(answer.audio, None);
    assert!(answer.body.ends_with(b"m=audio 0 RTP/AVP 0\r\n"));
}

#[test]
fn line_ends_and_times_are_taken_as_they_come() {
    let offer = "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=-\nc=IN IP4 192.0.2.1/127\nt=2873397496 2873404696\nm=audio 5000 RTP/AVP 0\n";
    let answer = answer(offer).unwrap();
    assert_eq!(
        answer.audio.unwrap().remote,
        "192.0.2.1:5000".parse().unwrap()
    );
    assert!(
        String::from_utf8(answer.body)
            .unwrap()
            .contains("\r\nt=2873397496 2873404696\r\n")
    );
}

#[test]
fn ipv6_speaks_with_ipv6() {
    let offer = b"v=0\r\nc=IN IP6 2001:db8::1\r\nt=0 0\r\nm=audio 5000 RTP/AVP 0\r\n";
    let answer = answer_audio(offer, "[2001:db8::7]:20000".parse().unwrap(), 1, 1).unwrap();
    assert_eq!(
        answer.audio.unwrap().remote,
        "[2001:db8::1]:5000".parse().unwrap()
    );
    assert!(
        String::from_utf8(answer.body)
            .unwrap()
            .contains("c=IN IP6 2001:db8::7\r\n")
    );
}

#[test]
fn our_own_offer_is_answered_and_the_answer_read() {
    let offer = offer_audio(local(), 5, 1);
    let theirs: SocketAddr = "192.0.2.1:7000".parse().unwrap();
    let answer = answer_audio(&offer, theirs, 9, 1).unwrap();
    assert_eq!(
        answer.audio.unwrap(),
        with_both(audio(LOCAL, 0, Some(101), Direction::SendRecv))
    );
    let read = read_answer(&offer, &answer.body);
    assert_eq!(
        read.unwrap(),
        with_both(audio("192.0.2.1:7000", 0, Some(101), Direction::SendRecv))
    );
    assert_eq!(read_answer(&offer, &reject(&offer, theirs)), None);
}

/// Media lines and maps of an offer of ours and its answer; then the payload types that we send audio and events with, and the meanings of those that
/// we take: `u` and `a` for the laws, `e` for events, `-` for none.
#[test]
fn an_answer_is_read_beside_its_offer() {
    const OURS: &str = "0 8 101;101 telephone-event/8000";
    let cases = [
        ("the first alone", OURS, "0", (0, None), "0u 8a 101-"),
        (
            "both laws and events",
            OURS,
            "0 8 101;101 telephone-event/8000",
            (0, Some(101)),
            "0u 8a 101e 96-",
        ),
        (
            "in the answer's order",
            OURS,
            "8 0 101;101 telephone-event/8000",
            (8, Some(101)),
            "0u 8a 101e",
        ),
        (
            "events under another number",
            OURS,
            "8 96;96 telephone-event/8000",
            (8, Some(96)),
            "8a 96e 101e",
        ),
        (
            "a law under another number",
            OURS,
            "97 101;97 PCMA/8000;101 telephone-event/8000",
            (97, Some(101)),
            "97a 8a 0u 101e",
        ),
        (
            "our number for another format",
            "96 0 8 101;96 PCMA/8000;101 telephone-event/8000",
            "101 96;96 telephone-event/8000;101 PCMA/8000",
            (101, Some(96)),
            "96a 101e 0u 8a",
        ),
        (
            "a codec that was not offered",
            OURS,
            "18 0;18 G729/8000",
            (0, None),
            "18- 0u",
        ),
    ];

    for (name, offer, answer, (number, event), types) in cases {
        let sdp = |media: &str| {
            let mut parts = media.split(';');
            let line = parts.next().unwrap();
            let maps: String = parts.map(|map| format!("a=rtpmap:{map}\r\n")).collect();
            format!("{HEAD}m=audio 9 RTP/AVP {line}\r\n{maps}")
        };
        let audio = read_answer(sdp(offer).as_bytes(), sdp(answer).as_bytes()).expect(name);
        assert_eq!(audio.payload.number, number, "{name}");
        assert_eq!(audio.telephone_event, event, "{name}");
        for entry in types.split(' ') {
            let (number, meaning) = entry.split_at(entry.len() - 1);
            let expected = match meaning {
                "u" => Some(Format::Audio(Codec::Pcmu)),
                "a" => Some(Format::Audio(Codec::Pcma)),
                "e" => Some(Format::TelephoneEvent),
                _ => None,
            };
            let is = audio.received.format(number.parse().unwrap());
            assert_eq!(is, expected, "{name}: {entry}");
        }
    }
}

/// The streams of offer and answer correspond by their place (RFC 3264 §6).
#[test]
fn an_answer_is_read_beside_the_stream_in_its_place() {
    let offer = format!(
        "{HEAD}m=video 0 RTP/AVP 96\r\nm=audio 9 RTP/AVP 0 8 98\r\na=rtpmap:98 telephone-event/8000\r\n"
    );
    let answer = format!(
        "{HEAD}m=video 0 RTP/AVP 96\r\nm=audio 7000 RTP/AVP 8 101\r\na=rtpmap:101 telephone-event/8000\r\n"
    );
    let audio = read_answer(offer.as_bytes(), answer.as_bytes()).unwrap();
    for number in [98, 101] {
        let format = audio.received.format(number);
        assert_eq!(format, Some(Format::TelephoneEvent), "{number}");
    }
    assert_eq!(audio.telephone_event, Some(101));
}

#[test]
fn a_further_offer_of_ours_keeps_the_lines_of_the_last_sdp() {
    let cases: [(&str, &str, &[&str]); 7] = [
        ("nothing before", "", &["audio 20000"]),
        ("audio", "m=audio 9 RTP/AVP 8\r\n", &["audio 20000"]),
        (
            "audio, then video",
            "m=audio 9 RTP/AVP 8\r\nm=video 0 RTP/AVP 96\r\n",
            &["audio 20000", "video 0"],
        ),
        (
            "video first",
            "m=video 0 RTP/AVP 96\r\nm=audio 9 RTP/AVP 8\r\n",
            &["video 0", "audio 20000"],
        ),
        (
            "the second audio",
            "m=audio 0 RTP/SAVP 8\r\nm=audio 9 RTP/AVP 8\r\n",
            &["audio 0", "audio 20000"],
        ),
        (
            "an audio that is off",
            "m=video 0 RTP/AVP 96\r\nm=audio 0 RTP/AVP 8\r\n",
            &["video 0", "audio 20000"],
        ),
        (
            "no audio",
            "m=video 0 RTP/AVP 96\r\n",
            &["video 0", "audio 20000"],
        ),
    ];

    for (name, before, lines) in cases {
        let before = format!("{HEAD}{before}");
        let offer = offer_audio_after(before.as_bytes(), local(), 5, 2);
        let offer = String::from_utf8(offer).unwrap();
        let media = offer.lines().filter_map(|line| line.strip_prefix("m="));
        let media: Vec<String> = media
            .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(media, lines, "{name}");
        let read = read_answer(offer.as_bytes(), offer.as_bytes());
        assert!(read.is_some(), "{name}");
    }

    let first = offer_audio(local(), 5, 2);
    assert_eq!(offer_audio_after(b"", local(), 5, 2), first);
}

#[test]
fn a_rejection_switches_every_stream_off() {
    let offer =
        format!("{HEAD}m=audio 5000 RTP/AVP 0 8\r\na=sendrecv\r\nm=video 5002 RTP/AVP 96\r\n");
    let body = String::from_utf8(reject(offer.as_bytes(), local())).unwrap();
    assert!(
        body.ends_with("t=0 0\r\nm=audio 0 RTP/AVP 0 8\r\nm=video 0 RTP/AVP 96\r\n"),
        "{body}"
    );
    let unreadable = String::from_utf8(reject(b"m=audio\r\n", local())).unwrap();
    assert!(unreadable.ends_with("t=0 0\r\n"));
}

fn sdp_like() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("m=audio 5000 RTP/AVP 0 8 101\r\n".to_owned()),
        Just("m=audio 0 RTP/AVP 0\r\n".to_owned()),
        Just("c=IN IP4 192.0.2.1\r\n".to_owned()),
        Just("a=rtpmap:101 telephone-event/8000\r\n".to_owned()),
        Just("m=audio 5000 RTP/AVP 96 0\r\n".to_owned()),
        Just("a=rtpmap:96 PCMA/8000\r\n".to_owned()),
        Just("a=rtpmap:0 opus/48000/2\r\n".to_owned()),
        "[acmt]=[ -~]{0,20}\r?\n",
        "m=[a-z]{0,5} [0-9]{0,6} [A-Z/]{0,8} [0-9 ]{0,8}\n",
    ];
    proptest::collection::vec(line, 0..40).prop_map(|lines| lines.concat().into_bytes())
}

proptest! {
    #[test]
    fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (answer_audio(&octets, local(), 1, 1), read_answer(&octets, &octets), reject(&octets, local()));
    }

    #[test]
    fn an_answer_has_a_line_for_each_of_the_offer(offer in sdp_like()) {
        let count = |body: &[u8]| body.split(|octet| *octet == b'\n').filter(|line| line.starts_with(b"m=")).count();
        if let Ok(answer) = answer_audio(&offer, local(), 1, 1) {
            prop_assert_eq!(count(&answer.body), count(&offer));
            let theirs = Description::read(&answer.body).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
            prop_assert_eq!(theirs.media.iter().any(|media| media.port != 0), answer.audio.is_some());
            prop_assert_eq!(count(&reject(&offer, local())), count(&offer));
        }
    }
}

#[test]
fn a_description_may_stand_among_other_parts_and_other_text_is_none() {
    let theirs: SocketAddr = "192.0.2.1:7000".parse().unwrap();
    let offer = offer_audio(local(), 5, 1);
    let among = [
        &b"--cut\r\nContent-Type: application/sdp\r\n\r\n"[..],
        &offer,
        b"\r\n--cut\r\nContent-Type: text/plain\r\n\r\nhello\r\n--cut--\r\n",
    ]
    .concat();

    assert_eq!(
        answer_audio(&among, theirs, 9, 1),
        answer_audio(&offer, theirs, 9, 1)
    );
    for text in [&b"foo"[..], b"", b"t=0 0\r\n", &[0x1f, 0x8b, 8, 0]] {
        assert!(answer_audio(text, theirs, 9, 1).is_err(), "{text:?}");
    }
}
