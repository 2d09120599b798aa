//! The names of devices.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use qhca_driver::vfio::{PciAddress, VfioSettings};
use qhca_sim::chip::Board;

/// Where a device is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spec {
    /// A chip model in this process, on this board.
    Sim(Board),
    /// A device behind a vfio-user socket.
    VfioUser(PathBuf),
    /// A card of this machine, behind VFIO.
    Pci {
        /// Where it sits.
        address: PciAddress,
        /// How it is opened.
        settings: VfioSettings,
    },
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
    /// `vfio:` without an address.
    NotAnAddress {
        /// What was given.
        given: String,
    },
    /// What stands behind a card's address says nothing.
    NoSuchSetting {
        /// What was given.
        word: String,
    },
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
            Self::NotAnAddress { given } => {
                write!(f, "{given:?} is no PCI address: write it as `lspci -D` does, as in vfio:0000:04:00.0")
            }
            Self::NoSuchSetting { word } => {
                write!(f, "{word:?} says nothing about a card: valid are {}", VfioSettings::VALID)
            }
            Self::Unknown { spec } => write!(
                f,
                "{spec:?} names no device: valid are sim, sim:BOARD, vfio-user:PATH and a PCI address such as \
                 vfio:0000:04:00.0"
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
        match spec.strip_prefix("vfio:") {
            Some(card) => parse_card(card)?.ok_or_else(|| SpecError::NotAnAddress { given: card.to_owned() }),
            None => parse_card(spec)?.ok_or_else(|| SpecError::Unknown { spec: spec.to_owned() }),
        }
    }
}

/// `0000:04:00.0`, and behind it settings, each after a comma. `None` if it does not begin with an address.
fn parse_card(text: &str) -> Result<Option<Spec>, SpecError> {
    let mut words = text.split(',');
    let Some(address) = words.next().and_then(|address| address.parse().ok()) else { return Ok(None) };
    let mut settings = VfioSettings::default();
    for word in words {
        if !settings.set(word) {
            return Err(SpecError::NoSuchSetting { word: word.to_owned() });
        }
    }
    Ok(Some(Spec::Pci { address, settings }))
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sim(board) => write!(f, "sim:{}", board.name().to_ascii_lowercase()),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Pci { address, settings } => {
                write!(f, "vfio:{address}")?;
                settings.words().try_for_each(|word| write!(f, ",{word}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_is_parsed_and_printed_alike() {
        for spec in [
            "sim:qle7342",
            "sim:qle7340",
            "vfio-user:/run/chip.sock",
            "vfio:0000:04:00.0",
            "vfio:abcd:ff:1f.7,group,noiommu,intx,vectors=4",
        ] {
            let parsed: Spec = spec.parse().expect(spec);
            assert_eq!(parsed.to_string(), spec);
        }
        assert_eq!("sim".parse(), Ok(Spec::Sim(Board::Qle7342)));
        for short in ["0000:04:00.0", "04:00.0", "vfio:04:00.0"] {
            let spec = short.parse::<Spec>().map(|spec| spec.to_string());
            assert_eq!(spec, Ok("vfio:0000:04:00.0".to_owned()));
        }
        let upper = "vfio:ABCD:FF:1F.7,cdev".parse::<Spec>().map(|spec| spec.to_string());
        assert_eq!(upper, Ok("vfio:abcd:ff:1f.7,cdev".to_owned()));
    }

    #[test]
    fn name_that_names_nothing_is_refused_with_what_is_valid() {
        for spec in ["", "simulator", "0000:04:20.0", "0000:04:00.8", "4:0.0", "0000:04:00", "::.", "+4:00.0"]
        {
            let error = spec.parse::<Spec>().expect_err(spec);
            assert!(error.to_string().contains("0000:04:00.0"), "{error}");
        }
        for spec in ["vfio:", "vfio:0000:04:00", "vfio:,group", "vfio:/dev/vfio/1"] {
            assert!(matches!(spec.parse::<Spec>(), Err(SpecError::NotAnAddress { .. })), "{spec}");
        }
        for spec in ["04:00.0,", "vfio:04:00.0,,", "04:00.0,iommu", "04:00.0,vectors=0"] {
            let error = spec.parse::<Spec>().expect_err(spec);
            assert!(error.to_string().contains("noiommu"), "{error}");
        }
        assert!(matches!("sim:qle9999".parse::<Spec>(), Err(SpecError::NoSuchBoard { .. })));
        assert_eq!("vfio-user:".parse::<Spec>(), Err(SpecError::NoPath));
    }
}
