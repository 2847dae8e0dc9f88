//! A PBX that is asked to transfer its caller, or to wait: sipp scenarios put together from steps, since PBXs differ mainly in
//! the order of the same few messages. A runtime can take the steps that are answers.

use std::fmt::Write as _;

/// One step of the PBX: something to send or to wait for.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Waits for REFER.
    Refer,
    /// Answers the REFER with this status and phrase, and with a further header line.
    Answer(&'static str, &'static str),
    /// Sends a NOTIFY with this fragment and this subscription state, and waits for its 200.
    Notify(&'static str, &'static str),
    /// Waits for a re-INVITE, accepts it with the PBX's own SDP, and waits for the ACK.
    Rejoined,
    /// Waits for a re-INVITE, accepts it with an SDP of this direction, and waits for the ACK.
    Turned(&'static str),
    /// Sends a re-INVITE of this direction, waits for its 200, and acknowledges it.
    Offers(&'static str),
    /// Sends a re-INVITE that moves the media to this port, waits for its 200, and acknowledges it.
    Moves(u16),
    /// Rings for this many milliseconds before it answers: for a runtime, as its first step.
    Rings(u32),
    /// Waits for a re-INVITE, refuses it with this status and phrase, and waits for the ACK.
    Unjoined(&'static str),
    /// Hangs up, and waits for the 200.
    Bye,
    /// Waits for a BYE.
    ByeComes,
    /// Presses a key, and waits for the 200.
    Key(char),
    /// Waits for this many milliseconds.
    Pause(u32),
}

/// The scenario of a PBX that authenticates, is answered, and takes these steps.
pub fn scenario(steps: &[Step]) -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<scenario name=\"pbx\">\n<!-- include log_in.part -->\n",
    );
    xml.push_str(ANSWERED);
    play(&mut xml, steps, MOVED);
    xml.push_str("</scenario>\n");
    xml
}

/// The scenario of a runtime that answers and takes these steps.
pub fn of_runtime(steps: &[Step]) -> String {
    let mut xml =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<scenario name=\"runtime\">\n");
    xml.push_str("<recv request=\"INVITE\" rrs=\"true\"/>\n");
    let tagged = LAST.replace("[last_To:]", "[last_To:];tag=[pid]runtime[call_number]");

    if let [Step::Rings(millis), ..] = steps {
        let head = format!("SIP/2.0 180 Ringing\n{tagged}");
        xml.push_str(&send("", &head, RUNTIMES, ""));
        let _ = writeln!(xml, "<pause milliseconds=\"{millis}\"/>");
    }

    let head = format!("SIP/2.0 200 OK\n{tagged}");
    let lines = format!("{RUNTIMES}\nContent-Type: application/sdp");
    xml.push_str(&send(" retrans=\"500\"", &head, &lines, OF_RUNTIME));
    xml.push_str("<recv request=\"ACK\"/>\n");

    play(&mut xml, steps, OF_RUNTIME);
    xml.push_str("</scenario>\n");
    xml
}

fn play(xml: &mut String, steps: &[Step], media: &str) {
    let mut media = media.to_owned();
    let mut cseq = 2;
    let mut version = 8;
    for step in steps {
        match step {
            Step::Refer => xml.push_str(REFER),
            // An answer repeats the dialog's lines from the variables that sipp keeps of the REFER.
            Step::Answer(status, header) => xml.push_str(&send(
                "",
                &format!("SIP/2.0 {status}\nVia:[$via]\nFrom:[$from]\nTo:[$to]\nCall-ID: [call_id]\nCSeq:[$cseq]"),
                header,
                "",
            )),

            Step::Notify(fragment, state) => {
                cseq += 1;
                let lines = format!(
                    "Contact: <sip:[caller]@[local_ip]:[local_port];transport=[transport]>\nEvent: refer\n\
                     Subscription-State: {state}\nContent-Type: message/sipfrag;version=2.0"
                );
                xml.push_str(&send(" retrans=\"500\"", &inside("NOTIFY", cseq), &lines, fragment));
                xml.push_str("<recv response=\"200\"/>\n");
            }
            Step::Bye => {
                cseq += 1;
                xml.push_str(&send(" retrans=\"500\"", &inside("BYE", cseq), "", ""));
                xml.push_str("<recv response=\"200\"/>\n");
            }

            Step::Key(key) => {
                cseq += 1;
                let kind = "Content-Type: application/dtmf-relay";
                let body = format!("Signal={key}\nDuration=160");
                let info = inside("INFO", cseq);
                xml.push_str(&send(" retrans=\"500\"", &info, kind, &body));
                xml.push_str("<recv response=\"200\"/>\n");
            }

            Step::ByeComes => {
                xml.push_str("<recv request=\"BYE\"/>\n");
                xml.push_str(&send("", &format!("SIP/2.0 200 OK\n{LAST}"), "", ""));
            }

            Step::Rejoined => {
                xml.push_str("<recv request=\"INVITE\"/>\n");
                let lines = "Contact: <sip:[caller]@[local_ip]:[local_port];transport=[transport]>\nContent-Type: application/sdp";
                let answer = turned(&media, "sendrecv", version);
                xml.push_str(&send("", &format!("SIP/2.0 200 OK\n{LAST}"), lines, &answer));
                xml.push_str("<recv request=\"ACK\"/>\n");
            }
            Step::Turned(direction) => {
                version += 1;
                xml.push_str("<recv request=\"INVITE\"/>\n");
                let answer = turned(&media, direction, version);
                let lines = "Contact: <sip:peer@[local_ip]:[local_port];transport=[transport]>\nContent-Type: application/sdp";
                xml.push_str(&send(" retrans=\"500\"", &format!("SIP/2.0 200 OK\n{LAST}"), lines, &answer));
                xml.push_str("<recv request=\"ACK\"/>\n");
            }

            Step::Offers(direction) => {
                (cseq, version) = (cseq + 1, version + 1);
                offer(xml, cseq, &turned(&media, direction, version));
            }
            Step::Moves(port) => {
                (cseq, version) = (cseq + 1, version + 1);
                media = media.replace("m=audio 41000", &format!("m=audio {port}"));
                offer(xml, cseq, &turned(&media, "sendrecv", version));
            }

            Step::Rings(_) => {}
            Step::Unjoined(status) => {
                xml.push_str("<recv request=\"INVITE\"/>\n");
                xml.push_str(&send("", &format!("SIP/2.0 {status}\n{LAST}"), "", ""));
                xml.push_str("<recv request=\"ACK\"/>\n");
            }
            Step::Pause(millis) => {
                let _ = writeln!(xml, "<pause milliseconds=\"{millis}\"/>");
            }
        }
    }

    // sipp refuses a scenario that names a variable only once.
    if steps.iter().any(|step| matches!(step, Step::Refer)) {
        xml.push_str("<Reference variables=\"via,from,to,cseq\"/>\n");
    }
}

