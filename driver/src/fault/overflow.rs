//! How many packets each context lost for want of space, to the packet.
//!
//! The chip counts them in one 32-bit register a context, whatever the reason (F-224). Error bits only say that
//! something was lost, and while they are masked not even that; the account is kept from the registers alone, as
//! differences modulo 2^32 added up in 64 bits. At line rate a register wraps in three quarters of an hour, so a look
//! once in a while is enough.

use qhca_irq::ContextSet;
use qhca_regs::map::counter;
use qhca_regs::{Bar, Ctxt, GONE};

/// The account of all contexts in use.
#[derive(Clone, Debug)]
pub struct OverflowAccount {
    contexts: ContextSet,
    last: [u32; Ctxt::COUNT],
    total: [u64; Ctxt::COUNT],
    samples: u64,
}

/// What one look at the registers found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// These contexts have lost packets since the look before, so many together.
    Lost {
        /// The contexts; none if nothing was lost.
        contexts: ContextSet,
        /// Packets.
        packets: u64,
    },
    /// A register read as all ones: the device does not answer.
    Gone,
}

impl OverflowAccount {
    /// The account of `contexts`, which begins with the first [`sample`](Self::sample).
    pub fn new(contexts: ContextSet) -> Self {
        Self { contexts, last: [0; Ctxt::COUNT], total: [0; Ctxt::COUNT], samples: 0 }
    }

    /// Reads one register a context. The first call sets the mark from which is counted.
    pub fn sample(&mut self, bar: &impl Bar) -> Sample {
        let (mut lost, mut packets) = (ContextSet::EMPTY, 0);
        for ctxt in self.contexts.iter() {
            let raw = counter::RX_HDR_EGR_OVFL_CNT.ctxt(ctxt).read(bar);
            if raw == GONE {
                return Sample::Gone;
            }
            let delta = (raw as u32).wrapping_sub(self.last[ctxt.index()]);
            self.last[ctxt.index()] = raw as u32;
            if self.samples > 0 && delta > 0 {
                self.total[ctxt.index()] += u64::from(delta);
                packets += u64::from(delta);
                lost = lost.with(ctxt);
            }
        }
        self.samples += 1;
        Sample::Lost { contexts: lost, packets }
    }

    /// The registers begin anew: the next look sets the mark from which is counted, and the totals stay.
    pub fn rebase(&mut self) {
        self.samples = 0;
    }

    /// Packets that `ctxt` has lost, as of the last look.
    pub fn lost(&self, ctxt: Ctxt) -> u64 {
        self.total[ctxt.index()]
    }

    /// Packets that all contexts have lost.
    pub fn lost_in_all(&self) -> u64 {
        self.total.iter().sum()
    }

    /// The contexts that are looked at.
    pub fn contexts(&self) -> ContextSet {
        self.contexts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RecordingBar;

    /// Trap 11: the register wraps, the account does not.
    #[test]
    fn register_that_wraps_between_two_looks_is_counted_through() {
        let ctxt = Ctxt::new(1).expect("a context");
        let at = counter::RX_HDR_EGR_OVFL_CNT.ctxt(ctxt).offset();
        let mut account = OverflowAccount::new(ContextSet::only(ctxt));
        let bar = RecordingBar::default();
        bar.set(at, 0xFFFF_FF00);
        assert_eq!(account.sample(&bar), Sample::Lost { contexts: ContextSet::EMPTY, packets: 0 });
        bar.set(at, 0x20);
        assert_eq!(account.sample(&bar), Sample::Lost { contexts: ContextSet::only(ctxt), packets: 0x120 });
        bar.set(at, 0x1F);
        account.sample(&bar);
        assert_eq!(account.lost(ctxt), 0x120 + 0xFFFF_FFFF);
        assert_eq!((account.lost_in_all(), bar.reads()), (account.lost(ctxt), 3));
        bar.set(at, u64::MAX);
        assert_eq!(account.sample(&bar), Sample::Gone);
        assert_eq!(account.lost(ctxt), 0x120 + 0xFFFF_FFFF);
    }
}
