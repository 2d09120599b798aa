//! The two check sums of an InfiniBand packet (F-500 to F-502).
//!
//! ```text
//!   | LRH | GRH? | BTH | ... | payload | pad | ICRC 4 | VCRC 2 |
//!   '---- invariant: all but the fields ------'        |
//!         that change on the way                       |
//!   '---- variant: everything -----------------------'
//! ```
//!
//! The ICRC protects a packet from end to end, so whatever a switch or router may change is taken as all ones: the
//! virtual lane in the LRH, traffic class, flow label and hop limit in the GRH, and the reserved byte of the BTH that
//! carries congestion marks. It is the CRC-32 of Ethernet, its bytes sent as Ethernet sends them. The VCRC protects one
//! hop and covers the ICRC too.

use crc_fast::CrcParams;

/// Bytes that both check sums add to a packet.
pub const CRC_BYTES: usize = ICRC_BYTES + VCRC_BYTES;
const ICRC_BYTES: usize = 4;
const VCRC_BYTES: usize = 2;

const LRH_BYTES: usize = 8;
const GRH_BYTES: usize = 40;
/// LRH's next-header field, low bits of byte 1: 3 means that a GRH follows.
const LNH_GRH: u8 = 3;
/// The reserved byte of the BTH, counted from its start.
const BTH_RESERVED: usize = 4;
/// As many bytes as have masked fields in them: LRH, GRH, and the BTH up to its reserved byte.
const MASKED_BYTES: usize = LRH_BYTES + GRH_BYTES + BTH_RESERVED + 1;

/// Computes and checks both sums.
#[derive(Clone, Copy, Debug)]
pub struct Crcs {
    vcrc: CrcParams,
}

/// What a receiver finds on checking a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The end-to-end sum fits.
    pub icrc_ok: bool,
    /// The link's sum fits.
    pub vcrc_ok: bool,
}

impl Verdict {
    /// Both fit.
    pub const GOOD: Self = Self { icrc_ok: true, vcrc_ok: true };
}

impl Default for Crcs {
    fn default() -> Self {
        Self::new()
    }
}

impl Crcs {
    /// Prepares the tables.
    pub fn new() -> Self {
        // x^16 + x^12 + x^3 + x + 1, least significant bit first, all ones in, complement out.
        Self { vcrc: CrcParams::new("VCRC", 16, 0x100B, 0xFFFF, true, 0xFFFF, 0) }
    }

    /// The invariant sum of `packet`, LRH to the last pad byte, as its bytes stand on the wire.
    pub fn icrc(&self, packet: &[u8]) -> [u8; ICRC_BYTES] {
        let mut head = [0; MASKED_BYTES];
        let masked = masked_len(packet);
        let head = &mut head[..masked];
        head.copy_from_slice(&packet[..masked]);
        mask(head);
        let mut sum = crc32fast::Hasher::new();
        sum.update(head);
        sum.update(&packet[masked..]);
        sum.finalize().to_le_bytes()
    }

    /// The variant sum of `packet` with its ICRC, as its bytes stand on the wire.
    pub fn vcrc(&self, packet: &[u8]) -> [u8; VCRC_BYTES] {
        (crc_fast::checksum_with_params(self.vcrc, packet) as u16).to_le_bytes()
    }

    /// Appends both sums to a packet.
    pub fn seal(&self, packet: &mut Vec<u8>) {
        packet.extend_from_slice(&self.icrc(packet));
        packet.extend_from_slice(&self.vcrc(packet));
    }

    /// Takes both sums off a packet and says whether they fitted. A packet too short to hold them fits neither.
    pub fn open(&self, packet: &mut Vec<u8>) -> Verdict {
        let Some(len) = packet.len().checked_sub(CRC_BYTES) else {
            packet.clear();
            return Verdict { icrc_ok: false, vcrc_ok: false };
        };
        let (body, tail) = packet.split_at(len);
        let verdict = Verdict {
            icrc_ok: self.icrc(body) == tail[..ICRC_BYTES],
            vcrc_ok: self.vcrc(&packet[..len + ICRC_BYTES]) == tail[ICRC_BYTES..],
        };
        packet.truncate(len);
        verdict
    }
}

/// Whether the invariant sum covers `bit` (0 to 7) of byte `byte` of `packet`, which is without its sums; bytes past its
/// end are the sums'.
pub fn is_invariant(packet: &[u8], byte: usize, bit: u8) -> bool {
    let mut ones = [0; MASKED_BYTES];
    let masked = masked_len(packet);
    let (ones, is_grh) = (&mut ones[..masked], has_grh(packet));
    mask_as(ones, is_grh);
    ones.get(byte).is_none_or(|mask| mask >> bit & 1 == 0)
}

fn has_grh(packet: &[u8]) -> bool {
    packet.get(1).is_some_and(|byte| byte & 3 == LNH_GRH)
}

/// How many leading bytes of `packet` hold all fields that are masked.
fn masked_len(packet: &[u8]) -> usize {
    let grh = if has_grh(packet) { GRH_BYTES } else { 0 };
    (LRH_BYTES + grh + BTH_RESERVED + 1).min(packet.len())
}

/// Sets the masked fields in the leading bytes of a packet.
fn mask(head: &mut [u8]) {
    let is_grh = has_grh(head);
    mask_as(head, is_grh);
}

