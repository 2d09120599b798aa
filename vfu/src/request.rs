//! What the client asks of the device, and what the device asks of the client's memory.

use crate::irqs::SetIrqs;
use crate::version::Version;
use crate::wire::{Put, Reader};
use crate::{Command, HEADER_LEN_BYTES, Header, Kind, ParseError, XFER_MAX_BYTES};

/// A piece of the client's memory that the device may reach; a descriptor beside the message makes it mappable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// The device may read it.
    pub readable: bool,
    /// The device may write it.
    pub writable: bool,
    /// Where the piece starts in the descriptor's file, bytes.
    pub offset: u64,
    /// Its address as the device sees it; `address + len_bytes` does not wrap.
    pub address: u64,
    /// Its length in bytes, not 0.
    pub len_bytes: u64,
}

/// A range of addresses that the device must not reach any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// Flag bits as sent: bit 1 means everything.
    pub flags: u32,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

impl DmaUnmap {
    /// Whether all ranges are meant, whatever the address says.
    pub const fn all(&self) -> bool {
        self.flags & 2 != 0
    }
}

/// A place in a region: what a read reads and a write writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// Byte offset in the region.
    pub offset: u64,
    /// Region index, see [`region`](crate::region).
    pub region: u32,
    /// Bytes to transfer, at most [`XFER_MAX_BYTES`].
    pub len_bytes: u32,
}

impl RegionAccess {
    /// The data in the payload that answers a read of this place.
    ///
    /// # Errors
    /// [`ParseError::Field`] if another number of bytes was read, [`ParseError::Short`] if they are not there.
    pub fn parse_read_reply<'a>(&self, payload: &'a [u8]) -> Result<&'a [u8], ParseError> {
        let mut r = Reader::new("REGION_READ reply", payload);
        let (_offset, _region, count) = (r.u64()?, r.u32()?, r.u32()?);
        if count != self.len_bytes {
            let allowed = "as many bytes as were asked for";
            return Err(ParseError::Field { what: "REGION_READ reply count", value: count.into(), allowed });
        }
        r.take(count as usize)
    }
}

/// One write of a [`Request::RegionWriteMulti`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOne {
    /// Where.
    pub at: RegionAccess,
    /// The bytes; the first `at.len_bytes` (1 to 8) count.
    pub data: [u8; 8],
}

