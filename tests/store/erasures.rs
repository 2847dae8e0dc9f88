//! A contact is erased: no row and no octet of the database names it afterwards, and other contacts' rows stay.

use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use trunkline_model::handoff::Report;
use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{State as TransferState, Transfer, TransferMethod};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{
    Conflict, ContactDetails, Erasure, Error, Kind, NewHandoff, OpenErasure, RowsErased, Store, Tx,
    Wrong, calls, erasing, erasures, events, handoffs, nodes, numbers,
};
use uuid::Uuid;

use crate::test_db::{self, NOW, TestDb, done, found, later, number, open_erasures, org, started};

crate::on_both!(
    nothing_names_an_erased_contact,
    an_erasure_is_repeated_and_cut_off_without_harm,
    a_contact_in_a_call_is_not_erased,
    an_erasure_waits_for_every_node_that_lives,
    numbers_of_the_org_are_not_searched_for,
    orgs_take_turns_with_their_erasures,
);

pub(crate) const NUMBER: &str = "+442071838750";
const EMAIL: &str = "ann@example.com";
pub(crate) const RUN: Origin = Origin { node: 3, boot: 7 };
const MINUTE: Duration = Duration::from_secs(60);
/// Time after everything that a test records.
pub(crate) const AFTER: Moment = Moment::from_secs(NOW.as_secs() + 100_000);

/// Spellings of the contact's data. Nothing may contain one after the erasure.
const SPELLINGS: [&str; 7] = [
    "442071838750",
    "02071838750",
    "020 7183 8750",
    "020-7183-8750",
    "%2B44%2020%207183%208750",
    "ann@example.com",
    "Ann Onymous",
];

fn details() -> ContactDetails {
    ContactDetails {
        email: Some(Some(EMAIL.to_owned())),
        phone: Some(Some("020 7183 8750".to_owned())),
        name: Some(Some("Ann Onymous".to_owned())),
        ..ContactDetails::default()
    }
}

/// Makes a contact with its number as E.164.
pub(crate) async fn contact(store: &Store, org: Uuid) -> Uuid {
    let details = ContactDetails {
        phone: Some(Some("+44 20 7183-8750".to_owned())),
        ..details()
    };
    let made = store
        .contacts()
        .identify_by_external_id(org, "crm/7", &details, NOW)
        .await;
    made.expect("a contact").id
}

