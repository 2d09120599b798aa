//! What the kernel says of a device, a region and an IOMMU, read from bytes that may say anything.
//!
//! The answers have a fixed head and, if a flag says so, a chain of capabilities behind it: each with an id, and the
//! offset of the next from the start of the answer.
//!
//! ```text
//!   region info:  argsz flags index cap_offset size offset │ cap: id version next │ … │ cap …
//!                                       └──────────────────────▲        └──────────────▲
//! ```
//!
//! Chains are followed by offsets that only grow, so one that points back ends it; unknown capabilities are passed over
//! (B127). Numbers are taken as they are here; whoever uses one bounds it.

use std::ops::Range;

use vfio_bindings::bindings::vfio;

use super::bytes::{Reader, request};

/// Most bytes that an answer with its chain may have: a page holds hundreds of areas.
pub const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// Capabilities of the type 1 IOMMU's information (`vfio.h`; the first number of each is in `vfio-bindings`).
const CAP_IOVA_RANGE: u16 = vfio::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE as u16;
const CAP_DMA_AVAIL: u16 = vfio::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL as u16;
const CAP_SPARSE: u16 = vfio::VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16;
const CAP_MSIX_MAPPABLE: u16 = vfio::VFIO_REGION_INFO_CAP_MSIX_MAPPABLE as u16;

/// One capability: its id and what follows its head, to the end of the answer.
struct Capability<'a> {
    id: u16,
    body: Reader<'a>,
}

/// The capabilities from `first` on. Ends at the first that does not lie in the answer behind the one before.
fn chain(bytes: &[u8], first: u32) -> impl Iterator<Item = Capability<'_>> {
    let mut at = first as usize;
    let mut behind = 0;
    std::iter::from_fn(move || {
        if at <= behind {
            return None;
        }
        let mut head = Reader::new(bytes.get(at..)?);
        let (id, _version, next) = (head.u16()?, head.u16()?, head.u32()?);
        // Only growing offsets: a chain that turns back would never end.
        (behind, at) = (at, next as usize);
        Some(Capability { id, body: head })
    })
}

/// What the kernel says of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// It can be reset.
    pub can_reset: bool,
    /// It is a PCI function.
    pub is_pci: bool,
    /// Regions that it has.
    pub regions: u32,
    /// Kinds of interrupts that it has.
    pub irqs: u32,
}

impl DeviceInfo {
    /// The request.
    pub fn ask() -> Vec<u8> {
        request(&[0, 0, 0, 0, 0])
    }

    /// Reads the answer. `None` if it is cut short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (_argsz, flags, regions, irqs) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        Some(Self {
            can_reset: flags & vfio::VFIO_DEVICE_FLAGS_RESET != 0,
            is_pci: flags & vfio::VFIO_DEVICE_FLAGS_PCI != 0,
            regions,
            irqs,
        })
    }
}

/// What the kernel says of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// It can be mapped.
    pub mappable: bool,
    /// Its pages with the MSI-X table may be mapped, too.
    pub msix_mappable: bool,
    /// If it can be mapped in parts only: which. As told, unbounded.
    pub areas: Option<Vec<Area>>,
    /// Bytes in it.
    pub len_bytes: u64,
    /// Where its first byte stands in the device's file.
    pub offset: u64,
    /// Bytes that the whole answer has: ask again with so many if it is more than it was given.
    pub answer_bytes: u32,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first byte.
    pub offset: u64,
    /// Bytes in it.
    pub len_bytes: u64,
}

/// How many bytes to ask with next: what the answer says that it needs, if that is more than `had` and sane.
fn ask_again(answer_bytes: u32, had: usize) -> Option<usize> {
    let wanted = answer_bytes as usize;
    (wanted > had && wanted <= ANSWER_MAX_BYTES).then_some(wanted)
}

impl RegionInfo {
    /// Bytes of the head.
    pub const HEAD_BYTES: usize = 32;

    /// The request for region `index` with room for `len_bytes` of answer.
    pub fn ask(index: u32, len_bytes: usize) -> Vec<u8> {
        let len = len_bytes.clamp(Self::HEAD_BYTES, ANSWER_MAX_BYTES);
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        bytes[8..12].copy_from_slice(&index.to_ne_bytes());
        bytes
    }

