//! The control registers that several parts of the driver change, each behind one shadow.
//!
//! `RcvCtrl`, `RcvCtrl_p`, `SendCtrl` and `SendCtrl_p` hold bits of many owners: the context configuration of
//! bring-up, the enables of every context, the send side's availability updates. A read across PCIe before each
//! change would cost a microsecond and race with command bits, so the driver keeps what it wrote. There is one
//! [`Controls`] a device, with the control thread. Once bring-up is over `SendCtrl` belongs to
//! [`SendControl`](crate::tx), which the senders share.
//!
//! The chip must not see two writes of a send or link control register back to back: each is followed by a write to
//! `Scratch`, which separates them (F-120). The functions here do so.

use qhca_regs::map::device::{self, RcvCtrl, SendCtrl};
use qhca_regs::map::port;
use qhca_regs::{Bar, Ctxt, Port, Shadow};

/// Keeps two writes of a control register apart (F-120).
pub fn separate(bar: &impl Bar) {
    device::SCRATCH.write(bar, 0);
}

/// Shadows of the control registers.
#[derive(Clone, Debug)]
pub struct Controls {
    rcv: Shadow<RcvCtrl>,
    rcv_port: [Shadow<port::RcvCtrl>; 2],
    send: Shadow<SendCtrl>,
    send_port: [Shadow<port::SendCtrl>; 2],
}

impl Default for Controls {
    fn default() -> Self {
        Self::new()
    }
}

impl Controls {
    /// The registers as a reset leaves them: all zero.
    pub const fn new() -> Self {
        Self {
            rcv: Shadow::new(RcvCtrl(0)),
            rcv_port: [Shadow::new(port::RcvCtrl(0)); 2],
            send: Shadow::new(SendCtrl(0)),
            send_port: [Shadow::new(port::SendCtrl(0)); 2],
        }
    }

    /// What `RcvCtrl` holds.
    pub fn rcv(&self) -> RcvCtrl {
        self.rcv.get()
    }

    /// What `RcvCtrl_p` holds.
    pub fn rcv_port(&self, port: Port) -> port::RcvCtrl {
        self.rcv_port[port.index()].get()
    }

    /// What `SendCtrl` holds.
    pub fn send(&self) -> SendCtrl {
        self.send.get()
    }

    /// What `SendCtrl_p` holds.
    pub fn send_port(&self, port: Port) -> port::SendCtrl {
        self.send_port[port.index()].get()
    }

    /// Changes `RcvCtrl`.
    pub fn update_rcv(&mut self, bar: &impl Bar, change: impl FnOnce(RcvCtrl) -> RcvCtrl) {
        self.rcv.update(bar, device::RCV_CTRL, change);
    }

    /// Changes `RcvCtrl_p`.
    pub fn update_rcv_port(
        &mut self,
        port: Port,
        bar: &impl Bar,
        change: impl FnOnce(port::RcvCtrl) -> port::RcvCtrl,
    ) {
        self.rcv_port[port.index()].update(bar, port::RCV_CTRL.port(port), change);
    }

    /// Changes `SendCtrl`; the write is kept apart from the next.
    pub fn update_send(&mut self, bar: &impl Bar, change: impl FnOnce(SendCtrl) -> SendCtrl) {
        self.send.update(bar, device::SEND_CTRL, change);
        separate(bar);
    }

    /// Changes `SendCtrl_p`; the write is kept apart from the next.
    pub fn update_send_port(
        &mut self,
        port: Port,
        bar: &impl Bar,
        change: impl FnOnce(port::SendCtrl) -> port::SendCtrl,
    ) {
        self.send_port[port.index()].update(bar, port::SEND_CTRL.port(port), change);
        separate(bar);
    }

    /// Lets `ctxt` receive from `port`, and interrupt, or takes that away.
    ///
    /// Enabling sets the context's head and tail to 0 and restarts its sequence at 1, so its queue and eager entries
    /// must be in place (F-121). The interrupt bit is written first and taken away last.
    pub fn enable_context(&mut self, ctxt: Ctxt, port: Port, on: bool, bar: &impl Bar) {
        let bit = 1u32 << ctxt.index();
        let with = |bits: u32| if on { bits | bit } else { bits & !bit };
        let interrupts = |rcv: RcvCtrl| rcv.with_intr_avail(with(rcv.intr_avail()));
        // The header names bits 0 and 2 to 17 of RcvCtrl_p only; context 1's bit on port 1 is bit 1 (F-121).
        let enable = |rcv: port::RcvCtrl| port::RcvCtrl((rcv.0 & !u64::from(bit)) | u64::from(with(0)));
        if on {
            self.update_rcv(bar, interrupts);
            self.update_rcv_port(port, bar, enable);
        } else {
            self.update_rcv_port(port, bar, enable);
            self.update_rcv(bar, interrupts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scriptbar::ScriptBar;

    const SCRATCH: u32 = device::SCRATCH.offset();

    /// Whether a Scratch write follows each write to `offset`.
    fn is_kept_apart(bar: &ScriptBar, offset: u32) -> bool {
        let writes = bar.writes.borrow();
        writes
            .iter()
            .enumerate()
            .filter(|(_, (at, _))| *at == offset)
            .all(|(index, _)| writes.get(index + 1).is_some_and(|(at, _)| *at == SCRATCH))
    }

    #[test]
    fn send_control_writes_are_kept_apart_by_scratch() {
        let (bar, mut controls) = (ScriptBar::reset(), Controls::new());
        controls.update_send(&bar, |send| send.with_send_buf_avail_upd(true));
        controls.update_send_port(Port::P1, &bar, |send| send.with_send_enable(true));
        assert_eq!(bar.written(device::SEND_CTRL.offset()).len(), 1);
        assert!(is_kept_apart(&bar, device::SEND_CTRL.offset()));
        assert!(is_kept_apart(&bar, port::SEND_CTRL.port(Port::P1).offset()));
    }

    #[test]
    fn context_1_is_enabled_on_port_1_by_bit_1() {
        let (bar, mut controls) = (ScriptBar::reset(), Controls::new());
        let ctxt = Ctxt::new(1).expect("a context");
        controls.update_rcv_port(Port::P1, &bar, |rcv| rcv.with_rcv_ib_port_enable(true));
        controls.enable_context(ctxt, Port::P1, true, &bar);
        assert_eq!(controls.rcv_port(Port::P1).0, 1 << 39 | 1 << 1);
        assert_eq!(controls.rcv().intr_avail(), 1 << 1);
        controls.enable_context(ctxt, Port::P1, false, &bar);
        assert_eq!(controls.rcv_port(Port::P1).0, 1 << 39);
        assert_eq!(controls.rcv().intr_avail(), 0);
    }
}
