//! Management datagrams: 256 bytes with a common header, in which subnet managers and counters' readers speak.
//!
//! ```text
//!   0   base version │ class │ class version │ R, method
//!   4   status 16 │ class-specific 16 (directed route: hop pointer 8, hop count 8)
//!   8   transaction 64
//!   16  attribute 16 │ reserved 16 │ 20 attribute modifier 32
//!   24  subnet management: M_Key 64 │ directed route: 32 source LID, 34 destination LID
//!   64  subnet management: 64 bytes of attribute │ 128 initial path │ 192 return path
//!   64  performance management: attribute
//! ```
//!
//! A view reads and changes one field at a time; nothing in it can be out of bounds.

use std::fmt;

use qhca_regs::Lid;

/// Bytes of every MAD.
pub const MAD_BYTES: usize = 256;

/// Who speaks: the management class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MadClass {
    /// Subnet management by LID.
    SubnetLid,
    /// Subnet management by a path that the packet itself names.
    SubnetDirected,
    /// Subnet administration: asking the subnet manager.
    SubnetAdministration,
    /// Counters.
    Performance,
    /// Another.
    Other(u8),
}

impl MadClass {
    /// From the byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            0x01 => Self::SubnetLid,
            0x81 => Self::SubnetDirected,
            0x03 => Self::SubnetAdministration,
            0x04 => Self::Performance,
            other => Self::Other(other),
        }
    }

    /// The byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::SubnetLid => 0x01,
            Self::SubnetDirected => 0x81,
            Self::SubnetAdministration => 0x03,
            Self::Performance => 0x04,
            Self::Other(byte) => byte,
        }
    }

    /// Whether it is subnet management, by whichever route.
    pub const fn is_subnet(self) -> bool {
        matches!(self, Self::SubnetLid | Self::SubnetDirected)
    }
}

/// What is wanted: the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Read.
    Get,
    /// Change, and read.
    Set,
    /// Send without an answer.
    Send,
    /// Tell.
    Trap,
    /// Stop telling.
    TrapRepress,
    /// The answer to Get and Set.
    GetResponse,
    /// Another.
    Other(u8),
}

impl Method {
    /// From the byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            0x01 => Self::Get,
            0x02 => Self::Set,
            0x03 => Self::Send,
            0x05 => Self::Trap,
            0x07 => Self::TrapRepress,
            0x81 => Self::GetResponse,
            other => Self::Other(other),
        }
    }

    /// The byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Get => 0x01,
            Self::Set => 0x02,
            Self::Send => 0x03,
            Self::Trap => 0x05,
            Self::TrapRepress => 0x07,
            Self::GetResponse => 0x81,
            Self::Other(byte) => byte,
        }
    }
}

/// Bits of the status that an agent sets.
pub mod status {
    /// The class or its version is not supported.
    pub const BAD_VERSION: u16 = 1 << 2;
    /// The method is not supported.
    pub const METHOD: u16 = 2 << 2;
    /// The method does not go with this attribute.
    pub const METHOD_ATTRIBUTE: u16 = 3 << 2;
    /// A field, or the attribute modifier, has a value that is not possible.
    pub const INVALID_VALUE: u16 = 7 << 2;
    /// Directed route: on its way back.
    pub const DIRECTION: u16 = 1 << 15;
}

/// One MAD.
#[derive(Clone, PartialEq, Eq)]
pub struct Mad(pub [u8; MAD_BYTES]);

impl Mad {
    /// Where a subnet management attribute begins.
    pub const DATA_AT: usize = 64;
    /// Bytes of a subnet management attribute.
    pub const DATA_BYTES: usize = 64;
    const INITIAL_PATH_AT: usize = 128;
    const RETURN_PATH_AT: usize = 192;
    /// Hops that a directed route can have.
    pub const HOPS_MAX: u8 = 63;

    /// An empty MAD of this kind.
    pub fn new(class: MadClass, method: Method, attribute: u16, modifier: u32, transaction: u64) -> Self {
        let mut mad = Self([0; MAD_BYTES]);
        mad.0[0] = 1;
        mad.0[1] = class.byte();
        mad.0[2] = match class {
            MadClass::SubnetAdministration => 2,
            _ => 1,
        };
        mad.0[3] = method.byte();
        mad.set_u64(8, transaction);
        mad.set_u16(16, attribute);
        mad.set_u32(20, modifier);
        mad
    }

