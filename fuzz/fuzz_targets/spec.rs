//! Names of devices and ports: what is taken reads back and lies in range, what is refused says what would be right.
//!
//! Input: one byte that says device or port, then the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca::{PciAddress, Spec};
use qhca_driver::link::address::PortAddress;
use qhca_fuzz::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let is_port = bytes.u8() & 1 == 1;
    let text = String::from_utf8_lossy(bytes.rest());
    match is_port {
        true => check_port(&text),
        false => check_spec(&text),
    }
});

fn check_spec(text: &str) {
    match text.parse::<Spec>() {
        Ok(spec) => {
            assert_eq!(spec.to_string().parse(), Ok(spec.clone()), "{text:?}");
            if let Spec::Pci { address, .. } = spec {
                check_pci(text, address);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A PCI address is hex digits in the places of its form, in the ranges of the bus; the domain may be left out.
fn check_pci(text: &str, address: PciAddress) {
    let card = text.strip_prefix("vfio:").unwrap_or(text);
    let place = card.split(',').next().unwrap_or_default();
    let (domain, rest) = match place.len() {
        7 => ("0", place),
        _ => place.split_once(':').expect("a domain"),
    };
    let domain = u32::from_str_radix(domain, 16).expect("hex digits");
    assert_eq!(address.to_string(), format!("{domain:04x}:{}", rest.to_ascii_lowercase()), "{text:?}");
    let bytes = rest.as_bytes();
    assert_eq!((bytes.len(), bytes[2], bytes[5]), (7, b':', b'.'));
    let device = u8::from_str_radix(&rest[3..5], 16).expect("two digits");
    assert!(device < 32 && (b'0'..=b'7').contains(&bytes[6]), "{text:?}");
}

fn check_port(text: &str) {
    match text.parse::<PortAddress>() {
        Ok(address) => {
            assert!((1..=2).contains(&address.ib_port) && !address.device.is_empty());
            assert_eq!(address.to_string(), text.trim_ascii(), "one way to write each");
        }
        Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error}"),
    }
}
