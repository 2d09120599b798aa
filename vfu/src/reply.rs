//! What comes back from the device.

use crate::request::RegionAccess;
use crate::version::Version;
use crate::wire::{Put, Reader};
use crate::{Header, Kind, ParseError};

/// What the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Whether DEVICE_RESET works.
    pub can_reset: bool,
    /// How many region indices there are.
    pub regions: u32,
    /// How many interrupt indices there are.
    pub irqs: u32,
}

/// A part of a region that may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseArea {
    /// Byte offset in the region.
    pub offset: u64,
    /// Bytes.
    pub len_bytes: u64,
}

/// What a region is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// Region index.
    pub index: u32,
    /// May be read by messages.
    pub readable: bool,
    /// May be written by messages.
    pub writable: bool,
    /// May be mapped, by the descriptor beside the reply.
    pub mappable: bool,
    /// Bytes; 0 if the device has no such region.
    pub len_bytes: u64,
    /// Where it starts in the descriptor's file.
    pub offset: u64,
    /// The parts that may be mapped, if not all.
    pub sparse: Vec<SparseArea>,
}

/// What a kind of interrupt can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqInfo {
    /// Interrupt index.
    pub index: u32,
    /// How many vectors.
    pub count: u32,
    /// Signalled by eventfd.
    pub eventfd: bool,
    /// Has mask and unmask.
    pub maskable: bool,
    /// Masks itself when it fires.
    pub automasked: bool,
    /// Is set up as a whole.
    pub noresize: bool,
}

/// Bytes of a region's description before its capabilities.
const REGION_FIXED_BYTES: u32 = 32;
const CAP_SPARSE_MMAP: u16 = 1;

impl DeviceInfo {
    fn build(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put32(16).put32(u32::from(self.can_reset) | 2).put32(self.regions).put32(self.irqs);
        out
    }

    /// Reads the payload of a reply.
    ///
    /// # Errors
    /// [`ParseError`] if it is too short or is no PCI device.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new("DEVICE_GET_INFO reply", payload);
        let (_argsz, flags, regions, irqs) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        if flags & 2 == 0 {
            return Err(ParseError::Field {
                what: "device flags",
                value: flags.into(),
                allowed: "bit 1 (PCI) set",
            });
        }
        Ok(Self { can_reset: flags & 1 != 0, regions, irqs })
    }
}

impl RegionInfo {
    /// The payload for a client that has room for `argsz` bytes: without the capabilities if they do not fit, but
    /// always with the size that would.
    fn build(&self, argsz: u32) -> Vec<u8> {
        let caps_len = if self.sparse.is_empty() { 0 } else { 16 + 16 * self.sparse.len() as u32 };
        let needed = REGION_FIXED_BYTES + caps_len;
        let with_caps = caps_len > 0 && argsz >= needed;
        let flags = u32::from(self.readable)
            | u32::from(self.writable) << 1
            | u32::from(self.mappable) << 2
            | u32::from(caps_len > 0) << 3;
        let mut out = Vec::new();
        out.put32(needed).put32(flags).put32(self.index).put32(if with_caps {
            REGION_FIXED_BYTES
        } else {
            0
        });
        out.put64(self.len_bytes).put64(self.offset);
        if with_caps {
            out.put16(CAP_SPARSE_MMAP).put16(1).put32(0).put32(self.sparse.len() as u32).put32(0);
            for area in &self.sparse {
                out.put64(area.offset).put64(area.len_bytes);
            }
        }
        out
    }

    /// Reads the payload of a reply. The second value is the size that the device needs to say everything.
    ///
    /// # Errors
    /// [`ParseError`] if the payload or its capability list is broken; a list that loops ends at its first repeat.
    pub fn parse(payload: &[u8]) -> Result<(Self, u32), ParseError> {
        let mut r = Reader::new("DEVICE_GET_REGION_INFO reply", payload);
        let (argsz, flags, index, mut cap) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let (len_bytes, offset) = (r.u64()?, r.u64()?);
        let mut sparse = Vec::new();
        let mut last = 0;
        // Offsets must ascend, so that a malicious list cannot loop.
        while flags & 8 != 0 && cap > last {
            last = cap;
            let bytes = payload.get(cap as usize..).unwrap_or(&[]);
            let mut c = Reader::new("region capability", bytes);
            let (id, _version, next) = (c.u16()?, c.u16()?, c.u32()?);
            if id == CAP_SPARSE_MMAP {
                let (areas, _reserved) = (c.u32()?, c.u32()?);
                for _ in 0..areas {
                    sparse.push(SparseArea { offset: c.u64()?, len_bytes: c.u64()? });
                }
            }
            cap = next;
        }
        let (readable, writable, mappable) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        Ok((Self { index, readable, writable, mappable, len_bytes, offset, sparse }, argsz))
    }
}