/// A command from the client, as it came: lengths are checked, meaning is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first message of a connection.
    Version(Version),
    /// Memory becomes reachable.
    DmaMap(DmaMap),
    /// Memory is no longer reachable when this is answered.
    DmaUnmap(DmaUnmap),
    /// How many regions and interrupt kinds are there?
    DeviceInfo,
    /// What is region `index`? The answer may be `argsz` bytes long.
    RegionInfo {
        /// Region index.
        index: u32,
        /// Bytes that the client has room for.
        argsz: u32,
    },
    /// Which descriptors can writes to region `index` be sent by?
    RegionIoFds {
        /// Region index.
        index: u32,
    },
    /// How many interrupts of kind `index` are there?
    IrqInfo {
        /// Interrupt index, see [`irq`](crate::irq).
        index: u32,
    },
    /// Wire up, mask, unmask or fire interrupts.
    SetIrqs(SetIrqs<'a>),
    /// Read a region.
    RegionRead(RegionAccess),
    /// Write a region; the data are exactly `len_bytes` long.
    RegionWrite(RegionAccess, &'a [u8]),
    /// Several small writes, in order.
    RegionWriteMulti(Vec<WriteOne>),
    /// Put the device into its state after power-on.
    DeviceReset,
}

/// Most writes in one [`Request::RegionWriteMulti`], as QEMU has it.
const WRITES_MAX: u64 = 200;

impl<'a> Request<'a> {
    /// Reads the payload of a command.
    ///
    /// # Errors
    /// A [`ParseError`] for the reply; none of them ends the connection.
    pub fn parse(command: Command, payload: &'a [u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(command.name(), payload);
        Ok(match command {
            Command::Version => Self::Version(Version::parse(payload)?),
            Command::DmaMap => Self::DmaMap(parse_map(r)?),
            Command::DmaUnmap => {
                let (_argsz, flags, address, len_bytes) = (r.u32()?, r.u32()?, r.u64()?, r.u64()?);
                Self::DmaUnmap(DmaUnmap { flags, address, len_bytes })
            }
            Command::DeviceGetInfo => {
                r.take(16)?;
                Self::DeviceInfo
            }
            Command::DeviceGetRegionInfo => {
                let (argsz, _flags, index) = (r.u32()?, r.u32()?, r.u32()?);
                Self::RegionInfo { index, argsz }
            }
            Command::DeviceGetRegionIoFds => {
                let (_argsz, _flags, index) = (r.u32()?, r.u32()?, r.u32()?);
                Self::RegionIoFds { index }
            }
            Command::DeviceGetIrqInfo => {
                let (_argsz, _flags, index) = (r.u32()?, r.u32()?, r.u32()?);
                Self::IrqInfo { index }
            }
            Command::DeviceSetIrqs => Self::SetIrqs(SetIrqs::parse(payload)?),
            Command::RegionRead => Self::RegionRead(parse_access(&mut r)?),
            Command::RegionWrite => {
                let access = parse_access(&mut r)?;
                let data = r.take(access.len_bytes as usize)?;
                Self::RegionWrite(access, data)
            }
            Command::RegionWriteMulti => Self::RegionWriteMulti(parse_writes(r)?),
            Command::DeviceReset => Self::DeviceReset,
            Command::DmaRead | Command::DmaWrite => {
                return Err(ParseError::Command { command: command as u16 });
            }
        })
    }

    /// The command and the payload that [`parse`](Self::parse) reads back.
    pub fn build(&self) -> (Command, Vec<u8>) {
        let mut out = Vec::new();
        (self.put(&mut out), out)
    }

    /// The whole message with the id `id`, into `out` in place of what that held: for whoever keeps one buffer for all.
    ///
    /// PANIC: as [`Header::with_payload`].
    pub fn encode(&self, id: u16, no_reply: bool, out: &mut Vec<u8>) -> Command {
        out.clear();
        out.resize(HEADER_LEN_BYTES, 0);
        let command = self.put(out);
        let header =
            Header { id, command: command as u16, size_bytes: 0, kind: Kind::Command, no_reply, error: None };
        header.finish(out);
        command
    }

    /// Appends the payload.
    fn put(&self, out: &mut Vec<u8>) -> Command {
        match self {
            Self::Version(version) => {
                out.extend_from_slice(&version.build());
                Command::Version
            }
            Self::DmaMap(m) => {
                let flags = u32::from(m.readable) | u32::from(m.writable) << 1;
                out.put32(32).put32(flags).put64(m.offset).put64(m.address).put64(m.len_bytes);
                Command::DmaMap
            }
            Self::DmaUnmap(u) => {
                out.put32(24).put32(u.flags).put64(u.address).put64(u.len_bytes);
                Command::DmaUnmap
            }
            Self::DeviceInfo => {
                out.put32(16).put32(0).put32(0).put32(0);
                Command::DeviceGetInfo
            }
            Self::RegionInfo { index, argsz } => {
                out.put32(*argsz).put32(0).put32(*index).put32(0).put64(0).put64(0);
                Command::DeviceGetRegionInfo
            }
            Self::RegionIoFds { index } => {
                out.put32(16).put32(0).put32(*index).put32(0);
                Command::DeviceGetRegionIoFds
            }
            Self::IrqInfo { index } => {
                out.put32(16).put32(0).put32(*index).put32(0);
                Command::DeviceGetIrqInfo
            }
            Self::SetIrqs(set) => {
                out.extend_from_slice(&set.build());
                Command::DeviceSetIrqs
            }
            Self::RegionRead(at) => {
                put_access(out, at);
                Command::RegionRead
            }
            Self::RegionWrite(at, data) => {
                put_access(out, at);
                out.extend_from_slice(data);
                Command::RegionWrite
            }
            Self::RegionWriteMulti(writes) => {
                out.put64(writes.len() as u64);
                for write in writes {
                    put_access(out, &write.at);
                    out.extend_from_slice(&write.data);
                }
                Command::RegionWriteMulti
            }
            Self::DeviceReset => Command::DeviceReset,
        }
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

fn parse_map(mut r: Reader<'_>) -> Result<DmaMap, ParseError> {
    let (_argsz, flags, offset, address, len_bytes) = (r.u32()?, r.u32()?, r.u64()?, r.u64()?, r.u64()?);
    if len_bytes == 0 || address.checked_add(len_bytes - 1).is_none() {
        let allowed = "1 byte up to the end of the address space";
        return Err(ParseError::Field { what: "DMA_MAP size", value: len_bytes, allowed });
    }
    if offset.checked_add(len_bytes).is_none() {
        let allowed = "an offset that with the size stays below 2^64";
        return Err(ParseError::Field { what: "DMA_MAP offset", value: offset, allowed });
    }
    Ok(DmaMap { readable: flags & 1 != 0, writable: flags & 2 != 0, offset, address, len_bytes })
}

fn parse_access(r: &mut Reader<'_>) -> Result<RegionAccess, ParseError> {
    let (offset, region, len_bytes) = (r.u64()?, r.u32()?, r.u32()?);
    if len_bytes > XFER_MAX_BYTES {
        let allowed = "at most the transfer size agreed on (1 MiB)";
        return Err(ParseError::Field { what: "region access count", value: len_bytes.into(), allowed });
    }
    Ok(RegionAccess { offset, region, len_bytes })
}

fn put_access(out: &mut Vec<u8>, at: &RegionAccess) {
    out.put64(at.offset).put32(at.region).put32(at.len_bytes);
}

fn parse_writes(mut r: Reader<'_>) -> Result<Vec<WriteOne>, ParseError> {
    let count = r.u64()?;
    if count > WRITES_MAX {
        return Err(ParseError::Field {
            what: "REGION_WRITE_MULTI count",
            value: count,
            allowed: "0 to 200",
        });
    }
    let mut writes = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let at = parse_access(&mut r)?;
        if !(1..=8).contains(&at.len_bytes) {
            let what = "REGION_WRITE_MULTI write size";
            return Err(ParseError::Field { what, value: at.len_bytes.into(), allowed: "1 to 8 bytes" });
        }
        let mut data = [0; 8];
        data.copy_from_slice(r.take(8)?);
        writes.push(WriteOne { at, data });
    }
    Ok(writes)
}

/// What the device asks of client memory that it cannot map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DmaRequest<'a> {
    /// Read `len_bytes` bytes (at most [`XFER_MAX_BYTES`]) from `address`.
    Read {
        /// Where.
        address: u64,
        /// How much.
        len_bytes: u32,
    },
    /// Write the bytes to `address`.
    Write {
        /// Where.
        address: u64,
        /// What.
        data: &'a [u8],
    },
}

impl<'a> DmaRequest<'a> {
    /// The command and its payload.
    pub fn build(&self) -> (Command, Vec<u8>) {
        let mut out = Vec::new();
        match self {
            Self::Read { address, len_bytes } => {
                out.put64(*address).put64(u64::from(*len_bytes));
                (Command::DmaRead, out)
            }
            Self::Write { address, data } => {
                out.put64(*address).put64(data.len() as u64);
                out.extend_from_slice(data);
                (Command::DmaWrite, out)
            }
        }
    }

    /// Reads the payload of a command that the device sent.
    ///
    /// # Errors
    /// A [`ParseError`] for the reply.
    pub fn parse(command: Command, payload: &'a [u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(command.name(), payload);
        let (address, count) = (r.u64()?, r.u64()?);
        if count > u64::from(XFER_MAX_BYTES) {
            let allowed = "at most the transfer size agreed on (1 MiB)";
            return Err(ParseError::Field { what: "DMA count", value: count, allowed });
        }
        match command {
            Command::DmaRead => Ok(Self::Read { address, len_bytes: count as u32 }),
            Command::DmaWrite => Ok(Self::Write { address, data: r.take(count as usize)? }),
            _ => Err(ParseError::Command { command: command as u16 }),
        }
    }

    /// The whole message that answers this request, which came under `request`; `data` are the bytes read.
    pub fn reply(&self, request: &Header, data: &[u8]) -> Vec<u8> {
        let (address, len_bytes) = match self {
            Self::Read { address, .. } => (*address, data.len()),
            Self::Write { address, data } => (*address, data.len()),
        };
        let mut out = Vec::with_capacity(16 + data.len());
        out.put64(address).put64(len_bytes as u64);
        out.extend_from_slice(data);
        Header { kind: Kind::Reply, no_reply: false, error: None, ..*request }.with_payload(&out)
    }

    /// The data in the payload of a reply to a read of `len_bytes` bytes.
    ///
    /// # Errors
    /// [`ParseError::Short`] if the client sent less than was asked for.
    pub fn parse_read_reply(payload: &[u8], len_bytes: u32) -> Result<&[u8], ParseError> {
        let mut r = Reader::new("DMA_READ reply", payload);
        r.take(16)?;
        r.take(len_bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMANDS: [u16; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15];

    proptest! {
        #[test]
        fn any_payload_parses_or_is_refused_and_what_parses_builds_back(
            number in prop::sample::select(COMMANDS.to_vec()),
            payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let command = Command::from_number(number).unwrap();
            if let Ok(request) = Request::parse(command, &payload) {
                let (again, bytes) = request.build();
                prop_assert_eq!(again, command);
                prop_assert_eq!(Request::parse(command, &bytes), Ok(request));
            }
            let _ = DmaRequest::parse(command, &payload);
        }
    }

    #[test]
    fn a_message_encoded_in_place_is_the_one_that_is_built_in_parts() {
        let mut out = vec![9; 100];
        let write = Request::RegionWrite(RegionAccess { offset: 8, region: 0, len_bytes: 2 }, &[1, 2]);
        for request in [Request::DeviceReset, write, Request::SetIrqs(SetIrqs::disable(2))] {
            let (command, payload) = request.build();
            let command = command as u16;
            let header =
                Header { id: 7, command, size_bytes: 0, kind: Kind::Command, no_reply: true, error: None };
            request.encode(7, true, &mut out);
            assert_eq!(out, header.with_payload(&payload));
        }
    }

    #[test]
    fn a_read_reply_with_more_or_less_than_was_asked_for_is_refused() {
        let at = RegionAccess { offset: 8, region: 0, len_bytes: 8 };
        let mut payload = Vec::new();
        put_access(&mut payload, &at);
        assert!(matches!(at.parse_read_reply(&payload), Err(ParseError::Short { .. })));
        payload.extend_from_slice(&[7; 8]);
        assert_eq!(at.parse_read_reply(&payload), Ok(&[7; 8][..]));
        let other = RegionAccess { len_bytes: 4, ..at };
        assert!(matches!(other.parse_read_reply(&payload), Err(ParseError::Field { .. })));
    }

    #[test]
    fn a_map_that_wraps_is_refused() {
        for (address, len) in [(u64::MAX, 2), (0, 0), (2, u64::MAX)] {
            let mut payload = Vec::new();
            payload.put32(32).put32(3).put64(0).put64(address).put64(len);
            let parsed = Request::parse(Command::DmaMap, &payload);
            assert!(matches!(parsed, Err(ParseError::Field { .. })), "{address:#x} + {len:#x}: {parsed:?}");
        }
    }

    #[test]
    fn a_write_that_is_shorter_than_it_says_is_refused() {
        let at = RegionAccess { offset: 8, region: 0, len_bytes: 8 };
        let (command, mut payload) = Request::RegionWrite(at, &[1, 2, 3, 4, 5, 6, 7, 8]).build();
        payload.pop();
        let short = ParseError::Short { what: "REGION_WRITE", needed_bytes: 24, had_bytes: 23 };
        assert_eq!(Request::parse(command, &payload), Err(short));
    }
}
