//! A thread that sleeps until something is done: one thread turns two ports, another waits for their events.
//!
//! The port's thread sleeps as well, on the descriptor of its receive context, whenever there is nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qhca::driver::dma::DmaMemory;
use qhca::verbs::channel::channel;
use qhca::verbs::mgmt::SmMode;
use qhca::verbs::port::{PortSetup, Turn};
use qhca::verbs::wire::Service;
use qhca::verbs::{
    Access, Arm, Connect, CqId, Event, MemoryRegion, Mtu, QpAttr, QpInit, QpNumber, QpState, RecvWr, SendOp,
    SendWr, Wc,
};
use qhca::{Duration, Opening, Port, Runtime, VerbsPort, sim_pair};

const WITHIN: Duration = Duration::from_secs(30);
const NAP: Duration = Duration::from_millis(1);

type AnyError = Box<dyn std::error::Error>;

struct End {
    port: VerbsPort,
    region: MemoryRegion,
    cq: CqId,
    qp: QpNumber,
}

fn open(device: Opening, manager: SmMode) -> Result<End, AnyError> {
    let device = device.start(Runtime::Threads)?;
    let mut port = device.open_verbs(Port::P0, &PortSetup { manager, ..PortSetup::default() })?;
    let engine = port.engine();
    let pd = engine.allocate_pd();
    let memory = Arc::new(DmaMemory::new(4096)?);
    let region = engine.register(pd, &memory, 0, 4096, Access::LOCAL_WRITE)?;
    let cq = engine.create_cq(16)?;
    let qp = engine.create_qp(&QpInit::new(Service::Rc, pd, cq))?;
    Ok(End { port, region, cq, qp })
}

fn main() -> Result<(), AnyError> {
    let (left, right) = sim_pair()?;
    let (mut from, mut to) = (open(left, SmMode::On)?, open(right, SmMode::Off)?);
    let begun = from.port.control().now();
    while !(from.port.is_ready() && to.port.is_ready()) {
        let now = from.port.control().now();
        from.port.turn(now);
        to.port.turn(now);
        if now.since(begun) > WITHIN {
            return Err("the cable was not brought up in time".into());
        }
    }
    let (here, there) =
        (Connect::new(from.port.lid(), from.qp, Mtu::B2048), Connect::new(to.port.lid(), to.qp, Mtu::B2048));
    from.port.engine().connect(from.qp, &there, begun)?;
    to.port.engine().connect(to.qp, &here, begun)?;

    let (publisher, mut events) = channel()?;
    to.port.publish_to(publisher);
    let list = [to.region.sge(0, 64)];
    to.port.engine().post_recv(to.qp, &RecvWr { wr_id: 1, sges: &list }, begun)?;
    // Arm, then poll: what was there before raises no event.
    to.port.engine().arm_cq(to.cq, Arm::Next, begun);
    let done = AtomicBool::new(false);

    std::thread::scope(|scope| -> Result<(), AnyError> {
        let waiter = scope.spawn(|| {
            let seen: Vec<Event> = std::iter::from_fn(|| events.wait(WITHIN)).take(2).collect();
            done.store(true, Ordering::Release);
            seen
        });
        let list = [from.region.sge(0, 64)];
        from.port.engine().post_send(from.qp, &SendWr::new(7, SendOp::Send, &list), begun)?;
        let mut told = false;
        while !done.load(Ordering::Acquire) {
            let now = from.port.control().now();
            let idle = from.port.turn(now).is_idle() & to.port.turn(now).is_idle();
            let mut wc = [Wc::EMPTY];
            if to.port.engine().poll_cq(to.cq, &mut wc) > 0 && !told {
                // The message is there. Now the send queue is asked to tell when it has drained.
                let drain = QpAttr { drained_event: Some(true), ..QpAttr::to(QpState::Sqd) };
                to.port.engine().modify_qp(to.qp, &drain, now)?;
                told = true;
            }
            if idle {
                to.port.rest(NAP);
            }
            if now.since(begun) > WITHIN {
                return Err("the events did not come in time".into());
            }
        }
        let seen = waiter.join().map_err(|_| "the waiting thread panicked")?;
        println!("seen: {}", seen.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        match seen[..] {
            [Event::Completion(cq), Event::SendQueueDrained(_)] if cq == to.cq => Ok(()),
            _ => Err("these are not the events that were asked for".into()),
        }
    })
}
