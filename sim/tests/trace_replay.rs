//! The stock driver's probe, access by access, against the chip model.
//!
//! Every write of the trace is made and every read compared, at the trace's times. The recording model was written by
//! other hands, so where the two differ one of them is wrong: a difference stands in `docs/chip/trace-exceptions.toml`
//! with its reason, or the test fails. `QHCA_TRACE` names a whole trace (unpacked) to replay in place of the extract.

mod trace;

use qhca_regs::map::{self, device, port};
use qhca_regs::{Duration, Instant, Port, Vector};
use qhca_sim::chip::{Chip, Config, DmaError, Host, Module, Offer, PeerState, Timing};
use std::collections::BTreeMap;
use trace::{Step, What, parse};

const EXTRACT: &str = include_str!("data/ib_qib_probe.trace");
const EXCEPTIONS: &str = include_str!("../../docs/chip/trace-exceptions.toml");
/// GPIO pins 0 and 1.
const BUS_PINS: u64 = 3;

/// A machine all of whose memory may be reached.
#[derive(Default)]
struct Machine {
    bytes: BTreeMap<u64, u8>,
    vectors: Vec<usize>,
}

impl Host for Machine {
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        self.bytes.extend((iova..).zip(bytes.iter().copied()));
        Ok(())
    }
    fn dma_read(&mut self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaError> {
        for (at, byte) in (iova..).zip(bytes) {
            *byte = self.bytes.get(&at).copied().unwrap_or(0);
        }
        Ok(())
    }
    fn msix(&mut self, vector: Vector) {
        self.vectors.push(vector.index());
    }
    fn intx(&mut self, _: bool) {}
}

/// Bits of a register in which the recording model may differ.
struct Exception {
    register: String,
    ignore: u64,
    /// The only values, here and in the trace, for which it holds.
    only: Option<(u64, u64)>,
    /// Needed by a whole trace only.
    whole: bool,
    used: bool,
}

impl Exception {
    /// The bits that may differ between these two values.
    fn covers(&self, register: &str, found: u64, expected: u64) -> u64 {
        let holds = self.only.is_none_or(|only| only == (found & self.ignore, expected & self.ignore));
        if self.register == register && holds { self.ignore } else { 0 }
    }
}

fn exceptions() -> Vec<Exception> {
    let table: toml::Table = EXCEPTIONS.parse().expect("trace-exceptions.toml is TOML");
    let rows = table["exception"].as_array().expect("a list of exceptions");
    let read = |row: &toml::Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_else(|| panic!("{key} in {row}")).to_owned();
        assert!(text("reason").len() > 20, "{}: say why", text("register"));
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
        let only = row.get("found").is_some().then(|| (hex(&text("found")), hex(&text("trace"))));
        Exception {
            register: text("register"),
            ignore: hex(&text("ignore")),
            only,
            whole: row.get("whole").is_some(),
            used: false,
        }
    };
    rows.iter().map(read).collect()
}

/// The chip, the time, the pins beside the bus as last written, and what differed.
struct Replay {
    chip: Chip,
    host: Machine,
    now: Instant,
    control: u64,
    out: u64,
    exceptions: Vec<Exception>,
    differences: Vec<String>,
    compared: BTreeMap<String, usize>,
}

impl Replay {
    fn new(modules: [Option<Module>; 2]) -> Self {
        // The recording model needs about 50 ms to train, a real link a few.
        let timing = Timing { training_step: Duration::from_millis(5), ..Timing::default() };
        let mut replay = Self {
            chip: Chip::new(Config { modules, timing, ..Config::default() }),
            host: Machine::default(),
            now: Instant::ZERO,
            control: 0,
            out: 0,
            exceptions: exceptions(),
            differences: Vec::new(),
            compared: BTreeMap::new(),
        };
        for port in Port::ALL {
            replay.chip.peer_link(port, PeerState::Training(Offer::ALL), replay.now, &mut replay.host);
        }
        replay
    }

    /// Lets happen what is due by `at`; a port that has come up is answered by its peer.
    fn pass_to(&mut self, at: Instant) {
        while let Some(due) = self.chip.next_deadline().filter(|due| *due <= at) {
            self.now = self.now.max(due);
            self.chip.advance(self.now, &mut self.host);
            self.answer_ports();
        }
        self.now = self.now.max(at);
    }

