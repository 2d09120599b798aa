//! One memory's end of the two-wire bus: what it hears, when it acknowledges, which bits it sends.
//!
//! ```text
//!   START  address+0  ack  register  ack  byte  ack ...  STOP      a write: bytes are kept at the STOP
//!   START  address+0  ack  register  ack
//!   START  address+1  ack  (byte, master acks) ... byte, no ack  STOP      a read
//! ```
//!
//! A slave only ever pulls SDA low, and changes its mind only while SCL is low. After a write it leaves two polls
//! unanswered, as a memory does that is busy keeping the bytes (F-352).

/// Bit 0 of an address byte: the master wants to read.
const READ: u8 = 1;
/// Polls that a write keeps a memory busy for.
pub(super) const BUSY_POLLS: u8 = 2;
/// Bytes that one transfer may write: as many as a register byte can tell apart.
const MAX_WRITTEN: usize = 256;

/// What sits behind a slave.
pub(super) trait Memory {
    /// The byte at `at`.
    fn read(&mut self, at: u8) -> u8;
    /// A STOP has come after bytes for these places, in the order sent.
    fn keep(&mut self, written: &[(u8, u8)]);
    /// The place after `at`.
    fn after(&self, at: u8) -> u8 {
        at.wrapping_add(1)
    }
}

/// What a byte from the master will mean.
#[derive(Clone, Copy, Debug)]
enum Role {
    Address,
    Register,
    Data,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Not addressed: waits for a START.
    Idle,
    /// The master sends a byte.
    Hears { byte: u8, bits: u8, role: Role },
    /// The slave holds SDA low through the ninth clock.
    Acks { next: Next },
    /// The slave sends a byte.
    Tells { byte: u8, bits: u8 },
    /// The master's turn to acknowledge.
    Asks { acked: bool },
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Hear(Role),
    Tell,
}

/// See the chapter's head.
#[derive(Debug)]
pub(super) struct Slave {
    address: u8,
    phase: Phase,
    pulls: bool,
    pointer: u8,
    /// Bytes written since the last START.
    written: Vec<(u8, u8)>,
    busy_polls: u8,
}

impl Slave {
    pub(super) fn new(address: u8) -> Self {
        Self { address, phase: Phase::Idle, pulls: false, pointer: 0, written: Vec::new(), busy_polls: 0 }
    }

    /// Whether the slave holds SDA low.
    pub(super) fn pulls(&self) -> bool {
        self.pulls
    }

    /// Takes the slave off the bus: it lets go and hears nothing until the next START.
    pub(super) fn leave(&mut self) {
        self.pulls = false;
        self.phase = Phase::Idle;
        self.written.clear();
    }

    /// As [`leave`](Self::leave), and what it was busy with is forgotten.
    pub(super) fn reset(&mut self) {
        self.leave();
        self.busy_polls = 0;
        self.pointer = 0;
    }

    pub(super) fn start(&mut self) {
        self.leave();
        self.phase = Phase::Hears { byte: 0, bits: 0, role: Role::Address };
    }

    pub(super) fn stop(&mut self, memory: &mut impl Memory) {
        let written = std::mem::take(&mut self.written);
        self.leave();
        if !written.is_empty() {
            self.busy_polls = BUSY_POLLS;
            memory.keep(&written);
        }
    }

    pub(super) fn clock_up(&mut self, sda: bool) {
        match &mut self.phase {
            Phase::Hears { byte, bits, .. } if *bits < 8 => {
                *byte = *byte << 1 | u8::from(sda);
                *bits += 1;
            }
            Phase::Tells { bits, .. } => *bits += 1,
            Phase::Asks { acked } => *acked = !sda,
            _ => {}
        }
    }

    pub(super) fn clock_down(&mut self, memory: &mut impl Memory) {
        match self.phase {
            Phase::Hears { byte, bits: 8, role } => match self.answer(byte, role, memory) {
                Some(next) => {
                    self.pulls = true;
                    self.phase = Phase::Acks { next };
                }
                None => self.phase = Phase::Idle,
            },
            Phase::Acks { next: Next::Hear(role) } => {
                self.pulls = false;
                self.phase = Phase::Hears { byte: 0, bits: 0, role };
            }
            Phase::Acks { next: Next::Tell } | Phase::Asks { acked: true } => self.tell_next(memory),
            Phase::Asks { acked: false } => self.phase = Phase::Idle,
            Phase::Tells { byte, bits } if bits < 8 => self.pulls = byte << bits & 0x80 == 0,
            Phase::Tells { .. } => {
                self.pulls = false;
                self.phase = Phase::Asks { acked: false };
            }
            Phase::Hears { .. } | Phase::Idle => {}
        }
    }

    /// What follows on a whole byte from the master; `None` leaves it without an acknowledge.
    fn answer(&mut self, byte: u8, role: Role, memory: &impl Memory) -> Option<Next> {
        match role {
            Role::Address if byte & !READ != self.address => None,
            Role::Address if self.busy_polls > 0 => {
                self.busy_polls -= 1;
                None
            }
            Role::Address if byte & READ != 0 => Some(Next::Tell),
            Role::Address => Some(Next::Hear(Role::Register)),
            Role::Register => {
                self.pointer = byte;
                Some(Next::Hear(Role::Data))
            }
            Role::Data => {
                if self.written.len() < MAX_WRITTEN {
                    self.written.push((self.pointer, byte));
                }
                self.pointer = memory.after(self.pointer);
                Some(Next::Hear(Role::Data))
            }
        }
    }

    fn tell_next(&mut self, memory: &mut impl Memory) {
        let byte = memory.read(self.pointer);
        self.pointer = memory.after(self.pointer);
        self.pulls = byte & 0x80 == 0;
        self.phase = Phase::Tells { byte, bits: 0 };
    }
}
