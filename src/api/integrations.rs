//! Accounts with third parties: their names for every credential that sees the org, their credentials only for those
//! with the scope.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{Broke, Error, Integration, Keyring, integrations};
use uuid::Uuid;

use super::{Api, ApiError};

/// Scope that shows the credentials of integrations.
pub(super) const CREDENTIALS: &str = "integrations:read";

/// An account with a third party.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Integration")]
pub(crate) struct IntegrationView {
    id: Uuid,
    /// Name that distinguishes the account from the org's others.
    name: String,
    default_company_shortname: Option<String>,
    /// Only for a key with the scope `integrations:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<CredentialsView>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IntegrationCredentials")]
struct CredentialsView {
    app_key: String,
    user_key: String,
}

impl std::fmt::Debug for CredentialsView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialsView").finish_non_exhaustive()
    }
}

/// The accounts under the key of each platform, as an org is created with them.
pub(super) type IntegrationsView = BTreeMap<String, Vec<IntegrationView>>;

/// Extent to which an account is shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Disclosure {
    /// Its name only.
    Handle,
    /// Its name and credentials.
    Credentials,
}

/// Returns the org's accounts.
pub(super) async fn of_org(
    api: &Api,
    org: Uuid,
    shown: Disclosure,
) -> Result<IntegrationsView, ApiError> {
    /// Platform of accounts stored when a deployment had just one platform.
    const UNNAMED: &str = "booking";
    let bookings = api
        .read_inline(move |tx| integrations::bookings(tx, org))
        .await?;
    if bookings.is_empty() {
        return Ok(IntegrationsView::new());
    }

    let keyring = api.store().keyring();
    let views = bookings
        .into_iter()
        .map(|booking| view(booking, keyring, shown));
    let views = views.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
    let platform = api.config().integrations.booking.as_ref();
    // A deployment that has removed its platform from the configuration still shows the accounts.
    let key = platform.map_or(UNNAMED, |platform| &platform.key);

    Ok(IntegrationsView::from([(key.to_owned(), views)]))
}

fn view(
    booking: Integration,
    keyring: &Keyring,
    shown: Disclosure,
) -> Result<IntegrationView, Broke> {
    let credentials = match shown {
        Disclosure::Handle => None,
        Disclosure::Credentials => {
            let (app_key, user_key) = booking.credentials(keyring)?;
            Some(CredentialsView { app_key, user_key })
        }
    };
    Ok(IntegrationView {
        id: booking.id,
        name: booking.name,
        default_company_shortname: booking.default_company_shortname,
        credentials,
    })
}
