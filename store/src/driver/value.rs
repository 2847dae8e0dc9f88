//! Conversion of values into parameters of statements and out of columns, the same for both databases.

use std::borrow::Cow;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use sqlx::postgres::{PgRow, PgValueRef};
use sqlx::{Decode, Postgres, Row as _, TypeInfo as _, ValueRef as _};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Text of a statement: a literal, or a combination of literals.
pub(crate) type Sql = Cow<'static, str>;

/// Reason why a column can't be read.
pub(crate) type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// A parameter of a statement. `None` is NULL, whose type PostgreSQL needs all the same.
#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Id(Option<Uuid>),
    Number(Option<i64>),
    Flag(Option<bool>),
    Text(Option<Cow<'v, str>>),
    Octets(Option<Cow<'v, [u8]>>),
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Id(Some(id)) => ValueRef::Blob(id.as_bytes()),
            Self::Number(Some(number)) => ValueRef::Integer(*number),
            Self::Flag(Some(flag)) => ValueRef::Integer(i64::from(*flag)),
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Octets(Some(octets)) => ValueRef::Blob(octets),
            Self::Id(None)
            | Self::Number(None)
            | Self::Flag(None)
            | Self::Text(None)
            | Self::Octets(None) => ValueRef::Null,
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

/// A type that statements accept as parameter.
pub(crate) trait Param {
    fn value(&self) -> Value<'_>;

    /// Returns NULL of this type.
    fn null() -> Value<'static>
    where
        Self: Sized;
}

impl<T: Param> Param for &T {
    fn value(&self) -> Value<'_> {
        T::value(self)
    }

    fn null() -> Value<'static> {
        T::null()
    }
}

impl<T: Param> Param for Option<T> {
    fn value(&self) -> Value<'_> {
        match self {
            Some(value) => value.value(),
            None => T::null(),
        }
    }

    fn null() -> Value<'static> {
        T::null()
    }
}

impl Param for Value<'_> {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Id(id) => Value::Id(*id),
            Self::Number(number) => Value::Number(*number),
            Self::Flag(flag) => Value::Flag(*flag),
            Self::Text(text) => Value::Text(text.as_deref().map(Cow::Borrowed)),
            Self::Octets(octets) => Value::Octets(octets.as_deref().map(Cow::Borrowed)),
        }
    }

    fn null() -> Value<'static> {
        Value::Text(None)
    }
}

/// Returns a time as columns store it.
pub(crate) fn micros(moment: Moment) -> i64 {
    i64::try_from(moment.as_micros()).unwrap_or(i64::MAX)
}

/// Implements [`Param`] for types.
macro_rules! params {
    ($($type:ty: $value:ident = $self:ident => $it:expr),* $(,)?) => {
        $(
            impl Param for $type {
                fn value(&self) -> Value<'_> {
                    let $self = self;
                    Value::$value(Some($it))
                }

                fn null() -> Value<'static> {
                    Value::$value(None)
                }
            }
        )*
    };
}
params! {
    Uuid: Id = it => *it,
    i64: Number = it => *it,
    i32: Number = it => i64::from(*it),
    u32: Number = it => i64::from(*it),
    u16: Number = it => i64::from(*it),
    u8: Number = it => i64::from(*it),
    Moment: Number = it => micros(*it),
    bool: Flag = it => *it,
    &str: Text = it => Cow::Borrowed(*it),
    String: Text = it => Cow::Borrowed(it.as_str()),
    E164: Text = it => Cow::Borrowed(it.as_str()),
    &[u8]: Octets = it => Cow::Borrowed(*it),
    Vec<u8>: Octets = it => Cow::Borrowed(it.as_slice()),
    [u8; 32]: Octets = it => Cow::Borrowed(it.as_slice()),
}

/// Converts values and optional values for multi-row inserts.
macro_rules! owned {
    ($($type:ty: $value:ident),* $(,)?) => {
        $(
            impl<'v> From<$type> for Value<'v> {
                fn from(value: $type) -> Self {
                    Self::$value(Some(value.into()))
                }
            }

            impl<'v> From<Option<$type>> for Value<'v> {
                fn from(value: Option<$type>) -> Self {
                    Self::$value(value.map(Into::into))
                }
            }
        )*
    };
}
owned!(Uuid: Id, i64: Number, &'v str: Text, String: Text);

/// A value of a column.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Cell<'r> {
    Null,
    Id(Uuid),
    Number(i64),
    Flag(bool),
    Text(&'r str),
    Octets(&'r [u8]),
}

/// A row of either database.
#[derive(Copy, Clone)]
enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r PgRow),
}

/// Reader of a row's columns, one after the other.
pub(crate) struct Cells<'r> {
    row: Row<'r>,
    /// Positions of the columns; empty if they are read in the row's order.
    places: &'r [usize],
    read: usize,
}

/// A type that is read from the columns of a row.
pub(crate) trait Record: Sized + Send + 'static {
    /// Names of the columns; empty if they are read in the row's order.
    const COLUMNS: &'static [&'static str];

    fn read(cells: &mut Cells<'_>) -> Result<Self, Unreadable>;
}

