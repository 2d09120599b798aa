//! Interrupts: a status word, a mask, a clear register, and a table that sends each bit to a vector.
//!
//! ```text
//!   event ----> IntStatus bit --- IntMask ---> IntRedirect[bit] ---> MSI-X message to that vector
//!   levels -'   (Err, Err_p, AssertGPIO follow their cause)     '--> or: the legacy line is high
//! ```
//!
//! A bit that rises while its mask bit is 1 sends one message (F-310); bits that share a vector and rise together share
//! a message. `IntClear` clears the bits written as one, then **every** write to it, also of 0, sends again what is
//! still set and enabled (F-311). `Err`, `Err_p` and `AssertGPIO` are summaries: they come back until their cause is
//! cleared or masked (F-312).
//!
//! `Int_Granted` shows the bits for which a message was sent and not cleared since; it gates nothing (F-313).

use super::log::Access;
use super::wrong::WrongChip;
use super::{Chip, Host, IntMode};
use qhca_regs::map::{counter, device};
use qhca_regs::status::IntBits;
use qhca_regs::{Instant, Port, RegValue, Vector};

/// Status bits whose vector one `IntRedirect` register holds.
const FIELDS_PER_REDIRECT: usize = 12;
const FIELD_BITS: usize = 5;

/// See the chapter's head.
pub(super) struct Interrupts {
    status: u64,
    mask: u64,
    granted: u64,
    /// Levels of the summaries, as last looked at.
    levels: u64,
    vectors: [u8; 64],
    mode: IntMode,
    line: bool,
}

impl Interrupts {
    pub(super) fn new() -> Self {
        Self {
            status: 0,
            mask: 0,
            granted: 0,
            levels: 0,
            vectors: [0; 64],
            mode: IntMode::default(),
            line: false,
        }
    }

    pub(super) fn status(&self) -> u64 {
        self.status
    }

    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    /// Everything goes back to its reset value; how interrupts are signalled is the host's.
    pub(super) fn reset(&mut self, host: &mut impl Host) {
        if self.line {
            host.intx(false);
        }
        *self = Self { mode: self.mode, ..Self::new() };
    }

    /// Takes over the five-bit fields of `IntRedirect{register}`.
    fn redirect(&mut self, register: usize, value: u64) {
        let first = register * FIELDS_PER_REDIRECT;
        for (field, vector) in self.vectors.iter_mut().skip(first).take(FIELDS_PER_REDIRECT).enumerate() {
            *vector = (value >> (field * FIELD_BITS) & 0x1F) as u8;
        }
    }
}

impl Chip {
    /// Events happened: latches `bits` and signals those that rise.
    #[inline]
    pub(super) fn raise(&mut self, bits: IntBits, now: Instant, host: &mut impl Host) {
        let rising = bits.bits() & !self.int.status;
        if rising != 0 {
            self.int.status |= rising;
            self.signal(rising, now, host);
        }
    }

    /// Looks at the summaries again after a cause or its mask has changed.
    #[inline]
    pub(super) fn follow_levels(&mut self, now: Instant, host: &mut impl Host) {
        let levels = self.summary_levels();
        let rising = levels & !self.int.levels;
        self.int.levels = levels;
        if rising != 0 {
            self.raise(IntBits::from_bits_retain(rising), now, host);
        }
    }

    fn summary_levels(&self) -> u64 {
        let mut levels = IntBits::empty();
        levels.set(IntBits::ERR, self.err.device_level());
        levels.set(IntBits::ERR_0, self.err.port_level(Port::P0));
        levels.set(IntBits::ERR_1, self.err.port_level(Port::P1));
        levels.set(IntBits::ASSERT_GPIO, self.gpio.level());
        levels.bits()
    }

    pub(super) fn write_int_mask(&mut self, now: Instant, host: &mut impl Host) {
        let mask = self.store.get(device::INT_MASK.offset());
        let enabled = mask & !self.int.mask;
        self.int.mask = mask;
        self.signal(self.int.status & enabled, now, host);
    }

    /// Clears the bits of `value`, then signals again whatever is still pending.
    pub(super) fn write_int_clear(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        self.int.status &= !value;
        self.int.granted &= !value;
        self.int.levels = self.summary_levels();
        if self.config.wrong.has(WrongChip::IntClearDoesNotReraise) {
            return self.follow_line(now, host);
        }
        self.int.status |= self.int.levels;
        self.signal(self.int.status, now, host);
    }

    pub(super) fn write_int_redirect(&mut self, offset: u32, value: u64) {
        let register = (offset - device::INT_REDIRECT.index(0).offset()) / 8;
        self.int.redirect(register as usize, value);
    }

    pub(super) fn write_int_granted(&mut self, value: u64) {
        self.int.granted &= !value;
    }

    /// `vec_clr_without_int` drops pending grants without touching the status (F-313).
    pub(super) fn write_vec_clr(&mut self, value: u64) {
        self.int.granted &= !value;
    }

    pub(super) fn change_int_mode(&mut self, mode: IntMode, now: Instant, host: &mut impl Host) {
        self.int.mode = mode;
        self.follow_line(now, host);
    }

    /// Sends messages for the enabled ones of `bits`, or moves the line.
    fn signal(&mut self, bits: u64, now: Instant, host: &mut impl Host) {
        let enabled = match self.config.wrong.has(WrongChip::IntMaskIgnored) {
            true => bits,
            false => bits & self.int.mask,
        };
        match self.int.mode {
            IntMode::Intx => self.follow_line(now, host),
            IntMode::Msix if enabled != 0 => self.send_messages(enabled, now, host),
            IntMode::Msix => {}
        }
    }