    /// From bytes; `None` if they are fewer than a MAD has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied().map(Self)
    }

    /// The class.
    pub fn class(&self) -> MadClass {
        MadClass::from_byte(self.0[1])
    }

    /// Whether base and class version are those that we know.
    pub fn has_known_versions(&self) -> bool {
        let class_version = if self.class() == MadClass::SubnetAdministration { 2 } else { 1 };
        self.0[0] == 1 && self.0[2] == class_version
    }

    /// The method.
    pub fn method(&self) -> Method {
        Method::from_byte(self.0[3])
    }

    /// Sets the method.
    pub fn set_method(&mut self, method: Method) {
        self.0[3] = method.byte();
    }

    /// The status, without the direction.
    pub fn status(&self) -> u16 {
        self.u16(4) & !status::DIRECTION
    }

    /// Whether it is on its way back along a directed route.
    pub fn is_returning(&self) -> bool {
        self.class() == MadClass::SubnetDirected && self.u16(4) & status::DIRECTION != 0
    }

    /// Sets the status as a whole.
    pub fn set_status(&mut self, status: u16) {
        self.set_u16(4, status);
    }

    /// The transaction.
    pub fn transaction(&self) -> u64 {
        self.u64(8)
    }

    /// Sets the transaction.
    pub fn set_transaction(&mut self, transaction: u64) {
        self.set_u64(8, transaction);
    }

    /// The attribute.
    pub fn attribute(&self) -> u16 {
        self.u16(16)
    }

    /// The attribute modifier.
    pub fn modifier(&self) -> u32 {
        self.u32(20)
    }

    /// The M_Key of a subnet management MAD.
    pub fn m_key(&self) -> u64 {
        self.u64(24)
    }

    /// Sets the M_Key.
    pub fn set_m_key(&mut self, key: u64) {
        self.set_u64(24, key);
    }

    /// Directed route: how far it has come, and how far it goes.
    pub fn hops(&self) -> (u8, u8) {
        (self.0[6], self.0[7])
    }

    /// Directed route: source and destination LID of the parts that are routed by LID.
    pub fn directed_lids(&self) -> (Lid, Lid) {
        (Lid(self.u16(32)), Lid(self.u16(34)))
    }

    /// Makes it a directed-route MAD along `ports`, the first of which leaves this node, and sets it on its way.
    pub fn direct(&mut self, ports: &[u8]) {
        let count = ports.len().min(usize::from(Self::HOPS_MAX));
        // What leaves the first node has made its first hop.
        (self.0[6], self.0[7]) = (u8::from(count > 0), count as u8);
        self.set_u16(32, Lid::PERMISSIVE.0);
        self.set_u16(34, Lid::PERMISSIVE.0);
        self.0[Self::INITIAL_PATH_AT + 1..][..count].copy_from_slice(&ports[..count]);
    }

    /// Directed route: notes the port that it came in by at its `hop`.
    pub fn note_return_port(&mut self, hop: u8, port: u8) {
        self.0[Self::RETURN_PATH_AT + usize::from(hop & Self::HOPS_MAX)] = port;
    }

    /// Directed route: the port of the return path at `hop`.
    pub fn return_port(&self, hop: u8) -> u8 {
        self.0[Self::RETURN_PATH_AT + usize::from(hop & Self::HOPS_MAX)]
    }

    /// The attribute of a subnet management MAD.
    pub fn data(&self) -> &[u8; Self::DATA_BYTES] {
        // PANIC: 64 bytes from byte 64 lie inside the 256.
        self.0[Self::DATA_AT..].first_chunk().expect("inside")
    }

    /// The attribute, to be changed.
    pub fn data_mut(&mut self) -> &mut [u8; Self::DATA_BYTES] {
        // PANIC: 64 bytes from byte 64 lie inside the 256.
        self.0[Self::DATA_AT..].first_chunk_mut().expect("inside")
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        // PANIC: offsets are constants of this file, all inside the 256.
        *self.0[at..].first_chunk().expect("inside")
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    fn set_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    fn set_u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
}

impl fmt::Display for Mad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {:?} attribute {:#06x} modifier {:#x} status {:#06x} transaction {:#x}",
            self.class(),
            self.method(),
            self.attribute(),
            self.modifier(),
            self.status(),
            self.transaction()
        )?;
        if self.class() == MadClass::SubnetDirected {
            let (pointer, count) = self.hops();
            write!(f, " hop {pointer} of {count}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Mad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mad({self})")
    }
}
