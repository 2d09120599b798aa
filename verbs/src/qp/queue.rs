//! The rings that work requests wait in: a send queue, a receive queue, and the shared receive queue.
//!
//! ```text
//!   send     head ─► oldest, not complete     cur ─► next to send     tail ─► next free
//!   receive  head ─► next to be used          tail ─► next free
//! ```
//!
//! Indices run on and are masked when used. Lists and inline data lie in arrays of their own, so many for each place.

use crate::ids::PdId;
use crate::mem::Sge;
use crate::psn::Psn;
use crate::wr::{Data, Destination, PostError, RecvWr, SendFlags, SendOp, SendWr};

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Posted,
    /// It has sequence numbers.
    Begun,
    /// A local one that was carried out.
    Done,
}

/// A posted send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) len_bytes: u32,
    pub(crate) first: Psn,
    /// Sequence numbers that it takes.
    pub(crate) packets: u32,
    pub(crate) sge_count: u8,
    pub(crate) is_inline: bool,
    pub(crate) flags: SendFlags,
    pub(crate) progress: Progress,
}

impl SendWqe {
    const EMPTY: Self = Self {
        wr_id: 0,
        op: SendOp::Send,
        len_bytes: 0,
        first: Psn::new(0),
        packets: 0,
        sge_count: 0,
        is_inline: false,
        flags: SendFlags::empty(),
        progress: Progress::Posted,
    };

    #[inline]
    pub(crate) fn last(&self) -> Psn {
        self.first.plus(self.packets.wrapping_sub(1))
    }
}

/// A send queue.
pub(crate) struct SendQueue {
    wqes: Box<[SendWqe]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    destinations: Box<[Destination]>,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    mask: u32,
    pub(crate) depth: u32,
    pub(crate) max_sges: usize,
    pub(crate) max_inline: usize,
}

impl SendQueue {
    pub(crate) fn new(depth: u32, max_sges: usize, max_inline: usize, datagrams: bool) -> Self {
        let places = depth.max(1).next_power_of_two();
        let count = places as usize;
        Self {
            wqes: vec![SendWqe::EMPTY; count].into(),
            sges: vec![Sge::default(); count * max_sges].into(),
            inline: vec![0; count * max_inline].into(),
            destinations: if datagrams { vec![Destination::default(); count].into() } else { Box::default() },
            head: 0,
            tail: 0,
            mask: places - 1,
            depth,
            max_sges,
            max_inline,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline]
    fn place(&self, index: u32) -> usize {
        (index & self.mask) as usize
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> &SendWqe {
        &self.wqes[(index & self.mask) as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut SendWqe {
        &mut self.wqes[(index & self.mask) as usize]
    }

    pub(crate) fn sges(&self, index: u32) -> &[Sge] {
        let start = self.place(index) * self.max_sges;
        &self.sges[start..start + usize::from(self.at(index).sge_count)]
    }

    pub(crate) fn inline(&self, index: u32) -> &[u8] {
        let start = self.place(index) * self.max_inline;
        &self.inline[start..start + self.at(index).len_bytes as usize]
    }

    pub(crate) fn destination(&self, index: u32) -> Option<&Destination> {
        self.destinations.get(self.place(index))
    }

    /// Puts `wr` at the tail. What the transport thinks of it was looked at before.
    #[inline]
    pub(crate) fn push(&mut self, wr: &SendWr<'_>, max_len: u32) -> Result<(), PostError> {
        if self.len() >= self.depth {
            return Err(PostError::QueueFull { depth: self.depth });
        }
        let place = self.place(self.tail);
        let (len, sge_count) = match wr.data {
            Data::Sges(sges) => {
                if sges.len() > self.max_sges {
                    return Err(PostError::TooManySges { given: sges.len(), max: self.max_sges });
                }
                let start = place * self.max_sges;
                self.sges[start..start + sges.len()].copy_from_slice(sges);
                (sges.iter().map(|sge| u64::from(sge.len_bytes)).sum::<u64>(), sges.len())
            }
            Data::Inline(bytes) => {
                if bytes.len() > self.max_inline {
                    return Err(PostError::InlineTooLong { given: bytes.len(), max: self.max_inline });
                }
                let start = place * self.max_inline;
                self.inline[start..start + bytes.len()].copy_from_slice(bytes);
                (bytes.len() as u64, 0)
            }
        };
        if len > u64::from(max_len) {
            return Err(PostError::TooLong { given: len, max: max_len });
        }
        if let Some(destination) = self.destinations.get_mut(place) {
            *destination = wr.to.unwrap_or_default();
        }
        self.wqes[place] = SendWqe {
            wr_id: wr.wr_id,
            op: wr.op,
            len_bytes: len as u32,
            sge_count: sge_count as u8,
            is_inline: matches!(wr.data, Data::Inline(_)),
            flags: wr.flags,
            ..SendWqe::EMPTY
        };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }
}

/// A posted receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) sge_count: u8,
}

/// A receive queue, private or shared.
pub(crate) struct RecvQueue {
    wqes: Box<[RecvWqe]>,
    sges: Box<[Sge]>,
    head: u32,
    tail: u32,
    mask: u32,
    pub(crate) depth: u32,
    pub(crate) max_sges: usize,
}

impl RecvQueue {
    pub(crate) fn new(depth: u32, max_sges: usize) -> Self {
        let places = depth.max(1).next_power_of_two();
        Self {
            wqes: vec![RecvWqe::default(); places as usize].into(),
            sges: vec![Sge::default(); places as usize * max_sges].into(),
            head: 0,
            tail: 0,
            mask: places - 1,
            depth,
            max_sges,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
    }

    #[inline]
    pub(crate) fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.len() >= self.depth {
            return Err(PostError::QueueFull { depth: self.depth });
        }
        if wr.sges.len() > self.max_sges {
            return Err(PostError::TooManySges { given: wr.sges.len(), max: self.max_sges });
        }
        let place = (self.tail & self.mask) as usize;
        self.wqes[place] = RecvWqe { wr_id: wr.wr_id, sge_count: wr.sges.len() as u8 };
        let start = place * self.max_sges;
        self.sges[start..start + wr.sges.len()].copy_from_slice(wr.sges);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Takes the oldest receive and copies its list to `sges`, which is long enough.
    #[inline]
    pub(crate) fn pop(&mut self, sges: &mut [Sge]) -> Option<RecvWqe> {
        if self.is_empty() {
            return None;
        }
        let place = (self.head & self.mask) as usize;
        let wqe = self.wqes[place];
        let start = place * self.max_sges;
        let count = usize::from(wqe.sge_count);
        sges[..count].copy_from_slice(&self.sges[start..start + count]);
        self.head = self.head.wrapping_add(1);
        Some(wqe)
    }

    /// Makes room for `depth` receives; those that wait stay.
    pub(crate) fn resize(&mut self, depth: u32) {
        let mut new = Self::new(depth, self.max_sges);
        let mut sges = vec![Sge::default(); self.max_sges];
        while let Some(wqe) = self.pop(&mut sges) {
            let wr = RecvWr { wr_id: wqe.wr_id, sges: &sges[..usize::from(wqe.sge_count)] };
            // The caller saw to it that all fit.
            if new.push(&wr).is_err() {
                break;
            }
        }
        *self = new;
    }
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) queue: RecvQueue,
    pub(crate) pd: PdId,
    /// Fewer receives than this raise one event; 0 is "no event".
    pub(crate) limit: u32,
    pub(crate) users: u32,
}
