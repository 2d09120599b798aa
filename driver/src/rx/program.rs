//! Tells the chip of a context's memory and lets it receive; takes that back.
//!
//! ```text
//!   eager array ← address and size of each buffer
//!   RcvHdrTailAddr ← 0 (no tail by DMA)    RcvHdrAddr ← the queue
//!   RcvCtrl IntrAvail, RcvCtrl_p enable    the chip starts at head, tail 0 and sequence 1
//!   EgrIndexTail → EgrIndexHead            (read, write)
//!   read Scratch                           everything before has arrived
//!   RcvHdrTail → RcvHdrHead                (read, write with the count: armed)
//! ```
//!
//! Taking back goes the other way round, and ends with a read: afterwards the chip writes nothing to the memory.
//! Source: F-209.

use std::fmt;

use qhca_regs::layout::ArrayEntryError;
use qhca_regs::map::device::{self, RcvAvailTimeout, RcvHdrAddr, RcvHdrTailAddr};
use qhca_regs::map::user::{self, RcvHdrHead};
use qhca_regs::map::{area, area::RcvArrayEntry};
use qhca_regs::{Bar, Ctxt, GONE, Port};

use super::memory::ContextMemory;
use crate::control::Controls;

/// Packets after which a context interrupts when it was just opened (F-208).
const FIRST_COUNT: u16 = 16;

/// Why a context could not be told to the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramError {
    /// A buffer's address is not one that the chip can hold.
    Address(ArrayEntryError),
    /// A register read as all ones: the device no longer answers.
    Gone {
        /// The register.
        register: &'static str,
    },
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(_) => f.write_str("an eager buffer lies where the chip cannot reach it"),
            Self::Gone { register } => write!(f, "{register} reads all ones: the device no longer answers"),
        }
    }
}

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address(error) => Some(error),
            Self::Gone { .. } => None,
        }
    }
}

/// Lets `ctxt` receive packets of `port` into `memory`, whose queue must hold nothing, and interrupt with the timer
/// set to `timeout`.
///
/// # Errors
/// [`ProgramError`]; the context then does not receive.
pub fn program(
    ctxt: Ctxt,
    port: Port,
    memory: &ContextMemory,
    timeout: u16,
    controls: &mut Controls,
    bar: &impl Bar,
) -> Result<(), ProgramError> {
    for entry in memory.eager_entries() {
        let (index, entry) = entry.map_err(ProgramError::Address)?;
        area::RCV_EGR_ARRAY.index(index).write(bar, entry.build());
    }
    let queue = RcvHdrAddr::default().with_rcv_hdr_addr(memory.queue().iova() >> 2);
    device::RCV_HDR_TAIL_ADDR.ctxt(ctxt).write(bar, RcvHdrTailAddr::default());
    device::RCV_HDR_ADDR.ctxt(ctxt).write(bar, queue);
    let reload = RcvAvailTimeout::default().with_rcv_avail_to_reload(timeout);
    device::RCV_AVAIL_TIMEOUT.ctxt(ctxt).write(bar, reload);
    controls.enable_context(ctxt, port, true, bar);

    let egr_tail = user::RCV_EGR_INDEX_TAIL.ctxt(ctxt).read(bar);
    if egr_tail == GONE {
        return Err(ProgramError::Gone { register: "RcvEgrIndexTail" });
    }
    user::RCV_EGR_INDEX_HEAD.ctxt(ctxt).write(bar, egr_tail);
    // ORDER: the read comes back after the writes before it have been done.
    device::SCRATCH.read(bar);
    let tail = user::RCV_HDR_TAIL.ctxt(ctxt).read(bar);
    if tail == GONE {
        return Err(ProgramError::Gone { register: "RcvHdrTail" });
    }
    let head = RcvHdrHead::default().with_rcv_head_pointer(tail as u32).with_counter(FIRST_COUNT);
    user::RCV_HDR_HEAD.ctxt(ctxt).write(bar, head);
    Ok(())
}

/// Takes the memory of `ctxt` away from the chip. It may be freed or used anew when this returns.
pub fn withdraw(ctxt: Ctxt, port: Port, memory: &ContextMemory, controls: &mut Controls, bar: &impl Bar) {
    controls.enable_context(ctxt, port, false, bar);
    device::RCV_HDR_ADDR.ctxt(ctxt).write(bar, RcvHdrAddr::default());
    device::RCV_HDR_TAIL_ADDR.ctxt(ctxt).write(bar, RcvHdrTailAddr::default());
    let shape = memory.eager_shape();
    for index in shape.first()..shape.first() + shape.count() {
        area::RCV_EGR_ARRAY.index(index).write(bar, RcvArrayEntry::default());
    }
    // ORDER: writes of the chip to memory that were on their way come before the answer to this read.
    device::SCRATCH.read(bar);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::{EagerShape, QueueShape};
    use crate::testing::{Access, PlainMapper, RecordingBar};

    fn memory() -> ContextMemory {
        let queue = QueueShape::new(64, 32).expect("a shape");
        let eager = EagerShape::new(1024, 4, 4096).expect("a shape");
        ContextMemory::allocate(&mut PlainMapper::default(), queue, eager).expect("memory")
    }

    #[test]
    fn context_is_told_its_memory_before_it_is_enabled_and_armed_last() {
        let (ctxt, memory) = (Ctxt::new(1).expect("a context"), memory());
        let bar = RecordingBar::default();
        program(ctxt, Port::P1, &memory, 375, &mut Controls::new(), &bar).expect("programmed");
        let log = bar.take_log();
        let position = |wanted: &Access| log.iter().position(|access| access == wanted);
        let entry = memory.eager().iova() >> 11 | 2 << 37;
        let array =
            position(&Access::Write(area::RCV_EGR_ARRAY.index(1024).offset(), entry)).expect("an entry");
        let queue = position(&Access::Write(device::RCV_HDR_ADDR.ctxt(ctxt).offset(), memory.queue().iova()));
        let head = Access::Write(user::RCV_HDR_HEAD.ctxt(ctxt).offset(), 16 << 32);
        let enable = log
            .iter()
            .position(|access| matches!(access, Access::Write(at, 2) if *at == 0x2100))
            .expect("context 1 is enabled in port 1's RcvCtrl");
        assert!(array < queue.expect("the queue's address") && queue.expect("as above") < enable);
        assert_eq!(log.last(), Some(&head));
    }

    #[test]
    fn withdrawn_context_ends_with_a_read_after_all_its_memory_is_gone_from_the_chip() {
        let (ctxt, memory) = (Ctxt::new(1).expect("a context"), memory());
        let bar = RecordingBar::default();
        withdraw(ctxt, Port::P1, &memory, &mut Controls::new(), &bar);
        for index in 1024..1028 {
            assert_eq!(bar.writes_to(area::RCV_EGR_ARRAY.index(index).offset()), [0]);
        }
        assert_eq!(bar.writes_to(device::RCV_HDR_ADDR.ctxt(ctxt).offset()), [0]);
        assert_eq!(bar.take_log().last(), Some(&Access::Read(device::SCRATCH.offset())));
    }

    #[test]
    fn device_that_is_gone_is_noticed_while_programming() {
        let (ctxt, memory) = (Ctxt::new(1).expect("a context"), memory());
        let bar = RecordingBar::default();
        bar.set(user::RCV_EGR_INDEX_TAIL.ctxt(ctxt).offset(), GONE);
        let result = program(ctxt, Port::P1, &memory, 375, &mut Controls::new(), &bar);
        assert_eq!(result, Err(ProgramError::Gone { register: "RcvEgrIndexTail" }));
    }
}