    /// The peer follows the port: up when it is up, training when it is not.
    fn answer_ports(&mut self) {
        for port in Port::ALL {
            let peer = match self.chip.own_link(port) {
                up if up.is_up() => up,
                _ => PeerState::Training(Offer::ALL),
            };
            self.chip.peer_link(port, peer, self.now, &mut self.host);
        }
    }

    fn write(&mut self, offset: u32, value: u64) {
        self.chip.write(offset, value, self.now, &mut self.host);
    }

    fn compare(&mut self, line: usize, register: &str, found: u64, expected: u64) {
        *self.compared.entry(register.to_owned()).or_default() += 1;
        if found == expected {
            return;
        }
        let mut ignore = 0;
        for exception in &mut self.exceptions {
            let covered = exception.covers(register, found, expected);
            exception.used |= covered & (found ^ expected) != 0;
            ignore |= covered;
        }
        if (found ^ expected) & !ignore != 0 {
            self.differences.push(format!("line {line}: {register} is {found:#x}, trace {expected:#x}"));
        }
    }

    fn step(&mut self, step: &Step) {
        self.pass_to(Instant::from_nanos(step.at_ns));
        match &step.what {
            &What::Read { bytes, offset, value } => {
                let found = match bytes {
                    4 => self.chip.read32(offset, self.now, &mut self.host).into(),
                    _ => self.chip.read(offset, self.now, &mut self.host),
                };
                let name =
                    map::at(offset).map_or_else(|| format!("{offset:#x}"), |placed| placed.to_string());
                self.compare(step.line, &name, found, value);
            }
            &What::Write { offset, value } => {
                self.write(offset, value);
                match offset {
                    _ if offset == device::EXT_CTRL.offset() => self.control = value & !(BUS_PINS << 48),
                    _ if offset == device::GPIO_OUT.offset() => self.out = value & !BUS_PINS,
                    _ => {}
                }
            }
            What::Transfer(words) => self.transfer(step.line, words),
            &What::Link { port, status } => {
                // Commands act a few microseconds after they are given.
                self.pass_to(self.now + Duration::from_micros(20));
                let offset = port::IBC_STATUS_A.port(Port::ALL[port]).offset();
                let found = self.chip.read(offset, self.now, &mut self.host);
                self.compare(step.line, &format!("IBCStatusA_{port}"), found, status);
            }
            What::Other => {}
        }
        self.answer_ports();
    }

    /// Moves the bus; returns SDA.
    fn lines(&mut self, scl: bool, sda: bool) -> bool {
        let oe = u64::from(!scl) | u64::from(!sda) << 1;
        self.write(device::EXT_CTRL.offset(), self.control | oe << 48);
        self.write(device::GPIO_OUT.offset(), self.out);
        let status = self.chip.read(device::EXT_STATUS.offset(), self.now, &mut self.host);
        device::ExtStatus(status).gpio_in() & 2 != 0
    }

    fn bit(&mut self, sda: bool) -> bool {
        self.lines(false, sda);
        let seen = self.lines(true, sda);
        self.lines(false, sda);
        seen
    }

    /// A transfer: bytes that the driver sends are sent, bytes that it hears are compared, acknowledges too.
    fn transfer(&mut self, line: usize, words: &[String]) {
        let mut role = Role::Address;
        for word in words {
            match word.as_str() {
                "S" => {
                    self.lines(false, true);
                    self.lines(true, true);
                    self.lines(true, false);
                    self.lines(false, false);
                    role = Role::Address;
                }
                "P" => {
                    self.lines(false, false);
                    self.lines(true, false);
                    self.lines(true, true);
                }
                clocks if clocks.ends_with('b') => (0..9).for_each(|_| {
                    self.bit(true);
                }),
                byte => role = self.byte(line, byte, role),
            }
        }
    }

    fn byte(&mut self, line: usize, word: &str, role: Role) -> Role {
        let (digits, ack) = word.split_at(2);
        let (byte, acked) = (u8::from_str_radix(digits, 16).expect("a byte"), ack == "+");
        if role == Role::Heard {
            let found = (0..8).fold(0, |found, _| found << 1 | u64::from(self.bit(true)));
            self.bit(!acked);
            self.compare(line, "two-wire byte", found, byte.into());
            return Role::Heard;
        }
        (0..8).for_each(|n| {
            self.bit(byte << n & 0x80 != 0);
        });
        let found = !self.bit(true);
        self.compare(line, "two-wire acknowledge", found.into(), acked.into());
        if role == Role::Address && byte & 1 != 0 { Role::Heard } else { Role::Sent }
    }

