//! How often errors may interrupt: token buckets and back-off, by class of error.
//!
//! A receiver that overflows raises one error for every packet it drops, a million a second. Serving each of them
//! keeps the processor from the packets whose lack of service is the cause. So an error class that has interrupted
//! stays masked until it may interrupt again, and this module says when that is.
//!
//! * Each class has a bucket: 100 interrupts a second, 20 in a burst.
//! * All classes share the device's bucket: 200 a second, 20 in a burst.
//! * A class that is masked waits 50 µs, doubled up to 10 ms each time that it is back as soon as it is unmasked,
//!   and halved for every such span that it stays quiet.
//! * An unknown bit is masked for good after 20 interrupts.
//! * What is fatal, and a port's news, is never held up by other classes: such a class waits for its own bucket
//!   only. It is charged to the device's bucket all the same, so that the others pay for it.
//!
//! A scope (the chip, port 0, port 1) has one mask register and interrupts at most once until it is served, so a
//! token is taken when a class or scope is *unmasked* and counts as used when it interrupts. That makes the bound
//! exact: never more than rate × time + burst.
//!
//! The limiter touches no register. The worker tells it what it read ([`observe_device`](StormLimiter::observe_device),
//! [`observe_port`](StormLimiter::observe_port)) and writes the masks it gets from [`rearm`](StormLimiter::rearm).

use crate::dispatch::{FATAL, UNKNOWN_LIMIT};
use qhca_regs::status::{ErrBits, PortErrBits};
use qhca_regs::{Duration, Instant, Port};

/// Error interrupts a second that one class may raise.
pub const CLASS_RATE_PER_S: u64 = 100;
/// Error interrupts a second that all classes together may raise.
pub const DEVICE_RATE_PER_S: u64 = 200;
/// Interrupts that may come at once before a rate counts.
pub const BURST: u64 = 20;
/// The shortest pause of a class that is masked.
pub const BACKOFF_MIN: Duration = Duration::from_micros(50);
/// The longest.
pub const BACKOFF_MAX: Duration = Duration::from_millis(10);

/// A bucket of tokens that fills at a constant rate: at most `rate × t + burst` tokens are taken in any time `t`.
///
/// It keeps one number, the time at which it would be full again, and needs no timer and no division.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    interval: Duration,
    burst: u64,
    full_at: Instant,
}

impl TokenBucket {
    /// A full bucket that gains `rate_per_s` tokens a second and holds `burst` of them. Neither may be 0.
    pub const fn new(rate_per_s: u64, burst: u64) -> Self {
        assert!(rate_per_s > 0 && burst > 0, "a bucket without rate or room never gives a token");
        Self {
            interval: Duration::from_nanos(1_000_000_000u64.div_ceil(rate_per_s)),
            burst,
            full_at: Instant::ZERO,
        }
    }

    /// When the next token can be taken; in the past if there is one now.
    pub fn ready_at(&self) -> Instant {
        let head_start = self.interval.times(self.burst - 1).as_nanos();
        Instant::from_nanos(self.full_at.as_nanos().saturating_sub(head_start))
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: Instant) -> bool {
        let ready = self.ready_at() <= now;
        if ready {
            self.charge(now);
        }
        ready
    }

    /// Takes a token whether there is one or not; later takers wait for the debt to be paid.
    pub fn charge(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }
}

/// Where an error comes from: each has one mask register and one bit in `IntStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole chip.
    Device,
    /// One port.
    Port(Port),
}

impl Scope {
    const ALL: [Self; 3] = [Self::Device, Self::Port(Port::P0), Self::Port(Port::P1)];

    const fn index(self) -> usize {
        match self {
            Self::Device => 0,
            Self::Port(port) => 1 + port.index(),
        }
    }
}

/// A class of errors: bits of one scope that are masked and unmasked together.
#[derive(Clone, Copy, Debug)]
struct ClassInfo {
    scope: Scope,
    /// Never held up by other classes.
    exempt: bool,
    bits: u64,
}

const DEVICE_RECEIVE: u64 = ErrBits::RCV_EGR_FULL_ERR.union(ErrBits::RCV_HDR_FULL_ERR).bits();
const DEVICE_STOP: u64 = ErrBits::HARDWARE_ERR.union(ErrBits::RESET_NEGATED).bits();
const DEVICE_ADDRESS: u64 = ErrBits::INVALID_ADDR_ERR.bits();
const DEVICE_SEND: u64 = ErrBits::SEND_ARM_LAUNCH_ERR
    .union(ErrBits::SEND_SPECIAL_TRIGGER_ERR)
    .union(ErrBits::SEND_VL_MISMATCH_ERR)
    .union(ErrBits::SDMA_WRONG_PORT_ERR)
    .union(ErrBits::SDMA_BUF_MASK_DUPLICATE_ERR)
    .union(ErrBits::SDMA_VL15_ERR)
    .union(ErrBits::SBUF_VL15_MISUSE_ERR)
    .bits();
