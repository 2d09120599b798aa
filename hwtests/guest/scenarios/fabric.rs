//! The stock subnet manager and the diagnostics: what they read through the card is what the model holds.

use super::steps::{self, RATE, dotted, expect, labelled, port_file, section, start_opensm, wait_state};
use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::machine::Guest;
use qhca_sim::chip::Config;

/// LIDs that opensm gives to the two ports of a lone card, in the order in which it finds them.
const LIDS: [(u8, u16); 2] = [(1, 1), (2, 2)];

/// opensm on port 1 brings both ports of the cable to ACTIVE and gives them LIDs.
pub(super) fn active(guest: &mut Guest) -> Verdict {
    start_opensm(guest)?;
    for (port, lid) in LIDS {
        wait_state(guest, port, "ACTIVE")?;
        ensure_eq!(port_file(guest, port, "lid")?, format!("{lid:#x}"), "port {port}'s LID");
        ensure_eq!(port_file(guest, port, "sm_lid")?, "0x1", "port {port}'s subnet manager");
        ensure_eq!(port_file(guest, port, "rate")?, RATE, "port {port}'s rate");
    }
    Ok("both ports ACTIVE with LIDs 1 and 2".to_owned())
}

/// How often counters are looked at before they are believed to differ.
pub(super) const LOOKS: u32 = 20;

/// `ibstat` on both ports.
pub(super) fn ibstat(guest: &mut Guest) -> Verdict {
    let config = Config::default();
    let text = guest.must("ibstat", 20)?;
    let node = format!("{:#018x}", config.guid);
    expect("ibstat", "CA type", labelled(&text, "CA type"), format!("InfiniPath_{}", config.board.name()))?;
    expect("ibstat", "Node GUID", labelled(&text, "Node GUID"), &node)?;
    expect("ibstat", "Number of ports", labelled(&text, "Number of ports"), "2")?;
    for (port, lid) in LIDS {
        let part = section(&text, &format!("Port {port}:"), "Port ");
        let found = |key: &str| labelled(part, key);
        expect("ibstat", "State", found("State"), "Active")?;
        expect("ibstat", "Physical state", found("Physical state"), "LinkUp")?;
        expect("ibstat", "Rate", found("Rate"), "40")?;
        expect("ibstat", "Base lid", found("Base lid"), lid.to_string())?;
        expect("ibstat", "SM lid", found("SM lid"), "1")?;
    }
    for (port, _) in LIDS {
        let guid = format!("Port GUID: {:#018x}", config.guid + u64::from(port) - 1);
        ensure!(text.contains(&guid), "ibstat does not say {guid:?}");
    }
    Ok(format!("{node}, both ports Active at 40, LIDs 1 and 2"))
}

/// `ibv_devinfo`: what the verbs library says.
pub(super) fn devinfo(guest: &mut Guest) -> Verdict {
    let config = Config::default();
    let text = guest.must("ibv_devinfo", 20)?;
    let head = |key: &str| labelled(&text, key);
    expect("ibv_devinfo", "hca_id", head("hca_id"), "qib0")?;
    expect("ibv_devinfo", "node_guid", head("node_guid"), steps::colons(config.guid))?;
    expect("ibv_devinfo", "vendor_id", head("vendor_id"), "0x1175")?;
    expect("ibv_devinfo", "vendor_part_id", head("vendor_part_id"), 0x7322.to_string())?;
    expect("ibv_devinfo", "phys_port_cnt", head("phys_port_cnt"), "2")?;
    for (port, lid) in LIDS {
        let part = section(&text, &format!("port:\t{port}"), "port:\t");
        let found = |key: &str| labelled(part, key);
        expect("ibv_devinfo", "state", found("state"), "PORT_ACTIVE (4)")?;
        expect("ibv_devinfo", "active_mtu", found("active_mtu"), "4096 (5)")?;
        expect("ibv_devinfo", "port_lid", found("port_lid"), lid.to_string())?;
        expect("ibv_devinfo", "link_layer", found("link_layer"), "InfiniBand")?;
    }
    Ok("both ports PORT_ACTIVE, MTU 4096".to_owned())
}

