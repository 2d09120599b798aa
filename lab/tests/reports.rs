//! Field reports that need a whole device under load: a reader that stops, and interrupts that vanish.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

use qhca_driver::link::{Goal, LidAssignment, Logical};
use qhca_driver::runtime::{Device, Opening, Receiver, Runtime};
use qhca_driver::rx::Arrival;
use qhca_regs::{Duration, Lid, Port};
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Config, Meta};
use qhca_sim::fabric::CableConfig;
use qhca_sim::host::IrqFaults;
use qhca_sim::vtime::Seed;
use qhca_sim::world::{NodeId, World};

/// TIMEOUT: a busy machine may take a thousand times what a packet takes.
const PATIENCE: Duration = Duration::from_secs(10);
const PAYLOAD_BYTES: usize = 256;

/// A two-port card that is up, both links ACTIVE, and the card at the other end of its cables.
struct Up {
    world: SimWorld,
    node: NodeId,
    device: Device<SimDevice>,
    _peer: Device<SimDevice>,
}

fn up() -> Up {
    let mut world = World::new(Seed(1), false);
    let guid = 0x0011_7500_0000_2000;
    let nodes = [world.add(Config::default()), world.add(Config { guid, ..Config::default() })];
    for port in Port::ALL {
        world.connect((nodes[0], port), (nodes[1], port), CableConfig::default());
    }
    let world = SimWorld::start(world).expect("one more thread");
    let [device, peer] = nodes.map(|node| {
        let mut opening = Opening::new(world.open(node).expect("nobody has it open")).cpus(0);
        for port in Port::ALL {
            let lid = LidAssignment::new(lid(node, port), 0).expect("a unicast LID");
            opening = opening.goal(port, Some(Goal::Active)).static_lid(port, lid);
        }
        opening.start(Runtime::Threads).expect("it comes up")
    });
    for port in Port::ALL {
        let active = device.wait_for_link(port, PATIENCE, |status| status.logical() == Logical::Active);
        assert!(active, "{port}: {:?}", device.link_advice(port));
    }
    Up { world, node: nodes[0], device, _peer: peer }
}

fn lid(node: NodeId, port: Port) -> Lid {
    Lid((1 + 2 * node.index() + port.index()) as u16)
}

impl Up {
    /// A numbered packet for the port's kernel context, put on the port as if it came from the cable.
    fn deliver(&self, port: Port, number: u32) {
        let mut packet = Vec::with_capacity(20 + PAYLOAD_BYTES);
        let len_dwords = ((20 + PAYLOAD_BYTES) / 4 + 1) as u16;
        packet.extend([0x00, 0x02]);
        packet.extend(lid(self.node, port).0.to_be_bytes());
        packet.extend(len_dwords.to_be_bytes());
        packet.extend([0, 9]);
        // UC SEND only with the default P_Key, to an ordinary queue pair.
        packet.extend([0x24, 0, 0xFF, 0xFF, 0, 0, 0, 0x10]);
        packet.extend(number.to_be_bytes());
        packet.resize(20 + PAYLOAD_BYTES, 0x5A);
        packet[20..24].copy_from_slice(&number.to_be_bytes());
        self.world.with(|world| {
            let now = world.now();
            let (chip, host) = world.chip_mut(self.node);
            chip.deliver(port, &packet, Meta::GOOD, now, host);
        });
    }

    fn overflowed(&self, receiver: &Receiver<SimDevice>) -> u64 {
        let ctxt = receiver.context().ctxt();
        self.world.with(|world| world.chip(self.node).account().overflowed(ctxt))
    }
}

/// Takes one packet; its number, or nothing if none came in time or the entry told of a lost one.
fn take(receiver: &mut Receiver<SimDevice>) -> Option<u32> {
    let mut number = None;
    receiver.receive(Some(PATIENCE), 1, |arrival| {
        if let Arrival::Packet(packet) = arrival {
            number = packet.payload.be_u32(0);
        }
    });
    number
}

/// B22: the reader of one context stops until its queues are full and beyond; what is lost is counted to the packet, the
/// other context loses nothing meanwhile, and the first goes on once its reader does. There is no transport that would
/// send again what was lost.
#[test]
fn stopped_reader_loses_its_own_packets_only_and_goes_on_afterwards() {
    const FLOOD: u32 = 6000;
    const BESIDE: u32 = 200;
    let up = up();
    let [mut stopped, mut reading] = Port::ALL.map(|port| up.device.open_port(port).expect("free"));
    for number in 0..FLOOD {
        up.deliver(Port::P0, number);
        if number % (FLOOD / BESIDE) == 0 {
            let own = number / (FLOOD / BESIDE);
            up.deliver(Port::P1, own);
            assert_eq!(take(&mut reading), Some(own), "a neighbour's packet was lost or doubled");
        }
    }
    assert_eq!(up.overflowed(&reading), 0);
    let lost = up.overflowed(&stopped);
    assert!(lost > 0, "the flood overflows the context");
    let mut came = Vec::new();
    while stopped
        .poll(64, |arrival| {
            if let Arrival::Packet(packet) = arrival {
                came.extend(packet.payload.be_u32(0));
            }
        })
        .entries
        > 0
    {}
    assert!(came.is_sorted_by(|a, b| a < b), "no packet twice, none out of order");
    assert_eq!(came.len() as u64 + lost, u64::from(FLOOD), "each packet came or was counted as lost");
    let counted = up.device.counters().expect("the device answers").overflow(stopped.context().ctxt());
    assert_eq!(counted, lost, "the driver's account");
    for number in FLOOD..FLOOD + 100 {
        up.deliver(Port::P0, number);
        assert_eq!(take(&mut stopped), Some(number), "reception goes on");
    }
}

/// B40: every second message vanishes, as while a daemon moves affinities. A reader that sleeps finds its packet all the
/// same when it looks around, and reception never stops.
#[test]
fn packets_whose_interrupts_vanish_are_received_all_the_same() {
    const PACKETS: u32 = 200;
    let up = up();
    let mut receiver = up.device.open_port(Port::P0).expect("free");
    up.world.with(|world| {
        world.host_mut(up.node).irqs_mut().set_faults(IrqFaults { lose_one_in: 2, duplicate_one_in: 0 });
    });
    let (taken, came) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..PACKETS {
                taken.send(take(&mut receiver)).expect("the test waits for it");
            }
        });
        for number in 0..PACKETS {
            // The reader sleeps by then.
            std::thread::sleep(std::time::Duration::from_micros(300));
            up.deliver(Port::P0, number);
            assert_eq!(came.recv(), Ok(Some(number)));
        }
    });
}