const PORT_LINK: u64 = PortErrBits::IB_STATUS_CHANGED.bits();
const PORT_HALT: u64 = PortErrBits::SDMA_HALT_ERR.bits();
/// Bits 0 to 17: what a port finds wrong with packets it receives.
const PORT_RECEIVE: u64 = 0x3_FFFF;
/// Bits 29 to 38, 54 and 57: what it finds wrong with packets it sends.
const PORT_SEND: u64 = 0x7F << 32 | 0b111 << 29 | 1 << 54 | 1 << 57;
/// Bits 39 to 48: what its send-DMA engine finds wrong.
const PORT_SDMA: u64 = 0x3FF << 39;

const fn port_classes(port: Port) -> [ClassInfo; 6] {
    let scope = Scope::Port(port);
    let named = PORT_LINK | PORT_HALT | PORT_RECEIVE | PORT_SEND | PORT_SDMA;
    [
        ClassInfo { scope, exempt: true, bits: PORT_LINK },
        ClassInfo { scope, exempt: true, bits: PORT_HALT },
        ClassInfo { scope, exempt: false, bits: PORT_RECEIVE },
        ClassInfo { scope, exempt: false, bits: PORT_SEND },
        ClassInfo { scope, exempt: false, bits: PORT_SDMA },
        ClassInfo { scope, exempt: false, bits: !named },
    ]
}

/// How many classes there are.
const CLASSES: usize = 17;

const CLASS_TABLE: [ClassInfo; CLASSES] = {
    let scope = Scope::Device;
    let named = DEVICE_STOP | DEVICE_ADDRESS | DEVICE_RECEIVE | DEVICE_SEND;
    let [a, b, c, d, e, f] = port_classes(Port::P0);
    let [g, h, i, j, k, l] = port_classes(Port::P1);
    [
        ClassInfo { scope, exempt: true, bits: DEVICE_STOP },
        ClassInfo { scope, exempt: true, bits: DEVICE_ADDRESS },
        ClassInfo { scope, exempt: false, bits: DEVICE_RECEIVE },
        ClassInfo { scope, exempt: false, bits: DEVICE_SEND },
        ClassInfo { scope, exempt: false, bits: !named },
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        i,
        j,
        k,
        l,
    ]
};

/// One class: its bucket, its pause, and whether it holds a token, which it does exactly while it is unmasked.
#[derive(Clone, Copy, Debug)]
struct Class {
    bucket: TokenBucket,
    backoff: Duration,
    pause_until: Instant,
    armed_at: Instant,
    armed: bool,
}

impl Class {
    const fn new() -> Self {
        Self {
            bucket: TokenBucket::new(CLASS_RATE_PER_S, BURST),
            backoff: BACKOFF_MIN,
            pause_until: Instant::ZERO,
            armed_at: Instant::ZERO,
            armed: false,
        }
    }

    /// The class interrupted: its token is used, its pause begins.
    fn on_interrupt(&mut self, exempt: bool, now: Instant) {
        let mut quiet = now.since(self.armed_at);
        if quiet < self.backoff {
            self.backoff = self.backoff.doubled().min(BACKOFF_MAX);
        }
        while quiet >= self.backoff && self.backoff > BACKOFF_MIN {
            quiet = quiet - self.backoff;
            self.backoff = self.backoff.halved().max(BACKOFF_MIN);
        }
        self.armed = false;
        self.pause_until = if exempt { now } else { now + self.backoff };
    }

    /// When the class may be unmasked as far as it alone is concerned.
    fn ready_at(&self) -> Instant {
        self.pause_until.max(self.bucket.ready_at())
    }

    fn arm(&mut self, now: Instant) {
        self.bucket.charge(now);
        self.armed = true;
        self.armed_at = now;
    }
}

/// What the mask registers are to hold now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masks {
    /// `ErrMask`.
    pub device: ErrBits,
    /// `ErrMask_0` and `ErrMask_1`.
    pub ports: [PortErrBits; 2],
}

/// How often the limiter had to act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormCounters {
    /// Interrupts that were served, by scope: chip, port 0, port 1.
    pub interrupts: [u64; 3],
    /// Interrupts in whose word no bit was set.
    pub unexplained: u64,
    /// Bits that are masked for good, by scope.
    pub masked_for_good: [u64; 3],
}

/// Decides when a masked class of errors may interrupt again. See the module for the rules.
#[derive(Clone, Debug)]
pub struct StormLimiter {
    base: [u64; 3],
    classes: [Class; CLASSES],
    device: TokenBucket,
    /// Whether the scope holds a token of the device's bucket, which it does while an ordinary class is unmasked.
    scope_armed: [bool; 3],
    unknown_seen: [[u8; 64]; 3],
    /// Which scope is served first when tokens are short: it moves on, so that none is always last.
    first_scope: usize,
    counters: StormCounters,
}

