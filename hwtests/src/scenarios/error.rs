//! Error words: what is cleared, and what a fault of the hardware itself looks like.

use super::interrupt::spoil;
use super::send::{buffer, ready};
use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::packet::Packet;
use qhca_driver::env::Backend;
use qhca_irq::{Source, VectorSet};
use qhca_regs::Vector;
use qhca_regs::map::device;
use qhca_regs::status::{ErrBits, HwErrBits};

/// Clearing one error leaves all others as they are.
pub(super) fn clear_is_exact<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, _context) = ready(bench, 4)?;
    device::ERR_CLEAR.clear(bench.bar(), ErrBits::all());
    ensure_eq!(bench.read(device::ERR_STATUS).bits(), 0, "ErrStatus after a clear of everything");
    for n in 0..8 {
        bench.send(buffer(0)?, &Packet::new(port, 2, n));
    }
    spoil(bench)?;
    let both = ErrBits::RCV_HDR_FULL_ERR | ErrBits::SEND_ARM_LAUNCH_ERR;
    ensure_eq!(bench.read(device::ERR_STATUS), both, "ErrStatus with a full queue and a spoiled send buffer");
    for (clear, rest) in [
        (ErrBits::empty(), both),
        (ErrBits::SEND_ARM_LAUNCH_ERR, ErrBits::RCV_HDR_FULL_ERR),
        (ErrBits::RCV_HDR_FULL_ERR, ErrBits::empty()),
    ] {
        device::ERR_CLEAR.clear(bench.bar(), clear);
        ensure_eq!(bench.read(device::ERR_STATUS), rest, "ErrStatus after a clear of {clear:?}");
    }
    Ok(())
}

/// A parity error between the chip's blocks shows in `HwErrStatus`, and through it in `ErrStatus` and `IntStatus`.
pub(super) fn hardware_error<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    let parity = HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_0;
    bench.write(device::HW_ERR_MASK, parity);
    bench.enable_interrupts(Source::Err.mask());
    let forced = device::HwDiagCtrl(0).with_force_ibc_bus_from_spc_parity_err_0(true);
    bench.write(device::HW_DIAG_CTRL, forced);
    let shows = |bench: &mut Bench<'_, B>| bench.read(device::HW_ERR_STATUS).contains(parity);
    if !bench.until(crate::bench::SOON, shows) && !bench.surroundings.raise_parity_error() {
        return Err(Stop::Skip(
            "this card does not force errors by HwDiagCtrl, and nothing here can".to_owned(),
        ));
    }
    bench.write(device::HW_DIAG_CTRL, device::HwDiagCtrl(0));
    let fired = bench.wait();
    ensure_eq!(bench.read(device::HW_ERR_STATUS), parity, "HwErrStatus");
    let errors = bench.read(device::ERR_STATUS);
    ensure!(errors.contains(ErrBits::HARDWARE_ERR), "HardwareErr missing in {errors:?}");
    ensure_eq!(fired, VectorSet::only(Vector::DEFAULT), "vectors after a hardware error");
    device::HW_ERR_CLEAR.clear(bench.bar(), parity);
    ensure_eq!(bench.read(device::HW_ERR_STATUS).bits(), 0, "HwErrStatus after its clear");
    Ok(())
}
