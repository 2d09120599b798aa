//! A micro subnet manager: brings a cable between two ports, or a port that talks to itself, to ACTIVE.
//!
//! ```text
//!   who is there? ─► is it a better manager? ─► LIDs ─► ARMED, both ─► ACTIVE, both ─► watch
//!    NodeInfo          SMInfo: step aside                                 │ a port fell back: again
//! ```
//!
//! It manages one hop and no more: where a switch answers, or a manager of higher priority (of equal priority the lower
//! GUID), it steps aside for good. Like everything here it is handed the time and MADs, and asked for what to send.

use qhca_regs::{Duration, Instant};

use crate::wire::mad::{Mad, MadClass, Method};

const NODE_INFO: u16 = 0x11;
const PORT_INFO: u16 = 0x15;
/// The attribute by which managers know each other.
pub const SM_INFO: u16 = 0x20;

/// How long an answer may take. Answers within one hop take microseconds; a stalled peer takes longer.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
/// How often a port is looked at once all is well.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Requests without an answer before it is tried from the start.
const TRIES: u32 = 5;
const ARMED: u8 = 3;
const ACTIVE: u8 = 4;
const CHANNEL_ADAPTER: u8 = 1;
const MASTER: u8 = 3;

/// When to manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmMode {
    /// If nobody better is there.
    Auto,
    /// Whoever is there.
    On,
    /// Never.
    Off,
}

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Asks who is at the other end.
    Discover,
    /// Asks whether that one manages.
    Rival,
    /// Reads a port's PortInfo, then sets it; the port is ours (0 hops) or the peer's (1 hop).
    Read {
        hops: u8,
        goal: Goal,
    },
    Write {
        hops: u8,
        goal: Goal,
    },
    /// All is well.
    Watch,
    Aside,
}

/// What a round over both ports sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Lid,
    Armed,
    Active,
}

/// The manager of one port.
#[derive(Clone, Debug)]
pub struct MicroSm {
    mode: SmMode,
    guid: u64,
    priority: u8,
    phase: Phase,
    /// The peer is this very port.
    is_loop: bool,
    info: [u8; Mad::DATA_BYTES],
    transaction: u64,
    sent_at: Option<Instant>,
    tries: u32,
    wait_until: Instant,
}

impl MicroSm {
    /// A manager for the port with this GUID.
    pub fn new(mode: SmMode, guid: u64, priority: u8) -> Self {
        Self {
            mode,
            guid,
            priority: priority & 0xF,
            phase: if mode == SmMode::Off { Phase::Aside } else { Phase::Discover },
            is_loop: false,
            info: [0; Mad::DATA_BYTES],
            transaction: 0,
            sent_at: None,
            tries: 0,
            wait_until: Instant::ZERO,
        }
    }

    /// Whether it leaves the port to somebody else.
    pub fn is_aside(&self) -> bool {
        self.phase == Phase::Aside
    }