fn ended(org: Uuid, call: Uuid, at: Moment) -> Fact {
    let ended = Ended {
        call,
        org,
        at: at + MINUTE,
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    Fact::Ended(ended.into())
}

/// Makes calls of the contact and calls that only mention it, with every kind of fact.
pub(crate) async fn calls(store: &Store, org: Uuid, contact: Uuid) -> [Uuid; 3] {
    let [by_number, by_contact, in_words] =
        [0x11, 0x12, 0x13].map(|id| Uuid::from_u128(org.as_u128() ^ id));
    let begin = |call: Uuid, change: &dyn Fn(&mut Started)| {
        let mut begun = started(call, org, later(10));
        change(&mut begun);
        Fact::Started(begun.into())
    };

    let transfer = Transfer {
        id: Uuid::from_u128(org.as_u128() ^ 0x21),
        call: by_number,
        org,
        session: started(by_number, org, NOW).session,
        destination: None,
        name: "human".into(),
        target: TransferTarget::Phone(number("+441632960009")),
        way: TransferMethod::Refer,
        state: TransferState::Completed,
        sip_code: None,
        answer_confirmed: Some(true),
        caller_may_be_gone: false,
        report: Report {
            summary: "Ann Onymous wants a refund to 020 7183 8750".into(),
            explanation: Some("asked for it".into()),
            ..Report::default()
        },
        requested_at: later(20),
        accepted_at: None,
        ringing_at: None,
        ended_at: Some(later(30)),
        handed_over: true,
        counted_at: None,
        kept_by: None,
        step: 1,
    };

    let facts = [
        begin(by_number, &|call| {
            call.from = "020 7183 8750".into();
            call.from_e164 = Some(number(NUMBER));
            call.caller_call_id = "sip:+442071838750@pbx".into();
            call.headers = vec![("X-Name".into(), "Ann Onymous".into())];
        }),
        begin(by_contact, &|call| {
            call.from = "anonymous".into();
            call.metadata = Some(json!({"who": "Ann Onymous"}).to_string().into());
        }),
        Fact::Contact {
            call: by_contact,
            org,
            contact,
        },
        begin(in_words, &|call| {
            call.from = "+441632960007".into();
            call.from_e164 = Some(number("+441632960007"));
            call.headers = vec![("X-Back".into(), "%2B44%2020%207183%208750".into())];
        }),
        Fact::Transfer(transfer.into()),
        ended(org, by_number, later(10)),
        ended(org, by_contact, later(10)),
        ended(org, in_words, later(10)),
    ];

    project(store, &facts).await;
    [by_number, by_contact, in_words]
}

async fn project(store: &Store, facts: &[Fact]) {
    let projected = test_db::project(store, RUN, facts).await;
    projected.expect("projected");
}

/// Does a node's part of an erasure.
pub(crate) async fn erase(store: &Store, erasure: &OpenErasure, node: u8) {
    let rows = erasing::erase_rows(store, erasure, AFTER).await;
    assert_eq!(rows.expect("rows are erased"), RowsErased::All);
    let id = erasure.id;
    done(store, move |tx| erasures::done(tx, id, node, AFTER)).await;
    assert!(store.truncate_log().await.expect("truncated"));
}

pub(crate) async fn request(store: &Store, org: Uuid, contact: Uuid) -> Erasure {
    done(store, move |tx| erasures::request(tx, org, contact, AFTER)).await
}

/// Returns every value of every table as text, each with its table.
pub(crate) async fn dump(db: &TestDb) -> Vec<(String, String)> {
    match &db.options.url {
        Some(url) => dump_postgres(url).await.expect("values"),
        None => dump_sqlite(&db.sqlite()).expect("values"),
    }
}

async fn dump_postgres(url: &str) -> sqlx::Result<Vec<(String, String)>> {
    let mut connection = PgConnection::connect(url).await?;
    let tables = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'public'";
    let tables: Vec<(String, String)> = sqlx::query_as(tables).fetch_all(&mut connection).await?;

    let mut values = Vec::new();
    for (table, column) in tables {
        let sql = format!("SELECT \"{column}\"::text FROM {table} WHERE \"{column}\" IS NOT NULL");
        let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await?;
        values.extend(
            rows.into_iter()
                .map(|value| (format!("{table}.{column}"), value)),
        );
    }
    connection.close().await?;
    Ok(values)
}

fn dump_sqlite(connection: &rusqlite::Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut tables = connection.prepare(
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
         WHERE tables.type = 'table'",
    )?;
    let tables = tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let tables: Vec<(String, String)> = tables.collect::<Result<_, _>>()?;

    let mut values = Vec::new();
    for (table, column) in tables {
        let mut read = connection.prepare(&format!(
            "SELECT CAST(\"{column}\" AS TEXT) FROM {table} WHERE typeof(\"{column}\") NOT IN ('blob', 'null')"
        ))?;
        for value in read.query_map([], |row| row.get(0))? {
            values.push((format!("{table}.{column}"), value?));
        }
    }
    Ok(values)
}

/// Returns the places that still name the contact: values, or octets of SQLite's files.
async fn mentions(db: &TestDb) -> Vec<String> {
    let mut places: Vec<String> = dump(db)
        .await
        .into_iter()
        .filter(|(_, value)| SPELLINGS.iter().any(|spelling| value.contains(spelling)))
        .map(|(place, value)| format!("{place}: {value}"))
        .collect();

    for entry in std::fs::read_dir(&db.options.data_dir)
        .into_iter()
        .flatten()
    {
        let path = entry.expect("an entry").path();
        let octets = std::fs::read(&path).unwrap_or_default();
        for spelling in SPELLINGS {
            let holds = octets
                .windows(spelling.len())
                .any(|some| some == spelling.as_bytes());
            if holds {
                places.push(format!("{}: {spelling}", path.display()));
            }
        }
    }

    places
}

async fn nothing_names_an_erased_contact(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;

    // A second contact of the same person that has nothing but the e-mail address and number, and another person who shares the number.
    let contacts = store.contacts();
    let twin = contacts.identify_by_addresses(ours, &details(), NOW).await;
    let twin = twin.expect("a contact").id;
    let shares = ContactDetails {
        phone: Some(Some(NUMBER.to_owned())),
        name: Some(Some("Bob".to_owned())),
        ..ContactDetails::default()
    };
    let other = contacts.identify_by_external_id(ours, "crm/8", &shares, NOW);
    let other = other.await.expect("a contact").id;

    let [by_number, by_contact, in_words] = calls(&store, ours, id).await;

    let reported = NewHandoff {
        session_id: started(by_contact, ours, NOW).session.to_string(),
        contact_id: None,
        summary: "Ann Onymous called".to_owned(),
        explanation: None,
        reasons: Vec::new(),
        sentiment: None,
    };
    done(&store, move |tx| {
        handoffs::record(tx, ours, reported, later(40))
    })
    .await;

    assert!(
        !mentions(db).await.is_empty(),
        "the test finds what is to be erased"
    );

    let asked = request(&store, ours, id).await;
    assert_eq!(asked.completed_at, None);
    assert!(matches!(
        contacts.by_id(ours, id).await,
        Err(Error::Wrong(Wrong::Absent(Kind::Contact)))
    ));

    let [erasure] = &open_erasures(&store, 3).await[..] else {
        panic!("one erasure")
    };
    erase(&store, erasure, 3).await;
    store.close().await;

    assert_eq!(mentions(db).await, Vec::<String>::new());

    let store = db.open().await;
    let receipt = found(&store, move |tx| erasures::by_id(tx, ours, asked.id)).await;
    assert!(receipt.completed_at.is_some());
    let erased = receipt.erased;
    assert_eq!((erased.contacts, erased.other_contacts), (2, 1));
    assert_eq!((erased.calls, erased.transfers), (3, 1));
    assert_eq!(erased.handoffs, 2, "reported, and made by a transfer");
    assert!(erased.events >= 2, "{erased:?}");

    let bob = store.contacts().by_id(ours, other).await.expect("Bob");
    assert_eq!((bob.name.as_deref(), bob.phone), (Some("Bob"), None));
    assert!(store.contacts().by_id(ours, twin).await.is_err());

    let read = async |call| found(&store, move |tx| calls::by_id(tx, ours, call)).await;
    let call = read(by_number).await;
    assert_eq!((&*call.from_number, call.from_e164), ("anonymous", None));
    assert_eq!(call.to_number, "200");
    assert_eq!(call.transfer.expect("a transfer").summary, "");
    let call = read(by_contact).await;
    assert_eq!((call.contact_id, call.metadata), (None, None));
    let call = read(in_words).await;
    assert_eq!(call.from_e164, Some(number("+441632960007")), "kept");

    let since = move |tx: &mut Tx| events::since(tx, ours, 0, 100);
    let events = found(&store, since).await;
    assert!(events.len() >= 8, "the events are still listed");
}

async fn an_erasure_is_repeated_and_cut_off_without_harm(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let id = contact(&store, ours).await;
    let kept = contact(&store, theirs).await;
    let [first, ..] = calls(&store, ours, id).await;
    let [theirs_first, ..] = calls(&store, theirs, kept).await;

    let asked = request(&store, ours, id).await;
    assert_eq!(request(&store, ours, id).await.id, asked.id);
    let erasure = open_erasures(&store, 3).await.remove(0);
    // The node is killed before it reports that it is done, and late facts bring back erased values.
    let rows = erasing::erase_rows(&store, &erasure, AFTER).await;
    assert_eq!(rows.expect("rows are erased"), RowsErased::All);
    let before = store
        .read(move |tx| erasures::by_id(tx, ours, asked.id))
        .await;
    calls(&store, ours, id).await;
    assert_eq!(open_erasures(&store, 3).await.len(), 1);
    erase(&store, &erasure, 3).await;

    let receipt = request(&store, ours, id).await;
    assert!(receipt.completed_at.is_some());
    let counted = before.expect("progress").erased.calls;
    assert_eq!((counted, receipt.erased.calls), (3, 3), "each once");
    assert_eq!(open_erasures(&store, 3).await, []);
    assert_eq!(request(&store, ours, id).await, receipt);

    let call = found(&store, move |tx| calls::by_id(tx, ours, first)).await;
    assert_eq!((call.contact_id, call.metadata), (None, None));
    let call = store
        .read_inline(move |tx| calls::by_id(tx, theirs, theirs_first))
        .await;
    assert_eq!(call.expect("another org's").from_e164, Some(number(NUMBER)));

    let contact = store.contacts().by_id(theirs, kept).await;
    assert_eq!(
        contact.expect("another org's").email.as_deref(),
        Some(EMAIL)
    );

    for absent in [
        store
            .read(move |tx| erasures::by_id(tx, theirs, asked.id))
            .await,
        store
            .write(move |tx| erasures::request(tx, theirs, id, AFTER))
            .await,
    ] {
        assert!(matches!(absent, Err(Error::Wrong(Wrong::Absent(_)))));
    }
}

async fn a_contact_in_a_call_is_not_erased(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;
    let call = Uuid::from_u128(1);
    let begun = Started {
        from_e164: Some(number(NUMBER)),
        ..started(call, ours, NOW)
    };
    let facts = [Fact::Started(begun.into())];
    project(&store, &facts).await;

    let refused = store
        .write(move |tx| erasures::request(tx, ours, id, AFTER))
        .await;
    assert!(matches!(
        refused,
        Err(Error::Conflict(Conflict::ContactOnCall))
    ));
    store.contacts().by_id(ours, id).await.expect("it stays");

    let end = [ended(ours, call, NOW)];
    project(&store, &end).await;
    request(&store, ours, id).await;

    // A call whose beginning is projected late.
    let late = Started {
        from_e164: Some(number(NUMBER)),
        ..started(Uuid::from_u128(2), ours, NOW)
    };
    let facts = [Fact::Started(late.into())];
    project(&store, &facts).await;
    let erasure = open_erasures(&store, 3).await.remove(0);
    let waits = erasing::erase_rows(&store, &erasure, AFTER).await;
    assert_eq!(waits.expect("no fault"), RowsErased::CallIsUp);

    let end = [ended(ours, Uuid::from_u128(2), NOW)];
    project(&store, &end).await;
    erase(&store, &erasure, 3).await;
}

async fn an_erasure_waits_for_every_node_that_lives(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;
    if !db.is_postgres() {
        // SQLite has one node.
        done(&store, move |tx| nodes::begin(tx, 3, "here", MINUTE)).await;
        let asked = request(&store, ours, id).await;
        assert_eq!(asked.waits_for, [3]);
        return;
    }

    for (node, host) in [(1, "one"), (2, "two"), (3, "three")] {
        done(&store, move |tx| nodes::begin(tx, node, host, MINUTE)).await;
    }

    // The lease of the third node has expired.
    let gone = Origin { node: 3, boot: 1 };
    done(&store, move |tx| nodes::renew(tx, gone, Duration::ZERO)).await;

    let asked = request(&store, ours, id).await;
    assert_eq!(asked.waits_for, [1, 2, 3]);

    let by_id = async || found(&store, move |tx| erasures::by_id(tx, ours, asked.id)).await;
    let erasure = open_erasures(&store, 1).await.remove(0);
    erase(&store, &erasure, 1).await;
    assert_eq!(open_erasures(&store, 1).await, []);

    let halfway = by_id().await;
    assert_eq!(
        (halfway.completed_at, halfway.waits_for),
        (None, vec![2, 3])
    );
    erase(&store, &open_erasures(&store, 2).await.remove(0), 2).await;

    let receipt = by_id().await;
    assert!(receipt.completed_at.is_some(), "the third is away");
    assert_eq!(receipt.waits_for, [3]);
    erase(&store, &open_erasures(&store, 3).await.remove(0), 3).await;

    assert_eq!(by_id().await.waits_for, Vec::<i64>::new());
    assert_eq!(
        open_erasures(&store, 4).await,
        [],
        "nothing is left to erase"
    );
}

async fn numbers_of_the_org_are_not_searched_for(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    done(&store, move |tx| {
        numbers::create(tx, ours, number(NUMBER), true, NOW)
    })
    .await;

    let id = contact(&store, ours).await;
    let call = Uuid::from_u128(1);
    let begun = Started {
        to: NUMBER.into(),
        to_e164: Some(number(NUMBER)),
        ..started(call, ours, NOW)
    };
    let facts = [Fact::Started(begun.into()), ended(ours, call, NOW)];
    project(&store, &facts).await;

    let asked = request(&store, ours, id).await;
    erase(&store, &open_erasures(&store, 3).await.remove(0), 3).await;

    let call = found(&store, move |tx| calls::by_id(tx, ours, call)).await;
    assert_eq!(call.to_e164, Some(number(NUMBER)));

    let receipt = found(&store, move |tx| erasures::by_id(tx, ours, asked.id)).await;
    assert_eq!((receipt.erased.calls, receipt.kept.numbers), (0, 1));
}

/// The erasures of one org must not keep those of another waiting.
async fn orgs_take_turns_with_their_erasures(db: &TestDb) {
    let store = db.open().await;
    let (many, few) = (org(&store, "Many").await.id, org(&store, "Few").await.id);
    let mut asked = Vec::new();
    for (number, org) in [many, many, many, few].into_iter().enumerate() {
        let (name, details) = (format!("crm/{number}"), ContactDetails::default());
        let contacts = store.contacts();
        let made = contacts.identify_by_external_id(org, &name, &details, NOW);
        let (id, at) = (made.await.expect("a contact").id, later(number as u64));
        asked.push(
            done(&store, move |tx| erasures::request(tx, org, id, at))
                .await
                .id,
        );
    }

    let waiting = async |limit| {
        let waiting = found(&store, move |tx| erasures::waiting(tx, 3, limit)).await;
        let ids = waiting.into_iter().map(|erasure| erasure.id);
        ids.collect::<Vec<_>>()
    };
    assert_eq!(waiting(10).await, [asked[0], asked[3], asked[1], asked[2]]);
    assert_eq!(waiting(2).await, [asked[0], asked[3]]);
}
