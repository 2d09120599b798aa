//! Simulated cards, set up: which chip, what is at the other end of its cables, whose clock.

use std::io;

use qhca_driver::runtime;
use qhca_regs::Port;
use qhca_sim::backend::SimWorld;
use qhca_sim::chip::{Board, Config};
use qhca_sim::fabric::CableConfig;
use qhca_sim::vtime::Seed;
use qhca_sim::world::World;

use crate::open::{OpenError, Opening};
use crate::spec::Spec;

/// Distance of two cards' base GUIDs: room for those of the ports.
const GUIDS_APART: u64 = 0x10;

/// A card that is to be simulated, and what stands around it.
#[derive(Clone, Debug)]
pub struct SimSetup {
    config: Config,
    cabled: Vec<Port>,
    crc: bool,
    manual: bool,
}

/// Simulated cards that nobody has brought up.
#[non_exhaustive]
pub struct SimCards {
    /// The card that was asked for.
    pub card: Opening,
    /// The card at the other end of its cables, if it has any.
    pub peer: Option<Opening>,
}

impl SimSetup {
    /// The card that `config` describes, without cables, on the system's clock.
    pub fn new(config: Config) -> Self {
        Self { config, cabled: Vec::new(), crc: false, manual: false }
    }

    /// A right card on this board.
    pub fn board(board: Board) -> Self {
        Self::new(Config { board, ..Config::default() })
    }

    /// Lays a cable from each of `ports` that the board has to the same port of a second card, a QLE7342.
    #[must_use]
    pub fn with_peer(mut self, ports: &[Port]) -> Self {
        let board = self.config.board;
        self.cabled = ports.iter().copied().filter(|port| board.speeds(*port) != 0).collect();
        self
    }

    /// Computes and checks ICRC and VCRC on every cable.
    #[must_use]
    pub fn with_crc(mut self) -> Self {
        self.crc = true;
        self
    }

    /// Lets time stand still until somebody waits or the world's clock is moved.
    #[must_use]
    pub fn on_manual_clock(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Builds the world and opens its cards.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn open(self) -> Result<SimCards, OpenError> {
        let Self { config, cabled, crc, manual } = self;
        let spec = Spec::Sim(config.board);
        let system = |source: io::Error| OpenError::System { spec: spec.clone(), source };
        let mut world = World::new(Seed(1), crc);
        let peer_config = Config {
            guid: config.guid + GUIDS_APART,
            serial: "QHCASIM00002".to_owned(),
            ..Config::default()
        };
        let card = world.add(config);
        let peer = (!cabled.is_empty()).then(|| world.add(peer_config));
        for (peer, port) in peer.into_iter().flat_map(|peer| cabled.iter().map(move |port| (peer, *port))) {
            world.connect((card, port), (peer, port), CableConfig::default());
        }
        let world = match manual {
            true => SimWorld::manual(world),
            false => SimWorld::start(world).map_err(system)?,
        };
        let open = |node| Ok(Opening::Sim(runtime::Opening::new(world.open(node).map_err(system)?)));
        Ok(SimCards { card: open(card)?, peer: peer.map(open).transpose()? })
    }
}

/// Two simulated QLE7342 with a cable between their first ports.
///
/// # Errors
/// The system has no thread or descriptor left.
pub fn sim_pair() -> Result<(Opening, Opening), OpenError> {
    let setup = SimSetup::board(Board::Qle7342).with_peer(&[Port::P0]).with_crc();
    let SimCards { card, peer } = setup.open()?;
    // PANIC: a QLE7342 has a first port, so there is a cable and a card at its end.
    Ok((card, peer.expect("a card at the other end of the cable")))
}
