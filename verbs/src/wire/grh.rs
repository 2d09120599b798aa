//! Global route header: who on which subnet; an IPv6 header in all but name.
//!
//! ```text
//!   word 0     IPVer 4 (6) │ traffic class 8 │ flow label 20
//!   word 1     payload length 16, bytes from after the GRH through ICRC │ next header 8 (0x1B) │ hop limit 8
//!   words 2-5  source GID
//!   words 6-9  destination GID
//! ```

use std::fmt;

use super::{WireError, wide};

/// A port's global identifier: 64 bits of subnet prefix, 64 bits of GUID; or a multicast group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub u128);

impl Gid {
    /// The prefix of every subnet that was given none.
    pub const DEFAULT_PREFIX: u64 = 0xFE80_0000_0000_0000;

    /// The GID of `guid` on the subnet `prefix`.
    pub const fn new(prefix: u64, guid: u64) -> Self {
        Self((prefix as u128) << 64 | guid as u128)
    }

    /// Whether it names a multicast group.
    pub const fn is_multicast(self) -> bool {
        self.0 >> 120 == 0xFF
    }

    #[inline]
    const fn words(self) -> [u32; 4] {
        [(self.0 >> 96) as u32, (self.0 >> 64) as u32, (self.0 >> 32) as u32, self.0 as u32]
    }

    #[inline]
    const fn from_words([a, b, c, d]: [u32; 4]) -> Self {
        Self::new(wide(a, b), wide(c, d))
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::Ipv6Addr::from_bits(self.0).fmt(f)
    }
}

/// A global route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes from after the GRH through the ICRC.
    pub payload_bytes: u16,
    /// Routers that it may still pass.
    pub hop_limit: u8,
    /// Source.
    pub sgid: Gid,
    /// Destination.
    pub dgid: Gid,
}

impl Grh {
    /// Words of a GRH.
    pub const WORDS: usize = 10;
    /// Bytes of a GRH.
    pub const BYTES: usize = 40;
    /// The next-header value of the InfiniBand transport.
    pub const NEXT_HEADER_IBA: u8 = 0x1B;

    /// Reads a GRH.
    ///
    /// # Errors
    /// [`WireError::GrhVersion`], [`WireError::GrhNextHeader`].
    pub const fn parse(words: [u32; 10]) -> Result<Self, WireError> {
        let [first, second, s0, s1, s2, s3, d0, d1, d2, d3] = words;
        let version = (first >> 28) as u8;
        if version != 6 {
            return Err(WireError::GrhVersion(version));
        }
        let next = (second >> 8) as u8;
        if next != Self::NEXT_HEADER_IBA {
            return Err(WireError::GrhNextHeader(next));
        }
        Ok(Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xF_FFFF,
            payload_bytes: (second >> 16) as u16,
            hop_limit: second as u8,
            sgid: Gid::from_words([s0, s1, s2, s3]),
            dgid: Gid::from_words([d0, d1, d2, d3]),
        })
    }

    /// The words of this GRH.
    pub const fn build(self) -> [u32; 10] {
        let first = 6 << 28 | (self.traffic_class as u32) << 20 | self.flow_label & 0xF_FFFF;
        let second =
            (self.payload_bytes as u32) << 16 | (Self::NEXT_HEADER_IBA as u32) << 8 | self.hop_limit as u32;
        let [s0, s1, s2, s3] = self.sgid.words();
        let [d0, d1, d2, d3] = self.dgid.words();
        [first, second, s0, s1, s2, s3, d0, d1, d2, d3]
    }
}

impl fmt::Display for Grh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GRH {} -> {} hops {} flow {:#x}", self.sgid, self.dgid, self.hop_limit, self.flow_label)
    }
}
