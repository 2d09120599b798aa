//! Who a card is: GUIDs, serial number, board.
//!
//! A GUID names a card or a port in the whole world, 64 bits. Tools have printed the same GUID with and without its
//! leading zeros, and then not found each other; here it is always printed with 16 digits, and read in every form.
//!
//! Source: F-126.

use crate::board::Chip;
use crate::eeprom::EepromError;
use core::fmt;
use core::str::FromStr;
use qhca_regs::layout::flash::{Flash, FlashNotes};

/// A global unique identifier; 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub u64);

impl Guid {
    /// No GUID: a board whose EEPROM is blank.
    pub const NONE: Self = Self(0);

    /// Whether it names anything: neither zeros nor ones.
    pub const fn is_valid(self) -> bool {
        self.0 != 0 && self.0 != u64::MAX
    }

    /// Four groups of four digits, `0011:7500:005a:0001`.
    pub fn in_groups(self) -> String {
        let group = |n: u32| self.0 >> (48 - 16 * n) & 0xFFFF;
        format!("{:04x}:{:04x}:{:04x}:{:04x}", group(0), group(1), group(2), group(3))
    }
}

impl fmt::Display for Guid {
    /// `0x` and 16 digits, whatever the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// The text is no GUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseGuidError {
    text: String,
}

impl fmt::Display for ParseGuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is no GUID: up to 16 hexadecimal digits, with or without 0x, or groups parted by colons",
            self.text
        )
    }
}

impl std::error::Error for ParseGuidError {}

impl FromStr for Guid {
    type Err = ParseGuidError;

    /// Reads `0x00117500005a0001`, `117500005a0001`, `0011:7500:005a:0001` and `00:11:75:00:00:5a:00:01`.
    fn from_str(text: &str) -> Result<Self, ParseGuidError> {
        let error = || ParseGuidError { text: crate::options::quotable(text) };
        let digits = text.trim_ascii();
        let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(digits);
        let groups: Vec<&str> = digits.split(':').collect();
        let width = match groups.len() {
            1 => 16,
            4 => 4,
            8 => 2,
            _ => return Err(error()),
        };
        groups
            .into_iter()
            .try_fold(0u64, |guid, group| {
                let is_hex = group.bytes().all(|byte| byte.is_ascii_hexdigit());
                let fits = is_hex && (1..=width).contains(&group.len());
                let value = fits.then(|| u64::from_str_radix(group, 16).ok())??;
                Some(guid.checked_shl(4 * width as u32).unwrap_or(0) | value)
            })
            .map(Self)
            .ok_or_else(error)
    }
}

/// Everything that names a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chip and its board.
    pub chip: Chip,
    /// What the EEPROM says, or why it says nothing.
    pub flash: Result<Box<Flash>, EepromError>,
}

impl Identity {
    /// The node's GUID: the base GUID, or none.
    pub fn node_guid(&self) -> Guid {
        self.flash.as_ref().map_or(Guid::NONE, |flash| Guid(flash.base_guid))
    }

    /// The GUID of IB port `ib_port`, from 1.
    pub fn port_guid(&self, ib_port: u8) -> Guid {
        let guid = self.flash.as_ref().ok().and_then(|flash| flash.port_guid(ib_port));
        guid.map_or(Guid::NONE, Guid)
    }

    /// The serial number with its prefix; empty if there is none.
    pub fn serial(&self) -> &str {
        self.flash.as_ref().map_or("", |flash| flash.serial.as_str())
    }

    /// The type that tools list cards by: `InfiniPath_QLE7342`.
    pub fn hca_type(&self) -> String {
        format!("InfiniPath_{}", self.chip.board.name)
    }

    /// What is odd and yet no reason to leave the card alone, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.chip.board.is_known {
            remarks.push(format!("board number {} is unknown; two ports are assumed", self.chip.board.id));
        }
        if self.chip.is_first_silicon() {
            remarks.push("chip revision 1 needs work-arounds that this driver does not have".into());
        }
        match &self.flash {
            Err(error) => remarks.push(format!("no GUID: {error}")),
            Ok(flash) => remarks.extend(flash_remarks(flash.notes)),
        }
        remarks
    }
}

