//! The two-wire bus behind GPIO pins 0 and 1, with the board's EEPROM on it.
//!
//! ```text
//!   SDA  ‾‾\______ data changes while SCL is low ______/‾‾
//!   SCL  ‾‾‾‾\___/‾\___/‾\___ ... 9th clock: ack ___/‾‾‾‾‾
//!        START    bit 7 ...                          STOP
//! ```
//!
//! Both lines are open drain: whoever wants a 0 pulls, and released lines read 1. The EEPROM answers at 0xA2, takes a
//! register byte, sends byte after byte on reads, and keeps what is written when the STOP comes, if pin 14 lets it; for
//! two polls after that it does not answer (F-352). A QSFP module at 0xA0 does not answer (F-353).

use super::config::Config;
use super::wrong::WrongChip;
use qhca_regs::layout::Flash;
use qhca_regs::layout::flash::{LEN_BYTES, Text};

const EEPROM_ADDRESS: u8 = 0xA2;
const READ: u8 = 1;
const LAYOUT_VERSION: u8 = 2;
/// Polls that a write keeps the EEPROM busy for.
const BUSY_POLLS: u8 = 2;

/// What the bus sees of the pins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) scl: bool,
    /// As the chip drives it.
    pub(super) sda: bool,
    pub(super) eeprom_writable: bool,
    /// Which cages' modules are selected.
    #[expect(dead_code, reason = "no module answers, selected or not (F-353)")]
    pub(super) cage_selected: [bool; 2],
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
    /// The EEPROM holds SDA low through the ninth clock.
    Acks { next: Next },
    /// The EEPROM sends a byte.
    Tells { byte: u8, bits: u8 },
    /// The master's turn to acknowledge.
    Asks { acked: bool },
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Hear(Role),
    Tell,
}

/// The bus and the EEPROM.
pub(super) struct Twsi {
    phase: Phase,
    scl: bool,
    sda: bool,
    /// Whether the EEPROM pulls SDA low.
    pulls: bool,
    memory: [u8; 256],
    pointer: u8,
    /// Bytes written since the last START, kept or forgotten at the STOP.
    written: Vec<(u8, u8)>,
    busy_polls: u8,
}

impl Twsi {
    pub(super) fn new(config: &Config) -> Self {
        let mut memory = [0xFF; 256];
        let mut image = flash_image(config);
        if config.wrong.has(WrongChip::EepromChecksumBad) {
            image[1] ^= 1;
        }
        memory[..LEN_BYTES].copy_from_slice(&image);
        Self {
            phase: Phase::Idle,
            scl: true,
            sda: true,
            pulls: false,
            memory,
            pointer: 0,
            written: Vec::new(),
            busy_polls: 0,
        }
    }

    /// The pins have changed; returns whether the bus now holds SDA low.
    pub(super) fn follow(&mut self, lines: Lines) -> bool {
        let sda = lines.sda && !self.pulls;
        match (self.scl, lines.scl) {
            (true, true) if self.sda && !sda => self.start(),
            (true, true) if !self.sda && sda => self.stop(lines.eeprom_writable),
            (false, true) => self.clock_up(sda),
            (true, false) => self.clock_down(),
            _ => {}
        }
        self.scl = lines.scl;
        self.sda = lines.sda && !self.pulls;
        self.pulls
    }

    fn start(&mut self) {
        self.pulls = false;
        self.written.clear();
        self.phase = Phase::Hears { byte: 0, bits: 0, role: Role::Address };
    }

    fn stop(&mut self, writable: bool) {
        self.pulls = false;
        self.phase = Phase::Idle;
        if !self.written.is_empty() {
            self.busy_polls = BUSY_POLLS;
        }
        for (at, byte) in std::mem::take(&mut self.written) {
            if writable {
                self.memory[usize::from(at)] = byte;
            }
        }
    }

