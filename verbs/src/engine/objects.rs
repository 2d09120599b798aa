//! What an engine's queue pairs are made with: protection domains, memory, completion queues, shared receive queues.

use std::sync::Arc;

use qhca_driver::dma::DmaMemory;
use qhca_regs::Instant;

use super::{Engine, QpError, check_depth};
use crate::cq::{Arm, Cq, CqError};
use crate::event::Event;
use crate::ids::{CqId, Key, PdId, SrqId};
use crate::mem::{Access, MemoryError, MemoryRegion, Window};
use crate::wc::Wc;
use crate::wr::{PostError, RecvWr};

impl Engine {
    // ---- protection domains and memory ----

    /// Makes a protection domain.
    pub fn allocate_pd(&mut self) -> PdId {
        let index = self.pds.iter().position(|used| !used).unwrap_or(self.pds.len());
        if index == self.pds.len() {
            self.pds.push(true);
        }
        self.pds[index] = true;
        PdId(index as u32)
    }

    /// Whether there is such a protection domain.
    pub(super) fn has_pd(&self, pd: PdId) -> bool {
        self.pds.get(pd.0 as usize).copied().unwrap_or(false)
    }

    /// Registers `len_bytes` of `memory` from byte `offset`.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn register(
        &mut self,
        pd: PdId,
        memory: &Arc<DmaMemory>,
        offset: usize,
        len_bytes: usize,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        if !self.has_pd(pd) {
            return Err(MemoryError::NoSuchPd(pd));
        }
        self.shared.memory.register(pd, memory, offset, len_bytes, access)
    }

    /// Gives the key of a region or window back; it opens nothing from now on.
    ///
    /// # Errors
    /// [`MemoryError::Busy`] while windows are bound to it, [`MemoryError::NoSuchKey`].
    pub fn deregister(&mut self, key: Key) -> Result<(), MemoryError> {
        self.shared.memory.release(key)
    }

    /// Makes a type 2 window, bound to nothing.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn allocate_window(&mut self, pd: PdId) -> Result<Window, MemoryError> {
        if !self.has_pd(pd) {
            return Err(MemoryError::NoSuchPd(pd));
        }
        self.shared.memory.allocate_window(pd)
    }

    /// Memory keys in use.
    pub fn keys_in_use(&self) -> usize {
        self.shared.memory.len()
    }

    // ---- completion queues ----

    /// Makes a completion queue for `depth` completions.
    ///
    /// # Errors
    /// [`CqError`].
    pub fn create_cq(&mut self, depth: u32) -> Result<CqId, CqError> {
        let cq = Cq::new(depth)?;
        self.shared.cqs.insert(cq).map(CqId).ok_or(CqError::TooMany)
    }

    /// The completion queue of this name.
    pub fn cq(&mut self, cq: CqId) -> Option<&mut Cq> {
        self.shared.cqs.get_mut(cq.0)
    }

    /// Takes completions; 0 also if there is no such queue.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, into: &mut [Wc]) -> usize {
        self.shared.cqs.get_mut(cq.0).map_or(0, |cq| cq.poll(into))
    }

    /// Asks for an event. True if completions wait already, which raise none.
    pub fn arm_cq(&mut self, cq: CqId, arm: Arm, now: Instant) -> bool {
        self.shared.cqs.get_mut(cq.0).is_some_and(|cq| cq.arm(arm, now))
    }

    /// Makes a completion queue deeper or less deep.
    ///
    /// # Errors
    /// [`CqError`]; the queue is as it was.
    pub fn resize_cq(&mut self, cq: CqId, depth: u32) -> Result<(), CqError> {
        self.shared.cqs.get_mut(cq.0).ok_or(CqError::NoSuchCq)?.resize(depth)
    }

    /// Destroys a completion queue. Its events that nobody has asked for go with it.
    ///
    /// # Errors
    /// [`CqError::Busy`] while queue pairs use it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), CqError> {
        let users = self.shared.cqs.get(cq.0).ok_or(CqError::NoSuchCq)?.users;
        if users > 0 {
            return Err(CqError::Busy { users });
        }
        self.shared.cqs.remove(cq.0);
        self.shared
            .events
            .forget(|event| matches!(event, Event::Completion(of) | Event::CqOverflow(of) if *of == cq));
        Ok(())
    }

    // ---- shared receive queues ----

    /// Makes a shared receive queue for `depth` receives of up to `max_sges` stretches.
    ///
    /// # Errors
    /// [`QpError`].
    pub fn create_srq(&mut self, pd: PdId, depth: u32, max_sges: u8) -> Result<SrqId, QpError> {
        if !self.has_pd(pd) {
            return Err(QpError::NoSuchPart("protection domain"));
        }
        check_depth("shared receive queue", depth)?;
        let queue = crate::qp::queue::RecvQueue::new(depth, usize::from(max_sges));
        let srq = crate::qp::queue::Srq { queue, pd, limit: 0, users: 0 };
        let max = self.shared.config.max_srqs;
        self.shared.srqs.insert(srq).map(SrqId).ok_or(QpError::TooMany { max })
    }

    /// Posts a receive to a shared queue.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.shared.srqs.get_mut(srq.0).ok_or(PostError::NoSuchQueue)?.queue.push(wr)
    }

    /// Asks for one event when fewer than `limit` receives are left. If that is so already, it comes with the next
    /// receive that is used.
    ///
    /// # Errors
    /// [`QpError`].
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), QpError> {
        let queue = self.shared.srqs.get_mut(srq.0).ok_or(QpError::NoSuchPart("shared receive queue"))?;
        if limit > queue.queue.depth {
            return Err(QpError::Size { what: "limit", asked: limit, max: queue.queue.depth });
        }
        queue.limit = limit;
        Ok(())
    }

    /// Makes a shared receive queue deeper or less deep.
    ///
    /// # Errors
    /// [`QpError`]; the queue is as it was.
    pub fn resize_srq(&mut self, srq: SrqId, depth: u32) -> Result<(), QpError> {
        let queue = self.shared.srqs.get_mut(srq.0).ok_or(QpError::NoSuchPart("shared receive queue"))?;
        check_depth("shared receive queue", depth)?;
        let waiting = queue.queue.len();
        if waiting > depth {
            return Err(QpError::Busy { users: waiting });
        }
        queue.queue.resize(depth);
        Ok(())
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// [`QpError::Busy`] while queue pairs use it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), QpError> {
        let users = self.shared.srqs.get(srq.0).ok_or(QpError::NoSuchPart("shared receive queue"))?.users;
        if users > 0 {
            return Err(QpError::Busy { users });
        }
        self.shared.srqs.remove(srq.0);
        Ok(())
    }
}
