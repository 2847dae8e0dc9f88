//! The chat widget: `/widget`.

mod authenticate;
mod me;

use axum::routing::{get, post};

use super::openapi::{Book, read_by};
use super::routes::Routes;

pub(super) fn router() -> Routes {
    Routes::new()
        .route("/authenticate-user", post(authenticate::by_addresses))
        .route(
            "/authenticate-user-by-external-id",
            post(authenticate::by_external_id),
        )
        .route("/me", get(me::show))
}

pub(super) fn openapi(book: &mut Book) {
    const TAG: &str = "Widget contacts";
    const SCOPE: &str = "widget:write";
    book.add(
        "post",
        "/widget/authenticate-user",
        "authenticateUser",
        "A token for the visitor of this e-mail address or phone number",
        |op| {
            let body = read_by(authenticate::addressed);
            op.tag(TAG)
                .org(SCOPE)
                .body(body)
                .gives::<authenticate::Identity>(200)
        },
    );
    book.add(
        "post",
        "/widget/authenticate-user-by-external-id",
        "authenticateUserByExternalId",
        "A token for the visitor that the caller knows by this id",
        |op| {
            let body = read_by(authenticate::identified);
            op.tag(TAG)
                .org(SCOPE)
                .body(body)
                .gives::<authenticate::Identity>(200)
        },
    );
    book.add(
        "get",
        "/widget/me",
        "showVisitor",
        "Whose the widget token is",
        |op| op.tag(TAG).visitor().gives::<me::ContactView>(200),
    );
}
