//! The subnet management agent: what a subnet manager asks a port, and what it sets.
//!
//! ```text
//!   NodeDescription 0x10   NodeInfo 0x11   GUIDInfo 0x14   PortInfo 0x15
//!   P_KeyTable 0x16        SLtoVL 0x17     VLArb 0x18
//! ```
//!
//! A Set that names what is not possible changes nothing and is answered with status 7, "invalid value". M_Key and its
//! protection level are looked at before anything else.

use qhca_regs::Lid;

use crate::ids::QpNumber;
use crate::wire::Gid;
use crate::wire::mad::{Mad, MadClass, Method, status};

const NODE_DESCRIPTION: u16 = 0x10;
const NODE_INFO: u16 = 0x11;
const GUID_INFO: u16 = 0x14;
const PORT_INFO: u16 = 0x15;
const PKEY_TABLE: u16 = 0x16;
const SL_TO_VL: u16 = 0x17;
const VL_ARBITRATION: u16 = 0x18;

/// P_Keys in a block of the table.
const PKEY_BLOCK: usize = 32;
/// The states of a port's link, as PortInfo has them.
const STATE_DOWN: u8 = 1;
const STATE_ARMED: u8 = 3;
const STATE_ACTIVE: u8 = 4;

/// Who the node is: what never changes.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What people call it, 64 bytes of text at most.
    pub description: String,
    /// The GUID of the whole system.
    pub system_guid: u64,
    /// The GUID of the node.
    pub node_guid: u64,
    /// The GUID of this port.
    pub port_guid: u64,
    /// Ports of the node.
    pub ports: u8,
    /// This port, from 1.
    pub port: u8,
    /// PCI device.
    pub device_id: u16,
    /// Hardware revision.
    pub revision: u32,
    /// The vendor's 24 bits.
    pub vendor_id: u32,
}

/// What a subnet manager sees of a port, and may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// Management key; 0 is "none".
    pub m_key: u64,
    /// How much is refused without it, 0 to 3.
    pub m_key_protect: u8,
    /// Seconds until the key is forgotten when a wrong one was used; 0 is "never".
    pub m_key_lease_s: u16,
    /// Wrong keys.
    pub m_key_violations: u16,
    /// Subnet prefix.
    pub prefix: u64,
    /// The port's LID.
    pub lid: u16,
    /// Its mask.
    pub lmc: u8,
    /// The subnet manager's LID.
    pub sm_lid: u16,
    /// The subnet manager's service level.
    pub sm_sl: u8,
    /// What the port can do.
    pub capabilities: u32,
    /// Link width: enabled, supported, active.
    pub width: [u8; 3],
    /// Link speed: enabled, supported, active.
    pub speed: [u8; 3],
    /// State of the link, 1 down to 4 active.
    pub state: u8,
    /// State of its training.
    pub physical_state: u8,
    /// Where it goes when it is down: 1 sleep, 2 polling.
    pub down_default: u8,
    /// The neighbour's MTU, and our largest, as codes 1 to 5.
    pub mtu: [u8; 2],
    /// Virtual lanes: in use and possible, as codes.
    pub lanes: [u8; 2],
    /// P_Keys.
    pub pkeys: Vec<u16>,
    /// P_Key and Q_Key violations.
    pub violations: [u16; 2],
    /// Lane of each service level.
    pub vl_of_sl: [u8; 16],
    /// Arbitration: low and high table, 32 entries of lane and weight each.
    pub arbitration: [[u8; 64]; 2],
    /// How long answers may take, and how long the subnet may, as codes.
    pub time_codes: [u8; 2],
    /// Errors after which the link counts one: physical, overrun.
    pub error_thresholds: u8,
}

impl Default for PortAttributes {
    fn default() -> Self {
        Self {
            m_key: 0,
            m_key_protect: 0,
            m_key_lease_s: 0,
            m_key_violations: 0,
            prefix: Gid::DEFAULT_PREFIX,
            lid: 0,
            lmc: 0,
            sm_lid: 0,
            sm_sl: 0,
            capabilities: 0x0761_0868,
            width: [3, 3, 2],
            speed: [7, 7, 4],
            state: 2,
            physical_state: 5,
            down_default: 2,
            mtu: [4, 5],
            lanes: [1, 2],
            pkeys: vec![0xFFFF, 0, 0, 0],
            violations: [0; 2],
            vl_of_sl: [0; 16],
            arbitration: [[0; 64]; 2],
            time_codes: [16, 18],
            error_thresholds: 0xFF,
        }
    }
}

