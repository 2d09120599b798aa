//! Surroundings for a card that was opened by its name.

use serde_json::Value;
use std::path::Path;

use qhca::Opening;
use qhca_regs::Port;
use qhca_regs::status::HwErrBits;
use qhca_sim::backend::{SimDevice, SimWorld};
use qhca_sim::chip::Injection;
use qhca_sim::control::{Client, ControlError, Deliver, Hca, Order, Place};
use qhca_sim::world::NodeId;

use crate::{Alone, Check, Surroundings, run_some};

/// The world around a simulated card, which can do anything to it.
#[derive(Debug)]
pub struct InWorld {
    world: SimWorld,
    node: NodeId,
    joint: Joint,
}

impl InWorld {
    /// What stands around `device`.
    pub fn of(device: &SimDevice) -> Self {
        Self { world: device.world(), node: device.node(), joint: Joint::default() }
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

/// The world that another process simulates, as far as its control socket reaches.
#[derive(Debug)]
pub struct ByControl {
    client: Client,
    hca: Hca,
    joint: Joint,
}

/// How the card's ports were cabled before they were joined: where each cable led, and whether it was in.
#[derive(Clone, Debug, Default)]
struct Joint {
    before: Vec<(Order, Option<Order>)>,
}

impl Joint {
    /// What leads back to what `state` shows of the ports of `hca`.
    fn of(state: &Value, hca: Hca) -> Self {
        let ports = &state["cards"][hca.rank()]["ports"];
        let back = |port: Port| {
            let at = Place { hca, port };
            let cable = &ports[port.index()]["cable"];
            let lay = format!("cable {at}={}", cable["to"].as_str()?).parse().ok()?;
            Some((lay, (cable["plugged"] == false).then_some(Order::Cable { at, plugged: false })))
        };
        Self { before: Port::ALL.into_iter().filter_map(back).collect() }
    }
}

impl ByControl {
    /// What stands around the card that is served at the socket `device`, by the control socket `control`.
    ///
    /// # Errors
    /// [`ControlError`]: nobody listens there, or whoever does has no such card.
    pub fn of(device: &Path, control: &Path) -> Result<Self, ControlError> {
        let mut client = Client::connect(control)?;
        let state = client.ask(&Order::State)?;
        let socket = device.display().to_string();
        let cards = state["cards"].as_array().map_or(&[][..], Vec::as_slice);
        let found = cards.iter().position(|card| card["socket"] == socket.as_str()).and_then(Hca::new);
        let why = || format!("the server behind {} serves no {socket}", control.display());
        found
            .map(|hca| Self { client, hca, joint: Joint::default() })
            .ok_or_else(|| ControlError::Refused { why: why() })
    }
}

/// Something that carries out orders.
trait TakesOrders {
    /// The card that is tested.
    fn hca(&self) -> Option<Hca>;

    /// Carries out an order; what there is to say about it, `None` if it cannot be carried out.
    fn answer(&mut self, order: &Order) -> Option<Value>;

    /// How the ports were cabled before they were joined.
    fn joint(&mut self) -> &mut Joint;

    /// Carries out an order; `false` if it cannot be.
    fn order(&mut self, order: &Order) -> bool {
        self.answer(order).is_some()
    }
}

impl TakesOrders for InWorld {
    fn hca(&self) -> Option<Hca> {
        Hca::new(self.node.index())
    }

    fn answer(&mut self, order: &Order) -> Option<Value> {
        self.world.with(|world| order.apply(world, world.now()).ok())
    }

    fn joint(&mut self) -> &mut Joint {
        &mut self.joint
    }
}

impl TakesOrders for ByControl {
    fn hca(&self) -> Option<Hca> {
        Some(self.hca)
    }

    fn answer(&mut self, order: &Order) -> Option<Value> {
        self.client.ask(order).ok()
    }

    fn joint(&mut self) -> &mut Joint {
        &mut self.joint
    }
}

impl<T: TakesOrders> Surroundings for T {
    fn deliver_with_wrong_icrc(&mut self, port: Port, packet: &[u8]) -> bool {
        let Some(hca) = self.hca() else { return false };
        let packet = Deliver { bytes: packet.to_vec(), icrc_ok: false, vcrc_ok: true };
        self.order(&Order::Deliver(Place { hca, port }, packet))
    }

    fn raise_parity_error(&mut self) -> bool {
        let injection = Injection::Hardware(HwErrBits::IBC_BUS_FROM_SPC_PARITY_ERR_0);
        self.hca().is_some_and(|hca| self.order(&Order::Inject(hca, injection)))
    }

    fn plug_module(&mut self, port: Port, is_in: bool) -> bool {
        let Some(hca) = self.hca() else { return false };
        self.order(&Order::Module { at: Place { hca, port }, present: is_in })
    }

    fn join_ports(&mut self, joined: bool) {
        let Some(hca) = self.hca() else { return };
        let [a, b] = Port::ALL.map(|port| Place { hca, port });
        if joined {
            let Some(state) = self.answer(&Order::State) else { return };
            *self.joint() = Joint::of(&state, hca);
            self.order(&Order::Lay { a, b });
            return;
        }
        // What is laid again takes the joint's place; where nothing was, it is only pulled.
        self.order(&Order::Cable { at: a, plugged: false });
        for (lay, pull) in std::mem::take(&mut self.joint().before) {
            self.order(&lay);
            if let Some(pull) = pull {
                self.order(&pull);
            }
        }
    }
}

/// Runs the scenarios of these names on a device that nobody has brought up. What stands around a simulated card is
/// known; that of another is `around`, if anything is.
pub fn run_opened(opening: Opening, around: Option<ByControl>, wanted: impl Fn(&str) -> bool) -> Vec<Check> {
    match opening {
        Opening::Sim(opening) => {
            let device = opening.into_backend();
            let mut around = InWorld::of(&device);
            run_some(device, &mut around, wanted)
        }
        Opening::VfioUser(opening) => match around {
            Some(mut around) => run_some(opening.into_backend(), &mut around, wanted),
            None => run_some(opening.into_backend(), &mut Alone, wanted),
        },
        Opening::Vfio(opening) => run_some(opening.into_backend(), &mut Alone, wanted),
        _ => Vec::new(),
    }
}
