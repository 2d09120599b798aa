//! The bytes of `VFIO_DEVICE_SET_IRQS`, one function for each thing that it is used for.
//!
//! The request is a trap: its meaning is spread over three flags, a count and a tail, and one wrong combination does
//! something else that also succeeds. A count above zero without data does not switch off: it *fires* the vectors, as
//! if the card had. So nobody else composes one, and each form below is compared byte for byte in a test.
//!
//! ```text
//!   argsz | flags | index | start | count | data: one int a vector
//!           └ what the data are (none, descriptors) and what to do (trigger, unmask)
//! ```
//!
//! A descriptor of -1 leaves its vector unconnected: the way to claim vectors that nobody listens to, since what was
//! enabled at first may be all that there will be (older kernels cannot add vectors to those that are enabled).

use qhca_irq::plan::Mode;
use vfio_bindings::bindings::vfio;

use super::bytes::Reader;

/// A kind of interrupts, as the kernel numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum IrqIndex {
    /// The line.
    Intx = vfio::VFIO_PCI_INTX_IRQ_INDEX,
    /// Messages of the plain kind.
    Msi = vfio::VFIO_PCI_MSI_IRQ_INDEX,
    /// Messages with a table.
    MsiX = vfio::VFIO_PCI_MSIX_IRQ_INDEX,
    /// The bus reported an error of the card.
    Err = vfio::VFIO_PCI_ERR_IRQ_INDEX,
    /// The kernel wants the card back.
    Req = vfio::VFIO_PCI_REQ_IRQ_INDEX,
}

impl IrqIndex {
    /// The kind that mode `mode` uses.
    pub const fn of(mode: Mode) -> Self {
        match mode {
            Mode::MsiX => Self::MsiX,
            Mode::Msi => Self::Msi,
            Mode::Intx => Self::Intx,
        }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Intx => "INTx",
            Self::Msi => "MSI",
            Self::MsiX => "MSI-X",
            Self::Err => "ERR",
            Self::Req => "REQ",
        }
    }
}

/// Bytes before the data.
const HEAD_BYTES: usize = 20;

/// A vector that stays unconnected.
const UNCONNECTED: i32 = -1;

fn set(flags: u32, index: IrqIndex, start: u32, count: u32, data: &[i32]) -> Vec<u8> {
    let len = HEAD_BYTES + size_of_val(data);
    let words = [len as u32, flags, index.number(), start, count];
    let data = data.iter().flat_map(|fd| fd.to_ne_bytes());
    words.iter().flat_map(|word| word.to_ne_bytes()).chain(data).collect()
}

/// Enables the kind `index` with as many vectors as `fds` has, the first at vector 0, all in one request. Vectors without
/// a descriptor are claimed and raise nothing.
///
/// `None` for no vectors at all: the same bytes with a count of zero would mean "off" or be refused.
pub(super) fn enable(index: IrqIndex, fds: &[Option<i32>]) -> Option<Vec<u8>> {
    let count = u32::try_from(fds.len()).ok().filter(|count| *count > 0)?;
    let flags = vfio::VFIO_IRQ_SET_DATA_EVENTFD | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
    let fds: Vec<i32> = fds.iter().map(|fd| fd.unwrap_or(UNCONNECTED)).collect();
    Some(set(flags, index, 0, count, &fds))
}

/// Switches the kind `index` off, all its vectors. The count is zero: with any other the vectors would be fired.
pub(super) fn disable(index: IrqIndex) -> Vec<u8> {
    set(vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_TRIGGER, index, 0, 0, &[])
}

/// Lets the interrupt line fire again. The one form that has a count and no data and fires nothing, since it unmasks.
pub(super) fn unmask_line() -> Vec<u8> {
    let flags = vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_UNMASK;
    set(flags, IrqIndex::Intx, 0, 1, &[])
}

/// Fires vector `vector` of kind `index` as if the card had: for a self-test of the way from the kernel to whoever
/// listens, with a card that says nothing.
pub(super) fn fire(index: IrqIndex, vector: u32) -> Vec<u8> {
    set(vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_TRIGGER, index, vector, 1, &[])
}

/// What the kernel says of one kind of interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IrqInfo {
    /// Vectors that there are.
    pub count: u32,
    /// They can be heard by descriptors.
    pub eventfd: bool,
    /// They can be masked.
    pub maskable: bool,
    /// They mask themselves when they fire, and must be unmasked.
    pub automasked: bool,
    /// Once some are enabled no more can be added.
    pub noresize: bool,
}

