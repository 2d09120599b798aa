//! Every counter of the chip, kept in 64 bits.
//!
//! Most of the chip's counters have 32 bits and start again at 0 when they are full; some have 64. [`Counters`] reads
//! them often enough to see every wrap, adds up the differences, and so counts from bring-up on without an end. Each
//! is read by one 64-bit access, so no half of a number is ever older than the other (F-001).
//!
//! A device that no longer answers reads all ones. The totals then stay as they were: they are the last that is known.
//!
//! Source: F-145 to F-147.

use crate::ports::Ports;
use core::fmt;
use qhca_regs::access::PORT_STRIDE_BYTES;
use qhca_regs::map::device;
use qhca_regs::{Bar, Ctxt, Duration, GONE, Instant, Port, RegValue};

pub mod table;

pub use table::{CounterInfo, Unit, Width};

/// How often all counters are read.
///
/// TIMEOUT: the stock driver's interval. A 32-bit counter of packets wraps after 47 minutes at the highest rate that
/// the link allows, one of 4 ns ticks after 17 s (F-147).
pub const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// The device no longer answers; the totals are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountersFrozen {
    /// The counter whose reading showed it, or the one asked for afterwards.
    pub counter: &'static str,
}

impl fmt::Display for CountersFrozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the device no longer answers; totals stay as they were last read", self.counter)
    }
}

impl std::error::Error for CountersFrozen {}

/// One counter's account.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    last: u64,
    total: u64,
}

impl Account {
    /// Takes a reading; how much was counted since the one before.
    fn take(&mut self, width: Width, reading: u64) -> u64 {
        let (reading, delta) = match width {
            Width::Bits32 => {
                let low = reading & 0xFFFF_FFFF;
                (low, low.wrapping_sub(self.last) & 0xFFFF_FFFF)
            }
            Width::Bits64 => (reading, reading.wrapping_sub(self.last)),
            Width::Level => {
                self.total = reading;
                (reading, 0)
            }
        };
        self.last = reading;
        self.total = self.total.wrapping_add(delta);
        delta
    }
}

/// One block of counters: the device's, or a port's.
#[derive(Clone, Debug)]
struct Block {
    table: &'static [CounterInfo],
    shift: u32,
    accounts: Vec<Account>,
}

impl Block {
    fn new(table: &'static [CounterInfo], shift: u32) -> Self {
        Self { table, shift, accounts: vec![Account::default(); table.len()] }
    }

    /// Reads counter `index` once.
    fn sample(&mut self, index: usize, bar: &impl Bar) -> Result<u64, CountersFrozen> {
        let info = &self.table[index];
        let reading = bar.read(info.offset + self.shift);
        // Only a 64-bit counter can honestly be all ones; the revision tells.
        if reading == GONE && device::REVISION.read(bar).raw() == GONE {
            return Err(CountersFrozen { counter: info.name });
        }
        Ok(self.accounts[index].take(info.width, reading))
    }

    fn sample_all(&mut self, bar: &impl Bar) -> Result<(), CountersFrozen> {
        (0..self.table.len()).try_for_each(|index| self.sample(index, bar).map(drop))
    }

    fn values(&self) -> impl Iterator<Item = (&'static CounterInfo, u64)> {
        self.table.iter().zip(&self.accounts).map(|(info, account)| (info, account.total))
    }
}

/// All counters of a device since bring-up.
#[derive(Clone, Debug)]
pub struct Counters {
    device: Block,
    ports: [Option<Block>; 2],
    downs_missed: [u64; 2],
    frozen: Option<CountersFrozen>,
    next_sample: Instant,
}

