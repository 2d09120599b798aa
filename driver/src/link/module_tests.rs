//! Reading modules on a bus that is driven edge by edge.

use super::*;
use crate::gpio::SocketPins;
use crate::link::cable::tests::{golden, seal};
use crate::scriptbar::ScriptBar;
use crate::twsi::tests::BusMemory;
use qhca_regs::Port;
use qhca_regs::map::device;

fn pins() -> SocketPins {
    SocketPins::of(Port::P0)
}

fn module(bytes: &[u8]) -> BusMemory {
    BusMemory { contents: bytes.to_vec(), address: Some(0xA0), ..BusMemory::default() }
}

/// Reads to the end; the result, and when that was.
fn read(bar: &ScriptBar) -> (Result<CableInfo, CableError>, Instant) {
    let mut gpio = Gpio::new();
    gpio.set(pins().modsel_n, pins().modsel_n, pins().modsel_n, bar);
    let mut reader = ModuleReader::new(pins());
    let mut now = Instant::ZERO;
    for _ in 0..100_000 {
        match reader.poll(&mut gpio, bar, now) {
            ModulePoll::More(until) => now = now.max(until),
            ModulePoll::Done(result) => return (result, now),
        }
    }
    panic!("the reading never ends");
}

#[test]
fn flat_module_is_read_whole_and_never_written_to() {
    let bar = ScriptBar::reset();
    let memory = module(&golden()).attach(&bar);
    let (info, took) = read(&bar);
    assert_eq!(info, Ok(CableInfo::parse(&golden())));
    assert!(memory.borrow().written.is_empty());
    assert!(took >= Instant::ZERO + SELECT_REST.doubled(), "{took:?}");
    // Released at the end.
    assert_eq!(bar.peek(device::GPIO_OUT.offset()) as u16 & pins().modsel_n, pins().modsel_n);
}

#[test]
fn module_with_pages_is_told_to_show_page_0_before_the_page_is_read() {
    let mut bytes = golden();
    bytes[2] = 0;
    seal(&mut bytes);
    let bar = ScriptBar::reset();
    let memory = module(&bytes).attach(&bar);
    let (info, _) = read(&bar);
    assert_eq!(info.map(|info| (info.flat, info.serial)), Ok((false, "APF10180012345".to_owned())));
    assert_eq!(memory.borrow().written, [(127, 0)]);
}

#[test]
fn module_that_is_busy_with_its_page_is_asked_until_it_answers_and_not_for_ever() {
    let mut bytes = golden();
    bytes[2] = 0;
    seal(&mut bytes);
    for (busy, answers) in [(40, true), (1000, false)] {
        let bar = ScriptBar::reset();
        BusMemory { busy_after_write: busy, ..module(&bytes) }.attach(&bar);
        let (info, took) = read(&bar);
        assert_eq!(info.is_ok(), answers, "busy for {busy}: {info:?}");
        assert!(took < Instant::ZERO + Duration::from_millis(800), "{took:?}");
    }
}

#[test]
fn module_that_does_not_answer_is_tried_again_and_then_given_up() {
    let bar = ScriptBar::reset();
    BusMemory::default().attach(&bar);
    let (result, took) = read(&bar);
    let cause = TwsiError::NoAck { device: 0xA0, phase: crate::twsi::Phase::Address };
    assert_eq!(result, Err(CableError { bytes_read: 0, cause }));
    assert!(took < Instant::ZERO + Duration::from_millis(500), "{took:?}");
    // One that was only late is read.
    let bar = ScriptBar::reset();
    BusMemory { deaf_for: 1, ..module(&golden()) }.attach(&bar);
    assert!(read(&bar).0.is_ok());
}

#[test]
fn lost_device_ends_the_reading_without_another_try() {
    let bar = ScriptBar::reset();
    bar.vanish();
    let (result, took) = read(&bar);
    assert_eq!(result.map_err(|error| error.cause), Err(TwsiError::Gone));
    assert!(took < Instant::ZERO + RETRY_AFTER);
}