    fn send_messages(&mut self, bits: u64, now: Instant, host: &mut impl Host) {
        self.int.granted |= bits;
        let mut wanted = 0u32;
        let mut rest = bits;
        while rest != 0 {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let field = bit + usize::from(self.config.wrong.has(WrongChip::RedirectOffByOne));
            wanted |= 1 << self.int.vectors[field % 64];
        }
        while wanted != 0 {
            let vector = wanted.trailing_zeros() as usize;
            wanted &= wanted - 1;
            // PANIC: a redirect field has five bits, and there are 32 vectors.
            let vector = Vector::new(vector).expect("five bits name a vector");
            self.counters.bump(counter::LB_INT_CNT, 1);
            self.log.note(now, Access::Msix(vector));
            host.msix(vector);
        }
    }

    /// The legacy line is high while an enabled bit is set, in that mode.
    fn follow_line(&mut self, now: Instant, host: &mut impl Host) {
        let high = self.int.mode == IntMode::Intx && self.int.status & self.int.mask != 0;
        if high != self.int.line {
            self.int.line = high;
            if high {
                self.counters.bump(counter::LB_INT_CNT, 1);
            }
            self.log.note(now, Access::Intx(high));
            host.intx(high);
        }
    }
}

/// The `SendDone` bit of `port`.
pub(super) fn send_done(port: Port) -> IntBits {
    IntBits::from_raw(IntBits::SEND_DONE_0.bits() << port.index())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;
    use qhca_regs::status::ErrBits;

    const AVAIL0: u64 = IntBits::RCV_AVAIL0.bits();

    #[test]
    fn any_write_to_int_clear_signals_again_what_is_pending() {
        let mut bench = Bench::new();
        bench.write(device::INT_MASK.offset(), u64::MAX);
        bench.raise(IntBits::RCV_AVAIL0);
        assert_eq!(bench.host.messages(), [0]);
        bench.write(device::INT_CLEAR.offset(), 0);
        assert_eq!(bench.host.messages(), [0]);
        bench.write(device::INT_CLEAR.offset(), AVAIL0);
        assert_eq!(bench.host.messages(), [] as [usize; 0]);
        assert_eq!(bench.read(device::INT_STATUS.offset()), 0);
    }

    #[test]
    fn masked_bit_signals_when_its_mask_is_opened() {
        let mut bench = Bench::new();
        bench.raise(IntBits::SEND_BUF_AVAIL);
        assert!(bench.host.messages().is_empty());
        bench.write(device::INT_MASK.offset(), IntBits::SEND_BUF_AVAIL.bits());
        assert_eq!(bench.host.messages(), [0]);
    }

    #[test]
    fn each_bit_goes_to_the_vector_of_its_redirect_field() {
        let mut bench = Bench::new();
        bench.write(device::INT_MASK.offset(), u64::MAX);
        for bit in 0..64usize {
            let defined = IntBits::NAMED.bits() >> bit & 1 != 0;
            let vector = (bit * 7 + 3) % 32;
            let offset = device::INT_REDIRECT.index((bit / 12) as u32).offset();
            bench.write(offset, (vector as u64) << (bit % 12 * 5));
            bench.raise(IntBits::from_bits_retain(1 << bit));
            let expected = if defined { vec![vector] } else { vec![] };
            assert_eq!(bench.host.messages(), expected, "bit {bit}");
            bench.write(device::INT_CLEAR.offset(), 1 << bit);
            bench.write(offset, 0);
        }
    }

    #[test]
    fn error_summary_comes_back_until_its_cause_is_masked() {
        let mut bench = Bench::new();
        bench.write(device::INT_MASK.offset(), u64::MAX);
        bench.write(device::ERR_MASK.offset(), u64::MAX);
        bench.inject(super::super::Injection::Device(ErrBits::SEND_ARM_LAUNCH_ERR));
        assert_eq!(bench.host.messages(), [0]);
        bench.write(device::INT_CLEAR.offset(), IntBits::ERR.bits());
        assert_eq!(bench.host.messages(), [0], "the level is still there");
        bench.write(device::ERR_MASK.offset(), 0);
        bench.write(device::INT_CLEAR.offset(), IntBits::ERR.bits());
        assert!(bench.host.messages().is_empty());
        bench.write(device::ERR_MASK.offset(), u64::MAX);
        assert_eq!(bench.host.messages(), [0], "opening the mask raises it anew");
    }

    #[test]
    fn legacy_line_follows_the_enabled_status() {
        let mut bench = Bench::new();
        bench.set_int_mode(IntMode::Intx);
        bench.write(device::INT_MASK.offset(), AVAIL0);
        bench.raise(IntBits::RCV_AVAIL0 | IntBits::RCV_AVAIL1);
        assert_eq!(bench.host.line, Some(true));
        bench.write(device::INT_CLEAR.offset(), AVAIL0);
        assert_eq!(bench.host.line, Some(false));
        assert!(bench.host.messages().is_empty(), "no message in line mode");
    }

    #[test]
    fn bits_that_share_a_vector_share_a_message() {
        let mut bench = Bench::new();
        bench.write(device::INT_MASK.offset(), u64::MAX);
        bench.raise(IntBits::RCV_AVAIL0 | IntBits::RCV_AVAIL1 | IntBits::SEND_BUF_AVAIL);
        assert_eq!(bench.host.messages(), [0]);
        assert_eq!(bench.read(counter::LB_INT_CNT.offset()), 1);
    }
}
