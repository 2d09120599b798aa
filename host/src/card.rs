//! One card of this machine, as the kernel describes it.
//!
//! Nothing here touches the card: a function that is asleep stays so. What board it is (QLE7340, QLE7342) stands in the
//! chip's registers and its EEPROM, so the kernel cannot know it, and neither does this.

use crate::bdf::Bdf;
use crate::group::Group;
use crate::pcie::{Bridge, Link};
use crate::read::{Fact, Reader, Unread};

/// PCI vendor of the chip (F-960).
pub const VENDOR_ID: u16 = 0x1077;
/// PCI device of the chip (F-960).
pub const DEVICE_ID: u16 = 0x7322;

/// Functions as the kernel lists them.
pub(crate) const DEVICES: &str = "/sys/bus/pci/devices";
/// Drivers as the kernel lists them.
pub(crate) const DRIVERS: &str = "/sys/bus/pci/drivers";

/// The driver that gives a function to programs.
pub(crate) const VFIO_PCI: &str = "vfio-pci";

/// Whether `driver` gives functions to programs.
pub(crate) fn is_vfio(driver: &str) -> bool {
    driver == VFIO_PCI || driver.ends_with("-vfio-pci") || driver.ends_with("_vfio_pci")
}

/// A card, as far as its files can be read.
#[derive(Clone, Debug)]
pub struct Card {
    /// Where it sits.
    pub bdf: Bdf,
    /// The driver that has it; `None`: no driver.
    pub driver: Fact<Option<String>>,
    /// The only driver that may have it, if it was told one.
    pub driver_override: Fact<Option<String>>,
    /// Its IOMMU group; `None`: it has none, and no IOMMU stands before it.
    pub group: Fact<Option<Group>>,
    /// The memory node that it is near; `None`: the machine has one, or does not say.
    pub numa_node: Fact<Option<u32>>,
    /// Its link.
    pub link: Link,
    /// What is above it.
    pub bridge: Option<Bridge>,
    /// The name of the slot that it is in.
    pub slot: Option<String>,
    /// `D0` awake to `D3cold` without power.
    pub power_state: Fact<String>,
    /// Whether the kernel has switched on its decoders.
    pub is_enabled: Fact<bool>,
    /// The node below `/dev` that opens this function alone, if the kernel makes one.
    pub cdev: Option<String>,
    /// The ways in which the kernel can reset it.
    pub reset_methods: Fact<String>,
}

impl Card {
    /// Reads what the kernel says of the function at `bdf`.
    pub fn read(reader: Reader<'_>, bdf: Bdf) -> Self {
        let folder = Self::folder_of(bdf);
        let real = reader.look().real_path(&folder).unwrap_or_else(|_| folder.clone());
        let at = |name: &str| format!("{folder}/{name}");
        Self {
            bdf,
            driver: reader.link_name(&at("driver")),
            driver_override: driver_override(reader, &at("driver_override")),
            group: Group::read(reader, &folder),
            numa_node: numa_node(reader, &at("numa_node")),
            link: Link::read(reader, &folder),
            bridge: Bridge::above(reader, &real),
            slot: slot(reader, bdf),
            power_state: reader.word(&at("power_state")),
            is_enabled: reader.number(&at("enable"), u64::from(u32::MAX), "a count").map(|count| count != 0),
            cdev: cdev(reader, &at("vfio-dev")),
            reset_methods: reader.word(&at("reset_method")),
        }
    }

    /// Its folder below `/sys`.
    pub fn folder(&self) -> String {
        Self::folder_of(self.bdf)
    }

    pub(crate) fn folder_of(bdf: Bdf) -> String {
        format!("{DEVICES}/{bdf}")
    }