impl IrqInfo {
    /// Bytes of the structure.
    pub const LEN_BYTES: usize = 16;

    /// The request for kind `index`.
    pub fn ask(index: IrqIndex) -> Vec<u8> {
        let words = [Self::LEN_BYTES as u32, 0, index.number(), 0];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Reads the answer. `None` if it is cut short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (_argsz, flags, _index, count) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let has = |flag| flags & flag != 0;
        Some(Self {
            count,
            eventfd: has(vfio::VFIO_IRQ_INFO_EVENTFD),
            maskable: has(vfio::VFIO_IRQ_INFO_MASKABLE),
            automasked: has(vfio::VFIO_IRQ_INFO_AUTOMASKED),
            noresize: has(vfio::VFIO_IRQ_INFO_NORESIZE),
        })
    }

    /// Vectors that can be used of `wanted`, at most `most`: whatever the kernel says, never more than is needed (B48).
    pub fn usable(&self, wanted: usize, most: usize) -> usize {
        let there = if self.eventfd { self.count as usize } else { 0 };
        wanted.min(there).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(bytes: &[u8]) -> Vec<i32> {
        bytes.as_chunks().0.iter().map(|word| i32::from_ne_bytes(*word)).collect()
    }

    /// The forms as the header's comments describe them: argsz, flags, index, start, count, data.
    #[test]
    fn each_form_has_exactly_its_bytes() {
        let enabled = enable(IrqIndex::MsiX, &[Some(7), None, Some(9)]).expect("vectors");
        assert_eq!(words(&enabled), [32, 0x24, 2, 0, 3, 7, -1, 9]);
        assert_eq!(words(&enable(IrqIndex::Intx, &[Some(5)]).expect("a vector")), [24, 0x24, 0, 0, 1, 5]);
        assert_eq!(words(&disable(IrqIndex::MsiX)), [20, 0x21, 2, 0, 0]);
        assert_eq!(words(&disable(IrqIndex::Msi)), [20, 0x21, 1, 0, 0]);
        assert_eq!(words(&unmask_line()), [20, 0x11, 0, 0, 1]);
        assert_eq!(words(&fire(IrqIndex::MsiX, 6)), [20, 0x21, 2, 6, 1]);
        assert_eq!(enable(IrqIndex::MsiX, &[]), None);
    }

    #[test]
    fn request_for_information_names_its_kind() {
        assert_eq!(words(&IrqInfo::ask(IrqIndex::Req)), [16, 0, 4, 0]);
    }

    /// B48: the table's size is never what is asked for.
    #[test]
    fn no_more_vectors_are_used_than_wanted_whatever_the_device_says() {
        let info = |count, eventfd| IrqInfo { count, eventfd, ..IrqInfo::default() };
        assert_eq!(info(2048, true).usable(12, 32), 12);
        assert_eq!(info(u32::MAX, true).usable(usize::MAX, 32), 32);
        assert_eq!(info(1, true).usable(12, 32), 1);
        assert_eq!((info(0, true).usable(12, 32), info(32, false).usable(12, 32)), (0, 0));
    }

    proptest! {
        /// Only what is meant to fire has a count above zero, no data, and the trigger.
        #[test]
        fn nothing_but_fire_fires(fds in prop::collection::vec(prop::option::of(0..1000), 1..64)) {
            for index in [IrqIndex::Intx, IrqIndex::Msi, IrqIndex::MsiX, IrqIndex::Err, IrqIndex::Req] {
                for bytes in [enable(index, &fds).expect("vectors"), disable(index), unmask_line()] {
                    let words = words(&bytes);
                    let (flags, count) = (words[1] as u32, words[4]);
                    let no_data = flags & vfio::VFIO_IRQ_SET_DATA_NONE != 0;
                    let trigger = flags & vfio::VFIO_IRQ_SET_ACTION_TRIGGER != 0;
                    prop_assert!(!(no_data && trigger && count > 0));
                    prop_assert_eq!(words[0] as usize, bytes.len());
                }
            }
        }

        #[test]
        fn answers_of_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(IrqInfo::parse(&bytes).is_some(), bytes.len() >= IrqInfo::LEN_BYTES);
        }
    }
}
