//! Which board carries the chip, from the chip's first register.
//!
//! `Revision` holds the chip's revision, the number of its software interface, and the board number that straps on
//! the board set. Boards differ in ports, speeds and cable sockets:
//!
//! | number | board | ports | sockets |
//! |---|---|---|---|
//! | 1 | QLE7340 | one | QSFP |
//! | 2 | QLE7342 | two | QSFP |
//! | 3, 5, 6 | QMI7342, QME7342, QMH7342 | two, mezzanine | none |
//!
//! Source: F-111, F-112.

use crate::options::Options;
use crate::ports::Ports;
use core::fmt;
use qhca_regs::map::device::Revision;
use qhca_regs::{GONE, RegValue};

/// Software interface that this driver speaks (F-111).
pub const SOFTWARE_ABI: u8 = 2;

/// One kind of board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// The number in `Revision`.
    pub id: u8,
    /// The name on the box.
    pub name: &'static str,
    /// Its ports and their speeds.
    pub ports: Ports,
    /// Whether cables plug into QSFP sockets, whose presence is read from GPIO pins.
    pub has_qsfp: bool,
    /// Whether the number is in the list; an unknown board is taken to have two ports and no sockets.
    pub is_known: bool,
}

const fn board(id: u8, name: &'static str, speed_mask: u8, has_qsfp: bool) -> Board {
    Board { id, name, ports: Ports::from_speed_mask(speed_mask), has_qsfp, is_known: true }
}

/// The boards that are known, by number (F-112).
pub const BOARDS: [Board; 10] = [
    board(0, "QLE7342_Emulation", 0x3F, false),
    board(1, "QLE7340", 0x07, true),
    board(2, "QLE7342", 0x3F, true),
    board(3, "QMI7342", 0x3F, false),
    board(4, "unsupported mezzanine", 0x00, false),
    board(5, "QME7342", 0x3F, false),
    board(6, "QMH7342", 0x24, false),
    board(8, "QME7362", 0x3F, true),
    board(9, "QMH7360", 0x3F, true),
    board(15, "QLE7342_Test", 0x3F, true),
];

impl Board {
    /// The board with number `id`.
    pub fn by_id(id: u8) -> Self {
        let known = BOARDS.iter().find(|board| board.id == id).copied();
        known.unwrap_or(Self { id, is_known: false, ..board(id, "unknown board", 0x3F, false) })
    }

    /// The ports that remain once the options have been heard.
    pub fn ports_used(&self, options: &Options) -> Ports {
        if options.singleport { self.ports.first_only() } else { self.ports }
    }
}

/// The chip, as its first register describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// The board.
    pub board: Board,
    /// The register, whole.
    pub revision: Revision,
}

/// Why a device is not one that this driver can bring up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentifyError {
    /// Reads give all ones: no device answers.
    Gone,
    /// The chip's software interface is another one.
    Abi {
        /// The number it reports.
        found: u8,
    },
    /// The board has no port, or none is left by the options.
    NoPorts {
        /// The board.
        name: &'static str,
    },
}

impl fmt::Display for IdentifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str(
                "Revision reads all ones: no device answers. Check that the card is seated, powered and its memory \
                 decode is on",
            ),
            Self::Abi { found } => write!(
                f,
                "Revision reports software interface {found}; this driver speaks {SOFTWARE_ABI}: another chip, or a misread"
            ),
            Self::NoPorts { name } => write!(f, "board {name} leaves no port to bring up"),
        }
    }
}

impl std::error::Error for IdentifyError {}

impl Chip {
    /// Judges what `Revision` reads.
    ///
    /// # Errors
    /// [`IdentifyError`]: leave the device alone.
    pub fn from_revision(revision: Revision) -> Result<Self, IdentifyError> {
        let low = revision.raw() as u32;
        if revision.raw() == GONE || low == u32::MAX {
            return Err(IdentifyError::Gone);
        }
        if revision.sw() != SOFTWARE_ABI {
            return Err(IdentifyError::Abi { found: revision.sw() });
        }
        let board = Board::by_id(revision.board_id());
        match board.ports.is_empty() {
            true => Err(IdentifyError::NoPorts { name: board.name }),
            false => Ok(Self { board, revision }),
        }
    }

    /// Hardware revision as tools print it: the chip's minor revision.
    pub fn hw_rev(&self) -> u8 {
        self.revision.chip_rev_minor()
    }

    /// Whether this is the first silicon, whose work-arounds this driver does not carry (F-113).
    pub fn is_first_silicon(&self) -> bool {
        self.revision.chip_rev_minor() == 1
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { board, revision } = self;
        write!(
            f,
            "{} (board {}), chip {}.{}, architecture {}, interface {}",
            board.name,
            board.id,
            revision.chip_rev_major(),
            revision.chip_rev_minor(),
            revision.arch(),
            revision.sw()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qhca_regs::Port;

    fn chip(board: u64) -> Result<Chip, IdentifyError> {
        Chip::from_revision(Revision(0x0201_0602 | board << 32))
    }

    #[test]
    fn production_cards_are_recognised_by_board_number() {
        let one = chip(1).expect("QLE7340");
        assert_eq!((one.board.name, one.board.ports.count(), one.hw_rev()), ("QLE7340", 1, 2));
        assert!(one.board.ports.has(Port::P0) && one.board.has_qsfp);
        let two = chip(2).expect("QLE7342");
        assert_eq!((two.board.name, two.board.ports.count()), ("QLE7342", 2));
    }

    #[test]
    fn all_ones_is_no_device() {
        assert_eq!(Chip::from_revision(Revision(u64::MAX)), Err(IdentifyError::Gone));
        assert_eq!(Chip::from_revision(Revision(0xFFFF_FFFF)), Err(IdentifyError::Gone));
    }

    #[test]
    fn foreign_interface_and_portless_board_are_refused() {
        assert_eq!(Chip::from_revision(Revision(0x0301_0602)), Err(IdentifyError::Abi { found: 3 }));
        assert_eq!(Chip::from_revision(Revision(0)), Err(IdentifyError::Abi { found: 0 }));
        assert!(matches!(chip(4), Err(IdentifyError::NoPorts { .. })));
    }

    #[test]
    fn unknown_board_is_taken_to_have_two_ports_and_says_so() {
        let odd = chip(200).expect("still usable");
        assert!(!odd.board.is_known);
        assert_eq!(odd.board.ports.count(), 2);
    }

    #[test]
    fn singleport_leaves_hardware_port_0() {
        let options = Options { singleport: true, ..Options::default() };
        assert_eq!(Board::by_id(2).ports_used(&options).iter().collect::<Vec<_>>(), [Port::P0]);
    }
}
