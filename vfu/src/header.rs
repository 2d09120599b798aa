//! The 16 bytes that begin every message.

use crate::wire::Reader;
use crate::{MESSAGE_MAX_BYTES, ParseError};

/// Bytes of a header.
pub const HEADER_LEN_BYTES: usize = 16;

const FLAG_NO_REPLY: u32 = 1 << 4;
const FLAG_ERROR: u32 = 1 << 5;

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command.
    Command,
    /// The reply to the command with the same id.
    Reply,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the protocol's own names; `Request` and `DmaRequest` say what each carries")]
#[repr(u16)]
pub enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceGetInfo = 4,
    DeviceGetRegionInfo = 5,
    DeviceGetRegionIoFds = 6,
    DeviceGetIrqInfo = 7,
    DeviceSetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    DmaRead = 11,
    DmaWrite = 12,
    DeviceReset = 13,
    RegionWriteMulti = 15,
}

impl Command {
    const ALL: [Self; 14] = [
        Self::Version,
        Self::DmaMap,
        Self::DmaUnmap,
        Self::DeviceGetInfo,
        Self::DeviceGetRegionInfo,
        Self::DeviceGetRegionIoFds,
        Self::DeviceGetIrqInfo,
        Self::DeviceSetIrqs,
        Self::RegionRead,
        Self::RegionWrite,
        Self::DmaRead,
        Self::DmaWrite,
        Self::DeviceReset,
        Self::RegionWriteMulti,
    ];

    /// The protocol's name of it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "VERSION",
            Self::DmaMap => "DMA_MAP",
            Self::DmaUnmap => "DMA_UNMAP",
            Self::DeviceGetInfo => "DEVICE_GET_INFO",
            Self::DeviceGetRegionInfo => "DEVICE_GET_REGION_INFO",
            Self::DeviceGetRegionIoFds => "DEVICE_GET_REGION_IO_FDS",
            Self::DeviceGetIrqInfo => "DEVICE_GET_IRQ_INFO",
            Self::DeviceSetIrqs => "DEVICE_SET_IRQS",
            Self::RegionRead => "REGION_READ",
            Self::RegionWrite => "REGION_WRITE",
            Self::DmaRead => "DMA_READ",
            Self::DmaWrite => "DMA_WRITE",
            Self::DeviceReset => "DEVICE_RESET",
            Self::RegionWriteMulti => "REGION_WRITE_MULTI",
        }
    }

    /// The command with number `number`.
    ///
    /// # Errors
    /// [`ParseError::Command`] if there is none: answered with an error, the connection goes on.
    pub fn from_number(number: u16) -> Result<Self, ParseError> {
        Self::ALL.into_iter().find(|c| *c as u16 == number).ok_or(ParseError::Command { command: number })
    }
}

/// A message's first 16 bytes. The command is kept as a number, since a header must be readable even when its
/// command is not known: its size says where the next message starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the asker; a reply repeats it.
    pub id: u16,
    /// See [`Command`].
    pub command: u16,
    /// Bytes of the whole message, header included.
    pub size_bytes: u32,
    /// Whether it asks or answers.
    pub kind: Kind,
    /// A command that wants no reply (posted write).
    pub no_reply: bool,
    /// In a reply: the `errno` of a failure.
    pub error: Option<u32>,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`ParseError::Size`] if the size cannot be true, [`ParseError::Kind`] for an unknown kind of message.
    pub fn parse(bytes: &[u8; HEADER_LEN_BYTES]) -> Result<Self, ParseError> {
        let mut r = Reader::new("header", bytes);
        let (id, command, size_bytes, flags, errno) = (r.u16()?, r.u16()?, r.u32()?, r.u32()?, r.u32()?);
        if (size_bytes as usize) < HEADER_LEN_BYTES || size_bytes > MESSAGE_MAX_BYTES {
            return Err(ParseError::Size { size_bytes });
        }
        let kind = match flags & 0xF {
            0 => Kind::Command,
            1 => Kind::Reply,
            kind => return Err(ParseError::Kind { kind: kind as u8 }),
        };
        let error = (flags & FLAG_ERROR != 0).then_some(errno);
        Ok(Self { id, command, size_bytes, kind, no_reply: flags & FLAG_NO_REPLY != 0, error })
    }

    /// The header's bytes.
    pub fn build(&self) -> [u8; HEADER_LEN_BYTES] {
        let kind = match self.kind {
            Kind::Command => 0,
            Kind::Reply => 1,
        };
        let flags = kind
            | if self.no_reply { FLAG_NO_REPLY } else { 0 }
            | if self.error.is_some() { FLAG_ERROR } else { 0 };
        let mut bytes = [0; HEADER_LEN_BYTES];
        bytes[0..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.error.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// Bytes that follow the header.
    pub const fn payload_len_bytes(&self) -> usize {
        self.size_bytes as usize - HEADER_LEN_BYTES
    }

    /// A whole message: this header with the right size, and `payload`.
    ///
    /// PANIC: a payload over the limit is a broken invariant of ours; transfers are cut to
    /// [`XFER_MAX_BYTES`](crate::XFER_MAX_BYTES) before a message is built.
    pub fn with_payload(self, payload: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER_LEN_BYTES + payload.len());
        message.resize(HEADER_LEN_BYTES, 0);
        message.extend_from_slice(payload);
        self.finish(&mut message);
        message
    }

    /// Puts this header with the right size over the first bytes of `message`, which keeps room for it there.
    pub(crate) fn finish(mut self, message: &mut [u8]) {
        let size = message.len();
        assert!(size <= MESSAGE_MAX_BYTES as usize, "a message of {size} bytes");
        self.size_bytes = size as u32;
        if let Some(head) = message.first_chunk_mut::<HEADER_LEN_BYTES>() {
            *head = self.build();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_sixteen_bytes_parse_or_are_refused_and_what_parses_builds_back(bytes: [u8; HEADER_LEN_BYTES]) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(Header::parse(&header.build()), Ok(header));
                prop_assert!(header.payload_len_bytes() < MESSAGE_MAX_BYTES as usize);
            }
        }
    }

    #[test]
    fn sizes_that_cannot_be_true_end_the_connection() {
        for size in [0u32, 15, MESSAGE_MAX_BYTES + 1, u32::MAX] {
            let mut bytes = [0; HEADER_LEN_BYTES];
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            let error = Header::parse(&bytes).unwrap_err();
            assert_eq!(error, ParseError::Size { size_bytes: size });
            assert!(error.ends_connection());
        }
    }

    #[test]
    fn every_command_number_names_one_command() {
        for command in Command::ALL {
            assert_eq!(Command::from_number(command as u16), Ok(command));
        }
        assert!(Command::from_number(14).is_err() && Command::from_number(0).is_err());
    }
}
