//! Phone numbers of orgs: verified in one org only, and each assigned to one agent at most.

use std::collections::{HashMap, HashSet};

use serde_json::json;
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::agents::must_exist;
use super::column::{from_row, maybe, micros, moment, number, written};
use super::error::{Error, Kind, Refused, Wrong};
use super::page::{List, Narrow, Page, Position};
use super::pool::{Source, Writing, execute, fetch_all, fetch_optional};
use super::{Change, EventType, NewEvent, Store, new_id};

/// A phone number of an org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// Its id.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The number.
    pub number: E164,
    /// When it was verified; `None`: it isn't.
    pub verified_at: Option<Moment>,
    /// The agent that answers it.
    pub agent_id: Option<Uuid>,
    /// When it was added.
    pub created_at: Moment,
}
from_row!(Number {
    id,
    org_id,
    number: number,
    verified_at: maybe(moment),
    agent_id,
    created_at: moment
});

/// The phone numbers.
#[derive(Copy, Clone, Debug)]
pub struct Numbers<'s>(&'s Store);

impl Store {
    /// The phone numbers.
    pub fn numbers(&self) -> Numbers<'_> {
        Numbers(self)
    }
}

const LIST: List = List {
    columns: "*",
    table: "numbers",
    by: [
        "CASE WHEN verified_at IS NULL THEN 'false' ELSE 'true' END",
        "number",
    ],
};

