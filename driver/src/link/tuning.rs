//! Tuning a port's SerDes to the cable: how far the receiver's equalizer goes.
//!
//! The SerDes are reached through a small bus inside the chip (AHB): one register says who owns it and which SerDes is
//! meant, another takes address and data and says when it is done. Each of the four lanes has a register of its own
//! for the equalizer's second stage (LE2), whose setting depends on how much of the signal the cable eats:
//!
//! ```text
//!   amplified at the far end     LE2 = 0
//!   copper, 10 dB and more       LE2 = 4      (option long_attenuation)
//!   everything else, unknown     LE2 = 5
//! ```
//!
//! Nothing here is essential (F-133): if the bus does not answer, the link trains with what the reset has set.
//!
//! Source: F-241, F-243.

use qhca_regs::map::device::{self, AhbAccessCtrl, AhbTransactionReg};
use qhca_regs::{Bar, GONE, Port, RegValue};

use super::cable::CableInfo;

/// Lanes of a SerDes as its bus numbers them; 2 is the clock, 5 the rest (F-243).
const LANES: [u16; 4] = [0, 1, 3, 4];
/// The lane register with LE2.
const LE2_REGISTER: u16 = 13;
/// Where LE2 stands in it: bits 9 to 7.
const LE2_SHIFT: u32 = 7;
const LE2_MASK: u16 = 0b111 << LE2_SHIFT;
/// Looks at the bus before it is given up (F-243).
const READY_LOOKS: usize = 10;

/// Setting of the equalizer's second stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Le2 {
    /// No loss to make up for: the far end amplifies.
    ActiveFar = 0,
    /// A long copper cable.
    LongCopper = 4,
    /// Everything else.
    Normal = 5,
}

impl Le2 {
    /// What suits `cable`, copper counting as long from `long_attenuation_db` on.
    pub fn for_cable(cable: Option<&CableInfo>, long_attenuation_db: u8) -> Self {
        match cable {
            Some(cable) if cable.technology.is_active_far() => Self::ActiveFar,
            Some(cable) if cable.technology.is_copper() && cable.attenuation_db[1] >= long_attenuation_db => {
                Self::LongCopper
            }
            _ => Self::Normal,
        }
    }
}

/// Sets the equalizers of all lanes of `port`. False if the chip's inner bus did not answer.
pub fn write_le2(port: Port, le2: Le2, bar: &impl Bar) -> bool {
    let before = device::AHB_ACCESS_CTRL.read(bar);
    if before.raw() == GONE {
        return false;
    }
    // Targets 2 and 3 are the SerDes of port 0 and 1 (F-243).
    let ours = AhbAccessCtrl(0).with_sw_ahb_sel(true).with_sw_sel_ahb_trgt(2 + port.index() as u8);
    device::AHB_ACCESS_CTRL.write(bar, ours);
    let value = u16::from(le2 as u8) << LE2_SHIFT;
    let done = LANES.into_iter().all(|lane| change(lane, LE2_REGISTER, LE2_MASK, value, bar));
    device::AHB_ACCESS_CTRL.write(bar, before);
    done
}

/// Replaces the bits of `mask` in a lane's register.
fn change(lane: u16, register: u16, mask: u16, value: u16, bar: &impl Bar) -> bool {
    // The bus counts bytes, the registers are words.
    let address = AhbTransactionReg(0).with_ahb_address((lane << 6 | register) << 1);
    let Some(old) = transact(address, bar) else { return false };
    let data = old.ahb_data() as u16 & !mask | value & mask;
    transact(address.with_write_not_read(true).with_ahb_data(u32::from(data)), bar).is_some()
}

/// One access on the inner bus; what the register holds once it is ready again.
fn transact(transaction: AhbTransactionReg, bar: &impl Bar) -> Option<AhbTransactionReg> {
    ready(bar)?;
    device::AHB_TRANSACTION_REG.write(bar, transaction);
    ready(bar).filter(|done| !done.ahb_req_err())
}

fn ready(bar: &impl Bar) -> Option<AhbTransactionReg> {
    let looks = (0..READY_LOOKS).map(|_| device::AHB_TRANSACTION_REG.read(bar));
    looks.take_while(|seen| seen.raw() != GONE).find(|seen| seen.ahb_rdy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::cable::tests::{golden, seal};
    use crate::scriptbar::ScriptBar;

    fn cable(technology: u8, attenuation_ddr: u8) -> CableInfo {
        let mut bytes = golden();
        (bytes[147], bytes[187]) = (technology << 4, attenuation_ddr);
        seal(&mut bytes);
        CableInfo::parse(&bytes)
    }

    #[test]
    fn attenuation_and_technology_choose_the_equalizer() {
        let le2 = |technology, db| Le2::for_cable(Some(&cable(technology, db)), 10);
        assert_eq!([le2(11, 9), le2(11, 10), le2(10, 30)], [Le2::Normal, Le2::LongCopper, Le2::LongCopper]);
        assert_eq!([le2(0, 40), le2(13, 40)], [Le2::ActiveFar, Le2::ActiveFar]);
        assert_eq!(Le2::for_cable(None, 10), Le2::Normal);
    }

    /// A bus that remembers what is written to each address, and says it.
    fn ahb() -> ScriptBar {
        let bar = ScriptBar::reset();
        let store = std::cell::RefCell::new(std::collections::BTreeMap::<u16, u32>::new());
        bar.on_write(move |bar, offset, value| {
            if offset == device::AHB_TRANSACTION_REG.offset() {
                let asked = AhbTransactionReg(value);
                let mut store = store.borrow_mut();
                let held = store.entry(asked.ahb_address()).or_insert(0xFFFF);
                if asked.write_not_read() {
                    *held = asked.ahb_data();
                }
                let answer = AhbTransactionReg(0).with_ahb_data(*held).with_ahb_rdy(true);
                bar.set(offset, answer.raw());
            }
        });
        bar
    }

    #[test]
    fn each_lane_gets_its_setting_and_keeps_its_other_bits() {
        let bar = ahb();
        device::AHB_ACCESS_CTRL.write(&bar, AhbAccessCtrl(6));
        assert!(write_le2(Port::P1, Le2::LongCopper, &bar));
        let written: Vec<AhbTransactionReg> =
            bar.written(device::AHB_TRANSACTION_REG.offset()).into_iter().map(AhbTransactionReg).collect();
        let writes: Vec<_> = written.iter().filter(|transaction| transaction.write_not_read()).collect();
        let addresses: Vec<u16> = writes.iter().map(|write| write.ahb_address()).collect();
        assert_eq!(addresses, LANES.map(|lane| (lane * 64 + 13) * 2));
        // LE2 = 4 in bits 9 to 7, all else as it was.
        assert!(writes.iter().all(|write| write.ahb_data() == 0xFE7F));
        let owners = bar.written(device::AHB_ACCESS_CTRL.offset());
        assert_eq!(owners, [6, 1 | 3 << 1, 6], "taken for port 1, and given back");
    }

    #[test]
    fn bus_that_is_never_ready_is_given_up_after_ten_looks_and_given_back() {
        let bar = ScriptBar::reset();
        bar.set(device::AHB_TRANSACTION_REG.offset(), 0);
        assert!(!write_le2(Port::P0, Le2::Normal, &bar));
        let looks =
            bar.reads.borrow().iter().filter(|at| **at == device::AHB_TRANSACTION_REG.offset()).count();
        assert_eq!(looks, READY_LOOKS);
        assert_eq!(bar.written(device::AHB_ACCESS_CTRL.offset()).last(), Some(&0));
    }
}
