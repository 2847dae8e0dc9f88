//! Partner API `/partner/v1`, with which resellers manage the orgs of their customers.

mod api_keys;
mod audit;
mod caller;
mod integrations;
mod limits;
mod login_links;
mod numbers;
mod org;
mod orgs;
mod roles;
mod sessions;
mod usage;

use super::operations::Operations;
use caller::{TAG, once};

pub(super) use limits::{changed as changed_limits, read as read_limits};
pub(super) use login_links::{
    LinkView, described as described_login, issue as issue_login_link, must_be_a_persons,
    store_link,
};
pub(super) use numbers::page_of as page_of_numbers;
pub(super) use org::{at_once, retention};

pub(super) fn operations(api: &mut Operations<'_>) {
    api_keys::operations(api);
    audit::operations(api);
    limits::operations(api);
    login_links::operations(api);
    numbers::operations(api);
    org::operations(api);
    orgs::operations(api);
    roles::operations(api);
    sessions::operations(api);
    usage::operations(api);
}
