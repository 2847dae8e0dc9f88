//! One story of the store, run on SQLite and on PostgreSQL.
//!
//! PostgreSQL is a server that `TRUNKLINE_TEST_POSTGRES` names (`postgres://USER@HOST:PORT/postgres`; the user may create databases): each test makes
//! a database there and drops it. Without the variable that half is skipped with a notice on standard error, and fails where `CI` is set. To run one
//! by hand:
//!
//! ```sh
//! initdb -D /tmp/pg -U trunkline -A trust && pg_ctl -D /tmp/pg -o '-p 55432 -k /tmp -c fsync=off' -w start
//! TRUNKLINE_TEST_POSTGRES=postgres://trunkline@127.0.0.1:55432/postgres cargo test --test store
//! ```

mod agents;
mod audit;
mod call_ends;
mod call_figures;
mod call_filters;
mod call_seconds;
mod calls_up;
mod contacts;
mod dedications;
mod deleted_orgs;
mod directory;
mod erased_numbers;
mod erased_transfers;
mod erasures;
mod erasures_at_once;
mod event_schema;
mod events;
mod explained;
mod feed;
mod handoff_contacts;
mod handoffs;
mod idempotency;
mod keys;
mod names;
mod node_commands;
mod number_codes;
mod projection;
mod purged_accounts;
mod registrations;
mod retention;
mod schema;
mod sealed;
mod start;
mod telephony;
mod tenants;
mod test_db;
mod transactions;
mod transfers;
mod usage;
mod ways_out;
mod webhooks;
mod withheld;

/// Runs each story on both databases.
macro_rules! on_both {
    ($($story:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $story() {
                $crate::test_db::on_sqlite(|db| Box::pin(super::$story(db)));
            })*
        }
        mod postgres {
            $(#[test]
            fn $story() {
                $crate::test_db::on_postgres(|db| Box::pin(super::$story(db)));
            })*
        }
    };
}
use on_both;
