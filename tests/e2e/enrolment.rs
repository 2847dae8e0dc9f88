//! An outbound trunk that registers, and two daemons on one PostgreSQL: one of them registers it, and the other takes over when that one dies,
//! drains, ends or is suspended.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::node::{Node, text};
use crate::e2e::nodes::Pair;
use trunkline_testkit::carrier::Carrier;
use trunkline_testkit::{Deadline, tools};

/// Beyond the lease, one check of the leases, and the delay of a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Wait before a check that nothing more has happened.
const STILL: Duration = Duration::from_secs(3);

struct Scene {
    pair: Pair,
    carrier: Carrier,
    trunk: String,
}

impl Scene {
    /// Starts both nodes, which know the trunk; one of them has registered it.
    fn new() -> Option<Self> {
        let pair = Pair::new(&[
            ("TRUNKLINE__SIP__NODE_LEASE_S", "10"),
            ("TRUNKLINE__SIP__REGISTER_RETRY_S", "1"),
            // The caller sends no RTP, and answers no UPDATE.
            ("TRUNKLINE__MEDIA__SILENCE_S", "0"),
        ])?;
        let carrier = Carrier::start("acme", "wonder land");
        let trunk = json!({"name": "Carrier", "host": "127.0.0.1", "port": carrier.address.port(), "username": "acme",
            "password": "wonder land", "caller_number": "+442071838750", "register": true});
        let path = "/phone/sip/outbound-trunks";
        let trunk = pair.first.made("POST", path, &pair.key, &trunk);
        let trunk = format!("{path}/{}", text(&trunk["id"]));
        let scene = Self {
            pair,
            carrier,
            trunk,
        };
        scene.settled();

        Some(scene)
    }

    fn state(&self, node: &Node) -> String {
        let (_, shown) = node.get(&self.trunk, &self.pair.key);
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        let state = shown["registration"]["status"].as_str();
        state.unwrap_or("none").to_owned()
    }

    fn states(&self) -> [String; 2] {
        [&self.pair.first, &self.pair.second].map(|node| self.state(node))
    }

    /// Waits until one node has registered it and the other reports it as remote; returns whether the first one has it.
    fn settled(&self) -> bool {
        let settled = Deadline::after(LIMIT).poll(|| {
            let states = self.states();
            match states.each_ref().map(String::as_str) {
                ["registered", "elsewhere"] => Some(true),
                ["elsewhere", "registered"] => Some(false),
                _ => None,
            }
        });
        settled.unwrap_or_else(|| panic!("not one registers: {:?}", self.states()))
    }

    /// Returns the contacts that are registered with the carrier.
    fn contacts(&self) -> Vec<String> {
        let mut contacts = Vec::new();
        for (asked, register) in &self.carrier.ways().registered {
            let line = register.lines().find(|line| line.starts_with("Contact: "));
            let contact = line.expect("a contact").to_owned();
            contacts.retain(|known| *known != contact);
            if *asked > 0 {
                contacts.push(contact);
            }
        }
        contacts
    }

    fn is_called_at(&self, node: &Node) -> bool {
        let contacts = self.contacts();
        let only = contacts.len() == 1;
        only && contacts[0].contains(&node.setup.sip.to_string())
    }

    /// Returns the node that registers, and the other.
    fn nodes(&mut self, first: bool) -> (&mut Node, &mut Node) {
        let Pair {
            first: a,
            second: b,
            ..
        } = &mut self.pair;
        if first { (a, b) } else { (b, a) }
    }
}

