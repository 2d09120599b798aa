//! The send control register, which all senders of a device share, and the buffers that went wrong.
//!
//! `SendCtrl` holds switches that stay (updates of the avail words by DMA) and commands that act once (disarm a
//! buffer). The chip must not see two writes of it in a row, so each is followed by a write of `Scratch` (F-211).
//! Neither is on the path of a send: a lock around the register costs nobody a packet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use qhca_irq::PortSet;
use qhca_regs::map::device::{self, SendCtrl};
use qhca_regs::{Bar, Buffer, GONE, Port, Shadow};

/// Words of a bitmap with one bit a send buffer.
const BITMAP_WORDS: usize = 3;

/// Buffers in error, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendErrors {
    /// One bit a buffer.
    pub bitmap: [u64; BITMAP_WORDS],
    /// Registers that were read to learn it.
    pub reads: u32,
    /// Whether a register read as all ones: the device does not answer.
    pub gone: bool,
    /// Ports whose send DMA engine had a buffer in error: it is to be started anew.
    pub sdma_ports: PortSet,
}

impl SendErrors {
    /// The buffers, ascending.
    pub fn buffers(&self) -> impl Iterator<Item = Buffer> + use<> {
        let bitmap = self.bitmap;
        (0..Buffer::COUNT)
            .filter_map(Buffer::new)
            .filter(move |buffer| bitmap[buffer.index() / 64] >> (buffer.index() % 64) & 1 != 0)
    }
}

/// `SendCtrl` and what its users have to know of each other.
#[derive(Debug)]
pub struct SendControl {
    register: Mutex<Shadow<SendCtrl>>,
    in_flight: [AtomicU64; BITMAP_WORDS],
    /// Buffers that belong to each port's send DMA engine.
    sdma: [[AtomicU64; BITMAP_WORDS]; 2],
}

impl SendControl {
    /// The register as the bring-up has left it.
    pub fn new(contents: SendCtrl) -> Self {
        Self {
            register: Mutex::new(Shadow::new(contents)),
            in_flight: Default::default(),
            sdma: Default::default(),
        }
    }

    /// The register as another bring-up has left it, with no buffer in flight.
    pub(crate) fn restart(&self, contents: SendCtrl) {
        *self.lock() = Shadow::new(contents);
        self.forget_in_flight();
    }

    /// What the register holds.
    pub fn contents(&self) -> SendCtrl {
        self.lock().get()
    }

