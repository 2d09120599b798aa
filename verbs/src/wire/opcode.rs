//! Opcodes: the transport service in the upper three bits, what the packet does in the lower five.
//!
//! What an opcode implies (which extension headers, whether it begins or ends a message) is one look into a table.

use std::fmt;

/// The transport service, bits 7 to 5 of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Part of a SEND.
    Send,
    /// Part of an RDMA WRITE.
    Write,
    /// An RDMA READ request.
    ReadRequest,
    /// Part of the answer to a READ.
    ReadResponse,
    /// An acknowledge, positive or negative.
    Acknowledge,
    /// The answer to an atomic.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
}

/// Where in its message a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// All of the message.
    Only,
}

impl Place {
    /// Whether a message begins here.
    #[inline]
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends here.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// What a SEND or WRITE carries besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Nothing.
    None,
    /// 32 bits for the completion.
    Immediate,
    /// A key that the receiver is to invalidate.
    Invalidate,
}

/// What an opcode implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The service.
    pub service: Service,
    /// What it does.
    pub operation: Operation,
    /// Where in the message.
    pub place: Place,
    /// What else is in it.
    pub extra: Extra,
    /// Words of extension headers.
    pub ext_words: u8,
}

/// An opcode as the BTH has it, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// Lower five bits, for each kind of packet in the order of the numbers.
const LOW: [Option<(Operation, Place, Extra)>; 32] = {
    use {Extra as E, Operation as O, Place as P};
    let mut low = [None; 32];
    low[0x00] = Some((O::Send, P::First, E::None));
    low[0x01] = Some((O::Send, P::Middle, E::None));
    low[0x02] = Some((O::Send, P::Last, E::None));
    low[0x03] = Some((O::Send, P::Last, E::Immediate));
    low[0x04] = Some((O::Send, P::Only, E::None));
    low[0x05] = Some((O::Send, P::Only, E::Immediate));
    low[0x06] = Some((O::Write, P::First, E::None));
    low[0x07] = Some((O::Write, P::Middle, E::None));
    low[0x08] = Some((O::Write, P::Last, E::None));
    low[0x09] = Some((O::Write, P::Last, E::Immediate));
    low[0x0A] = Some((O::Write, P::Only, E::None));
    low[0x0B] = Some((O::Write, P::Only, E::Immediate));
    low[0x0C] = Some((O::ReadRequest, P::Only, E::None));
    low[0x0D] = Some((O::ReadResponse, P::First, E::None));
    low[0x0E] = Some((O::ReadResponse, P::Middle, E::None));
    low[0x0F] = Some((O::ReadResponse, P::Last, E::None));
    low[0x10] = Some((O::ReadResponse, P::Only, E::None));
    low[0x11] = Some((O::Acknowledge, P::Only, E::None));
    low[0x12] = Some((O::AtomicAcknowledge, P::Only, E::None));
    low[0x13] = Some((O::CompareSwap, P::Only, E::None));
    low[0x14] = Some((O::FetchAdd, P::Only, E::None));
    low[0x16] = Some((O::Send, P::Last, E::Invalidate));
    low[0x17] = Some((O::Send, P::Only, E::Invalidate));
    low
};

const MEANINGS: [Option<Meaning>; 256] = {
    let mut all = [None; 256];
    let mut code = 0;
    while code < 256 {
        all[code] = meaning_of(code as u8);
        code += 1;
    }
    all
};

const fn meaning_of(code: u8) -> Option<Meaning> {
    let low = code & 0x1F;
    let service = match code >> 5 {
        0 => Service::Rc,
        1 if low <= 0x0B => Service::Uc,
        3 if low == 0x04 || low == 0x05 => Service::Ud,
        _ => return None,
    };
    let Some((operation, place, extra)) = LOW[low as usize] else { return None };
    let own = match operation {
        Operation::Write if place.begins() => 4,
        Operation::ReadRequest => 4,
        Operation::ReadResponse if matches!(place, Place::Middle) => 0,
        Operation::ReadResponse | Operation::Acknowledge => 1,
        Operation::AtomicAcknowledge => 3,
        Operation::CompareSwap | Operation::FetchAdd => 7,
        Operation::Send | Operation::Write => 0,
    };
    let datagram = if matches!(service, Service::Ud) { 2 } else { 0 };
    let carried = if matches!(extra, Extra::None) { 0 } else { 1 };
    Some(Meaning { service, operation, place, extra, ext_words: own + datagram + carried })
}

