//! Calls over real sockets with real peers: the built daemon between sipp or baresip as caller and sipp as runtime.
//!
//! Each test sets up a daemon of its own on loopback through the command line, lets the peers play their scenarios
//! (`fixtures/sipp`), and judges by what the peers saw on the wire and by the record that `GET /phone/calls` gives.

mod addresses;
mod attempts;
mod behind_nat;
mod bots;
mod bots_documented;
mod bots_ends;
mod bots_fallbacks;
mod bots_hostile;
mod bots_load;
mod bots_on_wire;
mod bots_outbound;
mod bots_transfers;
mod bots_wire;
mod bridge;
mod bridged;
mod builtin;
mod challenges;
mod contact_limit;
mod datagrams;
mod deleted;
mod documented;
mod early_dialogs;
mod echo;
mod endings;
mod enrolments;
mod events;
mod explained;
mod failover;
mod fraud;
mod from_page;
mod guessing;
mod health;
mod held;
mod keep_alive;
mod loops;
mod maddr;
mod media;
mod media_families;
mod names;
mod rfc3261;

mod observed;
mod outbound;
mod private;
mod proxied;
mod realms;
mod referrals;
mod refusals;
mod registrations;
mod replaced;
mod runtime_digest;
mod runtimes;
mod secured;
mod sessions;
mod shares;
mod steps;
mod suspended;
mod transfers;
mod transports;
mod unanswered;
mod verified;
mod ways_out;
mod weights;