    /// Reads the answer. `None` if its head is cut short; a chain that is, gives what it holds.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (answer_bytes, flags, _index, first) =
            (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let (len_bytes, offset) = (reader.u64()?, reader.u64()?);
        let has = |flag| flags & flag != 0;
        let mut info = Self {
            readable: has(vfio::VFIO_REGION_INFO_FLAG_READ),
            writable: has(vfio::VFIO_REGION_INFO_FLAG_WRITE),
            mappable: has(vfio::VFIO_REGION_INFO_FLAG_MMAP),
            len_bytes,
            offset,
            answer_bytes,
            ..Self::default()
        };
        if has(vfio::VFIO_REGION_INFO_FLAG_CAPS) {
            for capability in chain(bytes, first) {
                match capability.id {
                    CAP_SPARSE => info.areas = Some(sparse_areas(capability.body)),
                    CAP_MSIX_MAPPABLE => info.msix_mappable = true,
                    _ => {}
                }
            }
        }
        Some(info)
    }

    /// With how many bytes to ask again, if the answer did not fit in `had`.
    pub fn ask_again(&self, had: usize) -> Option<usize> {
        ask_again(self.answer_bytes, had)
    }
}

/// The areas of a sparse region, as many as the answer really holds.
fn sparse_areas(mut body: Reader<'_>) -> Vec<Area> {
    let (Some(count), Some(_reserved)) = (body.u32(), body.u32()) else { return Vec::new() };
    let there = (count as usize).min(body.left() / 16);
    let mut area = || Some(Area { offset: body.u64()?, len_bytes: body.u64()? });
    (0..there).map_while(|_| area()).collect()
}

/// What the kernel says of a container's IOMMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IommuInfo {
    /// A bit for each page size that can be mapped; 0 if it is not told.
    pub page_sizes: u64,
    /// Address ranges that may be used; `None` if the kernel does not tell them.
    pub ranges: Option<Vec<IovaRange>>,
    /// Mappings that may still be made; `None` if the kernel does not tell.
    pub maps_left: Option<u32>,
    /// Bytes that the whole answer has.
    pub answer_bytes: u32,
}

/// Addresses, the first and the last included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IovaRange {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl IommuInfo {
    /// Bytes of the head that every kernel knows.
    pub const HEAD_BYTES: usize = 24;

    /// The request, with room for `len_bytes` of answer.
    pub fn ask(len_bytes: usize) -> Vec<u8> {
        let len = len_bytes.clamp(Self::HEAD_BYTES, ANSWER_MAX_BYTES);
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        bytes
    }

    /// Reads the answer. `None` if its head is cut short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (answer_bytes, flags, page_sizes) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let first = reader.u32().unwrap_or(0);
        let page_sizes = if flags & vfio::VFIO_IOMMU_INFO_PGSIZES != 0 { page_sizes } else { 0 };
        let mut info = Self { page_sizes, answer_bytes, ..Self::default() };
        if flags & vfio::VFIO_IOMMU_INFO_CAPS != 0 {
            for mut capability in chain(bytes, first) {
                match capability.id {
                    CAP_IOVA_RANGE => info.ranges = Some(ranges(capability.body)),
                    CAP_DMA_AVAIL => info.maps_left = capability.body.u32(),
                    _ => {}
                }
            }
        }
        Some(info)
    }

    /// With how many bytes to ask again, if the answer did not fit in `had`.
    pub fn ask_again(&self, had: usize) -> Option<usize> {
        ask_again(self.answer_bytes, had)
    }
}

/// The ranges, as many as the answer really holds.
fn ranges(mut body: Reader<'_>) -> Vec<IovaRange> {
    let (Some(count), Some(_reserved)) = (body.u32(), body.u32()) else { return Vec::new() };
    let there = (count as usize).min(body.left() / 16);
    let mut range = || Some(IovaRange { first: body.u64()?, last: body.u64()? });
    (0..there).map_while(|_| range()).collect()
}

