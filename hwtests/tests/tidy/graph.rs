//! Rules about crates: who depends on whom, under which licence, in how many versions.

use crate::File;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const LIBRARIES: &[&str] = &[
    "qhca-regs",
    "qhca-irq",
    "qhca-errdecode",
    "qhca-driver",
    "qhca-sim",
    "qhca-verbs",
    "qhca-vfu",
    "qhca-lab",
];

/// What each crate may depend on, of ours. A crate that is not here is not allowed at all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("qhca-regs", &[]),
    ("qhca-errdecode", &[]),
    ("qhca-vfu", &[]),
    ("qhca-host", &[]),
    ("qhca-irq", &["qhca-regs"]),
    ("qhca-driver", &["qhca-regs", "qhca-irq", "qhca-errdecode", "qhca-vfu"]),
    ("qhca-sim", &["qhca-regs", "qhca-irq", "qhca-driver", "qhca-vfu"]),
    ("qhca-verbs", &["qhca-regs", "qhca-irq", "qhca-errdecode", "qhca-driver"]),
    ("qhca-lab", &["qhca-regs", "qhca-irq", "qhca-errdecode", "qhca-driver", "qhca-sim", "qhca-verbs"]),
    ("qhca", LIBRARIES),
    (
        "qhca-hwtests",
        &[
            "qhca",
            "qhca-regs",
            "qhca-irq",
            "qhca-errdecode",
            "qhca-driver",
            "qhca-sim",
            "qhca-vfu",
            "qhca-verbs",
        ],
    ),
    (
        "qhca-bench",
        &[
            "qhca",
            "qhca-regs",
            "qhca-irq",
            "qhca-errdecode",
            "qhca-driver",
            "qhca-sim",
            "qhca-vfu",
            "qhca-verbs",
            "qhca-lab",
        ],
    ),
    (
        "qhca-cli",
        &[
            "qhca",
            "qhca-regs",
            "qhca-irq",
            "qhca-errdecode",
            "qhca-driver",
            "qhca-sim",
            "qhca-vfu",
            "qhca-verbs",
            "qhca-lab",
            "qhca-hwtests",
            "qhca-host",
        ],
    ),
];

/// Licences that code under MIT or Apache-2.0 may be linked with, as the pieces of an expression.
const LICENCES: [&str; 8] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0", "Unlicense", "Zlib"];

/// Crates that come in two versions, and why that is not ours to change.
const DUPLICATES: &[(&str, &str)] = &[
    (
        "syn",
        "derive macros of different crates follow its major versions at their own pace; none of it is linked",
    ),
    ("winnow", "two parsers of TOML, one of the benchmark runner's macros; the second is not linked"),
];

/// What cargo knows of the workspace, for the platform that it is built on.
pub(crate) fn metadata(root: &Path) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Dependencies between crates of ours, of any kind, that the plan does not allow.
pub(crate) fn forbidden_edges(metadata: &Value) -> Vec<String> {
    let mut offences = Vec::new();
    let ours = list(&metadata["packages"]).iter().filter(|package| package["source"].is_null());
    for package in ours.filter(|package| text(&package["name"]).starts_with("qhca")) {
        let name = text(&package["name"]);
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
            offences.push(format!("{name} is not in the plan"));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let on = text(&dependency["name"]);
            if on.starts_with("qhca") && !allowed.contains(&on) {
                offences.push(format!("{name} must not depend on {on}"));
            }
        }
    }
    offences
}

/// The packages that are really in the graph of this platform.
fn resolved(metadata: &Value) -> impl Iterator<Item = &Value> {
    let nodes: BTreeSet<&str> =
        list(&metadata["resolve"]["nodes"]).iter().map(|node| text(&node["id"])).collect();
    list(&metadata["packages"]).iter().filter(move |package| nodes.contains(text(&package["id"])))
}

/// Packages whose licence leaves us no choice that is in the list.
pub(crate) fn licences(metadata: &Value) -> Vec<String> {
    let fine = |expression: &str| {
        // AND needs all of its parts, OR (or the old slash) one of them.
        expression.split(" AND ").all(|part| {
            let part = part.trim_matches(['(', ')']).replace('/', " OR ").replace(" or ", " OR ");
            part.split(" OR ").any(|choice| LICENCES.contains(&choice.trim_matches(['(', ')', ' '])))
        })
    };
    resolved(metadata)
        .filter(|package| !fine(text(&package["license"])))
        .map(|package| format!("{} is under {}", text(&package["name"]), package["license"]))
        .collect()
}

/// Crates in more than one version that the list does not excuse, and excuses that are no longer needed.
pub(crate) fn duplicates(metadata: &Value) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in resolved(metadata) {
        versions.entry(text(&package["name"])).or_default().insert(text(&package["version"]));
    }
    let excused =
        |name: &str| DUPLICATES.iter().any(|(crate_name, why)| *crate_name == name && !why.is_empty());
    let twice = versions.iter().filter(|(name, found)| found.len() > 1 && !excused(name));
    let mut offences: Vec<String> =
        twice.map(|(name, found)| format!("{name} in versions {found:?}")).collect();
    for (name, _) in DUPLICATES {
        if versions.get(name).is_none_or(|found| found.len() < 2) {
            offences.push(format!("{name}: the excuse is no longer needed"));
        }
    }
    offences
}

/// Crates that do not take the workspace's lints, and a workspace whose lints do not ask for documentation.
pub(crate) fn lints(files: &[File]) -> Vec<String> {
    let manifests =
        files.iter().filter(|file| file.path.ends_with("Cargo.toml") && !file.path.starts_with("fuzz/"));
    let mut offences = Vec::new();
    for manifest in manifests {
        if manifest.text.contains("[package]") && !manifest.text.contains("[lints]\nworkspace = true") {
            offences.push(format!("{}: no `[lints] workspace = true`", manifest.path));
        }
        if manifest.text.contains("[workspace.lints.rust]")
            && !manifest.text.contains("missing_docs = \"warn\"")
        {
            offences.push(format!("{}: the lints do not ask for documentation", manifest.path));
        }
    }
    offences
}
