//! IOMMU groups: functions that the hardware cannot keep apart.
//!
//! An IOMMU gives each device its own view of memory. Functions behind one bridge that forwards between them without
//! asking share a view; they are a group, and the kernel hands a group to a program as a whole or not at all. A group is
//! *viable* if no member is driven by an ordinary driver. Bridges do not count: they have no DMA of their own to abuse.

use crate::bdf::Bdf;
use crate::card::{DEVICES, is_vfio};
use crate::read::{Fact, Reader, Unread};

/// An IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number, as `/dev/vfio` names it.
    pub number: u32,
    /// Whether it is no group of an IOMMU but a stand-in for one: DMA is not confined.
    pub is_noiommu: bool,
    /// How its memory is mapped for the kernel: `DMA`, `DMA-FQ`, `identity`.
    pub kind: Fact<String>,
    /// Its members, the card among them.
    pub members: Fact<Vec<Member>>,
}

/// A function of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it sits.
    pub bdf: Bdf,
    /// Its driver.
    pub driver: Fact<Option<String>>,
    /// Whether it is a bridge.
    pub is_bridge: bool,
}

/// Groups as the kernel lists them.
const GROUPS: &str = "/sys/kernel/iommu_groups";
/// PCI class of bridges, without the interface byte.
const CLASS_BRIDGE: u64 = 0x06;
/// Drivers beside VFIO's that leave a function's DMA alone.
const HARMLESS: [&str; 2] = ["pci-stub", "pcieport"];

impl Group {
    /// Reads the group of the function whose folder is `folder`; `None` if it has none.
    pub(crate) fn read(reader: Reader<'_>, folder: &str) -> Fact<Option<Self>> {
        let link = format!("{folder}/iommu_group");
        let Some(name) = reader.link_name(&link)? else { return Ok(None) };
        let number = name.parse().map_err(|_| Unread::odd(&link, &name, "a group's number"))?;
        let folder = format!("{GROUPS}/{number}");
        let is_noiommu = reader.word(&format!("{folder}/name")).is_ok_and(|name| name == "vfio-noiommu");
        let kind = reader.word(&format!("{folder}/type"));
        Ok(Some(Self { number, is_noiommu, kind, members: members(reader, &folder) }))
    }

    /// The node below `/dev` that opens it.
    pub fn node(&self) -> String {
        match self.is_noiommu {
            true => format!("/dev/vfio/noiommu-{}", self.number),
            false => format!("/dev/vfio/{}", self.number),
        }
    }

    /// The members that keep programs from having the group, `own` left out.
    pub fn spoilers(&self, own: Bdf) -> Vec<&Member> {
        let members = self.members.as_deref().unwrap_or_default();
        members.iter().filter(|member| member.bdf != own && member.spoils()).collect()
    }

    /// The members beside `own`.
    pub fn others(&self, own: Bdf) -> impl Iterator<Item = &Member> {
        self.members.as_deref().unwrap_or_default().iter().filter(move |member| member.bdf != own)
    }
}

impl Member {
    fn spoils(&self) -> bool {
        match &self.driver {
            Ok(Some(driver)) => !(self.is_bridge || is_vfio(driver) || HARMLESS.contains(&driver.as_str())),
            Ok(None) | Err(_) => false,
        }
    }

    /// Its driver in a word.
    pub fn driver_text(&self) -> &str {
        match &self.driver {
            Ok(Some(driver)) => driver,
            Ok(None) => "none",
            Err(_) => "unknown",
        }
    }
}

fn members(reader: Reader<'_>, folder: &str) -> Fact<Vec<Member>> {
    let folder = format!("{folder}/devices");
    let names = reader.look().list(&folder).map_err(|error| Unread::system(&folder, &error))?;
    // What is no PCI function (a platform device) has no address, and is not ours to judge.
    let members = names.iter().filter_map(|name| name.parse().ok()).map(|bdf: Bdf| {
        let folder = format!("{DEVICES}/{bdf}");
        let class = reader.number(&format!("{folder}/class"), 0xff_ffff, "a PCI class");
        Member {
            bdf,
            driver: reader.link_name(&format!("{folder}/driver")),
            is_bridge: class.is_ok_and(|class| class >> 16 == CLASS_BRIDGE),
        }
    });
    Ok(members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    /// B119: the report names the function that spoils the group and its driver, and leaves bridges out.
    #[test]
    fn ordinary_driver_in_the_group_spoils_it_and_a_bridge_does_not() {
        let mut host = FakeHost::with_card("vfio-pci");
        host.add_function("0000:04:00.1", "0x020000", Some("e1000e"), Some(26));
        host.add_function("0000:00:03.0", "0x060400", Some("pcieport"), Some(26));
        host.add_function("0000:04:00.2", "0x0c0330", None, Some(26));
        host.add_function("0000:04:00.3", "0x0c0330", Some("pci-stub"), Some(26));
        let own: Bdf = "0000:04:00.0".parse().expect("an address");
        let group = Group::read(Reader::new(&host), &format!("{DEVICES}/{own}"));
        let group = group.expect("it can be read").expect("there is one");
        let spoilers: Vec<String> =
            group.spoilers(own).iter().map(|m| format!("{} {}", m.bdf, m.driver_text())).collect();
        assert_eq!(spoilers, ["0000:04:00.1 e1000e"]);
        assert_eq!(group.others(own).count(), 4);
    }

    /// B124: a stand-in for a group has a node of another name, and says so.
    #[test]
    fn group_without_an_iommu_is_told_apart_and_has_its_own_node() {
        let mut host = FakeHost::with_card("vfio-pci");
        host.file("/sys/kernel/iommu_groups/26/name", "vfio-noiommu\n");
        let group = Group::read(Reader::new(&host), &format!("{DEVICES}/0000:04:00.0"));
        let group = group.expect("it can be read").expect("there is one");
        assert!(group.is_noiommu);
        assert_eq!(group.node(), "/dev/vfio/noiommu-26");
    }

    #[test]
    fn group_with_a_lying_number_is_refused_by_name() {
        let mut host = FakeHost::with_card("vfio-pci");
        host.link("/sys/bus/pci/devices/0000:04:00.0/iommu_group", "../../../../kernel/iommu_groups/many");
        let error =
            Group::read(Reader::new(&host), &format!("{DEVICES}/0000:04:00.0")).expect_err("no number");
        assert!(error.to_string().contains("\"many\""), "{error}");
    }
}
