//! What a maker of cables writes into a QSFP module, and the module as something that can be plugged in.
//!
//! ```text
//!   byte 0 ............ 127   lower page: identifier, status, latched alarms, page select (127)
//!   byte 128 ........... 255  upper page 0: who made it, how long, which medium, two checksums
//!                             upper pages 1 to 3 on modules whose memory is not flat
//! ```
//!
//! The layout of upper page 0 is that of HARDWARE.md 7.7; the rest of the lower page and what the page select does are
//! from the public module standard SFF 8436 (F-460).

use qhca_regs::Duration;

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 128;
/// Upper pages of a module whose memory is not flat.
pub(super) const PAGES: usize = 4;
/// Where a page select is written on modules that have pages.
pub(super) const PAGE_SELECT: u8 = 127;

/// Places in the 256 bytes that are visible while page 0 is selected.
mod at {
    pub(super) const IDENTIFIER: usize = 0;
    pub(super) const STATUS: usize = 2;
    pub(super) const UPPER_IDENTIFIER: usize = 128;
    pub(super) const POWER: usize = 129;
    pub(super) const CONNECTOR: usize = 130;
    pub(super) const ENCODING: usize = 139;
    pub(super) const RATE: usize = 140;
    pub(super) const LENGTH_M: usize = 146;
    pub(super) const TECHNOLOGY: usize = 147;
    pub(super) const VENDOR: usize = 148;
    pub(super) const SPEEDS: usize = 164;
    pub(super) const OUI: usize = 165;
    pub(super) const PART: usize = 168;
    pub(super) const REVISION: usize = 184;
    pub(super) const ATTENUATION: usize = 186;
    pub(super) const CASE_CELSIUS: usize = 190;
    pub(super) const CC_BASE: usize = 191;
    pub(super) const SERIAL: usize = 196;
    pub(super) const MADE_ON: usize = 212;
    pub(super) const LOT: usize = 218;
    pub(super) const CC_EXT: usize = 223;
}

/// Byte 2, bit 2: there is only one upper page.
const FLAT: u8 = 1 << 2;
/// QSFP+; 0x0C is QSFP.
const QSFP_PLUS: u8 = 0x0D;

/// The medium, as byte 147 codes it in its upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Technology {
    /// Light of 850 nm.
    Vcsel850 = 0x0,
    /// Light of 1310 nm.
    Fp1310 = 0x3,
    /// Copper without equaliser.
    CopperPassive = 0xA,
    /// Copper with an equaliser in the plug.
    CopperEqualised = 0xB,
    /// Copper with equalisers at both ends.
    CopperActive = 0xD,
    /// Copper with an equaliser at the far end.
    CopperFar = 0xE,
    /// Copper with an equaliser at the near end.
    CopperNear = 0xF,
}

/// What a module says of itself. `Description::default()` is 3 m of passive copper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Only one upper page.
    pub flat: bool,
    /// 0 to 3: 1.5, 2.0, 2.5 and 3.5 W.
    pub power_class: u8,
    /// Length in metres, of copper.
    pub length_m: u8,
    /// The medium.
    pub technology: Technology,
    /// Maker; cut to 16 bytes.
    pub vendor: String,
    /// The maker's OUI.
    pub oui: [u8; 3],
    /// Part number; cut to 16 bytes.
    pub part: String,
    /// Revision; cut to 2 bytes.
    pub revision: String,
    /// InfiniBand speeds: SDR 1, DDR 2, QDR 4.
    pub speeds: u8,
    /// Attenuation in dB at the signal rates of SDR and DDR, of copper.
    pub attenuation_db: [u8; 2],
    /// Serial number; cut to 16 bytes.
    pub serial: String,
    /// YYMMDD.
    pub made_on: String,
    /// Lot; cut to 2 bytes.
    pub lot: String,
}

impl Default for Description {
    fn default() -> Self {
        Self {
            flat: true,
            power_class: 0,
            length_m: 3,
            technology: Technology::CopperPassive,
            vendor: "QHCA Model".to_owned(),
            oui: [0x02, 0x51, 0x48],
            part: "QSFP-CU-3M".to_owned(),
            revision: "A1".to_owned(),
            speeds: 7,
            attenuation_db: [4, 6],
            serial: "QHCACABLE0001".to_owned(),
            made_on: "100104".to_owned(),
            lot: String::new(),
        }
    }
}

/// A module that can sit in a cage. `Module::default()` is 3 m of passive copper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Lower page and upper page 0.
    pub(super) image: [u8; 2 * PAGE_BYTES],
    pub(super) wakes_after: Duration,
    pub(super) mute: bool,
}

impl Default for Module {
    fn default() -> Self {
        Self::new(&Description::default())
    }
}

