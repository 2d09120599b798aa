//! The PCI Express link of a function, and what the slot above it could give.
//!
//! A link has a speed in gigatransfers a second and a number of lanes. Both ends say what they can do; what runs is
//! the lesser, or less if a lane is bad or the slot is wired for fewer. A file may be missing or say `Unknown`: then
//! the fact is unknown, and no number stands in for it.

use crate::bdf::Bdf;
use crate::read::{Fact, Reader, Unread};
use std::fmt;

/// A link's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed {
    /// Tenths of a gigatransfer a second and lane.
    pub tenth_gts: u32,
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} GT/s", self.tenth_gts / 10, self.tenth_gts % 10)
    }
}

/// What a function says of its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The speed that runs.
    pub speed: Fact<Speed>,
    /// The lanes that run.
    pub width: Fact<u8>,
    /// The most that this function could run at.
    pub max_speed: Fact<Speed>,
    /// The most lanes that this function has.
    pub max_width: Fact<u8>,
}

/// The bridge above a function: a root port, or a switch's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Where it sits.
    pub bdf: Bdf,
    /// What it says of the same link.
    pub link: Link,
}

/// Speeds that PCI Express has.
const SPEEDS: [u32; 6] = [25, 50, 80, 160, 320, 640];
/// Widths that PCI Express has.
const WIDTHS: [u8; 7] = [1, 2, 4, 8, 12, 16, 32];
const A_SPEED: &str = "a PCI Express speed such as 5.0 GT/s";
const A_WIDTH: &str = "a number of lanes";

impl Link {
    /// Reads the link of the function whose folder is `folder`.
    pub(crate) fn read(reader: Reader<'_>, folder: &str) -> Self {
        let speed = |name: &str| read_speed(reader, &format!("{folder}/{name}"));
        let width = |name: &str| read_width(reader, &format!("{folder}/{name}"));
        Self {
            speed: speed("current_link_speed"),
            width: width("current_link_width"),
            max_speed: speed("max_link_speed"),
            max_width: width("max_link_width"),
        }
    }
}

/// `5.0 GT/s PCIe`, `5 GT/s`, `2.5 GT/s PCIe`.
fn read_speed(reader: Reader<'_>, path: &str) -> Fact<Speed> {
    let word = reader.word(path)?;
    let odd = || Unread::odd(path, &word, A_SPEED);
    let number = word.split(" GT/s").next().filter(|number| number.len() < word.len()).ok_or_else(odd)?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenth_gts = match (whole.parse::<u32>(), tenths.parse::<u32>()) {
        (Ok(whole), Ok(tenths)) if whole < 100 && tenths < 10 => whole * 10 + tenths,
        _ => return Err(odd()),
    };
    SPEEDS.contains(&tenth_gts).then_some(Speed { tenth_gts }).ok_or_else(odd)
}

fn read_width(reader: Reader<'_>, path: &str) -> Fact<u8> {
    let word = reader.word(path)?;
    let width = word.trim_start_matches('x').parse().ok().filter(|width| WIDTHS.contains(width));
    width.ok_or_else(|| Unread::odd(path, &word, A_WIDTH))
}

impl Bridge {
    /// The bridge above the function whose folder, behind all links, is `real`; `None` on the root bus.
    pub(crate) fn above(reader: Reader<'_>, real: &str) -> Option<Self> {
        let (parent, _) = real.rsplit_once('/')?;
        let bdf = parent.rsplit('/').next()?.parse().ok()?;
        Some(Self { bdf, link: Link::read(reader, parent) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    fn link_saying(speed: &str, width: &str) -> Link {
        let mut host = FakeHost::empty();
        host.file("/f/current_link_speed", speed);
        host.file("/f/current_link_width", width);
        Link::read(Reader::new(&host), "/f")
    }

    #[test]
    fn every_way_of_writing_a_speed_is_read() {
        for (text, tenths) in
            [("5.0 GT/s PCIe\n", 50), ("5 GT/s\n", 50), ("2.5 GT/s PCIe\n", 25), ("16.0 GT/s PCIe", 160)]
        {
            assert_eq!(link_saying(text, "8\n").speed, Ok(Speed { tenth_gts: tenths }), "{text:?}");
        }
        assert_eq!(link_saying("5 GT/s", "8\n").width, Ok(8));
    }

    /// B12: without the files, or with `Unknown` in them, the answer is "unknown" and never a number.
    #[test]
    fn link_that_is_not_told_is_unknown_and_no_number() {
        for (speed, width) in
            [("Unknown", "255"), ("", ""), ("9.9 GT/s", "0"), ("-5 GT/s", "-8"), ("40 Gb/s", "4x QDR")]
        {
            let link = link_saying(speed, width);
            assert!(link.speed.is_err() && link.width.is_err(), "{speed:?} {width:?}: {link:?}");
        }
        let link = link_saying("5 GT/s", "8");
        assert!(link.max_speed.expect_err("no such file").is_missing());
    }
}
