//! The built-in echo agent, heard by a real phone.

use crate::harness::{Baresip, House, tools};

#[test]
fn a_phone_hears_itself() {
    if !tools(&["baresip"]) {
        return;
    }
    let daemon = House::new().serve();
    let phone = Baresip::call(
        daemon.sip(),
        &daemon.credentials(),
        &daemon.house.first_number,
        440.0,
    );
    assert!(
        phone.heard.len() > 2 * 8000,
        "{} samples came back:\n{}",
        phone.heard.len(),
        phone.output
    );
    let share = phone.share_of(440.0);
    assert!(
        share > 0.9,
        "the tone is {share} of what came back:\n{}",
        phone.output
    );
    let call = daemon.record();
    assert_eq!(call["status"], "completed", "{call}");
    assert_eq!(call["agent_id"], daemon.house.first_agent, "{call}");
}
