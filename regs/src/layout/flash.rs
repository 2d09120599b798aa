//! The board's identity in its EEPROM: 128 bytes that hold GUID, serial number and history (F-017).
//!
//! ```text
//!   0   1   2   3 ─ 10      11      12 ─ 23  24 ─ 31    32 ─ 39  40 ─ 43  44 45   46 ─ 77  78 ─ 81  82 ─ 127
//! |ver|sum|len|base GUID |GUID count|serial |made on  |tested on|errors |hours on|comment |prefix  |        |
//! ```
//!
//! The checksum makes the bytes below `len`, its own left out, come out as their inverted 8-bit sum. GUID bytes are in
//! network order. An old layout has the vendor's bytes two places too low and is moved into place here.
//!
//! Reading the bytes over the two-wire bus is the driver's; a board whose EEPROM is blank or wrong still works, with
//! GUID 0.

use core::fmt;

/// Bytes of the structure.
pub const LEN_BYTES: usize = 128;

const VERSION: usize = 0;
const CHECKSUM: usize = 1;
const LEN: usize = 2;
const GUID: usize = 3;
const GUID_COUNT: usize = 11;
const SERIAL: usize = 12;
const MADE_ON: usize = 24;
const TESTED_ON: usize = 32;
const ERRORS: usize = 40;
const HOURS_ON: usize = 44;
const COMMENT: usize = 46;
const PREFIX: usize = 78;
/// The shortest length that covers every field that is read here.
const MIN_LEN: u8 = 82;

/// The GUID that every board leaves the chip's maker with, in the old layout (F-018).
const FACTORY_GUID: [u8; 8] = [0, 0, 0, 0x11, 0x75, 0, 0, 1];

/// Up to `N` printable ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// The printable characters at the start of `bytes`, at most `N`; the first other byte ends them. Trailing blanks
    /// are dropped.
    pub fn new(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut text = Self { bytes: [b' '; N], len: 0 };
        for (place, byte) in
            text.bytes.iter_mut().zip(bytes.into_iter().take_while(|b| (b' '..=b'~').contains(b)))
        {
            *place = byte;
        }
        // A planted fault, for the proof that the fuzzer reaches this far: one character is not what was read.
        #[cfg(canary)]
        text.bytes.iter_mut().skip(5).filter(|byte| **byte == b'~').for_each(|byte| *byte = 0x7F);
        text.len = text.bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        text
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What a board's EEPROM says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Layout version; 2 today.
    pub version: u8,
    /// GUID of the first port; the next port's is one higher.
    pub base_guid: u64,
    /// How many GUIDs from the base on are the board's.
    pub guid_count: u8,
    /// Serial number, with its prefix if the board has one.
    pub serial: Text<16>,
    /// Day of manufacture, `YYYYMMDD`.
    pub made_on: Text<8>,
    /// Day of test, `YYYYMMDD`.
    pub tested_on: Text<8>,
    /// Four counts of errors over the board's life.
    pub error_counts: [u8; 4],
    /// Hours that the board has been on.
    pub hours_on: u16,
    /// What the test department wrote.
    pub comment: Text<32>,
    /// What is odd about the board and yet accepted.
    pub notes: FlashNotes,
}

bitflags::bitflags! {
    /// What is odd about an EEPROM that is accepted all the same.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlashNotes: u8 {
        /// The GUID stood in the old layout and was moved into place.
        const OLD_LAYOUT = 1;
        /// The GUID is the one that every board leaves the chip's maker with: two such boards clash.
        const FACTORY_GUID = 1 << 1;
        /// The GUID does not carry the vendor's number 00:11:75.
        const FOREIGN_OUI = 1 << 2;
        /// The comment does not say that the board passed its test.
        const NOT_TESTED = 1 << 3;
    }
}

/// Why an EEPROM cannot be believed. The board's base GUID is then 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlashError {
    /// The length byte covers less than the fields, or more than the structure.
    Length {
        /// The length byte.
        found: u8,
    },
    /// The checksum does not fit.
    Checksum {
        /// The one stored.
        found: u8,
        /// The one that would fit.
        expected: u8,
    },
    /// The GUID is all zeros or all ones.
    Guid {
        /// The GUID stored.
        found: u64,
    },
}

impl fmt::Display for FlashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found } => write!(
                f,
                "EEPROM says it covers {found} bytes; {MIN_LEN} to {LEN_BYTES} make sense: blank, or misread on the two-wire bus"
            ),
            Self::Checksum { found, expected } => {
                write!(
                    f,
                    "EEPROM checksum {found:#04x} where {expected:#04x} fits: blank, corrupt, or misread on the two-wire bus"
                )
            }
            Self::Guid { found } => {
                write!(f, "EEPROM holds GUID {found:#018x}, which names no board: program one")
            }
        }
    }
}

impl core::error::Error for FlashError {}

