//! Service-Route of a carrier (RFC 3608): kept with the registration that its last 200 grants, and with no other.

use super::*;

const ROUTE: &str = "Service-Route: <sip:p1.example;lr>, <sip:orig@p2.example;lr>\r\n";

fn kept(scene: &Scene) -> Option<String> {
    let route = scene.registrations.service_route(TRUNK);
    route.map(|route| route.to_string())
}

/// A scene in which the carrier has granted 100 seconds with these lines.
fn granted_with(lines: &str) -> Scene {
    let (mut scene, register) = Scene::asking();
    scene.answer(&register, 200, &format!("Expires: 100\r\n{lines}"));
    assert_eq!(scene.state(), Some(State::Registered));
    scene
}

#[test]
fn the_last_answer_of_a_carrier_gives_the_route_of_calls() {
    let mut scene = granted_with(&format!("{ROUTE}Service-Route: <sip:p3.example;lr>\r\n"));
    let whole = "<sip:p1.example;lr>, <sip:orig@p2.example;lr>, <sip:p3.example;lr>";
    assert_eq!(kept(&scene).as_deref(), Some(whole));

    for (case, lines, expected) in [
        (
            "another",
            "Service-Route: <sip:p4.example;lr>\r\n",
            Some("<sip:p4.example;lr>"),
        ),
        ("none", "", None),
        (
            "one again",
            "Service-Route: <sip:p5.example;lr>\r\n",
            Some("<sip:p5.example;lr>"),
        ),
        (
            "a strict router",
            "Service-Route: <sip:p6.example>\r\n",
            None,
        ),
        (
            "a transport without a listener",
            "Service-Route: <sip:p7.example;transport=sctp;lr>\r\n",
            None,
        ),
    ] {
        let refresh = scene.next();
        scene.answer(&refresh, 200, &format!("Expires: 100\r\n{lines}"));
        assert_eq!(scene.state(), Some(State::Registered), "{case}");
        assert_eq!(kept(&scene).as_deref(), expected, "{case}");
    }
}

#[test]
fn a_route_ends_with_its_registration() {
    let mut scene = granted_with(ROUTE);
    // The refresh is refused: the registration goes on until it expires, and so does its route.
    let refresh = scene.next();
    scene.answer(&refresh, 403, ROUTE);
    assert!(kept(&scene).is_some());
    scene.after(100_000);
    assert_eq!((scene.state(), kept(&scene)), (Some(State::Failed), None));

    let mut scene = granted_with(ROUTE);
    scene.register_trunks(Vec::new());
    let removal = scene.sent();
    scene.answer(&removal[0], 200, ROUTE);
    assert_eq!(kept(&scene), None, "it was removed");

    let mut scene = granted_with(ROUTE);
    let now = scene.now;
    scene.peers.register_trunks(&mut scene.endpoint, None, now);
    assert_eq!(kept(&scene), None, "it may be another node's");
}
