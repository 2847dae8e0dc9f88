//! Pages of lists that run from new to old, the id as tie-break.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::micros;

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

/// A page of an org's rows of one table (the row and its columns to read, the table, the org, where the page before ended, how many), newest
/// first, and how many rows there are. With `by`, two expressions give the texts that a [`Narrow`] is held against.
macro_rules! fetch_page {
    ($on:expr, $row:ty: $columns:literal, $table:literal by $one:literal, $other:literal, $org:expr, $narrow:expr, $after:expr, $limit:expr) => {{
        let after = $after.unwrap_or($crate::Position::START);
        let [one, other]: &$crate::Narrow = $narrow;
        let items: Vec<$row> = $crate::pool::fetch_all!(
            $on,
            concat!(
                "SELECT ", $columns, " FROM ", $table,
                " WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR ", $one, " = $2) AND (CAST($3 AS TEXT) IS NULL OR ", $other,
                " = $3) AND (created_at, id) < ($4, $5) ORDER BY created_at DESC, id DESC LIMIT $6"
            ),
            $org,
            one,
            other,
            after.at_micros(),
            after.id,
            i64::from($limit) + 1,
        )?;
        let (total,): (i64,) = $crate::pool::fetch_one!(
            $on,
            concat!(
                "SELECT COUNT(*) FROM ", $table,
                " WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR ", $one, " = $2) AND (CAST($3 AS TEXT) IS NULL OR ", $other, " = $3)"
            ),
            $org,
            one,
            other,
        )?;
        $crate::Page::of(items, $limit, total, |item| $crate::Position {
            at: item.created_at,
            id: item.id,
        })
    }};
    ($on:expr, $row:ty: $columns:literal, $table:literal, $org:expr, $after:expr, $limit:expr) => {{
        let after = $after.unwrap_or($crate::Position::START);
        let items: Vec<$row> = $crate::pool::fetch_all!(
            $on,
            concat!(
                "SELECT ",
                $columns,
                " FROM ",
                $table,
                " WHERE org_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4"
            ),
            $org,
            after.at_micros(),
            after.id,
            i64::from($limit) + 1,
        )?;
        let (total,): (i64,) = $crate::pool::fetch_one!(
            $on,
            concat!("SELECT COUNT(*) FROM ", $table, " WHERE org_id = $1"),
            $org
        )?;
        $crate::Page::of(items, $limit, total, |item| $crate::Position {
            at: item.created_at,
            id: item.id,
        })
    }};
}
pub(crate) use fetch_page;
