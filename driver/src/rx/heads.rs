//! The registers by which a context gives space back and asks for an interrupt, and where it stands.

use qhca_irq::moderation::RcvSetting;
use qhca_regs::layout::RhfSeq;
use qhca_regs::map::device::{self, RcvAvailTimeout};
use qhca_regs::map::user::{self, RcvHdrHead};
use qhca_regs::{Bar, Ctxt, Reg, Rw};

use super::reader::{Cursor, EagerCursor};

/// Where a context stands in its queue and its buffers, and what the chip has been told of that.
pub(super) struct Heads {
    timeout_register: Reg<RcvAvailTimeout, Rw>,
    egr_head_register: Reg<u64, Rw>,
    hdr_head_register: Reg<RcvHdrHead, Rw>,
    pub(super) cursor: Cursor,
    pub(super) eager: EagerCursor,
    /// The moderation of interrupts from the next arming on.
    pub(super) setting: RcvSetting,
    timeout_written: u16,
}

impl Heads {
    /// A context that has read nothing, with `eager_count` buffers; the chip holds `setting`'s timeout.
    pub(super) const fn new(ctxt: Ctxt, eager_count: u32, setting: RcvSetting) -> Self {
        let (cursor, eager) = (Cursor::new(0, RhfSeq::FIRST), EagerCursor::new(eager_count - 1));
        Self {
            timeout_register: device::RCV_AVAIL_TIMEOUT.ctxt(ctxt),
            egr_head_register: user::RCV_EGR_INDEX_HEAD.ctxt(ctxt),
            hdr_head_register: user::RCV_HDR_HEAD.ctxt(ctxt),
            cursor,
            eager,
            setting,
            timeout_written: setting.timeout_ticks,
        }
    }

    /// The chip holds another timeout than the setting's: it is written at the next arming.
    pub(super) fn forget_timeout(&mut self) {
        self.timeout_written = !self.setting.timeout_ticks;
    }

    /// Returns space, and arms for `counter` packets if it is not 0, in the chip's order (F-208).
    pub(super) fn write(&mut self, bar: &impl Bar, counter: u16) {
        let timeout = self.setting.timeout_ticks;
        if counter > 0 && timeout != self.timeout_written {
            self.timeout_written = timeout;
            let contents = RcvAvailTimeout::default().with_rcv_avail_to_reload(timeout);
            self.timeout_register.write(bar, contents);
        }
        if let Some(index) = self.eager.take_unreturned() {
            self.egr_head_register.write(bar, u64::from(index));
        }
        let head_dwords = (self.cursor.at_bytes / 4) as u32;
        let head = RcvHdrHead::default().with_rcv_head_pointer(head_dwords).with_counter(counter);
        // ORDER: reads of the packets before the store that lets the chip overwrite them.
        self.hdr_head_register.doorbell(bar, head);
        self.hdr_head_register.write(bar, head);
    }
}
