//! How a card is to be opened: by which way, with which interrupts.

use qhca_irq::plan::Mode;

/// By which nodes a card is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// `/dev/vfio/devices/vfioN` and `/dev/iommu`.
    Own,
    /// `/dev/vfio/N` and `/dev/vfio/vfio`.
    Group,
}

/// What may be chosen when a card is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VfioSettings {
    /// By which nodes; the device's own if there are such, else the group's.
    pub way: Option<Way>,
    /// Also without an IOMMU: registers and interrupts, no DMA. The kernel is tainted by it.
    pub noiommu: bool,
    /// The only kind of interrupts that is used; by default the best that can be had.
    pub mode: Option<Mode>,
    /// Vectors that are used at most.
    pub vectors_max: Option<usize>,
}

/// Sets something.
type Set = fn(&mut VfioSettings);

/// The words that stand behind a device's name, and what they set. In the order in which they are printed.
const WORDS: [(&str, Set); 6] = [
    ("cdev", |settings| settings.way = Some(Way::Own)),
    ("group", |settings| settings.way = Some(Way::Group)),
    ("noiommu", |settings| settings.noiommu = true),
    ("msix", |settings| settings.mode = Some(Mode::MsiX)),
    ("msi", |settings| settings.mode = Some(Mode::Msi)),
    ("intx", |settings| settings.mode = Some(Mode::Intx)),
];
const VECTORS: &str = "vectors=";

impl VfioSettings {
    /// Every word that is valid.
    pub const VALID: &str = "cdev, group, noiommu, msix, msi, intx, vectors=N";

    /// Sets what `word` says; false if it says nothing.
    pub fn set(&mut self, word: &str) -> bool {
        if let Some(count) = word.strip_prefix(VECTORS) {
            let count = count.parse().ok().filter(|count| (1..=qhca_regs::Vector::COUNT).contains(count));
            self.vectors_max = count.or(self.vectors_max);
            return count.is_some();
        }
        match WORDS.iter().find(|(name, _)| *name == word) {
            Some((_, set)) => {
                set(self);
                true
            }
            None => false,
        }
    }

    /// The words that make these settings.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let way = self.way.map(|way| if way == Way::Own { "cdev" } else { "group" });
        let mode = self.mode.map(|mode| match mode {
            Mode::MsiX => "msix",
            Mode::Msi => "msi",
            Mode::Intx => "intx",
        });
        let noiommu = self.noiommu.then_some("noiommu");
        let plain = [way, noiommu, mode].into_iter().flatten().map(str::to_owned);
        plain.chain(self.vectors_max.map(|count| format!("{VECTORS}{count}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_and_printed_alike() {
        let names = WORDS.map(|(name, _)| name.to_owned());
        for word in names.iter().cloned().chain(["vectors=1".to_owned(), "vectors=32".to_owned()]) {
            let mut settings = VfioSettings::default();
            assert!(settings.set(&word), "{word}");
            assert_eq!(settings.words().collect::<Vec<_>>(), [word]);
        }
        assert!(names.iter().all(|name| VfioSettings::VALID.contains(name.as_str())));
        for word in ["", "MSIX", "vectors", "vectors=", "vectors=0", "vectors=33", "vectors=-1", "iommu"] {
            assert!(!VfioSettings::default().set(word), "{word}");
        }
    }
}
