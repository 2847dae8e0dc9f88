//! Asterisk with `direct_media`, which takes the media of a call back once it has taken the caller.

use serde_json::json;

use crate::torture::handed_over::{ASTERISK, Pbx, daemon, trunk};

/// Asterisk 23.4.1 sent this within a millisecond of the NOTIFY (`direct_media_method=update`): the caller heard the busy tone of its dialplan.
#[test]
fn media_that_asterisk_takes_back_are_no_sign_of_the_caller() {
    let daemon = daemon();
    trunk(&daemon, &json!({"transfer_way": "refer"}));
    let taken_back = "v=0\r\no=- 7 8 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\na=sendrecv\r\n";

    for method in ["UPDATE", "INVITE"] {
        let pbx = Pbx::calls(&daemon, method, ASTERISK);
        pbx.transfers(&daemon, "Sales");
        pbx.accepts_refer();
        pbx.notifies("SIP/2.0 486 Busy Here\r\n", "terminated;reason=noresource");
        let asked = pbx.request("OPTIONS");
        pbx.answers(&asked, "200 OK");
        let lines = "Content-Type: application/sdp\r\n";
        assert_eq!(pbx.says(method, lines, taken_back), 200, "{method}");

        let bye = pbx.request("BYE");
        pbx.answers(&bye, "200 OK");
        let record = pbx.ended(&daemon);
        assert_eq!(record["reason"], "caller_lost", "{method}: {record}");
        assert_eq!(
            record["transfer"]["caller_may_be_gone"], true,
            "{method}: {record}"
        );
    }

    trunk(&daemon, &json!({"transfer_way": "auto"}));
    let shown = daemon.shown("/phone/sip/inbound-trunk");
    assert_eq!(
        shown["transfer_way_in_force"]["reason"], "not_proven",
        "{shown}"
    );
}
