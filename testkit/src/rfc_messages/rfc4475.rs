//! Our messages for the cases of RFC 4475 §3. The comment of each function names the trap.

use super::draft::{Build, Draft, OFFER};

/// Cases of RFC 4475 §3, in its order.
pub(super) const CASES: [(&str, Build); 49] = [
    ("wsinv", wsinv),
    ("intmeth", intmeth),
    ("esc01", esc01),
    ("escnull", escnull),
    ("esc02", esc02),
    ("lwsdisp", lwsdisp),
    ("longreq", longreq),
    ("dblreq", dblreq),
    ("semiuri", semiuri),
    ("transports", transports),
    ("mpart01", mpart01),
    ("unreason", unreason),
    ("noreason", noreason),
    ("badinv01", badinv01),
    ("clerr", clerr),
    ("ncl", ncl),
    ("scalar02", scalar02),
    ("scalarlg", scalarlg),
    ("quotbal", quotbal),
    ("ltgtruri", ltgtruri),
    ("lwsruri", lwsruri),
    ("lwsstart", lwsstart),
    ("trws", trws),
    ("escruri", escruri),
    ("baddate", baddate),
    ("regbadct", regbadct),
    ("badaspec", badaspec),
    ("baddn", baddn),
    ("badvers", badvers),
    ("mismatch01", mismatch01),
    ("mismatch02", mismatch02),
    ("bigcode", bigcode),
    ("badbranch", badbranch),
    ("insuf", insuf),
    ("unkscm", unkscm),
    ("novelsc", novelsc),
    ("unksm2", unksm2),
    ("bext01", bext01),
    ("invut", invut),
    ("regaut01", regaut01),
    ("multi01", multi01),
    ("mcl01", mcl01),
    ("bcast", bcast),
    ("zeromf", zeromf),
    ("cparam01", cparam01),
    ("cparam02", cparam02),
    ("regescrt", regescrt),
    ("sdp01", sdp01),
    ("inv2543", inv2543),
];

/// RFC 4475 §3.1.1.1: every blank and fold that the grammar allows, short forms, names in any case, leading zeros, quoted pairs. Its To has
/// the tag of no dialog.
fn wsinv(name: &str) -> Vec<u8> {
    let draft = Draft {
        start: "INVITE sip:desk@example.net;unknown SIP/2.0".to_owned(),
        lines: Vec::new(),
        body: OFFER.into(),
    };
    let length = OFFER.len();

    draft
        .with("TO :\r\n sip:desk@example.net ;  tag   = of-no-dialog")
        .with("from   : \"A quote \\\\\\\"\"      <sip:quentin@example.org>\r\n  ;\r\n  tag = from")
        .with("mAx-FoRwArDs: 0070")
        .with(&format!("i: {name}@calls.example.org"))
        .with("cseq: 0007\r\n  INVITE")
        .with(&format!(
            "Via  : SIP  /   2.0\r\n /UDP\r\n    192.0.2.7;branch=z9hG4bK-{name}"
        ))
        .with("s :")
        .with("X-Folded:   first part\r\n second part")
        .with("X-Odd: ;,,;;,,;")
        .with("c: application/sdp")
        .with("Route:\r\n <sip:proxy.example.org;lr;with=value;without>")
        .with("v:  SIP  / 2.0  / TCP     edge.example.org   ;\r\n  branch  =   z9hG4bK-edge  ,\r\n SIP  /    2.0   / UDP  192.0.2.8   ; branch=\r\n z9hG4bK-inner")
        .with("m:\"Two quotes \\\"\\\"\" <sip:quentin@pbx.example.org> ; with =\r\n      value ;\r\n  without ; q = 0.25")
        .with(&format!("Content-Length   : {length}"))
        .octets()
}