/// What the owner of the port has to carry out after a Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wish {
    /// The port has this LID and mask.
    Lid(Lid, u8),
    /// The link is to go to this state, 1 down, 3 armed, 4 active.
    State(u8),
    /// The link's training is to go to this state.
    PhysicalState(u8),
    /// Packets to the neighbour may have this MTU, as a code.
    Mtu(u8),
    /// So many lanes, as a code.
    Lanes(u8),
    /// The P_Keys have changed.
    PKeys,
    /// The lanes of service levels have changed.
    ServiceLevels,
    /// The arbitration tables have changed.
    Arbitration,
    /// The link's width or speed is to be another from the next training on.
    Link,
}

/// The agent.
#[derive(Debug)]
pub struct SubnetAgent {
    identity: Identity,
    /// The port.
    pub port: PortAttributes,
    wishes: Vec<Wish>,
    /// MADs that were dropped: malformed, or refused by the M_Key.
    pub dropped: u64,
}

impl SubnetAgent {
    /// The agent of a port.
    pub fn new(identity: Identity, port: PortAttributes) -> Self {
        Self { identity, port, wishes: Vec::new(), dropped: 0 }
    }

    /// The GUID of the port.
    pub fn port_guid(&self) -> u64 {
        self.identity.port_guid
    }

    /// The queue pair that its MADs come to.
    pub const QP: QpNumber = QpNumber::SUBNET_MANAGEMENT;

    /// What Sets have asked for since the last call.
    pub fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    /// Takes a MAD; gives the answer, if it gets one.
    pub fn process(&mut self, mad: &Mad) -> Option<Mad> {
        if !mad.class().is_subnet() || mad.is_returning() {
            return None;
        }
        let mut answer = mad.clone();
        if mad.class() == MadClass::SubnetDirected {
            let (pointer, count) = mad.hops();
            if pointer != count || count > Mad::HOPS_MAX {
                self.dropped += 1;
                return None;
            }
            answer.note_return_port(count, self.identity.port);
        }
        if !matches!(mad.method(), Method::Get | Method::Set) {
            // Answers are for a manager; other methods want no answer of an agent.
            return matches!(mad.method(), Method::Other(_)).then(|| self.finish(answer, status::METHOD));
        }
        if !mad.has_known_versions() {
            return Some(self.finish(answer, status::BAD_VERSION));
        }
        if !self.may(mad) {
            self.port.m_key_violations = self.port.m_key_violations.saturating_add(1);
            self.dropped += 1;
            return None;
        }
        let verdict = if mad.method() == Method::Set { self.set(&answer) } else { Ok(()) };
        let verdict = verdict.and_then(|()| self.get(&mut answer));
        Some(self.finish(answer, verdict.err().unwrap_or(0)))
    }

    fn finish(&self, mut answer: Mad, verdict: u16) -> Mad {
        let back = if answer.class() == MadClass::SubnetDirected { status::DIRECTION } else { 0 };
        answer.set_method(Method::GetResponse);
        answer.set_status(verdict | back);
        answer
    }

    /// Whether the M_Key lets it in.
    fn may(&self, mad: &Mad) -> bool {
        let fits = self.port.m_key == 0 || mad.m_key() == self.port.m_key;
        match (mad.method(), self.port.m_key_protect) {
            (Method::Get, 0 | 1) => true,
            _ => fits,
        }
    }