fn flash_remarks(notes: FlashNotes) -> impl Iterator<Item = String> {
    [
        (FlashNotes::OLD_LAYOUT, "the EEPROM has the old layout; its GUID was moved into place"),
        (FlashNotes::FACTORY_GUID, "the GUID is the factory's default: two such cards clash on one fabric"),
        (FlashNotes::FOREIGN_OUI, "the GUID is not one of the vendor's"),
        (FlashNotes::NOT_TESTED, "the EEPROM does not say that the board passed its test"),
    ]
    .into_iter()
    .filter(move |(note, _)| notes.contains(*note))
    .map(|(_, text)| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;
    use crate::eeprom::{EepromCause, tests::good_flash};
    use crate::twsi::TwsiError;
    use proptest::prelude::*;
    use qhca_regs::map::device::Revision;

    const GUID: Guid = Guid(0x0011_7500_005A_0001);

    /// B08: always 16 digits on output; long and short forms are the same GUID.
    #[test]
    fn guid_prints_sixteen_digits_and_reads_every_form() {
        assert_eq!(GUID.to_string(), "0x00117500005a0001");
        assert_eq!(GUID.in_groups(), "0011:7500:005a:0001");
        assert_eq!(Guid(1).to_string(), "0x0000000000000001");
        for form in [
            "0x00117500005a0001",
            "00117500005A0001",
            "0x117500005a0001",
            "117500005a0001",
            "0011:7500:005a:0001",
            "11:7500:5a:1",
            "00:11:75:00:00:5a:00:01",
            " 0X00117500005a0001 ",
        ] {
            assert_eq!(form.parse(), Ok(GUID), "{form}");
        }
    }

    #[test]
    fn what_is_no_guid_is_refused_with_the_forms_that_are() {
        for text in
            ["", "0x", "guid", "0x1ffffffffffffffff", "1:2", "::::", "-1", "+1", "0011:7500:005a:00011"]
        {
            let error = text.parse::<Guid>().expect_err(text);
            assert!(error.to_string().contains("16 hexadecimal digits"));
        }
        assert!(!Guid::NONE.is_valid() && !Guid(u64::MAX).is_valid() && GUID.is_valid());
    }

    fn identity(flash: Result<Box<Flash>, EepromError>) -> Identity {
        let revision = Revision(0x2_0201_0602);
        Identity { chip: Chip { board: Board::by_id(2), revision }, flash }
    }

    #[test]
    fn port_guids_count_from_the_base() {
        let flash = Flash::parse(&good_flash()).expect("good");
        let identity = identity(Ok(Box::new(flash)));
        assert_eq!(identity.node_guid(), GUID);
        assert_eq!((identity.port_guid(1), identity.port_guid(2)), (GUID, Guid(GUID.0 + 1)));
        assert_eq!(identity.port_guid(0), Guid::NONE);
        assert_eq!(identity.hca_type(), "InfiniPath_QLE7342");
        assert_eq!(identity.remarks(), Vec::<String>::new());
    }

    /// B06: a card without a GUID is flagged, not hidden.
    #[test]
    fn blank_card_is_flagged_and_has_no_guid() {
        let cause = EepromCause::Bus(TwsiError::DataStuck);
        let identity = identity(Err(EepromError { attempts: 4, cause }));
        assert_eq!((identity.node_guid(), identity.serial()), (Guid::NONE, ""));
        assert!(identity.remarks()[0].starts_with("no GUID: two-wire bus: SDA"));
    }

    proptest! {
        #[test]
        fn every_guid_reads_back_from_every_form_it_prints(raw: u64) {
            let guid = Guid(raw);
            prop_assert_eq!(guid.to_string().len(), 18);
            prop_assert_eq!(guid.to_string().parse(), Ok(guid));
            prop_assert_eq!(guid.in_groups().parse(), Ok(guid));
            prop_assert_eq!(format!("{raw:x}").parse(), Ok(guid));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}") {
            let _ = text.parse::<Guid>();
        }
    }
}
