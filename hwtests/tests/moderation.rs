//! The driver on the simulated card: receive moderation reaches the chip's registers.

use qhca_driver::link::{Goal, LidAssignment, Logical};
use qhca_driver::runtime::{Device, Opening, Receiver, Runtime, Transmitter};
use qhca_driver::rx::Arrival;
use qhca_driver::tx::{Frame, Payload};
use qhca_irq::moderation::{Fixed, RcvSetting};
use qhca_regs::map::device;
use qhca_regs::{Duration, Lid, Port};
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::Config;
use qhca_sim::vtime::Seed;
use qhca_sim::world::World;

const PATIENCE: Duration = Duration::from_secs(10);

/// A card whose first port talks to itself.
fn card() -> (Device<SimDevice>, Receiver<SimDevice>, Transmitter<SimDevice>) {
    let mut world = World::new(Seed(1), false);
    let node = world.add(Config::default());
    let world = SimWorld::start(world).expect("a thread");
    let backend = world.open(node).expect("a card that nobody has open");
    let device = Opening::new(backend).no_links().start(Runtime::Threads).expect("up");
    device.set_lid(Port::P0, LidAssignment::new(Lid(1), 0).expect("a unicast LID")).expect("a port");
    device.set_loopback(Port::P0, true).expect("a port");
    device.set_goal(Port::P0, Goal::Active).expect("a port");
    let active = device.wait_for_link(Port::P0, PATIENCE, |status| status.logical() == Logical::Active);
    assert!(active, "{:?}", device.link_status(Port::P0));
    let receiver = device.open_port(Port::P0).expect("free");
    let sender = device.open_sender().expect("free");
    (device, receiver, sender)
}

/// Sends one packet and takes it.
fn exchange(receiver: &mut Receiver<SimDevice>, sender: &mut Transmitter<SimDevice>) {
    const HEADER_DWORDS: u32 = 5;
    // LRH (VL 0, BTH next, DLID 1; length, SLID 1), BTH (RC send only, default P_Key; QP 64; PSN 0).
    let header = [0x0002_0001, (HEADER_DWORDS + 2) << 16 | 1, 0x0400_FFFF, 0x40, 0].map(u32::swap_bytes);
    sender.submit(&Frame::new(Port::P0, &header, Payload::Dwords(&[7]))).expect("a free buffer");
    let mut came = 0;
    while came == 0 {
        let drained = receiver.receive(Some(PATIENCE), 64, |arrival| {
            assert!(matches!(arrival, Arrival::Packet(_)), "{arrival:?}");
            came += 1;
        });
        assert!(drained.entries > 0, "the packet did not come");
    }
    // Lets the interrupt of a packet that was found without it ring before the next one.
    receiver.wait(Some(Duration::from_millis(2)));
}

#[test]
fn lone_packets_halve_the_timer_and_a_fixed_policy_takes_over_at_the_next_arming() {
    let (device, mut receiver, mut sender) = card();
    let timer = device::RCV_AVAIL_TIMEOUT.ctxt(receiver.context().ctxt());
    let reload = |device: &Device<SimDevice>| timer.read(&device.bar()).rcv_avail_to_reload();
    assert_eq!(reload(&device), 375);
    // Interrupts reach this thread through another one: how many packets it takes is not known, only that it ends.
    let until = device.now() + PATIENCE;
    while reload(&device) > 2 {
        exchange(&mut receiver, &mut sender);
        assert!(device.now() < until, "the timer still is {}", reload(&device));
    }
    receiver.moderate_by(Fixed(RcvSetting { timeout_ticks: 123, count_packets: 0 }));
    assert_eq!(receiver.context().moderation().count_packets, 1, "0 would mean never");
    exchange(&mut receiver, &mut sender);
    assert_eq!(reload(&device), 123);
}