impl Numbers<'_> {
    /// Adds a number, verified at once or not yet.
    ///
    /// # Errors
    /// [`Wrong::Absent`] if there is no such org, [`Refused::NumberExists`], [`Refused::NumberVerifiedElsewhere`].
    pub async fn create(
        self,
        org: Uuid,
        number: E164,
        verified: bool,
        now: Moment,
    ) -> Result<Number, Error> {
        let mut writing = self.0.edit(org).await?;
        let held: Option<Number> = fetch_optional!(writing, BY_NUMBER, org, number.as_str())?;
        if held.is_some() {
            return Err(Refused::NumberExists(number).into());
        }
        let row = fetch_optional!(
            writing,
            "INSERT INTO numbers (id, org_id, number, verified_at, created_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING RETURNING *",
            new_id(now),
            org,
            number.as_str(),
            verified.then(|| micros(now)),
            micros(now),
        )?;
        let row: Number = row.ok_or(Refused::NumberVerifiedElsewhere(number))?;
        if verified {
            note_verified(&mut writing, &row, now).await?;
        }
        self.0.commit(writing, &[Change::Org(org)], now).await?;
        self.0.recorded();
        Ok(row)
    }

    /// The number of this id.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn by_id(self, org: Uuid, id: Uuid) -> Result<Number, Error> {
        let mut reading = self.0.pool().peek().await?;
        let row = fetch_optional!(reading, BY_ID, org, id)?;
        Ok(row.ok_or(Wrong::Absent(Kind::Number))?)
    }

    /// The org's row for this number.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn by_number(self, org: Uuid, number: &E164) -> Result<Number, Error> {
        let mut reading = self.0.pool().peek().await?;
        let row = fetch_optional!(reading, BY_NUMBER, org, number.as_str())?;
        Ok(row.ok_or(Wrong::Absent(Kind::Number))?)
    }

    /// The org that the number is verified in.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub async fn verified_in(self, number: &E164) -> Result<Option<Uuid>, Error> {
        let mut reading = self.0.pool().peek().await?;
        let sql = "SELECT org_id FROM numbers WHERE number = $1 AND verified_at IS NOT NULL";
        let found: Option<(Uuid,)> = fetch_optional!(reading, sql, number.as_str())?;
        Ok(found.map(|(org,)| org))
    }

    /// The org's numbers, newest first.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub async fn list(self, org: Uuid) -> Result<Vec<Number>, Error> {
        let mut reading = self.0.pool().peek().await?;
        fetch_all!(
            reading,
            "SELECT * FROM numbers WHERE org_id = $1 ORDER BY created_at DESC, id DESC",
            org
        )
    }

    /// A page of the org's numbers, newest first, narrowed by verification and number, after `after`.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub async fn page(
        self,
        org: Uuid,
        narrow: &Narrow,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Page<Number>, Error> {
        let mut reading = self.0.pool().peek_snapshot().await?;
        let page = reading
            .source()
            .step({
                let narrow = narrow.clone();
                move |tx| {
                    LIST.page(tx, org, &narrow, (after, limit), |row: &Number| Position {
                        at: row.created_at,
                        id: row.id,
                    })
                }
            })
            .await?;
        Ok(page)
    }

    /// The numbers that an agent answers, oldest first.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub async fn of_agent(self, org: Uuid, agent: Uuid) -> Result<Vec<Number>, Error> {
        let mut reading = self.0.pool().peek().await?;
        of_agent(reading.source(), org, agent).await
    }

    /// Marks a number as verified; again changes nothing.
    ///
    /// # Errors
    /// [`Wrong::Absent`], [`Refused::NumberVerifiedElsewhere`].
    pub async fn verify(self, org: Uuid, id: Uuid, now: Moment) -> Result<Number, Error> {
        let mut writing = self.0.edit(org).await?;
        let number = find(&mut writing, org, id).await?;
        if number.verified_at.is_some() {
            return Ok(number);
        }
        let number = mark_verified(&mut writing, number, now).await?;
        self.0.commit(writing, &[Change::Org(org)], now).await?;
        self.0.recorded();
        Ok(number)
    }

    /// Takes the verification back, which ends the number's assignment.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn unverify(self, org: Uuid, id: Uuid, now: Moment) -> Result<Number, Error> {
        let mut writing = self.0.edit(org).await?;
        let sql = "UPDATE numbers SET verified_at = NULL, agent_id = NULL WHERE org_id = $1 AND id = $2 RETURNING *";
        let row: Option<Number> = fetch_optional!(writing, sql, org, id)?;
        let number = row.ok_or(Wrong::Absent(Kind::Number))?;
        self.0.commit(writing, &[Change::Org(org)], now).await?;
        Ok(number)
    }

    /// Removes a number from the org.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn delete(self, org: Uuid, id: Uuid, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.edit(org).await?;
        if execute!(
            writing,
            "DELETE FROM numbers WHERE org_id = $1 AND id = $2",
            org,
            id
        )? == 0
        {
            return Err(Wrong::Absent(Kind::Number).into());
        }
        self.0.commit(writing, &[Change::Org(org)], now).await
    }

    /// Gives an agent exactly these numbers.
    ///
    /// # Errors
    /// [`Wrong::Absent`] for the agent, [`Wrong::Entries`] of [`Wrong::Unknown`] or [`Wrong::NotVerified`] for the numbers,
    /// [`Refused::NumberHeld`].
    pub async fn assign(
        self,
        org: Uuid,
        agent: Uuid,
        ids: &[Uuid],
        now: Moment,
    ) -> Result<Vec<Number>, Error> {
        let mut writing = self.0.edit(org).await?;
        writing.run(move |tx| must_exist(tx, org, agent)).await?;
        let numbers = assignable(&mut writing, org, ids).await?;
        must_be_free(&mut writing, org, agent, &numbers).await?;

        // Of many numbers few change at once: only those are written.
        let wanted: HashSet<Uuid> = ids.iter().copied().collect();
        for held in of_agent(writing.source(), org, agent).await? {
            if !wanted.contains(&held.id) {
                let sql = "UPDATE numbers SET agent_id = NULL WHERE org_id = $1 AND id = $2";
                execute!(writing, sql, org, held.id)?;
            }
        }
        for number in numbers {
            if number.agent_id != Some(agent) {
                let sql = "UPDATE numbers SET agent_id = $3 WHERE org_id = $1 AND id = $2";
                execute!(writing, sql, org, number.id, agent)?;
            }
        }
        let numbers = of_agent(writing.source(), org, agent).await?;
        self.0.commit(writing, &[Change::Org(org)], now).await?;
        Ok(numbers)
    }
}

