//! Two HCAs and a cable: one sends a thousand packets, the other counts them, each on a thread of its own.

use qhca::{Arrival, Duration, Frame, Lid, LidAssignment, Payload, Port, Runtime, SubmitError, sim_pair};

const PORT: Port = Port::P0;
const PACKETS: u32 = 1000;
const PAYLOAD_DWORDS: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (left, right) = sim_pair()?;
    let left = left.static_lid(PORT, LidAssignment::new(Lid(1), 0)?).start(Runtime::Threads)?;
    let right = right.static_lid(PORT, LidAssignment::new(Lid(2), 0)?).start(Runtime::Threads)?;
    for device in [&left, &right] {
        if !device.wait_active(PORT, Duration::from_secs(10)) {
            return Err(format!("{}: {}", device.name(), device.link_advice(PORT).unwrap_or_default()).into());
        }
    }

    let mut receiver = right.open_port(PORT)?;
    let mut sender = left.open_sender()?;
    let sending = std::thread::spawn(move || {
        for n in 0..PACKETS {
            let payload = [n; PAYLOAD_DWORDS];
            let header = datagram_header();
            let frame = Frame::new(PORT, &header, Payload::Dwords(&payload));
            // A full chip says so and never waits; an event tells when it has room. Here another try will do.
            while sender.submit(&frame) == Err(SubmitError::WouldBlock) {
                std::thread::yield_now();
            }
        }
    });

    let (mut packets, mut bytes, mut in_order) = (0, 0, true);
    while packets < PACKETS {
        let drained = receiver.receive(Some(Duration::from_secs(10)), 64, |arrival| {
            if let Arrival::Packet(packet) = arrival {
                in_order &= packet.payload.be_u32(0).map(u32::swap_bytes) == Some(packets);
                packets += 1;
                bytes += packet.payload.len();
            }
        });
        if drained.entries == 0 {
            return Err(format!("{packets} of {PACKETS} packets came").into());
        }
    }
    sending.join().map_err(|_panic| "the sending thread panicked")?;
    println!("{packets} packets, {bytes} bytes, in order: {in_order}");
    let total = right.counters()?.port_total(PORT, "RxPkt").unwrap_or_default();
    println!("the chip counted {total} data packets");
    if in_order { Ok(()) } else { Err("packets came out of order".into()) }
}

/// LRH, BTH and DETH of an unreliable datagram from LID 1 to LID 2, as they lie in memory.
fn datagram_header() -> [u32; 7] {
    let length = 7 + PAYLOAD_DWORDS as u32 + 1;
    [0x0002_0002, length << 16 | 1, 0x6400_FFFF, 2, 0, 0x1234_5678, 2].map(u32::swap_bytes)
}
