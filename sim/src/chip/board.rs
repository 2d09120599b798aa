//! The boards that carry the chip, as the identity registers tell them apart.

/// A board with a 7322 on it; `Revision.BoardID` names it (F-300).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Board {
    /// An emulation of the two-port card.
    Qle7342Emulation,
    /// The one-port PCIe card.
    Qle7340,
    /// The two-port PCIe card.
    #[default]
    Qle7342,
    /// A two-port mezzanine.
    Qmi7342,
    /// A mezzanine without usable ports.
    UnsupportedMezzanine,
    /// A two-port mezzanine.
    Qme7342,
    /// A two-port mezzanine that only knows QDR.
    Qmh7342,
    /// A two-port mezzanine with QSFP cages.
    Qme7362,
    /// A card of the last generation, QSFP.
    Qmh7360,
    /// The two-port card, test version.
    Qle7342Test,
}

struct Facts {
    board: Board,
    id: u8,
    name: &'static str,
    /// Port 1 in bits 5:3, port 0 in bits 2:0; SDR 1, DDR 2, QDR 4.
    speeds: u8,
    qsfp: bool,
}

const fn facts(board: Board, id: u8, name: &'static str, speeds: u8, qsfp: bool) -> Facts {
    Facts { board, id, name, speeds, qsfp }
}

const TABLE: [Facts; 10] = [
    facts(Board::Qle7342Emulation, 0, "QLE7342 emulation", 0x3F, false),
    facts(Board::Qle7340, 1, "QLE7340", 0x07, true),
    facts(Board::Qle7342, 2, "QLE7342", 0x3F, true),
    facts(Board::Qmi7342, 3, "QMI7342", 0x3F, false),
    facts(Board::UnsupportedMezzanine, 4, "unsupported mezzanine", 0x00, false),
    facts(Board::Qme7342, 5, "QME7342", 0x3F, false),
    facts(Board::Qmh7342, 6, "QMH7342", 0x24, false),
    facts(Board::Qme7362, 8, "QME7362", 0x3F, true),
    facts(Board::Qmh7360, 9, "QMH7360", 0x3F, true),
    facts(Board::Qle7342Test, 15, "QLE7342 test", 0x3F, true),
];

impl Board {
    /// Every board, by identity.
    pub const ALL: [Self; 10] = [
        Self::Qle7342Emulation,
        Self::Qle7340,
        Self::Qle7342,
        Self::Qmi7342,
        Self::UnsupportedMezzanine,
        Self::Qme7342,
        Self::Qmh7342,
        Self::Qme7362,
        Self::Qmh7360,
        Self::Qle7342Test,
    ];

    fn facts(self) -> &'static Facts {
        // PANIC: the table has one row a variant; `every_board_has_one_row` holds it to that.
        TABLE.iter().find(|row| row.board == self).expect("one row a board")
    }

    /// `Revision.BoardID`.
    pub fn id(self) -> u8 {
        self.facts().id
    }

    /// The board's name.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The board called `name`, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.board)
    }

    /// Speeds of hardware port `port`: SDR 1, DDR 2, QDR 4; zero if the port is not brought out.
    pub fn speeds(self, port: qhca_regs::Port) -> u8 {
        self.facts().speeds >> (3 * port.index()) & 7
    }

    /// `active_feature_mask`: the speeds of both ports.
    pub fn feature_mask(self) -> u8 {
        self.facts().speeds
    }

    /// Whether the ports end in QSFP cages, whose module pins hang on the GPIO.
    pub fn has_qsfp(self) -> bool {
        self.facts().qsfp
    }

    /// Whether hardware port `port` ends in a QSFP cage.
    pub fn has_cage(self, port: qhca_regs::Port) -> bool {
        self.has_qsfp() && self.speeds(port) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qhca_regs::Port;

    #[test]
    fn every_board_has_one_row() {
        for board in Board::ALL {
            assert_eq!(TABLE.iter().filter(|row| row.board == board).count(), 1, "{board:?}");
            assert_eq!(TABLE.iter().filter(|row| row.id == board.id()).count(), 1, "{board:?}");
        }
    }

    #[test]
    fn one_port_card_has_no_speed_on_its_second_port() {
        assert_eq!(Board::Qle7340.speeds(Port::P0), 7);
        assert_eq!(Board::Qle7340.speeds(Port::P1), 0);
        assert_eq!(Board::from_name("qle7340"), Some(Board::Qle7340));
    }
}