impl Module {
    /// A module that says `description` of itself, with right checksums.
    pub fn new(description: &Description) -> Self {
        let mut image = [0; 2 * PAGE_BYTES];
        let fixed = [
            (at::IDENTIFIER, QSFP_PLUS),
            (at::STATUS, if description.flat { FLAT } else { 0 }),
            (at::UPPER_IDENTIFIER, QSFP_PLUS),
            (at::POWER, description.power_class << 6),
            (at::CONNECTOR, 0x23), // no separable connector
            (at::ENCODING, 0x01),  // 8b/10b
            (at::RATE, 100),       // in 100 Mb/s, a lane
            (at::LENGTH_M, description.length_m),
            (at::TECHNOLOGY, (description.technology as u8) << 4),
            (at::SPEEDS, description.speeds),
            (at::CASE_CELSIUS, 70),
        ];
        fixed.iter().for_each(|&(place, byte)| image[place] = byte);
        image[at::OUI..][..3].copy_from_slice(&description.oui);
        image[at::ATTENUATION..][..2].copy_from_slice(&description.attenuation_db);
        let texts = [
            (at::VENDOR, 16, &description.vendor),
            (at::PART, 16, &description.part),
            (at::REVISION, 2, &description.revision),
            (at::SERIAL, 16, &description.serial),
            (at::MADE_ON, 6, &description.made_on),
            (at::LOT, 2, &description.lot),
        ];
        for (place, len, text) in texts {
            let padded = text.bytes().chain(std::iter::repeat(b' '));
            image[place..place + len].iter_mut().zip(padded).for_each(|(to, byte)| *to = byte);
        }
        let mut module = Self { image, wakes_after: Duration::ZERO, mute: false };
        module.image[at::CC_BASE] = module.sum(at::UPPER_IDENTIFIER..at::CC_BASE);
        module.image[at::CC_EXT] = module.sum(at::CC_BASE + 1..at::CC_EXT);
        module
    }

    /// A module with these bytes: lower page, then upper page 0. Nothing is checked.
    pub fn from_image(image: [u8; 2 * PAGE_BYTES]) -> Self {
        Self { image, wakes_after: Duration::ZERO, mute: false }
    }

    /// The same with another serial number, of at most 16 bytes, and its checksum.
    #[must_use]
    pub fn with_serial(mut self, serial: &str) -> Self {
        let padded = serial.bytes().chain(std::iter::repeat(b' '));
        self.image[at::SERIAL..][..16].iter_mut().zip(padded).for_each(|(to, byte)| *to = byte);
        self.image[at::CC_EXT] = self.sum(at::CC_BASE + 1..at::CC_EXT);
        self
    }

    /// The same with another byte at one place; checksums stay as they are.
    #[must_use]
    pub fn with_byte(mut self, place: u8, byte: u8) -> Self {
        self.image[usize::from(place)] = byte;
        self
    }

    /// The same, but it does not answer for `span` after it was plugged in or reset.
    #[must_use]
    pub fn waking_after(mut self, span: Duration) -> Self {
        self.wakes_after = span;
        self
    }

    /// The same, but its memory never answers.
    #[must_use]
    pub fn mute(mut self) -> Self {
        self.mute = true;
        self
    }

    /// Lower page and upper page 0.
    pub fn image(&self) -> &[u8; 2 * PAGE_BYTES] {
        &self.image
    }

    /// Whether there is only one upper page.
    pub fn is_flat(&self) -> bool {
        self.image[at::STATUS] & FLAT != 0
    }

    fn sum(&self, places: std::ops::Range<usize>) -> u8 {
        self.image[places].iter().fold(0, |sum, &byte| sum.wrapping_add(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// B11: the places of every field, written out by hand.
    #[test]
    fn golden_module_has_every_field_at_its_place() {
        let description = Description {
            vendor: "ABCDEFGHIJKLMNOPQ".to_owned(),
            part: "part".to_owned(),
            lot: "Z".to_owned(),
            power_class: 3,
            ..Description::default()
        };
        let image = *Module::new(&description).image();
        assert_eq!((image[0], image[2], image[128], image[129]), (0x0D, 4, 0x0D, 0xC0));
        assert_eq!((image[146], image[147], image[164]), (3, 0xA0, 7));
        assert_eq!(&image[148..164], b"ABCDEFGHIJKLMNOP");
        assert_eq!(&image[165..168], &[0x02, 0x51, 0x48]);
        assert_eq!(&image[168..184], b"part            ");
        assert_eq!((&image[184..186], &image[186..188]), (&b"A1"[..], &[4, 6][..]));
        assert_eq!(&image[196..212], b"QHCACABLE0001   ");
        assert_eq!((&image[212..218], &image[218..220]), (&b"100104"[..], &b"Z "[..]));
    }

    proptest! {
        #[test]
        fn checksums_hold_whatever_the_module_says(
            flat: bool, power_class in 0..4u8, length_m: u8, vendor in ".{0,20}", serial in ".{0,20}",
            attenuation_db: [u8; 2],
        ) {
            let description =
                Description { flat, power_class, length_m, vendor, attenuation_db, ..Description::default() };
            let image = *Module::new(&description).with_serial(&serial).image();
            let sum = |range: std::ops::Range<usize>| image[range].iter().map(|&b| u32::from(b)).sum::<u32>() as u8;
            prop_assert_eq!(sum(128..191), image[191]);
            prop_assert_eq!(sum(192..223), image[223]);
        }
    }
}
