//! The function's PCI configuration space, as a client reads and writes it.
//!
//! ```text
//!  00 header: 1077:7322, class 0c0600, revision 2, BAR 0 = 64-bit memory
//!  40 power management    50 MSI-X (table BAR 0 + 8000, PBA BAR 0 + 9000)    60 PCI Express endpoint
//! 100 advanced error reporting (if offered)
//! ```
//!
//! The client does the sizing of BARs and keeps the MSI-X table; it forwards its writes all the same, so they are
//! stored and not interpreted. Two writes act: function-level reset by the PCIe capability, and the way from D3hot
//! to D0, which resets the function as the specification says of devices without soft-reset protection. Positions of
//! the capabilities and the subsystem's ids are not known from any card (F-590, guess).

/// Bytes of the space: PCI Express.
const LEN_BYTES: usize = 4096;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
/// Status register, low byte: the line is wanted.
const INTERRUPT_STATUS: u8 = 1 << 3;
const BAR0: usize = 0x10;
const INTERRUPT_LINE: usize = 0x3C;
const PM: usize = 0x40;
const PMCSR: usize = PM + 4;
const MSIX: usize = 0x50;
const PCIE: usize = 0x60;
const DEVCTL: usize = PCIE + 8;
const AER: usize = 0x100;

/// Which optional capabilities are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigOptions {
    /// Function-level reset.
    pub flr: bool,
    /// Advanced error reporting.
    pub aer: bool,
}

/// What a write asks for beyond being stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The function is to be reset; the memory that the client offered stays.
    FunctionReset,
}

/// The space: bytes, and which bits of them can be written or cleared.
pub struct ConfigSpace {
    bytes: Box<[u8; LEN_BYTES]>,
    writable: Box<[u8; LEN_BYTES]>,
    clears: Box<[u8; LEN_BYTES]>,
    options: ConfigOptions,
}

impl ConfigSpace {
    /// Bytes of the space.
    pub const LEN_BYTES: usize = LEN_BYTES;

    /// The space after power-on, of a chip with `vectors` MSI-X vectors (1 to 2048).
    pub fn new(options: ConfigOptions, vectors: u16) -> Self {
        let zeroes = || Box::new([0; LEN_BYTES]);
        let mut space = Self { bytes: zeroes(), writable: zeroes(), clears: zeroes(), options };
        space.header();
        space.capabilities(vectors);
        if options.aer {
            space.error_reporting();
        }
        space
    }

    fn header(&mut self) {
        self.put(0x00, 2, 0x1077);
        self.put(0x02, 2, 0x7322);
        self.field(COMMAND, 2, 0, 0x0547, 0);
        self.field(STATUS, 2, 0x0010, 0, 0xF900);
        self.put(0x08, 4, 0x0C06_0002);
        self.field(0x0C, 1, 0, 0xFF, 0);
        // 64-bit memory; 4 MiB, so address bits from 22 up can be written.
        self.field(BAR0, 4, 0x4, 0xFFC0_0000, 0);
        self.field(BAR0 + 4, 4, 0, 0xFFFF_FFFF, 0);
        self.put(0x2C, 2, 0x1077);
        self.put(0x2E, 2, 0x7322);
        self.put(0x34, 1, PM as u32);
        self.field(INTERRUPT_LINE, 1, 0, 0xFF, 0);
        self.put(INTERRUPT_LINE + 1, 1, 1);
    }

    fn capabilities(&mut self, vectors: u16) {
        // Power management version 3; D3hot and D0.
        self.put(PM, 4, 0x0003_0001 | (MSIX as u32) << 8);
        self.field(PMCSR, 2, 0, 0x0103, 0x8000);
        self.put(MSIX, 2, 0x11 | (PCIE as u32) << 8);
        self.field(MSIX + 2, 2, u32::from(vectors.clamp(1, 2048) - 1), 0xC000, 0);
        self.put(MSIX + 4, 4, 0x8000);
        self.put(MSIX + 8, 4, 0x9000);
        // PCI Express version 2, endpoint.
        self.put(PCIE, 4, 0x0002_0010);
        // Device capabilities: 256 bytes of payload, extended tags no, role-based errors, FLR as offered.
        self.put(PCIE + 4, 4, 0x0000_8001 | u32::from(self.options.flr) << 28);
        self.field(DEVCTL, 2, 0x2810, 0x7FFF, 0);
        self.field(DEVCTL + 2, 2, 0, 0, 0x000F);
        // Link capabilities and status: 5 GT/s, 8 lanes.
        self.put(PCIE + 0x0C, 4, 0x0000_0482);
        self.field(PCIE + 0x10, 2, 0, 0x01FB, 0);
        self.put(PCIE + 0x12, 2, 0x0082);
        self.field(PCIE + 0x28, 2, 0, 0x001F, 0);
        self.put(PCIE + 0x2C, 4, 0x0000_0006);
        self.field(PCIE + 0x30, 2, 0x0002, 0x003F, 0);
    }

    fn error_reporting(&mut self) {
        self.put(AER, 4, 0x0001_0001);
        self.field(AER + 0x04, 4, 0, 0, 0x003F_F030);
        self.field(AER + 0x08, 4, 0, 0x003F_F030, 0);
        self.field(AER + 0x0C, 4, 0x0006_2030, 0x003F_F030, 0);
        self.field(AER + 0x10, 4, 0, 0, 0x0000_F1C1);
        self.field(AER + 0x14, 4, 0x0000_2000, 0x0000_F1C1, 0);
    }

