//! protobuf's wire format: fields by number.
//!
//! Facts: protobuf.dev, "Encoding".

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn number(self) -> Option<u64> {
        match self {
            Value::Number(n) => Some(n),
            Value::Bytes(_) => None,
        }
    }
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Number(_) => None,
            Value::Bytes(b) => Some(b),
        }
    }
}

/// Goes through the fields of a message.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

/// The fields of a message.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl<'a> Fields<'a> {
    /// True if every field ends where it should.
    pub fn sound(self) -> bool {
        self.last().is_none_or(|f| f.is_some())
    }
    /// The last field of that number.
    pub fn get(self, number: u64) -> Option<Value<'a>> {
        self.flatten().filter(|(n, _)| *n == number).last().map(|(_, v)| v)
    }
    fn next_field(&mut self) -> Option<(u64, Value<'a>)> {
        let (key, size) = varint(self.rest)?;
        let rest = &self.rest[size..];
        let (value, size) = match key & 7 {
            0 => varint(rest).map(|(n, size)| (Value::Number(n), size))?,
            1 => (Value::Number(u64::from_le_bytes(*rest.first_chunk()?)), 8),
            2 => {
                let (length, size) = varint(rest)?;
                let end = usize::try_from(length).ok()?.checked_add(size)?;
                (Value::Bytes(rest.get(size..end)?), end)
            }
            5 => (Value::Number(u32::from_le_bytes(*rest.first_chunk()?).into()), 4),
            _ => return None,
        };
        self.rest = &rest[size..];
        (key >> 3 != 0).then_some((key >> 3, value))
    }
}

/// A `None` is damage, and the last.
impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.next_field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// A number, and how many bytes it takes.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut n = 0u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        n |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            return Some((n, i + 1));
        }
    }
    None
}

/// Appends the numbers of a repeated field, packed or one by one.
pub(super) fn numbers(value: Value, out: &mut Vec<u64>) {
    match value {
        Value::Number(n) => out.push(n),
        Value::Bytes(mut bytes) => {
            while let Some((n, size)) = varint(bytes) {
                out.push(n);
                bytes = &bytes[size..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind_and_damage() {
        let message =
            [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 2, 0, 0, 0];
        let all: Vec<_> = fields(&message).flatten().collect();
        let hi = Value::Bytes(b"hi");
        let number = Value::Number;
        assert_eq!(all, [(1, number(150)), (2, hi), (3, number(1)), (4, number(2))]);
        assert!(fields(&message).sound() && !fields(&message[..6]).sound());
        assert_eq!(fields(&message).get(2), Some(hi));
        assert_eq!(varint(&[0xff; 11]), None);
        let mut list = vec![];
        numbers(Value::Bytes(&[1, 0x80, 1, 3]), &mut list);
        assert_eq!(list, [1, 128, 3]);
    }
}