/// RFC 4475 §3.1.1.2: a method, display names, a Call-ID and a header name of every unusual character that each may hold, control characters in
/// quoted pairs, UTF-8 in quotes.
fn intmeth(_name: &str) -> Vec<u8> {
    let method = "_Strange.9-!%*+`'~";
    let uri = "sip:~odd_(user)!&it's=1+$/?,;*:pa&s=s+$,@example.net";
    Draft::request("intmeth", method, uri)
        .set(&format!(
            "To: \"BEL:\\\u{7} NUL:\\\0 DEL:\\\u{7f}\" <{uri}>"
        ))
        .set("From: to~ken1` tok'en2+_ *%!.- <sip:quentin@example.org>;a''~+*_!.-%=\"\u{43c}\u{438}\u{440}\";tag=_tag~'+`*%!-.")
        .set("Call-ID: w%o!r-d.*_+'`~)(><:\\/\"][?}{@words~)(><:\\/\"][?}{")
        .set(&format!("CSeq: 2147483646 {method}"))
        .set("Max-Forwards: 255")
        .with("X-!.%*_+`'~: \u{feff}\u{5927}\u{96fb}")
        .octets()
}

/// RFC 4475 §3.1.1.3: escapes, some of which would change the URI if they were resolved before it is cut into parts.
fn esc01(name: &str) -> Vec<u8> {
    let uri = "sip:sips%3Adesk%40example.org@example.net";
    Draft::invite(name)
        .start(&format!("INVITE {uri} SIP/2.0"))
        .set("To: <sip:%64es%6B@example.net>")
        .set("From: <sip:two%20words@example.org>;tag=esc01")
        .set("Contact:\r\n  <sip:qu%65ntin@pbx.example.org;%6C%72;na%6De=v%61lue%25%34%31>")
        .octets()
}

/// RFC 4475 §3.1.1.4: `%00` in a user: a NUL that ends no string.
fn escnull(name: &str) -> Vec<u8> {
    Draft::register(name)
        .set("To: <sip:a-%00-b@example.org>")
        .set("From: <sip:a-%00-b@example.org>;tag=escnull")
        .set("Contact: <sip:%00@pbx.example.org>")
        .with("Contact: <sip:%00%00@pbx.example.org>")
        .octets()
}

/// RFC 4475 §3.1.1.5: percent signs where nothing is escaped: `OPT%49ONS` isn't OPTIONS, nor `C%6Fntact` a Contact.
fn esc02(name: &str) -> Vec<u8> {
    Draft::request(name, "OPT%49ONS", "sip:example.net")
        .set("To: \"%Q%51\" <sip:desk@example.net>")
        .set("From: \"%Q%51\" <sip:desk@example.net>;tag=esc02")
        .set("Via: SIP/2.0/UDP pbx.example.org;branch=z9hG4bK%qesc02")
        .with("Contact: <sip:first@pbx.example.org>")
        .with("C%6Fntact: <sip:second@pbx.example.org>")
        .octets()
}

/// RFC 4475 §3.1.1.6: no blank between a display name and `<`.
fn lwsdisp(name: &str) -> Vec<u8> {
    let from = "From: quentin<sip:quentin@example.org>;tag=lwsdisp";
    Draft::options(name).set(from).octets()
}

/// RFC 4475 §3.1.1.7: every part far longer than usual, and thirty Vias.
fn longreq(name: &str) -> Vec<u8> {
    let long = "long".repeat(40);
    let mut draft = Draft::invite(name)
        .set(&format!(
            "To: \"{long} {long}\" <sip:desk@example.net;{long}={long};{long}1>"
        ))
        .set(&format!(
            "From: <sip:{long}@example.org>;tag={long};{long}={long};{long}1"
        ))
        .set(&format!("Call-ID: {long}{long}-{name}"))
        .with(&format!("X-{long}: {long}; {long}={long}"));

    for hop in 0..30 {
        draft = draft.with(&format!(
            "Via: SIP/2.0/TCP hop{hop}.example.org;branch=z9hG4bK-{long}-{hop}"
        ));
    }

    draft
        .set(&format!("Contact: <sip:{long}@pbx.example.org>"))
        .octets()
}

/// RFC 4475 §3.1.1.8: a second request in the same datagram, after the first one's Content-Length.
fn dblreq(name: &str) -> Vec<u8> {
    let mut octets = Draft::register(name).octets();
    octets.extend_from_slice(b"\r\n");
    octets.extend(Draft::invite("dblreq-behind").octets());
    octets.extend_from_slice(b"0\r\n\r\n");
    octets
}