/// Why a region cannot be the register window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowError {
    /// It is not there, or has another length.
    Length {
        /// What it has.
        seen: u64,
        /// What the chip's has.
        expected: u64,
    },
    /// It cannot be read, written or mapped.
    Access {
        /// It can be read.
        readable: bool,
        /// It can be written.
        writable: bool,
        /// It can be mapped.
        mappable: bool,
    },
    /// It begins nowhere in the file: the offset and the length together pass the end of all files.
    Offset {
        /// The offset.
        offset: u64,
    },
    /// Registers lie where it cannot be mapped.
    NotMappable {
        /// The first that lies so.
        at: u32,
    },
    /// The MSI-X table is said to lie where no table can.
    Table {
        /// Its offset.
        offset: u32,
        /// Bytes in it.
        len_bytes: u32,
    },
}

impl std::fmt::Display for WindowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length { seen: 0, .. } => f.write_str("there is no BAR 0"),
            Self::Length { seen, expected } => write!(f, "BAR 0 has {seen:#x} bytes, expected {expected:#x}"),
            Self::Access { readable, writable, mappable } => write!(
                f,
                "BAR 0 cannot be used: readable {readable}, writable {writable}, mappable {mappable}"
            ),
            Self::Offset { offset } => {
                write!(f, "BAR 0 is said to begin at {offset:#x} of the device's file")
            }
            Self::NotMappable { at } => {
                write!(f, "the kernel does not let register {at:#x} of BAR 0 be mapped")
            }
            Self::Table { offset, len_bytes } => {
                write!(f, "the MSI-X table is said to have {len_bytes:#x} bytes at {offset:#x} of BAR 0")
            }
        }
    }
}

impl std::error::Error for WindowError {}

/// What is to be mapped of the register window: everything but the pages of the MSI-X table, whatever the kernel would
/// let us map. `table` is the table's place in this BAR, if it has one.
///
/// # Errors
/// [`WindowError`]: the region is not the chip's window, or the kernel does not let registers be mapped.
pub fn window_areas(
    info: &RegionInfo,
    len_bytes: u32,
    page: u32,
    table: Option<Range<u32>>,
) -> Result<Vec<Range<u32>>, WindowError> {
    if info.len_bytes != u64::from(len_bytes) {
        return Err(WindowError::Length { seen: info.len_bytes, expected: len_bytes.into() });
    }
    let (readable, writable, mappable) = (info.readable, info.writable, info.mappable);
    if !(readable && writable && mappable) {
        return Err(WindowError::Access { readable, writable, mappable });
    }
    // A file's offsets are signed; the sum must not wrap (B162).
    let end = info.offset.checked_add(info.len_bytes);
    if !info.offset.is_multiple_of(page.into()) || end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(WindowError::Offset { offset: info.offset });
    }
    let hole = match table {
        Some(table) if table.start >= table.end || table.end > len_bytes => {
            let (offset, end) = (table.start, table.end);
            return Err(WindowError::Table { offset, len_bytes: end.saturating_sub(offset) });
        }
        Some(table) => {
            let (start, end) = (table.start / page * page, table.end.next_multiple_of(page));
            // A planted fault, for the proof that the fuzzer reaches this far: on a machine with pages of 16 KiB the
            // table's last page is mapped.
            #[cfg(canary)]
            let end = if page == 1 << 14 { (end - page).max(start) } else { end };
            start..end
        }
        None => len_bytes..len_bytes,
    };
    let areas: Vec<_> =
        [0..hole.start, hole.end..len_bytes].into_iter().filter(|area| area.start < area.end).collect();
    if let Some(allowed) = &info.areas {
        for area in &areas {
            covered(area, allowed)?;
        }
    }
    Ok(areas)
}

/// Whether the allowed areas together cover `area`.
fn covered(area: &Range<u32>, allowed: &[Area]) -> Result<(), WindowError> {
    let mut at = u64::from(area.start);
    while at < u64::from(area.end) {
        let reach = allowed
            .iter()
            .filter(|part| part.offset <= at)
            .filter_map(|part| part.offset.checked_add(part.len_bytes))
            .max();
        match reach {
            Some(end) if end > at => at = end,
            // `at` is below the area's end, which has 32 bits.
            _ => return Err(WindowError::NotMappable { at: at as u32 }),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "info_tests.rs"]
mod tests;
