//! A device's requests: what it is, its regions, its interrupts, resets of its bus.

use std::io;
use std::sync::Arc;

use vfio_bindings::bindings::vfio;

use super::card::region_at;
use super::{Machine, Open, errno};
use crate::sys::EventFd;
use crate::vfio::Command;
use crate::vfio::bytes::word;

/// What the log shows of a request: the numbers that decide.
pub(super) fn shown(command: Command, bytes: &[u8]) -> String {
    match command {
        Command::SetIrqs => {
            let [flags, index, start, count] = [1, 2, 3, 4].map(|place| word(bytes, place));
            format!("flags={flags:#x} index={index} start={start} count={count}")
        }
        _ => String::new(),
    }
}

fn put(bytes: &mut [u8], index: usize, value: u32) {
    bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_ne_bytes());
}

impl Machine {
    /// Requests with bytes.
    pub(super) fn bytes(&mut self, fd: i32, command: Command, bytes: &mut [u8]) -> io::Result<u32> {
        match command {
            Command::DeviceInfo
            | Command::RegionInfo
            | Command::IrqInfo
            | Command::SetIrqs
            | Command::HotResetInfo
            | Command::HotReset => {
                self.usable(fd)?;
                self.device_bytes(command, bytes)
            }
            _ => self.iommu_bytes(fd, command, bytes),
        }
    }

    fn device_bytes(&mut self, command: Command, bytes: &mut [u8]) -> io::Result<u32> {
        match command {
            Command::DeviceInfo => {
                put(bytes, 1, 2 | u32::from(self.card.can_reset));
                put(bytes, 2, self.card.regions);
                put(bytes, 3, 5);
                Ok(0)
            }
            Command::RegionInfo => self.region_info(bytes),
            Command::IrqInfo => {
                let index = word(bytes, 2);
                let Some(count) = self.card.vectors.get(index as usize) else { return errno(libc::EINVAL) };
                if index == vfio::VFIO_PCI_ERR_IRQ_INDEX && *count == 0 {
                    return errno(libc::EINVAL);
                }
                let flags = match index {
                    0 => vfio::VFIO_IRQ_INFO_MASKABLE | vfio::VFIO_IRQ_INFO_AUTOMASKED,
                    1 | 2 if self.card.noresize => vfio::VFIO_IRQ_INFO_NORESIZE,
                    _ => 0,
                };
                put(bytes, 1, vfio::VFIO_IRQ_INFO_EVENTFD | flags);
                put(bytes, 3, *count);
                Ok(0)
            }
            Command::SetIrqs => self.set_irqs(bytes),
            Command::HotResetInfo => self.hot_reset_info(bytes),
            _ => self.hot_reset(bytes),
        }
    }

    fn region_info(&mut self, bytes: &mut [u8]) -> io::Result<u32> {
        let index = word(bytes, 2);
        let (len, flags) = match index {
            0 => (self.card.bar_len, if self.card.bar_len == 0 { 0 } else { self.card.bar_flags }),
            7 => (256, 3),
            index if index < self.card.regions => (0, 0),
            _ => return errno(libc::EINVAL),
        };
        bytes[16..24].copy_from_slice(&len.to_ne_bytes());
        bytes[24..32].copy_from_slice(&region_at(index).to_ne_bytes());
        put(bytes, 1, flags);
        if index != 0 || len == 0 {
            return Ok(0);
        }
        let areas = self.card.sparse.clone();
        let sparse_len = areas.as_ref().map_or(0, |areas| 16 + 16 * areas.len());
        let whole = 32 + 8 + sparse_len;
        put(bytes, 1, flags | vfio::VFIO_REGION_INFO_FLAG_CAPS);
        if bytes.len() < whole {
            put(bytes, 0, whole as u32);
            return Ok(0);
        }
        put(bytes, 3, 32);
        put(bytes, 8, 3 | 1 << 16);
        put(bytes, 9, if sparse_len > 0 { 40 } else { 0 });
        if let Some(areas) = areas {
            [1 | 1 << 16, 0, areas.len() as u32, 0].into_iter().enumerate().for_each(|(n, value)| {
                put(bytes, 10 + n, value);
            });
            for (n, (at, len)) in areas.iter().enumerate() {
                bytes[56 + 16 * n..64 + 16 * n].copy_from_slice(&at.to_ne_bytes());
                bytes[64 + 16 * n..72 + 16 * n].copy_from_slice(&len.to_ne_bytes());
            }
        }
        Ok(0)
    }