/// RFC 4475 §3.1.1.9: semicolons and an escaped `@` in the user part, which look like URI parameters.
fn semiuri(name: &str) -> Vec<u8> {
    Draft::options(name)
        .start("OPTIONS sip:desk;ext=7%40example.org@example.net SIP/2.0")
        .octets()
}

/// RFC 4475 §3.1.1.10: transports in the lower Vias that we don't speak.
fn transports(name: &str) -> Vec<u8> {
    let hops = ["SCTP", "TLS", "X-PIGEON", "TCP"];
    let draft = Draft::options(name);
    let via = |transport: &str| {
        format!("Via: SIP/2.0/{transport} {transport}.example.org;branch=z9hG4bK-{transport}")
    };
    hops.iter()
        .fold(draft, |draft, transport| draft.with(&via(transport)))
        .octets()
}

/// RFC 4475 §3.1.1.11: a MIME body with a part of arbitrary octets: NULs, bare line ends, no UTF-8.
fn mpart01(name: &str) -> Vec<u8> {
    let mut body = b"--edge\r\nContent-Type: text/plain\r\n\r\nHello\r\n--edge\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n".to_vec();
    body.extend(0..=u8::MAX);
    body.extend_from_slice(b"\r\n--edge--\r\n");
    Draft::request(name, "MESSAGE", "sip:desk@example.net")
        .body("multipart/mixed;boundary=edge", body)
        .octets()
}

/// RFC 4475 §3.1.1.12: a reason phrase of UTF-8 and signs. The request that it answers was never sent.
fn unreason(name: &str) -> Vec<u8> {
    Draft::response(
        name,
        "200 = 10 * 20; \u{445}\u{43e}\u{440}\u{43e}\u{448}\u{43e}",
        "INVITE",
    )
    .body("application/sdp", OFFER)
    .octets()
}

/// RFC 4475 §3.1.1.13: an empty reason phrase; the blank in front of it is there.
fn noreason(name: &str) -> Vec<u8> {
    Draft::response(name, "100 ", "INVITE").octets()
}

/// RFC 4475 §3.1.2.1: separators with nothing between them in Via and Contact.
fn badinv01(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .set("Via: SIP/2.0/UDP 192.0.2.7;;,;,,")
        .set("Contact: \"Q\" <sip:quentin@example.org>;;;;")
        .octets()
}

/// RFC 4475 §3.1.2.2: a Content-Length beyond the datagram's end.
fn clerr(name: &str) -> Vec<u8> {
    Draft::invite(name).set("Content-Length: 8888").octets()
}

/// RFC 4475 §3.1.2.3: a negative Content-Length.
fn ncl(name: &str) -> Vec<u8> {
    Draft::invite(name).set("Content-Length: -111").octets()
}

/// RFC 4475 §3.1.2.4: numbers past 64 bits in CSeq and Expires, past 8 bits in Max-Forwards.
fn scalar02(name: &str) -> Vec<u8> {
    Draft::register(name)
        .set("CSeq: 18446744073709551617 REGISTER")
        .set("Max-Forwards: 301")
        .with(&format!("Expires: 1{}", "0".repeat(80)))
        .octets()
}

/// RFC 4475 §3.1.2.5: a CSeq past 64 bits in a response, with a Retry-After and a warning code that are too large.
fn scalarlg(name: &str) -> Vec<u8> {
    Draft::response(name, "503 Service Unavailable", "OPTIONS")
        .set("CSeq: 18446744073709551617 OPTIONS")
        .with("Retry-After: 18446744073709551617")
        .with("Warning: 3999 pbx.example.org \"too many digits\"")
        .octets()
}

/// RFC 4475 §3.1.2.6: a quotation mark that is never closed.
fn quotbal(name: &str) -> Vec<u8> {
    let to = "To: \"The front desk <sip:desk@example.net>";
    Draft::invite(name).set(to).octets()
}

/// RFC 4475 §3.1.2.7: a Request-URI in angle brackets.
fn ltgtruri(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .start("INVITE <sip:desk@example.net> SIP/2.0")
        .octets()
}

