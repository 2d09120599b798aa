//! Times that the wire says in five bits: the pause after an RNR NAK, and the local ack timeout.

use qhca_regs::Duration;

/// The pauses, in units of 10 µs, by code.
const RNR_10US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// How long a requester pauses after an RNR NAK with this code, 0 to 31. Code 0 is the longest.
pub const fn rnr_pause(code: u8) -> Duration {
    Duration::from_micros(10 * RNR_10US[(code & 0x1F) as usize] as u64)
}

/// How long a requester waits for an acknowledge: 4.096 µs × 2^`timeout`, 0 to 31; for ever at 0.
pub const fn ack_timeout(timeout: u8) -> Option<Duration> {
    match timeout & 0x1F {
        0 => None,
        timeout => Some(Duration::from_nanos(4096 << timeout)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_codes_stand_for_the_specified_pauses() {
        assert_eq!(rnr_pause(0), Duration::from_micros(655_360), "code 0 is the longest pause");
        assert_eq!(rnr_pause(1), Duration::from_micros(10));
        assert_eq!(rnr_pause(12), Duration::from_micros(640));
        assert_eq!(rnr_pause(13), Duration::from_micros(960));
        assert_eq!(rnr_pause(31), Duration::from_micros(491_520));
        assert!((1..31).all(|code| rnr_pause(code) < rnr_pause(code + 1)));
    }

    #[test]
    fn ack_timeout_doubles_with_each_step_and_zero_waits_for_ever() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(4096 << 31)));
    }
}