/// A type that is read from one column.
pub(crate) trait FromCell<'r>: Sized {
    fn from_cell(cell: Cell<'r>) -> Result<Self, Unreadable>;
}

impl<'r> Cells<'r> {
    pub(crate) fn of_sqlite(row: &'r rusqlite::Row<'r>, places: &'r [usize]) -> Self {
        Self {
            row: Row::Sqlite(row),
            places,
            read: 0,
        }
    }

    pub(crate) fn of_postgres(row: &'r PgRow, places: &'r [usize]) -> Self {
        Self {
            row: Row::Postgres(row),
            places,
            read: 0,
        }
    }

    /// Reads the next column.
    pub(crate) fn take<C: FromCell<'r>>(&mut self) -> Result<C, Unreadable> {
        let place = self.places.get(self.read).copied().unwrap_or(self.read);
        self.read += 1;
        C::from_cell(match self.row {
            Row::Sqlite(row) => of_sqlite(row.get_ref(place)?)?,
            Row::Postgres(row) => of_postgres(row.try_get_raw(place)?)?,
        })
    }

    /// Reads the next column through `reader`.
    pub(crate) fn read<C: FromCell<'r>, V>(
        &mut self,
        reader: impl FnOnce(C) -> Result<V, Unreadable>,
    ) -> Result<V, Unreadable> {
        reader(self.take()?)
    }

    /// Returns the name of the column that was read last.
    pub(crate) fn last<T: Record>(&self) -> String {
        let place = self.read.saturating_sub(1);
        let name = T::COLUMNS.get(place).copied();
        name.map_or_else(|| place.to_string(), str::to_owned)
    }
}

fn of_sqlite(value: ValueRef<'_>) -> Result<Cell<'_>, Unreadable> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Number(number),
        ValueRef::Text(text) => Cell::Text(std::str::from_utf8(text)?),
        ValueRef::Blob(octets) => Cell::Octets(octets),
        ValueRef::Real(_) => return Err("a number with a fraction".into()),
    })
}

fn of_postgres(value: PgValueRef<'_>) -> Result<Cell<'_>, Unreadable> {
    /// Type of a value.
    enum Type {
        Id,
        Number,
        Flag,
        Text,
        Octets,
    }

    if value.is_null() {
        return Ok(Cell::Null);
    }
    // The name borrows from the value, which decoding takes: so the type is kept as a variant.
    let its = match value.type_info().name() {
        "INT8" | "INT4" | "INT2" => Type::Number,
        "TEXT" | "VARCHAR" | "NAME" => Type::Text,
        "UUID" => Type::Id,
        "BOOL" => Type::Flag,
        "BYTEA" => Type::Octets,
        other => return Err(format!("a value of the type {other}").into()),
    };
    Ok(match its {
        Type::Id => Cell::Id(Decode::<Postgres>::decode(value)?),
        Type::Number => Cell::Number(Decode::<Postgres>::decode(value)?),
        Type::Flag => Cell::Flag(Decode::<Postgres>::decode(value)?),
        Type::Text => Cell::Text(Decode::<Postgres>::decode(value)?),
        Type::Octets => Cell::Octets(Decode::<Postgres>::decode(value)?),
    })
}

fn unlike<T>(cell: Cell<'_>) -> Result<T, Unreadable> {
    let found = match cell {
        Cell::Null => "NULL",
        Cell::Id(_) => "an id",
        Cell::Number(_) => "a number",
        Cell::Flag(_) => "a truth value",
        Cell::Text(_) => "a text",
        Cell::Octets(_) => "octets",
    };
    Err(format!("{found} is not of the type that is read").into())
}

impl<'r, C: FromCell<'r>> FromCell<'r> for Option<C> {
    fn from_cell(cell: Cell<'r>) -> Result<Self, Unreadable> {
        if cell == Cell::Null {
            return Ok(None);
        }
        C::from_cell(cell).map(Some)
    }
}

/// Implements [`FromCell`] for types. A cell of any other kind is refused.
macro_rules! from_cell {
    ($($type:ty: $($cell:pat => $it:expr),+;)*) => {
        $(
            impl<'r> FromCell<'r> for $type {
                fn from_cell(cell: Cell<'r>) -> Result<Self, Unreadable> {
                    match cell {
                        $($cell => Ok($it),)+
                        other => unlike(other),
                    }
                }
            }
        )*
    };
}
from_cell! {
    i64: Cell::Number(number) => number;
    bool: Cell::Flag(flag) => flag, Cell::Number(number) => number != 0;
    Uuid: Cell::Id(id) => id, Cell::Octets(octets) => Uuid::from_slice(octets)?;
    &'r str: Cell::Text(text) => text;
    String: Cell::Text(text) => text.to_owned();
    &'r [u8]: Cell::Octets(octets) => octets;
    Vec<u8>: Cell::Octets(octets) => octets.to_vec();
}

/// Tuples are read in the order of their columns.
macro_rules! tuple {
    ($($column:ident),*) => {
        impl<$($column: for<'r> FromCell<'r> + Send + 'static),*> Record for ($($column,)*) {
            const COLUMNS: &'static [&'static str] = &[];

            fn read(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
                Ok(($(cells.take::<$column>()?,)*))
            }
        }
    };
}
tuple!(A);
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