    fn put(&mut self, at: usize, len: usize, value: u32) {
        self.field(at, len, value, 0, 0);
    }

    fn field(&mut self, at: usize, len: usize, value: u32, writable: u32, clears: u32) {
        for n in 0..len {
            let byte = |word: u32| (word >> (8 * n)) as u8;
            self.bytes[at + n] = byte(value);
            self.writable[at + n] = byte(writable);
            self.clears[at + n] = byte(clears);
        }
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Shows in the status register whether the function wants an interrupt by the line, masked or not. A kernel that
    /// masks the line in the command register looks there first whether it was this function.
    pub fn set_interrupt_status(&mut self, pending: bool) {
        self.bytes[STATUS] =
            self.bytes[STATUS] & !INTERRUPT_STATUS | if pending { INTERRUPT_STATUS } else { 0 };
    }

    /// Whether the function may reach memory of its own accord.
    pub fn bus_master(&self) -> bool {
        self.word(COMMAND) & 4 != 0
    }

    /// Reads from `at`. What lies past the end reads as all ones, as where no device is.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        for (n, byte) in out.iter_mut().enumerate() {
            *byte = at.checked_add(n).and_then(|at| self.bytes.get(at)).copied().unwrap_or(0xFF);
        }
    }

    /// Writes at `at`; what lies past the end goes nowhere.
    pub fn write(&mut self, at: usize, data: &[u8]) -> Effect {
        let power_before = self.word(PMCSR) & 3;
        let data = &data[..data.len().min(LEN_BYTES.saturating_sub(at))];
        for (n, byte) in data.iter().enumerate() {
            let at = at + n;
            // The planted fault of the fuzz target: a capability pointer that can be overwritten.
            #[cfg(canary)]
            if at == PCIE + 1 && data.len() == 4 && power_before == 3 {
                self.bytes[at] = *byte;
            }
            let kept = self.bytes[at] & !self.writable[at];
            self.bytes[at] = (kept | byte & self.writable[at]) & !(byte & self.clears[at]);
        }
        let asks_flr =
            (DEVCTL + 1).checked_sub(at).and_then(|n| data.get(n)).is_some_and(|byte| byte & 0x80 != 0);
        if asks_flr && self.options.flr || power_before == 3 && self.word(PMCSR) & 3 == 0 {
            self.reset();
            return Effect::FunctionReset;
        }
        Effect::None
    }

    /// Back to the state after power-on; the bus's own bookkeeping (BARs are written again by whoever resets).
    pub fn reset(&mut self) {
        *self = Self::new(self.options, (self.word(MSIX + 2) & 0x7FF) + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(flr: bool) -> ConfigSpace {
        ConfigSpace::new(ConfigOptions { flr, aer: true }, 32)
    }

    fn dword(space: &ConfigSpace, at: usize) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_capability_list_ends_and_holds_what_drivers_look_for() {
        let space = space(true);
        let (mut at, mut ids) = (space.bytes[0x34] as usize, Vec::new());
        while at != 0 && ids.len() < 10 {
            ids.push(space.bytes[at]);
            at = space.bytes[at + 1] as usize;
        }
        assert_eq!(ids, [0x01, 0x11, 0x10]);
        assert_eq!(dword(&space, 0), 0x7322_1077);
        assert_eq!(dword(&space, 8), 0x0C06_0002);
        assert_eq!(dword(&space, MSIX) >> 16, 31);
    }

    #[test]
    fn reading_only_bits_stay_whatever_is_written() {
        let mut space = space(false);
        let before: Vec<u8> = space.bytes.to_vec();
        for at in 0..LEN_BYTES {
            if at != PMCSR {
                space.write(at, &[0xFF]);
            }
        }
        for (at, before) in before.iter().enumerate() {
            let fixed = !space.writable[at] & !space.clears[at];
            assert_eq!(space.bytes[at] & fixed, before & fixed, "byte {at:#x}");
        }
    }

    #[test]
    fn status_shows_the_line_and_nobody_writes_it() {
        let mut space = space(true);
        let before = space.word(STATUS);
        space.set_interrupt_status(true);
        assert_eq!(space.word(STATUS), before | 8);
        space.write(STATUS, &[0xFF, 0xFF]);
        assert_eq!(space.word(STATUS), before | 8);
        space.set_interrupt_status(false);
        assert_eq!(space.word(STATUS), before);
    }

    #[test]
    fn a_function_reset_needs_the_capability_and_d3_to_d0_does_not() {
        let (mut without, mut with) = (space(false), space(true));
        assert_eq!(without.write(DEVCTL, &[0x10, 0xA8]), Effect::None);
        assert_eq!(with.write(DEVCTL, &[0x10, 0xA8]), Effect::FunctionReset);
        assert_eq!(without.write(PMCSR, &[3, 0]), Effect::None);
        without.write(COMMAND, &[6, 0]);
        assert!(without.bus_master());
        assert_eq!(without.write(PMCSR, &[0, 0]), Effect::FunctionReset);
        assert!(!without.bus_master());
    }
}
