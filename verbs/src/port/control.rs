//! What the management agents ask of the device that a port belongs to.
//!
//! The device is a handle that any thread may use; what is asked here is rare, so a call may take a lock and read
//! registers. Nothing of it is on the way of a message.

use qhca_driver::counters::Counters;
use qhca_driver::env::Backend;
use qhca_driver::identity::Identity as CardIdentity;
use qhca_driver::link::{Command, Goal, LidAssignment, LinkError, LinkStatus, Speed};
use qhca_driver::runtime::Device;
use qhca_regs::{Instant, Port};

use crate::mgmt::{Identity, PortAttributes, PortCounts};
use crate::qp::Mtu;

/// PCI device of the chip.
const DEVICE_ID: u16 = 0x7322;
/// The vendor's 24 bits, as in its GUIDs.
const VENDOR_ID: u32 = 0x00_1175;

/// A device, as the agents of its ports see it.
pub trait PortControl {
    /// The time on the device's clock.
    fn now(&self) -> Instant;
    /// Who it is.
    fn card(&self) -> &CardIdentity;
    /// Ports in use.
    fn port_count(&self) -> usize;
    /// The largest packet that it is set up for.
    fn mtu(&self) -> Mtu;
    /// The state of a port's link, as it was last seen.
    fn status(&self, port: Port) -> Option<LinkStatus>;
    /// Gives one command to a port's link.
    ///
    /// # Errors
    /// [`LinkError`].
    fn command(&self, port: Port, command: Command) -> Result<(), LinkError>;
    /// Sets what is wanted of a port's link.
    ///
    /// # Errors
    /// [`LinkError`].
    fn want(&self, port: Port, goal: Goal) -> Result<(), LinkError>;
    /// Gives a port its LID.
    ///
    /// # Errors
    /// [`LinkError`].
    fn assign(&self, port: Port, lid: LidAssignment) -> Result<(), LinkError>;
    /// What was counted since bring-up; `None` if the device no longer answers.
    fn read_counters(&self) -> Option<Counters>;
}

impl<B: Backend> PortControl for Device<B> {
    fn now(&self) -> Instant {
        Device::now(self)
    }

    fn card(&self) -> &CardIdentity {
        self.identity()
    }

    fn port_count(&self) -> usize {
        self.split().ports.iter().count()
    }

    fn mtu(&self) -> Mtu {
        mtu_of(self.split().eager_buffer_bytes)
    }

    fn status(&self, port: Port) -> Option<LinkStatus> {
        self.link_status(port)
    }

    fn command(&self, port: Port, command: Command) -> Result<(), LinkError> {
        self.link_command(port, command)
    }

    fn want(&self, port: Port, goal: Goal) -> Result<(), LinkError> {
        self.set_goal(port, goal)
    }

    fn assign(&self, port: Port, lid: LidAssignment) -> Result<(), LinkError> {
        self.set_lid(port, lid)
    }

    fn read_counters(&self) -> Option<Counters> {
        self.counters().ok()
    }
}

/// The largest packet whose payload fits an eager buffer of so many bytes.
pub fn mtu_of(eager_buffer_bytes: u32) -> Mtu {
    let fits = Mtu::ALL.into_iter().rfind(|mtu| mtu.bytes() <= eager_buffer_bytes);
    fits.unwrap_or(Mtu::B256)
}

/// Who the node is, for its subnet agent. `host` is what people call it.
pub(super) fn identity_of(control: &impl PortControl, port: Port, host: &str) -> Identity {
    let card = control.card();
    let number = port.index() as u8 + 1;
    Identity {
        description: host.to_owned(),
        system_guid: card.node_guid().0,
        node_guid: card.node_guid().0,
        port_guid: card.port_guid(number).0,
        ports: control.port_count() as u8,
        port: number,
        device_id: DEVICE_ID,
        revision: u32::from(card.chip.hw_rev()),
        vendor_id: VENDOR_ID,
    }
}

/// What a subnet manager sees of a link in this state.
pub(super) fn show_link(port: &mut PortAttributes, status: LinkStatus) {
    port.physical_state = status.physical().ibta_code();
    if status.is_up() {
        // Codes of the standard: 1 and 4 lanes are bits 0 and 1, the speeds are bits 0 to 2.
        port.width[2] = if status.lanes() == 4 { 2 } else { 1 };
        port.speed[2] = match status.speed() {
            Speed::Sdr => 1,
            Speed::Ddr => 2,
            Speed::Qdr => 4,
        };
    }
}

/// A port's counters by the names of the standard.
///
/// Source: the table of counters (F-146); which of the chip's errors make up "receive errors" is ours.
pub(super) fn counts_of(counters: &Counters, port: Port) -> PortCounts {
    let of = |name: &str| counters.port_total(port, name).unwrap_or(0);
    let sum = |names: &[&'static str]| names.iter().map(|name| of(name)).sum();
    PortCounts {
        symbol_errors: of("IBSymbolErr"),
        link_recoveries: of("IBLnkRecov"),
        link_downed: of("IBLinkDown"),
        receive_errors: sum(&[
            "IBRxLinkErr",
            "RxBadFormat",
            "RxBadLen",
            "RxICRCerr",
            "RxLPCRCerr",
            "RxVCRCerr",
            "RxInvalLen",
            "RxVlErr",
            "RxLclPhyErr",
        ]),
        remote_physical_errors: of("RxEBP"),
        transmit_discards: sum(&["TxDropped", "TxInvalLen", "TxBadLength", "TxUnderrun", "TxUnsupVL"]),
        integrity_errors: of("RxLLIErr"),
        overruns: of("XcessBufOvfl"),
        vl15_dropped: of("RxVL15Drop"),
        transmit_dwords: of("TxWords"),
        receive_dwords: of("RxWords"),
        transmit_packets: of("TxPkt"),
        receive_packets: of("RxPkt"),
        transmit_wait: of("TxFlowStall"),
    }
}