/// The checksum of `bytes` as far as its length byte covers.
fn checksum(bytes: &[u8; LEN_BYTES]) -> u8 {
    let covered = &bytes[..usize::from(bytes[LEN]).min(LEN_BYTES)];
    let sum = covered.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let own = if covered.len() > CHECKSUM { bytes[CHECKSUM] } else { 0 };
    !sum.wrapping_sub(own)
}

impl Flash {
    /// Reads the structure.
    ///
    /// # Errors
    /// See [`FlashError`]; the caller goes on with base GUID 0 and says so.
    pub fn parse(bytes: &[u8; LEN_BYTES]) -> Result<Self, FlashError> {
        let len = bytes[LEN];
        if len < MIN_LEN || usize::from(len) > LEN_BYTES {
            return Err(FlashError::Length { found: len });
        }
        let expected = checksum(bytes);
        if bytes[CHECKSUM] != expected {
            return Err(FlashError::Checksum { found: bytes[CHECKSUM], expected });
        }
        let mut notes = FlashNotes::empty();
        let base_guid = base_guid(field(bytes, GUID), &mut notes)?;
        let comment = Text::new(field::<32>(bytes, COMMENT));
        notes.set(FlashNotes::NOT_TESTED, !comment.as_str().contains("Tested successfully"));
        Ok(Self {
            version: bytes[VERSION],
            base_guid,
            guid_count: bytes[GUID_COUNT],
            serial: serial(bytes),
            made_on: Text::new(field::<8>(bytes, MADE_ON)),
            tested_on: Text::new(field::<8>(bytes, TESTED_ON)),
            error_counts: field(bytes, ERRORS),
            hours_on: u16::from_le_bytes(field(bytes, HOURS_ON)),
            comment,
            notes,
        })
    }

    /// Makes the bytes of a board with these data in the present layout; a serial of more than 12 characters puts its
    /// first four in the prefix.
    pub fn build(&self) -> [u8; LEN_BYTES] {
        let mut bytes = [0; LEN_BYTES];
        let (prefix, serial) = match self.serial.as_str().as_bytes() {
            long if long.len() > 12 => long.split_at(4),
            short => (&[][..], short),
        };
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(VERSION, &[self.version]);
        put(LEN, &[LEN_BYTES as u8]);
        put(GUID, &self.base_guid.to_be_bytes());
        put(GUID_COUNT, &[self.guid_count]);
        put(SERIAL, serial);
        put(PREFIX, prefix);
        put(MADE_ON, self.made_on.as_str().as_bytes());
        put(TESTED_ON, self.tested_on.as_str().as_bytes());
        put(ERRORS, &self.error_counts);
        put(HOURS_ON, &self.hours_on.to_le_bytes());
        put(COMMENT, self.comment.as_str().as_bytes());
        bytes[CHECKSUM] = checksum(&bytes);
        bytes
    }

    /// GUID of the IB port with number `ib_port`, from 1; `None` past the GUIDs that a 64-bit number can name.
    pub fn port_guid(&self, ib_port: u8) -> Option<u64> {
        self.base_guid.checked_add(u64::from(ib_port.checked_sub(1)?))
    }
}

fn field<const N: usize>(bytes: &[u8; LEN_BYTES], at: usize) -> [u8; N] {
    core::array::from_fn(|n| bytes[at + n])
}

/// The base GUID in the present layout, or why it names no board.
fn base_guid(stored: [u8; 8], notes: &mut FlashNotes) -> Result<u64, FlashError> {
    let found = u64::from_be_bytes(stored);
    if found == 0 || found == u64::MAX {
        return Err(FlashError::Guid { found });
    }
    notes.set(FlashNotes::FACTORY_GUID, stored == FACTORY_GUID);
    let guid = match stored {
        // The vendor's three bytes stand two places too low; the board's own three are in place (F-019).
        [0, 0, 0, high, low, board @ ..] => {
            *notes |= FlashNotes::OLD_LAYOUT;
            [0, high, low, 0, 0, board[0], board[1], board[2]]
        }
        present => present,
    };
    notes.set(FlashNotes::FOREIGN_OUI, guid[..3] != [0x00, 0x11, 0x75]);
    Ok(u64::from_be_bytes(guid))
}

/// The serial number, after its prefix if the version has one and it is not blank.
fn serial(bytes: &[u8; LEN_BYTES]) -> Text<16> {
    let prefix: [u8; 4] = field(bytes, PREFIX);
    let has_prefix = bytes[VERSION] > 1 && !matches!(prefix[0], 0 | 0xFF);
    let prefix = Text::<4>::new(if has_prefix { prefix } else { [0; 4] });
    let serial = Text::<12>::new(field::<12>(bytes, SERIAL));
    Text::new(prefix.as_str().bytes().chain(serial.as_str().bytes()))
}
