//! Pages of lists that run from new to old, the id as tie-break.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::micros;
use super::error::Error;
use super::tx::Tx;
use super::value::Record;

/// A place in a list that runs from new to old.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// The time of the last item seen.
    pub at: Moment,
    /// Its id.
    pub id: Uuid,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<Item> {
    /// Newest first.
    pub items: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Position>,
    /// How many match, all pages together.
    pub total: u64,
}

impl Position {
    /// Ahead of everything: a condition that always stands is one that the index serves.
    pub(super) const START: Self = Self {
        at: Moment::from_micros(i64::MAX.cast_unsigned()),
        id: Uuid::max(),
    };

    pub(super) fn at_micros(self) -> i64 {
        micros(self.at)
    }
}

impl<Item> Page<Item> {
    /// From rows that were asked for with one more than `limit`.
    pub(super) fn of(
        mut items: Vec<Item>,
        limit: u32,
        total: i64,
        position: impl Fn(&Item) -> Position,
    ) -> Self {
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items.last().filter(|_| more).map(position);
        Self {
            items,
            next,
            total: total.unsigned_abs(),
        }
    }

    /// Turns each item into another.
    pub(super) fn try_map<T, E>(self, map: impl Fn(Item) -> Result<T, E>) -> Result<Page<T>, E> {
        Ok(Page {
            items: self.items.into_iter().map(map).collect::<Result<_, E>>()?,
            next: self.next,
            total: self.total,
        })
    }
}

/// What narrows a list: the texts that two of its values must be, where they are given. Which two is the list's own.
pub type Narrow = [Option<String>; 2];

/// A list of an org's rows of one table, newest first.
#[derive(Copy, Clone, Debug)]
pub(super) struct List {
    pub(super) columns: &'static str,
    pub(super) table: &'static str,
    /// Expressions whose texts a [`Narrow`] is held against.
    pub(super) by: [&'static str; 2],
}

impl List {
    /// A page of the rows that are not narrowed out, and how many there are. `position` is that of a row.
    pub(super) fn page<T: Record>(
        self,
        tx: &mut Tx,
        org: Uuid,
        narrow: &Narrow,
        (after, limit): (Option<Position>, u32),
        position: impl Fn(&T) -> Position,
    ) -> Result<Page<T>, Error> {
        tx.snapshot()?;
        let Self { columns, table, by } = self;
        let [one, other] = by;
        let after = after.unwrap_or(Position::START);
        let of_org = format!(
            "FROM {table} WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR {one} = $2) AND (CAST($3 AS TEXT) IS NULL OR {other} = $3)"
        );
        let sql = format!(
            "SELECT {columns} {of_org} AND (created_at, id) < ($4, $5) ORDER BY created_at DESC, id DESC LIMIT $6"
        );
        let most = i64::from(limit) + 1;
        let items = tx.all(
            sql,
            &[&org, &narrow[0], &narrow[1], &after.at, &after.id, &most],
        )?;
        let count = format!("SELECT COUNT(*) {of_org}");
        let (total,) = tx.only(count, &[&org, &narrow[0], &narrow[1]])?;

        Ok(Page::of(items, limit, total, position))
    }
}
