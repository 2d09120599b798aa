//! The performance management agent: a port's counters, as the standard's tools read them.
//!
//! ```text
//!   ClassPortInfo 0x01   PortCounters 0x12   PortCountersExtended 0x1D
//! ```
//!
//! Classic counters have 4 to 32 bits and stop at their top; ours have 64 and never do, so a classic reading is ours
//! since the last clear, cut to its width. Clearing changes what is shown, not what was counted.

use crate::wire::mad::{Mad, MadClass, Method, status};

const CLASS_PORT_INFO: u16 = 0x01;
const PORT_COUNTERS: u16 = 0x12;
const PORT_COUNTERS_EXTENDED: u16 = 0x1D;
/// Where the attribute begins.
const ATTRIBUTE_AT: usize = 64;
/// All ports, as a port number.
const ALL_PORTS: u8 = 0xFF;
/// Extended counters are supported, with unicast and multicast told apart.
const CAPABILITIES: u16 = 1 << 9;

/// What is counted of a port since it came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Symbol errors.
    pub symbol_errors: u64,
    /// Link recoveries.
    pub link_recoveries: u64,
    /// Times that the link went down.
    pub link_downed: u64,
    /// Packets that came with an error.
    pub receive_errors: u64,
    /// Packets that came marked bad by a switch.
    pub remote_physical_errors: u64,
    /// Packets that could not be sent.
    pub transmit_discards: u64,
    /// Local link integrity errors.
    pub integrity_errors: u64,
    /// Buffer overruns.
    pub overruns: u64,
    /// VL 15 packets for which there was no room.
    pub vl15_dropped: u64,
    /// Dwords sent.
    pub transmit_dwords: u64,
    /// Dwords received.
    pub receive_dwords: u64,
    /// Packets sent.
    pub transmit_packets: u64,
    /// Packets received.
    pub receive_packets: u64,
    /// Ticks in which there was something to send and no credit.
    pub transmit_wait: u64,
}

/// Where a classic counter stands: byte of the attribute, bits, and its bit in CounterSelect.
type Field = (usize, u32, u32, fn(&mut PortCounts) -> &mut u64);

const FIELDS: [Field; 14] = [
    (4, 16, 0, |counts| &mut counts.symbol_errors),
    (6, 8, 1, |counts| &mut counts.link_recoveries),
    (7, 8, 2, |counts| &mut counts.link_downed),
    (8, 16, 3, |counts| &mut counts.receive_errors),
    (10, 16, 4, |counts| &mut counts.remote_physical_errors),
    (14, 16, 6, |counts| &mut counts.transmit_discards),
    (19, 4, 9, |counts| &mut counts.integrity_errors),
    (19, 4, 10, |counts| &mut counts.overruns),
    (22, 16, 11, |counts| &mut counts.vl15_dropped),
    (24, 32, 12, |counts| &mut counts.transmit_dwords),
    (28, 32, 13, |counts| &mut counts.receive_dwords),
    (32, 32, 14, |counts| &mut counts.transmit_packets),
    (36, 32, 15, |counts| &mut counts.receive_packets),
    (40, 32, 16, |counts| &mut counts.transmit_wait),
];

/// The agent.
#[derive(Clone, Copy, Debug)]
pub struct Performance {
    port: u8,
    /// What was counted when each counter was last cleared; classic and extended are cleared together.
    cleared: PortCounts,
}

impl Performance {
    /// The agent of port number `port`, from 1.
    pub fn new(port: u8) -> Self {
        Self { port, cleared: PortCounts::default() }
    }

    /// Takes a MAD; gives the answer, if it gets one. `counts` is what the port has counted by now.
    pub fn process(&mut self, mad: &Mad, counts: &PortCounts) -> Option<Mad> {
        if mad.class() != MadClass::Performance || !matches!(mad.method(), Method::Get | Method::Set) {
            return None;
        }
        let mut answer = mad.clone();
        let verdict = self.answer(mad, &mut answer, counts);
        answer.set_method(Method::GetResponse);
        answer.set_status(verdict.err().unwrap_or(0));
        Some(answer)
    }

    fn answer(&mut self, mad: &Mad, answer: &mut Mad, counts: &PortCounts) -> Result<(), u16> {
        if !mad.has_known_versions() {
            return Err(status::BAD_VERSION);
        }
        let selected = mad.0[ATTRIBUTE_AT + 1];
        let is_set = mad.method() == Method::Set;
        let data = &mut answer.0[ATTRIBUTE_AT..];
        match mad.attribute() {
            CLASS_PORT_INFO => {
                data[..72].fill(0);
                data[..2].copy_from_slice(&[1, 1]);
                data[2..4].copy_from_slice(&CAPABILITIES.to_be_bytes());
                // Answers within 4.096 us times 2^18, a second.
                data[7] = 18;
                return Ok(());
            }
            PORT_COUNTERS | PORT_COUNTERS_EXTENDED if selected != self.port && selected != ALL_PORTS => {
                return Err(status::INVALID_VALUE);
            }
            PORT_COUNTERS => {
                let select =
                    u32::from(u16::from_be_bytes([data[2], data[3]])) | u32::from(data[18] & 1) << 16;
                if is_set {
                    self.clear(select, counts);
                }
                self.show(data, counts);
            }
            PORT_COUNTERS_EXTENDED => {
                let select = u32::from(u16::from_be_bytes([data[2], data[3]])) & 0xF;
                if is_set {
                    self.clear(select << 12, counts);
                }
                self.show_extended(data, counts);
            }
            _ => return Err(status::METHOD_ATTRIBUTE),
        }
        Ok(())
    }

    fn clear(&mut self, select: u32, counts: &PortCounts) {
        let mut counts = *counts;
        for (_, _, bit, field) in FIELDS {
            if select >> bit & 1 != 0 {
                *field(&mut self.cleared) = *field(&mut counts);
            }
        }
    }

    /// What has been counted since the last clear.
    fn since_clear(&self, counts: &PortCounts, field: fn(&mut PortCounts) -> &mut u64) -> u64 {
        let (mut now, mut then) = (*counts, self.cleared);
        field(&mut now).saturating_sub(*field(&mut then))
    }

    fn show(&self, data: &mut [u8], counts: &PortCounts) {
        data[4..44].fill(0);
        for (at, bits, bit, field) in FIELDS {
            let top = (1 << bits) - 1;
            let value = self.since_clear(counts, field).min(top) as u32;
            match bits {
                4 => data[at] |= (value as u8) << if bit == 9 { 4 } else { 0 },
                8 => data[at] = value as u8,
                16 => data[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes()),
                _ => data[at..at + 4].copy_from_slice(&value.to_be_bytes()),
            }
        }
    }

    fn show_extended(&self, data: &mut [u8], counts: &PortCounts) {
        data[8..72].fill(0);
        for (place, (.., field)) in FIELDS.iter().filter(|(.., bit, _)| (12..16).contains(bit)).enumerate() {
            let value = self.since_clear(counts, *field);
            data[8 + place * 8..][..8].copy_from_slice(&value.to_be_bytes());
        }
    }
}
