//! What a cable module says of itself: 256 bytes, of which the upper half can be one of several pages.
//!
//! ```text
//!     0        identifier                     128      identifier          164      InfiniBand speeds
//!     2  bit 2 one page only (flat)           129  7:6 power class         165-167  vendor OUI
//!   127        page select                    146      length, metres      168-183  part number
//!                                             147  7:4 technology          184-185  revision
//!                                             148-163  vendor name         186, 187 attenuation, dB, at SDR and DDR
//!                                             191      sum of 128 to 190   196-211  serial number
//!                                             223      sum of 192 to 222   212-217  date, 218-219 lot
//! ```
//!
//! Cables that work say odd things: an identifier that no table has, empty bytes, a wrong sum. Nothing of it is a
//! reason to refuse a link. Every byte pattern is read, strings are cut at what cannot be printed, and what is unknown
//! stays visible as its code.
//!
//! Source: F-240.

use core::fmt;

/// Bytes of a module's memory as it is read: the lower half, and page 0 above it.
pub const MODULE_BYTES: usize = 256;

/// How the module carries its signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Technology {
    /// Optics: a laser of some kind, codes 0 to 9.
    Optical(u8),
    /// Copper without equalizer, code 10.
    CopperUnequalized,
    /// Copper with passive equalizer, code 11.
    CopperPassive,
    /// Copper with amplifiers at the near end, the far end or both; codes 12 to 15.
    CopperActive(u8),
}

impl Technology {
    fn of_code(code: u8) -> Self {
        match code & 0xF {
            code @ 0..=9 => Self::Optical(code),
            10 => Self::CopperUnequalized,
            11 => Self::CopperPassive,
            code => Self::CopperActive(code),
        }
    }

    /// The code, 0 to 15.
    pub const fn code(self) -> u8 {
        match self {
            Self::Optical(code) | Self::CopperActive(code) => code,
            Self::CopperUnequalized => 10,
            Self::CopperPassive => 11,
        }
    }

    /// Whether the module amplifies at the far end, so that no loss reaches the receiver (F-241).
    pub const fn is_active_far(self) -> bool {
        0x32FF >> self.code() & 1 != 0
    }

    /// Whether it is a copper cable whose attenuation matters (F-241).
    pub const fn is_copper(self) -> bool {
        0xED00 >> self.code() & 1 != 0
    }
}

impl fmt::Display for Technology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Optical(code) => write!(f, "optical (technology {code})"),
            Self::CopperUnequalized => f.write_str("copper"),
            Self::CopperPassive => f.write_str("copper, passive equalizer"),
            Self::CopperActive(code) => write!(f, "copper, active (technology {code})"),
        }
    }
}

/// A sum that a module carries over its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// What it says.
    pub stored: u8,
    /// What its bytes add up to.
    pub computed: u8,
}

impl Checksum {
    fn over(bytes: &[u8], stored: u8) -> Self {
        Self { stored, computed: bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte)) }
    }

    /// Whether both agree.
    pub const fn is_good(self) -> bool {
        self.stored == self.computed
    }
}

/// A cable module, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CableInfo {
    /// Identifier of the lower half.
    pub identifier: u8,
    /// Identifier of page 0; the same, on most modules.
    pub page_identifier: u8,
    /// Whether it has one page only.
    pub flat: bool,
    /// Power class, 1 to 4.
    pub power_class: u8,
    /// Length in metres; 0 if it does not say, or is no cable.
    pub length_m: u8,
    /// How it carries its signal.
    pub technology: Technology,
    /// Who made it.
    pub vendor: String,
    /// The maker's number.
    pub oui: [u8; 3],
    /// Part number.
    pub part: String,
    /// Revision.
    pub revision: String,
    /// Speeds of InfiniBand that it claims, one bit each.
    pub ib_speeds: u8,
    /// Attenuation in dB at SDR and at DDR rate; 0 if it does not say.
    pub attenuation_db: [u8; 2],
    /// Serial number.
    pub serial: String,
    /// Date of manufacture, YYMMDD.
    pub date: String,
    /// Lot.
    pub lot: String,
    /// Over vendor, part and the rest of the base part.
    pub base_sum: Checksum,
    /// Over serial number and date.
    pub extended_sum: Checksum,
}