    fn get(&self, mad: &mut Mad) -> Result<(), u16> {
        let (attribute, modifier) = (mad.attribute(), mad.modifier());
        let fits = mad.m_key() == self.port.m_key || self.port.m_key_protect == 0;
        let data = mad.data_mut();
        data.fill(0);
        match attribute {
            NODE_DESCRIPTION => {
                let text = self.identity.description.as_bytes();
                let len = text.len().min(data.len());
                data[..len].copy_from_slice(&text[..len]);
            }
            NODE_INFO => self.get_node_info(data),
            PORT_INFO => {
                if modifier != 0 && modifier != u32::from(self.identity.port) {
                    return Err(status::INVALID_VALUE);
                }
                self.get_port_info(data, fits);
            }
            GUID_INFO if modifier == 0 => data[..8].copy_from_slice(&self.identity.port_guid.to_be_bytes()),
            PKEY_TABLE => {
                let start = (modifier & 0xFFFF) as usize * PKEY_BLOCK;
                if start >= self.port.pkeys.len().max(1) {
                    return Err(status::INVALID_VALUE);
                }
                let block = self.port.pkeys.iter().skip(start).take(PKEY_BLOCK);
                for (to, pkey) in data.chunks_exact_mut(2).zip(block) {
                    to.copy_from_slice(&pkey.to_be_bytes());
                }
            }
            SL_TO_VL => {
                for (to, lanes) in data.iter_mut().zip(self.port.vl_of_sl.chunks_exact(2)) {
                    *to = lanes[0] << 4 | lanes[1] & 0xF;
                }
            }
            VL_ARBITRATION => {
                let block = arbitration_block(modifier).ok_or(status::INVALID_VALUE)?;
                data.copy_from_slice(&self.port.arbitration[block]);
            }
            _ => return Err(status::METHOD_ATTRIBUTE),
        }
        Ok(())
    }

    fn get_node_info(&self, data: &mut [u8; Mad::DATA_BYTES]) {
        const CHANNEL_ADAPTER: u8 = 1;
        let id = &self.identity;
        data[..4].copy_from_slice(&[1, 1, CHANNEL_ADAPTER, id.ports]);
        data[4..12].copy_from_slice(&id.system_guid.to_be_bytes());
        data[12..20].copy_from_slice(&id.node_guid.to_be_bytes());
        data[20..28].copy_from_slice(&id.port_guid.to_be_bytes());
        data[28..30].copy_from_slice(&(self.port.pkeys.len() as u16).to_be_bytes());
        data[30..32].copy_from_slice(&id.device_id.to_be_bytes());
        data[32..36].copy_from_slice(&id.revision.to_be_bytes());
        data[36..40].copy_from_slice(&(u32::from(id.port) << 24 | id.vendor_id & 0xFF_FFFF).to_be_bytes());
    }

    fn get_port_info(&self, data: &mut [u8; Mad::DATA_BYTES], shows_key: bool) {
        let port = &self.port;
        if shows_key {
            data[..8].copy_from_slice(&port.m_key.to_be_bytes());
        }
        data[8..16].copy_from_slice(&port.prefix.to_be_bytes());
        data[16..18].copy_from_slice(&port.lid.to_be_bytes());
        data[18..20].copy_from_slice(&port.sm_lid.to_be_bytes());
        data[20..24].copy_from_slice(&port.capabilities.to_be_bytes());
        data[26..28].copy_from_slice(&port.m_key_lease_s.to_be_bytes());
        data[28] = self.identity.port;
        data[29..32].copy_from_slice(&port.width);
        data[32] = port.speed[1] << 4 | port.state & 0xF;
        data[33] = port.physical_state << 4 | port.down_default & 0xF;
        data[34] = port.m_key_protect << 6 | port.lmc & 7;
        data[35] = port.speed[2] << 4 | port.speed[0] & 0xF;
        data[36] = port.mtu[0] << 4 | port.sm_sl & 0xF;
        data[37] = port.lanes[1] << 4;
        // Entries of each arbitration table.
        (data[39], data[40]) = (16, 16);
        data[41] = port.mtu[1] & 0xF;
        data[43] = port.lanes[0] << 4;
        data[44..46].copy_from_slice(&port.m_key_violations.to_be_bytes());
        data[46..48].copy_from_slice(&port.violations[0].to_be_bytes());
        data[48..50].copy_from_slice(&port.violations[1].to_be_bytes());
        data[50] = 1;
        data[51] = port.time_codes[1] & 0x1F;
        data[52] = port.time_codes[0] & 0x1F;
        data[53] = port.error_thresholds;
    }

