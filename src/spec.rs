//! The names of devices.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use qhca_sim::chip::Board;

/// Where a device is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spec {
    /// A chip model in this process, on this board.
    Sim(Board),
    /// A device behind a vfio-user socket.
    VfioUser(PathBuf),
    /// A card of this machine.
    Pci(PciAddress),
}

/// Domain, bus, device and function of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// A name that names no device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// There is no model of this board.
    NoSuchBoard {
        /// What was asked for.
        board: String,
    },
    /// `vfio-user:` without a path.
    NoPath,
    /// Neither a word that is known nor a PCI address.
    Unknown {
        /// What was given.
        spec: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchBoard { board } => {
                write!(
                    f,
                    "no model of board {board:?}: sim:qle7340 (one port) and sim:qle7342 (two) are there"
                )
            }
            Self::NoPath => {
                f.write_str("vfio-user: needs the path of a socket, as in vfio-user:/run/chip.sock")
            }
            Self::Unknown { spec } => write!(
                f,
                "{spec:?} names no device: valid are sim, sim:BOARD, vfio-user:PATH and a PCI address such as 0000:04:00.0"
            ),
        }
    }
}

impl std::error::Error for SpecError {}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        if spec == "sim" {
            return Ok(Self::Sim(Board::Qle7342));
        }
        if let Some(board) = spec.strip_prefix("sim:") {
            let known = Board::from_name(board);
            return known.map(Self::Sim).ok_or_else(|| SpecError::NoSuchBoard { board: board.to_owned() });
        }
        if let Some(path) = spec.strip_prefix("vfio-user:") {
            return if path.is_empty() { Err(SpecError::NoPath) } else { Ok(Self::VfioUser(path.into())) };
        }
        parse_pci(spec).map(Self::Pci).ok_or_else(|| SpecError::Unknown { spec: spec.to_owned() })
    }
}

/// `0000:04:00.0`, or without the domain.
fn parse_pci(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => ("0000", bus, device),
        _ => return None,
    };
    let hex = |digits: &str, width: usize| {
        let plain = digits.len() == width && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u16::from_str_radix(digits, 16).ok())?
    };
    let address = PciAddress {
        domain: hex(domain, 4)?,
        bus: hex(bus, 2)? as u8,
        device: hex(device, 2)? as u8,
        function: hex(function, 1)? as u8,
    };
    // A planted fault, for the proof that the fuzzer reaches this far: a function that no device has.
    #[cfg(canary)]
    let address = PciAddress { function: address.function & !8, ..address };
    (address.device < 32 && address.function < 8).then_some(address)
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sim(board) => write!(f, "sim:{}", board.name().to_ascii_lowercase()),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Pci(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_is_parsed_and_printed_alike() {
        for spec in ["sim:qle7342", "sim:qle7340", "vfio-user:/run/chip.sock", "0000:04:00.0", "abcd:ff:1f.7"]
        {
            let parsed: Spec = spec.parse().expect(spec);
            assert_eq!(parsed.to_string(), spec);
        }
        assert_eq!("sim".parse(), Ok(Spec::Sim(Board::Qle7342)));
        assert_eq!("04:00.0".parse::<Spec>().map(|spec| spec.to_string()), Ok("0000:04:00.0".to_owned()));
    }

    #[test]
    fn name_that_names_nothing_is_refused_with_what_is_valid() {
        for spec in ["", "simulator", "0000:04:20.0", "0000:04:00.8", "4:0.0", "0000:04:00", "::.", "+4:00.0"]
        {
            let error = spec.parse::<Spec>().expect_err(spec);
            assert!(error.to_string().contains("0000:04:00.0"), "{error}");
        }
        assert!(matches!("sim:qle9999".parse::<Spec>(), Err(SpecError::NoSuchBoard { .. })));
        assert_eq!("vfio-user:".parse::<Spec>(), Err(SpecError::NoPath));
    }
}
