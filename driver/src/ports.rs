//! Which of the chip's two ports are there, and how fast each may go.
//!
//! The chip always has two hardware ports; a board, or the option `singleport`, may leave one out. People count IB
//! ports from 1 among those that are there, so on a board whose only port is hardware port 1 that port is IB port 1.
//! [`Ports`] does this count in one place.
//!
//! Source: F-110.

use core::fmt;
use qhca_regs::Port;

bitflags::bitflags! {
    /// Speeds of one port, as the board table and the chip's feature masks code them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Speeds: u8 {
        /// 2.5 Gb/s a lane.
        const SDR = 1;
        /// 5 Gb/s a lane.
        const DDR = 1 << 1;
        /// 10 Gb/s a lane.
        const QDR = 1 << 2;
    }
}

impl Speeds {
    /// Whether more than one speed is on, so that the link negotiates.
    pub const fn are_several(self) -> bool {
        self.bits().count_ones() > 1
    }
}

impl fmt::Display for Speeds {
    /// `SDR/DDR/QDR`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        bitflags::parser::to_writer(self, Slashes(f))
    }
}

/// Turns the flag formatter's ` | ` into `/`.
struct Slashes<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Slashes<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(if text == " | " { "/" } else { text })
    }
}

/// The ports in use, at least one of them unless [`is_empty`](Ports::is_empty).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    speeds: [Speeds; 2],
}

impl Ports {
    /// From a mask as boards are described by: port 0 in bits 2:0, port 1 in bits 5:3. A port without speed is absent.
    pub const fn from_speed_mask(mask: u8) -> Self {
        Self { speeds: [Speeds::from_bits_truncate(mask & 7), Speeds::from_bits_truncate(mask >> 3 & 7)] }
    }

    /// The same ports without hardware port 1.
    #[must_use]
    pub const fn first_only(self) -> Self {
        Self { speeds: [self.speeds[0], Speeds::empty()] }
    }

    /// Whether there is no port at all.
    pub const fn is_empty(self) -> bool {
        self.count() == 0
    }

    /// How many ports are in use.
    pub const fn count(self) -> usize {
        self.has(Port::P0) as usize + self.has(Port::P1) as usize
    }

    /// Whether `port` is in use.
    pub const fn has(self, port: Port) -> bool {
        !self.speeds(port).is_empty()
    }

    /// The speeds of `port`; none if it is absent.
    pub const fn speeds(self, port: Port) -> Speeds {
        self.speeds[port.index()]
    }

    /// The ports in use, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Port> + Clone {
        Port::ALL.into_iter().filter(move |&port| self.has(port))
    }

    /// The number that people and the fabric use for `port`: 1 for the first one in use. `None` if it is absent.
    pub fn ib_number(self, port: Port) -> Option<u8> {
        let rank = self.iter().position(|other| other == port)?;
        Some(rank as u8 + 1)
    }

    /// The hardware port that IB port `number` stands for.
    pub fn by_ib_number(self, number: u8) -> Option<Port> {
        self.iter().nth(usize::from(number).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ib_numbers_count_ports_in_use_only() {
        let second_only = Ports::from_speed_mask(0x20);
        assert_eq!(second_only.ib_number(Port::P1), Some(1));
        assert_eq!(second_only.ib_number(Port::P0), None);
        assert_eq!(second_only.by_ib_number(1), Some(Port::P1));
        assert_eq!(second_only.by_ib_number(0), None);
        assert_eq!(second_only.by_ib_number(2), None);
        let both = Ports::from_speed_mask(0x3F);
        assert_eq!((both.count(), both.by_ib_number(2)), (2, Some(Port::P1)));
        assert_eq!(both.first_only().count(), 1);
        assert!(Ports::from_speed_mask(0).is_empty());
    }

    #[test]
    fn speeds_print_as_people_write_them() {
        assert_eq!(Speeds::all().to_string(), "SDR/DDR/QDR");
        assert_eq!(Speeds::QDR.to_string(), "QDR");
        assert_eq!(Speeds::empty().to_string(), "none");
        assert!(!Speeds::QDR.are_several() && Speeds::all().are_several());
    }
}