    fn clock_up(&mut self, sda: bool) {
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

    fn clock_down(&mut self) {
        match self.phase {
            Phase::Hears { byte, bits: 8, role } => match self.answer(byte, role) {
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
            Phase::Acks { next: Next::Tell } | Phase::Asks { acked: true } => self.tell_next(),
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
    fn answer(&mut self, byte: u8, role: Role) -> Option<Next> {
        match role {
            Role::Address if byte & !READ != EEPROM_ADDRESS => None,
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
                if self.written.len() < self.memory.len() {
                    self.written.push((self.pointer, byte));
                }
                self.pointer = self.pointer.wrapping_add(1);
                Some(Next::Hear(Role::Data))
            }
        }
    }

    fn tell_next(&mut self) {
        let byte = self.memory[usize::from(self.pointer)];
        self.pointer = self.pointer.wrapping_add(1);
        self.pulls = byte & 0x80 == 0;
        self.phase = Phase::Tells { byte, bits: 0 };
    }
}

/// What the maker of the board wrote into the EEPROM.
fn flash_image(config: &Config) -> [u8; LEN_BYTES] {
    let guid_count = qhca_regs::Port::ALL.into_iter().filter(|&port| config.board.speeds(port) != 0).count();
    let text = |words: &'static str| words.bytes();
    Flash {
        version: LAYOUT_VERSION,
        base_guid: config.guid,
        guid_count: guid_count as u8,
        serial: Text::new(config.serial.bytes()),
        made_on: Text::new(text("20100104")),
        tested_on: Text::new(text("20100105")),
        error_counts: [0; 4],
        hours_on: 0,
        comment: Text::new(text("Tested successfully")),
        notes: Default::default(),
    }
    .build()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::Bench;
    use super::*;
    use proptest::prelude::*;
    use qhca_regs::map::device;

    /// Software's end of the bus: three writes and a read a step, as a driver would.
    pub(in super::super) struct Master<'a> {
        bench: &'a mut Bench,
        scl: bool,
        sda: bool,
        protect: bool,
    }

    impl<'a> Master<'a> {
        pub(in super::super) fn new(bench: &'a mut Bench) -> Self {
            Self { bench, scl: true, sda: true, protect: false }
        }

        /// Moves one line and returns SDA.
        fn set(&mut self, scl: bool, sda: bool) -> bool {
            (self.scl, self.sda) = (scl, sda);
            let oe = u16::from(!scl) | u16::from(!sda) << 1 | 1 << 14;
            let control = device::ExtCtrl::default().with_gpio_oe(oe);
            self.bench.write(device::EXT_CTRL.offset(), control.0);
            self.bench.write(device::GPIO_OUT.offset(), u64::from(self.protect) << 14);
            device::ExtStatus(self.bench.read(device::EXT_STATUS.offset())).gpio_in() & 2 != 0
        }

        fn start(&mut self) {
            self.set(false, true);
            self.set(true, true);
            self.set(true, false);
            self.set(false, false);
        }

        fn stop(&mut self) {
            self.set(false, false);
            self.set(true, false);
            self.set(true, true);
        }

        fn bit(&mut self, sda: bool) -> bool {
            self.set(false, sda);
            let seen = self.set(true, sda);
            self.set(false, sda);
            seen
        }

        fn send(&mut self, byte: u8) -> bool {
            (0..8).for_each(|n| {
                self.bit(byte << n & 0x80 != 0);
            });
            !self.bit(true)
        }

        fn hear(&mut self, ack: bool) -> u8 {
            let byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(self.bit(true)));
            self.bit(!ack);
            byte
        }

        pub(in super::super) fn read(&mut self, register: u8, len: usize) -> Option<Vec<u8>> {
            self.start();
            (self.send(EEPROM_ADDRESS) && self.send(register)).then_some(())?;
            self.start();
            self.send(EEPROM_ADDRESS | READ).then_some(())?;
            let bytes = (0..len).map(|n| self.hear(n + 1 < len)).collect();
            self.stop();
            Some(bytes)
        }

        fn write(&mut self, register: u8, bytes: &[u8]) {
            self.start();
            assert!(self.send(EEPROM_ADDRESS) && self.send(register));
            bytes.iter().for_each(|&byte| assert!(self.send(byte)));
            self.stop();
        }
    }

    #[test]
    fn whole_flash_reads_in_one_transaction_and_holds_guid_and_serial() {
        let mut bench = Bench::new();
        let bytes = Master::new(&mut bench).read(0, LEN_BYTES).expect("acknowledged");
        let flash = Flash::parse(&bytes.try_into().expect("128 bytes")).expect("valid");
        assert_eq!(flash.base_guid, bench.chip.config().guid);
        assert_eq!(flash.serial.as_str(), bench.chip.config().serial);
        assert!(flash.notes.is_empty(), "{:?}", flash.notes);
    }

    #[test]
    fn other_addresses_are_not_acknowledged() {
        let mut bench = Bench::new();
        let mut master = Master::new(&mut bench);
        for address in [0xA0, 0x98, 0xA4] {
            master.start();
            assert!(!master.send(address), "{address:#x}");
            master.stop();
        }
    }

    #[test]
    fn written_bytes_are_kept_and_the_memory_is_busy_for_a_while() {
        let mut bench = Bench::new();
        let mut master = Master::new(&mut bench);
        master.write(40, &[1, 2, 3, 4]);
        master.start();
        assert!(!master.send(EEPROM_ADDRESS | READ), "busy");
        master.start();
        assert!(!master.send(EEPROM_ADDRESS | READ), "still busy");
        assert_eq!(master.read(40, 4), Some(vec![1, 2, 3, 4]));
    }

    #[test]
    fn write_protected_memory_keeps_its_bytes() {
        let mut bench = Bench::new();
        let mut master = Master::new(&mut bench);
        let before = master.read(40, 1);
        master.protect = true;
        master.write(40, &[0x77]);
        (0..2).for_each(|_| {
            master.start();
            master.send(EEPROM_ADDRESS | READ);
        });
        assert_eq!(master.read(40, 1), before);
    }

    proptest! {
        #[test]
        fn any_wiggling_of_the_lines_leaves_the_bus_usable(steps in prop::collection::vec(any::<(bool, bool)>(), 0..200)) {
            let mut bench = Bench::new();
            let mut master = Master::new(&mut bench);
            for (scl, sda) in steps {
                master.set(scl, sda);
            }
            (0..9).for_each(|_| { master.bit(true); });
            master.stop();
            (0..=BUSY_POLLS).for_each(|_| { master.start(); master.send(EEPROM_ADDRESS); master.stop(); });
            prop_assert!(master.read(0, 3).is_some());
        }
    }
}
