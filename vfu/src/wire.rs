//! Little-endian fields in and out, with every length checked.

use crate::ParseError;

/// Reads a payload from front to back.
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    pub(crate) fn take(&mut self, len_bytes: usize) -> Result<&'a [u8], ParseError> {
        let end = self.at.saturating_add(len_bytes);
        let Some(taken) = self.bytes.get(self.at..end) else {
            return Err(ParseError::Short {
                what: self.what,
                needed_bytes: end,
                had_bytes: self.bytes.len(),
            });
        };
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.take(2).map(|b| b.iter().rev().fold(0, |n, byte| n << 8 | u16::from(*byte)))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.take(4).map(|b| b.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte)))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.take(8).map(|b| b.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }
}

/// Builds a payload; chained calls in field order.
pub(crate) trait Put {
    fn put16(&mut self, value: u16) -> &mut Self;
    fn put32(&mut self, value: u32) -> &mut Self;
    fn put64(&mut self, value: u64) -> &mut Self;
}

impl Put for Vec<u8> {
    fn put16(&mut self, value: u16) -> &mut Self {
        self.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn put32(&mut self, value: u32) -> &mut Self {
        self.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn put64(&mut self, value: u64) -> &mut Self {
        self.extend_from_slice(&value.to_le_bytes());
        self
    }
}
