//! A binding that holds after the next boot.
//!
//! Three small files. A udev rule for each card names its driver before the kernel looks for one, and hands the card to
//! it; a line for each card's user goes with it. One file has `vfio-pci` loaded at boot, and one has it loaded before
//! `ib_qib` where a kernel still has that. The first line of each says whose it is: nothing else is ever overwritten or
//! removed.

use crate::bdf::Bdf;
use crate::binding::{BindError, Step};
use crate::card::{DEVICE_ID, VENDOR_ID};
use crate::read::Reader;

/// The first line of every file of ours.
const MARK: &str = "# Written by `qhca bind --persist`; `qhca unbind --persist` removes it.";
/// Rules, one file a card.
const RULES: &str = "/etc/udev/rules.d";
/// Modules that are loaded at boot.
const LOAD: &str = "/etc/modules-load.d/qhca.conf";
/// What is loaded before what.
const ORDER: &str = "/etc/modprobe.d/qhca.conf";
/// Most bytes of a file that could be ours.
const FILE_BYTES: usize = 16 << 10;

fn rule_path(bdf: Bdf) -> String {
    format!("{RULES}/70-qhca-{bdf}.rules")
}

/// The rule for a card. `driver_override` is set before modules are loaded for the card, and the card is offered again
/// in case that `vfio-pci` was there first.
fn rule(bdf: Bdf, uid: Option<u32>) -> String {
    let mut text = format!(
        "{MARK}\n\
         ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"{bdf}\", ATTR{{vendor}}==\"{VENDOR_ID:#06x}\", ATTR{{device}}==\"{DEVICE_ID:#06x}\", \
         ATTR{{driver_override}}=\"vfio-pci\", RUN{{builtin}}+=\"kmod load vfio-pci\", \
         RUN+=\"/bin/sh -c 'echo {bdf} > /sys/bus/pci/drivers_probe'\"\n"
    );
    if let Some(uid) = uid {
        text += &format!(
            "SUBSYSTEM==\"vfio\", TEST==\"/sys/kernel/iommu_groups/%k/devices/{bdf}\", OWNER=\"{uid}\", MODE=\"0600\"\n\
             SUBSYSTEM==\"vfio-dev\", KERNELS==\"{bdf}\", OWNER=\"{uid}\", MODE=\"0600\"\n"
        );
    }
    text
}

fn files(bdf: Bdf, uid: Option<u32>) -> [(String, String); 3] {
    [
        (LOAD.to_owned(), format!("{MARK}\nvfio-pci\n")),
        (ORDER.to_owned(), format!("{MARK}\nsoftdep ib_qib pre: vfio-pci\n")),
        (rule_path(bdf), rule(bdf, uid)),
    ]
}

/// What stands at a path.
enum There {
    Nothing,
    Ours(String),
    SomebodyElses,
}

fn there(reader: Reader<'_>, path: &str) -> Result<There, BindError> {
    match reader.text(path, FILE_BYTES) {
        Ok(text) if text.starts_with(MARK) => Ok(There::Ours(text)),
        Ok(_) => Ok(There::SomebodyElses),
        Err(unread) if unread.is_missing() => Ok(There::Nothing),
        Err(unread) => Err(BindError::Unread(unread)),
    }
}

/// The steps that make a binding last; none for a file that is there already.
pub(crate) fn plan_put(reader: Reader<'_>, bdf: Bdf, uid: Option<u32>) -> Result<Vec<Step>, BindError> {
    let mut steps = Vec::new();
    for (path, text) in files(bdf, uid) {
        match there(reader, &path)? {
            There::SomebodyElses => return Err(BindError::NotOurs { path }),
            There::Ours(now) if now == text => {}
            There::Ours(was) => steps.push(Step::Put { path, text, was: Some(was) }),
            There::Nothing => steps.push(Step::Put { path, text, was: None }),
        }
    }
    Ok(steps)
}

/// The steps that undo it. What several cards need goes with the last of them.
pub(crate) fn plan_remove(reader: Reader<'_>, bdf: Bdf) -> Result<Vec<Step>, BindError> {
    let rule = rule_path(bdf);
    let is_other = |name: &String| name.starts_with("70-qhca-") && !rule.ends_with(&format!("/{name}"));
    let others = reader.names(RULES).map_err(BindError::Unread)?.iter().any(is_other);
    let mut steps = Vec::new();
    for (path, _) in files(bdf, None) {
        let goes = path == rule || !others;
        if let (true, There::Ours(was)) = (goes, there(reader, &path)?) {
            steps.push(Step::Remove { path, was });
        }
    }
    Ok(steps)
}

/// Whether the binding of `bdf` is made to last.
pub fn is_kept(reader: Reader<'_>, bdf: Bdf) -> bool {
    matches!(there(reader, &rule_path(bdf)), Ok(There::Ours(_)))
}
