//! Interrupts and the error path of a chip whose registers answer garbage: every call is bounded, only bits that were
//! seen are cleared, and for a card that reads all ones there is one event, after which nothing touches it.
//!
//! Input: one byte of policy, one of vectors granted, then steps: an interrupt with its status word, a turn of the worker,
//! time that passes, a misread register, a card that vanishes.

#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use qhca_driver::bringup::BringUpRequest;
use qhca_driver::dma::{DmaMemory, DmaRegion};
use qhca_driver::event::Event;
use qhca_driver::fault::Policy;
use qhca_driver::hca::{Hca, HcaSetup};
use qhca_driver::link::Goal;
use qhca_driver::options::Options;
use qhca_driver::shared::DeviceState;
use qhca_fuzz::Bytes;
use qhca_fuzz::registers::{Registers, bring_up};
use qhca_irq::VectorUse;
use qhca_regs::map::{device, port};
use qhca_regs::{Bar, Duration, GONE, Instant, Port, Vector};

/// Accesses of one call: the words of all scopes, a counter a context, masks, and what follows for each port.
const ACCESSES_MAX: usize = 400;
/// Reports that are taken in a row.
const REPORTS_MAX: usize = 64;
/// What a step may set before its call.
const MISREAD: [u32; 8] = [
    device::ERR_STATUS.offset(),
    device::HW_ERR_STATUS.offset(),
    device::GPIO_STATUS.offset(),
    device::EXT_STATUS.offset(),
    port::ERR_STATUS.port(Port::P0).offset(),
    port::ERR_STATUS.port(Port::P1).offset(),
    port::IBC_STATUS_A.port(Port::P0).offset(),
    port::IBC_STATUS_A.port(Port::P1).offset(),
];

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let policy = Policy::ALL[usize::from(bytes.u8()) % Policy::ALL.len()];
    let vectors = usize::from(bytes.u8() % 33);
    let registers = Registers::new(Bytes::new(&[]));
    let mut hca = up(policy, vectors, &registers);
    let bar = Watched { registers, cleared: RefCell::default() };
    let mut now = Instant::ZERO;
    hca.start(&bar, now);
    let (mut gone_events, mut steps) = (0, 0);
    while !bytes.is_empty() && steps < 200 {
        steps += 1;
        let (before, was_gone) = (bar.registers.accesses(), hca.shared().state() == DeviceState::Gone);
        step(&mut hca, &bar, &mut bytes, &mut now);
        let used = bar.registers.accesses() - before;
        assert!(used <= if was_gone { 0 } else { ACCESSES_MAX }, "{used} accesses in one call");
        while let Some(event) = hca.poll_event() {
            assert!(!event.to_string().is_empty());
            gone_events += usize::from(matches!(event, Event::Gone));
        }
    }
    if bar.registers.seen_gone() && hca.shared().state() == DeviceState::Open {
        // It was seen where nobody asks for an answer; the next interrupt does.
        let _ = hca.on_interrupt(Vector::DEFAULT, &bar, now);
    }
    gone_events +=
        std::iter::from_fn(|| hca.poll_event()).filter(|event| matches!(event, Event::Gone)).count();
    assert!(gone_events <= 1, "one event for a card that is gone");
    assert_eq!(hca.shared().state() == DeviceState::Gone, gone_events == 1);
    assert!(!bar.registers.seen_gone() || hca.shared().state() != DeviceState::Open, "nobody has noticed");
});

/// A device that is up, on registers that answer as they should.
fn up(policy: Policy, vectors: usize, registers: &Registers<'_>) -> Hca {
    let options = Options::parse("krcvqs=2").expect("in range").options;
    let request = BringUpRequest { options, goals: [Some(Goal::Up); 2], ..BringUpRequest::default() };
    let (up, _) = bring_up(request.clone(), vectors, registers);
    let up = up.unwrap_or_else(|error| panic!("{error}"));
    let memory = DmaMemory::new(4096).expect("a page");
    Hca::new(HcaSetup {
        policy,
        request: up.split.plan_request(&request.options).expect("a plan"),
        plan: up.plan,
        split: up.split,
        masks: up.masks,
        links: up.links,
        controls: up.controls,
        avail: DmaRegion::new(Arc::new(memory), 1 << 20, None),
    })
}

fn step(hca: &mut Hca, bar: &Watched<'_>, bytes: &mut Bytes<'_>, now: &mut Instant) {
    match bytes.u8() % 8 {
        0..=3 => interrupt(hca, bar, bytes, *now),
        4 => {
            let reports = (0..REPORTS_MAX).take_while(|_| hca.poll_deferred(bar, *now).is_some()).count();
            assert!(reports < REPORTS_MAX, "reports without an end");
        }
        5 => {
            *now += Duration::from_micros(u64::from(bytes.u16()) * 16);
            hca.on_timeout(bar, *now);
        }
        6 => {
            let register = MISREAD[usize::from(bytes.u8()) % MISREAD.len()];
            // All ones for one register only would be no card that is gone.
            bar.registers.set(register, bytes.u64() & !(1 << 63));
        }
        _ if bytes.u8() % 16 == 0 => bar.registers.vanish(),
        _ => {}
    }
}

/// One interrupt: no read on a vector of its own, one on the default vector unless errors are served here.
fn interrupt(hca: &mut Hca, bar: &Watched<'_>, bytes: &mut Bytes<'_>, now: Instant) {
    let vector = Vector::new(usize::from(bytes.u8()) % Vector::COUNT).expect("a vector");
    let status = bytes.u64();
    bar.registers.set(device::INT_STATUS.offset(), status);
    if status == GONE {
        bar.registers.vanish();
    }
    bar.cleared.borrow_mut().clear();
    let dedicated = match hca.shared().dispatcher().plan().use_of(vector) {
        Some(VectorUse::Dedicated(source)) => Some(source),
        _ => None,
    };
    let interrupt = hca.on_interrupt(vector, bar, now);
    let cleared = bar.cleared.borrow();
    if let Some(source) = dedicated {
        // The urgent packets of the same context are served with the others.
        assert!(cleared.iter().all(|bits| bits & source.mask().bits() != 0 && bits.count_ones() <= 2));
        return;
    }
    let enabled = hca.shared().dispatcher().plan().main_bits().bits();
    for bits in cleared.iter() {
        assert_eq!(bits & !(status & enabled), 0, "bits were cleared that nobody has looked at");
    }
    assert!(cleared.len() <= 1 && (interrupt.alive || interrupt.contexts.is_empty()));
}

/// The registers, with what is cleared noted.
struct Watched<'a> {
    registers: Registers<'a>,
    cleared: RefCell<Vec<u64>>,
}

impl Bar for Watched<'_> {
    fn read(&self, offset: u32) -> u64 {
        self.registers.read(offset)
    }

    fn write(&self, offset: u32, value: u64) {
        if offset == device::INT_CLEAR.offset() {
            self.cleared.borrow_mut().push(value);
        }
        self.registers.write(offset, value);
    }

    fn doorbell(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }

    fn burst(&self, offset: u32, dwords: &[u32]) {
        self.registers.burst(offset, dwords);
    }
}