    fn set_irqs(&mut self, bytes: &[u8]) -> io::Result<u32> {
        let [flags, index, start, count] = [1, 2, 3, 4].map(|place| word(bytes, place));
        let (data, action) =
            (flags & vfio::VFIO_IRQ_SET_DATA_TYPE_MASK, flags & vfio::VFIO_IRQ_SET_ACTION_TYPE_MASK);
        let Some(&most) = self.card.vectors.get(index as usize) else { return errno(libc::EINVAL) };
        let known = vfio::VFIO_IRQ_SET_DATA_TYPE_MASK | vfio::VFIO_IRQ_SET_ACTION_TYPE_MASK;
        let in_range = start.checked_add(count).is_some_and(|end| end <= most);
        if flags & !known != 0 || !data.is_power_of_two() || !action.is_power_of_two() || !in_range {
            return errno(libc::EINVAL);
        }
        let size = if data == vfio::VFIO_IRQ_SET_DATA_EVENTFD { 4 } else { 0 };
        if (bytes.len() - 20) < count as usize * size {
            return errno(libc::EINVAL);
        }
        let fds: Vec<i32> = (0..count as usize * size / 4).map(|n| word(bytes, 5 + n) as i32).collect();
        let heard = fds.iter().map(|fd| self.heard(*fd)).collect::<io::Result<Vec<_>>>()?;
        match (index, action) {
            (0, vfio::VFIO_IRQ_SET_ACTION_UNMASK) if count == 1 && start == 0 && self.is_on(0) => {
                self.card.line_masked = false;
                Ok(0)
            }
            (0..=2, vfio::VFIO_IRQ_SET_ACTION_TRIGGER) => self.trigger(index, start, count, data, heard),
            (3 | 4, vfio::VFIO_IRQ_SET_ACTION_TRIGGER) => {
                let place = &mut self.card.notices[index as usize - 3];
                match (data == vfio::VFIO_IRQ_SET_DATA_NONE, count, heard.into_iter().next()) {
                    (true, 0, _) => *place = None,
                    (true, _, _) => place.iter().for_each(|event| event.signal()),
                    (false, 1, Some(event)) => *place = event,
                    _ => return errno(libc::EINVAL),
                }
                Ok(0)
            }
            _ => errno(libc::EINVAL),
        }
    }

    /// The event that a descriptor names; none for -1.
    fn heard(&self, fd: i32) -> io::Result<Option<Arc<EventFd>>> {
        match fd {
            -1 => Ok(None),
            fd => self.events.get(&fd).map_or_else(|| errno(libc::EBADF), |event| Ok(Some(event.clone()))),
        }
    }

    fn is_on(&self, index: u32) -> bool {
        self.card.on.as_ref().is_some_and(|(on, _)| *on == index)
    }

    fn trigger(
        &mut self,
        index: u32,
        start: u32,
        count: u32,
        data: u32,
        heard: Vec<Option<Arc<EventFd>>>,
    ) -> io::Result<u32> {
        let none = data == vfio::VFIO_IRQ_SET_DATA_NONE;
        if none && count == 0 && self.is_on(index) {
            self.card.on = None;
            return Ok(0);
        }
        // Kinds exclude each other.
        if self.card.on.is_some() && !self.is_on(index) {
            return errno(libc::EINVAL);
        }
        if none {
            if !self.is_on(index) {
                return errno(libc::EINVAL);
            }
            (start..start + count).for_each(|vector| self.card.fire(vector as usize));
            return Ok(0);
        }
        let end = (start + count) as usize;
        let (noresize, free) = (self.card.noresize, self.card.messages_free);
        match &mut self.card.on {
            None if count == 0 => errno(libc::EINVAL),
            None if index > 0 && end as u32 > free => match free {
                0 => errno(libc::ENOSPC),
                // The kernel says how many there would be, and enables none.
                free => Ok(free),
            },
            None => {
                let mut vectors = vec![None; start as usize];
                vectors.extend(heard);
                (self.card.on, self.card.line_masked) = (Some((index, vectors)), false);
                Ok(0)
            }
            Some((_, vectors)) if end > vectors.len() && noresize => errno(libc::EINVAL),
            Some((_, vectors)) => {
                vectors.resize(vectors.len().max(end), None);
                vectors.splice(start as usize..end, heard);
                Ok(0)
            }
        }
    }

    fn hot_reset_info(&mut self, bytes: &mut [u8]) -> io::Result<u32> {
        let on_bus = self.card.on_bus.clone();
        put(bytes, 2, on_bus.len() as u32);
        if bytes.len() < 12 + 8 * on_bus.len() {
            return errno(libc::ENOSPC);
        }
        for (n, (bus, devfn)) in on_bus.iter().enumerate() {
            put(bytes, 3 + 2 * n, 12);
            bytes[16 + 8 * n..20 + 8 * n].copy_from_slice(&[0, 0, *bus, *devfn]);
        }
        Ok(0)
    }

    fn hot_reset(&mut self, bytes: &[u8]) -> io::Result<u32> {
        let count = word(bytes, 2) as usize;
        let groups = (0..count)
            .filter(|n| matches!(self.open.get(&(word(bytes, 3 + n) as i32)), Some(Open::Group { .. })));
        // By the device's own node the kernel knows whose it is, and takes no list.
        let owned = match self.count("group") {
            0 => count == 0,
            _ => groups.count() == count && count == 1,
        };
        if !owned || self.card.on_bus.len() > 1 {
            return errno(libc::EINVAL);
        }
        self.card.resets += 1;
        Ok(0)
    }
}