impl StormLimiter {
    /// A limiter for masks that may enable the bits of `device` and `ports`: what the chip kept of all ones when its
    /// masks were written, and nothing for a port that is not there.
    pub fn new(device: ErrBits, ports: [PortErrBits; 2]) -> Self {
        Self {
            base: [device.bits(), ports[0].bits(), ports[1].bits()],
            classes: [Class::new(); CLASSES],
            device: TokenBucket::new(DEVICE_RATE_PER_S, BURST),
            scope_armed: [false; 3],
            unknown_seen: [[0; 64]; 3],
            first_scope: 0,
            counters: StormCounters::default(),
        }
    }

    /// `ErrStatus` held `bits` when the worker read it after an interrupt.
    pub fn observe_device(&mut self, bits: ErrBits, now: Instant) {
        self.observe(Scope::Device, bits.bits(), ErrBits::NAMED.bits(), now);
    }

    /// `ErrStatus_p` of `port` held `bits` when the worker read it after an interrupt.
    pub fn observe_port(&mut self, port: Port, bits: PortErrBits, now: Instant) {
        self.observe(Scope::Port(port), bits.bits(), PortErrBits::NAMED.bits(), now);
    }

    fn observe(&mut self, scope: Scope, bits: u64, named: u64, now: Instant) {
        self.counters.interrupts[scope.index()] += 1;
        // Only an exempt class can interrupt without a token; it is charged now.
        if !std::mem::take(&mut self.scope_armed[scope.index()]) {
            self.device.charge(now);
        }
        if bits == 0 {
            self.counters.unexplained += 1;
        }
        for (class, info) in self.classes.iter_mut().zip(CLASS_TABLE) {
            if info.scope == scope && info.bits & bits != 0 {
                class.on_interrupt(info.exempt, now);
            }
        }
        self.count_unknown(scope, bits & !named);
    }

    fn count_unknown(&mut self, scope: Scope, mut unknown: u64) {
        while unknown != 0 {
            let bit = unknown.trailing_zeros() as usize;
            unknown &= unknown - 1;
            let seen = &mut self.unknown_seen[scope.index()][bit];
            *seen = seen.saturating_add(1);
            if u64::from(*seen) >= UNKNOWN_LIMIT {
                self.base[scope.index()] &= !(1 << bit);
                self.counters.masked_for_good[scope.index()] |= 1 << bit;
            }
        }
    }

    /// Unmasks what may interrupt again at `now`, and gives what the masks are to hold.
    ///
    /// Call it after the words were cleared, and at [`poll_timeout`](Self::poll_timeout).
    pub fn rearm(&mut self, now: Instant) -> Masks {
        let mut masks = [0; 3];
        for turn in 0..Scope::ALL.len() {
            let scope = Scope::ALL[(self.first_scope + turn) % Scope::ALL.len()];
            masks[scope.index()] = self.rearm_scope(scope, now);
        }
        self.first_scope = (self.first_scope + 1) % Scope::ALL.len();
        Masks {
            device: ErrBits::from_bits_retain(masks[0]),
            ports: [PortErrBits::from_bits_retain(masks[1]), PortErrBits::from_bits_retain(masks[2])],
        }
    }

    fn rearm_scope(&mut self, scope: Scope, now: Instant) -> u64 {
        let base = self.base[scope.index()];
        let mut mask = 0;
        for (class, info) in self.classes.iter_mut().zip(CLASS_TABLE) {
            let concerned = info.scope == scope && info.bits & base != 0;
            if !concerned || !class.armed && class.ready_at() > now {
                continue;
            }
            let scope_armed = &mut self.scope_armed[scope.index()];
            if !info.exempt && !*scope_armed {
                *scope_armed = self.device.try_take(now);
                if !*scope_armed {
                    continue;
                }
            }
            if !class.armed {
                class.arm(now);
            }
            mask |= info.bits & base;
        }
        mask
    }

    /// When [`rearm`](Self::rearm) can next unmask something; `None` if nothing is masked.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let classes = self.classes.iter().zip(CLASS_TABLE);
        let waits = classes.filter(|(_, info)| info.bits & self.base[info.scope.index()] != 0).map(
            |(class, info)| {
                let own = (!class.armed).then(|| class.ready_at());
                let shared =
                    (!info.exempt && !self.scope_armed[info.scope.index()]).then(|| self.device.ready_at());
                own.max(shared)
            },
        );
        waits.flatten().min()
    }

    /// The counters as they stand.
    pub const fn counters(&self) -> StormCounters {
        self.counters
    }
}

const _: () = {
    // Each bit of a scope is in exactly one class, and the fatal bits are in the exempt ones.
    let mut scope = 0;
    while scope < 3 {
        let mut seen = 0;
        let mut n = 0;
        while n < CLASSES {
            if CLASS_TABLE[n].scope.index() == scope {
                assert!(seen & CLASS_TABLE[n].bits == 0, "a bit in two classes");
                seen |= CLASS_TABLE[n].bits;
            }
            n += 1;
        }
        assert!(seen == u64::MAX, "a bit in no class");
        scope += 1;
    }
    assert!(FATAL.bits() == DEVICE_STOP | DEVICE_ADDRESS);
};
