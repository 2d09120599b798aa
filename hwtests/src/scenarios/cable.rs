//! Cable modules: what they say of themselves, by pages, and that coming and going is noticed.

use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use qhca_driver::env::Backend;
use qhca_driver::gpio::{Gpio, SocketPins};
use qhca_driver::link::cable::CableInfo;
use qhca_driver::link::module::{ModulePoll, ModuleReader};
use qhca_driver::twsi::{Transfer, TransferPoll};
use qhca_irq::{Source, VectorSet};
use qhca_regs::map::device;
use qhca_regs::{Duration, Port, Vector};

/// Address of a module on the two-wire bus, in the 8-bit form.
const MODULE: u8 = 0xA0;

/// The sockets with a module in them, their pins set as the data sheet says.
fn sockets<B: Backend>(bench: &mut Bench<'_, B>, gpio: &mut Gpio) -> Result<Vec<(Port, SocketPins)>, Stop> {
    let mut present = Vec::new();
    for port in bench.ports() {
        let pins = SocketPins::of(port);
        let outputs = pins.modsel_n | pins.reset_n | pins.lpmode;
        gpio.set(outputs | pins.modprs_n, outputs, outputs, bench.bar());
        if gpio.read(bench.bar()).is_some_and(|levels| levels & pins.modprs_n == 0) {
            present.push((port, pins));
        }
    }
    if present.is_empty() {
        return Err(Stop::Skip("no cable module is plugged in, or the board has no sockets".to_owned()));
    }
    bench.pause(Duration::from_secs(3));
    Ok(present)
}

/// Each module is read whole, its check sums fit, and one with several pages shows the page that is asked for.
pub(super) fn qsfp<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    let mut gpio = Gpio::new();
    for (port, pins) in sockets(bench, &mut gpio)? {
        let info = read(bench, &mut gpio, pins)?;
        ensure!(info.oddities().is_empty(), "{port}: {info}: {:?}", info.oddities());
        ensure!(
            !info.vendor.is_empty() && !info.serial.is_empty(),
            "{port}: a module without a name: {info}"
        );
        if info.flat {
            continue;
        }
        gpio.set(pins.modsel_n, pins.modsel_n, 0, bench.bar());
        bench.pause(Duration::from_millis(20));
        let page = |bench: &mut Bench<'_, B>, gpio: &mut Gpio, number: u8| {
            transfer(bench, gpio, Transfer::write(MODULE, 127, &[number]))?;
            // A module that was written to may be busy for a while.
            let mut read = transfer(bench, gpio, Transfer::read(MODULE, 128, 16));
            for _ in 0..100 {
                if read.is_ok() {
                    break;
                }
                bench.pause(Duration::from_millis(1));
                read = transfer(bench, gpio, Transfer::read(MODULE, 128, 16));
            }
            read
        };
        let (other, zero) = (page(bench, &mut gpio, 3)?, page(bench, &mut gpio, 0)?);
        gpio.set(pins.modsel_n, pins.modsel_n, pins.modsel_n, bench.bar());
        ensure!(other != zero, "{port}: pages 0 and 3 of the module show the same");
        ensure_eq!(zero[0], info.page_identifier, "{port}: the identifier in page 0 after another page");
    }
    Ok(())
}

fn read<B: Backend>(bench: &mut Bench<'_, B>, gpio: &mut Gpio, pins: SocketPins) -> Result<CableInfo, Stop> {
    let mut reader = ModuleReader::new(pins);
    loop {
        let (bar, now) = (bench.bar().clone(), bench.now());
        match reader.poll(gpio, &bar, now) {
            ModulePoll::More(until) => {
                bench.pause(until.since(now));
            }
            ModulePoll::Done(read) => {
                return read.map_err(|error| Stop::Fail(format!("{error}: {}", error.cause)));
            }
        }
    }
}

fn transfer<B: Backend>(
    bench: &mut Bench<'_, B>,
    gpio: &mut Gpio,
    mut transfer: Transfer,
) -> Result<Vec<u8>, Stop> {
    loop {
        let (bar, now) = (bench.bar().clone(), bench.now());
        match transfer.poll(gpio, &bar, now) {
            TransferPoll::More(until) => {
                bench.pause(until.since(now));
            }
            TransferPoll::Done(bytes) => return Ok(bytes),
            TransferPoll::Failed(error) => return Err(Stop::Fail(error.to_string())),
        }
    }
}

/// A module that is pulled, and one that is pushed in, shows on its pin and interrupts.
pub(super) fn qsfp_insert<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    let mut gpio = Gpio::new();
    for (port, pins) in sockets(bench, &mut gpio)? {
        for is_in in [false, true] {
            // Asserted means: the level that is waited for.
            gpio.watch(pins.modprs_n, if is_in { pins.modprs_n } else { 0 }, bench.bar());
            device::GPIO_CLEAR.clear(bench.bar(), u64::MAX);
            bench.enable_interrupts(Source::AssertGpio.mask());
            bench.pause(Duration::from_millis(1));
            if !bench.surroundings.plug_module(port, is_in) {
                return Err(Stop::Skip(
                    "nobody here can pull a cable module and push it in again".to_owned(),
                ));
            }
            let fired = bench.wait();
            let what = if is_in { "pushed in" } else { "pulled" };
            ensure_eq!(fired, VectorSet::only(Vector::DEFAULT), "{port}: vectors after a module was {what}");
            let levels = gpio.read(bench.bar()).unwrap_or(u16::MAX);
            ensure_eq!(levels & pins.modprs_n == 0, is_in, "{port}: whether the pin shows a module");
            let status = bench.read(device::GPIO_STATUS) as u16;
            ensure!(status & pins.modprs_n != 0, "{port}: GPIOStatus {status:#x} after a module was {what}");
            gpio.unwatch(pins.modprs_n, bench.bar());
        }
    }
    Ok(())
}