impl CableInfo {
    /// Reads a module's memory. Whatever stands there, something is read.
    pub fn parse(bytes: &[u8; MODULE_BYTES]) -> Self {
        let text = |from: usize, len: usize| text(&bytes[from..from + len]);
        Self {
            identifier: bytes[0],
            page_identifier: bytes[128],
            flat: is_flat(bytes[2]),
            power_class: (bytes[129] >> 6) + 1,
            length_m: bytes[146],
            technology: Technology::of_code(bytes[147] >> 4),
            vendor: text(148, 16),
            oui: [bytes[165], bytes[166], bytes[167]],
            part: text(168, 16),
            revision: text(184, 2),
            ib_speeds: bytes[164],
            attenuation_db: [bytes[186], bytes[187]],
            serial: text(196, 16),
            date: text(212, 6),
            lot: text(218, 2),
            base_sum: Checksum::over(&bytes[128..191], bytes[191]),
            extended_sum: Checksum::over(&bytes[192..223], bytes[223]),
        }
    }

    /// What kind of module it says it is: the identifier's name, or its code.
    pub fn kind(&self) -> String {
        match self.identifier {
            0x0C => "QSFP".to_owned(),
            0x0D => "QSFP+".to_owned(),
            0x11 => "QSFP28".to_owned(),
            code => format!("unknown type {code:#04x}"),
        }
    }

    /// What is odd about it and no reason to refuse it.
    pub fn oddities(&self) -> Vec<String> {
        let mut odd = Vec::new();
        if !matches!(self.identifier, 0x0C | 0x0D) {
            odd.push(format!("identifier {:#04x} is not a QSFP module's", self.identifier));
        }
        if self.page_identifier != self.identifier {
            odd.push(format!("page 0 has another identifier, {:#04x}", self.page_identifier));
        }
        for (what, sum) in [("base", self.base_sum), ("extended", self.extended_sum)] {
            if !sum.is_good() {
                let Checksum { stored, computed } = sum;
                odd.push(format!("{what} checksum is {stored:#04x}, its bytes add up to {computed:#04x}"));
            }
        }
        odd
    }
}

impl fmt::Display for CableInfo {
    /// `QSFP+ Amphenol 594660001 rev A, serial APF123, 3 m, copper, passive equalizer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind(), self.vendor, self.part)?;
        if !self.revision.is_empty() {
            write!(f, " rev {}", self.revision)?;
        }
        write!(f, ", serial {}", self.serial)?;
        if self.length_m != 0 {
            write!(f, ", {} m", self.length_m)?;
        }
        write!(f, ", {}", self.technology)
    }
}

/// Whether byte 2 says that there is one page only.
pub(super) const fn is_flat(status: u8) -> bool {
    status & 1 << 2 != 0
}