/// RFC 4475 §3.1.2.8: a blank inside the Request-URI.
fn lwsruri(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .start("INVITE sip:desk@example.net; lr SIP/2.0")
        .octets()
}

/// RFC 4475 §3.1.2.9: two blanks in the request line where one belongs.
fn lwsstart(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .start("INVITE  sip:desk@example.net  SIP/2.0")
        .octets()
}

/// RFC 4475 §3.1.2.10: blanks at the end of the request line.
fn trws(name: &str) -> Vec<u8> {
    Draft::options(name)
        .start("OPTIONS sip:desk@example.net SIP/2.0  ")
        .octets()
}

/// RFC 4475 §3.1.2.11: a header in the Request-URI, where none is allowed; a parser that used it would insert a Route.
fn escruri(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .start("INVITE sip:desk@example.net?Route=%3Csip:elsewhere.example.org%3E SIP/2.0")
        .octets()
}

/// RFC 4475 §3.1.2.12: a Date in another time zone than GMT.
fn baddate(name: &str) -> Vec<u8> {
    let date = "Date: Mon, 02 Mar 2026 09:00:00 CET";
    Draft::invite(name).with(date).octets()
}

/// RFC 4475 §3.1.2.13: a Contact whose URI has a header and no angle brackets.
fn regbadct(name: &str) -> Vec<u8> {
    let contact = "Contact: sip:quentin@example.org?Route=%3Csip:elsewhere.example.org%3E";
    Draft::register(name).set(contact).octets()
}

/// RFC 4475 §3.1.2.14: blanks inside the angle brackets of To.
fn badaspec(name: &str) -> Vec<u8> {
    let to = "To: \"The front desk\" < sip:desk@example.net >";
    Draft::options(name).set(to).octets()
}

/// RFC 4475 §3.1.2.15: a comma in a display name without quotes.
fn baddn(name: &str) -> Vec<u8> {
    Draft::options(name)
        .set("From: Quentin, Mr <sip:quentin@example.org>;tag=baddn")
        .set("To: Desk, The <sip:desk@example.net>")
        .octets()
}

/// RFC 4475 §3.1.2.16: another version of SIP.
fn badvers(name: &str) -> Vec<u8> {
    Draft::options(name)
        .start("OPTIONS sip:desk@example.net SIP/5.0")
        .set(&format!(
            "Via: SIP/5.0/UDP pbx.example.org;branch=z9hG4bK-{name}"
        ))
        .octets()
}

/// RFC 4475 §3.1.2.17: a CSeq of another method than the request's.
fn mismatch01(name: &str) -> Vec<u8> {
    Draft::options(name).set("CSeq: 7 INVITE").octets()
}

/// RFC 4475 §3.1.2.18: an unknown method, and a CSeq of a known one.
fn mismatch02(name: &str) -> Vec<u8> {
    Draft::request(name, "UNHEARDOF", "sip:desk@example.net")
        .set("CSeq: 7 INVITE")
        .body("application/sdp", OFFER)
        .octets()
}

/// RFC 4475 §3.1.2.19: a status that is 200 in its lowest 32 bits.
fn bigcode(name: &str) -> Vec<u8> {
    Draft::response(name, "4294967496 OK", "INVITE").octets()
}

/// RFC 4475 §3.2.1: a branch of nothing but the cookie, which matches any other such branch.
fn badbranch(name: &str) -> Vec<u8> {
    let via = "Via: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bK";
    Draft::options(name).set(via).octets()
}

/// RFC 4475 §3.3.1: an INVITE without Call-ID, From, To and Max-Forwards.
fn insuf(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .without("Call-ID")
        .without("From")
        .without("To")
        .without("Max-Forwards")
        .octets()
}

/// RFC 4475 §3.3.2: a Request-URI of an unknown scheme.
fn unkscm(name: &str) -> Vec<u8> {
    Draft::options(name)
        .start("OPTIONS unheardof:something-opaque SIP/2.0")
        .octets()
}

