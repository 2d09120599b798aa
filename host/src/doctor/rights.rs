//! Checks of what this user may do, and of who else is there.

use super::{Check, DMA_BYTES, Finding, Verdict};
use crate::card::Card;
use crate::holders::holders;
use crate::look::Node;
use crate::read::{Fact, Reader, Unread};

/// Bit of CAP_DAC_OVERRIDE: file modes do not bind this process.
const CAP_DAC_OVERRIDE: u32 = 1;
/// Bit of CAP_IPC_LOCK: the limit of locked memory does not bind this process.
const CAP_IPC_LOCK: u32 = 14;

/// Who this process is.
struct Me {
    uid: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

impl Me {
    fn read(reader: Reader<'_>) -> Fact<Self> {
        let path = "/proc/self/status";
        let text = reader.text(path, 64 << 10)?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        // The second number of four is the one that rights go by.
        let second = |name: &str| field(name)?.split_whitespace().nth(1)?.parse::<u32>().ok();
        let uid = second("Uid:").ok_or_else(|| Unread::odd(path, "no Uid", "the state of a process"))?;
        let groups =
            field("Groups:").unwrap_or_default().split_whitespace().filter_map(|gid| gid.parse().ok());
        let capabilities = field("CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        Ok(Self { uid, groups: groups.chain(second("Gid:")).collect(), capabilities })
    }

    fn has(&self, capability: u32) -> bool {
        (self.capabilities >> capability) & 1 != 0
    }

    /// Whether this process may read and write a file.
    fn may_use(&self, node: Node) -> bool {
        let bits = match () {
            () if self.has(CAP_DAC_OVERRIDE) => return true,
            () if node.uid == self.uid => node.mode >> 6,
            () if self.groups.contains(&node.gid) => node.mode >> 3,
            () => node.mode,
        };
        bits & 0o6 == 0o6
    }
}

/// The ways in: the group's two nodes, and the card's own two.
fn ways(card: &Card) -> Vec<[String; 2]> {
    let by_group = card.group.as_ref().ok().and_then(Option::as_ref);
    let by_group = by_group.map(|group| [group.node(), "/dev/vfio/vfio".to_owned()]);
    let by_own = card.cdev.clone().map(|cdev| [cdev, "/dev/iommu".to_owned()]);
    by_own.into_iter().chain(by_group).collect()
}

/// Whether a way in is there.
pub(super) fn node(reader: Reader<'_>, card: &Card) -> Finding {
    if !card.is_bound_to_vfio() {
        return Finding::new(
            Check::Node,
            Verdict::Unknown,
            "there is none before vfio-pci has the card: see driver",
        );
    }
    if !matches!(card.group, Ok(Some(_))) {
        return Finding::new(Check::Node, Verdict::Unknown, "there is none without a group: see iommu");
    }
    let ways = ways(card);
    let there = ways.iter().find(|way| way.iter().all(|path| reader.exists(path)));
    if let Some([node, container]) = there {
        return Finding::new(Check::Node, Verdict::Ok, format!("{node} and {container}"));
    }
    let missing: Vec<&str> =
        ways.iter().flatten().filter(|path| !reader.exists(path)).map(String::as_str).collect();
    let finding = Finding::new(Check::Node, Verdict::Bad, format!("not there: {}", missing.join(", ")));
    match reader.exists("/.dockerenv") || reader.exists("/run/.containerenv") {
        true => {
            let nodes = ways.last().map(|way| way.join(" --device ")).unwrap_or_default();
            finding.mend(format!("this is a container: hand them over (--device {nodes})"))
        }
        false => finding
            .mend("modprobe vfio-pci; systemctl status systemd-udevd   (it makes the nodes)")
            .mend("in a container: hand the node and /dev/vfio/vfio over to it"),
    }
}

/// Whether this user may open it (B123).
pub(super) fn permission(reader: Reader<'_>, card: &Card) -> Finding {
    let finding = |verdict, what: String| Finding::new(Check::Permission, verdict, what);
    let me = match Me::read(reader) {
        Ok(me) => me,
        Err(unread) => return Finding::new(Check::Permission, Verdict::Unknown, unread),
    };
    let stat = |path: &String| reader.look().stat(path).ok();
    let there: Vec<[String; 2]> =
        ways(card).into_iter().filter(|way| way.iter().all(|path| stat(path).is_some())).collect();
    if there.is_empty() || !card.is_bound_to_vfio() {
        return finding(Verdict::Unknown, "there is no node to open yet".to_owned());
    }
    let refused = |way: &[String; 2]| -> Vec<(String, Node)> {
        let nodes = way.iter().filter_map(|path| Some((path.clone(), stat(path)?)));
        nodes.filter(|(_, node)| !me.may_use(*node)).collect()
    };
    if let Some(way) = there.iter().find(|way| refused(way).is_empty()) {
        return finding(Verdict::Ok, format!("user {} may open {}", me.uid, way.join(" and ")));
    }
    let nodes: Vec<(String, Node)> = there.last().map(refused).unwrap_or_default();
    let told: Vec<String> = nodes
        .iter()
        .map(|(path, node)| {
            format!("{path} (mode {:04o}, owner {}, group {})", node.mode, node.uid, node.gid)
        })
        .collect();
    finding(Verdict::Bad, format!("user {} may not read and write {}", me.uid, told.join(", ")))
        .mend(format!("as root: qhca bind {} --user {}   (--persist keeps it so)", card.bdf, me.uid))
}

/// Whether somebody else has it.
pub(super) fn in_use(reader: Reader<'_>, card: &Card) -> Finding {
    let holders = holders(reader, card);
    if let Some(holder) = holders.found.first() {
        return Finding::new(Check::InUse, Verdict::Bad, holder)
            .mend(format!("end it, or look at the card through it: qhca info -d {}", card.bdf));
    }
    match holders.unseen {
        0 => Finding::new(Check::InUse, Verdict::Ok, "nobody has it open"),
        unseen => {
            let processes = if unseen == 1 { "process" } else { "processes" };
            let what = format!(
                "nobody that this user can see; {unseen} {processes} of others could not be looked at"
            );
            Finding::new(Check::InUse, Verdict::Unknown, what).mend("look as root: sudo qhca doctor")
        }
    }
}

/// Whether enough memory may be locked: everything that a card reaches counts (B111).
pub(super) fn memlock(reader: Reader<'_>) -> Finding {
    let finding = |verdict, what: String| Finding::new(Check::Memlock, verdict, what);
    let limit = match limit_bytes(reader) {
        Ok(limit) => limit,
        Err(unread) => return Finding::new(Check::Memlock, Verdict::Unknown, unread),
    };
    let Some(limit) = limit else { return finding(Verdict::Ok, "without limit".to_owned()) };
    let (has, needs) = (size(limit), size(DMA_BYTES));
    if limit >= DMA_BYTES {
        return finding(Verdict::Ok, format!("{has}, and {needs} are needed at most"));
    }
    if Me::read(reader).is_ok_and(|me| me.has(CAP_IPC_LOCK)) {
        return finding(Verdict::Ok, format!("{has}, which does not bind this user (CAP_IPC_LOCK)"));
    }
    finding(Verdict::Bad, format!("{has} may be locked, and up to {needs} are needed"))
        .mend("for a shell: ulimit -l unlimited   (as root, or after the next line)")
        .mend(
            "for a user: echo 'USER - memlock unlimited' > /etc/security/limits.d/qhca.conf, and log in anew",
        )
        .mend("for a systemd unit: LimitMEMLOCK=infinity")
}

/// `Max locked memory         8388608              8388608              bytes`; `None`: without limit.
fn limit_bytes(reader: Reader<'_>) -> Fact<Option<u64>> {
    let path = "/proc/self/limits";
    let text = reader.text(path, 64 << 10)?;
    let row = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = row.and_then(|row| row.split_whitespace().next()).unwrap_or_default();
    match soft {
        "unlimited" => Ok(None),
        number => number.parse().map(Some).map_err(|_| Unread::odd(path, number, "a limit of locked memory")),
    }
}

/// Bytes in the largest unit that leaves no small numbers.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20),
    }
}

/// Whether somebody moves interrupts about.
pub(super) fn irqbalance(reader: Reader<'_>) -> Finding {
    let pids = reader.names("/proc").unwrap_or_default();
    let is_it = |pid: &String| {
        pid.bytes().all(|byte| byte.is_ascii_digit())
            && reader.word(&format!("/proc/{pid}/comm")).is_ok_and(|name| name == "irqbalance")
    };
    match pids.iter().find(|pid| is_it(pid)) {
        Some(pid) => Finding::new(
            Check::Irqbalance,
            Verdict::Note,
            format!("process {pid} moves interrupts between processors"),
        )
        .mend("if vectors are pinned: systemctl stop irqbalance, or tell it to leave them (--banirq)"),
        None => Finding::new(Check::Irqbalance, Verdict::Ok, "not running"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B111: a limit below a mebibyte is not rounded to zero.
    #[test]
    fn sizes_keep_their_units() {
        let told: Vec<String> = [100, 65_536, (1 << 20) - 1, 8 << 20, 64 << 20].map(size).into();
        assert_eq!(told, ["100 B", "64 KiB", "1023 KiB", "8.0 MiB", "64.0 MiB"]);
    }
}