    fn set(&mut self, mad: &Mad) -> Result<(), u16> {
        let data = *mad.data();
        match mad.attribute() {
            PORT_INFO => self.set_port_info(&data, mad.modifier()),
            PKEY_TABLE => {
                let start = (mad.modifier() & 0xFFFF) as usize * PKEY_BLOCK;
                if start >= self.port.pkeys.len() {
                    return Err(status::INVALID_VALUE);
                }
                for (pkey, from) in self.port.pkeys[start..].iter_mut().zip(data.chunks_exact(2)) {
                    *pkey = u16::from_be_bytes([from[0], from[1]]);
                }
                self.wishes.push(Wish::PKeys);
                Ok(())
            }
            SL_TO_VL => {
                for (lanes, from) in self.port.vl_of_sl.chunks_exact_mut(2).zip(data) {
                    (lanes[0], lanes[1]) = (from >> 4, from & 0xF);
                }
                self.wishes.push(Wish::ServiceLevels);
                Ok(())
            }
            VL_ARBITRATION => {
                let block = arbitration_block(mad.modifier()).ok_or(status::INVALID_VALUE)?;
                self.port.arbitration[block] = data;
                self.wishes.push(Wish::Arbitration);
                Ok(())
            }
            _ => Err(status::METHOD_ATTRIBUTE),
        }
    }

    fn set_port_info(&mut self, data: &[u8; Mad::DATA_BYTES], modifier: u32) -> Result<(), u16> {
        let u16_at = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        let (lid, sm_lid, lmc) = (u16_at(16), u16_at(18), data[34] & 7);
        let (state, physical) = (data[32] & 0xF, data[33] >> 4);
        let (mtu, lanes) = (data[36] >> 4, data[43] >> 4);
        let unicast = |lid: u16| (1..0xC000).contains(&lid);
        // From armed only to active, from anywhere but down to armed, and down from anywhere.
        let is_way = match state {
            0 | STATE_DOWN => true,
            STATE_ARMED => self.port.state >= 2,
            STATE_ACTIVE => self.port.state >= STATE_ARMED,
            _ => false,
        };
        let is_possible = (modifier == 0 || modifier == u32::from(self.identity.port))
            && unicast(lid)
            && (sm_lid == 0 || unicast(sm_lid))
            && mtu <= self.port.mtu[1]
            && lanes <= self.port.lanes[1]
            && physical <= 3
            && is_way;
        if !is_possible {
            return Err(status::INVALID_VALUE);
        }
        let port = &mut self.port;
        let mut wish = |wish| self.wishes.push(wish);
        port.m_key = u64::from_be_bytes(*data.first_chunk().unwrap_or(&[0; 8]));
        port.prefix = data[8..16].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        (port.m_key_lease_s, port.m_key_protect) = (u16_at(26), data[34] >> 6);
        (port.sm_lid, port.sm_sl) = (sm_lid, data[36] & 0xF);
        if (port.lid, port.lmc) != (lid, lmc) {
            (port.lid, port.lmc) = (lid, lmc);
            wish(Wish::Lid(Lid(lid), lmc));
        }
        if mtu > 0 && port.mtu[0] != mtu {
            port.mtu[0] = mtu;
            wish(Wish::Mtu(mtu));
        }
        if lanes > 0 && port.lanes[0] != lanes {
            port.lanes[0] = lanes;
            wish(Wish::Lanes(lanes));
        }
        // 0 is "as it is", 255 (15 for a speed) is "whatever is supported".
        let width = if data[29] == 0xFF { port.width[1] } else { data[29] };
        let speed = if data[35] & 0xF == 0xF { port.speed[1] } else { data[35] & 0xF };
        if width != 0 && width != port.width[0] || speed != 0 && speed != port.speed[0] {
            port.width[0] = if width == 0 { port.width[0] } else { width };
            port.speed[0] = if speed == 0 { port.speed[0] } else { speed };
            wish(Wish::Link);
        }
        port.m_key_violations = if u16_at(44) == 0 { 0 } else { port.m_key_violations };
        port.violations[0] = if u16_at(46) == 0 { 0 } else { port.violations[0] };
        port.violations[1] = if u16_at(48) == 0 { 0 } else { port.violations[1] };
        port.time_codes[1] = data[51] & 0x1F;
        port.error_thresholds = data[53];
        if physical > 0 {
            wish(Wish::PhysicalState(physical));
        }
        if state > 0 && state != port.state {
            port.state = if state == STATE_DOWN { port.state } else { state };
            wish(Wish::State(state));
        }
        Ok(())
    }
}

/// Which table a VLArb modifier means: 1 is the low one's first half, 3 the high one's.
fn arbitration_block(modifier: u32) -> Option<usize> {
    match modifier >> 16 {
        1 => Some(0),
        3 => Some(1),
        _ => None,
    }
}
