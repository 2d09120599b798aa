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
            if let Spec::Pci(address) = spec {
                check_pci(text, address);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A PCI address is hex digits in the places of its form, in the ranges of the bus; the domain may be left out.
fn check_pci(text: &str, address: PciAddress) {
    let full = if text.len() == 7 { format!("0000:{text}") } else { text.to_owned() };
    assert_eq!(address.to_string(), full.to_ascii_lowercase(), "{text:?}");
    let bytes = full.as_bytes();
    assert_eq!((bytes.len(), bytes[4], bytes[7], bytes[10]), (12, b':', b':', b'.'));
    let device = u8::from_str_radix(&full[8..10], 16).expect("two digits");
    assert!(device < 32 && (b'0'..=b'7').contains(&bytes[11]), "{text:?}");
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
