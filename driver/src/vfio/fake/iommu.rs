//! Containers, groups and address spaces: what the kernel asks before it maps anything.

use std::collections::BTreeMap;
use std::io;

use vfio_bindings::bindings::vfio;

use super::{ADDRESS, Machine, Open, errno};
use crate::dma::DmaMemory;
use crate::vfio::Command;
use crate::vfio::bytes::word;

const PAGE: u64 = 4096;

/// What devices reach: first address and length of each mapping.
#[derive(Debug, Default)]
pub(in super::super) struct Space {
    pub(in super::super) maps: BTreeMap<u64, u64>,
}

/// What limits a mapping.
struct Limits<'a> {
    ranges: Option<&'a [(u64, u64)]>,
    maps_max: u32,
    memlock: Option<u64>,
}

impl Space {
    fn map(&mut self, limits: &Limits<'_>, iova: u64, len: u64) -> io::Result<()> {
        if len == 0 || !(iova | len).is_multiple_of(PAGE) {
            return errno(libc::EINVAL);
        }
        let Some(end) = iova.checked_add(len) else { return errno(libc::EINVAL) };
        if self.maps.iter().any(|(at, other)| iova < at + other && *at < end) {
            return errno(libc::EEXIST);
        }
        if self.maps.len() as u64 >= u64::from(limits.maps_max) {
            return errno(libc::ENOSPC);
        }
        let inside = |(first, last): &(u64, u64)| *first <= iova && end - 1 <= *last;
        if !limits.ranges.is_none_or(|ranges| ranges.iter().any(inside)) {
            return errno(libc::EINVAL);
        }
        let locked: u64 = self.maps.values().sum();
        if limits.memlock.is_some_and(|limit| locked + len > limit) {
            return errno(libc::ENOMEM);
        }
        self.maps.insert(iova, len);
        Ok(())
    }

    /// Takes out what lies inside; a mapping is not cut.
    fn unmap(&mut self, iova: u64, len: u64) -> io::Result<()> {
        if len == 0 || !(iova | len).is_multiple_of(PAGE) {
            return errno(libc::EINVAL);
        }
        let Some(end) = iova.checked_add(len) else { return errno(libc::EINVAL) };
        let touched = |at: u64, other: u64| iova < at + other && at < end;
        let whole = |at: u64, other: u64| iova <= at && at + other <= end;
        if self.maps.iter().any(|(at, other)| touched(*at, *other) && !whole(*at, *other)) {
            return errno(libc::EINVAL);
        }
        self.maps.retain(|at, other| !touched(*at, *other));
        Ok(())
    }
}

fn wide(bytes: &[u8], index: usize) -> u64 {
    u64::from(word(bytes, index)) | u64::from(word(bytes, index + 1)) << 32
}

impl Machine {
    /// The address space of a container or an iommufd, with what limits it.
    fn space(&mut self, fd: i32, id: u32) -> io::Result<(&mut Space, Limits<'_>)> {
        let limits =
            Limits { ranges: self.ranges.as_deref(), maps_max: self.maps_max, memlock: self.memlock };
        match self.open.get_mut(&fd) {
            Some(Open::Container { kind: Some(kind), space, .. }) if *kind != vfio::VFIO_NOIOMMU_IOMMU => {
                Ok((space, limits))
            }
            Some(Open::Container { kind: Some(_), .. }) => errno(libc::ENOTTY),
            Some(Open::Container { kind: None, .. }) => errno(libc::EINVAL),
            Some(Open::Iommufd { spaces }) => match spaces.get_mut(&id) {
                Some(space) => Ok((space, limits)),
                None => errno(libc::ENOENT),
            },
            _ => errno(libc::ENOTTY),
        }
    }

    pub(super) fn map_type1(&mut self, fd: i32, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        let (space, limits) = self.space(fd, 0)?;
        space.map(&limits, iova, memory.len_bytes() as u64)
    }

    pub(super) fn map_ioas(&mut self, fd: i32, id: u32, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        self.map_type1_of(fd, id, memory, iova)
    }

    fn map_type1_of(&mut self, fd: i32, id: u32, memory: &DmaMemory, iova: u64) -> io::Result<()> {
        let (space, limits) = self.space(fd, id)?;
        space.map(&limits, iova, memory.len_bytes() as u64)
    }

