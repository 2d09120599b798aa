//! Carrying out an order on a world.

use super::order::{Order, Place};
use super::report;
use crate::chip::Meta;
use crate::fabric::{CableConfig, LineFaults, Side};
use crate::vtime::Distribution;
use crate::world::{CableId, NodeId, World, WorldHost};
use qhca_regs::Instant;
use serde_json::{Value, json};
use std::fmt;

/// Why an order could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The world has no such card.
    NoCard {
        /// What was named.
        named: String,
        /// How many there are.
        cards: usize,
    },
    /// The port has no cable.
    NoCable {
        /// The port.
        at: Place,
    },
    /// The board has no such port, or the port has no cage.
    NoCage {
        /// The port.
        at: Place,
    },
    /// Only a server can say that.
    NoServer,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCard { named, cards } => {
                write!(f, "there is no card {named}: the world has {cards}, called from a on")
            }
            Self::NoCable { at } => write!(f, "{at} has no cable; lay one with `cable {at}=…`"),
            Self::NoCage { at } => write!(f, "{at} has no cage for a module on this board"),
            Self::NoServer => f.write_str("only a server has such statistics"),
        }
    }
}

impl std::error::Error for Refusal {}

impl Order {
    /// Carries the order out on `world` at `now`; gives what there is to say about it, `null` if nothing.
    ///
    /// # Errors
    /// [`Refusal`]: what the order names is not there; nothing has been done then.
    pub fn apply<H: WorldHost>(&self, world: &mut World<H>, now: Instant) -> Result<Value, Refusal> {
        world.advance_to(now);
        match self {
            Self::Cable { at, plugged } => {
                let (cable, _) = cable_of(world, *at)?;
                match plugged {
                    true => world.replug(cable),
                    false => world.unplug(cable),
                }
            }
            Self::Lay { a, b } => {
                let (a_node, b_node) = (node(world, *a)?, node(world, *b)?);
                let ends = [(a_node, a.port), (b_node, b.port)];
                let is_between = |cable: &CableId| {
                    let [one, other] = world.cable_ends(*cable);
                    ends == [one, other] || ends == [other, one]
                };
                // Two ports have one cable between them, however often it is laid.
                let known = world.cables().find(is_between);
                match known {
                    Some(cable) => world.lay(cable),
                    None => {
                        world.connect(ends[0], ends[1], CableConfig::default());
                    }
                }
            }
            Self::Line { from, lose_one_in, duplicate_one_in, flip_one_in, delay } => {
                let (cable, side) = cable_of(world, *from)?;
                let (lose_one_in, duplicate_one_in, flip_one_in) =
                    (*lose_one_in, *duplicate_one_in, *flip_one_in);
                world.set_line_faults(cable, side, LineFaults { lose_one_in, duplicate_one_in, flip_one_in });
                if let Some(delay) = delay {
                    world.set_delay(cable, Distribution::Fixed(*delay));
                }
            }
            Self::Module { at, present } => {
                let node = caged(world, *at)?;
                world.act(node, now, |chip, now, host| chip.set_module(at.port, *present, now, host));
            }
            Self::Alarm { at, byte, bits } => {
                let node = caged(world, *at)?;
                world.act(node, now, |chip, now, host| chip.module_alarm(at.port, *byte, *bits, now, host));
            }
            Self::Inject(hca, injection) => {
                let node = node_of(world, hca.rank(), hca)?;
                world.inject(node, *injection, now);
            }
            Self::Present { hca, present } => {
                let node = node_of(world, hca.rank(), hca)?;
                world.set_present(node, *present, now);
            }
            Self::Deliver(at, packet) => {
                let node = node(world, *at)?;
                let meta = Meta { icrc_ok: packet.icrc_ok, vcrc_ok: packet.vcrc_ok, ..Meta::GOOD };
                world.act(node, now, |chip, now, host| {
                    chip.deliver(at.port, &packet.bytes, meta, now, host);
                });
            }
            Self::Read { hca, offset } => {
                let node = node_of(world, hca.rank(), hca)?;
                return Ok(json!({ "value": format!("{:#x}", world.read(node, *offset, now)) }));
            }
            Self::State => return Ok(report::state(world, now)),
            Self::Stats => return Err(Refusal::NoServer),
        }
        Ok(Value::Null)
    }
}

fn node_of<H: WorldHost>(world: &World<H>, rank: usize, named: &dyn fmt::Display) -> Result<NodeId, Refusal> {
    let cards = world.nodes().count();
    world.nodes().nth(rank).ok_or_else(|| Refusal::NoCard { named: named.to_string(), cards })
}

fn node<H: WorldHost>(world: &World<H>, at: Place) -> Result<NodeId, Refusal> {
    node_of(world, at.hca.rank(), &at.hca)
}

fn caged<H: WorldHost>(world: &World<H>, at: Place) -> Result<NodeId, Refusal> {
    let node = node(world, at)?;
    match world.chip(node).config().board.has_cage(at.port) {
        true => Ok(node),
        false => Err(Refusal::NoCage { at }),
    }
}

