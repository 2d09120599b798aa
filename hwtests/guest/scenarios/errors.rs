//! Every error bit is raised in the model, and what the stock driver does about it is compared with what the data
//! sheet's tables say of the driver. The judge is the record of its register accesses: it must read the status, clear
//! the bit, give the mask back, and touch the registers that the bit's action names.
//!
//! A bit of the hardware's own freezes the chip and makes the driver give the card up, so the module is then removed
//! and loaded again.

use super::steps::{self, start_opensm, wait_state};
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::fetch::{Series, make_folder};
use crate::lab::{Lab, Wanted};
use crate::machine::Guest;
use crate::server::Server;
use crate::trace::{Access, Trace};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// TIMEOUT: the driver's tasklet runs within milliseconds of an idle core.
const REACTION_LIMIT: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// What the driver does about a bit beyond reading, clearing and going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Nothing that registers show.
    Count,
    /// Reads which send buffers are in error.
    Disarm,
    /// Reads why a header was refused, sets it back, and disarms.
    Headers,
    /// Reads the link's state.
    Link,
    /// Reads the send-DMA engine's registers to print them.
    Dump,
}

use Action::{Count, Disarm, Dump, Headers, Link};

/// Bits of `ErrStatus` and their actions.
const DEVICE: &[(&str, Action)] = &[
    ("RcvEgrFullErr", Count),
    ("RcvHdrFullErr", Count),
    ("InvalidAddrErr", Count),
    ("SDmaVL15Err", Disarm),
    ("SBufVL15MisUseErr", Disarm),
    ("InvalidEEPCmdErr", Count),
    ("RcvContextShareErr", Count),
    ("SendVLMismatchErr", Disarm),
    ("SendArmLaunchErr", Disarm),
    ("SendSpecialTriggerErr", Disarm),
    ("SDmaWrongPortErr", Disarm),
    ("SDmaBufMaskDuplicateErr", Count),
];

/// Bits of a port's `ErrStatus` and their actions.
const PORT: &[(&str, Action)] = &[
    ("IBStatusChanged", Link),
    ("SHeadersErr", Headers),
    ("VL15BufMisuseErr", Disarm),
    ("SDmaUnexpDataErr", Dump),
    ("SendBufMisuseErr", Disarm),
    ("SendUnsupportedVLErr", Disarm),
    ("SendUnexpectedPktNumErr", Disarm),
    ("SendDroppedDataPktErr", Disarm),
    ("SendDroppedSmpPktErr", Disarm),
    ("SendPktLenErr", Disarm),
    ("SendUnderRunErr", Count),
    ("SendMaxPktLenErr", Disarm),
    ("SendMinPktLenErr", Disarm),
    ("RcvIBLostLinkErr", Count),
    ("RcvHdrErr", Count),
    ("RcvHdrLenErr", Count),
    ("RcvBadTidErr", Count),
    ("RcvBadVersionErr", Count),
    ("RcvIBFlowErr", Count),
    ("RcvEBPErr", Count),
    ("RcvUnsupportedVLErr", Count),
    ("RcvUnexpectedCharErr", Count),
    ("RcvShortPktLenErr", Count),
    ("RcvLongPktLenErr", Count),
    ("RcvMaxPktLenErr", Count),
    ("RcvMinPktLenErr", Count),
    ("RcvICRCErr", Count),
    ("RcvVCRCErr", Count),
    ("RcvFormatErr", Count),
    ("SDmaDescAddrMisalignErr", Dump),
    ("SDmaMissingDwErr", Dump),
    ("SDmaDwEnErr", Dump),
    ("SDmaRpyTagErr", Dump),
    ("SDma1stDescErr", Dump),
    ("SDmaBaseErr", Dump),
    ("SDmaTailOutOfBoundErr", Dump),
    ("SDmaOutOfBoundErr", Dump),
    ("SDmaGenMismatchErr", Dump),
];

/// Bits of `HwErrStatus` that the driver leaves unmasked.
const HARDWARE: &[&str] = &[
    "PCIESerdesPClkNotDetect",
    "TempsenseTholdReached",
    "MemoryErr",
    "PCIeBusParity",
    "PcieCplTimeout",
    "PciePoisonedTLP",
    "SDmaMemReadErr_1",
    "SDmaMemReadErr_0",
    "IBCBusFromSPCParityErr_1",
    "IBCBusToSPCParityErr_1",
    "IBCBusFromSPCParityErr_0",
    "statusValidNoEop",
];

