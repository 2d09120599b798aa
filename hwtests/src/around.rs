//! Surroundings for a card that was opened by its name.

use qhca::Opening;
use qhca_regs::Port;
use qhca_regs::status::HwErrBits;
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::{Injection, Meta};
use qhca_sim::world::NodeId;

use crate::{Alone, Check, Surroundings, run};

/// The world around a simulated card, which can do anything to it.
#[derive(Debug)]
pub struct InWorld {
    world: SimWorld,
    node: NodeId,
}

impl InWorld {
    /// What stands around `device`.
    pub fn of(device: &SimDevice) -> Self {
        Self { world: device.world(), node: device.node() }
    }

    /// The world.
    pub fn world(&self) -> &SimWorld {
        &self.world
    }

    /// The card's place in it.
    pub fn node(&self) -> NodeId {
        self.node
    }
}

impl Surroundings for InWorld {
    fn deliver_with_wrong_icrc(&mut self, port: Port, packet: &[u8]) -> bool {
        self.world.with(|world| {
            let now = world.now();
            let (chip, host) = world.chip_mut(self.node);
            chip.deliver(port, packet, Meta { icrc_ok: false, ..Meta::GOOD }, now, host);
        });
        true
    }

    fn raise_parity_error(&mut self) -> bool {
        let injection = Injection::Hardware(HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_0);
        self.world.with(|world| world.inject(self.node, injection, world.now()));
        true
    }
}

/// Runs every scenario on a device that nobody has brought up, with what stands around it.
pub fn run_opened(opening: Opening) -> Vec<Check> {
    match opening {
        Opening::Sim(opening) => {
            let device = opening.into_backend();
            let mut around = InWorld::of(&device);
            run(device, &mut around)
        }
        Opening::VfioUser(opening) => run(opening.into_backend(), &mut Alone),
        _ => Vec::new(),
    }
}