const BY_ID: &str = "SELECT * FROM numbers WHERE org_id = $1 AND id = $2";
const BY_NUMBER: &str = "SELECT * FROM numbers WHERE org_id = $1 AND number = $2";

/// The numbers that an agent answers, oldest first.
pub(super) async fn of_agent(
    mut on: Source<'_>,
    org: Uuid,
    agent: Uuid,
) -> Result<Vec<Number>, Error> {
    let sql = "SELECT * FROM numbers WHERE org_id = $1 AND agent_id = $2 ORDER BY created_at, id";
    fetch_all!(on, sql, org, agent)
}

/// Marks a number as verified, and records it.
pub(super) async fn mark_verified(
    writing: &mut Writing,
    mut number: Number,
    now: Moment,
) -> Result<Number, Error> {
    let sql = "UPDATE numbers SET verified_at = $3 WHERE org_id = $1 AND id = $2";
    match execute!(writing, sql, number.org_id, number.id, micros(now)) {
        Err(fault) if fault.is_taken() => {
            return Err(Refused::NumberVerifiedElsewhere(number.number).into());
        }
        done => done?,
    };
    number.verified_at = Some(now);
    note_verified(writing, &number, now).await?;
    Ok(number)
}

/// Records that the number is verified.
async fn note_verified(writing: &mut Writing, number: &Number, now: Moment) -> Result<(), Error> {
    let data = json!({
        "phone_number_id": number.id,
        "phone_number": number.number.as_str(),
        "verified_at": written(now),
    });
    let (org, id) = (number.org_id, number.id);
    let event = NewEvent::of(org, EventType::NumberVerified, id, &data, now);
    writing.record(vec![event]).await
}

pub(super) async fn find(writing: &mut Writing, org: Uuid, id: Uuid) -> Result<Number, Error> {
    let row = fetch_optional!(writing, BY_ID, org, id)?;
    Ok(row.ok_or(Wrong::Absent(Kind::Number))?)
}

/// The numbers of these ids, if each is a verified one of the org.
async fn assignable(writing: &mut Writing, org: Uuid, ids: &[Uuid]) -> Result<Vec<Number>, Error> {
    let sql = "SELECT * FROM numbers WHERE org_id = $1";
    let of_org: Vec<Number> = fetch_all!(writing, sql, org)?;
    let of_org = of_org.into_iter().map(|number| (number.id, number));
    let of_org: HashMap<Uuid, Number> = of_org.collect();

    let (mut numbers, mut faults) = (Vec::with_capacity(ids.len()), Vec::new());
    for (place, id) in ids.iter().enumerate() {
        let number = of_org.get(id).cloned();
        let kind = Kind::Number;
        match number {
            None => faults.push((place, Wrong::Unknown { kind, id: *id })),
            Some(number) if number.verified_at.is_none() => {
                faults.push((place, Wrong::NotVerified(number.number)));
            }
            Some(number) => numbers.push(number),
        }
    }
    if faults.is_empty() {
        Ok(numbers)
    } else {
        Err(Wrong::Entries(faults).into())
    }
}

/// Refuses numbers that another agent holds.
async fn must_be_free(
    writing: &mut Writing,
    org: Uuid,
    agent: Uuid,
    numbers: &[Number],
) -> Result<(), Error> {
    for number in numbers {
        let Some(holder) = number.agent_id.filter(|holder| *holder != agent) else {
            continue;
        };
        let sql = "SELECT name FROM agents WHERE org_id = $1 AND id = $2";
        let row: Option<(String,)> = fetch_optional!(writing, sql, org, holder)?;
        let (agent_name,) = row.ok_or(Wrong::Absent(Kind::Agent))?;
        return Err(Refused::NumberHeld {
            number: number.number,
            agent: holder,
            agent_name,
        }
        .into());
    }
    Ok(())
}
