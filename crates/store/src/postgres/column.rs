//! Parameters in the bytes that the server reads: single values, and whole columns as arrays. Each is written once, row by
//! row, without a value of its own for every field.

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// One parameter of a statement, encoded. `None` is NULL. Its type is what the statement says.
#[derive(Clone, Debug)]
pub struct Param(Option<Vec<u8>>);

impl Param {
    pub const NULL: Param = Param(None);

    pub fn bool(is: bool) -> Param {
        Param(Some(vec![u8::from(is)]))
    }

    pub fn int(n: i32) -> Param {
        Param(Some(n.to_be_bytes().to_vec()))
    }

    pub fn bigint(n: i64) -> Param {
        Param(Some(n.to_be_bytes().to_vec()))
    }

    pub fn uuid(id: u128) -> Param {
        Param(Some(id.to_be_bytes().to_vec()))
    }

    /// Of a bytea or of a text.
    pub fn bytes(bytes: &[u8]) -> Param {
        Param(Some(bytes.to_vec()))
    }
}

impl ToSql for Param {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match &self.0 {
            Some(bytes) => {
                out.put_slice(bytes);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    /// Every statement casts its parameters, so their types are written there and nowhere else.
    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    to_sql_checked!();
}

/// An array in the making: one column of the rows that a statement is about.
pub struct Column {
    bytes: Vec<u8>,
    n: i32,
    has_nulls: bool,
}

/// Dimensions, whether there are nulls, the type of the elements, how many, and the number of the first.
const HEADER_BYTES: usize = 20;

impl Column {
    fn new(kind: &Type, n: usize, width: usize) -> Column {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + n * (4 + width));
        bytes.put_i32(1);
        bytes.put_i32(0);
        bytes.put_u32(kind.oid());
        bytes.put_i32(0);
        bytes.put_i32(1);
        Column { bytes, n: 0, has_nulls: false }
    }

    pub fn bool(n: usize) -> Column {
        Column::new(&Type::BOOL, n, 1)
    }

    pub fn smallint(n: usize) -> Column {
        Column::new(&Type::INT2, n, 2)
    }

    pub fn int(n: usize) -> Column {
        Column::new(&Type::INT4, n, 4)
    }

    pub fn bigint(n: usize) -> Column {
        Column::new(&Type::INT8, n, 8)
    }

    pub fn uuid(n: usize) -> Column {
        Column::new(&Type::UUID, n, 16)
    }

    pub fn text(n: usize) -> Column {
        Column::new(&Type::TEXT, n, 16)
    }

    /// Of places of rows.
    pub fn tid(n: usize) -> Column {
        Column::new(&Type::TID, n, 6)
    }

    pub fn bytea(n: usize) -> Column {
        Column::new(&Type::BYTEA, n, 64)
    }

    pub fn push(&mut self, value: &[u8]) {
        self.bytes.put_i32(i32::try_from(value.len()).expect("a field is far smaller than 2 GiB"));
        self.bytes.put_slice(value);
        self.n += 1;
    }

    pub fn push_null(&mut self) {
        self.bytes.put_i32(-1);
        self.has_nulls = true;
        self.n += 1;
    }

    pub fn push_some<const N: usize>(&mut self, value: Option<[u8; N]>) {
        match value {
            Some(value) => self.push(&value),
            None => self.push_null(),
        }
    }

    pub fn push_some_bytes(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.push(value),
            None => self.push_null(),
        }
    }

    pub fn push_i16(&mut self, n: i16) {
        self.push(&n.to_be_bytes());
    }

    pub fn push_i32(&mut self, n: i32) {
        self.push(&n.to_be_bytes());
    }

    pub fn push_i64(&mut self, n: i64) {
        self.push(&n.to_be_bytes());
    }

    pub fn push_some_i64(&mut self, n: Option<i64>) {
        self.push_some(n.map(i64::to_be_bytes));
    }

    pub fn push_id(&mut self, id: u128) {
        self.push(&id.to_be_bytes());
    }

    pub fn push_some_id(&mut self, id: Option<u128>) {
        self.push_some(id.map(u128::to_be_bytes));
    }
}

impl From<Column> for Param {
    fn from(mut column: Column) -> Param {
        column.bytes[4..8].copy_from_slice(&i32::from(column.has_nulls).to_be_bytes());
        column.bytes[12..16].copy_from_slice(&column.n.to_be_bytes());
        Param(Some(column.bytes))
    }
}

pub fn bigints(numbers: impl ExactSizeIterator<Item = i64>) -> Param {
    let mut column = Column::bigint(numbers.len());
    numbers.for_each(|n| column.push_i64(n));
    column.into()
}

pub fn uuids(ids: impl ExactSizeIterator<Item = u128>) -> Param {
    let mut column = Column::uuid(ids.len());
    ids.for_each(|id| column.push_id(id));
    column.into()
}