impl Opcode {
    /// The opcode of a SEND packet.
    #[inline]
    pub const fn send(service: Service, place: Place, extra: Extra) -> Self {
        let low = match (place, extra) {
            (Place::First, _) => 0x00,
            (Place::Middle, _) => 0x01,
            (Place::Last, Extra::None) => 0x02,
            (Place::Last, Extra::Immediate) => 0x03,
            (Place::Last, Extra::Invalidate) => 0x16,
            (Place::Only, Extra::None) => 0x04,
            (Place::Only, Extra::Immediate) => 0x05,
            (Place::Only, Extra::Invalidate) => 0x17,
        };
        Self::of(service, low)
    }

    /// The opcode of an RDMA WRITE packet.
    #[inline]
    pub const fn write(service: Service, place: Place, extra: Extra) -> Self {
        let low = match (place, extra) {
            (Place::First, _) => 0x06,
            (Place::Middle, _) => 0x07,
            (Place::Last, Extra::Immediate) => 0x09,
            (Place::Last, _) => 0x08,
            (Place::Only, Extra::Immediate) => 0x0B,
            (Place::Only, _) => 0x0A,
        };
        Self::of(service, low)
    }

    /// The opcode of a packet of an RDMA READ's answer.
    #[inline]
    pub const fn read_response(place: Place) -> Self {
        Self(match place {
            Place::First => 0x0D,
            Place::Middle => 0x0E,
            Place::Last => 0x0F,
            Place::Only => 0x10,
        })
    }

    /// RC RDMA READ request.
    pub const READ_REQUEST: Self = Self(0x0C);
    /// RC acknowledge.
    pub const ACKNOWLEDGE: Self = Self(0x11);
    /// RC atomic acknowledge.
    pub const ATOMIC_ACKNOWLEDGE: Self = Self(0x12);
    /// RC compare and swap.
    pub const COMPARE_SWAP: Self = Self(0x13);
    /// RC fetch and add.
    pub const FETCH_ADD: Self = Self(0x14);

    #[inline]
    const fn of(service: Service, low: u8) -> Self {
        Self(match service {
            Service::Rc => low,
            Service::Uc => 0x20 | low,
            Service::Ud => 0x60 | low,
        })
    }

    /// What it implies; `None` if this transport does not know it.
    #[inline]
    pub fn meaning(self) -> Option<&'static Meaning> {
        static TABLE: [Option<Meaning>; 256] = MEANINGS;
        TABLE[usize::from(self.0)].as_ref()
    }

    /// Every opcode that this transport knows.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self).filter(|opcode| opcode.meaning().is_some())
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(meaning) = self.meaning() else { return write!(f, "opcode {:#04x}", self.0) };
        let operation = match meaning.operation {
            Operation::Send => "SEND",
            Operation::Write => "RDMA WRITE",
            Operation::ReadRequest => return write!(f, "{} RDMA READ request", meaning.service),
            Operation::ReadResponse => "RDMA READ response",
            Operation::Acknowledge => return write!(f, "{} ACK", meaning.service),
            Operation::AtomicAcknowledge => return write!(f, "{} atomic ACK", meaning.service),
            Operation::CompareSwap => return write!(f, "{} compare-swap", meaning.service),
            Operation::FetchAdd => return write!(f, "{} fetch-add", meaning.service),
        };
        let place = match meaning.place {
            Place::First => "first",
            Place::Middle => "middle",
            Place::Last => "last",
            Place::Only => "only",
        };
        let extra = match meaning.extra {
            Extra::None => "",
            Extra::Immediate => " with immediate",
            Extra::Invalidate => " with invalidate",
        };
        write!(f, "{} {operation} {place}{extra}", meaning.service)
    }
}
