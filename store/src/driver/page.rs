//! Pages of lists, newest item first, with the id as tie-break.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::micros;
use super::error::Error;
use super::tx::Tx;
use super::value::Record;

/// Octets of texts after which a page ends: an answer that a slow reader hasn't taken yet holds at most this and one item.
pub(crate) const PAGE_OCTETS: usize = 1 << 20;

/// Returns how many of these items, given by the octets of their texts, a page may have.
pub(crate) fn fitting(items: impl Iterator<Item = usize>) -> usize {
    let mut octets = 0;
    let fit = items.take_while(|item| {
        // Checked before the item is added: even an item that is larger than a page is on one, or a reader could not
        // pass it.
        let is_room = octets < PAGE_OCTETS;
        octets += item;
        is_room
    });
    fit.count()
}

/// A position in a list, newest item first.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// Time of the last item seen.
    pub at: Moment,
    /// Id of that item.
    pub id: Uuid,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<Item> {
    /// Newest first.
    pub items: Vec<Item>,
    /// Start of the next page; `None` at the end.
    pub next: Option<Position>,
    /// Number of matching items on all pages.
    pub total: u64,
    /// True if the count stopped at `total`, which is 10,000 then, and there are more.
    pub total_is_bounded: bool,
}

/// Most items that lists which grow with an org's calls count: to count a million takes longer than to read a page.
pub(crate) const COUNTED: u64 = 10_000;
/// Bound of a statement that counts: one more shows that there are more.
pub(crate) const COUNT_LIMIT: i64 = COUNTED.cast_signed() + 1;

impl Position {
    /// Position before the first item. The first page uses it, so that one statement and one index serve every page.
    pub(crate) const START: Self = Self {
        at: Moment::from_micros(i64::MAX.cast_unsigned()),
        id: Uuid::max(),
    };

    pub(crate) fn at_micros(self) -> i64 {
        micros(self.at)
    }
}

impl<Item> Page<Item> {
    /// Builds a page from rows that were read with one more than `limit`.
    pub(crate) fn of(
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
            total_is_bounded: false,
        }
    }

    /// Shows a count beyond `COUNTED` as that.
    pub(crate) fn bounded(mut self) -> Self {
        self.total_is_bounded = self.total > COUNTED;
        self.total = self.total.min(COUNTED);
        self
    }

    /// Converts each item.
    pub(crate) fn try_map<T, E>(self, map: impl Fn(Item) -> Result<T, E>) -> Result<Page<T>, E> {
        Ok(Page {
            items: self.items.into_iter().map(map).collect::<Result<_, E>>()?,
            next: self.next,
            total: self.total,
            total_is_bounded: self.total_is_bounded,
        })
    }
}

/// Filter of a list: required texts of two of its values, if given. Each list defines which two.
pub type Narrow = [Option<String>; 2];

/// A list of an org's rows of one table, newest first.
#[derive(Copy, Clone, Debug)]
pub(crate) struct List {
    pub(crate) columns: &'static str,
    pub(crate) table: &'static str,
    /// Expressions that a [`Narrow`] filters by.
    pub(crate) by: [&'static str; 2],
}

impl List {
    /// Returns a page of the matching rows. `position` returns the position of a row.
    pub(crate) fn page<T: Record>(
        self,
        tx: &mut Tx,
        org: Uuid,
        narrow: &Narrow,
        after: Option<Position>,
        limit: u32,
        position: impl Fn(&T) -> Position,
    ) -> Result<Page<T>, Error> {
        // One state for both queries, so that `total` counts what the page is taken from.
        tx.snapshot()?;
        let Self { columns, table, by } = self;
        let [one, other] = by;
        let after = after.unwrap_or(Position::START);

        // The casts are for PostgreSQL, which can't tell the type of a parameter that is only compared with NULL.
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
        let (total,) = tx.exactly_one(count, &[&org, &narrow[0], &narrow[1]])?;

        Ok(Page::of(items, limit, total, position))
    }
}
