//! A port's two lamps, as `EXTCtrl` and `RcvPktLEDCnt` drive them.
//!
//! ```text
//!   EXTCtrl   bit 0 yellow, 1 green of port 0   bit 2 yellow, 3 green of port 1
//!   RcvPktLEDCnt   how long the green lamp goes on (63:32) and off (31:0) when packets come, in units of 4 ns
//! ```
//!
//! Software switches both: green for the physical link, yellow for the logical one (F-491).

use super::Chip;
use qhca_regs::map::{device, port};
use qhca_regs::{Duration, Port};

/// One tick of `RcvPktLEDCnt`.
const TICK: Duration = Duration::from_nanos(4);
const LAMPS_PER_PORT: usize = 2;

/// What somebody in front of the card sees of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lamps {
    /// The logical link.
    pub yellow: bool,
    /// The physical link.
    pub green: bool,
    /// How long green goes on and off while packets come; `None` if it does not blink.
    pub blink: Option<(Duration, Duration)>,
}

impl Chip {
    /// The lamps of `port`.
    pub fn lamps(&self, port: Port) -> Lamps {
        let switches = self.store.get(device::EXT_CTRL.offset()) >> (LAMPS_PER_PORT * port.index());
        let counts = self.store.get(port::RCV_PKT_LED_CNT.port(port).offset());
        let green = switches & 2 != 0;
        let (on, off) = (counts >> 32, counts & 0xFFFF_FFFF);
        let blink = (green && on != 0 && off != 0).then(|| (TICK.times(on), TICK.times(off)));
        Lamps { yellow: switches & 1 != 0, green, blink }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;

    #[test]
    fn lamps_follow_their_switches_and_green_blinks_with_its_counts() {
        let mut bench = Bench::new();
        assert_eq!(bench.chip.lamps(Port::P1), Lamps::default());
        bench.write(device::EXT_CTRL.offset(), 0b1100);
        let counts = port::RCV_PKT_LED_CNT.port(Port::P1).offset();
        // What the stock driver writes: 66.6 ms on, 187.5 ms off.
        bench.write(counts, 16_650_000 << 32 | 46_875_000);
        let lamps = bench.chip.lamps(Port::P1);
        assert!(lamps.yellow && lamps.green);
        assert_eq!(lamps.blink, Some((Duration::from_micros(66_600), Duration::from_micros(187_500))));
        assert_eq!(bench.chip.lamps(Port::P0), Lamps::default(), "the other port's stay dark");
        bench.write(counts, 0);
        assert_eq!(bench.chip.lamps(Port::P1).blink, None);
    }
}
