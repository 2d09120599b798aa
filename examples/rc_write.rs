//! RDMA WRITE between two HCAs: a message is put into the peer's memory, and a WRITE with immediate tells it so.
//!
//! Both ends run in this thread; on two machines each would be turned by its own.

use std::sync::Arc;

use qhca::driver::dma::DmaMemory;
use qhca::verbs::mgmt::SmMode;
use qhca::verbs::port::{PortSetup, Turn};
use qhca::verbs::wire::Service;
use qhca::verbs::{
    Access, Along, Connect, CqId, MemoryRegion, Mtu, QpInit, QpNumber, RecvWr, SendOp, SendWr, Wc, WcStatus,
};
use qhca::{Device, Duration, Opening, Port, Runtime, VerbsPort, sim_pair};

const PORT: Port = Port::P0;
const BYTES: u32 = 1 << 20;
const WITHIN: Duration = Duration::from_secs(30);

type AnyError = Box<dyn std::error::Error>;

/// One end of the connection.
struct End {
    port: VerbsPort,
    memory: Arc<DmaMemory>,
    region: MemoryRegion,
    cq: CqId,
    qp: QpNumber,
}

/// A device's first port in use. The micro subnet manager of one of the two brings the cable up.
fn open(device: Opening, manager: SmMode) -> Result<VerbsPort, AnyError> {
    let device: Device = device.start(Runtime::Threads)?;
    Ok(device.open_verbs(PORT, &PortSetup { manager, ..PortSetup::default() })?)
}

/// A queue pair, and a megabyte of registered memory.
fn prepare(mut port: VerbsPort) -> Result<End, AnyError> {
    let engine = port.engine();
    let pd = engine.allocate_pd();
    let memory = Arc::new(DmaMemory::new(BYTES as usize)?);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = engine.register(pd, &memory, 0, BYTES as usize, access)?;
    let cq = engine.create_cq(256)?;
    let qp = engine.create_qp(&QpInit::new(Service::Rc, pd, cq))?;
    Ok(End { port, memory, region, cq, qp })
}

/// Turns the end once and takes a completion if there is one.
fn turn(end: &mut End) -> Result<Option<Wc>, AnyError> {
    let now = end.port.control().now();
    end.port.turn(now);
    let mut wc = [Wc::EMPTY];
    if end.port.engine().poll_cq(end.cq, &mut wc) == 0 {
        return Ok(None);
    }
    if wc[0].status != WcStatus::Success {
        return Err(end.port.engine().explain(&wc[0]).into());
    }
    Ok(Some(wc[0]))
}

fn main() -> Result<(), AnyError> {
    let (left, right) = sim_pair()?;
    let mut ports = [open(left, SmMode::On)?, open(right, SmMode::Off)?];
    let begun = ports[0].control().now();
    while !ports.iter().all(VerbsPort::is_ready) {
        let now = ports[0].control().now();
        for port in &mut ports {
            port.turn(now);
        }
        if now.since(begun) > WITHIN {
            return Err("the cable was not brought up in time".into());
        }
    }
    let [left, right] = ports;
    let (mut left, mut right) = (prepare(left)?, prepare(right)?);
    // What each end must know of the other came by some other way.
    let to_right = Connect::new(right.port.lid(), right.qp, Mtu::B2048);
    let to_left = Connect::new(left.port.lid(), left.qp, Mtu::B2048);
    let now = left.port.control().now();
    left.port.engine().connect(left.qp, &to_right, now)?;
    right.port.engine().connect(right.qp, &to_left, now)?;

    let message: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    left.memory.copy_in(0, &message);
    right.port.engine().post_recv(right.qp, &RecvWr { wr_id: 7, sges: &[] }, now)?;
    let op = SendOp::WriteImmediate { addr: right.region.addr, rkey: right.region.rkey, immediate: 0xC0FFEE };
    let list = [left.region.sge(0, BYTES)];
    let begun = left.port.control().now();
    left.port.engine().post_send(left.qp, &SendWr::new(1, op, &list), begun)?;

    let (mut sent, mut told) = (None, None);
    while sent.is_none() || told.is_none() {
        sent = sent.or(turn(&mut left)?);
        told = told.or(turn(&mut right)?);
        if left.port.control().now().since(begun) > WITHIN {
            return Err("the message did not arrive in time".into());
        }
    }
    let took = left.port.control().now() - begun;
    let along = told.as_ref().and_then(Wc::detail).map(|detail| detail.along);
    println!("{BYTES} bytes written in {took}; the peer was told {along:?}");
    let mut seen = vec![0; BYTES as usize];
    right.memory.copy_out(0, &mut seen);
    if seen != message || along != Some(Along::Immediate(0xC0FFEE)) {
        return Err("what arrived is not what was sent".into());
    }
    Ok(())
}
