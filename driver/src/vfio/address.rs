//! Where a function sits on the PCI buses of a machine.

use std::fmt;
use std::str::FromStr;

/// Domain, bus, device and function. Printed as the kernel does: `0000:04:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// The address with these parts; `None` for a device or function that no bus has.
    pub const fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        if device < 32 && function < 8 { Some(Self { domain, bus, device, function }) } else { None }
    }

    /// The bus.
    pub const fn bus(&self) -> u8 {
        self.bus
    }

    /// The domain.
    pub const fn domain(&self) -> u32 {
        self.domain
    }

    /// Device and function in one byte, as the kernel's structures have them.
    pub const fn devfn(&self) -> u8 {
        self.device << 3 | self.function
    }

    /// The address with device and function in one byte.
    pub const fn from_devfn(domain: u32, bus: u8, devfn: u8) -> Self {
        Self { domain, bus, device: devfn >> 3, function: devfn & 7 }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// Not a PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPciAddress;

impl fmt::Display for NotPciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a PCI address: write it as `lspci -D` does, 0000:04:00.0, or without the domain, 04:00.0",
        )
    }
}

impl std::error::Error for NotPciAddress {}

impl FromStr for PciAddress {
    type Err = NotPciAddress;

    /// With the domain, of four digits or up to eight, or without; digits above 9 in either case.
    fn from_str(text: &str) -> Result<Self, NotPciAddress> {
        parse(text).ok_or(NotPciAddress)
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = rest.split(':').take(4).collect();
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => ("0000", bus, device),
        _ => return None,
    };
    let hex = |digits: &str, widths: std::ops::RangeInclusive<usize>| {
        let plain = widths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let (domain, bus) = (hex(domain, 4..=8)?, hex(bus, 2..=2)? as u8);
    let (device, function) = (hex(device, 2..=2)? as u8, hex(function, 1..=1)? as u8);
    // A planted fault, for the proof that the fuzzer reaches this far: a function that no device has.
    #[cfg(canary)]
    let function = function & !8;
    PciAddress::new(domain, bus, device, function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn address_is_read_in_every_way_that_people_write_it() {
        for (text, shown) in [
            ("0000:04:00.0", "0000:04:00.0"),
            ("04:00.0", "0000:04:00.0"),
            ("ABCD:FF:1F.7", "abcd:ff:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
            ("00010000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().expect(text).to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            ".",
            ":",
            "::.",
            "0000:04:20.0",
            "0000:04:00.8",
            "4:0.0",
            "0000:04:00",
            "+4:00.0",
            "04:00.0 ",
            "0:04:00.0",
            "000000000:04:00.0",
            "0000:0000:04:00.0",
            "0000:04:00.0.0",
            "0000:g4:00.0",
            "vfio",
            "é4:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(NotPciAddress), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(domain: u32, bus: u8, devfn: u8) {
            let address = PciAddress::from_devfn(domain, bus, devfn);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            prop_assert_eq!(address.devfn(), devfn);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            if let Ok(address) = text.parse::<PciAddress>() {
                prop_assert!(address.devfn() >> 3 < 32);
            }
        }
    }
}