fn cable_of<H: WorldHost>(world: &World<H>, at: Place) -> Result<(CableId, Side), Refusal> {
    world.cable_at(node(world, at)?, at.port).ok_or(Refusal::NoCable { at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::{Board, Config, PeerState};
    use crate::vtime::Seed;
    use qhca_regs::Port;
    use qhca_regs::map::device::{ERR_STATUS, REVISION};
    use qhca_regs::status::ErrBits;

    fn world() -> World {
        let mut world = World::new(Seed(1), false);
        let a = world.add(Config::default());
        let b = world.add(Config { board: Board::Qle7340, ..Config::default() });
        world.connect((a, Port::P0), (b, Port::P0), CableConfig::default());
        world
    }

    fn order(world: &mut World, text: &str) -> Result<Value, Refusal> {
        let now = world.now();
        text.parse::<Order>().unwrap_or_else(|error| panic!("{text}: {error}")).apply(world, now)
    }

    #[test]
    fn cable_is_pulled_and_put_back_by_either_end() {
        let mut world = world();
        let (cable, side) = world.cable_at(world.nodes().next().expect("a card"), Port::P0).expect("a cable");
        assert_eq!(side, Side::A);
        for (text, connected) in [("cable a:1 out", false), ("cable b:1 in", true), ("cable b:1 out", false)]
        {
            order(&mut world, text).expect(text);
            assert_eq!(world.cable(cable).is_connected(), connected, "{text}");
        }
        assert!(matches!(order(&mut world, "cable a:2 out"), Err(Refusal::NoCable { .. })));
        order(&mut world, "cable a:2=a:2").expect("a loopback plug");
        order(&mut world, "cable a:2 out").expect("there is one now");
    }

    #[test]
    fn cable_that_gave_way_is_nobodys_and_is_as_it_was_when_it_is_laid_again() {
        let mut world = world();
        let a = world.nodes().next().expect("a card");
        let (first, _) = world.cable_at(a, Port::P0).expect("a cable");
        order(&mut world, "line a:1 lose=3 delay-ns=1000").expect("a worse cable");
        order(&mut world, "cable a:1=a:2").expect("one card's ports joined");
        assert!(matches!(order(&mut world, "cable b:1 in"), Err(Refusal::NoCable { .. })), "its end is gone");
        let count = world.cables().count();
        for _ in 0..3 {
            order(&mut world, "cable b:1=a:1").expect("the first one again");
            order(&mut world, "cable a:2=a:1").expect("the joint again");
        }
        order(&mut world, "cable a:1=b:1").expect("the first one again");
        assert_eq!(world.cables().count(), count, "laying one again makes no new one");
        let (laid, side) = world.cable_at(a, Port::P0).expect("a cable");
        assert_eq!((laid, world.cable_at(a, Port::P1)), (first, None));
        assert_eq!(world.cable(laid).faults(side).lose_one_in, 3);
    }

    #[test]
    fn error_bits_appear_in_the_register_that_was_named() {
        let mut world = world();
        order(&mut world, "inject b ErrStatus RcvEgrFullErr+RcvHdrFullErr").expect("injected");
        let [a, b] = [0, 1].map(|n| world.nodes().nth(n).expect("a card"));
        let now = world.now();
        let seen = ErrBits::from_bits_retain(world.read(b, ERR_STATUS.offset(), now));
        assert_eq!(seen, ErrBits::RCV_EGR_FULL_ERR | ErrBits::RCV_HDR_FULL_ERR);
        assert_eq!(world.read(a, ERR_STATUS.offset(), now), 0);
    }

    #[test]
    fn card_that_was_removed_reads_as_all_ones_until_it_returns() {
        let mut world = world();
        let read = |world: &mut World| order(world, "read a Revision").expect("read")["value"].clone();
        let before = read(&mut world);
        order(&mut world, "remove a").expect("removed");
        assert_eq!(read(&mut world), "0xffffffffffffffff");
        order(&mut world, "return a").expect("returned");
        assert_eq!(read(&mut world), before);
        assert_eq!(super::super::register_named("Revision"), Some(REVISION.offset()));
    }

    #[test]
    fn what_is_not_there_is_refused_and_nothing_is_done() {
        let mut world = world();
        assert!(matches!(order(&mut world, "remove c"), Err(Refusal::NoCard { cards: 2, .. })));
        assert!(matches!(order(&mut world, "cable a:1=c:1"), Err(Refusal::NoCard { .. })));
        assert!(matches!(order(&mut world, "stats"), Err(Refusal::NoServer)));
        let (cable, _) = world.cable_at(world.nodes().next().expect("a card"), Port::P0).expect("a cable");
        assert!(world.cable(cable).is_connected());
    }

    #[test]
    fn state_tells_of_every_card_port_and_cable() {
        let mut world = world();
        let state = order(&mut world, "state").expect("a state");
        assert_eq!(state["cards"].as_array().map(Vec::len), Some(2));
        assert_eq!(state["cards"][0]["ports"][0]["cable"]["to"], "b:1");
        assert_eq!(state["cards"][1]["ports"].as_array().map(Vec::len), Some(1), "one port on this board");
        assert_eq!(state["cards"][0]["ports"][1]["cable"], Value::Null);
        assert_eq!(world.chip(world.nodes().next().expect("a card")).own_link(Port::P1), PeerState::Silent);
    }
}
