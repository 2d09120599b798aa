//! Sets a frozen chip going again.
//!
//! The chip freezes itself on a hardware error that is not masked: nothing is sent or received, the avail words stop.
//! For the logic analyser's trigger alone that is no harm done. The order is the stock driver's: everything quiet,
//! the freeze off, a read to see that it has arrived, the errors cleared, the masks back, interrupts on (F-225).

use qhca_irq::PortSet;
use qhca_regs::map::device::{self, Control};
use qhca_regs::map::port as port_regs;
use qhca_regs::status::{ErrBits, HwErrBits, IntBits, PortErrBits};
use qhca_regs::{Bar, Port};

/// What the masks are to hold afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Masks {
    pub(super) device: ErrBits,
    pub(super) port: PortErrBits,
    pub(super) interrupts: IntBits,
    pub(super) ports: PortSet,
}

/// Ends the freeze. `control` is what `Control` read as.
pub(super) fn thaw(bar: &impl Bar, control: Control, masks: Masks) {
    device::ERR_MASK.write(bar, ErrBits::empty());
    for port in masks.ports.iter() {
        port_regs::ERR_MASK.port(port).write(bar, PortErrBits::empty());
    }
    device::INT_MASK.write(bar, IntBits::empty());
    device::CONTROL.write(bar, control.with_freeze_mode(false));
    // ORDER: the read comes back after the write before it has been done.
    device::SCRATCH.read(bar);
    device::HW_ERR_CLEAR.clear(bar, HwErrBits::empty());
    device::ERR_CLEAR.clear(bar, ErrBits::empty());
    device::ERR_MASK.write(bar, masks.device);
    for port in masks.ports.iter() {
        restore_port(bar, port, masks.port);
    }
    device::INT_MASK.write(bar, masks.interrupts);
    // Any write raises again what is still pending; this one clears nothing.
    device::INT_CLEAR.clear(bar, IntBits::empty());
}

fn restore_port(bar: &impl Bar, port: Port, mask: PortErrBits) {
    // What a port noticed while the chip stood still is no news.
    port_regs::ERR_CLEAR.port(port).clear(bar, PortErrBits::all());
    port_regs::ERR_MASK.port(port).write(bar, mask);
}
