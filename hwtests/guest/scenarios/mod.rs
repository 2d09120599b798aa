//! What is done to guests, scenario by scenario. A boot costs 10 to 20 s, so one boot serves many checks.

mod alone;
mod cables;
mod compare;
mod errors;
mod fabric;
mod held;
mod owner;
mod page;
mod pair;
mod probe;
mod side;
mod steps;
mod traffic;
mod vfio;

use crate::fail::{Stop, Verdict};
use crate::fetch::Series;
use crate::image::Purpose;
use crate::lab::Lab;

/// A scenario: its name, what it is about, and how it runs.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&mut Lab) -> Result<(), Stop>,
}

/// Every scenario, in the order in which `all` runs them.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "ib-qib-6.1",
        about: "kernel 6.1, one guest: probe, subnet manager, diagnostics, verbs traffic, module options",
        run: |lab| alone::run(lab, Series::V6_1),
    },
    Scenario {
        name: "ib-qib-6.12",
        about: "the same on kernel 6.12",
        run: |lab| alone::run(lab, Series::V6_12),
    },
    Scenario {
        name: "iommu-6.1",
        about: "kernel 6.1 behind an emulated IOMMU: probe, subnet manager, verbs traffic",
        run: |lab| alone::run_behind_iommu(lab, Series::V6_1),
    },
    Scenario {
        name: "iommu-6.12",
        about: "the same on kernel 6.12",
        run: |lab| alone::run_behind_iommu(lab, Series::V6_12),
    },
    Scenario {
        name: "pair",
        about: "two guests on one cable: IP over InfiniBand, verbs traffic, processor time of the server",
        run: pair::run,
    },
    Scenario {
        name: "errors",
        about: "every error bit raised, and what the stock driver does about it",
        run: errors::run,
    },
    Scenario {
        name: "trace",
        about: "what our bring-up leaves in registers, beside what the stock driver's leaves",
        run: compare::run,
    },
    Scenario {
        name: "vfio-6.1",
        about: "our driver on vfio-pci, kernel 6.1: the card bound, every check, both ends of the owner's day",
        run: |lab| vfio::run_group(lab, Series::V6_1),
    },
    Scenario {
        name: "vfio-6.18",
        about: "the same on kernel 6.18, which has no ib_qib",
        run: |lab| vfio::run_group(lab, Series::V6_18),
    },
    Scenario {
        name: "side-by-side",
        about: "kernel 6.12, two cards on one cable: ib_qib has the one, our driver the other",
        run: side::run,
    },
    Scenario { name: "page", about: "every command of docs/virtual-hca.md, word for word", run: page::run },
];

/// Scenarios that run when they are named, and not with `all`: nobody has seen every check of theirs pass yet.
pub(crate) const BY_NAME: &[Scenario] = &[
    Scenario {
        name: "vfio-cdev",
        about: "our driver on vfio-pci by the device's own node and iommufd, on the kernel that is built here",
        run: vfio::run_cdev,
    },
    Scenario {
        name: "vfio-noiommu",
        about: "the same kernel without an IOMMU: registers, and DMA refused with the reason",
        run: vfio::run_noiommu,
    },
];

/// Fetches and builds everything, and leaves links to it under names that do not change.
pub(crate) fn fetch(lab: &mut Lab) {
    lab.report.begin("fetch");
    let verdict = images(lab);
    if let Err(stop) = lab.report.check("images", verdict) {
        lab.report.ended(stop);
    }
}

/// Builds what takes longest, so that no scenario waits for it.
pub(crate) fn build(lab: &mut Lab) {
    lab.report.begin("build");
    let verdict = lab
        .image(Series::Iommufd, Purpose::Owner)
        .map(|(kernel, image)| format!("{}, {}", kernel.release, image.display()));
    if let Err(stop) = lab.report.check("kernel-and-image", verdict) {
        lab.report.ended(stop);
    }
}

fn images(lab: &mut Lab) -> Verdict {
    let mut made = vec![lab.link_qemu()?];
    for series in Series::WITH_IB_QIB {
        made.push(lab.link_kernel(series)?);
        made.push(lab.image(series, Purpose::Fabric)?.1);
    }
    let made: Vec<String> = made.iter().map(|path| path.display().to_string()).collect();
    Ok(made.join(", "))
}
