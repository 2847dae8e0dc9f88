//! The keys by which a request finds its server transaction (RFC 3261 §17.2.3) and merged requests meet (RFC 3261 §8.2.2.2). They are
//! keyed hashes, so that a peer can't choose its place in a table.

use crate::slot::Minter;
use crate::wire::message::RequestKeys;
use crate::wire::{Message, Method};

const COOKIE: &[u8] = b"z9hG4bK";

/// Keys of a request: stored in the message when it was received, else computed now.
pub(crate) fn keys(request: &Message<'_>, minter: &Minter) -> RequestKeys {
    let known = request.keys();
    known.unwrap_or_else(|| of_new(request, server_key(request, minter), minter))
}

/// Keys of a request without a known transaction; `transaction` is its transaction key.
pub(crate) fn of_new(request: &Message<'_>, transaction: u128, minter: &Minter) -> RequestKeys {
    let merged = match request.to_tag() {
        Some(_) => 0,
        None => merged_key(request, minter),
    };
    let slot = minter.slot_of_call_id(request.call_id()).index();
    RequestKeys {
        transaction,
        merged,
        slot,
    }
}

/// The key of the server transaction that `request` belongs to. An ACK and a CANCEL have the key of their INVITE.
///
/// Call-ID and CSeq are hashed together with branch and sent-by. That makes no difference to a correct peer, and a peer that
/// reuses a branch is still served.
pub(crate) fn server_key(request: &Message<'_>, minter: &Minter) -> u128 {
    let via = request.top_via();
    // RFC 3261 §9.1, §17.1.1.3: both repeat the INVITE's branch and CSeq number, and only the method differs.
    let joins_invite = matches!(request.method(), Method::Ack | Method::Cancel);
    let method = if joins_invite {
        b"INVITE"
    } else {
        request.method_token()
    };

    let number = request.cseq().number.to_be_bytes();
    match via.branch.filter(|branch| has_cookie(branch)) {
        Some(branch) => {
            let port = via.port.unwrap_or(0).to_be_bytes();
            minter.hash128(&[method, branch, via.host, &port, request.call_id(), &number])
        }
        // A peer of RFC 2543 (RFC 3261 §17.2.3). The To tag is left out: an ACK has that of our answer, its INVITE had
        // none.
        None => minter.hash128(&[
            method,
            request.request_uri(),
            request.from_tag().unwrap_or_default(),
            request.call_id(),
            &number,
            via.head,
            via.params,
        ]),
    }
}

/// A key that is equal for requests that reached us by several paths. Never 0.
fn merged_key(request: &Message<'_>, minter: &Minter) -> u64 {
    let number = request.cseq().number.to_be_bytes();
    let hash = minter.hash128(&[
        request.method_token(),
        request.from_tag().unwrap_or_default(),
        request.call_id(),
        &number,
    ]);
    hash as u64 | 1
}

fn has_cookie(branch: &[u8]) -> bool {
    // Parameter values are case-insensitive unless a header says otherwise (RFC 3261 §7.3.1).
    branch
        .get(..COOKIE.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(COOKIE))
}