/// Bits of `HwErrStatus` that the driver masks.
const MASKED: &[&str] = &["IBSerdesPClkNotDetect_1", "IBSerdesPClkNotDetect_0", "LATriggered"];

/// Bits that are not raised one by one, and why.
#[cfg(test)]
const LEFT_OUT: &[(&str, &str)] = &[
    ("HardwareErr", "it follows the bits of HwErrStatus, which are raised"),
    ("ResetNegated", "a check of its own: it makes the driver give the card up"),
    ("SDmaHaltErr", "no error by itself: it moves the driver's send-DMA states on"),
    ("PowerOnBISTFailed", "the driver never clears it, so no reload would bring the card back"),
    ("pcie_phy_txParityErr", "the driver has no name for it and prints its number"),
];

struct Bench {
    guest: Guest,
    server: Server,
    trace: Trace,
}

/// Hardware errors that no guest has taken yet.
type Left = Mutex<std::slice::Iter<'static, &'static str>>;

/// Runs the scenario on two guests, each with a card of a server of its own. The first has everything that leaves the
/// driver running; the errors that make it give the card up, and each a reload, are shared between both.
pub(super) fn run(lab: &mut Lab) -> Result<(), Stop> {
    let logs = lab.logs("errors")?;
    let (mut first, mut second) = (Bench::start(lab, &logs, "a")?, Bench::start(lab, &logs, "b")?);
    let left: Left = Mutex::new(HARDWARE.iter());
    let (own, others) = std::thread::scope(|scope| {
        let others = scope.spawn(|| second.loads().and_then(|_| second.hardware_errors(&left)));
        let own = first.recoverable(lab).and_then(|()| first.hardware_errors(&left));
        // PANIC: none of what runs there panics; if it did, the run would be worth nothing.
        let others =
            others.join().unwrap_or_else(|_| Err(Stop::Lost("the second guest's thread".to_owned())));
        (own, others)
    });
    let verdict = own.and_then(|mut seen| {
        seen.extend(others?);
        ensure_eq!(seen.len(), HARDWARE.len(), "the number of hardware errors");
        Ok(seen.join(", "))
    });
    lab.report.check("hardware-errors", verdict)?;
    for bench in [&mut first, &mut second] {
        let verdict = bench.server.alive().and_then(|()| steps::ports_init(&mut bench.guest, &[1, 2]));
        lab.report.check("ports-train-after-all", verdict)?;
    }
    first.guest.off()?;
    second.guest.off()
}

