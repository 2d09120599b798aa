//! What can be seen of a world, as JSON.

use super::order::{Hca, Place};
use crate::chip::{Chip, Drop};
use crate::fabric::{LineStats, Side};
use crate::world::{NodeId, World, WorldHost};
use qhca_regs::access::PortReg;
use qhca_regs::map::{counter, port};
use qhca_regs::{BAR_LEN_BYTES, Instant, Port, map};
use serde_json::{Map, Value, json};

/// The offset of the register that is called `name`, or whose offset `name` is in hex.
pub fn register_named(name: &str) -> Option<u32> {
    if let Some(digits) = name.strip_prefix("0x") {
        let offset = u32::from_str_radix(digits, 16).ok()?;
        return (offset < BAR_LEN_BYTES && offset.is_multiple_of(8)).then_some(offset);
    }
    map::all().find(|placed| placed.to_string() == name).map(|placed| placed.offset)
}

/// How everything is at `now`.
pub(super) fn state<H: WorldHost>(world: &mut World<H>, now: Instant) -> Value {
    let nodes: Vec<NodeId> = world.nodes().collect();
    let cards: Vec<Value> = nodes.iter().map(|node| card(world, *node, now)).collect();
    json!({ "now_ns": world.now().as_nanos(), "cards": cards })
}

fn name_of(node: NodeId) -> String {
    Hca::new(node.index()).map_or_else(|| node.index().to_string(), |hca| hca.to_string())
}

fn card<H: WorldHost>(world: &mut World<H>, node: NodeId, now: Instant) -> Value {
    let config = world.chip(node).config().clone();
    let mine: Vec<Port> = Port::ALL.into_iter().filter(|port| config.board.speeds(*port) != 0).collect();
    let ports: Vec<Value> = mine.iter().map(|port| port_state(world, node, *port, now)).collect();
    let chip = world.chip(node);
    let totals = chip.log().totals();
    let unmodelled: Vec<Value> = chip
        .unmodelled()
        .map(|(name, offset, writes)| json!({ "name": name, "offset": format!("{offset:#x}"), "writes": writes }))
        .collect();
    json!({
        "card": name_of(node),
        "board": config.board.name(),
        "guid": format!("{:#018x}", config.guid),
        "serial": config.serial,
        "present": chip.is_present(),
        "accesses": {
            "reads": totals.reads, "writes": totals.writes, "bursts": totals.bursts,
            "interrupts": totals.messages, "line_changes": totals.line_changes,
        },
        "dropped": chip.account().total_dropped(),
        "ports": ports,
        "unmodelled": unmodelled,
    })
}

/// Reads a port's register as software does, but only on a card that is there.
fn peek<H: WorldHost, V, A>(
    world: &mut World<H>,
    node: NodeId,
    port: Port,
    reg: PortReg<V, A>,
    now: Instant,
) -> u64 {
    world.read(node, reg.port(port).offset(), now)
}

fn port_state<H: WorldHost>(world: &mut World<H>, node: NodeId, port: Port, now: Instant) -> Value {
    let status = port::IbcStatusA(peek(world, node, port, port::IBC_STATUS_A, now));
    let address = port::IbcCtrlB(peek(world, node, port, port::IBC_CTRL_B, now));
    let counters = [
        ("tx_packets", peek(world, node, port, counter::TX_DATA_PKT_CNT, now)),
        ("rx_packets", peek(world, node, port, counter::RX_DATA_PKT_CNT, now)),
    ];
    let chip = world.chip(node);
    let mut report = json!({
        "port": port.index() + 1,
        "link": link_word(status.link_state()),
        "training_state": status.link_training_state(),
        "lid": address.ib_dlid(),
        "module": chip.has_module(port),
        "cable": cable(world, node, port),
        "dropped": dropped(chip, port),
    });
    for (name, value) in counters {
        report[name] = value.into();
    }
    report
}

const fn link_word(state: u8) -> &'static str {
    match state {
        0 => "down",
        1 => "init",
        2 => "armed",
        3 => "active",
        _ => "unknown",
    }
}

fn dropped(chip: &Chip, port: Port) -> Value {
    let counted = Drop::ALL.into_iter().filter_map(|why| match chip.account().dropped(port, why) {
        0 => None,
        count => Some((why.name().to_owned(), count.into())),
    });
    Value::Object(counted.collect::<Map<String, Value>>())
}

fn cable<H: WorldHost>(world: &World<H>, node: NodeId, port: Port) -> Value {
    let Some((cable, side)) = world.cable_at(node, port) else { return Value::Null };
    let (far_node, far_port) = world.cable_ends(cable)[side.other().index()];
    let to = Hca::new(far_node.index()).map(|hca| Place { hca, port: far_port }.to_string());
    let laid = world.cable(cable);
    json!({ "to": to, "plugged": laid.is_connected(), "sent": line(laid.stats(side)) })
}

/// What happened to the packets that one end of a cable sent.
fn line(stats: LineStats) -> Value {
    let LineStats { entered, arrived, lost, duplicated, flipped, overrun, cut } = stats;
    json!({
        "entered": entered, "arrived": arrived, "lost": lost, "duplicated": duplicated,
        "flipped": flipped, "overrun": overrun, "cut": cut,
    })
}

/// Packets that arrived at the end of any cable since the start.
pub(crate) fn packets<H: WorldHost>(world: &World<H>) -> u64 {
    let arrived = |cable| Side::BOTH.map(|side| world.cable(cable).stats(side).arrived).iter().sum::<u64>();
    world.cables().map(arrived).sum()
}
