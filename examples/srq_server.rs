//! A server whose clients share one receive queue: eight connections, sixteen receives for all of them, refilled when the
//! limit event says that they run low.

use std::sync::Arc;

use qhca::driver::dma::DmaMemory;
use qhca::verbs::mgmt::SmMode;
use qhca::verbs::port::{PortSetup, Turn};
use qhca::verbs::wire::Service;
use qhca::verbs::{
    Access, Connect, Event, MemoryRegion, Mtu, QpInit, QpNumber, RecvWr, SendOp, SendWr, SrqId, Wc, WcStatus,
};
use qhca::{Duration, Lid, Opening, Port, Runtime, VerbsPort, sim_pair};

const CLIENTS: usize = 8;
const MESSAGES: usize = 40;
const RECEIVES: u64 = 16;
const LIMIT: u32 = 6;
const BYTES: u32 = 256;
const WITHIN: Duration = Duration::from_secs(30);

type AnyError = Box<dyn std::error::Error>;

fn open(device: Opening, manager: SmMode) -> Result<VerbsPort, AnyError> {
    let device = device.start(Runtime::Threads)?;
    Ok(device.open_verbs(Port::P0, &PortSetup { manager, ..PortSetup::default() })?)
}

/// Posts receives to the shared queue, the first `count` slots.
fn refill(
    port: &mut VerbsPort,
    srq: SrqId,
    region: &MemoryRegion,
    slots: impl Iterator<Item = u64>,
) -> Result<(), AnyError> {
    for slot in slots {
        let list = [region.sge(slot * u64::from(BYTES), BYTES)];
        port.engine().post_srq_recv(srq, &RecvWr { wr_id: slot, sges: &list })?;
    }
    port.engine().set_srq_limit(srq, LIMIT)?;
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let (left, right) = sim_pair()?;
    let (mut server, mut client) = (open(left, SmMode::On)?, open(right, SmMode::Off)?);
    let begun = server.control().now();
    while !(server.is_ready() && client.is_ready()) {
        let now = server.control().now();
        server.turn(now);
        client.turn(now);
        if now.since(begun) > WITHIN {
            return Err("the cable was not brought up in time".into());
        }
    }

    let engine = server.engine();
    let pd = engine.allocate_pd();
    let memory = Arc::new(DmaMemory::new(RECEIVES as usize * BYTES as usize)?);
    let region = engine.register(pd, &memory, 0, memory.len_bytes(), Access::LOCAL_WRITE)?;
    let cq = engine.create_cq(64)?;
    let srq = engine.create_srq(pd, RECEIVES as u32, 1)?;
    let init = QpInit { srq: Some(srq), max_recv: 0, ..QpInit::new(Service::Rc, pd, cq) };
    let serving: Vec<QpNumber> = (0..CLIENTS).map(|_| engine.create_qp(&init)).collect::<Result<_, _>>()?;

    let engine = client.engine();
    let pd = engine.allocate_pd();
    let own = Arc::new(DmaMemory::new(4096)?);
    let from = engine.register(pd, &own, 0, 4096, Access::empty())?;
    let sent_cq = engine.create_cq((CLIENTS * MESSAGES) as u32)?;
    let init = QpInit::new(Service::Rc, pd, sent_cq);
    let asking: Vec<QpNumber> = (0..CLIENTS).map(|_| engine.create_qp(&init)).collect::<Result<_, _>>()?;

    let (here, there): (Lid, Lid) = (server.lid(), client.lid());
    for (serving, asking) in serving.iter().zip(&asking) {
        server.engine().connect(*serving, &Connect::new(there, *asking, Mtu::B2048), begun)?;
        client.engine().connect(*asking, &Connect::new(here, *serving, Mtu::B2048), begun)?;
    }
    refill(&mut server, srq, &region, 0..RECEIVES)?;
    for _ in 0..MESSAGES {
        for qp in &asking {
            let list = [from.sge(0, 100)];
            client.engine().post_send(*qp, &SendWr::new(0, SendOp::Send, &list), begun)?;
        }
    }

    let (mut served, mut sent, mut limits, mut used) = (0, 0, 0, Vec::new());
    while served < CLIENTS * MESSAGES || sent < CLIENTS * MESSAGES {
        let now = server.control().now();
        server.turn(now);
        client.turn(now);
        let mut wcs = [Wc::EMPTY; 16];
        let count = server.engine().poll_cq(cq, &mut wcs);
        for wc in &wcs[..count] {
            if wc.status != WcStatus::Success {
                return Err(server.engine().explain(wc).into());
            }
            used.push(wc.wr_id);
        }
        served += count;
        // The limit is told once; it is set again with each refill.
        while let Some(event) = server.engine().poll_event() {
            if event == Event::SrqLimitReached(srq) {
                limits += 1;
                refill(&mut server, srq, &region, used.drain(..))?;
            }
        }
        let count = client.engine().poll_cq(sent_cq, &mut wcs);
        if let Some(wc) = wcs[..count].iter().find(|wc| wc.status != WcStatus::Success) {
            return Err(client.engine().explain(wc).into());
        }
        sent += count;
        if now.since(begun) > WITHIN {
            return Err(format!("{served} of {} messages were served in time", CLIENTS * MESSAGES).into());
        }
    }
    println!(
        "{served} messages of {CLIENTS} clients in {RECEIVES} receives; the limit was reached {limits} times"
    );
    Ok(())
}