    pub(super) fn ioas_ranges(&mut self, fd: i32, id: u32, ranges: &mut [[u64; 2]]) -> io::Result<u32> {
        self.space(fd, id)?;
        let told = self.ranges.clone().unwrap_or_else(|| vec![(0, u64::MAX)]);
        for (place, (first, last)) in ranges.iter_mut().zip(&told) {
            *place = [*first, *last];
        }
        Ok(told.len() as u32)
    }

    /// Requests with a number.
    pub(super) fn value(&mut self, fd: i32, command: Command, value: u32) -> io::Result<u32> {
        match (command, self.open.get(&fd)) {
            (Command::ApiVersion, Some(Open::Container { .. })) => Ok(self.api_version),
            (Command::CheckExtension, Some(Open::Container { .. })) => {
                Ok(u32::from(self.kinds.contains(&value)))
            }
            (Command::SetIommu, Some(Open::Container { .. })) => self.set_iommu(fd, value),
            (Command::UnsetContainer, Some(Open::Group { .. })) => self.leave(fd),
            (Command::DeviceReset, Some(Open::Device { .. })) => {
                self.usable(fd)?;
                self.card.reset()
            }
            _ => errno(libc::ENOTTY),
        }
    }

    fn set_iommu(&mut self, fd: i32, value: u32) -> io::Result<u32> {
        let known = self.kinds.contains(&value);
        let Some(Open::Container { groups, kind, .. }) = self.open.get_mut(&fd) else {
            return errno(libc::ENOTTY);
        };
        if groups.is_empty() || kind.is_some() {
            return errno(libc::EINVAL);
        }
        if !known {
            return errno(libc::ENODEV);
        }
        if !self.remaps_interrupts && value != vfio::VFIO_NOIOMMU_IOMMU {
            return errno(libc::EPERM);
        }
        *kind = Some(value);
        Ok(0)
    }

    pub(super) fn join(&mut self, group: i32, into: i32) -> io::Result<()> {
        let viable = self.viable;
        match self.open.get_mut(&group) {
            Some(Open::Group { container, .. }) if container.is_none() && viable => *container = Some(into),
            Some(Open::Group { .. }) => return errno(libc::EINVAL),
            _ => return errno(libc::ENOTTY),
        }
        match self.open.get_mut(&into) {
            Some(Open::Container { groups, .. }) => {
                groups.push(group);
                Ok(())
            }
            _ => errno(libc::EINVAL),
        }
    }

    fn leave(&mut self, group: i32) -> io::Result<u32> {
        let Some(Open::Group { container, device }) = self.open.get_mut(&group) else {
            return errno(libc::ENOTTY);
        };
        if device.is_some() {
            return errno(libc::EBUSY);
        }
        let Some(left) = container.take() else { return errno(libc::EINVAL) };
        if let Some(Open::Container { groups, kind, space }) = self.open.get_mut(&left) {
            groups.retain(|other| *other != group);
            if groups.is_empty() {
                (*kind, *space) = (None, Space::default());
            }
        }
        Ok(0)
    }

    pub(super) fn take_device(&mut self, fd: i32, name: &str) -> io::Result<i32> {
        let Some(Open::Group { container: Some(container), device: None }) = self.open.get(&fd) else {
            return errno(libc::EINVAL);
        };
        let ready = matches!(self.open.get(container), Some(Open::Container { kind: Some(_), .. }));
        if !ready {
            return errno(libc::EINVAL);
        }
        if name != ADDRESS {
            return errno(libc::ENODEV);
        }
        let number = self.insert(Open::Device { group: Some(fd), iommufd: None, attached: None });
        if let Some(Open::Group { device, .. }) = self.open.get_mut(&fd) {
            *device = Some(number);
        }
        self.card.taken();
        Ok(number)
    }

