//! SET_IRQS: the one message with three shapes of data, and the one that is got wrong most often.
//!
//! A count that is not 0 together with no data *fires* the vectors; count 0 with no data switches the whole kind of
//! interrupt off. So each form has a name here.

use crate::ParseError;
use crate::wire::{Put, Reader};

/// Most vectors that one message may name: the MSI-X limit of PCI.
pub const TRIGGERS_MAX: u32 = 2048;

/// What is to be done to the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Hold them back.
    Mask,
    /// Let them through again.
    Unmask,
    /// Fire them, or say what they fire.
    Trigger,
}

/// Which vectors, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// All of the range.
    None,
    /// Those whose byte is not 0.
    Bool(&'a [u8]),
    /// Event descriptors beside the message; none at all takes those in force away.
    Eventfd,
}

/// A SET_IRQS command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// Kind of interrupt, see [`irq`](crate::irq).
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// How many, at most [`TRIGGERS_MAX`].
    pub count: u32,
    /// What to do.
    pub action: IrqAction,
    /// To which, with what.
    pub data: IrqData<'a>,
}

impl<'a> SetIrqs<'a> {
    /// Switches all interrupts of kind `index` off: the only form that does.
    pub const fn disable(index: u32) -> Self {
        Self { index, start: 0, count: 0, action: IrqAction::Trigger, data: IrqData::None }
    }

    /// Whether this is [`disable`](Self::disable).
    pub const fn is_disable(&self) -> bool {
        self.count == 0 && matches!(self.data, IrqData::None) && matches!(self.action, IrqAction::Trigger)
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// [`ParseError::Field`] unless exactly one data and one action bit are set and the range is possible.
    pub fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new("DEVICE_SET_IRQS", payload);
        let (_argsz, flags, index, start, count) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        // The planted fault of the fuzz target: eventfds whose range is believed.
        let believed = cfg!(canary) && flags & 0x04 != 0;
        if !believed && (count > TRIGGERS_MAX || start > TRIGGERS_MAX) {
            let value = u64::from(count.max(start));
            return Err(ParseError::Field { what: "SET_IRQS range", value, allowed: "0 to 2048" });
        }
        let refused =
            |what| ParseError::Field { what, value: flags.into(), allowed: "exactly one of its three bits" };
        let action = match flags & 0x38 {
            0x08 => IrqAction::Mask,
            0x10 => IrqAction::Unmask,
            0x20 => IrqAction::Trigger,
            _ => return Err(refused("SET_IRQS action (bits 3 to 5)")),
        };
        let data = match flags & 0x07 {
            0x01 => IrqData::None,
            0x02 => IrqData::Bool(r.take(count as usize)?),
            0x04 => IrqData::Eventfd,
            _ => return Err(refused("SET_IRQS data (bits 0 to 2)")),
        };
        Ok(Self { index, start, count, action, data })
    }

    /// The payload.
    pub fn build(&self) -> Vec<u8> {
        let (data_flag, bytes): (u32, &[u8]) = match self.data {
            IrqData::None => (0x01, &[]),
            IrqData::Bool(bytes) => (0x02, bytes),
            IrqData::Eventfd => (0x04, &[]),
        };
        let action_flag = match self.action {
            IrqAction::Mask => 0x08,
            IrqAction::Unmask => 0x10,
            IrqAction::Trigger => 0x20,
        };
        let mut out = Vec::with_capacity(20 + bytes.len());
        out.put32(20 + bytes.len() as u32).put32(data_flag | action_flag);
        out.put32(self.index).put32(self.start).put32(self.count);
        out.extend_from_slice(bytes);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_count_zero_without_data_disables() {
        let off = SetIrqs::disable(2);
        assert!(off.is_disable());
        // argsz 20, flags DATA_NONE | ACTION_TRIGGER, index 2, start 0, count 0
        let bytes = [20, 0, 0, 0, 0x21, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(off.build(), bytes);
        let fire = SetIrqs { count: 1, ..off };
        assert!(!fire.is_disable());
        assert!(!SetIrqs { data: IrqData::Eventfd, ..off }.is_disable());
    }

    #[test]
    fn contradicting_flags_are_refused() {
        for flags in [0u32, 0x01, 0x20, 0x31, 0x23, 0x27, 0x3F] {
            let mut payload = Vec::new();
            payload.put32(20).put32(flags).put32(2).put32(0).put32(0);
            assert!(SetIrqs::parse(&payload).is_err(), "flags {flags:#x}");
        }
    }

    #[test]
    fn bool_data_must_be_as_long_as_the_count() {
        let mut payload = Vec::new();
        payload.put32(22).put32(0x22).put32(2).put32(0).put32(3).extend_from_slice(&[1, 0]);
        assert!(matches!(SetIrqs::parse(&payload), Err(ParseError::Short { .. })));
    }
}