/// Sets the masked fields in the leading bytes of a packet that has a GRH or has none; fields past their end are left
/// out.
fn mask_as(head: &mut [u8], is_grh: bool) {
    let mut set = |byte: usize, ones: u8| {
        if let Some(byte) = head.get_mut(byte) {
            *byte |= ones;
        }
    };
    set(0, 0xF0);
    let bth = if is_grh {
        // The GRH's first dword is version (4 bits), traffic class (8), flow label (20); byte 7 is the hop limit.
        set(LRH_BYTES, 0x0F);
        for byte in 1..4 {
            set(LRH_BYTES + byte, 0xFF);
        }
        set(LRH_BYTES + 7, 0xFF);
        LRH_BYTES + GRH_BYTES
    } else {
        LRH_BYTES
    };
    set(bth + BTH_RESERVED, 0xFF);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sample packet of the InfiniBand architecture specification, volume 1, whose ICRC it prints.
    const SAMPLE: [u8; 52] = [
        0x70, 0x12, 0x37, 0x5C, 0x00, 0x0E, 0x17, 0xD2, 0x0A, 0x20, 0x24, 0x87, 0x00, 0x87, 0xB1, 0xB3, 0x00,
        0x0D, 0xEC, 0x2A, 0x01, 0x71, 0x0A, 0x1C, 0x01, 0x5D, 0x40, 0x02, 0x38, 0xF2, 0x7A, 0x05, 0x00, 0x00,
        0x00, 0x0E, 0xBB, 0x88, 0x4D, 0x85, 0xFD, 0x5C, 0xFB, 0xA4, 0x72, 0x8B, 0xC0, 0x69, 0x0E, 0xD4, 0x00,
        0x00,
    ];

    /// The VCRC by its definition: one bit at a time.
    fn vcrc_by_bits(packet: &[u8]) -> [u8; 2] {
        let mut register = 0xFFFF_u16;
        for bit in packet.iter().flat_map(|byte| (0..8).map(move |n| byte >> n & 1)) {
            let feedback = (register ^ u16::from(bit)) & 1;
            register = (register >> 1) ^ (feedback * 0x100B_u16.reverse_bits());
        }
        (!register).to_le_bytes()
    }

    fn flip(bytes: &mut [u8], at: usize) -> (usize, u8) {
        let (byte, bit) = (at / 8 % bytes.len(), (at % 8) as u8);
        bytes[byte] ^= 1 << bit;
        (byte, bit)
    }

    #[test]
    fn the_specifications_sample_packet_has_the_sum_that_it_prints() {
        assert_eq!(Crcs::new().icrc(&SAMPLE), [0x96, 0x25, 0xB7, 0x5A]);
    }

    #[test]
    fn fields_that_change_on_the_way_do_not_change_the_invariant_sum() {
        let crcs = Crcs::new();
        let mut rerouted = SAMPLE;
        rerouted[0] ^= 0x30;
        rerouted[12] = 0x80;
        assert_eq!(crcs.icrc(&rerouted), crcs.icrc(&SAMPLE));
        assert_ne!(crcs.vcrc(&rerouted), crcs.vcrc(&SAMPLE));
        let mut global = [&SAMPLE[..8], &[0x60; 40], &SAMPLE[8..]].concat();
        global[1] |= 3;
        let before = crcs.icrc(&global);
        global[8] = 0x6F;
        global[9..12].copy_from_slice(&[1, 2, 3]);
        global[15] = 1;
        global[52] = 7;
        assert_eq!(crcs.icrc(&global), before);
        global[8] = 0x7F;
        assert_ne!(crcs.icrc(&global), before, "the IP version is no variant field");
    }

    #[test]
    fn a_packet_shorter_than_its_sums_fits_neither() {
        let mut short = vec![1, 2, 3];
        assert_eq!(Crcs::new().open(&mut short), Verdict { icrc_ok: false, vcrc_ok: false });
        assert!(short.is_empty());
    }

    proptest! {
        #[test]
        fn the_fast_variant_sum_is_the_one_by_definition(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(Crcs::new().vcrc(&bytes), vcrc_by_bits(&bytes));
        }

        #[test]
        fn a_sealed_packet_opens_unharmed(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let (crcs, mut packet) = (Crcs::new(), bytes.clone());
            crcs.seal(&mut packet);
            prop_assert_eq!(packet.len(), bytes.len() + CRC_BYTES);
            prop_assert_eq!(crcs.open(&mut packet), Verdict::GOOD);
            prop_assert_eq!(packet, bytes);
        }

        /// The field that says whether a GRH follows decides what is masked, so a flip there is left out.
        #[test]
        fn a_flipped_bit_is_caught_by_the_sums_that_cover_it(
            bytes in prop::collection::vec(any::<u8>(), 20..600), at: usize,
        ) {
            let (crcs, mut packet) = (Crcs::new(), bytes);
            let body = packet.len();
            crcs.seal(&mut packet);
            let (byte, bit) = flip(&mut packet, at);
            prop_assume!(byte != 1 || bit > 1);
            let covered = byte < body + ICRC_BYTES && is_invariant(&packet[..body], byte, bit);
            prop_assert_eq!(crcs.open(&mut packet), Verdict { icrc_ok: !covered, vcrc_ok: false });
        }
    }
}