impl Counters {
    /// Starts to count the device and `ports` from what the chip shows now.
    ///
    /// # Errors
    /// [`CountersFrozen`]: the device does not answer.
    pub fn start(ports: Ports, bar: &impl Bar, now: Instant) -> Result<Self, CountersFrozen> {
        let block = |port: Port| {
            ports.has(port).then(|| Block::new(table::PORT, port.index() as u32 * PORT_STRIDE_BYTES))
        };
        let mut counters = Self {
            device: Block::new(&table::DEVICE, 0),
            ports: Port::ALL.map(block),
            downs_missed: [0; 2],
            frozen: None,
            next_sample: now,
        };
        counters.rebase(bar, now)?;
        Ok(counters)
    }

    /// Goes on from what the chip shows now, without counting the difference: after a reset of the chip.
    ///
    /// # Errors
    /// [`CountersFrozen`]: the device does not answer.
    pub fn rebase(&mut self, bar: &impl Bar, now: Instant) -> Result<(), CountersFrozen> {
        let totals: Vec<_> = self.blocks().map(|block| block.accounts.clone()).collect();
        self.frozen = None;
        self.sample(bar, now)?;
        for (block, old) in self.blocks_mut().zip(totals) {
            let sums = block.table.iter().zip(&mut block.accounts).zip(old);
            for ((_, account), old) in sums.filter(|((info, _), _)| info.width != Width::Level) {
                account.total = old.total;
            }
        }
        Ok(())
    }

    /// Reads every counter once.
    ///
    /// # Errors
    /// [`CountersFrozen`], then and ever after: no register is read once the device has gone.
    pub fn sample(&mut self, bar: &impl Bar, now: Instant) -> Result<(), CountersFrozen> {
        if let Some(frozen) = self.frozen {
            return Err(frozen);
        }
        self.next_sample = now + SAMPLE_EVERY;
        let result = self.blocks_mut().try_for_each(|block| block.sample_all(bar));
        self.frozen = result.err();
        result
    }