    /// Whether a program can be given it now: its driver is one of VFIO's.
    pub fn is_bound_to_vfio(&self) -> bool {
        matches!(&self.driver, Ok(Some(driver)) if is_vfio(driver))
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

/// The cards of a machine, in the order of their places.
///
/// # Errors
/// The list of PCI functions cannot be read.
pub fn cards(reader: Reader<'_>) -> Fact<Vec<Card>> {
    let mut found: Vec<Bdf> = reader.names(DEVICES)?.iter().filter_map(|name| name.parse().ok()).collect();
    found.retain(|bdf| is_ours(reader, *bdf).unwrap_or(false));
    found.sort();
    Ok(found.into_iter().map(|bdf| Card::read(reader, bdf)).collect())
}

/// The card at `bdf`; `None` if nothing is there, or something else.
///
/// # Errors
/// What is there does not say what it is.
pub fn find(reader: Reader<'_>, bdf: Bdf) -> Fact<Option<Card>> {
    match is_ours(reader, bdf) {
        Ok(true) => Ok(Some(Card::read(reader, bdf))),
        Ok(false) => Ok(None),
        Err(unread) if unread.is_missing() => Ok(None),
        Err(unread) => Err(unread),
    }
}

fn is_ours(reader: Reader<'_>, bdf: Bdf) -> Fact<bool> {
    let id = |name: &str| reader.number(&format!("{DEVICES}/{bdf}/{name}"), 0xffff, "a PCI id");
    Ok(id("vendor")? == u64::from(VENDOR_ID) && id("device")? == u64::from(DEVICE_ID))
}

fn driver_override(reader: Reader<'_>, path: &str) -> Fact<Option<String>> {
    reader.word(path).map(|word| (word != "(null)").then_some(word))
}

fn numa_node(reader: Reader<'_>, path: &str) -> Fact<Option<u32>> {
    let word = reader.word(path)?;
    match word.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(node) if (0..1024).contains(&node) => Ok(Some(node as u32)),
        _ => Err(Unread::odd(path, &word, "a memory node, or -1 for none")),
    }
}

/// The name of the slot whose address is that of `bdf`.
fn slot(reader: Reader<'_>, bdf: Bdf) -> Option<String> {
    const SLOTS: &str = "/sys/bus/pci/slots";
    let names = reader.names(SLOTS).ok()?;
    names.into_iter().find(|name| {
        reader.word(&format!("{SLOTS}/{name}/address")).is_ok_and(|address| address == bdf.slot())
    })
}

/// `/dev/vfio/devices/vfio0` for a folder that holds `vfio0`.
fn cdev(reader: Reader<'_>, folder: &str) -> Option<String> {
    let name = reader.names(folder).ok()?.into_iter().find(|name| name.starts_with("vfio"))?;
    Some(format!("/dev/vfio/devices/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    fn bdf(text: &str) -> Bdf {
        text.parse().expect("an address")
    }

    #[test]
    fn cards_are_found_among_other_functions_in_the_order_of_their_places() {
        let mut host = FakeHost::with_card("vfio-pci");
        host.add_function("0000:00:1f.0", "0x060100", None, None);
        host.add_card("0000:03:00.0", None, Some(25));
        let found = cards(Reader::new(&host)).expect("a list");
        let places: Vec<String> = found.iter().map(|card| card.bdf.to_string()).collect();
        assert_eq!(places, ["0000:03:00.0", "0000:04:00.0"]);
        assert!(!found[0].is_bound_to_vfio() && found[1].is_bound_to_vfio());
        let card = &found[1];
        assert_eq!(card.slot.as_deref(), Some("4"));
        assert_eq!(card.bridge.as_ref().map(|bridge| bridge.bdf), Some(bdf("0000:00:03.0")));
        assert_eq!(card.cdev.as_deref(), Some("/dev/vfio/devices/vfio0"));
    }

    /// B21: without a card the answer is there at once.
    #[test]
    fn machine_without_a_card_says_so_without_waiting() {
        let host = FakeHost::empty();
        let start = std::time::Instant::now();
        assert!(cards(Reader::new(&host)).expect("an empty list").is_empty());
        assert_eq!(find(Reader::new(&host), bdf("04:00.0")).map(|card| card.is_some()), Ok(false));
        assert!(start.elapsed().as_millis() < 100);
    }

    #[test]
    fn files_that_are_missing_empty_huge_binary_or_lying_are_told_by_name() {
        let folder = "/sys/bus/pci/devices/0000:04:00.0";
        let huge = "7".repeat(100_000);
        let lies: [(&[u8], &str); 5] = [
            (b"", "is empty"),
            (b"\xff\xfe", "no text"),
            (huge.as_bytes(), "longer than"),
            (b"-7\n", "says \"-7\""),
            (b"4294967296\n", "says \"4294967296\""),
        ];
        for (content, expected) in lies {
            let mut host = FakeHost::with_card("vfio-pci");
            host.bytes(&format!("{folder}/numa_node"), content);
            let card = find(Reader::new(&host), bdf("04:00.0")).expect("it says what it is").expect("a card");
            let error = card.numa_node.expect_err("a lie");
            assert!(error.to_string().contains(expected) && error.path.ends_with("numa_node"), "{error}");
        }
        let mut host = FakeHost::with_card("vfio-pci");
        host.remove(&format!("{folder}/numa_node"));
        let card = find(Reader::new(&host), bdf("04:00.0")).expect("it says what it is").expect("a card");
        assert!(card.numa_node.expect_err("it is gone").is_missing());
    }

    #[test]
    fn function_that_does_not_say_what_it_is_is_an_error_and_no_card() {
        let mut host = FakeHost::with_card("vfio-pci");
        host.file("/sys/bus/pci/devices/0000:04:00.0/vendor", "QLogic\n");
        assert!(find(Reader::new(&host), bdf("04:00.0")).is_err());
        assert!(cards(Reader::new(&host)).expect("a list").is_empty());
    }

    /// B121: a module that is loaded is not a binding; the function's own link decides.
    #[test]
    fn binding_is_read_from_the_function_and_not_from_the_loaded_module() {
        for (driver, bound) in [("ib_qib", false), ("uio_pci_generic", false), ("vfio-pci", true)] {
            let host = FakeHost::with_card(driver);
            let card = find(Reader::new(&host), bdf("04:00.0")).expect("it says what it is").expect("a card");
            assert!(Reader::new(&host).is_folder("/sys/bus/pci/drivers/vfio-pci"), "the module is loaded");
            assert_eq!((card.driver_text(), card.is_bound_to_vfio()), (driver, bound));
        }
    }
}
