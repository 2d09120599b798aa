//! Slots with generations: things that are found by index, and not found by the name of what was there before.

use std::collections::VecDeque;

use crate::ids::SlotId;

/// Free slots that wait before the oldest of them is used again.
const KEPT_FREE: usize = 64;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table whose slots are reused late, the one that has been free longest first.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    max: usize,
}

impl<T> Slab<T> {
    /// A table of at most `max` things.
    pub(crate) fn new(max: usize) -> Self {
        Self { slots: Vec::new(), free: VecDeque::new(), max }
    }

    /// Puts `value` in; `None` if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<SlotId> {
        if self.free.len() < KEPT_FREE && self.slots.len() < self.max {
            self.slots.push(Slot { generation: 0, value: Some(value) });
            return Some(SlotId { index: self.slots.len() as u32 - 1, generation: 0 });
        }
        let index = self.free.pop_front()?;
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.value = Some(value);
        Some(SlotId { index, generation: slot.generation })
    }

    pub(crate) fn remove(&mut self, id: SlotId) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        let value = slot.value.take()?;
        self.free.push_back(id.index);
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, id: SlotId) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.value.as_mut() } else { None }
    }
}