/// A padded string: printable ASCII, without the blanks around it. Anything else becomes a dot.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let printable = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '.',
    };
    bytes[..end].iter().map(printable).collect::<String>().trim().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A passive copper cable of 3 m, checksums in order.
    pub(crate) fn golden() -> [u8; MODULE_BYTES] {
        let mut bytes = [0; MODULE_BYTES];
        bytes[0] = 0x0D;
        bytes[2] = 1 << 2;
        bytes[128] = 0x0D;
        bytes[129] = 0x40; // power class 2
        bytes[146] = 3;
        bytes[147] = 0xB0; // copper, passive equalizer
        let mut put = |at: usize, text: &str| bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(148, "Amphenol        ");
        put(168, "594660001       ");
        put(184, "A ");
        put(196, "APF10180012345  ");
        put(212, "101231");
        put(218, "42");
        bytes[164] = 0x07;
        bytes[165..168].copy_from_slice(&[0x41, 0x50, 0x48]);
        (bytes[186], bytes[187]) = (6, 9);
        seal(&mut bytes);
        bytes
    }

    /// Sets both checksums right.
    pub(crate) fn seal(bytes: &mut [u8; MODULE_BYTES]) {
        bytes[191] = Checksum::over(&bytes[128..191], 0).computed;
        bytes[223] = Checksum::over(&bytes[192..223], 0).computed;
    }

    /// B11: every field stands where it belongs, none shifted.
    #[test]
    fn golden_module_is_read_field_by_field() {
        let info = CableInfo::parse(&golden());
        assert_eq!((info.vendor.as_str(), info.part.as_str()), ("Amphenol", "594660001"));
        assert_eq!((info.revision.as_str(), info.serial.as_str()), ("A", "APF10180012345"));
        assert_eq!((info.date.as_str(), info.lot.as_str()), ("101231", "42"));
        assert_eq!((info.oui, info.ib_speeds), ([0x41, 0x50, 0x48], 0x07));
        assert_eq!((info.length_m, info.power_class, info.attenuation_db), (3, 2, [6, 9]));
        assert_eq!((info.technology, info.flat), (Technology::CopperPassive, true));
        assert!(info.base_sum.is_good() && info.extended_sum.is_good() && info.oddities().is_empty());
        let told = "QSFP+ Amphenol 594660001 rev A, serial APF10180012345, 3 m, copper, passive equalizer";
        assert_eq!(info.to_string(), told);
    }

    #[test]
    fn bad_sums_are_told_with_both_values_and_nothing_else_changes() {
        let mut bytes = golden();
        bytes[191] ^= 0xFF;
        bytes[223] = bytes[223].wrapping_add(1);
        let info = CableInfo::parse(&bytes);
        assert_eq!((info.oddities().len(), info.vendor.as_str()), (2, "Amphenol"));
        let expected = format!("base checksum is {:#04x}", bytes[191]);
        assert!(info.oddities()[0].starts_with(&expected), "{:?}", info.oddities());
    }

    /// B10: halves that disagree and empty bytes are shown as they are.
    #[test]
    fn odd_identifiers_are_shown_by_their_code_and_refuse_nothing() {
        let mut bytes = golden();
        bytes[128] = 0x11;
        bytes[164] = 0;
        seal(&mut bytes);
        let info = CableInfo::parse(&bytes);
        assert_eq!(info.kind(), "QSFP+");
        assert_eq!(info.oddities(), ["page 0 has another identifier, 0x11"]);
        bytes[0] = 0x7E;
        assert_eq!(CableInfo::parse(&bytes).kind(), "unknown type 0x7e");
    }

    #[test]
    fn technologies_are_sorted_as_the_stock_driver_sorts_them() {
        let copper = |code| Technology::of_code(code).is_copper();
        assert_eq!((0..16).filter(|code| copper(*code)).collect::<Vec<_>>(), [8, 10, 11, 13, 14, 15]);
        let far = |code| Technology::of_code(code).is_active_far();
        assert_eq!((0..16).filter(|code| far(*code)).count(), 8 + 3);
    }

    proptest! {
        #[test]
        fn any_256_bytes_are_read_and_printed_on_one_line(bytes in prop::collection::vec(any::<u8>(), MODULE_BYTES)) {
            let bytes: [u8; MODULE_BYTES] = bytes.try_into().expect("256 bytes");
            let info = CableInfo::parse(&bytes);
            let told = format!("{info} {:?}", info.oddities());
            prop_assert!(told.chars().all(|letter| (' '..='~').contains(&letter)), "{}", told);
            prop_assert!((1..=4).contains(&info.power_class));
        }
    }
}
