//! The packets of the experiment: plain InfiniBand, 2 KiB of payload, numbered so that each can be told apart.
//!
//! ```text
//!   LRH 8 bytes | BTH 12 | payload 2048, the first 8 of them the packet's number, big-endian
//! ```

use qhca_regs::Lid;

/// Payload of one packet.
pub(super) const PAYLOAD_BYTES: usize = 2048;
const LRH_BYTES: usize = 8;
const BTH_BYTES: usize = 12;
const HEADER_BYTES: usize = LRH_BYTES + BTH_BYTES;
/// UC SEND only: one packet, one message, no extension header.
const OPCODE_UC_SEND_ONLY: u8 = 0x24;
const DEFAULT_PKEY: [u8; 2] = [0xFF, 0xFF];
/// An ordinary queue pair; the map sends it to the port's first kernel context.
const DEST_QPN: [u8; 3] = [0, 0, 0x10];

/// One packet, renumbered for each use.
#[derive(Clone, Debug)]
pub(super) struct Packets {
    bytes: Vec<u8>,
    next_number: u64,
}

impl Packets {
    /// Packets from port `source` to port `dest`, numbered from 0.
    pub(super) fn new(source: Lid, dest: Lid) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + PAYLOAD_BYTES);
        let len_dwords = ((HEADER_BYTES + PAYLOAD_BYTES) / 4 + 1) as u16;
        // LRH: VL 0 and link version 0; SL 0 and a BTH next (2); the two LIDs; the length through the ICRC.
        bytes.extend([0x00, 0x02]);
        bytes.extend(dest.0.to_be_bytes());
        bytes.extend(len_dwords.to_be_bytes());
        bytes.extend(source.0.to_be_bytes());
        // BTH: opcode, no flags and no pad, P_Key; destination; sequence number.
        bytes.extend([OPCODE_UC_SEND_ONLY, 0]);
        bytes.extend(DEFAULT_PKEY);
        bytes.push(0);
        bytes.extend(DEST_QPN);
        bytes.extend([0; 4]);
        bytes.resize(HEADER_BYTES + PAYLOAD_BYTES, 0x5A);
        Self { bytes, next_number: 0 }
    }

    /// The next packet, from the LRH to the payload's end.
    pub(super) fn next_packet(&mut self) -> &[u8] {
        let number = self.next_number;
        self.next_number += 1;
        let psn = (number as u32 & 0xFF_FFFF).to_be_bytes();
        self.bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&psn);
        self.bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&number.to_be_bytes());
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_says_its_length_and_its_number() {
        let mut packets = Packets::new(Lid(1), Lid(2));
        let first = packets.next_packet().to_vec();
        let second = packets.next_packet().to_vec();
        // 8 + 12 + 2048 bytes are 517 dwords; the ICRC makes 518.
        assert_eq!(u16::from_be_bytes([first[4], first[5]]), 518);
        assert_eq!((first[2..4].to_vec(), first[6..8].to_vec()), (vec![0, 2], vec![0, 1]));
        assert_eq!((first[27], second[27], second[19]), (0, 1, 1));
        assert_eq!(first.len(), 2068);
    }
}
