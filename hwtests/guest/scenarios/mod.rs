//! What is done to guests, scenario by scenario. A boot costs 10 to 20 s, so one boot serves many checks.

mod alone;
mod fabric;
mod pair;
mod probe;
mod steps;
mod traffic;

use crate::fail::{Stop, Verdict};
use crate::fetch::Series;
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
];

/// Fetches and builds everything, as a check of its own.
pub(crate) fn fetch(lab: &mut Lab) {
    lab.report.begin("fetch");
    let mut images = || -> Verdict {
        let mut paths = Vec::new();
        for series in Series::ALL {
            let (kernel, initrd) = lab.image(series)?;
            paths.push(format!("{} with {}", kernel.image.display(), initrd.display()));
        }
        Ok(paths.join(", "))
    };
    let verdict = images();
    if let Err(stop) = lab.report.check("images", verdict) {
        lab.report.ended(stop);
    }
}
