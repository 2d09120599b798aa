//! A port of a device, in use: the verbs' own port on the device's receiver and transmitter.

use std::fmt;

use qhca_driver::counters::Counters;
use qhca_driver::identity::Identity;
use qhca_driver::link::{Command, Goal, LidAssignment, LinkError, LinkStatus};
use qhca_driver::slots::LendError;
use qhca_regs::{Instant, Port};
use qhca_verbs::Mtu;
use qhca_verbs::port::{self, PortControl, PortError, PortSetup};

use crate::device::{Device, Receiver, Transmitter};

/// A port of a [`Device`] in use: its engine, its management agents, its micro subnet manager. It is turned by whoever
/// owns it ([`Turn`](qhca_verbs::port::Turn)).
pub type VerbsPort = port::VerbsPort<Receiver, Transmitter, Device>;

/// Why a port cannot be taken into use.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerbsError {
    /// Its context or its send buffers are in use.
    Lend(LendError),
    /// Management could not be set up.
    Port(PortError),
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lend(error) => error.fmt(f),
            Self::Port(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for VerbsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lend(_) => None,
            Self::Port(error) => std::error::Error::source(error),
        }
    }
}

impl Device {
    /// Takes `port` into use: opens its kernel context and the device's sender, and puts an engine with QP 0 and QP 1
    /// on them.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub fn open_verbs(&self, port: Port, setup: &PortSetup) -> Result<VerbsPort, VerbsError> {
        let receiver = self.open_port(port).map_err(VerbsError::Lend)?;
        let transmitter = self.open_sender().map_err(VerbsError::Lend)?;
        VerbsPort::open(self.clone(), port, (receiver, transmitter), setup, self.now())
            .map_err(VerbsError::Port)
    }
}

impl PortControl for Device {
    fn now(&self) -> Instant {
        Device::now(self)
    }

    fn card(&self) -> &Identity {
        self.identity()
    }

    fn port_count(&self) -> usize {
        self.split().ports.iter().count()
    }

    fn mtu(&self) -> Mtu {
        port::mtu_of(self.split().eager_buffer_bytes)
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
