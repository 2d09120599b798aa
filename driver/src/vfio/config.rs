//! The configuration space, as far as a driver behind VFIO touches it: who is it, is it awake, may it use memory.
//!
//! The kernel stands in between: it shows a copy of some registers and watches others. Two of its habits matter here.
//! A write that switches memory access on, to a card which had lost it, makes the kernel write the BARs again (F-823):
//! that is how a card that reset itself gets its place on the bus back. And the maximum payload is the kernel's alone;
//! of `pcie_caps` only the read request size has an effect under VFIO (F-824).

use qhca_regs::GONE;

/// Bytes that are read at once: the part that every function has.
pub const CONFIG_LEN_BYTES: usize = 256;
/// Vendor and device id of the chip, as one dword (F-002).
pub(super) const PCI_ID: u32 = 0x7322_1077;
/// Offset of the command register.
pub(super) const COMMAND: u16 = 0x04;
/// Command register: answer to memory accesses.
pub(super) const COMMAND_MEMORY: u16 = 1 << 1;
/// Command register: reach memory.
pub(super) const COMMAND_MASTER: u16 = 1 << 2;

const STATUS: usize = 0x06;
const STATUS_HAS_LIST: u16 = 1 << 4;
const LIST: usize = 0x34;
const ID_POWER: u8 = 0x01;
const ID_PCIE: u8 = 0x10;
const ID_MSIX: u8 = 0x11;
/// A list cannot be longer: each entry has four bytes at least, and none lies in the head.
const LIST_MAX: usize = (CONFIG_LEN_BYTES - 0x40) / 4;
/// What any dword reads as when the card does not answer.
const NO_ANSWER: u32 = GONE as u32;

/// Where the MSI-X table lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixTable {
    /// The BAR.
    pub bar: u8,
    /// Its first byte there.
    pub offset: u32,
    /// Entries of 16 bytes.
    pub entries: u32,
}

impl MsixTable {
    /// Its bytes in BAR 0; `None` if it lies in another.
    pub fn in_bar_0(&self) -> Option<std::ops::Range<u32>> {
        (self.bar == 0).then(|| self.offset..self.offset.saturating_add(16 * self.entries))
    }
}

/// What the head of a configuration space says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigHead {
    /// Vendor in the lower half, device in the upper.
    pub id: u32,
    /// The command register.
    pub command: u16,
    /// Where the power management capability begins.
    pub power: Option<u8>,
    /// The power state, 0 to 3, if there is that capability.
    pub power_state: u8,
    /// Where the PCI Express capability begins.
    pub pcie: Option<u8>,
    /// The MSI-X table.
    pub msix: Option<MsixTable>,
}

impl ConfigHead {
    /// Reads the head. `None` if the card does not answer.
    pub fn parse(bytes: &[u8; CONFIG_LEN_BYTES]) -> Option<Self> {
        let id = dword(bytes, 0);
        if id == NO_ANSWER {
            return None;
        }
        let mut head = Self {
            id,
            command: half(bytes, COMMAND.into()),
            power: None,
            power_state: 0,
            pcie: None,
            msix: None,
        };
        if half(bytes, STATUS) & STATUS_HAS_LIST == 0 {
            return Some(head);
        }
        let mut at = bytes[LIST] & !3;
        for _ in 0..LIST_MAX {
            if at < 0x40 {
                break;
            }
            let place = usize::from(at);
            match bytes[place] {
                ID_POWER => {
                    head.power = Some(at);
                    head.power_state = (half(bytes, place + 4) & 3) as u8;
                }
                ID_PCIE => head.pcie = Some(at),
                ID_MSIX => head.msix = Some(msix(bytes, place)),
                _ => {}
            }
            at = bytes[place + 1] & !3;
        }
        Some(head)
    }
}

fn msix(bytes: &[u8; CONFIG_LEN_BYTES], at: usize) -> MsixTable {
    let entries = u32::from(half(bytes, at + 2) & 0x7FF) + 1;
    let table = dword(bytes, at + 4);
    MsixTable { bar: (table & 7) as u8, offset: table & !7, entries }
}

/// The half word at `at`; what lies past the end is zero.
fn half(bytes: &[u8; CONFIG_LEN_BYTES], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |half| u16::from_le_bytes(*half))
}

fn dword(bytes: &[u8; CONFIG_LEN_BYTES], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |dword| u32::from_le_bytes(*dword))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn card() -> [u8; CONFIG_LEN_BYTES] {
        let mut bytes = [0; CONFIG_LEN_BYTES];
        bytes[..4].copy_from_slice(&PCI_ID.to_le_bytes());
        bytes[4] = 6;
        bytes[6] = 0x10;
        bytes[0x34] = 0x40;
        bytes[0x40..0x46].copy_from_slice(&[1, 0x50, 0, 0, 3, 0]);
        bytes[0x50..0x5C].copy_from_slice(&[0x11, 0x60, 31, 0x80, 0, 0x80, 0, 0, 0, 0x90, 0, 0]);
        bytes[0x60..0x62].copy_from_slice(&[0x10, 0]);
        bytes
    }

    #[test]
    fn head_of_a_card_is_read() {
        let head = ConfigHead::parse(&card()).expect("an answer");
        assert_eq!((head.id, head.command, head.power_state), (PCI_ID, 6, 3));
        assert_eq!((head.power, head.pcie), (Some(0x40), Some(0x60)));
        let table = head.msix.expect("a table");
        assert_eq!((table.entries, table.in_bar_0()), (32, Some(0x8000..0x8200)));
        assert_eq!(MsixTable { bar: 2, ..table }.in_bar_0(), None);
    }

    #[test]
    fn card_that_does_not_answer_and_list_without_end_are_told() {
        assert_eq!(ConfigHead::parse(&[0xFF; CONFIG_LEN_BYTES]), None);
        let mut bytes = card();
        bytes[0x61] = 0x40;
        assert!(ConfigHead::parse(&bytes).is_some(), "a circle ends");
        bytes[6] = 0;
        assert_eq!(ConfigHead::parse(&bytes).and_then(|head| head.msix), None, "no list");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), CONFIG_LEN_BYTES)) {
            let bytes: [u8; CONFIG_LEN_BYTES] = bytes.try_into().expect("as many");
            if let Some(head) = ConfigHead::parse(&bytes) {
                prop_assert!(head.power_state < 4);
                prop_assert!(head.msix.is_none_or(|table| table.entries <= 2048 && table.offset % 8 == 0));
            }
        }
    }
}
