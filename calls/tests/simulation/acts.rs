//! Actions of a peer inside a call: its plan, and the refreshes that it has promised.

use std::time::Duration;

use trunkline_sip::wire::Method;

use crate::hands::{Hands, Step};
use crate::party::{Party, SDP};
use crate::plan::Act;
use crate::wire::Purpose;

impl Party {
    /// A step of the plan.
    pub(crate) fn on_step(&mut self, hands: &mut Hands<'_>, step: &Step) {
        match *step {
            Step::Act(at) => self.act(hands, at),
            Step::Answer(at, status) => self.answer_later(hands, at, status),
            Step::CancelReinvite(at) => self.wire.cancel(hands, at),
            Step::Refresh(of) => self.refresh(hands, of),
            Step::Expire(of) => self.expire(hands, of),
            Step::TooLong => {
                if self.sessions[self.main].is_up() {
                    self.seen.push("outlived");
                    self.hang_up(hands, self.main);
                }
            }
            Step::Referred(session, at, status) => self.answer_refer(hands, session, at, status),
            Step::News(session, at, cseq) => self.notify(hands, session, at, cseq),
            Step::Leave(session) => self.leave(hands, session),
            Step::Vanish => {
                self.seen.push("vanished");
                self.gone = true;
            }
            Step::Dial
            | Step::ByeEarly
            | Step::UpdateEarly
            | Step::LogIn
            | Step::Cancel
            | Step::Ring(_)
            | Step::Finish
            | Step::FinishFork(_) => {}
        }
    }

    fn act(&mut self, hands: &mut Hands<'_>, at: usize) {
        let main = self.main;
        if !self.sessions[main].is_up() {
            return;
        }

        let busy = !self.sessions[main].is_quiet();
        let act = self.talk.acts[at].1;
        match act {
            Act::HangUp if self.sessions[main].unacknowledged => {
                return hands.step(Duration::from_millis(500), Step::Act(at));
            }
            Act::HangUp => return self.hang_up(hands, main),
            Act::Vanish => return self.on_step(hands, &Step::Vanish),
            Act::Hold | Act::OfferLate | Act::HoldAndCancel | Act::UpdateOffer if busy => return,
            Act::OldCSeq if !self.sessions[main].sequenced => return,
            Act::Hold
            | Act::OfferLate
            | Act::HoldAndCancel
            | Act::UpdateOffer
            | Act::UpdateBare
            | Act::Info
            | Act::Options
            | Act::OldCSeq
            | Act::ForeignTag
            | Act::Extension
            | Act::Refer(_) => {}
        }

        self.ask(hands, main, act);
    }

    fn ask(&mut self, hands: &mut Hands<'_>, main: usize, act: Act) {
        match act {
            Act::Hold => {
                let body = self.offer(main, "sendonly");
                self.reinvite(hands, main, &body);
            }
            Act::OfferLate => {
                self.reinvite(hands, main, b"");
            }
            Act::HoldAndCancel => {
                let body = self.offer(main, "sendonly");
                let client = self.reinvite(hands, main, &body);
                let after = self.dice.millis(0, 600);
                hands.step(after, Step::CancelReinvite(client));
            }

            Act::UpdateOffer => self.offer_by_update(hands, main),
            Act::UpdateBare => self.update(hands, main, b""),

            Act::Info => {
                let body = format!("Signal=5\r\nFrom={}\r\n", self.label());
                let lines = "Content-Type: application/dtmf-relay\r\n";
                let method = (Method::Info, Purpose::Other);
                self.request(hands, main, method, lines, body.as_bytes());
            }
            Act::Options => {
                self.request(hands, main, (Method::Options, Purpose::Probe(200)), "", b"");
            }

            Act::Extension => {
                let lines = "Require: x-unheard-of\r\n";
                self.request(hands, main, (Method::Info, Purpose::Probe(420)), lines, b"");
            }

            Act::OldCSeq => {
                let now = std::mem::take(&mut self.sessions[main].local_seq);
                self.request(hands, main, (Method::Info, Purpose::Probe(500)), "", b"");
                self.sessions[main].local_seq = now;
            }

            Act::ForeignTag => {
                let remote = self.sessions[main].remote.clone();
                self.sessions[main].remote = format!("{remote}0");
                self.request(hands, main, (Method::Bye, Purpose::Probe(481)), "", b"");
                self.sessions[main].remote = remote;
            }
            Act::Refer(destination) => self.refer(hands, main, destination),
            Act::HangUp | Act::Vanish => {}
        }
    }

    fn reinvite(&mut self, hands: &mut Hands<'_>, main: usize, body: &[u8]) -> usize {
        let lines = self.change_lines(main, body);
        let method = (Method::Invite, Purpose::Change);
        let client = self.request(hands, main, method, &lines, body);
        self.sessions[main].asking = Some(client);
        client
    }

    pub(crate) fn offer_by_update(&mut self, hands: &mut Hands<'_>, session: usize) {
        let body = self.offer(session, "sendrecv");
        self.update(hands, session, &body);
    }

    fn update(&mut self, hands: &mut Hands<'_>, main: usize, body: &[u8]) {
        let lines = self.change_lines(main, body);
        self.request(hands, main, (Method::Update, Purpose::Change), &lines, body);
    }

    fn change_lines(&self, main: usize, body: &[u8]) -> String {
        let mut lines = self.own_lines();
        if let Some(interval) = self.sessions[main].interval {
            let who = if interval.we_refresh { "uac" } else { "uas" };
            lines.push_str(&format!(
                "Session-Expires: {};refresher={who}\r\n",
                interval.seconds
            ));
        }
        if !body.is_empty() {
            lines.push_str(SDP);
        }
        lines
    }

    fn refresh(&mut self, hands: &mut Hands<'_>, of: u32) {
        let main = self.main;
        let session = &self.sessions[main];
        if session.refreshed != of || !session.is_up() || !self.talk.keeps_promises {
            return;
        }
        if !session.is_quiet() {
            return hands.step(Duration::from_secs(1), Step::Refresh(of));
        }
        self.seen.push("refreshes");
        if self.talk.updates {
            self.update(hands, main, b"");
        } else {
            let body = self.offer(main, "sendrecv");
            self.reinvite(hands, main, &body);
        }
    }

    fn expire(&mut self, hands: &mut Hands<'_>, of: u32) {
        let session = &self.sessions[self.main];
        if session.refreshed == of && session.is_up() {
            self.seen.push("expired");
            self.hang_up(hands, self.main);
        }
    }
}