/// Prints a re-INVITE, its 200 and the ACK.
fn offer(xml: &mut String, cseq: u32, sdp: &str) {
    let lines = "Contact: <sip:[caller]@[local_ip]:[local_port];transport=[transport]>\nContent-Type: application/sdp";
    let invite = inside("INVITE", cseq);
    xml.push_str(&send(" retrans=\"500\"", &invite, lines, sdp));
    xml.push_str("<recv response=\"100\" optional=\"true\"/>\n<recv response=\"200\"/>\n");
    xml.push_str(&send("", &invite.replace("INVITE", "ACK"), "", ""));
}

fn turned(media: &str, direction: &str, version: u32) -> String {
    let media = media.replace("a=sendrecv", &format!("a={direction}"));
    media.replacen(" 8 IN IP", &format!(" {version} IN IP"), 1)
}

/// Headers of a runtime's answers.
const RUNTIMES: &str = "Contact: <sip:runtime@[local_ip]:[local_port];transport=[transport]>";

const OF_RUNTIME: &str = "v=0\no=runtime 3 8 IN IP4 127.0.0.1\ns=agent\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 42000 RTP/AVP 8 101\n\
a=rtpmap:8 PCMA/8000\na=rtpmap:101 telephone-event/8000\na=sendrecv";

/// Headers that an answer copies from its request.
const LAST: &str = "[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\n[last_CSeq:]";

/// The caller's SDP once another party hears it: only the version has changed.
const MOVED: &str = "v=0\no=caller 7 8 IN IP[local_ip_type] [media_ip]\ns=call\nc=IN IP[media_ip_type] [media_ip]\nt=0 0\n\
m=audio 41000 RTP/AVP 8 0 101\na=rtpmap:8 PCMA/8000\na=rtpmap:0 PCMU/8000\na=rtpmap:101 telephone-event/8000\n\
a=fmtp:101 0-16\na=x-unknown:kept as it is\na=sendrecv";

const ANSWERED: &str = r#"<recv response="100" optional="true"/>
<recv response="180" optional="true"/>
<recv response="183" optional="true"/>
<recv response="200" rrs="true"/>
<send>
<![CDATA[
ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
[routes]
Max-Forwards: 70
From: "Caller" <sip:[caller]@[local_ip]:[local_port]>;tag=[pid]caller[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 2 ACK
Content-Length: 0

]]>
</send>
"#;

const REFER: &str = r#"<recv request="REFER">
<action>
<ereg regexp=".*" search_in="hdr" header="Via:" assign_to="via"/>
<ereg regexp=".*" search_in="hdr" header="From:" assign_to="from"/>
<ereg regexp=".*" search_in="hdr" header="To:" assign_to="to"/>
<ereg regexp=".*" search_in="hdr" header="CSeq:" assign_to="cseq"/>
</action>
</recv>
"#;

/// A request of the PBX inside the call.
fn inside(method: &str, cseq: u32) -> String {
    format!(
        "{method} [next_url] SIP/2.0\n\
         Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport\n\
         [routes]\n\
         Max-Forwards: 70\n\
         From: \"Caller\" <sip:[caller]@[local_ip]:[local_port]>;tag=[pid]caller[call_number]\n\
         To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]\n\
         Call-ID: [call_id]\n\
         CSeq: {cseq} {method}"
    )
}

fn send(how: &str, head: &str, lines: &str, body: &str) -> String {
    let lines = if lines.is_empty() {
        String::new()
    } else {
        format!("{lines}\n")
    };
    format!(
        "<send{how}>\n<![CDATA[\n{head}\n{lines}Content-Length: [len]\n\n{body}\n]]>\n</send>\n"
    )
}