/// RFC 4475 §3.3.3: a Request-URI of a known form and a scheme that isn't SIP's.
fn novelsc(name: &str) -> Vec<u8> {
    Draft::options(name)
        .start("OPTIONS x.rpc://192.0.2.9:4002 SIP/2.0")
        .octets()
}

/// RFC 4475 §3.3.4: foreign schemes in To, From and Contact.
fn unksm2(name: &str) -> Vec<u8> {
    Draft::register(name)
        .set("To: urn:isbn:0451450523")
        .set("From: <ftp://ftp.example.org>;tag=unksm2")
        .set("Contact: <nick:quentin>")
        .octets()
}

/// RFC 4475 §3.3.5: required extensions, for us and for proxies, that no implementation supports.
fn bext01(name: &str) -> Vec<u8> {
    Draft::options(name)
        .with("Require: x-unheard-of, x-unheard-of-too")
        .with("Proxy-Require: x-no-proxy-does, x-nor-that")
        .octets()
}

/// RFC 4475 §3.3.6: a body of an unknown type.
fn invut(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .body("application/x-unheard-of", "<talk port=\"30000\"/>\r\n")
        .octets()
}

/// RFC 4475 §3.3.7: credentials of an unknown scheme.
fn regaut01(name: &str) -> Vec<u8> {
    let credentials = "Authorization: UnheardOf something=opaque";
    Draft::register(name).with(credentials).octets()
}

/// RFC 4475 §3.3.8: two of each header that may occur once.
fn multi01(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .with("CSeq: 70 INVITE")
        .with("Call-ID: another@calls.example.org")
        .with("From: <sip:other@example.org>;tag=other")
        .with("To: <sip:other@example.net>")
        .with("Max-Forwards: 7")
        .with("Contact: <sip:other@pbx.example.org>")
        .octets()
}

/// RFC 4475 §3.3.9: two Content-Lengths that differ.
fn mcl01(name: &str) -> Vec<u8> {
    Draft::options(name)
        .body("text/plain", "Which of the two is it?\r\n")
        .with("Content-Length: 9")
        .octets()
}

/// RFC 4475 §3.3.10: a response that would be forwarded to the broadcast address.
fn bcast(name: &str) -> Vec<u8> {
    Draft::response(name, "200 OK", "INVITE")
        .with("Via: SIP/2.0/UDP 255.255.255.255;branch=z9hG4bK-all")
        .body("application/sdp", OFFER)
        .octets()
}

/// RFC 4475 §3.3.11: Max-Forwards is 0. We are the request's destination.
fn zeromf(name: &str) -> Vec<u8> {
    Draft::options(name).set("Max-Forwards: 0").octets()
}

/// RFC 4475 §3.3.12: an unknown parameter behind a Contact without angle brackets: the header's, not the URI's.
fn cparam01(name: &str) -> Vec<u8> {
    Draft::register(name)
        .set("Contact: sip:+442071838750@gw.example.org;x-unheard-of")
        .octets()
}

/// RFC 4475 §3.3.13: an unknown parameter inside a Contact's angle brackets: the URI's, not the header's.
fn cparam02(name: &str) -> Vec<u8> {
    Draft::register(name)
        .set("Contact: <sip:+442071838750@gw.example.org;x-unheard-of>")
        .octets()
}

/// RFC 4475 §3.3.14: a header in a Contact's URI, where it is allowed.
fn regescrt(name: &str) -> Vec<u8> {
    Draft::register(name)
        .set("Contact: <sip:quentin@example.org?Route=%3Csip:proxy.example.org%3E>")
        .octets()
}

/// RFC 4475 §3.3.15: an Accept without SDP in a request with an offer.
fn sdp01(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .with("Accept: text/x-unheard-of")
        .octets()
}

/// RFC 4475 §3.4.1: a request of RFC 2543: no branch, no tag, no Max-Forwards, no Content-Length.
fn inv2543(name: &str) -> Vec<u8> {
    Draft::invite(name)
        .set("Via: SIP/2.0/UDP pbx.example.org")
        .set("From: <sip:quentin@example.org;user=phone>")
        .with("Record-Route: <sip:desk@example.net;maddr=proxy.example.org>")
        .without("Max-Forwards")
        .without("Content-Length")
        .octets()
}
