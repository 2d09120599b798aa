//! What the fuzz targets share.
//!
//! A target takes bytes, shapes them with [`Bytes`] into calls of one parser, and checks the answers against
//! something slower and more obvious. For each there is a *canary*: a small fault in the code under test that exists
//! only under `--cfg canary`, placed where the fuzzer must steer to reach it. `canaries.sh` builds with it and fails
//! unless every one is found, so a target that has gone blind is noticed.

#![forbid(unsafe_code)]

/// Input bytes, taken from the front; zeros once they are used up.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// All of an input.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let len = N.min(self.0.len());
        bytes[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        bytes
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Whether everything was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left.
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

pub mod registers;
pub mod wire;
