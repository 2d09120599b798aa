//! RDMA WRITE between two HCAs: a message is put into the peer's memory, and a WRITE with immediate tells it so.
//!
//! Both ends run in this thread; on two machines each would be turned by its own.

use std::sync::Arc;

use qhca::driver::dma::DmaMemory;
use qhca::verbs::wire::Service;
use qhca::verbs::{
    Access, AddressVector, Along, Bound, Config, CqId, Engine, MemoryRegion, Mtu, Psn, QpAttr, QpInit,
    QpNumber, QpState, RecvWr, RnrTimer, SendOp, SendWr, Wc, WcStatus,
};
use qhca::{Device, Duration, Lid, LidAssignment, Port, Receiver, Runtime, Transmitter, sim_pair};

const PORT: Port = Port::P0;
const BYTES: u32 = 1 << 20;

type AnyError = Box<dyn std::error::Error>;

/// One end of the connection.
struct End {
    device: Device,
    bound: Bound<Receiver, Transmitter>,
    memory: Arc<DmaMemory>,
    region: MemoryRegion,
    cq: CqId,
    qp: QpNumber,
}

/// An engine on the port's own context, a queue pair, and a megabyte of registered memory.
fn open(device: Device, lid: u16) -> Result<End, AnyError> {
    let port = qhca::verbs::Port { lid: Lid(lid), ..qhca::verbs::Port::default() };
    let mut engine = Engine::new(Config::default(), port);
    let pd = engine.allocate_pd();
    let memory = Arc::new(DmaMemory::new(BYTES as usize)?);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = engine.register(pd, &memory, 0, BYTES as usize, access)?;
    let cq = engine.create_cq(256)?;
    let qp = engine.create_qp(&QpInit::new(Service::Rc, pd, cq))?;
    let bound = Bound::new(engine, PORT, device.open_port(PORT)?, device.open_sender()?);
    Ok(End { device, bound, memory, region, cq, qp })
}

/// From RESET to RTS. The peer's LID and queue pair number came from it by some other way.
fn connect(end: &mut End, peer_lid: u16, peer_qp: QpNumber) -> Result<(), AnyError> {
    let init = QpAttr {
        state: Some(QpState::Init),
        access: Some(Access::REMOTE_WRITE),
        pkey_index: Some(0),
        port: Some(1),
        ..QpAttr::default()
    };
    let rtr = QpAttr {
        state: Some(QpState::Rtr),
        address: Some(AddressVector { dlid: Lid(peer_lid), ..AddressVector::default() }),
        path_mtu: Some(Mtu::B2048),
        dest_qp: Some(peer_qp),
        rq_psn: Some(Psn::new(0)),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: Some(RnrTimer::Code(12)),
        ..QpAttr::default()
    };
    let rts = QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(Psn::new(0)),
        timeout: Some(14),
        retry_count: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(4),
        ..QpAttr::default()
    };
    let now = end.device.now();
    for attr in [init, rtr, rts] {
        end.bound.engine.modify_qp(end.qp, &attr, now)?;
    }
    Ok(())
}

/// Turns the end once and takes a completion if there is one.
fn turn(end: &mut End) -> Result<Option<Wc>, AnyError> {
    let now = end.device.now();
    end.bound.turn(now);
    let mut wc = [Wc::EMPTY];
    if end.bound.engine.poll_cq(end.cq, &mut wc) == 0 {
        return Ok(None);
    }
    if wc[0].status != WcStatus::Success {
        return Err(end.bound.engine.explain(&wc[0]).into());
    }
    Ok(Some(wc[0]))
}

fn main() -> Result<(), AnyError> {
    let (left, right) = sim_pair()?;
    let left = left.static_lid(PORT, LidAssignment::new(Lid(1), 0)?).start(Runtime::Threads)?;
    let right = right.static_lid(PORT, LidAssignment::new(Lid(2), 0)?).start(Runtime::Threads)?;
    for device in [&left, &right] {
        if !device.wait_active(PORT, Duration::from_secs(10)) {
            return Err(format!("{}: {}", device.name(), device.link_advice(PORT).unwrap_or_default()).into());
        }
    }
    let (mut left, mut right) = (open(left, 1)?, open(right, 2)?);
    connect(&mut left, 2, right.qp)?;
    connect(&mut right, 1, left.qp)?;

    let message: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    left.memory.copy_in(0, &message);
    let now = right.device.now();
    right.bound.engine.post_recv(right.qp, &RecvWr { wr_id: 7, sges: &[] }, now)?;
    let op = SendOp::WriteImmediate { addr: right.region.addr, rkey: right.region.rkey, immediate: 0xC0FFEE };
    let list = [left.region.sge(0, BYTES)];
    let begun = left.device.now();
    left.bound.engine.post_send(left.qp, &SendWr::new(1, op, &list), begun)?;

    let deadline = begun + Duration::from_secs(30);
    let (mut sent, mut told) = (None, None);
    while sent.is_none() || told.is_none() {
        sent = sent.or(turn(&mut left)?);
        told = told.or(turn(&mut right)?);
        if left.device.now() > deadline {
            return Err("the message did not arrive in time".into());
        }
    }
    let took = left.device.now() - begun;
    let along = told.as_ref().and_then(Wc::detail).map(|detail| detail.along);
    println!("{BYTES} bytes written in {took}; the peer was told {along:?}");
    let mut seen = vec![0; BYTES as usize];
    right.memory.copy_out(0, &mut seen);
    if seen != message || along != Some(Along::Immediate(0xC0FFEE)) {
        return Err("what arrived is not what was sent".into());
    }
    Ok(())
}