#[test]
fn one_of_two_registers_and_the_other_takes_over_when_it_dies() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let is_first = scene.settled();
    let holder = if is_first {
        &scene.pair.first
    } else {
        &scene.pair.second
    };
    assert!(scene.is_called_at(holder), "{:?}", scene.contacts());

    let asked = scene.carrier.ways().registered.len();
    std::thread::sleep(STILL);
    assert_eq!(
        scene.carrier.ways().registered.len(),
        asked,
        "one registers, once"
    );

    scene.nodes(is_first).0.kill();
    let heir = if is_first {
        &scene.pair.second
    } else {
        &scene.pair.first
    };
    let took = Deadline::after(LIMIT).poll(|| {
        let is_up = scene.state(heir) == "registered";
        let contact = heir.setup.sip.to_string();
        (is_up
            && scene
                .contacts()
                .iter()
                .any(|known| known.contains(&contact)))
        .then_some(())
    });
    assert!(took.is_some(), "nobody takes over: {:?}", scene.contacts());

    // Once restarted, it registers its share, and then the other takes its binding back: the carrier always has one.
    let before = scene.carrier.ways().registered.len();
    scene.nodes(is_first).0.serve_again();
    let back = Deadline::after(LIMIT).poll(|| {
        let holder = if is_first {
            &scene.pair.first
        } else {
            &scene.pair.second
        };
        (scene.settled() == is_first && scene.is_called_at(holder)).then_some(())
    });
    assert!(
        back.is_some(),
        "{:?} {:?}",
        scene.states(),
        scene.contacts()
    );

    let (left, came) = {
        let nodes = &scene.pair;
        let (holder, heir) = if is_first {
            (&nodes.first, &nodes.second)
        } else {
            (&nodes.second, &nodes.first)
        };
        (heir.setup.sip.to_string(), holder.setup.sip.to_string())
    };

    let ways = scene.carrier.ways();
    let since: Vec<&(u32, String)> = ways.registered[before..].iter().collect();
    let contact = |register: &str, of: &str| {
        let mut lines = register
            .lines()
            .filter(|line| line.starts_with("Contact: "));
        lines.any(|line| line.contains(of))
    };

    let taken_back = since
        .iter()
        .position(|(asked, register)| *asked == 0 && contact(register, &left));
    let taken = since
        .iter()
        .position(|(asked, register)| *asked > 0 && contact(register, &came));
    assert!(taken.is_some() && taken < taken_back, "{since:?}");
}

/// A node that ends releases the registration: the other doesn't wait for its lease. It registers before the first withdraws, so that the carrier
/// always has a binding.
#[test]
fn a_node_that_ends_leaves_the_registration_to_the_other() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let is_first = scene.settled();
    let before = scene.carrier.ways().registered.len();
    scene.nodes(is_first).0.end();
    let took = Deadline::after(LIMIT).poll(|| {
        let heir = if is_first {
            &scene.pair.second
        } else {
            &scene.pair.first
        };
        (scene.state(heir) == "registered" && scene.is_called_at(heir)).then_some(())
    });
    assert!(took.is_some(), "nobody takes over: {:?}", scene.contacts());

    let ways = scene.carrier.ways();
    let since: Vec<u32> = (ways.registered[before..].iter())
        .map(|(asked, _)| *asked)
        .collect();
    let place = |is_so: fn(&u32) -> bool| since.iter().position(is_so);
    let (taken, withdrawn) = (place(|asked| *asked > 0), place(|asked| *asked == 0));
    assert!(taken.is_some() && taken < withdrawn, "{since:?}");
}

/// A process that is suspended for longer than its lease looks dead to the other, which takes over its registrations. Its calls go on all the same,
/// and it has to register anew.
#[test]
fn a_node_that_was_held_up_takes_its_own_back() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(scene) = Scene::new() else {
        return;
    };
    let (pair, is_first) = (&scene.pair, scene.settled());
    let (held_up, other) = if is_first {
        (&pair.first, &pair.second)
    } else {
        (&pair.second, &pair.first)
    };
    let mut caller = pair.caller(held_up);
    caller.talks = Duration::from_secs(40);
    let call = caller.play("caller_hangs_up");
    let status = |node: &Node| {
        let (_, calls) = node.get("/phone/calls", &pair.key);
        let calls: Value = serde_json::from_str(&calls).ok()?;
        calls["items"][0]["status"].as_str().map(str::to_owned)
    };
    let is = |node: &Node, wanted: &str| {
        let reached = Deadline::after(LIMIT).poll(|| (status(node)? == wanted).then_some(()));
        assert!(reached.is_some(), "not {wanted}: {:?}", status(node));
    };
    is(other, "in_progress");

    held_up.signal("STOP");
    let took = Deadline::after(LIMIT).poll(|| (scene.state(other) == "registered").then_some(()));
    assert!(took.is_some(), "nobody takes over");

    is(other, "lost");
    let asked = scene.carrier.ways().registered.len();
    held_up.signal("CONT");
    let back = Deadline::after(LIMIT).poll(|| {
        let settled = scene.settled() == is_first && scene.is_called_at(held_up);
        settled.then_some(())
    });
    assert!(
        back.is_some(),
        "{:?} {:?}",
        scene.states(),
        scene.contacts()
    );

    let ways = scene.carrier.ways();
    let anew = ways.registered[asked..].iter().any(|(asked, register)| {
        let contact = register.lines().find(|line| line.starts_with("Contact: "));
        *asked > 0 && contact.is_some_and(|line| line.contains(&held_up.setup.sip.to_string()))
    });
    assert!(anew, "not told anew: {:?}", &ways.registered[asked..]);
    drop(ways);

    is(other, "in_progress");
    let trace = call.finish();
    drop(trace);
    is(other, "completed");
    assert_eq!(pair.ends(), ["completed"], "one end, and the true one");
}