    /// Whether both ports are ACTIVE, as far as it knows.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Watch
    }

    /// The MAD to send now, if there is one: with 0 hops it is for this port's own agent.
    pub fn poll(&mut self, now: Instant) -> Option<Mad> {
        if self.phase == Phase::Aside || now < self.wait_until {
            return None;
        }
        if let Some(sent_at) = self.sent_at {
            if now.since(sent_at) < ANSWER_WITHIN {
                return None;
            }
            self.tries += 1;
            if self.tries >= TRIES {
                self.start_again(now);
                return None;
            }
        }
        self.sent_at = Some(now);
        self.transaction += 1;
        Some(self.request())
    }

    fn request(&self) -> Mad {
        let (hops, method, attribute) = match self.phase {
            Phase::Discover | Phase::Aside => (1, Method::Get, NODE_INFO),
            Phase::Rival => (1, Method::Get, SM_INFO),
            Phase::Read { hops, .. } => (hops, Method::Get, PORT_INFO),
            Phase::Write { hops, .. } => (hops, Method::Set, PORT_INFO),
            Phase::Watch => (1, Method::Get, PORT_INFO),
        };
        let mut mad = Mad::new(MadClass::SubnetDirected, method, attribute, 0, self.transaction);
        mad.direct(if hops == 0 { &[] } else { &[1] });
        if let Phase::Write { hops, goal } = self.phase {
            *mad.data_mut() = self.info;
            change(mad.data_mut(), if hops == 0 { 1 } else { 2 }, goal);
        }
        mad
    }

    /// When it wants to be polled again.
    pub fn next(&self) -> Option<Instant> {
        let due = self.sent_at.map_or(self.wait_until, |sent_at| sent_at + ANSWER_WITHIN);
        (self.phase != Phase::Aside).then_some(due)
    }

    /// Takes the answer to what it sent; others are passed over.
    pub fn on_answer(&mut self, mad: &Mad, now: Instant) {
        if mad.method() != Method::GetResponse || mad.transaction() != self.transaction {
            return;
        }
        let Some(_sent_at) = self.sent_at.take() else { return };
        self.tries = 0;
        let is_good = mad.status() == 0;
        self.phase = match self.phase {
            Phase::Discover if is_good => self.met(mad.data()),
            Phase::Rival if is_good && self.mode == SmMode::Auto && self.is_better(mad.data()) => {
                log::info!("a subnet manager of higher standing is at the other end: stepping aside");
                Phase::Aside
            }
            // An agent without a manager does not know the attribute.
            Phase::Rival => Phase::Read { hops: 0, goal: Goal::Lid },
            Phase::Read { hops, goal } if is_good => {
                self.info = *mad.data();
                Phase::Write { hops, goal }
            }
            Phase::Write { hops, goal } if is_good => self.after(hops, goal),
            Phase::Watch if is_good && mad.data()[32] & 0xF == ACTIVE => {
                self.wait_until = now + LOOK_EVERY;
                Phase::Watch
            }
            _ => {
                self.wait_until = now + ANSWER_WITHIN;
                Phase::Discover
            }
        };
        if self.phase == Phase::Watch && self.wait_until <= now {
            self.wait_until = now + LOOK_EVERY;
        }
    }

    /// Somebody answered at the other end.
    fn met(&mut self, node: &[u8; Mad::DATA_BYTES]) -> Phase {
        if node[2] != CHANNEL_ADAPTER {
            log::info!("a switch is at the other end: its subnet has a manager of its own");
            return Phase::Aside;
        }
        self.is_loop = node[20..28] == self.guid.to_be_bytes();
        if self.is_loop { Phase::Read { hops: 0, goal: Goal::Lid } } else { Phase::Rival }
    }

    fn is_better(&self, info: &[u8; Mad::DATA_BYTES]) -> bool {
        let guid = u64::from_be_bytes(*info.first_chunk().unwrap_or(&[0; 8]));
        let (priority, state) = (info[20] >> 4, info[20] & 0xF);
        let higher = priority > self.priority || priority == self.priority && guid < self.guid;
        state > 0 && higher
    }

    /// A port was set: the other one, or the next goal.
    fn after(&self, hops: u8, goal: Goal) -> Phase {
        if hops == 0 && !self.is_loop {
            return Phase::Read { hops: 1, goal };
        }
        match goal {
            Goal::Lid => Phase::Read { hops: 0, goal: Goal::Armed },
            Goal::Armed => Phase::Read { hops: 0, goal: Goal::Active },
            Goal::Active => Phase::Watch,
        }
    }

    fn start_again(&mut self, now: Instant) {
        self.phase = Phase::Discover;
        self.sent_at = None;
        self.tries = 0;
        self.wait_until = now + LOOK_EVERY;
    }

    /// Answers another manager's question who we are; `None` if it is another question.
    pub fn answer(&self, mad: &Mad) -> Option<Mad> {
        if mad.attribute() != SM_INFO || mad.method() != Method::Get || self.phase == Phase::Aside {
            return None;
        }
        let mut answer = mad.clone();
        answer.set_method(Method::GetResponse);
        answer.set_status(if mad.class() == MadClass::SubnetDirected {
            crate::wire::mad::status::DIRECTION
        } else {
            0
        });
        let data = answer.data_mut();
        data.fill(0);
        data[..8].copy_from_slice(&self.guid.to_be_bytes());
        data[20] = self.priority << 4 | MASTER;
        Some(answer)
    }
}

/// Makes of a PortInfo that was read the one that is to be set.
fn change(info: &mut [u8; Mad::DATA_BYTES], lid: u8, goal: Goal) {
    if info[16..18] == [0, 0] || goal == Goal::Lid {
        (info[16], info[17]) = (0, lid);
    }
    // The manager is at LID 1.
    (info[18], info[19]) = (0, 1);
    let state = match goal {
        Goal::Lid => 0,
        Goal::Armed => ARMED,
        Goal::Active => ACTIVE,
    };
    // A port that has come further already is left there.
    let state = if info[32] & 0xF >= state { 0 } else { state };
    info[32] = info[32] & 0xF0 | state;
    // The training is left as it is.
    info[33] &= 0x0F;
}
