//! Reading and building the kernel's structures: words in this machine's order, never past the end.

/// Reads words one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Bytes that are left.
    pub(super) const fn left(&self) -> usize {
        self.bytes.len()
    }
}

/// A structure of words whose first says how many bytes it has.
pub(super) fn request(words_after_length: &[u32]) -> Vec<u8> {
    let len = 4 * (1 + words_after_length.len());
    std::iter::once(len as u32).chain(words_after_length.iter().copied()).flat_map(u32::to_ne_bytes).collect()
}

/// The word at `index` of an answer, counted in words; 0 past its end.
pub(super) fn word(bytes: &[u8], index: usize) -> u32 {
    let word = bytes.get(4 * index..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}