    /// Requests of groups, containers, iommufds, and of a device for one.
    pub(super) fn iommu_bytes(&mut self, fd: i32, command: Command, bytes: &mut [u8]) -> io::Result<u32> {
        match command {
            Command::GroupStatus => {
                let Some(Open::Group { container, .. }) = self.open.get(&fd) else {
                    return errno(libc::ENOTTY);
                };
                let flags = u32::from(self.viable) | u32::from(container.is_some()) << 1;
                bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
                Ok(0)
            }
            Command::IommuInfo => self.iommu_info(fd, bytes),
            Command::UnmapDma => {
                let (iova, len) = (wide(bytes, 2), wide(bytes, 4));
                self.space(fd, 0)?.0.unmap(iova, len).map(|()| 0)
            }
            Command::IoasAlloc => {
                let Some(Open::Iommufd { spaces }) = self.open.get_mut(&fd) else {
                    return errno(libc::ENOTTY);
                };
                let id = spaces.len() as u32 + 1;
                spaces.insert(id, Space::default());
                bytes[8..12].copy_from_slice(&id.to_ne_bytes());
                Ok(0)
            }
            Command::IoasUnmap => {
                let (id, iova, len) = (word(bytes, 1), wide(bytes, 2), wide(bytes, 4));
                self.space(fd, id)?.0.unmap(iova, len).map(|()| 0)
            }
            Command::BindIommufd => self.bind(fd, bytes),
            Command::AttachPt => self.attach(fd, word(bytes, 2)),
            Command::DetachPt => match self.open.get_mut(&fd) {
                Some(Open::Device { iommufd: Some(_), attached, .. }) => {
                    *attached = None;
                    Ok(0)
                }
                _ => errno(libc::EINVAL),
            },
            _ => errno(libc::ENOTTY),
        }
    }

    fn iommu_info(&mut self, fd: i32, bytes: &mut [u8]) -> io::Result<u32> {
        self.space(fd, 0)?;
        let mut caps = Vec::new();
        let told = self.ranges.clone().unwrap_or_default();
        let len = 16 + 16 * told.len() as u32;
        if self.ranges.is_some() {
            caps.extend([1 | 1 << 16, 24 + len, told.len() as u32, 0].map(u32::to_ne_bytes).concat());
            told.iter().for_each(|(first, last)| {
                caps.extend(first.to_ne_bytes());
                caps.extend(last.to_ne_bytes());
            });
            caps.extend([3 | 1 << 16, 0, self.maps_max].map(u32::to_ne_bytes).concat());
        }
        let whole = 24 + caps.len();
        let flags = 1 | if caps.is_empty() { 0 } else { 2 };
        bytes[4..8].copy_from_slice(&u32::to_ne_bytes(flags));
        bytes[8..16].copy_from_slice(&PAGE.to_ne_bytes());
        if caps.is_empty() {
            return Ok(0);
        }
        if bytes.len() < whole {
            bytes[..4].copy_from_slice(&(whole as u32).to_ne_bytes());
        } else {
            bytes[16..20].copy_from_slice(&24_u32.to_ne_bytes());
            bytes[24..whole].copy_from_slice(&caps);
        }
        Ok(0)
    }

    fn bind(&mut self, fd: i32, bytes: &mut [u8]) -> io::Result<u32> {
        if self.count("group") > 0 {
            return errno(libc::EBUSY);
        }
        let of = word(bytes, 2) as i32;
        let bound = |open: &Open| matches!(open, Open::Device { iommufd: Some(_), .. });
        if word(bytes, 1) != 0 || self.open.values().any(bound) {
            return errno(libc::EINVAL);
        }
        if !matches!(self.open.get(&of), Some(Open::Iommufd { .. })) {
            return errno(libc::EBADF);
        }
        match self.open.get_mut(&fd) {
            Some(Open::Device { iommufd, .. }) => *iommufd = Some(of),
            _ => return errno(libc::ENOTTY),
        }
        self.card.taken();
        Ok(0)
    }

    fn attach(&mut self, fd: i32, id: u32) -> io::Result<u32> {
        let of = match self.open.get(&fd) {
            Some(Open::Device { iommufd: Some(of), .. }) => *of,
            _ => return errno(libc::EINVAL),
        };
        match self.open.get(&of) {
            Some(Open::Iommufd { spaces }) if spaces.contains_key(&id) => {}
            _ => return errno(libc::ENOENT),
        }
        if !self.remaps_interrupts {
            return errno(libc::EPERM);
        }
        if let Some(Open::Device { attached, .. }) = self.open.get_mut(&fd) {
            *attached = Some(id);
        }
        Ok(0)
    }

    /// A device can be used once it belongs to a container or an iommufd.
    pub(super) fn usable(&self, fd: i32) -> io::Result<()> {
        match self.open.get(&fd) {
            Some(Open::Device { group: Some(_), .. } | Open::Device { iommufd: Some(_), .. }) => Ok(()),
            _ => errno(libc::EINVAL),
        }
    }
}
