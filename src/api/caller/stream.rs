//! Caller of an operation whose answer is a stream.

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::credential::{Credential as _, PARTNER_KEY, credential};
use super::operator::Operator;
use super::org::{Caller, Party, REQUIRED, REVOKED, RequiredScopes, known, must_be_named};
use super::partner;
use crate::api::connection_limiter::Proof;
use crate::api::quota::Policy;
use crate::api::streams::Seat;
use crate::api::{Api, ApiError, client};

/// Like [`Caller`], for a request that is answered by a stream. It counts against a limit of its own, and is authorized
/// again while the stream lasts.
#[derive(Clone, Debug)]
pub(crate) struct StreamCaller {
    pub(crate) caller: Caller,
    opened_by: OpenedBy,
}

/// Credential that opened a stream.
#[derive(Clone, Debug)]
enum OpenedBy {
    Key {
        token: String,
    },
    Partner {
        key: String,
        /// Address that it came from, if it is known.
        address: Option<IpAddr>,
    },
    Operator,
}

impl StreamCaller {
    /// Returns the places that the stream takes.
    pub(crate) fn seat(&self) -> Seat {
        match self.caller.party {
            Party::Operator => Seat::Operator,
            Party::Org => Seat::Key(self.caller.key_id()),
            Party::Partner(partner) => Seat::Partner(partner),
        }
    }

    /// Returns true if the key is still valid and its org isn't suspended. While the database is away, it counts as
    /// valid.
    pub(crate) async fn is_good(&self, api: &Api) -> bool {
        let is_good = match &self.opened_by {
            OpenedBy::Operator => return true,
            OpenedBy::Partner { key, address } => {
                partner::is_still_in(api, key, *address, self.caller.org).await
            }
            OpenedBy::Key { token } => match known(api, token).await {
                Ok(known) => Ok(known.is_some_and(|known| !known.suspended)),
                Err(error) => Err(error),
            },
        };
        match is_good {
            Ok(is_good) => is_good,
            Err(ApiError::Unauthorized(_)) => false,
            Err(_) => true,
        }
    }
}

impl FromRequestParts<Api> for StreamCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        if Operator::of(parts).is_some() {
            let caller = Caller::from_request_parts(parts, api).await?;
            return Ok(Self {
                caller,
                opened_by: OpenedBy::Operator,
            });
        }

        // Only a header opens an event stream: the cookie of a session doesn't, since the console has streams of its
        // own.
        let token = credential(parts, REQUIRED)?.to_owned();
        if token.starts_with(PARTNER_KEY) {
            let caller = Caller::from_request_parts(parts, api).await?;
            return Ok(Self {
                caller,
                opened_by: OpenedBy::Partner {
                    key: token,
                    address: client::address(parts, &api.config().http.trusted_proxies),
                },
            });
        }

        let known = known(api, &token).await?.ok_or(REVOKED)?;
        Proof::note(parts);

        let org = known.key.org_id;
        must_be_named(parts, org)?;
        let (limit, now) = (known.streams_per_minute, api.now());
        known.count(api, parts, Policy::OrgStreams, limit)?;
        api.credentials().uses.note_org_key(known.key.id, now);

        let caller = Caller {
            org,
            known,
            party: Party::Org,
        };
        RequiredScopes::check(parts, &caller)?;
        Ok(Self {
            caller,
            opened_by: OpenedBy::Key { token },
        })
    }
}
