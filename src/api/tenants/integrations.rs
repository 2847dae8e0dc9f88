//! Integrations of an org: read from the body, and checked with the third party before anything is stored.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use trunkline_store::NewBooking;

use crate::api::body::Fields;
use crate::api::field_type::{FieldType, ListOf, Text, shown};
use crate::api::object::{Object, object};
use crate::api::{Api, ApiError};
use crate::integrations::{BookingFault, BookingPlatform, Keys};

/// Maximum number of connections of an org with one platform.
const MAX_CONNECTIONS: usize = 10;

/// Field `integrations`: an object with one connection, or a list of them, under the platform's key.
pub(super) struct BookingsField<'k> {
    /// Key of the platform, if this deployment has one.
    pub(super) key: Option<&'k str>,
}

impl BookingsField<'_> {
    fn read_fields(&self, fields: &mut Fields) -> Option<Vec<NewBooking>> {
        let key = self.key;
        let bookings = key.and_then(|key| fields.optional(key, Connections));
        // Own words instead of "no field of this request": the key may be right in another deployment.
        fields.refuse_rest("is not an integration of this deployment");
        Some(bookings.unwrap_or_default())
    }
}

impl FieldType for BookingsField<'_> {
    type Read = Vec<NewBooking>;

    fn schema(&self) -> Value {
        Fields::schema_read_by(|mut fields| drop(self.read_fields(&mut fields)))
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<Self::Read> {
        object(value, path, faults, |fields| self.read_fields(fields))
    }
}

/// One connection, or a list of connections with different names.
struct Connections;

impl FieldType for Connections {
    type Read = Vec<NewBooking>;

    fn schema(&self) -> Value {
        let one = Object(connection);
        json!({"oneOf": [one.schema(), ListOf::new(one, 0..=MAX_CONNECTIONS).schema()]})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<Self::Read> {
        let connection = Object(connection);
        if !value.is_array() {
            return Some(vec![connection.read(value, path, faults)?]);
        }

        let connections = ListOf::new(connection, 0..=MAX_CONNECTIONS).read(value, path, faults)?;
        let mut names = HashSet::new();
        for (at, connection) in connections.iter().enumerate() {
            if !names.insert(&*connection.name) {
                let name = shown(&connection.name);
                faults.push(format!(
                    "{path}[{at}].name: {name} names another connection"
                ));
            }
        }

        Some(connections)
    }
}

fn connection(fields: &mut Fields) -> Option<NewBooking> {
    let app_key = fields.required("app_key", Text::line(1..=512));
    let user_key = fields.required("user_key", Text::line(1..=512));

    // The keys travel as values of header fields (see `Keys`).
    for (name, key) in [("app_key", &app_key), ("user_key", &user_key)] {
        if key.as_deref().is_some_and(|key| !key.is_ascii()) {
            fields.refuse(name, "must be ASCII");
        }
    }

    let name = fields.optional("name", Text::line(1..=100));
    let company = fields.optional("default_company_shortname", Text::line(1..=255));

    Some(NewBooking {
        name: name.unwrap_or_else(|| "Default".to_owned()),
        app_key: app_key?,
        user_key: user_key?,
        default_company_shortname: company,
    })
}

/// Checks all connections at the same time, each within the platform's time limit. `outcome` completes the message if one can't be checked.
///
/// # Errors
/// 400 naming each connection that the platform refuses; else 502 if one could not be checked.
pub(super) async fn check(
    api: &Api,
    bookings: &[NewBooking],
    outcome: &str,
) -> Result<(), ApiError> {
    let Some(platform) = api.booking().filter(|_| !bookings.is_empty()) else {
        return Ok(());
    };

    let tried = bookings.iter().map(|booking| tried(platform, booking));
    let (mut refused, mut unanswered) = (Vec::new(), None);
    for (booking, answer) in bookings.iter().zip(join_all(tried).await) {
        let name = shown(&booking.name);
        match answer {
            Ok(()) => {}
            Err(fault @ (BookingFault::Rejected | BookingFault::UnknownCompany(_))) => {
                refused.push(format!("integrations: the connection {name}: {fault}"));
            }
            Err(BookingFault::Unanswered(cause)) => unanswered = Some((name, cause)),
        }
    }

    match (refused.is_empty(), unanswered) {
        // What the client can correct comes before what it can only try again.
        (false, _) => Err(ApiError::BadRequest(refused)),
        (true, Some((name, cause))) => Err(ApiError::BadGateway(format!(
            "The booking platform could not be asked about the connection {name}: {cause}. {outcome}; try again later"
        ))),
        (true, None) => Ok(()),
    }
}

async fn tried(platform: &BookingPlatform, booking: &NewBooking) -> Result<(), BookingFault> {
    // The platform gives out no keys that don't fit into a header.
    let keys = Keys::new(&booking.app_key, &booking.user_key).ok_or(BookingFault::Rejected)?;
    let company = booking.default_company_shortname.as_deref();
    platform.check(keys, company).await
}
