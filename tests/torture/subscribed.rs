//! NOTIFYs of a PBX, with and without a subscription: RFC 3515 §2.4.6, RFC 6665 §4.1.3.

use crate::torture::handed_over::{DONE, OVER, Pbx, RINGING, daemon};

const BUSY: &str = "SIP/2.0 486 Busy Here\r\n";
const OPEN: &str = "active;expires=60";

/// Sends NOTIFY with this Event; returns the status of the answer.
fn notify(pbx: &Pbx, event: &str, fragment: &str, state: &str) -> u16 {
    let lines = format!(
        "Event: {event}\r\nSubscription-State: {state}\r\nContent-Type: message/sipfrag;version=2.0\r\n"
    );
    pbx.says("NOTIFY", &lines, fragment)
}

/// Accepts the REFER that comes; returns its CSeq.
fn referred(pbx: &Pbx) -> u32 {
    let refer = pbx.request("REFER");
    pbx.answers(&refer, "202 Accepted");
    let cseq = refer.value("CSeq");
    let number = cseq.split(' ').next().and_then(|cseq| cseq.parse().ok());
    number.expect("a number")
}

#[test]
fn a_notify_moves_only_the_transfer_whose_refer_it_names() {
    let daemon = daemon();
    let pbx = Pbx::calls(&daemon, "subscribed", "");
    for event in ["refer", "refer;id=1", ""] {
        assert_eq!(notify(&pbx, event, DONE, OVER), 481, "{event:?}");
    }

    pbx.transfers(&daemon, "Sales");
    let first = referred(&pbx);
    let strange = [
        format!("refer;id={}", first + 1),
        format!("refer;id={}", first - 1),
        format!("refer;id=0000000000{}", u64::from(first) + (1 << 32)),
        "refer;id=one".to_owned(),
        "refer;id".to_owned(),
    ];

    for event in &strange {
        assert_eq!(notify(&pbx, event, DONE, OVER), 481, "{event}");
    }

    pbx.transferred(&daemon, "accepted");
    let named = format!("Refer ; ID={first}");
    assert_eq!(notify(&pbx, &named, RINGING, OPEN), 200);
    pbx.transferred(&daemon, "ringing");
    assert_eq!(notify(&pbx, "refer", BUSY, OVER), 200);
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["status"], "in_progress", "{shown}");
    for event in ["refer", &named] {
        assert_eq!(notify(&pbx, event, DONE, OVER), 481, "{event}: it is over");
    }

    // The second subscription has no last NOTIFY: one without an id is for it, as the older one.
    pbx.transfers(&daemon, "Sales");
    let second = format!("refer;id={}", referred(&pbx));
    assert_eq!(notify(&pbx, &named, DONE, OVER), 481);
    assert_eq!(notify(&pbx, &second, BUSY, OPEN), 200);
    pbx.transferred(&daemon, "failed");
    pbx.transfers(&daemon, "Sales");
    let third = format!("refer;id={}", referred(&pbx));
    assert_eq!(notify(&pbx, "refer", DONE, OPEN), 200);
    assert_eq!(notify(&pbx, &third, RINGING, OPEN), 200);
    pbx.transferred(&daemon, "ringing");
}
