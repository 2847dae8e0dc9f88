//! Forks of one INVITE: the first 2xx is the call, each other one is acknowledged and ended with BYE (RFC 3261 §13.2.2.4). An early dialog that is
//! lost ends nothing but itself (§12.2.1.2).

use std::cell::RefCell;
use std::collections::HashSet;

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::{accepting, runtime};
use crate::torture::one_shard;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::status_of;
use trunkline_testkit::{Daemon, DaemonSetup, Message, Peer};

/// More forks than the daemon keeps while their BYEs are unanswered.
const FORKS: usize = 300;

#[test]
fn each_fork_that_has_lost_is_hung_up_on() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("forked", &daemon.setup.first_number, daemon.sip());
    caller.dial(&dialling);
    let invite = runtime.request("INVITE");

    // No fork answers its BYE.
    let mut heard = Vec::new();
    for number in 0..FORKS {
        let tag = format!("fork-{number}");
        runtime.send(invite.answer("200 OK", &tag, &accepting(&runtime), OFFER));
        if number % 20 == 19 {
            heard.extend(runtime.answers_until_probed());
        }
    }
    heard.extend(runtime.answers_until_probed());

    let byes = heard.iter().filter(|request| request.is_request("BYE"));
    let hung_up: HashSet<String> = byes.map(Message::to_tag).collect();
    assert_eq!(hung_up.len(), FORKS - 1, "{hung_up:?}");
    assert!(!hung_up.contains("fork-0"), "it has won");
    assert_eq!(status_of(&caller.peer.outcome("2 INVITE")), 200);
}

/// A caller with 100rel, whose runtime has forks.
struct Forked {
    caller: Caller,
    dialling: Dialling,
    runtime: Peer,
    invite: Message,
    /// To-tags of the caller's early dialogs.
    tags: RefCell<HashSet<String>>,
}

impl Forked {
    fn new(daemon: &Daemon, runtime: Peer) -> Self {
        Self::with("Supported: 100rel", daemon, runtime)
    }

    fn with(line: &str, daemon: &Daemon, runtime: Peer) -> Self {
        let caller = Caller::new(daemon.sip(), daemon.credentials());
        let number = &daemon.setup.first_number;
        let dialling = Dialling::new("forked", number, daemon.sip()).with(line);
        caller.dial(&dialling);
        let invite = runtime.request("INVITE");
        Self {
            caller,
            dialling,
            runtime,
            invite,
            tags: RefCell::default(),
        }
    }

    /// Has a fork ring reliably; returns the caller's dialog with it, and the RAck of its PRACK.
    fn rings(&self, fork: &str) -> (Dialog, String) {
        let lines = format!("{}Require: 100rel\r\nRSeq: 7\r\n", accepting(&self.runtime));
        let ringing = self.invite.answer("183 Progress", fork, &lines, OFFER);
        self.runtime.send(ringing);
        let is_new = |message: &Message| {
            message.status() == Some(183) && self.tags.borrow_mut().insert(message.to_tag())
        };
        let ringing = self.caller.peer.next("183 of this fork", is_new);
        let rack = format!("RAck: {} 2 INVITE\r\n", ringing.value("RSeq"));
        (self.dialog(&ringing), rack)
    }

    /// Has the caller send PRACK for a fork's ringing, and the fork accept it.
    fn pracks(&self, (dialog, rack): &(Dialog, String), fork: &str, cseq: u32) {
        let caller = &self.caller.peer;
        caller.send(dialog.request(caller, (cseq, "PRACK"), rack, ""));
        let prack = self.runtime.next("PRACK of this fork", |message| {
            message.is_request("PRACK") && message.to_tag() == fork
        });
        self.runtime.answer(&prack, "200 OK", "", "");
        assert_eq!(status_of(&caller.outcome(&format!("{cseq} PRACK"))), 200);
    }

    /// Has a fork answer.
    fn answer(&self, fork: &str) {
        let accepted = accepting(&self.runtime);
        self.runtime
            .send(self.invite.answer("200 OK", fork, &accepted, OFFER));
    }

    /// Has a fork answer; returns the caller's dialog with it.
    fn answers(&self, fork: &str) -> Dialog {
        self.answer(fork);
        self.accepted()
    }

    /// Takes the 200 of the fork that has won; returns the caller's dialog with it.
    fn accepted(&self) -> Dialog {
        let answer = self.caller.peer.outcome("2 INVITE");
        assert_eq!(status_of(&answer), 200, "{answer:?}");
        let dialog = self.dialog(&answer);
        let ack = dialog.ack(&self.caller.peer, 2, &answer);
        self.caller.peer.send(ack);
        dialog
    }

    fn dialog(&self, answer: &Message) -> Dialog {
        let Dialling { id, from, .. } = &self.dialling;
        Dialog {
            uri: answer.uri("Contact"),
            from: format!("{from};tag=f-{id}"),
            to: answer.value("To"),
            id: format!("{id}@pbx.invalid"),
            lines: String::new(),
        }
    }