    /// Notes that `buffer` was given to the chip: if an error comes, its bitmap is worth a read.
    #[inline]
    pub(super) fn note_in_flight(&self, buffer: Buffer) {
        let word = &self.in_flight[buffer.index() / 64];
        let bit = 1 << (buffer.index() % 64);
        // Two senders may share a word; the common case is that the bit is set already.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Gives `buffers` to the send DMA engine of `port`: their errors are the engine's.
    pub(crate) fn give_to_sdma(&self, port: Port, buffers: impl Iterator<Item = usize>) {
        for buffer in buffers {
            self.sdma[port.index()][buffer / 64].fetch_or(1 << (buffer % 64), Ordering::Relaxed);
        }
    }

    fn sdma_word(&self, word: usize) -> [u64; 2] {
        [0, 1].map(|port: usize| self.sdma[port][word].load(Ordering::Relaxed))
    }

    /// Makes the chip give `buffer` up, as if it had been sent.
    pub fn disarm(&self, bar: &impl Bar, buffer: Buffer) {
        let register = self.lock();
        let command =
            |contents: SendCtrl| contents.with_disarm(true).with_disarm_send_buf(buffer.index() as u8);
        register.write_once(bar, device::SEND_CTRL, command);
        device::SCRATCH.write(bar, 0);
    }

    /// Makes the chip write the avail words to memory now: switches their update off and on again.
    pub fn request_update(&self, bar: &impl Bar) {
        let mut register = self.lock();
        for on in [false, true] {
            register.update(bar, device::SEND_CTRL, |contents| contents.with_send_buf_avail_upd(on));
            device::SCRATCH.write(bar, 0);
        }
    }

    /// Asks for an interrupt when the next buffer becomes free, or no longer asks for one.
    pub fn set_interrupt_when_free(&self, bar: &impl Bar, on: bool) {
        let mut register = self.lock();
        if register.get().send_int_buf_avail() != on {
            register.update(bar, device::SEND_CTRL, |contents| contents.with_send_int_buf_avail(on));
            device::SCRATCH.write(bar, 0);
        }
    }

    /// Finds the buffers in error, clears exactly the bits that were read, and disarms each.
    ///
    /// Only bitmap words with buffers that were used since the last call are read: nobody else's buffers are ours
    /// to disarm, and a read costs a microsecond. Buffers of a send DMA engine are cleared and not disarmed: the
    /// engine is started anew.
    ///
    /// A buffer may have been taken again by its owner between the error and this call. Its new packet is then lost,
    /// as packets may be; the buffer itself comes back either way.
    pub fn collect_errors(&self, bar: &impl Bar) -> SendErrors {
        let mut errors = SendErrors::default();
        for (index, (word, found)) in (0..).zip(self.in_flight.iter().zip(&mut errors.bitmap)) {
            let used = word.load(Ordering::Relaxed);
            let by_engines = self.sdma_word(index as usize);
            if used | by_engines[0] | by_engines[1] == 0 {
                continue;
            }
            let register = device::SEND_BUF_ERR.index(index);
            let bits = register.read(bar);
            errors.reads += 1;
            if bits == GONE {
                errors.gone = true;
                return errors;
            }
            *found = bits & used;
            let clear = bits & (used | by_engines[0] | by_engines[1]);
            if clear != 0 {
                register.clear(bar, clear);
            }
            for (port, mask) in Port::ALL.into_iter().zip(by_engines) {
                if bits & mask != 0 {
                    errors.sdma_ports = errors.sdma_ports.union(PortSet::only(port));
                }
            }
        }
        for buffer in errors.buffers() {
            self.disarm(bar, buffer);
        }
        errors
    }

    /// Forgets which buffers were in flight, once the avail words show that none is.
    pub fn forget_in_flight(&self) {
        for word in &self.in_flight {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shadow<SendCtrl>> {
        // A panic while the lock was held leaves a whole shadow: each change is one assignment.
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Access, RecordingBar};

    fn buffer(index: usize) -> Buffer {
        Buffer::new(index).expect("a buffer")
    }

    #[test]
    fn disarm_acts_once_on_its_buffer_and_is_not_kept() {
        let control = SendControl::new(SendCtrl::default().with_send_buf_avail_upd(true));
        let bar = RecordingBar::default();
        control.disarm(&bar, buffer(130));
        let scratch = Access::Write(device::SCRATCH.offset(), 0);
        // Disarm (bit 31), buffer 130 in bits 23 to 16, avail updates stay on (bit 2).
        let command = Access::Write(device::SEND_CTRL.offset(), 1 << 31 | 130 << 16 | 1 << 2);
        assert_eq!(bar.take_log(), [command, scratch.clone()]);
        control.set_interrupt_when_free(&bar, true);
        assert_eq!(bar.take_log(), [Access::Write(device::SEND_CTRL.offset(), 0b110), scratch]);
        control.set_interrupt_when_free(&bar, true);
        assert_eq!(bar.take_log(), []);
    }

    #[test]
    fn update_is_asked_for_by_switching_it_off_and_on() {
        let control =
            SendControl::new(SendCtrl::default().with_send_buf_avail_upd(true).with_avail_upd_thld(8));
        let bar = RecordingBar::default();
        control.request_update(&bar);
        assert_eq!(bar.writes_to(device::SEND_CTRL.offset()), [8 << 24, 8 << 24 | 1 << 2]);
    }

    /// B43: what is cleared is a part of what was read, and only words with own buffers are read.
    #[test]
    fn buffers_in_error_are_cleared_as_read_and_disarmed_and_foreign_ones_left_alone() {
        let control = SendControl::new(SendCtrl::default());
        let bar = RecordingBar::default();
        control.note_in_flight(buffer(126));
        control.note_in_flight(buffer(127));
        let at = |index| device::SEND_BUF_ERR.index(index).offset();
        bar.set(at(0), 1);
        bar.set(at(1), 1 << 63 | 1 << 1);
        let errors = control.collect_errors(&bar);
        assert_eq!(errors.buffers().map(Buffer::index).collect::<Vec<_>>(), [127]);
        assert_eq!((errors.reads, bar.reads()), (1, 1));
        assert_eq!(bar.writes_to(at(1)), [1 << 63]);
        assert_eq!(bar.writes_to(device::SEND_CTRL.offset()), [1 << 31 | 127 << 16]);
    }

    #[test]
    fn all_ones_in_an_error_bitmap_mean_gone_and_nothing_is_written() {
        let control = SendControl::new(SendCtrl::default());
        let bar = RecordingBar::default();
        control.note_in_flight(buffer(0));
        bar.set(device::SEND_BUF_ERR.index(0).offset(), u64::MAX);
        assert!(control.collect_errors(&bar).gone);
        assert_eq!(bar.take_log().len(), 1, "the read and nothing else");
    }
}
