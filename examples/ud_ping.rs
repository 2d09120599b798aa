//! Datagrams between two HCAs: a question, an answer to whoever sent it, and how long that took.

use std::sync::Arc;

use qhca::driver::dma::DmaMemory;
use qhca::verbs::mgmt::SmMode;
use qhca::verbs::port::{PortSetup, Turn};
use qhca::verbs::wire::Service;
use qhca::verbs::{
    Access, AddressVector, CqId, Destination, MemoryRegion, Psn, QpInit, QpNumber, RecvWr, SendOp, SendWr,
    Wc, WcOpcode,
};
use qhca::{Duration, Opening, Port, Runtime, VerbsPort, sim_pair};

const QKEY: u32 = 0x1111_1111;
/// The first 40 bytes of a received datagram are its GRH's.
const GRH: u64 = 40;
const WITHIN: Duration = Duration::from_secs(30);

type AnyError = Box<dyn std::error::Error>;

struct End {
    port: VerbsPort,
    memory: Arc<DmaMemory>,
    region: MemoryRegion,
    cq: CqId,
    qp: QpNumber,
}

impl End {
    fn open(device: Opening, manager: SmMode) -> Result<Self, AnyError> {
        let device = device.start(Runtime::Threads)?;
        let mut port = device.open_verbs(Port::P0, &PortSetup { manager, ..PortSetup::default() })?;
        let engine = port.engine();
        let pd = engine.allocate_pd();
        let memory = Arc::new(DmaMemory::new(4096)?);
        let region = engine.register(pd, &memory, 0, 4096, Access::LOCAL_WRITE)?;
        let cq = engine.create_cq(16)?;
        let qp = engine.create_qp(&QpInit::new(Service::Ud, pd, cq))?;
        let now = device.now();
        port.engine().open_datagrams(qp, QKEY, Psn::new(0), now)?;
        Ok(Self { port, memory, region, cq, qp })
    }

    /// A receive of up to 64 bytes, at byte 1024 of the memory.
    fn receive(&mut self) -> Result<(), AnyError> {
        let now = self.port.control().now();
        let list = [self.region.sge(1024, GRH as u32 + 64)];
        Ok(self.port.engine().post_recv(self.qp, &RecvWr { wr_id: 0, sges: &list }, now)?)
    }

    fn send(&mut self, text: &[u8], address: AddressVector, qp: QpNumber) -> Result<(), AnyError> {
        self.memory.copy_in(0, text);
        let now = self.port.control().now();
        let list = [self.region.sge(0, text.len() as u32)];
        let to = Some(Destination { address, qp, qkey: QKEY });
        Ok(self.port.engine().post_send(
            self.qp,
            &SendWr { to, ..SendWr::new(0, SendOp::Send, &list) },
            now,
        )?)
    }

    /// Turns the port; gives a receive that is done.
    fn turn(&mut self) -> Option<Wc> {
        let now = self.port.control().now();
        self.port.turn(now);
        let mut wcs = [Wc::EMPTY; 4];
        let count = self.port.engine().poll_cq(self.cq, &mut wcs);
        wcs[..count]
            .iter()
            .copied()
            .find(|wc| wc.detail().is_some_and(|detail| detail.opcode == WcOpcode::Recv))
    }
}

fn main() -> Result<(), AnyError> {
    let (left, right) = sim_pair()?;
    let (mut asks, mut answers) = (End::open(left, SmMode::On)?, End::open(right, SmMode::Off)?);
    let begun = asks.port.control().now();
    while !(asks.port.is_ready() && answers.port.is_ready()) {
        asks.turn();
        answers.turn();
        if asks.port.control().now().since(begun) > WITHIN {
            return Err("the cable was not brought up in time".into());
        }
    }
    let to = AddressVector { dlid: answers.port.lid(), ..AddressVector::default() };
    for round in 1..=5 {
        asks.receive()?;
        answers.receive()?;
        let begun = asks.port.control().now();
        asks.send(b"who is there?", to, answers.qp)?;
        loop {
            if let Some(question) = answers.turn() {
                // The completion says who asked.
                let sender = question.detail().map(|detail| detail.sender).unwrap_or_default();
                let back = AddressVector { dlid: sender.lid, ..AddressVector::default() };
                answers.send(b"a QLE7342", back, sender.qp)?;
            }
            if asks.turn().is_some() {
                break;
            }
            if asks.port.control().now().since(begun) > WITHIN {
                return Err("no answer".into());
            }
        }
        let took = asks.port.control().now() - begun;
        let mut text = [0; 9];
        asks.memory.copy_out(1024 + GRH as usize, &mut text);
        println!("{round}: {:?} after {took}", String::from_utf8_lossy(&text));
        if &text != b"a QLE7342" {
            return Err("that is not what was answered".into());
        }
    }
    Ok(())
}