    /// Writes the EEPROM with what the trace's card has in it.
    fn burn(&mut self, bytes: &[u8]) {
        let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}+")).collect::<Vec<_>>();
        let mut words = vec!["S".to_owned(), "a2+".to_owned(), "00+".to_owned()];
        words.extend(text(bytes));
        words.push("P".to_owned());
        (self.control, self.out) = (1 << (48 + 14), 0);
        self.transfer(0, &words);
        let poll = ["S", "a3-", "P", "S", "a3-", "P"].map(str::to_owned);
        self.transfer(0, &poll);
        (self.control, self.out) = (0, 0);
        self.lines(true, true);
        assert!(self.differences.is_empty(), "{:?}", self.differences);
        self.compared.clear();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Address,
    Sent,
    Heard,
}

/// What the card of the trace holds: its EEPROM, and the module of each cage, as far as the driver has read them.
fn card(steps: &[Step]) -> (Vec<u8>, [Option<Module>; 2]) {
    let (mut eeprom, mut images, mut selected) = (Vec::new(), [[0; 256]; 2], 0);
    for step in steps {
        match &step.what {
            What::Write { offset, value } if *offset == device::GPIO_OUT.offset() => {
                selected = usize::from(value & 1 << 7 == 0 && value & 1 << 2 != 0);
            }
            What::Transfer(words) => {
                let byte =
                    |n: usize| words.get(n).and_then(|word| u8::from_str_radix(word.get(..2)?, 16).ok());
                let read = (5..words.len().saturating_sub(1)).map_while(byte);
                match (byte(1), byte(2)) {
                    (Some(0xA2), Some(0)) => eeprom = read.collect(),
                    (Some(0xA0), Some(first)) => {
                        (usize::from(first)..256)
                            .zip(read)
                            .for_each(|(at, byte)| images[selected][at] = byte);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    (eeprom, images.map(|image| Some(Module::from_image(image))))
}

fn replay(steps: &[Step]) -> Replay {
    let extract = parse(EXTRACT).expect("the extract is well formed");
    let (eeprom, modules) = card(&extract);
    assert_eq!(eeprom.len(), 128, "the driver reads the whole EEPROM");
    let mut replay = Replay::new(modules);
    replay.burn(&eeprom);
    steps.iter().for_each(|step| replay.step(step));
    replay
}

#[test]
fn stock_probe_reads_what_it_read_elsewhere() {
    let whole =
        std::env::var("QHCA_TRACE").map(|path| std::fs::read_to_string(path).expect("QHCA_TRACE is a file"));
    let steps = parse(whole.as_deref().unwrap_or(EXTRACT)).expect("a trace");
    let replay = replay(&steps);
    let idle = replay
        .exceptions
        .iter()
        .filter(|exception| !exception.used && !exception.whole)
        .map(|exception| &exception.register);
    let idle: Vec<_> = idle.collect();
    println!("{} accesses, {} registers compared", steps.len(), replay.compared.len());
    println!("not modelled: {:?}", replay.chip.unmodelled().collect::<Vec<_>>());
    assert!(replay.differences.is_empty(), "{} differences:\n{}", replay.differences.len(), {
        replay.differences.iter().take(60).cloned().collect::<Vec<_>>().join("\n")
    });
    if whole.is_err() {
        assert!(idle.is_empty(), "nothing needs these exceptions any more: {idle:?}");
    }
    for register in
        ["Revision", "RcvEgrCnt", "ErrMask", "IBCStatusA_0", "IBCStatusA_1", "ahb_transaction_reg"]
    {
        assert!(
            replay.compared.get(register).is_some_and(|times| *times > 0),
            "{register} was never compared"
        );
    }
}

#[test]
fn trace_lines_that_are_no_accesses_are_told_by_number() {
    for bad in ["12", "x R8 0 0", "1 R8 zz 0", "1 Q8 0 0", "1 W8 0 0 +q", "1.x R8 0 0"] {
        assert!(parse(&format!("# head\n{bad}")).is_err_and(|error| error.starts_with("line 2")), "{bad}");
    }
}
