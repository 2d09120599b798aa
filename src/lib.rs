//! Kernel-bypass driver and chip model of the QLogic 7322 InfiniBand HCA: the door.
//!
//! An application depends on this crate alone. A device is opened by a name, given options, and started:
//!
//! ```
//! use qhca::{Device, Runtime};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("sim:qle7342")?.options("krcvqs=1 ibmtu=4")?.start(Runtime::Threads)?;
//! println!("{} {}", device.name(), device.identity().node_guid());
//! let report = device.close();
//! assert!(report.contexts_open.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! | name | device |
//! |---|---|
//! | `sim`, `sim:qle7342`, `sim:qle7340` | a chip model in this process |
//! | `vfio-user:/path.sock` | a chip model in another process |
//! | `vfio:0000:04:00.0`, `04:00.0` | a card of this machine, bound to `vfio-pci`; settings may follow, as in `,group,intx` |
//!
//! Packets are received by a [`Receiver`] and sent by a [`Transmitter`]; each moves to a thread of the application and
//! keeps the device alive. There are no globals, no signal handler, no logger and no panic hook; two devices in one
//! process are fine. Queue pairs are in [`verbs`]; [`Device::open_verbs`] puts them on a port, with its management agents
//! and a micro subnet manager for one cable. What is not here: a manager for a fabric of switches, IB CM and rdma_cm.
//!
//! A simulated chip proves the driver against our reading of the chip. What runs here passes in simulation, which is
//! not the same as working on a card.

#![forbid(unsafe_code)]

mod device;
mod open;
mod sim_setup;
mod spec;
mod verbs_port;

pub use device::{Device, Receiver, Transmitter, Window};
pub use open::{OpenError, Opening};
pub use sim_setup::{SimCards, SimSetup, sim_pair};
pub use spec::{Spec, SpecError};
pub use verbs_port::{VerbsError, VerbsPort};

pub use qhca_driver as driver;
pub use qhca_errdecode as errdecode;
pub use qhca_irq as irq;
pub use qhca_regs as regs;
pub use qhca_sim as sim;
pub use qhca_verbs as verbs;

pub use qhca_driver::dma::{DmaRegion, DmaSlice};
pub use qhca_driver::event::Event;
pub use qhca_driver::fault::{Policy, Report};
pub use qhca_driver::link::{CableInfo, Goal, LidAssignment, LinkStatus};
pub use qhca_driver::runtime::{CloseReport, ResetError, ResetHow, ResetReport, Runtime, StartError};
pub use qhca_driver::rx::{
    Arrival, Drained, FlowError, FlowId, FlowSettings, FlowState, Next, Packet, Tid, TidError,
};
pub use qhca_driver::slots::LendError;
pub use qhca_driver::tx::{
    FlushReason, Frame, Lane, Path, Payload, SendId, SendOutcome, SubmitError, Submitted,
};
pub use qhca_driver::vfio::{PciAddress, PinError, VectorPlace, VfioError, VfioSettings, Way};
pub use qhca_regs::{Ctxt, Duration, Instant, Lid, Port};