/// Runs one reaction after another; all that fail are told, not only the first.
fn every(table: &[(&str, Action)], mut reaction: impl FnMut(&str, Action) -> Result<(), Stop>) -> Verdict {
    let mut wrong = Vec::new();
    for (name, action) in table {
        match reaction(name, *action) {
            Ok(()) => {}
            Err(Stop::Failed(why)) => wrong.push(why),
            Err(other) => return Err(other),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(format!("{} bits, each read, cleared and acted on as the tables say", table.len()))
}

impl Bench {
    fn start(lab: &mut Lab, logs: &Path, name: &str) -> Result<Self, Stop> {
        let logs = logs.join(name);
        make_folder(&logs)?;
        let record = logs.join("trace");
        let record_text = record.display().to_string();
        let server = lab.serve(1, &["--cable", "loop", "--trace", &record_text], &logs)?;
        let guest = lab.start("guest", Wanted::fabric(Series::V6_1, 0), &server, &logs)?;
        Ok(Self { guest, server, trace: Trace::of(&record) })
    }

    fn loads(&mut self) -> Verdict {
        self.guest.booted()?;
        steps::load(&mut self.guest, "")
    }

    /// Every bit after which the driver goes on.
    fn recoverable(&mut self, lab: &mut Lab) -> Result<(), Stop> {
        let verdict = self.loads().and_then(|seen| self.active().map(|()| seen));
        lab.report.check("driver-loads", verdict)?;
        let verdict = every(DEVICE, |name, action| self.reaction("", "ErrStatus", name, action));
        lab.report.check("device-errors", verdict)?;
        for (suffix, port) in [("_0", 1), ("_1", 2)] {
            let register = format!("ErrStatus{suffix}");
            let verdict = every(PORT, |name, action| self.reaction(suffix, &register, name, action));
            lab.report.check(&format!("port-{port}-errors"), verdict)?;
        }
        let verdict = self.reset_negated();
        lab.report.check("reset-negated", verdict)?;
        let verdict = self.masked();
        lab.report.check("masked-hardware-errors", verdict)
    }

    /// Raises hardware errors one after the other until none is left; gives those that were as they must be.
    fn hardware_errors(&mut self, left: &Left) -> Result<Vec<String>, Stop> {
        let mut seen = Vec::new();
        // A thread that panicked with the list in hand took an error from it at most.
        let next = || left.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
        while let Some(name) = next() {
            let begun = Instant::now();
            self.hardware(name)?;
            seen.push(format!("{name} ({:.0} s)", begun.elapsed().as_secs_f64()));
        }
        Ok(seen)
    }

    fn active(&mut self) -> Result<(), Stop> {
        steps::ports_init(&mut self.guest, &[1, 2])?;
        start_opensm(&mut self.guest)?;
        for port in [1, 2] {
            wait_state(&mut self.guest, port, "ACTIVE")?;
        }
        Ok(())
    }

    /// Raises a bit and judges what the driver does until it is clear and unmasked again.
    fn reaction(&mut self, suffix: &str, register: &str, name: &str, action: Action) -> Result<(), Stop> {
        self.trace.since()?;
        let (status, clear) = (register.to_owned(), format!("ErrClear{suffix}"));
        self.server.order(&format!("inject a {register} {name}"))?;
        let mut seen: Vec<Access> = Vec::new();
        let deadline = Instant::now() + REACTION_LIMIT;
        let mut bit = 0;
        // The mask that the handler gives back is the last that it writes, for the device's errors.
        let done = |seen: &[Access], bit: u64| {
            let cleared =
                seen.iter().position(|a| a.write && a.name == clear && bit != 0 && a.value & bit != 0);
            cleared.is_some_and(|at| {
                !suffix.is_empty()
                    || seen[at..].iter().any(|a| a.write && a.name == "ErrMask" && a.value != 0)
            })
        };
        while !done(&seen, bit) {
            if Instant::now() > deadline {
                let what = if bit == 0 { "read" } else { "cleared" };
                return Err(Stop::Failed(format!("{register} {name} was not {what}")));
            }
            thread::sleep(ASK_EVERY);
            seen.extend(self.trace.since()?);
            bit = bit_of(&seen, &status, register, name);
        }
        // What follows the clearing: printing, the link's state.
        thread::sleep(4 * ASK_EVERY);
        seen.extend(self.trace.since()?);
        let left = self.server.register(register)?;
        ensure!(left & bit == 0, "{register} {name} is still set in the model: {left:#x}");
        judge(&seen, suffix, action).map_err(|why| Stop::Failed(format!("{register} {name}: {why}")))
    }

    /// The chip says that it was reset under the driver: the driver gives it up and says what to do.
    fn reset_negated(&mut self) -> Verdict {
        self.guest.must("dmesg -c >/dev/null", 10)?;
        self.server.order("inject a ErrStatus ResetNegated")?;
        self.guest.must("within 30 'dmesg | grep -q \"Got reset\"'", 30)?;
        let text = self.guest.must("dmesg | grep 'Got reset'", 10)?;
        self.reload()?;
        steps::ports_init(&mut self.guest, &[1, 2])?;
        let said = text.trim().split("ib_qib").last().unwrap_or_default().to_owned();
        Ok(format!("{said:?}, and the ports train after a reload"))
    }

    /// What the driver masks reaches it not at all.
    fn masked(&mut self) -> Verdict {
        self.trace.since()?;
        self.server.order(&format!("inject a HwErrStatus {}", MASKED.join("+")))?;
        thread::sleep(Duration::from_secs(1));
        let asked = self.trace.since()?.iter().any(|a| !a.write && a.name == "HwErrStatus");
        ensure!(!asked, "the driver was told of a hardware error that it masks");
        Ok(format!("{} bits, none of which the driver notices", MASKED.len()))
    }

    /// A hardware error freezes the chip: the driver names it, clears it, gives the card up; a reload brings it back.
    fn hardware(&mut self, name: &str) -> Result<(), Stop> {
        self.guest.must("dmesg -c >/dev/null", 10)?;
        self.trace.since()?;
        self.server.order(&format!("inject a HwErrStatus {name}"))?;
        // The driver prints both ports' bits without the port's number.
        let printed = name.trim_end_matches("_0").trim_end_matches("_1");
        let wait = format!("within 30 'dmesg | grep -q {printed}'");
        self.guest.must(&wait, 30).map_err(|stop| match stop {
            Stop::Failed(_) => Stop::Failed(format!("the driver says nothing of {name}")),
            other => other,
        })?;
        self.guest.must("within 30 'dmesg | grep -q \"no longer usable\"'", 30).map_err(
            |stop| match stop {
                Stop::Failed(_) => Stop::Failed(format!("the driver does not give the card up for {name}")),
                other => other,
            },
        )?;
        let seen = self.trace.since()?;
        let cleared = seen.iter().any(|a| a.write && a.name == "HwErrClear" && a.value != 0);
        ensure!(cleared, "the driver did not clear {name}");
        self.reload()
    }

    /// Removes the driver and loads it again; the ports train meanwhile.
    fn reload(&mut self) -> Result<(), Stop> {
        self.guest.must("killall opensm; within 20 '! pidof opensm'; rmmod ib_qib", 90)?;
        steps::load(&mut self.guest, "").map(drop)
    }
}

/// The bit called `name`, once the driver has read it in the status register.
fn bit_of(seen: &[Access], status: &str, register: &str, name: &str) -> u64 {
    use qhca_regs::status::{ErrBits, PortErrBits};
    use qhca_regs::value::Contents;
    let fields = if register == "ErrStatus" { ErrBits::FIELDS } else { PortErrBits::FIELDS };
    let bit = fields.iter().find(|field| field.name == name).map_or(0, |field| 1u64 << field.lsb);
    let read = seen.iter().any(|a| !a.write && a.name == status && a.value & bit != 0);
    if read { bit } else { 0 }
}

/// Whether the accesses show what the action names, and not what it does not name.
fn judge(seen: &[Access], suffix: &str, action: Action) -> Result<(), String> {
    let reads = |name: &str| seen.iter().any(|a| !a.write && a.name == name);
    let writes = |name: &str| seen.iter().any(|a| a.write && a.name == name);
    let own = |name: &str| format!("{name}{suffix}");
    let disarms = ["SendBufErr0", "SendBufErr1", "SendBufErr2"].into_iter().all(reads);
    let expected = matches!(action, Disarm | Headers);
    if disarms != expected {
        let what = if disarms { "were" } else { "were not" };
        return Err(format!("the send buffers in error {what} read"));
    }
    let symptom = own("SendHdrErrSymptom");
    let shown = match action {
        Count | Disarm => true,
        Headers => reads(&symptom) && writes(&symptom),
        Link => reads(&own("IBCStatusA")),
        Dump => ["SendDmaTail", "SendDmaHead", "SendDmaStatus"].into_iter().any(|name| reads(&own(name))),
    };
    if shown { Ok(()) } else { Err(format!("the registers of {action:?} were not touched")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(write: bool, name: &str) -> Access {
        Access { write, offset: 0, value: 1, name: name.to_owned() }
    }

    #[test]
    fn every_bit_of_the_chip_is_raised_or_left_out_with_a_reason() {
        use qhca_regs::status::{ErrBits, HwErrBits, PortErrBits};
        use qhca_regs::value::Contents;
        let listed: Vec<&str> = [DEVICE, PORT].concat().iter().map(|(name, _)| *name).collect();
        let listed = [listed, HARDWARE.to_vec(), MASKED.to_vec()].concat();
        let chip = [ErrBits::FIELDS, HwErrBits::FIELDS, PortErrBits::FIELDS].concat();
        for field in &chip {
            let left_out = LEFT_OUT.iter().any(|(name, why)| *name == field.name && !why.is_empty());
            assert!(listed.contains(&field.name) != left_out, "{}", field.name);
        }
        assert_eq!(listed.iter().find(|name| !chip.iter().any(|field| field.name == **name)), None);
    }

    #[test]
    fn an_action_that_is_missing_or_too_much_is_told() {
        let disarm: Vec<Access> = (0..3).map(|n| access(false, &format!("SendBufErr{n}"))).collect();
        assert!(judge(&disarm, "_0", Disarm).is_ok());
        assert!(judge(&disarm, "_0", Count).is_err());
        assert!(judge(&[], "_0", Count).is_ok());
        assert!(judge(&[], "_0", Disarm).is_err());
        assert!(judge(&disarm, "_0", Headers).is_err());
        assert!(judge(&[access(false, "IBCStatusA_0")], "_0", Link).is_ok());
        assert!(judge(&[access(false, "IBCStatusA_1")], "_0", Link).is_err());
    }
}