    /// Reads the overflow counter of `ctxt` alone; how many packets were dropped for lack of space since the last look.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn sample_overflow(&mut self, ctxt: Ctxt, bar: &impl Bar) -> Result<u64, CountersFrozen> {
        if let Some(frozen) = self.frozen {
            return Err(frozen);
        }
        let result = self.device.sample(table::FIRST_OVERFLOW + ctxt.index(), bar);
        self.frozen = result.err();
        result
    }

    /// The device is gone: the totals stay, and nothing is read any more.
    pub fn freeze(&mut self) {
        self.frozen.get_or_insert(CountersFrozen { counter: "device" });
    }

    /// Whether the totals are final.
    pub const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// When [`sample`](Self::sample) is due next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.frozen.is_none().then_some(self.next_sample)
    }

    /// Lost links that the chip did not count, in all; they are added to `IBLinkDown` (F-139).
    pub fn set_downs_missed(&mut self, port: Port, missed: u64) {
        self.downs_missed[port.index()] = missed;
    }

    /// The device's counters, in the order of the table.
    pub fn device(&self) -> impl Iterator<Item = (&'static CounterInfo, u64)> {
        self.device.values()
    }

    /// The counters of `port`, in the order of the table; none if it is not in use.
    pub fn port(&self, port: Port) -> impl Iterator<Item = (&'static CounterInfo, u64)> {
        let missed = self.downs_missed[port.index()];
        let values = self.ports[port.index()].iter().flat_map(Block::values);
        values.map(move |(info, total)| match info.name {
            "IBLinkDown" => (info, total.wrapping_add(missed)),
            _ => (info, total),
        })
    }

    /// The total of one device counter by name.
    pub fn device_total(&self, name: &str) -> Option<u64> {
        self.device().find(|(info, _)| info.name == name).map(|(_, total)| total)
    }

    /// The total of one port counter by name.
    pub fn port_total(&self, port: Port, name: &str) -> Option<u64> {
        self.port(port).find(|(info, _)| info.name == name).map(|(_, total)| total)
    }

    /// Packets dropped in `ctxt` for lack of eager buffers or queue entries.
    pub fn overflow(&self, ctxt: Ctxt) -> u64 {
        self.device.accounts[table::FIRST_OVERFLOW + ctxt.index()].total
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        core::iter::once(&self.device).chain(self.ports.iter().flatten())
    }

    fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        core::iter::once(&mut self.device).chain(self.ports.iter_mut().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scriptbar::ScriptBar;
    use proptest::prelude::*;
    use qhca_regs::map::{self, counter};
    use std::collections::HashSet;

    const BOTH: Ports = Ports::from_speed_mask(0x3F);

    fn started(bar: &ScriptBar) -> Counters {
        Counters::start(BOTH, bar, Instant::ZERO).expect("a device")
    }

    /// B169: names are unique, short, and the marks stand where ipathfs has them.
    #[test]
    fn names_are_unique_and_as_ipathfs_has_them() {
        for (table, first_error) in
            [(&table::DEVICE[..], table::FIRST_DEVICE_ERROR), (table::PORT, table::FIRST_PORT_ERROR)]
        {
            let names: HashSet<_> = table.iter().map(|info| info.name).collect();
            assert_eq!(names.len(), table.len());
            for info in table.iter().filter(|info| info.is_listed) {
                let two_digits = info.name.starts_with("Ctxt1") && info.name.len() == 13;
                assert!(info.name.len() <= 12 || two_digits, "{}", info.name);
            }
            let marked: Vec<_> = table::ipath_names(table).filter(|name| name.starts_with("E ")).collect();
            assert_eq!(marked, [format!("E {first_error}")]);
        }
        let all: HashSet<_> = table::DEVICE.iter().chain(table::PORT).map(|info| info.name).collect();
        assert_eq!(all.len(), table::DEVICE.len() + table::PORT.len());
    }

    #[test]
    fn every_counter_of_the_map_is_in_one_table_once() {
        let here: Vec<u32> = table::DEVICE.iter().chain(table::PORT).map(|info| info.offset).collect();
        let unique: HashSet<_> = here.iter().copied().collect();
        assert_eq!(unique.len(), here.len());
        let in_map: HashSet<u32> = map::all()
            .map(|placed| placed.offset)
            .filter(|offset| (0x1_1000..0x1_3000).contains(offset))
            .collect();
        assert_eq!(unique, in_map);
        assert_eq!(table::DEVICE[table::FIRST_OVERFLOW].name, "Ctxt0EgrOvfl");
    }

    /// A 32-bit counter that starts just below its end is counted on across it.
    #[test]
    fn counter_that_wraps_is_counted_on() {
        let bar = ScriptBar::reset();
        let ctxt = Ctxt::new(2).expect("a context");
        let offset = counter::RX_HDR_EGR_OVFL_CNT.ctxt(ctxt).offset();
        bar.set(offset, 0xFFFF_FF00);
        let mut counters = started(&bar);
        assert_eq!(counters.overflow(ctxt), 0);
        bar.set(offset, 0x10);
        assert_eq!(counters.sample_overflow(ctxt, &bar), Ok(0x110));
        bar.set(offset, 0x20);
        counters.sample(&bar, Instant::ZERO).expect("a device");
        assert_eq!(counters.overflow(ctxt), 0x120);
        assert_eq!(counters.device_total("Ctxt2EgrOvfl"), Some(0x120));
    }

    /// B156: a 64-bit counter is read whole, once, so a carry between halves cannot be torn.
    #[test]
    fn wide_counter_is_read_by_one_access_and_its_carry_is_no_jump() {
        let bar = ScriptBar::reset();
        let offset = counter::RX_DWORD_CNT.port(Port::P1).offset();
        bar.set(offset, 0xFFFF_FFFF);
        let mut counters = started(&bar);
        bar.set(offset, 0x1_0000_0001);
        bar.reads.borrow_mut().clear();
        counters.sample(&bar, Instant::ZERO).expect("a device");
        assert_eq!(counters.port_total(Port::P1, "RxWords"), Some(2));
        assert_eq!(bar.reads.borrow().iter().filter(|&&at| at == offset).count(), 1);
        assert_eq!(bar.reads.borrow().len(), table::DEVICE.len() + 2 * table::PORT.len());
    }

    #[test]
    fn upper_half_of_a_narrow_counter_is_ignored() {
        let bar = ScriptBar::reset();
        let offset = counter::RX_ICRC_ERR_CNT.port(Port::P0).offset();
        let mut counters = started(&bar);
        bar.set(offset, 0xDEAD_0000_0003);
        counters.sample(&bar, Instant::ZERO).expect("a device");
        assert_eq!(counters.port_total(Port::P0, "RxICRCerr"), Some(3));
    }

    #[test]
    fn lost_device_freezes_the_totals_and_is_not_read_again() {
        let bar = ScriptBar::reset();
        let offset = counter::TX_DATA_PKT_CNT.port(Port::P0).offset();
        let mut counters = started(&bar);
        bar.set(offset, 77);
        counters.sample(&bar, Instant::ZERO).expect("a device");
        bar.vanish();
        let frozen = counters.sample(&bar, Instant::ZERO).expect_err("gone");
        assert_eq!(frozen, CountersFrozen { counter: "Interrupts" });
        bar.reads.borrow_mut().clear();
        assert_eq!(counters.sample(&bar, Instant::ZERO), Err(frozen));
        assert!(counters.sample_overflow(Ctxt::new(0).expect("a context"), &bar).is_err());
        assert!(bar.reads.borrow().is_empty() && counters.poll_timeout().is_none());
        assert_eq!(counters.port_total(Port::P0, "TxPkt"), Some(77));
    }

    #[test]
    fn wide_counter_of_all_ones_on_a_living_device_is_a_count() {
        let bar = ScriptBar::reset();
        let mut counters = started(&bar);
        bar.set(counter::LB_INT_CNT.offset(), u64::MAX);
        counters.sample(&bar, Instant::ZERO).expect("the revision still reads");
        assert_eq!(counters.device_total("Interrupts"), Some(u64::MAX));
    }

    #[test]
    fn missed_downs_are_added_and_a_reset_chip_loses_nothing() {
        let bar = ScriptBar::reset();
        let offset = counter::IB_LINK_DOWNED_CNT.port(Port::P0).offset();
        let mut counters = started(&bar);
        bar.set(offset, 5);
        counters.sample(&bar, Instant::ZERO).expect("a device");
        counters.set_downs_missed(Port::P0, 2);
        bar.set(offset, 0);
        counters.rebase(&bar, Instant::ZERO).expect("a device");
        bar.set(offset, 1);
        counters.sample(&bar, Instant::ZERO).expect("a device");
        assert_eq!(counters.port_total(Port::P0, "IBLinkDown"), Some(8));
    }

    #[test]
    fn absent_port_has_no_counters_and_is_not_read() {
        let bar = ScriptBar::reset();
        let counters = Counters::start(Ports::from_speed_mask(7), &bar, Instant::ZERO).expect("a device");
        assert_eq!(counters.port(Port::P1).count(), 0);
        assert!(bar.reads.borrow().iter().all(|at| *at < 0x1_3000));
    }

    proptest! {
        /// However a 32-bit counter moves, as long as less than 2^32 pass between two looks, the sum is exact.
        #[test]
        fn sums_equal_the_true_count(start: u32, steps in proptest::collection::vec(any::<u32>(), 0..40)) {
            let bar = ScriptBar::reset();
            let offset = counter::RX_TID_FULL_ERR_CNT.offset();
            bar.set(offset, u64::from(start));
            let mut counters = started(&bar);
            let mut truth = u64::from(start);
            for step in steps {
                truth += u64::from(step);
                bar.set(offset, truth & 0xFFFF_FFFF);
                counters.sample(&bar, Instant::ZERO).expect("a device");
            }
            prop_assert_eq!(counters.device_total("RxTIDFull"), Some(truth - u64::from(start)));
        }
    }
}
