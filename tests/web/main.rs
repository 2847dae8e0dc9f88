//! The built daemon as a web server: HTTPS, clients that take their time, and the dashboard in a browser.

mod browser;
#[path = "../calls/harness/mod.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the tests of calls, which use all of it"
)]
mod harness;
mod https;
mod patience;
#[path = "../store/postgres.rs"]
mod postgres;
#[path = "../kill/server.rs"]
#[expect(dead_code, reason = "shared with the tests of the whole")]
mod server;
mod webdriver;
