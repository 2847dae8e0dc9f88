//! The origin line of the SDP that a peer gets.

use trunkline_sip::flow::Transport;
use trunkline_sip::wire::{Framing, lex};

use super::*;

const OURS: &[u8] = b"v=0\r\no=- 77 1 IN IP4 192.0.2.1\r\ns=-\r\nm=audio 4000 RTP/AVP 0\r\n";
const THEIRS: &[u8] = b"v=0\r\no=x 3 3 IN IP4 192.0.2.3\r\ns=-\r\nm=audio 4002 RTP/AVP 0\r\n";
const OTHERS: &[u8] = b"v=0\r\no=y 4 4 IN IP4 192.0.2.4\r\ns=-\r\nm=audio 4004 RTP/AVP 0\r\n";

/// A peer that has got that SDP from us in its dialog.
fn peer_with_sdp(sdp: Option<&[u8]>) -> SipPeer {
    let invite = b"INVITE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:c@d>;tag=1\r\nTo: <sip:a@b>\r\n\
        Call-ID: 1\r\nCSeq: 1 INVITE\r\nContact: <sip:c@h>\r\nContent-Length: 0\r\n\r\n";
    let message = lex(invite, Framing::Datagram).expect("an INVITE");
    let dialog = Dialog::uas(&message, b"2").expect("a dialog");
    let mut peer = SipPeer::begun(Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: "192.0.2.1:5060".parse().expect("an address"),
        peer: "192.0.2.2:5060".parse().expect("an address"),
    });
    peer.dialogs
        .push(ForkDialog::new(0, dialog, sdp.map(Into::into)));
    peer
}

fn origin_of(sdp: &[u8]) -> &str {
    let line = origin_line(sdp).expect("an origin line");
    std::str::from_utf8(line).expect("ASCII").trim_ascii_end()
}

#[test]
fn another_partys_sdp_is_the_next_version_of_the_one_that_the_peer_has() {
    for (case, in_dialog, sent, expected) in [
        ("our offer", Some(OURS), None, "o=- 77 2 IN IP4 192.0.2.1"),
        (
            "an early answer",
            None,
            Some(THEIRS),
            "o=x 3 4 IN IP4 192.0.2.3",
        ),
        ("both", Some(OURS), Some(THEIRS), "o=x 3 4 IN IP4 192.0.2.3"),
        (
            "one twice",
            Some(OURS),
            Some(OURS),
            "o=- 77 2 IN IP4 192.0.2.1",
        ),
    ] {
        let mut peer = peer_with_sdp(in_dialog);
        if let Some(sent) = sent {
            assert_eq!(*peer.with_origin(sent), *sent, "{case}");
        }
        peer.keep_origin();
        assert_eq!(origin_of(&peer.with_origin(OTHERS)), expected, "{case}");
    }
}

#[test]
fn an_origin_line_is_kept_beside_the_dialog_only_where_it_differs() {
    let mut peer = peer_with_sdp(Some(OURS));
    peer.with_origin(OURS);
    assert!(peer.origin.is_none());
    peer.with_origin(THEIRS);
    assert!(peer.origin.is_some(), "it may be refused");
    peer.remember_sdp(0, THEIRS);
    assert!(peer.origin.is_none(), "it was accepted");
}
