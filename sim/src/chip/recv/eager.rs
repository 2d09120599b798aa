//! A context's eager buffers: a window of the chip's one array, filled in ring order.
//!
//! ```text
//!   array   | ctxt 0 | ctxt 1 | ctxt 2 ...  |        base + index
//!             two ports: 1024 each, then 16384 over the user contexts of the configuration
//!             one port: context 0 has all 2048
//! ```
//!
//! `tail` is the buffer that the chip fills next, `head` what software wrote last. The ring is full when the next tail
//! would be the head, so that one buffer is never used (F-335).

use qhca_regs::Ctxt;

/// Entries that the contexts 0 and 1 share, and the start of the others' (§1.3).
const KERNEL_ENTRIES: u32 = 2048;
const USER_ENTRIES: u32 = 16384;
const KERNEL_CTXTS: u32 = 2;

/// How the receive side is cut up: `RcvCtrl.ContextCfg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// Contexts that can be used.
    pub(super) ctxts: u32,
    single_port: bool,
}

impl Partition {
    /// Code 0 is 6 contexts, 1 is 10, 2 is 18; 3 is taken as 18 (F-336).
    pub(super) fn from_code(code: u8, single_port: bool) -> Self {
        let ctxts = match code {
            0 => 6,
            1 => 10,
            _ => 18,
        };
        Self { ctxts, single_port }
    }

    /// What `RcvEgrCnt` reads as: entries of a user context.
    pub(super) fn user_entries(self) -> u32 {
        USER_ENTRIES / (self.ctxts - KERNEL_CTXTS)
    }

    /// First array entry of `ctxt`, and how many it has.
    pub(super) fn window(self, ctxt: Ctxt) -> (u32, u32) {
        let ctxt = ctxt.index() as u32;
        match ctxt {
            0 if self.single_port => (0, KERNEL_ENTRIES),
            0 | 1 => (ctxt * KERNEL_ENTRIES / 2, KERNEL_ENTRIES / 2),
            _ if ctxt >= self.ctxts => (0, 0),
            _ => (KERNEL_ENTRIES + (ctxt - KERNEL_CTXTS) * self.user_entries(), self.user_entries()),
        }
    }
}

/// See the chapter's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Eager {
    pub(super) base: u32,
    pub(super) count: u32,
    pub(super) tail: u32,
    head: u32,
}

impl Eager {
    /// Starts anew on `window`.
    pub(super) fn restart(&mut self, window: (u32, u32)) {
        *self = Self { base: window.0, count: window.1, tail: 0, head: 0 };
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count == 0 || self.after(self.tail) == self.head
    }

    /// Steps past the buffer at the tail.
    #[inline]
    pub(super) fn step(&mut self) {
        self.tail = self.after(self.tail);
    }

    /// Software's consumption point; an index outside the window is taken modulo its length.
    pub(super) fn move_head(&mut self, index: u64) {
        self.head = (index % u64::from(self.count.max(1))) as u32;
    }

    pub(super) fn head(&self) -> u32 {
        self.head
    }

    #[inline]
    fn after(&self, index: u32) -> u32 {
        if index + 1 >= self.count { 0 } else { index + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_fills_the_array_without_overlap() {
        for code in 0..=3 {
            for single_port in [false, true] {
                let partition = Partition::from_code(code, single_port);
                let mut next = 0;
                for ctxt in Ctxt::all().filter(|c| (c.index() as u32) < partition.ctxts) {
                    if single_port && ctxt.index() == 1 {
                        continue; // the missing port's context owns nothing
                    }
                    let (base, count) = partition.window(ctxt);
                    assert_eq!(base, next, "{ctxt}");
                    next = base + count;
                }
                assert_eq!(next, 18432);
            }
        }
    }

    #[test]
    fn user_entries_follow_the_context_configuration() {
        let counts = [0, 1, 2].map(|code| Partition::from_code(code, false).user_entries());
        assert_eq!(counts, [4096, 2048, 1024]);
    }

    #[test]
    fn all_but_one_buffer_is_available_after_enabling() {
        let mut eager = Eager::default();
        eager.restart((0, 8));
        let used = std::iter::from_fn(|| (!eager.is_full()).then(|| eager.step())).count();
        assert_eq!(used, 7);
        eager.move_head(6);
        let used = std::iter::from_fn(|| (!eager.is_full()).then(|| eager.step())).count();
        assert_eq!(used, 6);
    }
}
