//! Authenticates a request. [`Caller`] works in one org: an API key of the org, a session of its dashboard (see `dashboard_session`), and by the header
//! `Trunkline-Org` the partner whose org it is, or the operator. [`Provisioner`] manages orgs: a partner or the operator.

mod credential;
mod operator;
mod org;
mod partner;
mod provisioner;
mod stream;

pub(crate) use credential::PARTNER_KEY;
pub(super) use credential::{Credential, credential};
pub(crate) use operator::{ORG, Operator};
pub(super) use operator::{STREAMS, org_in};
pub(super) use org::{Caller, RequiredScopes};
pub(super) use partner::PartnerCaller;
pub(super) use provisioner::Provisioner;
pub(super) use stream::StreamCaller;
