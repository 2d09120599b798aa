//! Where a PCI function sits: domain, bus, device, function.
//!
//! People type `04:00.0`, `0000:04:00.0` or what another tool printed in capitals; the kernel's files know one form
//! only. Here every form is read, and one is printed.

use std::fmt;
use std::str::FromStr;

/// A PCI function's place. Domains above 16 bits exist: some hosts put functions behind storage controllers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Bdf {
    /// The place without its function, as the kernel writes a slot's address.
    pub(crate) fn slot(self) -> String {
        format!("{:04x}:{:02x}:{:02x}", self.domain, self.bus, self.device)
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// Why a text is no PCI function's place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BdfError {
    /// It has not the shape.
    Shape {
        /// What was given, cut to a readable length.
        text: String,
    },
    /// A part of it is larger than PCI has.
    Range {
        /// What was given.
        text: String,
        /// The part.
        part: &'static str,
        /// Its largest value.
        most: u32,
    },
}

impl fmt::Display for BdfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { text } => {
                write!(f, "{text:?} is no PCI address; one looks like 0000:04:00.0 or 04:00.0")
            }
            Self::Range { text, part, most } => {
                write!(f, "{text:?} is no PCI address: its {part} is above {most:#x}")
            }
        }
    }
}

impl std::error::Error for BdfError {}

/// Most characters of a wrong address that a message repeats.
const SHOWN_CHARS: usize = 40;

impl FromStr for Bdf {
    type Err = BdfError;

    fn from_str(text: &str) -> Result<Self, BdfError> {
        let shown = || text.chars().take(SHOWN_CHARS).collect::<String>();
        let shape = || BdfError::Shape { text: shown() };
        let (rest, function) = text.rsplit_once('.').ok_or_else(shape)?;
        let parts: Vec<&str> = rest.split(':').collect();
        let (domain, bus, device) = match parts[..] {
            [domain, bus, device] => (hex(domain, 4, 8), bus, device),
            [bus, device] => (Some(0), bus, device),
            _ => return Err(shape()),
        };
        let domain = domain.ok_or_else(shape)?;
        let bus = hex(bus, 1, 2).ok_or_else(shape)?;
        let device = hex(device, 1, 2).ok_or_else(shape)?;
        let function = hex(function, 1, 1).ok_or_else(shape)?;
        for (part, value, most) in [("device", device, 0x1f), ("function", function, 7)] {
            if value > most {
                return Err(BdfError::Range { text: shown(), part, most });
            }
        }
        Ok(Self { domain, bus: bus as u8, device: device as u8, function: function as u8 })
    }
}

/// Hex digits and nothing else, this many of them.
fn hex(digits: &str, least: usize, most: usize) -> Option<u32> {
    let fits = (least..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_that_people_type_names_the_same_function() {
        for text in ["0000:04:00.0", "04:00.0", "4:0.0", "00000000:04:00.0"] {
            assert_eq!(
                text.parse::<Bdf>().map(|bdf| bdf.to_string()),
                Ok("0000:04:00.0".to_owned()),
                "{text}"
            );
        }
        assert_eq!("ABCD:FF:1F.7".parse::<Bdf>().map(|b| b.to_string()), Ok("abcd:ff:1f.7".to_owned()));
        assert_eq!("10000:01:00.0".parse::<Bdf>().map(|b| b.to_string()), Ok("10000:01:00.0".to_owned()));
    }

    #[test]
    fn wrong_address_is_refused_with_the_part_that_is_wrong() {
        for text in [
            "",
            ".",
            "::.",
            "04:00",
            "04:00.",
            "0:04:00.0",
            "04.00.0",
            "+4:00.0",
            "04:00.0 ",
            "qib0",
            "000000000:04:00.0",
        ] {
            assert!(matches!(text.parse::<Bdf>(), Err(BdfError::Shape { .. })), "{text:?}");
        }
        let error = "0000:04:20.0".parse::<Bdf>().expect_err("device 0x20");
        assert!(error.to_string().contains("device is above 0x1f"), "{error}");
        let error = "0000:04:00.8".parse::<Bdf>().expect_err("function 8");
        assert!(error.to_string().contains("function is above 0x7"), "{error}");
        let long = "x".repeat(10_000).parse::<Bdf>().expect_err("a long text");
        assert!(long.to_string().len() < 200, "a message that can be read");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(domain in any::<u32>(), bus in any::<u8>(), device in 0_u8..32, function in 0_u8..8) {
            let bdf = Bdf { domain, bus, device, function };
            prop_assert_eq!(bdf.to_string().parse::<Bdf>(), Ok(bdf));
            prop_assert_eq!(bdf.to_string().to_uppercase().parse::<Bdf>(), Ok(bdf));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}|[0-9a-fA-F:.]{0,16}") {
            if let Ok(bdf) = text.parse::<Bdf>() {
                prop_assert_eq!(bdf.to_string().parse::<Bdf>(), Ok(bdf));
            }
        }
    }
}
