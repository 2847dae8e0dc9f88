//! Orgs as those see them who manage them: a partner its own, below `/partner/v1`, and the operator all, below `/operator`. The same handlers serve
//! both ([`Provisioner`](super::caller::Provisioner)); a declaration that only one of them has says so.

mod api_keys;
mod audit;
mod deleted;
mod integrations;
mod limits;
mod login_links;
mod numbers;
mod org;
mod orgs;
mod roles;
mod sessions;
mod usage;

use super::operations::{Audience, Operations};

pub(crate) use deleted::{DeletedOrgView, DeletedOrgsView};
pub(crate) use limits::{OrgLimitsView, read as read_limits};
pub(crate) use login_links::{
    LinkView, issue as issue_login_link, must_be_a_persons, operators_login_link,
};
pub(crate) use org::{RetentionView, WholeOrgView};
pub(crate) use orgs::{NewOrgView, OperatorsOrgView};

/// Declares the operations of one kind of manager: [`Audience::Partner`] or [`Audience::Operator`].
pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    api_keys::operations(api, by);
    audit::operations(api, by);
    deleted::operations(api, by);
    limits::operations(api, by);
    login_links::operations(api, by);
    numbers::operations(api, by);
    org::operations(api, by);
    orgs::operations(api, by);
    roles::operations(api, by);
    sessions::operations(api, by);
    if by == Audience::Partner {
        usage::operations(api);
    }
}