/// `smpquery`: node and port by directed and by LID-routed packets on VL 15.
pub(super) fn smpquery(guest: &mut Guest) -> Verdict {
    let config = Config::default();
    for (route, lid_port) in [("-D 0", 1), ("-D 0,1", 2), ("2", 2)] {
        let text = guest.must(&format!("smpquery nodeinfo {route}"), 20)?;
        let found = |key: &str| dotted(&text, key);
        expect("smpquery", "Guid", found("Guid"), format!("{:#018x}", config.guid))?;
        expect("smpquery", "DevId", found("DevId"), "0x7322")?;
        expect("smpquery", "Revision", found("Revision"), "0x00060002")?;
        let port_guid = format!("{:#018x}", config.guid + lid_port - 1);
        expect("smpquery", "PortGuid", found("PortGuid"), port_guid)?;
    }
    for (port, lid) in LIDS {
        let text = guest.must(&format!("smpquery portinfo {lid} {port}"), 20)?;
        let found = |key: &str| dotted(&text, key);
        expect("smpquery", "Lid", found("Lid"), lid.to_string())?;
        expect("smpquery", "LinkState", found("LinkState"), "Active")?;
        expect("smpquery", "PhysLinkState", found("PhysLinkState"), "LinkUp")?;
        expect("smpquery", "LinkWidthActive", found("LinkWidthActive"), "4X")?;
        expect("smpquery", "LinkSpeedActive", found("LinkSpeedActive"), "10.0 Gbps")?;
        expect("smpquery", "NeighborMTU", found("NeighborMTU"), "4096")?;
        expect("smpquery", "OperVLs", found("OperVLs"), "VL0-1")?;
    }
    Ok("node by two routes and by LID, port info of both".to_owned())
}

/// `saquery`: the subnet manager's data base, asked through queue pair 1.
pub(super) fn saquery(guest: &mut Guest) -> Verdict {
    let config = Config::default();
    let text = guest.must("saquery", 30)?;
    let records: Vec<&str> = text.split("NodeRecord dump:").skip(1).collect();
    ensure_eq!(records.len(), 2, "the number of node records");
    for ((port, lid), record) in LIDS.into_iter().zip(records) {
        expect("saquery", "lid", dotted(record, "lid"), lid.to_string())?;
        let guid = format!("{:#018x}", config.guid + u64::from(port) - 1);
        expect("saquery", "port_guid", dotted(record, "port_guid"), guid)?;
        expect("saquery", "device_id", dotted(record, "device_id"), "0x7322")?;
    }
    Ok("two node records".to_owned())
}

/// The counters of a port that sysfs shows.
fn counters(guest: &mut Guest, port: u8) -> Result<[u64; 4], Stop> {
    let mut values = [0; 4];
    let names = ["port_xmit_packets", "port_rcv_packets", "port_xmit_data", "port_rcv_data"];
    for (value, name) in values.iter_mut().zip(names) {
        let text = port_file(guest, port, &format!("counters/{name}"))?;
        *value = text.parse().map_err(|_| Stop::Failed(format!("{name} is {text:?}")))?;
    }
    Ok(values)
}

/// What one port counts as sent, the other counts as received, since the cable loses nothing. The subnet manager's
/// packets go on meanwhile, so this is looked at again until a quiet moment is met.
pub(super) fn counters_agree(guest: &mut Guest) -> Verdict {
    let mut differ = String::new();
    for _ in 0..LOOKS {
        let [one, two] = [counters(guest, 1)?, counters(guest, 2)?];
        ensure!(one[0] > 0 && one[2] > 0, "port 1 counts nothing as sent");
        if [one[0], one[2], one[1], one[3]] == [two[1], two[3], two[0], two[2]] {
            return Ok(format!("port 1 sent {} packets and received {}, port 2 the reverse", one[0], one[1]));
        }
        differ = format!("port 1 counts {one:?}, port 2 {two:?}: packets and words sent and received");
    }
    Err(Stop::Failed(differ))
}

/// `perfquery` asks the far port over the wire, on VL 0.
pub(super) fn perfquery(guest: &mut Guest) -> Verdict {
    for (port, lid) in LIDS {
        let text = guest.must(&format!("perfquery {lid} {port}"), 30)?;
        let found = |key: &str| dotted(&text, key);
        expect("perfquery", "PortSelect", found("PortSelect"), port.to_string())?;
        for clean in ["SymbolErrorCounter", "PortRcvErrors", "LinkDownedCounter", "VL15Dropped"] {
            expect("perfquery", clean, found(clean), "0")?;
        }
        for used in ["PortXmitPkts", "PortRcvPkts"] {
            let count = found(used).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            ensure!(count > 0, "perfquery says {used} {:?} on port {port}", found(used));
        }
    }
    Ok("both ports answer, no errors counted".to_owned())
}
