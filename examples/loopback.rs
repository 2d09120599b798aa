//! Sends one packet from a port to itself and prints what came back.
//!
//! No cable and no peer are needed: the port's own loopback carries the packet.

use qhca::{Arrival, Device, Duration, Frame, Goal, Lid, LidAssignment, Payload, Port, Runtime};

const PORT: Port = Port::P0;
const LID: u16 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::open("sim")?.no_links().start(Runtime::Threads)?;
    device.set_lid(PORT, LidAssignment::new(Lid(LID), 0)?)?;
    device.set_loopback(PORT, true)?;
    device.set_goal(PORT, Goal::Active)?;
    if !device.wait_active(PORT, Duration::from_secs(10)) {
        return Err(
            format!("{PORT} does not come up: {}", device.link_advice(PORT).unwrap_or_default()).into()
        );
    }

    let mut receiver = device.open_port(PORT)?;
    let mut sender = device.open_sender()?;
    let text = b"there and back";
    let header = datagram_header(text.len().div_ceil(4) as u32);
    sender.submit(&Frame::new(PORT, &header, Payload::Bytes(text)))?;

    let mut payload = Vec::new();
    receiver.receive(Some(Duration::from_secs(10)), 1, |arrival| match arrival {
        Arrival::Packet(packet) => payload = packet.payload.to_vec(),
        other => println!("not a packet: {other:?}"),
    });
    println!("received {} bytes: {}", payload.len(), String::from_utf8_lossy(&payload));
    if payload.get(..text.len()) != Some(text) {
        return Err("the packet did not come back as it was sent".into());
    }
    Ok(())
}

/// LRH, BTH and DETH of an unreliable datagram from this port to itself, as they lie in memory.
fn datagram_header(payload_dwords: u32) -> [u32; 7] {
    let length = 7 + payload_dwords + 1;
    let lid = u32::from(LID);
    [0x0002_0000 | lid, length << 16 | lid, 0x6400_FFFF, 2, 0, 0x1234_5678, 2].map(u32::swap_bytes)
}
