//! The REST API from outside, a file a resource: what it answers when all is well, when it refuses, and to another tenant.
//!
//! Bodies are snapshots; the ids in them are fixed or redacted.

mod agents;
mod api_keys;
mod assignments;
mod audit;
mod auth_failures;
mod call_export;
mod calls;
mod credentials;
mod dashboard;
mod deleted_orgs;
mod destinations;
mod differential;
mod events;
mod ground;
mod handoffs;
mod health;
#[expect(dead_code, reason = "shared with the test of plans")]
mod home;
mod house;
mod idempotency;
mod inbound_trunk;
mod jwks;
mod limits;
mod numbers;
mod openapi;
mod org_limits;
mod outbound_trunks;
mod pages;
mod partner_access;
mod partner_integrations;
mod partner_org_scoped;
mod partner_orgs;
mod races;
mod receiver;
mod requests;
mod retired;
mod route_replay;
mod route_test;
mod sessions;
mod statements;
mod tenancy;
mod usage;
mod voices;
mod webhooks;
mod webhooks_tls;
mod widget;
