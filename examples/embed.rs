//! A device inside the application's own event loop: no thread of ours, one epoll set of theirs.
//!
//! The loop waits on the device's descriptors, the receiver's, and the next deadline; whatever comes, it turns the
//! device and takes the packets.

use std::os::fd::AsFd;

use qhca::driver::sys::Epoll;
use qhca::{Arrival, Device, Duration, Frame, Goal, Lid, LidAssignment, Payload, Port, Receiver, Runtime};

const PORT: Port = Port::P0;
const LID: u16 = 7;
const PACKETS: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::open("sim")?.no_links().start(Runtime::Manual)?;
    device.set_lid(PORT, LidAssignment::new(Lid(LID), 0)?)?;
    device.set_loopback(PORT, true)?;
    device.set_goal(PORT, Goal::Active)?;
    let mut receiver = device.open_port(PORT)?;
    let mut sender = device.open_sender()?;

    let epoll = Epoll::new()?;
    for (token, fd) in (0..).zip(device.fds()?.iter()) {
        epoll.add(fd.as_fd(), token)?;
    }
    epoll.add(receiver.as_fd(), 100)?;

    let mut sent = 0;
    let mut received = 0;
    let give_up = device.now() + Duration::from_secs(10);
    while received < PACKETS {
        if device.now() > give_up {
            return Err(format!("{received} of {PACKETS} packets came").into());
        }
        // Send when the link is up, one packet a round.
        if sent < PACKETS && device.wait_active(PORT, Duration::ZERO) {
            let header = datagram_header();
            sender.submit(&Frame::new(PORT, &header, Payload::Bytes(&(sent as u32).to_be_bytes())))?;
            sent += 1;
        }
        wait(&epoll, &device)?;
        device.turn(device.now());
        received += take(&mut receiver);
    }
    println!("{received} packets through one event loop");
    println!("closed: {:?}", device.close());
    Ok(())
}

/// Waits until a descriptor is ready or the device's next deadline, at most 5 ms: a look at the receiver that often
/// makes up for interrupts which got lost.
fn wait(epoll: &Epoll, device: &Device) -> std::io::Result<()> {
    let left = device.next_deadline().map_or(5, |at| at.since(device.now()).as_micros().div_ceil(1000));
    let mut ready = Vec::new();
    epoll.wait(left.min(5) as i32, &mut ready)
}

/// Takes what is there; returns how many packets that was.
fn take(receiver: &mut Receiver) -> usize {
    let mut packets = 0;
    receiver.after_wait();
    receiver.poll(64, |arrival| {
        if let Arrival::Packet(packet) = arrival {
            println!("packet {:?}", packet.payload.be_u32(0));
            packets += 1;
        }
    });
    packets
}

/// LRH, BTH and DETH of an unreliable datagram from this port to itself, as they lie in memory.
fn datagram_header() -> [u32; 7] {
    let lid = u32::from(LID);
    [0x0002_0000 | lid, 9 << 16 | lid, 0x6400_FFFF, 2, 0, 0x1234_5678, 2].map(u32::swap_bytes)
}