impl IrqInfo {
    fn build(&self) -> Vec<u8> {
        let flags = u32::from(self.eventfd)
            | u32::from(self.maskable) << 1
            | u32::from(self.automasked) << 2
            | u32::from(self.noresize) << 3;
        let mut out = Vec::new();
        out.put32(16).put32(flags).put32(self.index).put32(self.count);
        out
    }

    /// Reads the payload of a reply.
    ///
    /// # Errors
    /// [`ParseError::Short`].
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new("DEVICE_GET_IRQ_INFO reply", payload);
        let (_argsz, flags, index, count) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let bit = |n: u32| flags & 1 << n != 0;
        Ok(Self { index, count, eventfd: bit(0), maskable: bit(1), automasked: bit(2), noresize: bit(3) })
    }
}

/// A reply that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// To VERSION.
    Version(Version),
    /// To DEVICE_GET_INFO.
    DeviceInfo(DeviceInfo),
    /// To DEVICE_GET_REGION_INFO, for a client with room for `argsz` bytes.
    RegionInfo(RegionInfo, u32),
    /// To DEVICE_GET_IRQ_INFO.
    IrqInfo(IrqInfo),
    /// To REGION_READ.
    Read(RegionAccess, &'a [u8]),
    /// To REGION_WRITE.
    Written(RegionAccess),
    /// To REGION_WRITE_MULTI: how many were done.
    WrittenMulti(u64),
    /// To a DMA_UNMAP: the entry that was asked for.
    Unmapped(crate::DmaUnmap),
    /// To commands that need no more than a yes.
    Done,
}

impl Reply<'_> {
    /// The whole message that answers `request`.
    pub fn build(&self, request: &Header) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Version(version) => out = version.build(),
            Self::DeviceInfo(info) => out = info.build(),
            Self::RegionInfo(info, argsz) => out = info.build(*argsz),
            Self::IrqInfo(info) => out = info.build(),
            Self::Read(at, data) => {
                out.reserve(16 + data.len());
                out.put64(at.offset).put32(at.region).put32(data.len() as u32);
                out.extend_from_slice(data);
            }
            Self::Written(at) => {
                out.put64(at.offset).put32(at.region).put32(at.len_bytes);
            }
            Self::WrittenMulti(count) => {
                out.put64(*count);
            }
            Self::Unmapped(u) => {
                out.put32(24).put32(u.flags).put64(u.address).put64(u.len_bytes);
            }
            Self::Done => {}
        }
        answer_header(request, None).with_payload(&out)
    }
}

/// The whole message that refuses `request` with `errno`.
pub fn error_reply(request: &Header, errno: u32) -> Vec<u8> {
    answer_header(request, Some(errno)).with_payload(&[])
}

fn answer_header(request: &Header, error: Option<u32>) -> Header {
    Header { kind: Kind::Reply, no_reply: false, error, ..*request }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;
    use proptest::prelude::*;

    fn header() -> Header {
        let command = Command::DeviceGetRegionInfo as u16;
        Header { id: 7, command, size_bytes: 48, kind: Kind::Command, no_reply: false, error: None }
    }

    #[test]
    fn a_region_with_sparse_areas_is_read_back_when_there_is_room() {
        let sparse = vec![SparseArea { offset: 0x1000, len_bytes: 0x2000 }];
        let info = RegionInfo {
            index: 0,
            readable: true,
            writable: true,
            mappable: true,
            sparse,
            ..RegionInfo::default()
        };
        let whole = Reply::RegionInfo(info.clone(), 4096).build(&header());
        assert_eq!(RegionInfo::parse(&whole[16..]), Ok((info.clone(), 64)));
        let cut = Reply::RegionInfo(info, 32).build(&header());
        let (seen, needed) = RegionInfo::parse(&cut[16..]).unwrap();
        assert_eq!((seen.sparse.len(), needed, cut.len()), (0, 64, 48));
    }

    #[test]
    fn an_error_reply_is_a_header_with_the_number_and_the_askers_id() {
        let message = error_reply(&header(), 22);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&message);
        let parsed = Header::parse(&bytes).unwrap();
        assert_eq!((parsed.id, parsed.kind, parsed.error, parsed.size_bytes), (7, Kind::Reply, Some(22), 16));
    }

    proptest! {
        #[test]
        fn any_reply_payload_parses_or_is_refused(payload in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = RegionInfo::parse(&payload);
            let _ = DeviceInfo::parse(&payload);
            let _ = IrqInfo::parse(&payload);
        }
    }
}