    /// Checks that the caller's next offer reaches the fork that has won.
    fn goes_on(&self, dialog: &Dialog, cseq: u32) {
        let offer = dialog.request(&self.caller.peer, (cseq, "INVITE"), "", OFFER);
        self.caller.peer.send(offer);
        let is_next = |message: &Message| {
            let is_again = message.value("CSeq") == self.invite.value("CSeq");
            message.is_request("BYE") || message.is_request("INVITE") && !is_again
        };
        let next = self.runtime.next("offer", is_next);
        assert!(next.is_request("INVITE"), "{next:?}");
    }
}

#[test]
fn what_a_lost_fork_leaves_unanswered_is_refused_and_ends_no_call() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let call = Forked::new(&daemon, runtime);
    let caller = &call.caller.peer;

    let first = call.rings("fa");
    call.pracks(&first, "fa", 3);
    caller.send(first.0.request(caller, (4, "UPDATE"), "", OFFER));
    let update = call.runtime.request("UPDATE");
    call.pracks(&call.rings("fb"), "fb", 5);

    // The dialogs of the losers end before the 200 leaves.
    call.answer("fb");
    assert_eq!(status_of(&caller.outcome("4 UPDATE")), 481);
    let won = call.accepted();
    call.runtime.answer(&update, "481 Gone", "", "");
    call.goes_on(&won, 6);
}

#[test]
fn a_request_of_a_lost_fork_that_the_caller_refuses_ends_no_call() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let call = Forked::new(&daemon, runtime);
    let caller = &call.caller.peer;

    call.pracks(&call.rings("fa"), "fa", 3);
    let lost = Dialog::called(&call.invite, "fa");
    let lines = "Content-Type: text/plain\r\n";
    let asked = lost.request(&call.runtime, (101, "INFO"), lines, "x");
    call.runtime.send(asked);
    let info = caller.request("INFO");

    let won = call.answers("fb");
    assert_eq!(status_of(&call.runtime.outcome("101 INFO")), 481);
    caller.answer(&info, "481 Gone", "", "");
    call.goes_on(&won, 4);
}

#[test]
fn a_prack_that_a_dead_runtime_leaves_unanswered_is_accepted() {
    let setup = one_shard(DaemonSetup::new());
    let [first, fallback] = [(); 2].map(|()| Peer::new(setup.sip).tagged("runtime"));
    let [at, then] = [&first, &fallback].map(|peer| peer.uri("agent"));
    setup.runtime_with_fallback(&setup.first_agent, &at, &then);
    let daemon = setup.serve();
    let call = Forked::new(&daemon, first);
    let caller = &call.caller.peer;

    let (early, rack) = call.rings("fa");
    caller.send(early.request(caller, (3, "PRACK"), &rack, ""));
    call.runtime.request("PRACK");
    let refusal = call.invite.answer("503 Gone", "fa", "", "");
    call.runtime.send(refusal);
    assert_eq!(status_of(&caller.outcome("3 PRACK")), 200);
    fallback.request("INVITE");
}

/// The caller wants each response reliable, and the runtime sends none so.
#[test]
fn an_offer_in_a_prack_that_cannot_cross_is_refused() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let call = Forked::with("Require: 100rel", &daemon, runtime);
    let caller = &call.caller.peer;

    let lines = accepting(&call.runtime);
    let ringing = call.invite.answer("183 Progress", "fa", &lines, OFFER);
    call.runtime.send(ringing);
    let ringing = caller.response(183);
    let rack = format!("RAck: {} 2 INVITE\r\n", ringing.value("RSeq"));
    let early = call.dialog(&ringing);
    caller.send(early.request(caller, (3, "PRACK"), &rack, OFFER));
    assert_eq!(status_of(&caller.outcome("3 PRACK")), 488);

    let won = call.answers("fa");
    call.goes_on(&won, 4);
}

#[test]
fn a_fork_that_answers_a_cancelled_invite_gets_the_reason_of_the_cancel() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let call = Forked::new(&daemon, runtime);
    let caller = &call.caller.peer;

    let ringing = call.invite.answer("180 Ringing", "fa", "", "");
    call.runtime.send(ringing);
    caller.response(180);
    let reason = "SIP;cause=200;text=\"Call completed elsewhere\"";
    let cancel = call.dialling.request("CANCEL", 2, "", caller.own);
    let cancel = String::from_utf8(cancel).expect("text");
    let cancel = cancel.replace("Contact:", &format!("Reason: {reason}\r\nContact:"));
    caller.send(cancel);
    call.runtime.request("CANCEL");

    let accepted = accepting(&call.runtime);
    let answer = call.invite.answer("200 OK", "fa", &accepted, OFFER);
    call.runtime.send(answer);
    let bye = call.runtime.request("BYE");
    assert_eq!(bye.header("Reason"), Some(reason), "{bye:?}");
}
