//! How fast a line is.

use qhca_regs::Duration;

/// Signalling rate of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// 2.5 Gb/s.
    Sdr,
    /// 5 Gb/s.
    Ddr,
    /// 10 Gb/s.
    Qdr,
}

/// Lanes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One lane.
    X1,
    /// Four lanes.
    X4,
}

/// How long a byte takes on the line, picoseconds; 0 for a line that takes no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRate {
    ps_per_byte: u32,
}

/// Bytes on the line that are not in a packet's own: ICRC, VCRC, and the two delimiters (F-503).
const OVERHEAD_BYTES: usize = 4 + 2 + 2;

impl LineRate {
    /// A line that takes no time: for whoever paces the packets itself, and for measuring the model's speed.
    pub const UNLIMITED: Self = Self { ps_per_byte: 0 };

    /// The rate of a link: 8b/10b coding leaves eight tenths of the signalling rate.
    pub const fn of(speed: Speed, width: Width) -> Self {
        let single = match speed {
            Speed::Sdr => 4000,
            Speed::Ddr => 2000,
            Speed::Qdr => 1000,
        };
        match width {
            Width::X1 => Self { ps_per_byte: single },
            Width::X4 => Self { ps_per_byte: single / 4 },
        }
    }

    /// A line on which a byte takes `ps` picoseconds.
    pub const fn ps_per_byte(ps: u32) -> Self {
        Self { ps_per_byte: ps }
    }

    /// How long a packet of `len_bytes` (LRH to the last pad byte) occupies the line, rounded up to nanoseconds.
    pub const fn packet_time(self, len_bytes: usize) -> Duration {
        let ps = (len_bytes + OVERHEAD_BYTES) as u64 * self.ps_per_byte as u64;
        Duration::from_nanos(ps.div_ceil(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_four_lane_qdr_link_carries_four_bytes_a_nanosecond() {
        let qdr = LineRate::of(Speed::Qdr, Width::X4);
        assert_eq!(qdr.packet_time(2048 + 20), Duration::from_nanos(519));
        assert_eq!(LineRate::of(Speed::Sdr, Width::X1).packet_time(92), Duration::from_nanos(400));
        assert_eq!(LineRate::UNLIMITED.packet_time(4096), Duration::ZERO);
    }
}
